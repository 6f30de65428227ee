/* Expert loads for the published set-ups: recorded ones from a trace, synthetic ones from traces/synth.
 *
 * The paper's models have 12 or 24 MoE layers and 32 experts on 16 ranks or 64 on 32, top-2. What each takes:
 *   synthetic  24 layers of log-normal popularity (sigma is the gate skew), drifting as LAER-MoE measured in training,
 *              seeded; totals, split evenly over the ranks; a model of 12 layers takes the first 12
 *   recorded   32 experts: the trace's layers as they are; a model of 12 layers takes every second one
 *              64 experts: layer l and layer (l + n/2) mod n of the trace side by side, as experts 0..31 and 32..63 of
 *              one layer, each with half of the assignments (no recorded trace has 64 experts on 32 ranks)
 * and in both cases every layer is scaled to tokens * ranks * top_k assignments. */
#ifndef HEC_VALIDATE_PUBLISHED_LOADS_H
#define HEC_VALIDATE_PUBLISHED_LOADS_H
#include "models/load.h"

#include <stdbool.h>

typedef enum { HEC_LOADS_SYNTHETIC, HEC_LOADS_RECORDED, HEC_N_LOADS } hec_loads_kind;
extern const char *const hec_loads_name[HEC_N_LOADS];

typedef struct {
  hec_loads_kind kind;
  double sigma; /* synthetic */
  bool still;   /* synthetic: popularity does not drift */
  int32_t n_ranks, n_experts, n_layers, tokens, top_k;
} hec_loads_wish;

typedef struct {
  int32_t n;
  int64_t *iter;   /* [n] */
  int64_t *stride; /* [n] distance to the next */
  hec_load *load;  /* [n] n_sources = ranks */
} hec_loads;

typedef struct hec_loads_store hec_loads_store;

/* `trace` NULL: synthetic only. The trace must have 32 experts, top-2 and at least 2 layers; it is read whole.
 * At most `n_most` iterations are kept of either kind. */
hec_status hec_loads_open(const char *trace, int32_t n_most, uint64_t seed, hec_loads_store **store) HEC_MUST_USE;
void hec_loads_close(hec_loads_store *store);
bool hec_loads_recorded(const hec_loads_store *store);
const char *hec_loads_trace_name(const hec_loads_store *store); /* "" without */
int64_t hec_loads_trace_stride(const hec_loads_store *store);   /* iterations between its records */

/* The first n iterations (fewer if there are fewer) of what is wished for; on `arena`. Deterministic. */
hec_status hec_loads_make(hec_loads_store *store, const hec_loads_wish *wish, int32_t n, hec_arena *arena,
                          hec_loads *loads) HEC_MUST_USE;

#endif
