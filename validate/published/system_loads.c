/* Loads of the systems. Synthetic totals come from traces/synth, one source for all ranks, and are then split evenly;
 * sigma for a stated imbalance by 12 halvings of [0, 4]: overload rises with sigma for fixed draws, near enough. Tried
 * are 8 iterations at most of the loads themselves; of drifting ones, whose draws depend on sigma in many more ways, 240
 * layers of standing ones: their mean is what is expected, and what comes out is a few percent off. O(iterations * layers * ranks * experts). */
#include "validate/published/system_bench.h"

#include "runtime/base/arena.h"
#include "traces/synth.h"

#include <string.h>
#include <unistd.h>

enum { HALVINGS = 12, TRIED = 8, TRIED_LAYERS = 240 };
static const double sigma_most = 4;

static void begin(hec_arena *arena, const hec_system_shape *shape, hec_loads *loads) {
  int32_t n = shape->n;
  *loads = (hec_loads){n, HEC_NEW(arena, int64_t, n), HEC_NEW(arena, int64_t, n), HEC_NEW(arena, hec_load, n)};
  for (int32_t i = 0; i < n; i++) {
    loads->iter[i] = i + 1;
    loads->stride[i] = 1;
    loads->load[i] = hec_load_new(arena, shape->n_layers, shape->n_ranks, shape->n_experts);
  }
}

/* `from` [n_layers][sources][n_experts] onto the ranks, at the wanted size. */
static hec_status put(const hec_load *from, const hec_system_shape *shape, hec_load_remainder *order, hec_load *to) {
  return hec_load_fit(from, (uint64_t)shape->n_ranks * (uint64_t)shape->tokens * (uint64_t)shape->top_k, to, order);
}

static hec_load_remainder *new_order(hec_arena *arena, const hec_system_shape *shape) {
  return HEC_NEW(arena, hec_load_remainder, (size_t)shape->n_ranks * (size_t)shape->n_experts);
}

/* ---- a few hot experts ---- */

hec_status hec_system_hot(hec_system_report *report, const hec_system_shape *shape, int32_t n_hot, double share,
                          hec_loads *loads) {
  enum { PARTS = 1000000 };
  HEC_ASSERT(n_hot >= 1 && n_hot < shape->n_experts && share > 0 && share < 1);
  hec_arena *arena = hec_system_arena(report);
  begin(arena, shape, loads);
  hec_load one = hec_load_new(arena, shape->n_layers, 1, shape->n_experts);
  for (int32_t l = 0; l < shape->n_layers; l++)
    for (int32_t e = 0; e < shape->n_experts; e++) {
      double part = e < n_hot ? share / n_hot : (1 - share) / (shape->n_experts - n_hot);
      hec_load_row(&one, l, 0)[e] = (uint32_t)(part * PARTS + 0.5);
    }
  hec_load_remainder *order = new_order(arena, shape);
  for (int32_t i = 0; i < shape->n; i++)
    HEC_TRY(put(&one, shape, order, &loads->load[i]));
  return HEC_OK;
}

/* ---- log-normal popularity ---- */

static hec_status draw_still(hec_system_report *report, const hec_system_shape *shape, double sigma, hec_loads *loads) {
  hec_synth_options o = hec_synth_defaults();
  o.workload = "lognormal";
  o.n_layers = shape->n_layers;
  o.n_experts = shape->n_experts;
  o.top_k = shape->top_k;
  o.n_sources = 1;
  o.tokens = (int64_t)shape->tokens * shape->n_ranks;
  o.n_iterations = shape->n;
  o.seed = hec_system_options_of(report)->seed;
  o.sigma = sigma;
  hec_synth *synth;
  HEC_TRY(hec_synth_check(&o));
  HEC_TRY(hec_synth_new(&o, &synth));
  hec_arena *arena = hec_system_arena(report);
  begin(arena, shape, loads);
  hec_load totals = hec_load_new(arena, shape->n_layers, 1, shape->n_experts);
  hec_load_remainder *order = new_order(arena, shape);
  hec_status status = HEC_OK;
  for (int32_t i = 0; i < shape->n && status == HEC_OK; i++) {
    hec_synth_next(synth, &totals);
    status = put(&totals, shape, order, &loads->load[i]);
  }
  hec_synth_free(synth);
  return status;
}

hec_status hec_system_lognormal(hec_system_report *report, const hec_system_shape *shape, double sigma,
                                hec_system_drift drift, hec_loads *loads) {
  if (drift == HEC_DRIFT_NONE || hec_system_options_of(report)->quick)
    return draw_still(report, shape, sigma, loads);
  hec_loads_store *store;
  HEC_TRY(hec_system_drifting(report, &store));
  const hec_loads_wish wish = {.kind = HEC_LOADS_SYNTHETIC,
                               .sigma = sigma,
                               .n_ranks = shape->n_ranks,
                               .n_experts = shape->n_experts,
                               .n_layers = shape->n_layers,
                               .tokens = shape->tokens,
                               .top_k = shape->top_k};
  return hec_loads_make(store, &wish, shape->n, hec_system_arena(report), loads);
}

