/* NCCL's all-to-all, once there and once back: every assignment is a row of its own on the wire, in bf16. */
#include "models/training/dispatcher.h"

static double seconds(const hec_training *t, double received) {
  double bytes = 2 * hec_training_tokens(t) * (double)t->moe->top_k * (double)t->moe->d_model;
  return 2 * hec_group_collective_s(t, HEC_ALL_TO_ALL, t->layout.ep, t->layout.etp, bytes * received);
}

const hec_dispatcher hec_dispatcher_alltoall = {.name = "alltoall",
                                                .summary = "all-to-all of assignments",
                                                .source = "NCCL; Megatron-LM's default",
                                                .megatron_type = "alltoall",
                                                .seconds = seconds};
