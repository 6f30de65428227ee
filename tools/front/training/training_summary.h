/* A training step under every placement policy, and with balanced routing: what is predicted, and how it is written. */
#ifndef HEC_FRONT_TRAINING_SUMMARY_H
#define HEC_FRONT_TRAINING_SUMMARY_H
#include "models/training/band.h"
#include "runtime/base/text.h"
#include "sim/training_fit.h"
#include "sim/training_loads.h"
#include "tools/front/timelines/timeline_format.h"
#include "tools/front/training/set_up.h"

typedef struct {
  const hec_policy *policy;
  hec_training_result result;
  hec_training_job job;                 /* of the group that ends last; its loads are on the arena */
  double moves_s;                       /* of step_s: experts that move between ranks */
  double overload_median, overload_p95; /* busiest rank over mean */
  double dropped_share;
} hec_training_row;

typedef struct {
  const hec_set_up *set_up;
  const char *tool, *trace;
  int32_t n_before, n_records; /* records that policies have seen before the step, and that it takes */
  int32_t n_groups;            /* expert-parallel groups that were simulated */
  double factor;               /* on every time; 1: nothing was measured */
  hec_training_result balanced;
  hec_training_row *rows;   /* [n_rows] as the policies */
  int32_t n_rows, baseline; /* the row of plain expert parallelism */
  int32_t n_fit;            /* rows that fit into memory */
  hec_training_fix fix;     /* where the baseline does not fit into memory */
} hec_training_summary;

/* `policies`: what is compared; `ep` is added where it is missing, references are left out. The set-up must outlive it. */
typedef struct {
  const hec_policy *const *policies;
  int32_t n_policies, n_threads, warmup;
  int32_t records;     /* of the trace, at most; 0: as many as the step takes */
  bool recompute_more; /* until a row fits into memory: the set-up's recipe is changed */
} hec_training_choice;
hec_status hec_training_compare(hec_set_up *set_up, const hec_training_choice *choice, hec_trace_reader *reader,
                                hec_arena *arena, hec_training_summary *summary) HEC_MUST_USE;

const char *hec_training_pipeline_name(const hec_set_up *set_up);
/* How far off a predicted time may be. */
const hec_band *hec_training_band(const hec_training_summary *summary);
void hec_training_band_say(const hec_training_summary *summary, hec_text *words);
extern const char hec_training_not_modelled[];
/* The fastest row that drops nothing, of those that fit into memory; where none fits, of all. */
int32_t hec_training_fastest(const hec_training_summary *summary);
/* Its first paragraph; `between` its sentences. */
void hec_training_verdict(const hec_training_summary *summary, const char *between, hec_text *words);
/* Whether ep and the fastest policy fit into memory. */
void hec_training_say_memory(const hec_training_summary *summary, const char *between, hec_text *words);
/* Rows that matter, the fastest first: ep, the user's placement, the best of each family, then the best of the rest.
 * row: [n_max]. How many. */
int32_t hec_training_choose_rows(const hec_training_summary *summary, int32_t n_max, int32_t *row);
/* The verdict, at most six rows, what it rests on; `full`: all rows. DESIGN section 12. */
void hec_training_screen(const hec_training_summary *summary, bool full, hec_text *out);
void hec_training_json(const hec_training_summary *summary, hec_text *out);
void hec_training_csv(const hec_training_summary *summary, hec_text *out);
/* report.html, summary.json, summary.csv and timelines into the folder: of balanced routing, of ep and of the fastest policy. After
 * hec_timeline_files_check. */
hec_status hec_training_write_out(const hec_training_summary *summary, const char *folder,
                                  const hec_timeline_format *format) HEC_MUST_USE;

#endif
