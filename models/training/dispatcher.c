/* The table of dispatchers, and what several of them need. */
#include "models/training/dispatcher.h"

#define ROW(key, name) &hec_dispatcher_##name,
HEC_TABLE_OF(hec_dispatcher);
const hec_dispatcher *const hec_dispatchers[HEC_N_DISPATCHERS + 1] = {HEC_DISPATCHER_LIST(ROW) NULL};
const hec_table hec_dispatcher_table = {.rows = hec_dispatchers};

hec_dispatch_work hec_dispatch_work_of(const hec_training *t) {
  const hec_moe *moe = t->moe;
  int32_t ep = t->layout.ep, near = hec_group_inside(t, ep, t->layout.etp), nodes = ep / near;
  double reached = hec_distinct_groups(moe->n_experts, nodes, moe->top_k);
  if (moe->token_nodes > 0 && reached > (double)moe->token_nodes)
    reached = (double)moe->token_nodes;
  return (hec_dispatch_work){.tokens = (int64_t)hec_training_tokens(t),
                             .bytes = 2 * (double)moe->d_model,
                             .ranks = hec_distinct_groups(moe->n_experts, ep, moe->top_k),
                             .nodes = reached * (double)(nodes - 1) / (double)nodes,
                             .ranks_per_node = near,
                             .n_nodes = nodes,
                             .sms = HEC_DISPATCH_SMS};
}
