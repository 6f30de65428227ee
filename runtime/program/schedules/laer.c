/* Schedule `laer` (LAER-MoE, arXiv:2602.11686; reference hecate.md 10.2): parameters travel under expert compute, a layer
 * ahead, and gradients a layer behind.
 *
 *   forward   TOKEN   dispatch_l            combine_l
 *             COMPUTE          experts_l
 *             PARAM            spAG of layer l+1
 *   backward  TOKEN   combine'_l            dispatch'_l
 *             COMPUTE          experts'_l
 *             PARAM            spAG of layer l-1, with re-materialisation
 *             GRAD             spRS of layer l+1, put off from that layer
 *
 * Both wait for the exchange of tokens that precedes the experts, as the system's recorded event does. The first layer's
 * guests are gathered beside its own attention. The last spRS (layer 0's) follows the whole backward: the system
 * flushes what it put off there. Guests that only this gate asks for (policies that see the load) are gathered after
 * it: before the experts, beside the dispatch.
 *
 * Memory: guests of two layers at once, forward (l, l+1) and backward (l, l-1). Two gradient buffers: experts' of
 * layer l wait for spRS of layer l+2, whose buffer they take. Operations of the next layer have ids on both sides of
 * the experts. So the holds, which count in the order of ids, overlap as the buffers do. Policies that fill memory
 * with copies for one layer at a time (hecate-rm) may not fit here; the verdict says so.
 *
 * Inferred: the last layer keeps its guests from forward to backward, which needs them first (published are two gathers
 * of every layer). A layer's dense gradients follow those of its guests, so that the return is not late for the experts
 * behind which it hides. Without guests they, and replicas, are reduced as in `hecate`. */
#include "runtime/plan/problem.h"
#include "runtime/program/emit.h"

static void from_gate(hec_lowering *low, int32_t l) {
  hec_layer_ops *ops = &low->layer[l];
  bool last_layer = l == low->problem->n_layers - 1;
  int32_t plan = hec_emit_plan(low, l, HEC_LANE_COMPUTE, HEC_DEPS(ops->counts));
  int32_t late =
      hec_emit_gather(low, l, HEC_ROLE_CALIBRATE, HEC_GUESTS_ADDED, HEC_DEPS(ops->counts, plan, ops->gather));
  int32_t permute = hec_emit_permute(low, l, false, HEC_DEPS(ops->counts, plan));
  int32_t dispatch = hec_emit_tokens(low, hec_whole(l), HEC_ROLE_DISPATCH, false, HEC_DEPS(permute));
  if (!last_layer)
    low->layer[l + 1].gather =
        hec_emit_gather(low, l + 1, HEC_ROLE_GATHER, HEC_GUESTS_BEFORE, HEC_DEPS(permute, dispatch));
  int32_t shared = hec_emit_shared_experts(low, l, false, HEC_DEPS(permute));
  int32_t experts =
      hec_emit_experts(low, hec_whole(l), false, HEC_DEPS(permute, dispatch, shared, ops->gather, late, ops->migrate));
  int32_t combine = hec_emit_tokens(low, hec_whole(l), HEC_ROLE_COMBINE, false, HEC_DEPS(experts));
  low->tail = hec_emit_unpermute(low, l, false, HEC_DEPS(experts, combine));
  if (!low->problem->train || (hec_rematerialises(low) && !last_layer))
    hec_release_guests(low, l, experts);
}

static void backward(hec_lowering *low, int32_t l) {
  hec_layer_ops *ops = &low->layer[l];
  int32_t n = low->problem->n_layers;
  int32_t unpermute = hec_emit_unpermute(low, l, true, HEC_DEPS(low->tail));
  int32_t combine = hec_emit_tokens(low, hec_whole(l), HEC_ROLE_COMBINE, true, HEC_DEPS(unpermute));
  if (hec_rematerialises(low) && l > 0)
    low->layer[l - 1].regather =
        hec_emit_gather(low, l - 1, HEC_ROLE_REGATHER, HEC_GUESTS_ALL, HEC_DEPS(unpermute, combine));
  int32_t buffer = l + 2 < n ? low->layer[l + 2].scatter : -1;
  int32_t experts = hec_emit_experts(low, hec_whole(l), true, HEC_DEPS(unpermute, combine, ops->regather, buffer));
  if (l + 1 < n && hec_layer_has_guests(low, l + 1)) {
    hec_emit_return(low, l + 1, HEC_DEPS(unpermute, combine));
    (void)hec_emit_dense_block(low, l + 1);
  }
  int32_t dispatch = hec_emit_tokens(low, hec_whole(l), HEC_ROLE_DISPATCH, true, HEC_DEPS(experts));
  hec_release_guests(low, l, experts);
  if (!hec_layer_has_guests(low, l))
    hec_emit_return(low, l, HEC_DEPS(experts, dispatch));
  int32_t permute = hec_emit_permute(low, l, true, HEC_DEPS(experts, dispatch));
  int32_t shared = hec_emit_shared_experts(low, l, true, HEC_DEPS(permute));
  int32_t gate = hec_emit_gate(low, l, true, HEC_DEPS(permute, shared));
  low->tail = hec_emit_attention(low, l, true, HEC_DEPS(gate));
  if (!hec_layer_has_guests(low, l))
    (void)hec_emit_dense_block(low, l);
}

static void end(hec_lowering *low) {
  if (!hec_layer_has_guests(low, 0))
    return;
  hec_emit_return(low, 0, HEC_DEPS(low->tail));
  (void)hec_emit_dense_block(low, 0);
}

const hec_schedule hec_schedule_laer = {
    .name = "laer",
    .tried = true,
    .summary = "sparse collectives under expert compute: gathers a layer ahead, gradients of copies a layer behind",
    .source = "LAER-MoE, arXiv:2602.11686",
    .tokens_wait = true,
    .plans_beside = true,
    .hides = {.gathers = HEC_HIDES_LAYER, .returns = HEC_HIDES_LAYER},
    .to_gate = hec_emit_to_gate_with_guests,
    .from_gate = from_gate,
    .backward = backward,
    .end = end,
};
