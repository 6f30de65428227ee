/* NCCL's all-to-all, once there and once back: every assignment is a row of its own on the wire. */
#include "models/training/dispatcher.h"

static double seconds(const hec_training *t, double received) {
  double elements = hec_training_tokens(t) * (double)t->moe->top_k * (double)t->moe->d_model * received, s = 0;
  for (int back = 0; back < 2; back++)
    s += hec_group_collective_s(t, HEC_ALL_TO_ALL, t->layout.ep, t->layout.etp, elements * hec_dispatch_bytes(t, back));
  return s;
}

const hec_dispatcher hec_dispatcher_alltoall = {.name = "alltoall",
                                                .summary = "all-to-all of assignments",
                                                .source = "NCCL; Megatron-LM's default",
                                                .megatron_type = "alltoall",
                                                .seconds = seconds};
