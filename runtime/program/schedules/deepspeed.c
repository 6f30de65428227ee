/* Schedule `deepspeed`: DeepSpeed-MoE as FSMoE's artifact has it (policies.md 1.4, mode 3; 3.1): degree 1 and no
 * overlap at all. On a rank one thing is done at a time, in this order:
 *
 *   [plan]  [migration]
 *   forward   as `serial`
 *   backward  unpermute' combine' [spAG again] experts' dispatch' [spRS] permute' [shared'] gate' attention'
 *   end       of the last micro-batch: replicas, then dense gradients, from the last layer to the first; optimizer
 *
 * So it differs from `serial`, in which gradients that are complete are reduced beside the backward of earlier layers.
 * DeepSpeed itself can overlap them with the backward (overlap_comm); the published comparisons do not. Capacity and
 * padding of the system are a policy's, not a schedule's (ep-capacity). Inferred: replicas before dense gradients, and
 * one all-reduce per block. */
#include "runtime/plan/problem.h"
#include "runtime/program/emit.h"

static void from_gate(hec_lowering *low, int32_t l) {
  hec_schedule_serial.from_gate(low, l);
}

static void backward(hec_lowering *low, int32_t l) {
  hec_emit_backward(low, l, false);
}

static void end(hec_lowering *low) {
  for (int32_t l = low->problem->n_layers - 1; l >= 0; l--)
    (void)hec_emit_replicas(low, l, HEC_DEPS(low->tail));
  for (int32_t l = low->problem->n_layers - 1; l >= 0; l--)
    (void)hec_emit_dense_block(low, l);
}

const hec_schedule hec_schedule_deepspeed = {
    .name = "deepspeed",
    .summary = "one operation after the other, gradients reduced after the whole backward: no overlap at all",
    .source = "DeepSpeed-MoE, arXiv:2201.05596; as compared in FSMoE, arXiv:2501.10714",
    .tokens_wait = true,
    .alone = true,
    .to_gate = hec_emit_to_gate,
    .from_gate = from_gate,
    .backward = backward,
    .end = end,
};
