/* Expert parallelism with expert-data parallelism (DeepSpeed-MoE, arXiv 2201.05596): tokens stay inside the source's
 * expert-parallel group, ranks g*ep .. (g+1)*ep-1: on the source itself if it holds the expert (always so for a
 * shadowed expert of FasterMoE), else evenly over the group's slots; anywhere if the group has none. */
#include "runtime/plan/dispatch/dispatch_even.h"

static void split(const hec_dispatch_row *row, int32_t source, uint32_t n, uint32_t *tokens) {
  int32_t ep = row->problem->ep, first = source / ep * ep;
  int32_t begin = hec_dispatch_lower(row, first), end = hec_dispatch_lower(row, first + ep);
  for (int32_t j = begin; j < end; j++)
    if (row->holders[j] == source) {
      tokens[j] = n;
      return;
    }
  hec_dispatch_spread(row, begin, end, source, n, tokens);
}

const hec_dispatch hec_dispatch_group = {
    .name = "group",
    .summary = "own rank, else own expert-parallel group, evenly",
    .source = "DeepSpeed-MoE, arXiv 2201.05596",
    .own_first = true,
    .split = split,
};
