/* Expert loads as the sources describe them. All are scaled to tokens * ranks * top_k assignments a layer.
 *
 *   hot         a few experts share a part of the assignments
 *   log-normal  popularity drawn for every layer; it stands still, or drifts as LAER-MoE measured in training
 *   recorded    the first iterations of a trace, layers at even distances
 *   series      what the FSSDP paper's rows take. Its models have 12 or 24 MoE layers and 32 experts on 16 ranks or 64 on 32:
 *       synthetic  24 layers of drifting log-normal popularity; a model of 12 layers takes the first 12
 *       recorded   32 experts: the trace's layers as they are; a model of 12 layers takes every second one
 *                  64 experts: two of the trace's layers side by side, l and (l + n/2) mod n, as experts 0..31 and
 *                  32..63 of one layer. Each has half of the assignments (no recorded trace has 64 experts on 32
 *                  ranks)
 *
 * Synthetic loads are totals that are split evenly over the ranks. */
#pragma once
#include "models/load.h"

#include <stdbool.h>

typedef enum { HEC_LOADS_SYNTHETIC, HEC_LOADS_RECORDED, HEC_N_LOADS } hec_loads_kind;
extern const char *const hec_loads_name[HEC_N_LOADS];

typedef struct {
  hec_loads_kind kind; /* of a series */
  double sigma;        /* synthetic */
  bool still;          /* synthetic: popularity does not drift */
  int32_t n_ranks, n_experts, n_layers, tokens, top_k;
} hec_loads_wish;

typedef struct {
  int32_t n;
  int64_t *iter;   /* [n] */
  int64_t *stride; /* [n] distance to the next */
  hec_load *load;  /* [n] n_sources = ranks */
} hec_loads;

/* Seed and trace; totals of a series are generated once and kept. */
typedef struct hec_loads_store hec_loads_store;

/* `trace` NULL: synthetic only. The trace must have 32 experts, top-2 and at least 2 layers; it is read whole.
 * At most `n_max` iterations are kept of either kind. */
hec_status hec_loads_open(const char *trace, int32_t n_max, uint64_t seed, hec_loads_store **store) HEC_MUST_USE;
void hec_loads_close(hec_loads_store *store);
HEC_OPENED_BY(hec_loads_store, hec_loads_close)
bool hec_loads_recorded(const hec_loads_store *store);
const char *hec_loads_trace_name(const hec_loads_store *store); /* "" without */
int64_t hec_loads_trace_stride(const hec_loads_store *store);   /* iterations between its records */

/* Below: the first n iterations of what is wished for (fewer if there are fewer), on `arena`. Deterministic. */

/* Of a series. */
hec_status hec_loads_make(hec_loads_store *store, const hec_loads_wish *wish, int32_t n, hec_arena *arena,
                          hec_loads *loads) HEC_MUST_USE;
/* The first n_hot experts share `share` evenly, the others the rest: the same in every layer and iteration. They are
 * neighbours, so the first ranks hold them. */
hec_status hec_loads_hot(const hec_loads_wish *wish, int32_t n, int32_t n_hot, double share, hec_arena *arena,
                         hec_loads *loads) HEC_MUST_USE;
hec_status hec_loads_lognormal(hec_loads_store *store, const hec_loads_wish *wish, int32_t n, hec_arena *arena,
                               hec_loads *loads) HEC_MUST_USE;
/* The sigma under which contiguous experts on `ep` ranks (0: all) have the busiest rank's share that a source states.
 * The share is the mean over layers and iterations of busiest over mean. Found by bisection to about 0.5 %, drifting
 * to a few percent. Then as hec_loads_lognormal. */
hec_status hec_loads_imbalanced(hec_loads_store *store, const hec_loads_wish *wish, int32_t n, int32_t ep,
                                double overload, hec_arena *arena, hec_loads *loads, double *sigma) HEC_MUST_USE;
/* Fails when the trace has other experts, or fewer layers. */
hec_status hec_loads_of_trace(const char *path, const hec_loads_wish *wish, int32_t n, hec_arena *arena,
                              hec_loads *loads) HEC_MUST_USE;

/* Mean over layers and iterations of busiest over mean rank, experts contiguous on groups of `ep` ranks (0: all). */
double hec_loads_overload(const hec_loads *loads, int32_t ep);
