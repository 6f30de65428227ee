/* From a cluster's description to one-way links and routes.
 *
 * Links are numbered port out [R], port in [R], NIC out [N * nics], NIC in [N * nics], leaf up [L], leaf down [L].
 * There are NICs only with more than one node, leaves only with a leaf tier. With rails (one NIC per device) a group of
 * nodes has one leaf per rail, so L = groups * nics; otherwise L = groups. Routes go to one table of all ordered pairs,
 * made once: O(R^2 * route length), 1024 devices in some 10 ms and 30 MB at most. */
#include "models/cluster_spec.h"

#include "models/gpu.h"
#include "models/preset_data.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

hec_cluster_spec hec_cluster_spec_default(void) {
  return (hec_cluster_spec){
      .nics = 1,
      .port = {.efficiency = 1},
      .nic = {.efficiency = 1},
      .leaf = {.efficiency = 1},
      .device = {.flops_efficiency = 0.8,
                 .hbm_bandwidth = 1555e9,
                 .gemm_a_s = 3e-6,
                 .gemm_c_s = 3e-6,
                 .gemm_tile = 128,
                 .launch_s = 3e-6,
                 .speed = 1,
                 .in_step = 1},
      .plan_a_s = 5e-6,
      .plan_b_s = 1e-9,
      /* NCCL_P2P_LL_THRESHOLD, by channel (NCCL src/enqueue.cc); LL reaches 25 to 50 % of peak (arXiv 2507.04786) */
      .p2p = {.channels = 32,
              .channels_per_peer = 4,
              .batch = 8,
              .ll_bytes = 16384,
              .ll_share = 0.5,
              .chunk_bytes = 131072}};
}

hec_status hec_cluster_spec_check(const hec_cluster_spec *spec, const char *origin) {
  int64_t n = spec->n_nodes, g = spec->devices_per_node, max = HEC_DEVICES_MAX;
  if (n < 1 || g < 1 || n > max || g > max || n * g > max)
    return hec_fail(HEC_BAD_INPUT, "%s: nodes, devices_per_node: expected 1 to %lld devices, found %lld x %lld", origin,
                    (long long)max, (long long)n, (long long)g);
  if (spec->nics < 1 || spec->nics > g)
    return hec_fail(HEC_BAD_INPUT, "%s: nics: expected 1 to devices per node (%lld), found %lld", origin, (long long)g,
                    (long long)spec->nics);
  if (g > 1 && !(spec->port.bandwidth > 0))
    return hec_fail(HEC_BAD_INPUT, "%s: nvlink: expected a bandwidth (there are %lld devices per node), found none",
                    origin, (long long)g);
  if (n > 1 && !(spec->nic.bandwidth > 0))
    return hec_fail(HEC_BAD_INPUT, "%s: nic: expected a bandwidth (there are %lld nodes), found none", origin,
                    (long long)n);
  if (!(spec->port.bandwidth > 0) && !(spec->nic.bandwidth > 0))
    return hec_fail(HEC_BAD_INPUT, "%s: nvlink: expected a bandwidth, found none", origin);
  if ((spec->nodes_per_leaf > 0) != (spec->leaf.bandwidth > 0))
    return hec_fail(HEC_BAD_INPUT, "%s: leaf: expected nodes per leaf and an uplink bandwidth, found only one of them",
                    origin);
  return HEC_OK;
}

/* How a cluster's links are numbered. */
typedef struct {
  int32_t n_devices, per_node, nics, nodes_per_leaf, n_nics, n_leaves;
  int32_t nic_out, nic_in, leaf_up, leaf_down, n_links; /* first of each kind */
  bool rails, pxn, through, has_leaf;
} layout;

static layout layout_of(const hec_cluster_spec *spec) {
  layout l = {.n_devices = (int32_t)(spec->n_nodes * spec->devices_per_node),
              .per_node = (int32_t)spec->devices_per_node,
              .nics = (int32_t)spec->nics,
              .rails = spec->nics == spec->devices_per_node,
              .pxn = spec->pxn,
              .through = spec->nic_through_port,
              .has_leaf = spec->nodes_per_leaf > 0 && spec->n_nodes > 1};
  l.nodes_per_leaf = spec->nodes_per_leaf < spec->n_nodes ? (int32_t)spec->nodes_per_leaf : (int32_t)spec->n_nodes;
  l.n_nics = spec->n_nodes > 1 ? (int32_t)spec->n_nodes * l.nics : 0;
  if (l.has_leaf)
    l.n_leaves = ((int32_t)spec->n_nodes + l.nodes_per_leaf - 1) / l.nodes_per_leaf * (l.rails ? l.nics : 1);
  l.nic_out = 2 * l.n_devices;
  l.nic_in = l.nic_out + l.n_nics;
  l.leaf_up = l.nic_in + l.n_nics;
  l.leaf_down = l.leaf_up + l.n_leaves;
  l.n_links = l.leaf_down + l.n_leaves;
  return l;
}

