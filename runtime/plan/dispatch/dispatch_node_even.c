/* LAER's lite routing (reference hecate.md 10.3): even over the holders of the source's node, without preference for
 * its own rank; else even over all holders. A rank with two slots of the expert counts twice. */
#include "runtime/plan/dispatch/dispatch_even.h"

static void split(const hec_dispatch_row *row, int32_t source, uint32_t n, uint32_t *tokens) {
  int32_t begin, end;
  hec_dispatch_node(row, source, &begin, &end);
  hec_dispatch_spread(row, begin, end, source, n, tokens);
}

const hec_dispatch hec_dispatch_node_even = {
    .name = "node_even",
    .summary = "own node, else anywhere, evenly",
    .source = "LAER-MoE, arXiv 2602.11686",
    .split = split,
};
