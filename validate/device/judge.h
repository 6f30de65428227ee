/* Predicted against measured for all rows of a folder of tables: `hecate-validate hardware --cases FOLDER`. */
#pragma once
#include "validate/device/cases.h"
#include "validate/doc.h"

typedef struct {
  const char *kind, *gpu;
  int32_t rows;                                   /* predicted */
  double median, p90, signed_median, correlation; /* |predicted / measured - 1|; Spearman's rank correlation */
} hec_judged_kind;

typedef struct {
  hec_cases cases;
  hec_arena arena;
  int32_t n_kinds;
  hec_judged_kind *kinds; /* [n_kinds] by kind, then GPU */
  int32_t n_not;          /* rows without a prediction */
} hec_judgement;

/* Every row is priced by the preset of its GPU (or its name up to '_': "h100_sxm" is "h100"). Nothing is fitted. `sister`:
 * each has the constants of that preset instead, as if nobody had measured it; NULL: its own. */
hec_status hec_judge_folder(const char *folder, const char *sister, hec_judgement *judgement) HEC_MUST_USE;
void hec_judgement_free(hec_judgement *judgement);
/* Of a hec_judgement. For programs: {"kinds": [{"kind", "gpu", "rows", "median", "p90", "signed_median", "rank_correlation"}],
 *                "rows": [{"file", "line", "predicted_s" or "why_not"}]} */
hec_doc_report hec_judgement_report;
