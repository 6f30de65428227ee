/* Synthetic expert loads: the workloads that Megatron-LM's imbalance benchmark names (W0-W7, pull request 7488),
 * log-normal and Zipf popularity, with drift of a chosen autocorrelation. Seeded; same options, same bytes. Every trace
 * made here says "synthetic" in its header. */
#pragma once
#include "runtime/base/text.h"
#include "traces/trace.h"

enum { HEC_SYNTH_KNOTS = 8, HEC_SYNTH_LAG_MAX = 100 };

typedef struct {
  const char *workload;     /* name of a row of hec_synth_workloads */
  const char *name, *shape; /* of the trace; preset for the simulator; NULL: none */
  int32_t n_layers, n_experts, top_k;
  int32_t n_sources, ranks;          /* ranks 0: n_sources if above 1, else 8 */
  int64_t tokens;                    /* per source and layer */
  int64_t n_iterations, switch_iter; /* popularity is drawn anew at switch_iter; 0: never */
  uint64_t seed;
  double sigma, exponent; /* lognormal; zipf */
  double hot_share;       /* of the assignments, for the hot experts (W1-W3, W6, W7) */
  double idle_share;      /* of the experts (W5) */
  int32_t n_hot;          /* hot experts (W1); 0: as many as a rank holds */
  int32_t period;         /* iterations: W6 moves on, W7 bursts in the last quarter of each */
  double affinity;        /* of transitions between layers, 0 to 1; -INFINITY: the trace has none */
  int32_t n_knots;        /* drift: correlation wanted at lags (records) */
  int32_t lag[HEC_SYNTH_KNOTS];
  double correlation[HEC_SYNTH_KNOTS];
} hec_synth_options;

typedef struct hec_synth hec_synth;

typedef struct {
  const char *name, *alias, *summary;
  bool drifts; /* takes --drift */
  bool even;   /* rows are split evenly, not drawn */
  bool ragged; /* sources have different numbers of tokens */
  /* Weights (any positive scale) of the experts of a layer in this iteration; z: [n_experts] latent normal values. */
  void (*weigh)(const hec_synth *synth, int32_t layer, int64_t iter, const double *z, double *weights);
} hec_synth_workload;

extern const hec_synth_workload hec_synth_workloads[]; /* ends with a row without name */
const hec_synth_workload *hec_synth_find(const char *name);

hec_synth_options hec_synth_defaults(void);
/* Says what is wrong with them, in the words of the command line. */
hec_status hec_synth_check(const hec_synth_options *options) HEC_MUST_USE;
/* The command line that makes this trace, without --out. */
void hec_synth_command(const hec_synth_options *options, hec_text *text);

/* Options must have been checked. With drift this calibrates (a second or so); fails when it cannot be reached. */
hec_status hec_synth_new(const hec_synth_options *options, hec_synth **synth) HEC_MUST_USE;
/* Counts of iteration 1, 2, ... into `load` [n_layers][n_sources][n_experts]. */
void hec_synth_next(hec_synth *synth, hec_load *load);
void hec_synth_free(hec_synth *synth);
HEC_OPENED_BY(hec_synth, hec_synth_free)

/* Makes the whole trace: a file (hec_trace_create), or at most `limit` bytes in memory. */
hec_status hec_synth_write(const hec_synth_options *options, const char *path) HEC_MUST_USE;
hec_status hec_synth_write_memory(const hec_synth_options *options, hec_text *text, size_t limit) HEC_MUST_USE;
