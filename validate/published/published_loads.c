/* Synthetic totals are generated once per (sigma, drift, experts) and kept; a wish is then cut, scaled to its
 * assignments and spread over the ranks (hec_load_fit). Cost of a wish: O(iterations * layers * ranks * experts). */
#include "validate/published/published_loads.h"

#include "runtime/base/arena.h"
#include "traces/synth.h"

#include <stdlib.h>
#include <string.h>

enum { SYNTHETIC_LAYERS = 24, TOTALS_PER_RANK = 8192, RECORDED_EXPERTS = 32, TOP_K = 2, SERIES_MAX = 64 };

const char *const hec_loads_name[HEC_N_LOADS] = {"synthetic", "recorded"};

/* One generated series of totals. */
typedef struct {
  double sigma;
  bool still;
  int32_t n_experts, top_k;
  uint32_t *totals; /* [n_most][SYNTHETIC_LAYERS][n_experts] */
} series;

struct hec_loads_store {
  hec_arena arena;
  uint64_t seed;
  int32_t n_most, n_series;
  series made[SERIES_MAX];
  char *name;         /* of the trace; NULL without */
  int32_t n_recorded; /* records kept */
  int64_t *iter;      /* [n_recorded] */
  hec_load *recorded; /* [n_recorded] [layers][sources][32] */
};

/* ---- recorded ---- */

static hec_status check_header(const hec_trace_header *header, const char *path) {
  if (header->n_experts != RECORDED_EXPERTS || header->top_k != TOP_K || header->n_layers < 2)
    return hec_fail(HEC_BAD_INPUT,
                    "%s: the published set-ups need a trace of %d experts, top-%d and at least 2 layers, found %d "
                    "experts, top-%d, %d layers",
                    path, RECORDED_EXPERTS, TOP_K, header->n_experts, header->top_k, header->n_layers);
  if (header->synthetic)
    return hec_fail(HEC_BAD_INPUT, "%s: is synthetic; --trace is for recorded loads", path);
  return HEC_OK;
}

static hec_status read_records(hec_loads_store *store, hec_trace_reader *reader) {
  const hec_trace_record *record;
  while (store->n_recorded < store->n_most) {
    HEC_TRY(hec_trace_next(reader, &record));
    if (!record)
      break;
    if (store->n_recorded > 0 && store->iter[store->n_recorded - 1] == record->iter)
      continue; /* one micro-batch per iteration is enough here */
    hec_load *load = &store->recorded[store->n_recorded];
    *load = hec_load_new(&store->arena, record->load.n_layers, record->load.n_sources, record->load.n_experts);
    hec_load_copy(&record->load, load);
    store->iter[store->n_recorded++] = record->iter;
  }
  return HEC_OK;
}

static hec_status read_trace(hec_loads_store *store, const char *path) {
  hec_trace_reader *reader;
  HEC_TRY(hec_trace_open(path, &reader));
  hec_status status = check_header(hec_trace_header_of(reader), path);
  if (status == HEC_OK) {
    store->name = hec_arena_text(&store->arena, hec_trace_header_of(reader)->name);
    store->iter = HEC_NEW(&store->arena, int64_t, store->n_most);
    store->recorded = HEC_NEW(&store->arena, hec_load, store->n_most);
    status = read_records(store, reader);
  }
  hec_trace_close(reader);
  return status;
}

/* Layer `layer` of a model of n_layers out of n recorded ones. */
static int32_t recorded_layer(int32_t layer, int32_t n_layers, int32_t n) {
  return n_layers <= n ? (int32_t)((int64_t)layer * n / n_layers) : layer % n;
}

/* The wished layers and experts of a record, on its own sources: out [n_layers][sources][n_experts]. */
static void cut_recorded(const hec_load *from, const hec_loads_wish *wish, hec_load *out) {
  int32_t n = from->n_layers, halves = wish->n_experts / RECORDED_EXPERTS;
  for (int32_t l = 0; l < wish->n_layers; l++)
    for (int32_t s = 0; s < from->n_sources; s++)
      for (int32_t h = 0; h < halves; h++) {
        int32_t layer = (recorded_layer(l, wish->n_layers, n) + h * (n / 2)) % n;
        memcpy(hec_load_row(out, l, s) + (size_t)h * RECORDED_EXPERTS, hec_load_row(from, layer, s),
               RECORDED_EXPERTS * sizeof(uint32_t));
      }
}

/* ---- synthetic ---- */

