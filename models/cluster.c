/* What laws ask of a cluster: latencies, shares and rates along its routes. O(route) each; the description O(devices). */
#include "models/cluster.h"

#include "models/gpu_compute.h"

#include <stdio.h>
#include <string.h>

int64_t hec_cluster_latency_ps(const hec_cluster *c, int32_t s, int32_t d) {
  const int32_t *links;
  int32_t n = hec_cluster_route(c, s, d, &links);
  int64_t sum = 0;
  for (int32_t i = 0; i < n; i++)
    sum += c->links[links[i]].latency_ps;
  return sum;
}

double hec_cluster_slowest(const hec_cluster *c, int32_t s, int32_t d) {
  const int32_t *links;
  int32_t n = hec_cluster_route(c, s, d, &links);
  HEC_ASSERT(n > 0);
  double min = c->links[links[0]].bandwidth;
  for (int32_t i = 1; i < n; i++)
    min = c->links[links[i]].bandwidth < min ? c->links[links[i]].bandwidth : min;
  return min;
}

int64_t hec_cluster_relay_ps(const hec_cluster *c, int32_t s, int32_t d, double bytes) {
  const int32_t *links;
  int32_t n = hec_cluster_route(c, s, d, &links);
  double chunk = bytes < c->p2p.chunk_bytes ? bytes : c->p2p.chunk_bytes;
  int64_t sum = 0;
  for (int32_t i = 1; i < n; i++) {
    const hec_link *out = &c->links[links[i - 1]], *in = &c->links[links[i]];
    if (in->kind == HEC_LINK_PORT_IN && in->device != d)
      sum += (int64_t)(chunk / (in->bandwidth < out->bandwidth ? in->bandwidth : out->bandwidth) * 1e12 + 0.5);
  }
  return sum;
}

const char *const hec_link_kind_name[HEC_N_LINK_KINDS] = {"port_out", "port_in", "nic_out",
                                                          "nic_in",   "leaf_up", "leaf_down"};

int32_t hec_cluster_kind(const hec_cluster *c, hec_link_kind kind, int32_t *first) {
  int32_t n = 0;
  *first = 0;
  while (*first < c->n_links && c->links[*first].kind != kind)
    ++*first;
  while (*first + n < c->n_links && c->links[*first + n].kind == kind)
    n++;
  return n;
}

static double left_of(const hec_cluster *c, hec_link_kind out, hec_link_kind in, int32_t index) {
  int32_t first;
  double left = 1;
  for (int32_t way = 0; way < 2; way++)
    if (index < hec_cluster_kind(c, way ? in : out, &first)) {
      const hec_link *link = &c->links[first + index];
      left = link->bandwidth < left * link->whole ? link->bandwidth / link->whole : left;
    }
  return left;
}

double hec_cluster_port_left(const hec_cluster *c, int32_t device) {
  return left_of(c, HEC_LINK_PORT_OUT, HEC_LINK_PORT_IN, device);
}

double hec_cluster_nic_left(const hec_cluster *c, int32_t device) {
  int32_t near = (int32_t)((int64_t)(device % c->devices_per_node) * c->nics / c->devices_per_node);
  return left_of(c, HEC_LINK_NIC_OUT, HEC_LINK_NIC_IN, hec_cluster_node(c, device) * c->nics + near);
}

double hec_p2p_share(const hec_p2p *p2p, bool same_node, double bytes) {
  if (!same_node || p2p->ll_bytes == 0)
    return 1;
  double max = (double)p2p->ll_bytes * p2p->channels_per_peer, floor = max / p2p->ll_share;
  if (bytes >= floor)
    return 1;
  return bytes <= max ? p2p->ll_share : bytes / floor;
}

double hec_cluster_share_of(const hec_cluster *c, int32_t s, int32_t d, double bytes) {
  double min = 1;
  const int32_t *links;
  if (!c->sized)
    return 1;
  int32_t n = hec_cluster_route(c, s, d, &links);
  for (int32_t i = 0; i < n; i++) {
    double share = hec_link_share_of(&c->links[links[i]], bytes);
    min = share < min ? share : min;
  }
  return min;
}

double hec_cluster_node_bandwidth(const hec_cluster *c, bool nominal) {
  double slowest = 0, sum = 0;
  int32_t seen = 0;
  hec_link_kind first = c->n_nodes > 1 ? HEC_LINK_NIC_OUT : HEC_LINK_PORT_OUT;
  hec_link_kind second = c->n_nodes > 1 ? HEC_LINK_NIC_IN : HEC_LINK_PORT_IN;
  int32_t together = c->n_nodes > 1 ? c->nics : 1;
  for (int32_t i = 0; i < c->n_links; i++) {
    if (c->links[i].kind != first && c->links[i].kind != second)
      continue;
    sum += nominal ? c->links[i].nominal : c->links[i].bandwidth;
    if (++seen % together != 0)
      continue;
    slowest = slowest == 0 || sum < slowest ? sum : slowest;
    sum = 0;
  }
  return slowest;
}

void hec_cluster_describe(const hec_cluster *c, hec_text *text) {
  const hec_device *device = &c->devices[0];
  hec_text_printf(text, "%s: %d node%s x %d %s%s, %.4g TFLOP/s x %.2g, %.4g GB at %.4g GB/s, port %.4g GB/s", c->name,
                  (int)c->n_nodes, c->n_nodes == 1 ? "" : "s", (int)c->devices_per_node,
                  device->gpu ? device->gpu->gpu.title : "device", device->gpu || c->devices_per_node == 1 ? "" : "s",
                  device->flops / 1e12, device->flops_efficiency, device->memory_bytes / 1e9,
                  device->hbm_bandwidth / 1e9, c->links[0].bandwidth / 1e9);
  if (c->n_nodes > 1)
    hec_text_printf(text, ", %d NIC%s a node, %.4g GB/s together", (int)c->nics, c->nics == 1 ? "" : "s",
                    hec_cluster_node_bandwidth(c, false) / 1e9);
}
