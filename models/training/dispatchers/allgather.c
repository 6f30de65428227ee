/* Every rank of the group gathers all tokens, computes those of its experts, and a reduce-scatter adds them up. Routing plays no
 * part. */
#include "models/training/dispatcher.h"

static double seconds(const hec_training *t, double received) {
  double all = hec_training_tokens(t) * (double)t->layout.ep * (double)t->moe->d_model;
  (void)received;
  return hec_group_collective_s(t, HEC_ALL_GATHER, t->layout.ep, t->layout.etp,
                                all * hec_dispatch_bytes(t, false)) +
         hec_group_collective_s(t, HEC_REDUCE_SCATTER, t->layout.ep, t->layout.etp, all * hec_dispatch_bytes(t, true));
}

const hec_dispatcher hec_dispatcher_allgather = {.name = "allgather",
                                                 .summary = "all tokens to all ranks, and a reduction back",
                                                 .source = "Megatron-LM",
                                                 .megatron_type = "allgather",
                                                 .gathers = true,
                                                 .seconds = seconds};
