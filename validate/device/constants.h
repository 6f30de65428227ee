/* A device's constants from published tables: `hecate-validate calibrate --from`. */
#pragma once
#include "validate/device/cases.h"
#include "validate/doc.h"

/* A fit whose median error on rows that it did not see is above this is not kept: the law does not cover that kernel. */
#define HEC_CONSTANTS_MEDIAN_MAX 0.15
enum { HEC_CONSTANTS_ROWS_MIN = 8 };

typedef struct {
  hec_law_fit fit;
  int32_t n_shapes;
  bool kept;
  double own_median, own_p90; /* on the rows that it was fitted to */
  /* Ablation: the same errors when constant i is held at its `off` value and the others are fitted again; < 0: not done. */
  double without_median[HEC_LAW_CONSTANTS_MAX], without_p90[HEC_LAW_CONSTANTS_MAX];
} hec_calibrated;

typedef struct {
  hec_arena arena;
  hec_gpu gpu; /* data sheet of the device; its fits replaced by the kept ones */
  int32_t n;
  hec_calibrated *fits; /* [n] all, by table and first line */
} hec_constants;

typedef struct {
  const char *folder, *device; /* device: a preset's name or a file with a data sheet */
  const char *law;             /* this one alone; NULL: all */
  bool ablate;
} hec_constants_options;

hec_status hec_constants_run(const hec_constants_options *options, hec_constants *calibration) HEC_MUST_USE;
void hec_constants_free(hec_constants *calibration);
/* Of a hec_constants. */
hec_doc_report hec_constants_report; /* for people */
hec_doc_report hec_constants_file;   /* a device file, in JSON */