/* [64] see hec_link.share_at; NULL without shares. */
static const uint8_t *index_shares(const hec_link_spec *spec, hec_arena *arena) {
  if (spec->n_shares == 0)
    return NULL;
  uint8_t *index = HEC_NEW(arena, uint8_t, 64);
  double power = 1;
  for (int32_t e = 0, i = 0; e < 64; e++, power *= 2) {
    while (i < spec->n_shares && spec->shares[i].bytes < power)
      i++;
    index[e] = (uint8_t)i;
  }
  return index;
}

static hec_link link_of(hec_link_kind kind, int32_t device, int32_t node, hec_link_spec spec) {
  return (hec_link){.kind = kind,
                    .device = device,
                    .node = node,
                    .nominal = spec.bandwidth,
                    .bandwidth = spec.bandwidth * spec.efficiency,
                    .whole = spec.bandwidth * spec.efficiency,
                    .latency_ps = (int64_t)(spec.latency_s * 1e12 + 0.5),
                    .by_laws = spec.by_laws,
                    .n_shares = spec.n_shares,
                    .shares = spec.shares,
                    .share_at = spec.share_at};
}

/* The latency of a class belongs to the route, so its outgoing link has it all and the incoming one none. */
static void make_links(const hec_cluster_spec *spec, const layout *l, hec_arena *arena, hec_link *links) {
  hec_link_spec port = spec->port, nic = spec->nic, leaf = spec->leaf;
  nic.share_at = index_shares(&nic, arena);
  leaf.share_at = index_shares(&leaf, arena);
  port.share_at = index_shares(&port, arena);
  if (!(port.bandwidth > 0)) {
    port = nic;
    port.latency_s = 0;
  }
  hec_link_spec port_in = port, nic_in = nic, leaf_down = leaf;
  port_in.latency_s = nic_in.latency_s = leaf_down.latency_s = 0;
  for (int32_t d = 0; d < l->n_devices; d++) {
    links[d] = link_of(HEC_LINK_PORT_OUT, d, d / l->per_node, port);
    links[l->n_devices + d] = link_of(HEC_LINK_PORT_IN, d, d / l->per_node, port_in);
  }
  for (int32_t k = 0; k < l->n_nics; k++) {
    links[l->nic_out + k] = link_of(HEC_LINK_NIC_OUT, -1, k / l->nics, nic);
    links[l->nic_in + k] = link_of(HEC_LINK_NIC_IN, -1, k / l->nics, nic_in);
  }
  for (int32_t k = 0; k < l->n_leaves; k++) {
    links[l->leaf_up + k] = link_of(HEC_LINK_LEAF_UP, -1, -1, leaf);
    links[l->leaf_down + k] = link_of(HEC_LINK_LEAF_DOWN, -1, -1, leaf_down);
  }
}

typedef struct {
  int32_t n, link[HEC_ROUTE_MAX];
  uint8_t side[HEC_ROUTE_MAX];
} route;

static inline void cross(route *r, int32_t link, uint8_t side) {
  r->link[r->n] = link;
  r->side[r->n++] = side;
}

static inline int32_t rail_of(const layout *l, int32_t device) {
  return device % l->per_node * l->nics / l->per_node;
}

static inline int32_t leaf_of(const layout *l, int32_t node, int32_t rail) {
  int32_t group = node / l->nodes_per_leaf;
  return l->rails ? group * l->nics + rail : group;
}

static route between_nodes(const layout *l, int32_t s, int32_t d) {
  enum { SOURCE = 1, DESTINATION = 2, FABRIC = 3 };
  int32_t s_node = s / l->per_node, d_node = d / l->per_node, s_rail = rail_of(l, s), d_rail = rail_of(l, d);
  bool relayed = l->pxn && l->rails && s_rail != d_rail;
  route r = {0};
  if (relayed || l->through)
    cross(&r, s, SOURCE);
  if (relayed) {
    s_rail = d_rail;
    cross(&r, l->n_devices + s_node * l->per_node + d_rail, SOURCE); /* rails: device i of a node is on rail i */
  }
  cross(&r, l->nic_out + s_node * l->nics + s_rail, SOURCE);
  if (l->has_leaf && leaf_of(l, s_node, s_rail) != leaf_of(l, d_node, d_rail)) {
    cross(&r, l->leaf_up + leaf_of(l, s_node, s_rail), FABRIC);
    cross(&r, l->leaf_down + leaf_of(l, d_node, d_rail), FABRIC);
  }
  cross(&r, l->nic_in + d_node * l->nics + d_rail, DESTINATION);
  if (l->through)
    cross(&r, l->n_devices + d, DESTINATION);
  return r;
}

