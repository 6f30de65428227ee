/* Collectives of a layout's groups: inside one NVLink domain by the device's laws, across domains by NIC. */
#include "models/training/groups.h"

/* Where a device has no fitted collectives: what NCCL's rings reach of NVLink, and their latency. Assumed. */
const double hec_assumed_nvlink = 0.75, hec_assumed_latency_s = 2e-5;

/* Ranks of a group among `domain` neighbouring GPUs, the same number in each such domain. */
static int32_t inside(int32_t domain, int32_t ranks, int32_t stride) {
  if ((int64_t)ranks * stride <= domain)
    return ranks;
  int32_t n = domain / stride;
  while (n > 1 && ranks % n != 0)
    n--;
  return n > 1 ? n : 1;
}

int32_t hec_group_inside(const hec_training *t, int32_t ranks, int32_t stride) {
  return inside(t->laws->gpu.sheet.nvlink_ranks, ranks, stride);
}

int32_t hec_group_below(const hec_training *t, int32_t ranks, int32_t stride) {
  return t->leaf_gpus > 0 ? inside(t->leaf_gpus, ranks, stride) : ranks;
}

bool hec_training_crosses(const hec_training *t) {
  return t->layout.gpus > hec_group_inside(t, t->layout.gpus, 1);
}

double hec_nic_rate(const hec_training *t) {
  return t->constants.nic * t->laws->gpu.sheet.nic_bandwidth;
}

double hec_nvlink_rate(const hec_training *t) {
  return (t->nvlink_share > 0 ? t->nvlink_share : hec_assumed_nvlink) * t->laws->gpu.sheet.nvlink_bandwidth;
}

static double nvlink_latency_s(const hec_training *t) {
  return t->nvlink_share > 0 ? t->nvlink_latency_s : hec_assumed_latency_s;
}

static double nic_latency_s(const hec_training *t) {
  return t->nic_latency_s > 0 ? t->nic_latency_s : hec_assumed_latency_s;
}

static double domain_s(const hec_training *t, hec_collective_op op, int32_t ranks, double bytes) {
  hec_collective_how how;
  if (ranks < 2 || bytes <= 0)
    return 0;
  double s = hec_gpu_collective_s(&t->laws->gpu, op, ranks, bytes, &how);
  if (how != HEC_COLLECTIVE_NONE && t->nvlink_share <= 0)
    return s;
  return nvlink_latency_s(t) + hec_collective_port_bytes(op, ranks, bytes) / hec_nvlink_rate(t);
}

double hec_uplink_s(const hec_training *t, double bytes) {
  return bytes > 0 ? nic_latency_s(t) + (double)t->leaf_gpus * bytes / (t->constants.nic * t->uplink) : 0;
}

/* What each GPU of a leaf sends out of it: of an all-to-all its own rows; of a ring its share of what leaves the leaf once. */
static double uplink_s(const hec_training *t, hec_collective_op op, int32_t ranks, int32_t stride, double bytes) {
  int32_t below = hec_group_below(t, ranks, stride);
  if (below == ranks)
    return 0;
  return hec_uplink_s(t, op == HEC_ALL_TO_ALL ? bytes * (double)(ranks - below) / (double)ranks
                                              : hec_collective_port_bytes(op, ranks, bytes) / (double)below);
}

/* All-to-all: what stays inside goes over NVLink beside what each rank sends over its own NIC. Rings: the members in a domain share
 * their NICs, up to NVLink's rate. */
double hec_group_collective_s(const hec_training *t, hec_collective_op op, int32_t ranks, int32_t stride,
                              double bytes) {
  int32_t near = hec_group_inside(t, ranks, stride);
  if (near == ranks)
    return domain_s(t, op, ranks, bytes);
  double far = (double)(ranks - near) / (double)ranks, up_s = uplink_s(t, op, ranks, stride, bytes);
  if (op == HEC_ALL_TO_ALL) {
    double near_s = domain_s(t, op, near, bytes * (double)near / (double)ranks);
    double far_s = nic_latency_s(t) + bytes * far / hec_nic_rate(t);
    far_s = far_s > up_s ? far_s : up_s;
    return near_s > far_s ? near_s : far_s;
  }
  double rate = (double)near * hec_nic_rate(t), nvlink = hec_nvlink_rate(t);
  rate = near > 1 && rate > nvlink ? nvlink : rate;
  double ring_s = nic_latency_s(t) + hec_collective_port_bytes(op, ranks, bytes) / rate;
  return ring_s > up_s ? ring_s : up_s;
}

double hec_training_send_s(const hec_training *t) {
  const hec_layout *l = &t->layout;
  double bytes = 2 * (double)t->seq * (double)t->micro_batch / (double)(l->tp * l->cp) * (double)t->moe->d_model;
  bool far = (int64_t)l->gpus / l->pp * 2 > t->laws->gpu.sheet.nvlink_ranks;
  double s = far ? nic_latency_s(t) + bytes / hec_nic_rate(t) : nvlink_latency_s(t) + bytes / hec_nvlink_rate(t);
  int32_t stage = l->gpus / l->pp; /* so many of a leaf send to another one */
  double crossing = t->leaf_gpus > stage ? (double)stage / (double)t->leaf_gpus : 1;
  double up_s = t->leaf_gpus > 0 && l->gpus > t->leaf_gpus ? hec_uplink_s(t, bytes * crossing) : 0;
  return s > up_s ? s : up_s;
}

double hec_training_data_s(const hec_training *t, double dense_params, double expert_params) {
  const hec_layout *l = &t->layout;
  int32_t dense_ranks = l->dp * l->cp, gathers = t->recipe.zero >= 3 ? 2 : t->recipe.zero > 0;
  double s = 0;
  const struct {
    double params;
    int32_t ranks, stride;
  } part[2] = {{dense_params, dense_ranks, l->tp}, {expert_params, l->edp, l->etp * l->ep}};
  for (int i = 0; i < 2; i++) {
    double grads = part[i].params * (double)t->recipe.grads;
    if (t->recipe.zero == 0)
      s += hec_group_collective_s(t, HEC_ALL_REDUCE, part[i].ranks, part[i].stride, grads);
    else
      s += hec_group_collective_s(t, HEC_REDUCE_SCATTER, part[i].ranks, part[i].stride, grads) +
           gathers * hec_group_collective_s(t, HEC_ALL_GATHER, part[i].ranks, part[i].stride, 2 * part[i].params);
  }
  return s;
}

double hec_training_gathered_s(const hec_training *t, double params) {
  int32_t ranks = t->layout.ep, stride = t->layout.etp;
  return 2 * hec_group_collective_s(t, HEC_ALL_GATHER, ranks, stride, 2 * params) +
         hec_group_collective_s(t, HEC_REDUCE_SCATTER, ranks, stride, (double)t->recipe.grads * params);
}

double hec_training_tokens(const hec_training *t) {
  return (double)t->seq * (double)t->micro_batch / (double)t->layout.cp / (double)t->layout.tp;
}
