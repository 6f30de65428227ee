/* See the header. Keys go up to all tokens of all ranks (a policy may rewrite loads so that one source has them). What is
 * beyond uses the last. */
#include "runtime/program/tutel.h"

#include "runtime/base/arena.h"
#include "runtime/plan/planners/degree.h"
#include "runtime/plan/problem.h"

enum { WINDOW = 128 };

typedef struct {
  int32_t n_tried, best; /* candidates: degree i on route k is number i * n_routes + k */
  double best_s;
} entry;

struct hec_tutel {
  int32_t n_keys, n_routes;
  int32_t route[HEC_N_TOKEN_ROUTES]; /* those that are not alike here */
  entry *table;                      /* [n_layers * n_keys] */
};

hec_tutel *hec_tutel_new(const hec_problem *problem, hec_arena *arena) {
  hec_tutel *tutel = HEC_NEW(arena, hec_tutel, 1);
  tutel->n_keys = (int32_t)((int64_t)problem->n_ranks * problem->tokens / WINDOW) + 1;
  for (int32_t k = 0; k < HEC_N_TOKEN_ROUTES; k++)
    if (!hec_token_routes[k]->applies || hec_token_routes[k]->applies(problem))
      tutel->route[tutel->n_routes++] = k;
  tutel->table = HEC_NEW(arena, entry, (size_t)problem->n_layers * (size_t)tutel->n_keys);
  return tutel;
}

static uint32_t capacity_of(const hec_load *load, int32_t layer) {
  const uint32_t *count = hec_load_row(load, layer, 0),
                 *end = count + (size_t)load->n_sources * (size_t)load->n_experts;
  uint32_t max = 0;
  for (; count != end; count++)
    max = *count > max ? *count : max;
  return max;
}

void hec_tutel_from_gate(hec_lowering *low, hec_tutel *tutel, int32_t layer) {
  uint32_t key = capacity_of(low->load, layer) / WINDOW, max = (uint32_t)tutel->n_keys - 1;
  entry *e = &tutel->table[(size_t)layer * (size_t)tutel->n_keys + (key < max ? key : max)];
  bool tries = e->n_tried < HEC_N_DEGREES * tutel->n_routes;
  int32_t candidate = tries ? e->n_tried : e->best;
  low->layer[layer].route = tutel->route[candidate % tutel->n_routes];
  hec_chunked_from_gate(low, layer, hec_degrees[candidate / tutel->n_routes]);
  if (!tries)
    return;
  double s = hec_token_work_s(low, layer);
  if (e->n_tried == 0 || s < e->best_s) {
    e->best = e->n_tried;
    e->best_s = s;
  }
  e->n_tried++;
}
