/* The table of dispatchers, and what several of them need. */
#include "models/training/dispatcher.h"

#define ROW(key, name) &hec_dispatcher_##name,
HEC_TABLE_OF(hec_dispatcher);
const hec_dispatcher *const hec_dispatchers[HEC_N_DISPATCHERS + 1] = {HEC_DISPATCHER_LIST(ROW) NULL};
const hec_table hec_dispatcher_table = {.rows = hec_dispatchers};

double hec_dispatch_bytes(const hec_training *t, bool back) {
  return back || !t->recipe.dispatch ? 2 : 1 + 4.0 / 128; /* fp8, and a scale for every 128 values */
}

double hec_dispatch_uplink_s(const hec_training *t, const hec_dispatch_work *work) {
  int32_t ep = t->layout.ep, nodes_below = hec_group_below(t, ep, t->layout.etp) / work->ranks_per_node;
  if (hec_group_below(t, ep, t->layout.etp) == ep)
    return 0;
  double others = (double)(work->n_nodes - (nodes_below > 1 ? nodes_below : 1)) / (double)(work->n_nodes - 1);
  return hec_uplink_s(t, (double)work->tokens * work->nodes * others * work->bytes);
}

hec_dispatch_work hec_dispatch_work_of(const hec_training *t, bool back) {
  const hec_moe *moe = t->moe;
  int32_t ep = t->layout.ep, near = hec_group_inside(t, ep, t->layout.etp), nodes = ep / near;
  double reached = hec_distinct_groups(moe->n_experts, nodes, moe->top_k);
  if (moe->token_nodes > 0 && reached > (double)moe->token_nodes)
    reached = (double)moe->token_nodes;
  return (hec_dispatch_work){.tokens = (int64_t)hec_training_tokens(t),
                             .bytes = hec_dispatch_bytes(t, back) * (double)moe->d_model,
                             .ranks = hec_distinct_groups(moe->n_experts, ep, moe->top_k),
                             .nodes = reached * (double)(nodes - 1) / (double)nodes,
                             .ranks_per_node = near,
                             .n_nodes = nodes,
                             .sms = HEC_DISPATCH_SMS};
}
