/* What a cluster takes from the GPU that it names.
 *
 * Port, for a message of b bytes among the n GPUs of a node, from the fitted all-to-all law t(v), v = (n - 1) b:
 *
 *     latency = t(0)        share(b) = v / ((t(v) - latency) NVLink)
 *
 * at b = 512 B .. 1 GiB, so that an exchange of equal messages takes what was measured, and unequal ones what their ports carry.
 * The largest share is the port's efficiency, which planners use, and shares are of that.
 *
 * NIC: 36 of 50 GB/s, and 17 us for 2 kB, between two H100 with send and receive (published medians of microsoft/vidur). In rings
 * NCCL's own figure, 12 of 12.5 GB/s (src/graph/topo.h, NET_BW). A link has the rate of exchanges; rings are HEC_NIC_RING as
 * fast. Small messages are slower by their latency. GPUs behind one NIC share it. */
#include "models/cluster_spec.h"

#include "models/gpu_compute.h"
#include "models/preset_data.h"
#include "runtime/base/files.h"

#include <string.h>
#include <unistd.h>

static const double nic_exchange = 0.718;
enum { SHARE_FIRST = 512, SHARES = 22, SUMMARY_TILE = 64 };

/* A message of more bytes never takes less time: what the law says of a smaller one holds for the larger, too. */
static void take_shares(const hec_gpu *gpu, int32_t ranks, hec_arena *arena, hec_link_spec *port) {
  hec_collective_how how;
  double first_s = hec_gpu_collective_s(gpu, HEC_ALL_TO_ALL, ranks, 0, &how), n = (double)ranks, last_s = 0, best = 0;
  if (how == HEC_COLLECTIVE_NONE || ranks < 2)
    return;
  hec_link_share *shares = HEC_NEW(arena, hec_link_share, SHARES);
  for (int32_t i = 0; i < SHARES; i++) {
    double bytes = (double)((int64_t)SHARE_FIRST << i);
    double s = hec_gpu_collective_s(gpu, HEC_ALL_TO_ALL, ranks, bytes * n, &how) - first_s;
    double ideal_s = (n - 1) * bytes / gpu->sheet.nvlink_bandwidth;
    s = s > ideal_s ? s : ideal_s;
    s = s < ideal_s / HEC_SIZE_SHARE_MIN ? s : ideal_s / HEC_SIZE_SHARE_MIN;
    s = s > last_s ? s : last_s * (1 + 1e-6);
    shares[i] = (hec_link_share){bytes, ideal_s / s};
    best = shares[i].share > best ? shares[i].share : best;
    last_s = s;
  }
  for (int32_t i = 0; i < SHARES; i++)
    shares[i].share /= best;
  port->efficiency = best;
  port->by_laws = true;
  port->latency_s = first_s;
  port->shares = shares;
  port->n_shares = SHARES;
}

/* `path`: where it was looked for. */
static hec_status unknown(const char *name, const char *path) {
  HEC_SCOPED(hec_text) near = {0}, at = {0};
  hec_preset_suggest("device", strrchr(name, '/') ? strrchr(name, '/') + 1 : name, &near);
  if (strcmp(name, path) != 0)
    hec_text_printf(&at, "; no file %.500s", path);
  return hec_fail(HEC_BAD_INPUT,
                  "gpu %.200s: expected a device (`list` devices names them) or the path of a file, found neither%s%s",
                  name, near.data ? near.data : "", at.data ? at.data : "");
}

hec_status hec_cluster_spec_take_gpu(hec_cluster_spec *spec, const char *name, const char *file, hec_arena *arena) {
  const hec_gpu *gpu;
  HEC_SCOPED(hec_text) path = {0};
  bool known = hec_gpu_known(name);
  if (name[0] == '\0')
    return unknown(name, name);
  hec_file_beside(known ? "" : file, name, &path);
  if (!known && access(path.data, F_OK) != 0)
    return unknown(name, path.data);
  HEC_TRY(hec_gpu_laws_load(path.data, arena, &gpu, &spec->gpu));
  const hec_gpu_sheet *sheet = &gpu->sheet;
  hec_device *device = &spec->device;
  device->flops = sheet->flops[HEC_LAW_BF16];
  device->memory_bytes = sheet->memory_bytes;
  device->hbm_bandwidth = sheet->hbm_bandwidth;
  device->launch_s = device->gemm_a_s = device->gemm_c_s = sheet->launch_s;
  spec->port.bandwidth = sheet->nvlink_bandwidth;
  spec->nic.bandwidth = sheet->nic_bandwidth;
  spec->nic.efficiency = nic_exchange;
  spec->nic.latency_s = HEC_NIC_LATENCY_S;
  spec->nic.by_laws = true;
  take_shares(gpu, (int32_t)spec->devices_per_node, arena, &spec->port);
  if (spec->port.n_shares > 0)
    spec->p2p.ll_bytes = 0; /* the shares have what the protocol costs */
  if (!spec->gpu)
    return HEC_OK;
  device->gpu = spec->gpu;
  device->in_step = HEC_IN_STEP;
  return HEC_OK;
}

void hec_cluster_sum_up(hec_device *device) {
  const hec_gpu_laws *laws = device->gpu;
  if (!laws)
    return;
  device->flops_efficiency = laws->flops[HEC_LAW_BF16] / device->flops / device->in_step;
  device->hbm_bandwidth = 1 / (laws->add.byte_s * device->in_step);
  device->launch_s = laws->add.launch_s * device->in_step;
  device->gemm_a_s = device->gemm_c_s = laws->gpu.sheet.launch_s * device->in_step;
  device->gemm_tile = SUMMARY_TILE;
}

void hec_cluster_take_sheet(const hec_cluster *c, hec_gpu_sheet *sheet) {
  int32_t first;
  if (hec_cluster_kind(c, HEC_LINK_PORT_OUT, &first) > 0)
    sheet->nvlink_bandwidth = c->links[first].nominal;
  if (hec_cluster_kind(c, HEC_LINK_NIC_OUT, &first) > 0)
    sheet->nic_bandwidth = c->links[first].nominal * (double)c->nics / (double)c->devices_per_node;
  sheet->nvlink_ranks = c->devices_per_node;
  sheet->memory_bytes = c->devices[0].memory_bytes;
}
