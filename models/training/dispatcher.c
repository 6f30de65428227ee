/* The table of dispatchers, and what several of them need. */
#include "models/training/dispatcher.h"

enum { DISPATCH_SMS = 24 }; /* DeepEP's default of its normal mode is 20, recipes say 20 to 32 */

#define ROW(key, name) &hec_dispatcher_##name,
const hec_dispatcher *const hec_dispatchers[HEC_N_DISPATCHERS] = {HEC_DISPATCHER_LIST(ROW)};

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
                             .sms = DISPATCH_SMS};
}
