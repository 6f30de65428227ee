/* A training step under every placement policy, and with balanced routing: what is predicted, and how it is written. */
#pragma once
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
  bool seen;                   /* the trace has one record, which is the one seen before */
  int64_t n_empty;             /* layers of these records that have no tokens */
  int32_t n_groups;            /* expert-parallel groups that were simulated */
  double factor;               /* on every time; 1: nothing was measured */
  hec_training_result balanced;
  hec_training_row *rows;   /* [n_rows] as the policies */
  int32_t n_rows, baseline; /* the row of plain expert parallelism */
  int32_t n_fit;            /* rows that fit into memory */
  hec_training_fix fix;     /* where the baseline does not fit into memory */
} hec_training_summary;

/* What a row says in numbers: X(id, column, group, key, value): its column in CSV. In JSON the key, of the object `group` where
 * there is one. The value where `r` is the row's result, `row` the row, NULL of balanced routing, and `ep_s` the step of `ep`. */
/* clang-format off */
#define HEC_TRAINING_VALUE_LIST(X) \
  X(STEP, "step_s", NULL, "step_s", r->step_s) \
  X(TOKENS_PER_S, "tokens_per_s_per_gpu", NULL, "tokens_per_s_per_gpu", r->tokens_per_s_per_gpu) \
  X(TFLOPS, "model_tflops_per_gpu", NULL, "model_tflops_per_gpu", r->model_tflops_per_gpu) \
  X(MFU, "mfu", NULL, "mfu", r->mfu) \
  X(HOURS, "gpu_hours_per_1e12_tokens", NULL, "gpu_hours_per_1e12_tokens", r->gpu_hours_per_1e12_tokens) \
  X(BUBBLE, "bubble_share", NULL, "bubble_share", r->bubble_s / r->step_s) \
  X(DISPATCH, "dispatch_share", NULL, "dispatch_share", r->dispatch_s / r->step_s) \
  X(TENSOR, "tensor_share", NULL, "tensor_share", r->tensor_s / r->step_s) \
  X(DATA, "data_share", NULL, "data_share", (r->data_s + r->sharded_s) / r->step_s) \
  X(GATHER, "gather_share", NULL, "gather_share", r->gather_s / r->step_s) \
  X(MOVES, "moves_share", NULL, "moves_share", row ? row->moves_s / r->step_s : 0) \
  X(VS_EP, "speedup_vs_ep", NULL, "speedup_vs_ep", ep_s / r->step_s) \
  X(OVERLOAD_MEDIAN, "overload_median", "overload_factor", "median", row ? row->overload_median : 1) \
  X(OVERLOAD_P95, "overload_p95", "overload_factor", "p95", row ? row->overload_p95 : 1) \
  X(DROPPED, "dropped_share", NULL, "dropped_share", row ? row->dropped_share : 0) \
  X(PEAK, "peak_bytes", "memory", "peak_bytes", r->memory.peak) \
  X(NEEDED, "needed_bytes", "memory", "needed_bytes", r->memory.reserved + r->memory.outside) \
  X(MARGIN, "margin_bytes", "memory", "margin_bytes", r->memory.margin) \
  X(FITS, "fits", "memory", "fits", r->memory.fits) \
  X(STAGE, "fullest_stage", "memory", "stage", r->memory.device)
/* clang-format on */
#define HEC_TRAINING_VALUE_ID(id, ...) HEC_TRAINING_##id,
typedef enum { HEC_TRAINING_VALUE_LIST(HEC_TRAINING_VALUE_ID) HEC_N_TRAINING_VALUES } hec_training_value;
extern const hec_summary_value_name hec_training_value_names[HEC_N_TRAINING_VALUES];
/* Row -1: balanced routing. */
void hec_training_values(const hec_training_summary *summary, int32_t row, double value[HEC_N_TRAINING_VALUES]);

/* `policies`: what is compared; `ep` is added where it is missing, references are left out. The set-up must outlive it. */
typedef struct {
  const hec_policy *const *policies;
  int32_t n_policies, n_threads, warmup;
  bool silent;         /* no progress */
  int32_t records;     /* of the trace, at most; 0: as many as the step takes */
  bool recompute_more; /* until a row fits into memory: the set-up's recipe is changed */
} hec_training_choice;
hec_status hec_training_compare(hec_set_up *set_up, const hec_training_choice *choice, hec_trace_reader *reader,
                                hec_arena *arena, hec_training_summary *summary) HEC_MUST_USE;

const char *hec_training_pipeline_name(const hec_set_up *set_up);
/* How far off a predicted time may be. */
const hec_band *hec_training_band(const hec_training_summary *summary);
/* What --measured makes of all times, if it was given. Whether the band holds: it does not if the factor is far from 1. */
bool hec_training_factor_say(const hec_training_summary *summary, hec_text *words);
void hec_training_band_say(const hec_training_summary *summary, hec_text *words);
extern const char hec_training_not_modelled[];
/* The fastest row that drops nothing, of those that fit into memory; where none fits, of all. */
int32_t hec_training_fastest(const hec_training_summary *summary);
/* Its first paragraph; `between` its sentences. */
void hec_training_verdict(const hec_training_summary *summary, const char *between, hec_text *words);
/* Of a step, what its busiest GPU waits for launches from the host; 0 where that is not worth a word. */
double hec_training_host_share(const hec_training_result *result);
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
