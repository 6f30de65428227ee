/* Tokens stay where there is a copy; else they go to the rank that keeps the expert in the source's own expert-parallel
 * group: copies serve their own rank only (Pro-Prophet, reference policies.md 3.9). */
#include "runtime/plan/dispatch/dispatch_even.h"

static void split(const hec_dispatch_row *row, int32_t source, uint32_t n, uint32_t *tokens) {
  const int32_t wanted[] = {source, hec_plan_keeper(row->plan, row->layer, row->expert, source)};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    int32_t j = hec_dispatch_lower(row, wanted[i]);
    if (j == row->n_holders || row->holders[j] != wanted[i])
      continue;
    tokens[j] = n;
    return;
  }
}

const hec_dispatch hec_dispatch_home = {
    .name = "home",
    .summary = "own rank, else the home (in the own group)",
    .source = "Pro-Prophet, arXiv 2411.10003",
    .own_first = true,
    .split = split,
};
