/* See the header. Keys go up to all tokens of all ranks (a policy may rewrite loads so that one source has them); what is
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
  uint32_t most = 0;
  for (; count != end; count++)
    most = *count > most ? *count : most;
  return most;
}

/* Seconds of the busiest rank's experts in a chunk. */
static double experts_s(const hec_lowering *low, const hec_layer_chunk *chunk, bool backward) {
  const hec_program *program = &low->program;
  const hec_work_shape *shape = &program->shapes[HEC_SHAPE_EXPERT + (backward ? 1 : 0)];
  double most = 0;
  for (int32_t r = 0; r < program->n_ranks; r++) {
    const int32_t *at = program->work_index + chunk->work_at + r;
    hec_work_rate rate = hec_work_rate_of(&low->problem->cluster->devices[r], shape);
    double s = 0;
    for (int32_t i = at[0]; i < at[1]; i++)
      s += hec_work_rate_s(&rate, (double)program->work[i].rows);
    most = s > most ? s : most;
  }
  return most;
}

static double span_s(hec_lowering *low, const hec_transfer_span *span) {
  if (span->n_transfers == 0)
    return 0;
  return hec_link_cost_exchange(&low->run.link, low->program.transfers + span->transfer_at, span->n_transfers, false,
                                1);
}

/* Of expert-sharding groups: half of a chunk's AllGather and ReduceScatter, in series with each of its two exchanges. */
static double inside_s(hec_lowering *low, const hec_layer_chunk *chunk) {
  if (chunk->gather.n_transfers == 0)
    return 0;
  const hec_program *program = &low->program;
  double most = 0;
  for (int32_t r = 0; r < program->n_ranks; r++) {
    double bytes = (low->problem->esp + 1) * program->local_bytes[chunk->arrived_at + r];
    double s = hec_local_s(&low->problem->cluster->devices[r], HEC_CURVE_NONE, false, bytes);
    most = s > most ? s : most;
  }
  return most / 2 + span_s(low, &chunk->gather);
}

/* Of the chunk's exchange, over relays where its route has them. */
static double exchange_s(hec_lowering *low, const hec_layer_chunk *chunk) {
  const hec_program *program = &low->program;
  double s = span_s(low, &chunk->dispatch) + span_s(low, &chunk->inside), most = 0;
  for (int32_t r = 0; chunk->relayed && r < program->n_ranks; r++) {
    double bytes = 2 * program->local_bytes[chunk->relayed_at + r];
    double align_s = hec_local_s(&low->problem->cluster->devices[r], HEC_CURVE_NONE, false, bytes);
    most = align_s > most ? align_s : most;
  }
  return s + most;
}

static double price(hec_lowering *low, int32_t layer) {
  const hec_layer_ops *ops = &low->layer[layer];
  double all_s = 0, sum[2] = {0, 0};
  for (int32_t c = 0; c < ops->degree; c++) {
    const hec_layer_chunk *chunk = &ops->chunk[c];
    sum[0] += exchange_s(low, chunk) + inside_s(low, chunk);
  }
  for (int back = 0; back < (low->problem->train ? 2 : 1); back++) {
    sum[1] = 0;
    for (int32_t c = 0; c < ops->degree; c++)
      sum[1] += experts_s(low, &ops->chunk[c], back == 1);
    all_s += hec_degree_s(ops->degree, (hec_chunk_time){sum[0] / ops->degree, sum[1] / ops->degree});
  }
  return all_s;
}

void hec_tutel_from_gate(hec_lowering *low, hec_tutel *tutel, int32_t layer) {
  uint32_t key = capacity_of(low->load, layer) / WINDOW, most = (uint32_t)tutel->n_keys - 1;
  entry *e = &tutel->table[(size_t)layer * (size_t)tutel->n_keys + (key < most ? key : most)];
  bool tries = e->n_tried < HEC_N_DEGREES * tutel->n_routes;
  int32_t candidate = tries ? e->n_tried : e->best;
  low->layer[layer].route = tutel->route[candidate % tutel->n_routes];
  hec_pipeline_from_gate(low, layer, hec_degrees[candidate / tutel->n_routes]);
  if (!tries)
    return;
  double s = price(low, layer);
  if (e->n_tried == 0 || s < e->best_s) {
    e->best = e->n_tried;
    e->best_s = s;
  }
  e->n_tried++;
}
