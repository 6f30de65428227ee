/* What a layer's token work is worth, for schedules that try candidates out: by the law of degree.h on the chunks that it
 * had. The exchange's closed form, of routes over relays both exchanges and the busiest relay's alignment between them, and
 * the busiest rank's experts. O(transfers + work). */
#include "runtime/plan/planners/degree.h"
#include "runtime/program/lowering_state.h"

/* Seconds of the busiest rank's experts in a chunk. */
static double experts_s(const hec_lowering *low, const hec_layer_chunk *chunk, bool backward) {
  const hec_program *program = &low->in->program;
  const hec_work_shape *shape = &program->shapes[HEC_SHAPE_EXPERT + (backward ? 1 : 0)];
  double max = 0;
  for (int32_t r = 0; r < program->n_ranks; r++) {
    double s = hec_program_experts_s(program, &low->problem->cluster->devices[r], shape, chunk->work_at, r);
    max = s > max ? s : max;
  }
  return max;
}

static double span_s(hec_lowering *low, const hec_transfer_span *span) {
  if (span->n_transfers == 0)
    return 0;
  return hec_link_cost_exchange(&low->in->shared->run.link, low->in->program.transfers + span->transfer_at, span->n_transfers,
                                false, 1);
}

/* Of expert-sharding groups: half of a chunk's AllGather and ReduceScatter, in series with each of its two exchanges. */
static double inside_s(hec_lowering *low, const hec_layer_chunk *chunk) {
  if (chunk->gather.n_transfers == 0)
    return 0;
  const hec_program *program = &low->in->program;
  double max = 0;
  for (int32_t r = 0; r < program->n_ranks; r++) {
    double bytes = (low->problem->esp + 1) * program->local_bytes[chunk->arrived_at + r];
    double s = hec_local_s(&low->problem->cluster->devices[r], HEC_CURVE_NONE, false, bytes);
    max = s > max ? s : max;
  }
  return max / 2 + span_s(low, &chunk->gather);
}

/* Of a dispatcher: the busiest rank's, the mean of both ways. */
static double kernels_s(const hec_lowering *low, const hec_layer_chunk *chunk) {
  const double *s = low->in->program.local_bytes + chunk->seconds_at;
  double max = 0;
  for (int32_t r = 0, n = low->problem->n_ranks; r < n; r++)
    max = (s[r] + s[n + r]) / 2 > max ? (s[r] + s[n + r]) / 2 : max;
  return max;
}

/* Of the chunk's exchange, over relays where its route has them. */
static double exchange_s(hec_lowering *low, const hec_layer_chunk *chunk) {
  const hec_program *program = &low->in->program;
  if (chunk->seconds_at >= 0)
    return kernels_s(low, chunk);
  double s = span_s(low, &chunk->dispatch) + span_s(low, &chunk->inside), max = 0;
  for (int32_t r = 0; chunk->relayed && r < program->n_ranks; r++) {
    double bytes = 2 * program->local_bytes[chunk->relayed_at + r];
    double align_s = hec_local_s(&low->problem->cluster->devices[r], HEC_CURVE_NONE, false, bytes);
    max = align_s > max ? align_s : max;
  }
  return s + max;
}

double hec_token_work_s(hec_lowering *low, int32_t layer) {
  const hec_layer_ops *ops = &low->layer[layer];
  double all_s = 0, sum[2] = {0, 0}, *known_s = &low->in->shared->cells.work_s[ops->degree][ops->route];
  if (*known_s > 0) /* another schedule has cut it alike */
    return *known_s;
  for (int32_t c = 0; c < ops->degree; c++) {
    const hec_layer_chunk *chunk = &ops->in->chunk[c];
    sum[0] += exchange_s(low, chunk) + inside_s(low, chunk);
  }
  for (int back = 0; back < (low->problem->train ? 2 : 1); back++) {
    sum[1] = 0;
    for (int32_t c = 0; c < ops->degree; c++)
      sum[1] += experts_s(low, &ops->in->chunk[c], back == 1);
    all_s += hec_degree_s(ops->degree, (hec_chunk_time){sum[0] / ops->degree, sum[1] / ops->degree});
  }
  return *known_s = all_s;
}
