/* Expert parallelism with expert-data parallelism (DeepSpeed-MoE, arXiv 2201.05596): tokens stay inside the source's
 * expert-parallel group, ranks g*ep .. (g+1)*ep-1; evenly if the group has several slots, anywhere if it has none. */
#include "runtime/plan/dispatch_even.h"

static void split(const hec_dispatch_row *row, int32_t source, uint32_t n, uint32_t *tokens) {
  int32_t ep = row->problem->ep, first = source / ep * ep;
  hec_dispatch_spread(row, hec_dispatch_lower(row, first), hec_dispatch_lower(row, first + ep), source, n, tokens);
}

const hec_dispatch hec_dispatch_group = {
    .name = "group",
    .summary = "own expert-parallel group, evenly",
    .source = "DeepSpeed-MoE, arXiv 2201.05596",
    .split = split,
};