hec_status hec_system_lognormal_of(hec_system_report *report, const hec_system_shape *shape, int32_t ep,
                                   double overload, hec_system_drift drift, hec_loads *loads, double *sigma) {
  double low = 0, high = sigma_most;
  hec_system_shape tried = *shape;
  tried.n = tried.n < TRIED ? tried.n : TRIED;
  if (drift == HEC_DRIFT_TRAINING && !hec_system_options_of(report)->quick) {
    tried.n_layers = TRIED_LAYERS;
    tried.n = 1;
  }
  for (int32_t i = 0; i < HALVINGS; i++) {
    double middle = (low + high) / 2;
    hec_arena_mark mark = hec_arena_save(hec_system_arena(report));
    HEC_TRY(hec_system_lognormal(report, &tried, middle, HEC_DRIFT_NONE, loads));
    bool more = hec_system_overload(loads, ep) < overload;
    hec_arena_rewind(hec_system_arena(report), mark);
    *(more ? &low : &high) = middle;
  }
  if (sigma)
    *sigma = (low + high) / 2;
  return hec_system_lognormal(report, shape, (low + high) / 2, drift, loads);
}

/* ---- recorded ---- */

const char *hec_system_absent(hec_system_report *report, const char *file) {
  return hec_system_text(report, "%s is not below the folder of recorded data", file);
}

static hec_status read_records(hec_system_report *report, hec_trace_reader *reader, const hec_system_shape *shape,
                               hec_loads *loads) {
  const hec_trace_header *header = hec_trace_header_of(reader);
  hec_arena *arena = hec_system_arena(report);
  begin(arena, shape, loads);
  hec_load cut = hec_load_new(arena, shape->n_layers, header->n_sources, shape->n_experts);
  hec_load_remainder *order = new_order(arena, shape);
  size_t layer = (size_t)header->n_sources * (size_t)shape->n_experts;
  int32_t n = 0;
  while (n < shape->n) {
    const hec_trace_record *record;
    HEC_TRY(hec_trace_next(reader, &record));
    if (!record)
      break;
    if (n > 0 && loads->iter[n - 1] == record->iter)
      continue; /* one micro-batch per iteration is enough here */
    for (int32_t l = 0; l < shape->n_layers; l++) {
      int32_t from = (int32_t)((int64_t)l * header->n_layers / shape->n_layers);
      memcpy(hec_load_row(&cut, l, 0), hec_load_row(&record->load, from, 0), layer * sizeof(uint32_t));
    }
    HEC_TRY(put(&cut, shape, order, &loads->load[n]));
    loads->iter[n++] = record->iter;
  }
  loads->n = n;
  for (int32_t i = 0; i < n; i++)
    loads->stride[i] = i + 1 < n ? loads->iter[i + 1] - loads->iter[i] : i > 0 ? loads->stride[i - 1] : 1;
  return HEC_OK;
}

hec_status hec_system_recorded(hec_system_report *report, const char *file, const hec_system_shape *shape,
                               hec_loads *loads, bool *there) {
  const char *shared = hec_system_options_of(report)->shared;
  const char *path = shared ? hec_system_text(report, "%s/%s", shared, file) : "";
  *there = shared && access(path, R_OK) == 0;
  *loads = (hec_loads){0};
  if (!*there)
    return HEC_OK;
  hec_trace_reader *reader;
  HEC_TRY(hec_trace_open(path, &reader));
  const hec_trace_header *header = hec_trace_header_of(reader);
  hec_status status = HEC_OK;
  if (header->n_experts != shape->n_experts || header->n_layers < shape->n_layers)
    status = hec_fail(HEC_BAD_INPUT, "%s: expected %d experts and at least %d layers, found %d experts, %d layers",
                      path, shape->n_experts, shape->n_layers, header->n_experts, header->n_layers);
  if (status == HEC_OK)
    status = read_records(report, reader, shape, loads);
  hec_trace_close(reader);
  return status;
}

/* ---- imbalance ---- */

double hec_system_overload(const hec_loads *loads, int32_t ep) {
  double sum = 0;
  int64_t n = 0;
  for (int32_t i = 0; i < loads->n; i++) {
    const hec_load *load = &loads->load[i];
    int32_t ranks = ep > 0 ? ep : load->n_sources, groups = load->n_sources / ranks;
    for (int32_t l = 0; l < load->n_layers; l++) {
      uint64_t total = hec_load_layer_total(load, l), most = 0;
      for (int32_t g = 0; g < groups; g++)
        for (int32_t r = 0; r < ranks; r++) {
          uint64_t rank = 0;
          for (int32_t e = 0; e < load->n_experts; e++)
            for (int32_t s = g * ranks; (int64_t)e * ranks / load->n_experts == r && s < (g + 1) * ranks; s++)
              rank += hec_load_row(load, l, s)[e];
          most = rank > most ? rank : most;
        }
      if (total > 0) {
        sum += (double)most * load->n_sources / (double)total;
        n++;
      }
    }
  }
  return n > 0 ? sum / (double)n : 1;
}
