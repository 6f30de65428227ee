/* Hecate's rule (reference hecate.md 6.1, 14): all stay on the source if it holds the expert; else even over the
 * holders of its node; else even over all holders. No load feedback and no coordination: it needs the plan only. */
#include "runtime/plan/dispatch/dispatch_even.h"

static void split(const hec_dispatch_row *row, int32_t source, uint32_t n, uint32_t *tokens) {
  int32_t begin, end;
  hec_dispatch_node(row, source, &begin, &end);
  for (int32_t j = begin; j < end; j++)
    if (row->holders[j] == source) {
      tokens[j] = n;
      return;
    }
  hec_dispatch_spread(row, begin, end, source, n, tokens);
}

const hec_dispatch hec_dispatch_local_first = {
    .name = "local_first",
    .summary = "own rank, else own node, else anywhere, evenly",
    .source = "Hecate, arXiv 2502.02581, section on token dispatch",
    .own_first = true,
    .split = split,
};
