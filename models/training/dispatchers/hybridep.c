/* HybridEP: its copies take few SMs, so NVLink and NIC alone bound it, and they work beside each other. No law was fitted to it. */
#include "models/training/dispatcher.h"

static const double rdma_nic = 0.86; /* of the NIC: DeepEP's published 43 of 50 GB/s between two nodes */

static bool suits(const hec_gpu *gpu) {
  return gpu->sheet.nvlink_ranks > 8;
}

static double seconds(const hec_training *t, double received) {
  const hec_dispatch_work work = hec_dispatch_work_of(t);
  double per_node = (double)work.ranks_per_node, tokens = (double)work.tokens;
  double nvlink = tokens * work.ranks * (per_node - 1) / per_node * work.bytes, nic = tokens * work.nodes * work.bytes;
  double nvlink_s = nvlink / (hec_assumed_nvlink * t->laws->gpu.sheet.nvlink_bandwidth),
         nic_s = nic / (rdma_nic * hec_nic_rate(t) / t->constants.nic);
  return 2 * received * (hec_assumed_latency_s + (nvlink_s > nic_s ? nvlink_s : nic_s));
}

const hec_dispatcher hec_dispatcher_hybridep = {.name = "hybridep",
                                                .summary =
                                                    "a token goes to a node once and on from there, with few SMs",
                                                .source = "github.com/deepseek-ai/DeepEP, branch hybrid-ep",
                                                .megatron_type = "flex",
                                                .megatron_backend = "hybridep",
                                                .suits = suits,
                                                .seconds = seconds};
