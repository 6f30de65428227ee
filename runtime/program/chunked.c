/* See the header. O(degree) operations in a layer and direction. */
#include "runtime/program/chunked.h"

#include "runtime/plan/problem.h"

void hec_chunked_from_gate(hec_lowering *low, int32_t layer, int32_t degree) {
  hec_layer_ops *ops = &low->layer[layer];
  int32_t there[HEC_DEGREE_MAX], wait[HEC_DEGREE_MAX + 1], experts = -1;
  int32_t plan = hec_emit_plan(low, layer, HEC_LANE_COMPUTE, HEC_DEPS(ops->counts));
  int32_t gather = hec_emit_gather(low, layer, HEC_ROLE_GATHER, HEC_GUESTS_ALL, HEC_DEPS(ops->counts, plan));
  ops->degree = degree;
  int32_t permute = hec_emit_permute(low, layer, false, HEC_DEPS(ops->counts, plan, gather));
  for (int32_t c = 0; c < degree; c++)
    there[c] = hec_emit_tokens(low, (hec_chunk){layer, c}, HEC_ROLE_DISPATCH, false, HEC_DEPS(permute));
  int32_t shared = hec_emit_shared_experts(low, layer, false, HEC_DEPS(permute));
  for (int32_t c = 0; c < degree; c++) {
    hec_chunk chunk = {layer, c};
    experts = hec_emit_experts(low, chunk, false, HEC_DEPS(permute, there[c], shared, ops->migrate));
    wait[c] = hec_emit_tokens(low, chunk, HEC_ROLE_COMBINE, false, HEC_DEPS(experts));
  }
  wait[degree] = experts; /* of the combines a rank has a part in some only */
  low->tail = hec_emit_unpermute(low, layer, false, wait, degree + 1);
  if (!low->problem->train || hec_rematerialises(low))
    hec_release_guests(low, layer, experts);
}

hec_chunked_way hec_chunked_backward_there(hec_lowering *low, int32_t layer, int32_t after) {
  hec_chunked_way way = {.unpermute = hec_emit_unpermute(low, layer, true, HEC_DEPS(low->tail, after))};
  for (int32_t c = 0; c < low->layer[layer].degree; c++)
    way.there[c] = hec_emit_tokens(low, (hec_chunk){layer, c}, HEC_ROLE_COMBINE, true, HEC_DEPS(way.unpermute));
  return way;
}

void hec_chunked_backward_back(hec_lowering *low, int32_t layer, const hec_chunked_way *way) {
  int32_t wait[HEC_DEGREE_MAX + 2], experts = -1, gather = -1;
  int32_t degree = low->layer[layer].degree, unpermute = way->unpermute;
  const int32_t *there = way->there;
  if (hec_rematerialises(low))
    gather = hec_emit_gather(low, layer, HEC_ROLE_REGATHER, HEC_GUESTS_ALL, HEC_DEPS(unpermute, there[degree - 1]));
  for (int32_t c = 0; c < degree; c++) {
    hec_chunk chunk = {layer, c};
    experts = hec_emit_experts(low, chunk, true, HEC_DEPS(unpermute, there[c], gather));
    wait[c] = hec_emit_tokens(low, chunk, HEC_ROLE_DISPATCH, true, HEC_DEPS(experts));
  }
  hec_release_guests(low, layer, experts);
  int32_t scatter = hec_emit_scatter(low, layer, HEC_DEPS(experts, wait[degree - 1]));
  (void)hec_emit_replicas(low, layer, HEC_DEPS(experts, wait[degree - 1], scatter));
  wait[degree] = experts;
  wait[degree + 1] = scatter;
  int32_t permute = hec_emit_permute(low, layer, true, wait, degree + 2);
  int32_t shared = hec_emit_shared_experts(low, layer, true, HEC_DEPS(permute));
  low->tail = shared >= 0 ? shared : permute;
}

void hec_chunked_backward_tokens(hec_lowering *low, int32_t layer, int32_t after) {
  hec_chunked_way way = hec_chunked_backward_there(low, layer, after);
  hec_chunked_backward_back(low, layer, &way);
}

void hec_chunked_backward_dense(hec_lowering *low, int32_t layer) {
  int32_t gate = hec_emit_gate(low, layer, true, HEC_DEPS(low->tail));
  low->tail = hec_emit_attention(low, layer, true, HEC_DEPS(gate));
}

void hec_chunked_backward(hec_lowering *low, int32_t layer) {
  hec_chunked_backward_tokens(low, layer, -1);
  hec_chunked_backward_dense(low, layer);
}

void hec_chunked_end(hec_lowering *low) {
  for (int32_t layer = low->problem->n_layers - 1; layer >= 0; layer--)
    (void)hec_emit_dense_block(low, layer);
}