static route route_of(const layout *l, int32_t s, int32_t d) {
  if (s == d)
    return (route){0};
  if (s / l->per_node == d / l->per_node)
    return (route){.n = 2, .link = {s, l->n_devices + d}, .side = {1, 2}};
  return between_nodes(l, s, d);
}

/* Two rounds over all pairs: lengths, then links. */
static void make_routes(const layout *l, hec_arena *arena, hec_cluster *cluster) {
  size_t n = (size_t)l->n_devices, pair = 0;
  cluster->route_at = HEC_NEW(arena, int32_t, n * n + 1);
  for (int32_t s = 0; s < l->n_devices; s++)
    for (int32_t d = 0; d < l->n_devices; d++, pair++)
      cluster->route_at[pair + 1] = cluster->route_at[pair] + route_of(l, s, d).n;
  cluster->route_link = HEC_NEW(arena, int32_t, cluster->route_at[n * n]);
  cluster->route_side = HEC_NEW(arena, uint8_t, cluster->route_at[n * n]);
  int32_t at = 0;
  for (int32_t s = 0; s < l->n_devices; s++) {
    for (int32_t d = 0; d < l->n_devices; d++) {
      route r = route_of(l, s, d);
      for (int32_t i = 0; i < r.n; i++, at++) {
        cluster->route_link[at] = r.link[i];
        cluster->route_side[at] = r.side[i];
      }
    }
  }
}

void hec_cluster_build(const hec_cluster_spec *spec, hec_arena *arena, hec_cluster *cluster) {
  layout l = layout_of(spec);
  *cluster = (hec_cluster){.n_nodes = (int32_t)spec->n_nodes,
                           .devices_per_node = l.per_node,
                           .n_devices = l.n_devices,
                           .nics = l.nics,
                           .pxn = spec->pxn,
                           .p2p = spec->p2p,
                           .nic_through_port = spec->nic_through_port,
                           .sized = spec->port.n_shares + spec->nic.n_shares + spec->leaf.n_shares > 0,
                           .n_links = l.n_links,
                           .links = HEC_NEW(arena, hec_link, l.n_links),
                           .devices = HEC_NEW(arena, hec_device, l.n_devices),
                           .cores = spec->cores,
                           .plan_a_s = spec->plan_a_s,
                           .plan_b_s = spec->plan_b_s,
                           .gpu = spec->port.by_laws ? spec->gpu : NULL};
  memcpy(cluster->name, spec->name, sizeof cluster->name);
  hec_make_plain(cluster->name); /* whether of a file, a path or a line */
  make_links(spec, &l, arena, cluster->links);
  hec_device device = spec->device;
  hec_cluster_sum_up(&device);
  for (int32_t d = 0; d < l.n_devices; d++)
    cluster->devices[d] = device;
  make_routes(&l, arena, cluster);
}

bool hec_cluster_is_line(const char *spec) {
  spec += strspn(spec, " \t");
  size_t nodes = strspn(spec, "0123456789");
  if (nodes == 0 || spec[nodes] != 'x')
    return false;
  const char *after = spec + nodes + 1;
  size_t devices = strspn(after, "0123456789");
  return devices > 0 && (after[devices] == '\0' || after[devices] == ' ' || after[devices] == '\t');
}

static hec_status no_such_cluster(const char *spec) {
  if (hec_gpu_known(spec))
    return hec_fail(
        HEC_BAD_INPUT,
        "`cluster` %.200s: expected a cluster, found a GPU; \"4x8 gpu=%.200s nics=8\" is four nodes of eight", spec,
        spec);
  return hec_preset_unknown(
      "cluster", "cluster", spec,
      ", a line like \"4x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G\" or the path of a JSON file");
}

hec_status hec_cluster_load(const char *spec, hec_arena *arena, hec_cluster *cluster) {
  const hec_preset_data *preset = hec_preset_find("cluster", spec);
  if (preset)
    return hec_cluster_parse_json(preset->text, preset->name, arena, cluster);
  if (hec_cluster_is_line(spec))
    return hec_cluster_parse_line(spec, arena, cluster);
  if (access(spec, F_OK) != 0 && errno != EACCES) /* a folder on the way that is closed is not "no such preset" */
    return no_such_cluster(spec);
  return hec_cluster_read(spec, arena, cluster);
}
