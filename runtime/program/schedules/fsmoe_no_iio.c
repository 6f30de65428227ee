/* Schedule `fsmoe-no-iio`: FSMoE without inter- and intra-node overlap, its own ablation (arXiv:2501.10714; reference
 * policies.md 1.4, mode 6). As `fsmoe`, but AllGather and ReduceScatter stand in line with the tokens between nodes,
 *
 *   TOKEN  D1 A1 .. Dr Ar  G  S1 C1 .. Sr Cr
 *
 * and the plan sees each a2a with half of them. Without expert-sharding groups it is `fsmoe`. */
#include "runtime/program/fsmoe.h"

static void *start(const hec_problem *problem, hec_arena *arena) {
  return hec_fsmoe_run_new(problem, true, arena);
}

const hec_schedule hec_schedule_fsmoe_no_iio = {
    .name = "fsmoe-no-iio",
    .summary = "fsmoe with the collectives inside nodes in line with the tokens between them",
    .source = "FSMoE, arXiv:2501.10714, mode 6 of its artifact",
    .chunked = true,
    .cuts = true,
    .unsharded = "fsmoe",
    .hides = {.chunked = true},
    .start = start,
    .to_gate = hec_emit_to_gate,
    .from_gate = hec_fsmoe_from_gate,
    .backward = hec_fsmoe_backward_layer,
    .end = hec_fsmoe_end,
};
