/* Schedule `hiermoe`: HierMoE (arXiv 2508.09591; reference policies.md 3.12). As `serial`, one thing after the other.
 * But each layer's token rows travel plainly or once per node (nodes.h), whichever takes less by the closed form of its
 * exchanges and copies. That is the depth of hierarchy that the paper chooses. Here it is 1 or 2, since nodes are the
 * only level of a cluster that the price tells apart. The choice is made for every micro-batch from its counts, which
 * every rank has; it costs no time.
 *
 * Any policy may run under it. Inferred: which tokens share nodes (runtime/plan/token_sets.h). In training, gates say
 * it too late for sizes to be known. So training keeps the plain way, and so do expert-sharding groups. */
#include "runtime/program/emit.h"
#include "runtime/program/nodes.h"

static void *start(const hec_problem *problem, hec_arena *arena) {
  return hec_nodes_new(problem, arena);
}

static void from_gate(hec_lowering *low, int32_t l) {
  (void)hec_nodes_choose(low, low->own, l, 0);
  hec_schedule_serial.from_gate(low, l);
}

static void backward(hec_lowering *low, int32_t l) {
  hec_schedule_serial.backward(low, l);
}

const hec_schedule hec_schedule_hiermoe = {
    .name = "hiermoe",
    .tried = true,
    .summary = "as serial; a token goes once to a node with several of its experts where that is faster",
    .source = "HierMoE, arXiv 2508.09591",
    .tokens_wait = true,
    .by_node = true,
    .hides = {.by_node = true},
    .start = start,
    .to_gate = hec_emit_to_gate,
    .from_gate = from_gate,
    .backward = backward,
};