static hec_status generate(hec_loads_store *store, const hec_loads_wish *wish, series *one) {
  hec_synth_options o = hec_synth_defaults();
  o.workload = "lognormal";
  o.n_layers = SYNTHETIC_LAYERS;
  o.n_experts = wish->n_experts;
  o.top_k = wish->top_k;
  o.n_sources = 1;
  o.tokens = (int64_t)TOTALS_PER_RANK * wish->n_ranks;
  o.n_iterations = store->n_most;
  o.seed = store->seed;
  o.sigma = wish->sigma;
  if (!wish->still) { /* measured in training by LAER-MoE (arXiv 2602.11686) */
    o.n_knots = 4;
    memcpy(o.lag, (int32_t[]){1, 5, 9, 20}, 4 * sizeof *o.lag);
    memcpy(o.correlation, (double[]){0.96, 0.89, 0.76, 0.33}, 4 * sizeof *o.correlation);
    if (o.n_iterations < 60) /* a short series would not show these correlations whatever is drawn */
      o.n_iterations = 60;
  }
  hec_synth *synth;
  HEC_TRY(hec_synth_check(&o));
  HEC_TRY(hec_synth_new(&o, &synth));
  size_t record = (size_t)SYNTHETIC_LAYERS * (size_t)wish->n_experts;
  *one = (series){wish->sigma, wish->still, wish->n_experts, wish->top_k,
                  HEC_NEW(&store->arena, uint32_t, record * (size_t)store->n_most)};
  for (int32_t i = 0; i < store->n_most; i++) {
    hec_load load = {SYNTHETIC_LAYERS, 1, wish->n_experts, one->totals + (size_t)i * record};
    hec_synth_next(synth, &load);
  }
  hec_synth_free(synth);
  return HEC_OK;
}

static hec_status find_series(hec_loads_store *store, const hec_loads_wish *wish, const series **found) {
  for (int32_t i = 0; i < store->n_series; i++) {
    const series *one = &store->made[i];
    if (one->n_experts == wish->n_experts && one->top_k == wish->top_k && one->still == wish->still &&
        one->sigma == wish->sigma) {
      *found = one;
      return HEC_OK;
    }
  }
  HEC_ASSERT(store->n_series < SERIES_MAX);
  HEC_TRY(generate(store, wish, &store->made[store->n_series]));
  *found = &store->made[store->n_series++];
  return HEC_OK;
}

static void cut_synthetic(const series *one, int32_t i, const hec_loads_wish *wish, hec_load *out) {
  size_t experts = (size_t)wish->n_experts;
  for (int32_t l = 0; l < wish->n_layers; l++)
    memcpy(hec_load_row(out, l, 0),
           one->totals + ((size_t)i * SYNTHETIC_LAYERS + (size_t)(l % SYNTHETIC_LAYERS)) * experts,
           experts * sizeof(uint32_t));
}

/* ---- both ---- */

hec_status hec_loads_open(const char *trace, int32_t n_most, uint64_t seed, hec_loads_store **store) {
  HEC_ASSERT(n_most >= 1);
  *store = hec_malloc(1, sizeof **store);
  **store = (hec_loads_store){.seed = seed, .n_most = n_most};
  hec_status status = trace ? read_trace(*store, trace) : HEC_OK;
  if (status == HEC_OK)
    return HEC_OK;
  hec_loads_close(*store);
  *store = NULL;
  return status;
}

void hec_loads_close(hec_loads_store *store) {
  if (!store)
    return;
  hec_arena_free(&store->arena);
  free(store);
}

bool hec_loads_recorded(const hec_loads_store *store) {
  return store->name != NULL;
}
const char *hec_loads_trace_name(const hec_loads_store *store) {
  return store->name ? store->name : "";
}
int64_t hec_loads_trace_stride(const hec_loads_store *store) {
  return store->n_recorded > 1 ? store->iter[1] - store->iter[0] : 1;
}

hec_status hec_loads_make(hec_loads_store *store, const hec_loads_wish *wish, int32_t n, hec_arena *arena,
                          hec_loads *loads) {
  bool recorded = wish->kind == HEC_LOADS_RECORDED;
  const series *one = NULL;
  HEC_ASSERT(!recorded || (store->name && wish->n_experts % RECORDED_EXPERTS == 0));
  if (!recorded)
    HEC_TRY(find_series(store, wish, &one));
  int32_t n_there = recorded ? store->n_recorded : store->n_most;
  n = n < n_there ? n : n_there;
  *loads = (hec_loads){n, HEC_NEW(arena, int64_t, n), HEC_NEW(arena, int64_t, n), HEC_NEW(arena, hec_load, n)};
  hec_load cut = hec_load_new(arena, wish->n_layers, recorded ? store->recorded[0].n_sources : 1, wish->n_experts);
  size_t cells = (size_t)wish->n_ranks * (size_t)wish->n_experts;
  hec_load_remainder *order = HEC_NEW(arena, hec_load_remainder, cells);
  for (int32_t i = 0; i < n; i++) {
    if (recorded)
      cut_recorded(&store->recorded[i], wish, &cut);
    else
      cut_synthetic(one, i, wish, &cut);
    loads->load[i] = hec_load_new(arena, wish->n_layers, wish->n_ranks, wish->n_experts);
    uint64_t assignments = (uint64_t)wish->n_ranks * (uint64_t)wish->tokens * (uint64_t)wish->top_k;
    HEC_TRY(hec_load_fit(&cut, assignments, &loads->load[i], order));
    loads->iter[i] = recorded ? store->iter[i] : i + 1;
  }
  for (int32_t i = 0; i < n; i++)
    loads->stride[i] = i + 1 < n ? loads->iter[i + 1] - loads->iter[i] : i > 0 ? loads->stride[i - 1] : 1;
  return HEC_OK;
}
