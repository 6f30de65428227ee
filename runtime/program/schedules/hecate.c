/* Schedule `hecate` (FSSDP, arXiv:2502.02581; reference hecate.md section 8): sparse collectives run beside the non-MoE
 * part.
 *
 *   forward   PARAM   spAG of layer l                          beside attention_l (both wait for layer l-1)
 *             COMPUTE attention_l  gate_l | wait spAG, counts | [plan, spAG of calibration] permute dispatch experts combine
 *   backward  COMPUTE combine'  experts'  dispatch' | attention'_l
 *             GRAD    spRS of layer l after dispatch'          beside attention'_l
 *             PARAM   with re-materialisation: spAG of layer l-1 after that spRS (one communication stream in the paper)
 *
 * One gradient buffer for copies: experts' of layer l-1 wait for spRS of layer l (memory for one layer, section 9.6).
 * The last layer keeps its guests from forward to backward, which needs them first. Paper: no overlap with expert
 * compute, so dispatch waits for the spAG. */
#include "runtime/plan/problem.h"
#include "runtime/program/emit.h"

static void to_gate(hec_lowering *low, int32_t l) {
  hec_layer_ops *ops = &low->layer[l];
  ops->gather = hec_emit_gather(low, l, HEC_ROLE_GATHER, HEC_GUESTS_BEFORE, HEC_DEPS(low->tail, low->moved));
  hec_emit_to_gate(low, l);
}

static void from_gate(hec_lowering *low, int32_t l) {
  hec_layer_ops *ops = &low->layer[l];
  int32_t plan = hec_emit_plan(low, l, HEC_LANE_COMPUTE, HEC_DEPS(ops->counts));
  int32_t calibrate =
      hec_emit_gather(low, l, HEC_ROLE_CALIBRATE, HEC_GUESTS_ADDED, HEC_DEPS(ops->counts, plan, ops->gather));
  int32_t permute = hec_emit_permute(low, l, false, HEC_DEPS(ops->counts, plan));
  int32_t dispatch =
      hec_emit_tokens(low, hec_whole(l), HEC_ROLE_DISPATCH, false, HEC_DEPS(permute, ops->gather, calibrate));
  int32_t shared = hec_emit_shared_experts(low, l, false, HEC_DEPS(permute));
  int32_t experts = hec_emit_experts(low, hec_whole(l), false,
                                     HEC_DEPS(permute, dispatch, shared, ops->gather, calibrate, ops->migrate));
  int32_t combine = hec_emit_tokens(low, hec_whole(l), HEC_ROLE_COMBINE, false, HEC_DEPS(experts));
  low->tail = hec_emit_unpermute(low, l, false, HEC_DEPS(experts, combine));
  bool first_in_backward = l == low->problem->n_layers - 1;
  if (!low->problem->train || (hec_rematerialises(low) && !first_in_backward))
    hec_release_guests(low, l, experts);
}

static void backward(hec_lowering *low, int32_t l) {
  hec_layer_ops *ops = &low->layer[l];
  bool last_layer = l == low->problem->n_layers - 1;
  int32_t unpermute = hec_emit_unpermute(low, l, true, HEC_DEPS(low->tail));
  int32_t combine = hec_emit_tokens(low, hec_whole(l), HEC_ROLE_COMBINE, true, HEC_DEPS(unpermute));
  int32_t buffer = last_layer ? -1 : low->layer[l + 1].scatter;
  int32_t experts = hec_emit_experts(low, hec_whole(l), true, HEC_DEPS(unpermute, combine, ops->regather, buffer));
  int32_t dispatch = hec_emit_tokens(low, hec_whole(l), HEC_ROLE_DISPATCH, true, HEC_DEPS(experts));
  hec_release_guests(low, l, experts);
  int32_t scatter = hec_emit_scatter(low, l, HEC_DEPS(experts, dispatch));
  if (hec_rematerialises(low) && l > 0)
    low->layer[l - 1].regather =
        hec_emit_gather(low, l - 1, HEC_ROLE_REGATHER, HEC_GUESTS_ALL, HEC_DEPS(experts, dispatch, scatter));
  (void)hec_emit_replicas(low, l, HEC_DEPS(experts, dispatch, scatter));
  int32_t permute = hec_emit_permute(low, l, true, HEC_DEPS(experts, dispatch));
  int32_t shared = hec_emit_shared_experts(low, l, true, HEC_DEPS(permute));
  int32_t gate = hec_emit_gate(low, l, true, HEC_DEPS(permute, shared));
  low->tail = hec_emit_attention(low, l, true, HEC_DEPS(gate));
  (void)hec_emit_dense_block(low, l);
}

const hec_schedule hec_schedule_hecate = {
    .name = "hecate",
    .tried = true,
    .summary = "sparse collectives beside attention, gradients of copies back under its backward",
    .source = "FSSDP, arXiv:2502.02581",
    .tokens_wait = true,
    .plans_beside = true,
    .hides = {.gathers = HEC_HIDES_DENSE, .returns = HEC_HIDES_DENSE},
    .to_gate = to_gate,
    .from_gate = from_gate,
    .backward = backward,
};
