/* Schedule `serial`: one thing after the other, as plain expert parallelism does (DeepSpeed-MoE, reference
 * policies.md 3.1). Only the dense all-reduce and the all-reduce of replicas run beside the backward of earlier layers,
 * as data-parallel training has long done. They are treated alike in `hecate`.
 *
 *   forward   attention  gate  counts  [plan]  [spAG]  permute  dispatch  [shared]  experts  combine  unpermute
 *   backward  unpermute' combine' [spAG again] experts' dispatch' [spRS] permute' [shared'] gate' attention' */
#include "runtime/plan/problem.h"
#include "runtime/program/emit.h"

static void from_gate(hec_lowering *low, int32_t l) {
  hec_layer_ops *ops = &low->layer[l];
  int32_t plan = hec_emit_plan(low, l, HEC_LANE_COMPUTE, HEC_DEPS(ops->counts));
  int32_t gather = hec_emit_gather(low, l, HEC_ROLE_GATHER, HEC_GUESTS_ALL, HEC_DEPS(ops->counts, plan));
  int32_t permute = hec_emit_permute(low, l, false, HEC_DEPS(ops->counts, plan, gather));
  int32_t dispatch = hec_emit_tokens(low, hec_whole(l), HEC_ROLE_DISPATCH, false, HEC_DEPS(permute));
  int32_t shared = hec_emit_shared_experts(low, l, false, HEC_DEPS(permute, dispatch));
  int32_t experts = hec_emit_experts(low, hec_whole(l), false, HEC_DEPS(permute, dispatch, shared, ops->migrate));
  int32_t combine = hec_emit_tokens(low, hec_whole(l), HEC_ROLE_COMBINE, false, HEC_DEPS(experts));
  low->tail = hec_emit_unpermute(low, l, false, HEC_DEPS(experts, combine));
  if (!low->problem->train || hec_rematerialises(low))
    hec_release_guests(low, l, experts);
}

static void backward(hec_lowering *low, int32_t l) {
  hec_emit_backward(low, l, true);
}

const hec_schedule hec_schedule_serial = {
    .name = "serial",
    .summary = "one operation after the other; dense and replica all-reduce beside the backward",
    .source = "DeepSpeed-MoE, arXiv:2201.05596",
    .tokens_wait = true,
    .to_gate = hec_emit_to_gate,
    .from_gate = from_gate,
    .backward = backward,
};
