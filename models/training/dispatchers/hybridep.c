/* HybridEP: its copies take few SMs, so NVLink and NIC alone bound it, and they work beside each other. No law was fitted to it. */
#include "models/training/dispatcher.h"

static const double rdma_nic = 0.86; /* of the NIC: DeepEP's published 43 of 50 GB/s between two nodes */

static bool suits(const hec_gpu *gpu) {
  return gpu->sheet.nvlink_ranks > 8;
}

static bool can(const hec_gpu *gpu) {
  return gpu->sheet.nvlink_bandwidth > 0;
}

static double part_s(const hec_gpu *gpu, const hec_dispatch_work *work, bool back) {
  double per_node = (double)work->ranks_per_node, tokens = (double)work->tokens;
  double nvlink = tokens * work->ranks * (per_node - 1) / per_node * work->bytes;
  double nic = tokens * work->nodes * work->bytes;
  double nvlink_s = nvlink / (hec_assumed_nvlink * gpu->sheet.nvlink_bandwidth),
         nic_s = nic > 0 ? nic / (rdma_nic * gpu->sheet.nic_bandwidth) : 0;
  (void)back;
  return hec_assumed_latency_s + (nvlink_s > nic_s ? nvlink_s : nic_s);
}

static double seconds(const hec_training *t, double received) {
  double s = 0;
  for (int back = 0; back < 2; back++) {
    const hec_dispatch_work work = hec_dispatch_work_of(t, back);
    double kernel_s = part_s(&t->laws->gpu, &work, back), up_s = hec_dispatch_uplink_s(t, &work);
    s += received * (kernel_s > up_s ? kernel_s : up_s);
  }
  return s;
}

const hec_dispatcher hec_dispatcher_hybridep = {.name = "hybridep",
                                                .summary =
                                                    "a token goes to a node once and on from there, with few SMs",
                                                .source = "github.com/deepseek-ai/DeepEP, branch hybrid-ep",
                                                .megatron_type = "flex",
                                                .megatron_backend = "hybridep",
                                                .suits = suits,
                                                .can = can,
                                                .part_s = part_s,
                                                .seconds = seconds};
