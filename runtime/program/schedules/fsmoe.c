/* Schedule `fsmoe`: FSMoE (arXiv:2501.10714; reference policies.md 1). Three streams. Experts are on the compute lane.
 * AllGather and ReduceScatter of expert-sharding groups are on the intra-node lane. Tokens between nodes and the dense
 * gradients are on the token lane. One degree and the division of the gradients are planned before training on
 * balanced loads. runtime/plan/planners/fsmoe.c has the mathematics and the four cases, fsmoe_problem.c what they are
 * fed with.
 *
 *   forward   TOKEN  D1 .. Dr          C1 .. Cr     backward the same with G, gradients of later layers, after Dr, and
 *             INTRA  A1 .. Ar S1 .. Sr              more of them beside gate' and attention'
 *             COMPUTE  E1 .. Er
 *
 * Inferred or different: loads are balanced in the plan only. The paper pads tokens to capacity; here nothing is
 * dropped or padded, and a skewed load can want another degree. Forward and backward have one degree (fsmoe_problem.c).
 * Over the paper's own grid two would save 0.4 % on its testbed A and 0.1 % on B, at most 2.5 %. Without
 * expert-sharding groups there is nothing for the intra-node lane. Expert gradients are reduced as the policy's plan
 * has it. */
#include "runtime/program/fsmoe.h"

static void *start(const hec_problem *problem, hec_arena *arena) {
  return hec_fsmoe_run_new(problem, false, arena);
}

const hec_schedule hec_schedule_fsmoe = {
    .name = "fsmoe",
    .tried = true,
    .summary = "tokens in chunks on three streams; dense gradients in pieces where they cost least",
    .source = "FSMoE, arXiv:2501.10714",
    .chunked = true,
    .cuts = true,
    .hides = {.chunked = true},
    .inside = true,
    .start = start,
    .to_gate = hec_emit_to_gate,
    .from_gate = hec_fsmoe_from_gate,
    .backward = hec_fsmoe_backward_layer,
    .end = hec_fsmoe_end,
};
