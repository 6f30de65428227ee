/* Synthetic totals of a series are generated once per (sigma, drift, experts) and kept. A wish is then cut, scaled to its
 * assignments and spread over the ranks (hec_load_fit).
 *
 * Sigma for a stated imbalance by 12 halvings of [0, 4]: overload rises with sigma for fixed draws, near enough. Tried
 * are at most 8 iterations of the loads themselves. Drifting ones draw in many more ways that depend on sigma, so 240
 * layers of standing ones are tried for them. Their mean is what is expected, and what comes out is a few percent off.
 * Cost of a wish: O(iterations * layers * ranks * experts). */
#include "validate/published/loads.h"

#include "runtime/base/arena.h"
#include "traces/synth.h"

#include <stdlib.h>
#include <string.h>

enum { SYNTHETIC_LAYERS = 24, TOTALS_PER_RANK = 8192, RECORDED_EXPERTS = 32, TOP_K = 2, SERIES_MAX = 64 };
enum { HALVINGS = 12, TRIED = 8, TRIED_LAYERS = 240 };
static const double sigma_max = 4;

const char *const hec_loads_name[HEC_N_LOADS] = {"synthetic", "recorded"};

/* One generated series of totals. */
typedef struct {
  double sigma;
  bool still;
  int32_t n_experts, top_k;
  uint32_t *totals; /* [n_max][SYNTHETIC_LAYERS][n_experts] */
} series;

