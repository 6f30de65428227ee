/* What serving frameworks do with EPLB's replicas (reference policies.md 4.1: the split is no part of EPLB): even over
 * all slots wherever they are, the source's rank id deciding who gets the remainder. */
#include "runtime/plan/dispatch/dispatch_even.h"

static void split(const hec_dispatch_row *row, int32_t source, uint32_t n, uint32_t *tokens) {
  hec_dispatch_spread(row, 0, row->n_holders, source, n, tokens);
}

const hec_dispatch hec_dispatch_round_robin = {
    .name = "round_robin",
    .summary = "evenly over all slots, starting at the source's turn",
    .source = "users of EPLB (vLLM, SGLang)",
    .split = split,
};