struct hec_loads_store {
  hec_arena arena;
  uint64_t seed;
  int32_t n_max, n_series;
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
  while (store->n_recorded < store->n_max) {
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
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  HEC_TRY(hec_trace_open(path, &reader));
  hec_status status = check_header(hec_trace_header_of(reader), path);
  if (status == HEC_OK) {
    store->name = hec_arena_text(&store->arena, hec_trace_header_of(reader)->name);
    store->iter = HEC_NEW(&store->arena, int64_t, store->n_max);
    store->recorded = HEC_NEW(&store->arena, hec_load, store->n_max);
    status = read_records(store, reader);
  }
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

static hec_synth_options synth_options(const hec_loads_store *store, const hec_loads_wish *wish) {
  hec_synth_options o = hec_synth_defaults();
  o.workload = "lognormal";
  o.n_experts = wish->n_experts;
  o.top_k = wish->top_k;
  o.n_sources = 1;
  o.seed = store->seed;
  o.sigma = wish->sigma;
  return o;
}

static hec_status generate(hec_loads_store *store, const hec_loads_wish *wish, series *one) {
  hec_synth_options o = synth_options(store, wish);
  o.n_layers = SYNTHETIC_LAYERS;
  o.tokens = (int64_t)TOTALS_PER_RANK * wish->n_ranks;
  o.n_iterations = store->n_max;
  if (!wish->still) { /* measured in training by LAER-MoE (arXiv 2602.11686) */
    o.n_knots = 4;
    memcpy(o.lag, (int32_t[]){1, 5, 9, 20}, 4 * sizeof *o.lag);
    memcpy(o.correlation, (double[]){0.96, 0.89, 0.76, 0.33}, 4 * sizeof *o.correlation);
    if (o.n_iterations < 60) /* a short series would not show these correlations whatever is drawn */
      o.n_iterations = 60;
  }
  HEC_OPENED(hec_synth) *synth = NULL;
  HEC_TRY(hec_synth_check(&o));
  HEC_TRY(hec_synth_new(&o, &synth));
  size_t record = (size_t)SYNTHETIC_LAYERS * (size_t)wish->n_experts;
  *one = (series){wish->sigma, wish->still, wish->n_experts, wish->top_k,
                  HEC_NEW(&store->arena, uint32_t, record * (size_t)store->n_max)};
  for (int32_t i = 0; i < store->n_max; i++) {
    hec_load load = {SYNTHETIC_LAYERS, 1, wish->n_experts, one->totals + (size_t)i * record};
    hec_synth_next(synth, &load);
  }
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

/* ---- the store ---- */

hec_status hec_loads_open(const char *trace, int32_t n_max, uint64_t seed, hec_loads_store **store) {
  HEC_ASSERT(n_max >= 1);
  *store = hec_malloc(1, sizeof **store);
  **store = (hec_loads_store){.seed = seed, .n_max = n_max};
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

/* ---- a wish on the ranks ---- */

typedef struct {
  const hec_loads_wish *wish;
  hec_load_remainder *order; /* scratch */
  hec_loads *loads;
} fitting;

static fitting begin(const hec_loads_wish *wish, int32_t n, hec_arena *arena, hec_loads *loads) {
  *loads = (hec_loads){n, HEC_NEW(arena, int64_t, n), HEC_NEW(arena, int64_t, n), HEC_NEW(arena, hec_load, n)};
  for (int32_t i = 0; i < n; i++) {
    loads->iter[i] = i + 1;
    loads->load[i] = hec_load_new(arena, wish->n_layers, wish->n_ranks, wish->n_experts);
  }
  return (fitting){wish, HEC_NEW(arena, hec_load_remainder, (size_t)wish->n_ranks * (size_t)wish->n_experts), loads};
}

/* Iteration i is `from`, of any sources, at the wished size. */
static hec_status put(const fitting *f, const hec_load *from, int32_t i) {
  uint64_t assignments = (uint64_t)f->wish->n_ranks * (uint64_t)f->wish->tokens * (uint64_t)f->wish->top_k;
  return hec_load_fit(from, assignments, &f->loads->load[i], f->order);
}

static void end(hec_loads *loads, int32_t n) {
  loads->n = n;
  for (int32_t i = 0; i < n; i++)
    loads->stride[i] = i + 1 < n ? loads->iter[i + 1] - loads->iter[i] : i > 0 ? loads->stride[i - 1] : 1;
}

hec_status hec_loads_make(hec_loads_store *store, const hec_loads_wish *wish, int32_t n, hec_arena *arena,
                          hec_loads *loads) {
  bool recorded = wish->kind == HEC_LOADS_RECORDED;
  const series *one = NULL;
  HEC_ASSERT(!recorded || (store->name && wish->n_experts % RECORDED_EXPERTS == 0));
  if (!recorded)
    HEC_TRY(find_series(store, wish, &one));
  int32_t n_there = recorded ? store->n_recorded : store->n_max;
  n = n < n_there ? n : n_there;
  fitting f = begin(wish, n, arena, loads);
  hec_load cut = hec_load_new(arena, wish->n_layers, recorded ? store->recorded[0].n_sources : 1, wish->n_experts);
  for (int32_t i = 0; i < n; i++) {
    if (recorded)
      cut_recorded(&store->recorded[i], wish, &cut);
    else
      cut_synthetic(one, i, wish, &cut);
    HEC_TRY(put(&f, &cut, i));
    loads->iter[i] = recorded ? store->iter[i] : i + 1;
  }
  end(loads, n);
  return HEC_OK;
}

/* ---- a few hot experts ---- */

hec_status hec_loads_hot(const hec_loads_wish *wish, int32_t n, int32_t n_hot, double share, hec_arena *arena,
                         hec_loads *loads) {
  enum { PARTS = 1000000 };
  if (n_hot < 1 || n_hot >= wish->n_experts || !(share > 0 && share < 1))
    return hec_fail(HEC_BAD_INPUT, "hot experts: expected 1 to %d with a share between 0 and 1, found %d with %g",
                    wish->n_experts - 1, n_hot, share);
  fitting f = begin(wish, n, arena, loads);
  hec_load one = hec_load_new(arena, wish->n_layers, 1, wish->n_experts);
  for (int32_t l = 0; l < wish->n_layers; l++)
    for (int32_t e = 0; e < wish->n_experts; e++) {
      double part = e < n_hot ? share / n_hot : (1 - share) / (wish->n_experts - n_hot);
      hec_load_row(&one, l, 0)[e] = (uint32_t)(part * PARTS + 0.5);
    }
  for (int32_t i = 0; i < n; i++)
    HEC_TRY(put(&f, &one, i));
  end(loads, n);
  return HEC_OK;
}

/* ---- log-normal popularity ---- */

static hec_status draw_still(const hec_loads_store *store, const hec_loads_wish *wish, int32_t n, hec_arena *arena,
                             hec_loads *loads) {
  hec_synth_options o = synth_options(store, wish);
  o.n_layers = wish->n_layers;
  o.tokens = (int64_t)wish->tokens * wish->n_ranks;
  o.n_iterations = n;
  HEC_OPENED(hec_synth) *synth = NULL;
  HEC_TRY(hec_synth_check(&o));
  HEC_TRY(hec_synth_new(&o, &synth));
  fitting f = begin(wish, n, arena, loads);
  hec_load totals = hec_load_new(arena, wish->n_layers, 1, wish->n_experts);
  hec_status status = HEC_OK;
  for (int32_t i = 0; i < n && status == HEC_OK; i++) {
    hec_synth_next(synth, &totals);
    status = put(&f, &totals, i);
  }
  end(loads, n);
  return status;
}

hec_status hec_loads_lognormal(hec_loads_store *store, const hec_loads_wish *wish, int32_t n, hec_arena *arena,
                               hec_loads *loads) {
  return wish->still ? draw_still(store, wish, n, arena, loads) : hec_loads_make(store, wish, n, arena, loads);
}

hec_status hec_loads_imbalanced(hec_loads_store *store, const hec_loads_wish *wish, int32_t n, int32_t ep,
                                double overload, hec_arena *arena, hec_loads *loads, double *sigma) {
  double low = 0, high = sigma_max;
  hec_loads_wish tried = *wish, found = *wish;
  int32_t n_tried = n < TRIED ? n : TRIED;
  tried.still = true;
  if (!wish->still) {
    tried.n_layers = TRIED_LAYERS;
    n_tried = 1;
  }
  for (int32_t i = 0; i < HALVINGS; i++) {
    tried.sigma = (low + high) / 2;
    hec_arena_mark mark = hec_arena_save(arena);
    HEC_TRY(hec_loads_lognormal(store, &tried, n_tried, arena, loads));
    bool more = hec_loads_overload(loads, ep) < overload;
    hec_arena_rewind(arena, mark);
    *(more ? &low : &high) = tried.sigma;
  }
  found.sigma = (low + high) / 2;
  if (sigma)
    *sigma = found.sigma;
  return hec_loads_lognormal(store, &found, n, arena, loads);
}

/* ---- recorded ---- */

static hec_status read_trace_as(hec_trace_reader *reader, const hec_loads_wish *wish, int32_t max, hec_arena *arena,
                                hec_loads *loads) {
  const hec_trace_header *header = hec_trace_header_of(reader);
  fitting f = begin(wish, max, arena, loads);
  hec_load cut = hec_load_new(arena, wish->n_layers, header->n_sources, wish->n_experts);
  size_t layer = (size_t)header->n_sources * (size_t)wish->n_experts;
  int32_t n = 0;
  while (n < max) {
    const hec_trace_record *record;
    HEC_TRY(hec_trace_next(reader, &record));
    if (!record)
      break;
    if (n > 0 && loads->iter[n - 1] == record->iter)
      continue; /* one micro-batch per iteration is enough here */
    for (int32_t l = 0; l < wish->n_layers; l++) {
      int32_t from = (int32_t)((int64_t)l * header->n_layers / wish->n_layers);
      memcpy(hec_load_row(&cut, l, 0), hec_load_row(&record->load, from, 0), layer * sizeof(uint32_t));
    }
    HEC_TRY(put(&f, &cut, n));
    loads->iter[n++] = record->iter;
  }
  end(loads, n);
  return HEC_OK;
}

hec_status hec_loads_of_trace(const char *path, const hec_loads_wish *wish, int32_t n, hec_arena *arena,
                              hec_loads *loads) {
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  HEC_TRY(hec_trace_open(path, &reader));
  const hec_trace_header *header = hec_trace_header_of(reader);
  hec_status status = HEC_OK;
  if (header->n_experts != wish->n_experts || header->n_layers < wish->n_layers)
    status = hec_fail(HEC_BAD_INPUT, "%s: expected %d experts and at least %d layers, found %d experts, %d layers",
                      path, wish->n_experts, wish->n_layers, header->n_experts, header->n_layers);
  if (status == HEC_OK)
    status = read_trace_as(reader, wish, n, arena, loads);
  return status;
}

/* ---- imbalance ---- */

double hec_loads_overload(const hec_loads *loads, int32_t ep) {
  double sum = 0;
  int64_t n = 0;
  for (int32_t i = 0; i < loads->n; i++) {
    const hec_load *load = &loads->load[i];
    int32_t ranks = ep > 0 ? ep : load->n_sources, groups = load->n_sources / ranks;
    for (int32_t l = 0; l < load->n_layers; l++) {
      uint64_t total = hec_load_layer_total(load, l), max = 0;
      for (int32_t g = 0; g < groups; g++)
        for (int32_t r = 0; r < ranks; r++) {
          uint64_t rank = 0;
          for (int32_t e = 0; e < load->n_experts; e++)
            for (int32_t s = g * ranks; (int64_t)e * ranks / load->n_experts == r && s < (g + 1) * ranks; s++)
              rank += hec_load_row(load, l, s)[e];
          max = rank > max ? rank : max;
        }
      if (total > 0) {
        sum += (double)max * load->n_sources / (double)total;
        n++;
      }
    }
  }
  return n > 0 ? sum / (double)n : 1;
}
