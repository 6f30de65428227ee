/* Closed-form times of the two collectives that every iteration has besides exchanges: ring all-reduce and all-gather.
 * All-reduce: NCCL's ring (reduce-scatter then all-gather, each n-1 steps of bytes/n). There are K rings, one per
 * NIC that every node taking part has. Each carries bytes/K. A NIC carries one ring; a device's port and a shared leaf uplink
 * carry all of them. Where links reach a share of their rate by message size, the message is one step's, bytes / n over all rings.
 * Inside a node of a GPU with laws: what its collective law says (gpu_collective.c), all-reduce in the switch included.
 *
 * Of stride s there are s such all-reduces at once, of m = n / s ranks each. A device's port carries its own one's
 * bytes. The NICs of a node and a shared uplink carry those of all s. A ring hops from rank r to r + s. NCCL gives each
 * communicator a ring for every NIC near its ranks. Over all communicators a NIC has s bytes / K, whatever K is.
 * O(ranks). */
#include "models/gpu_compute.h"
#include "models/link_cost.h"

#include <float.h>

static int32_t rank_nic(const hec_cluster *c, int32_t rank) {
  return (int32_t)((int64_t)(rank % c->devices_per_node) * c->nics / c->devices_per_node);
}

static int32_t n_nodes_of(const hec_cluster *c, int32_t n_ranks) {
  return (n_ranks + c->devices_per_node - 1) / c->devices_per_node;
}

/* Ranks of a node among 0..n_ranks-1. */
static int32_t ranks_in(const hec_cluster *c, int32_t node, int32_t n_ranks) {
  int32_t left = n_ranks - node * c->devices_per_node;
  return left < c->devices_per_node ? left : c->devices_per_node;
}

/* NICs that the first `ranks` devices of a node use: they are consecutive from NIC 0, with gaps never. */
static int32_t nics_used(const hec_cluster *c, int32_t ranks) {
  return rank_nic(c, ranks - 1) + 1;
}

static double slower(double a, double b) {
  return a < b ? a : b;
}

/* Share of a link's rate that a collective reaches; of a GPU's NIC more than an exchange does. */
static double share_of(const hec_link *link, double message_bytes) {
  bool is_nic = link->kind == HEC_LINK_NIC_OUT || link->kind == HEC_LINK_NIC_IN;
  return is_nic && link->by_laws ? HEC_NIC_RING : hec_link_share_of(link, message_bytes);
}

/* Latency of a ring's hop. A port by laws has that of a whole exchange, so its hops are NCCL's: src/graph/tuning.cc, hwLat of
 * ring and protocol Simple. */
static double hop_s(const hec_cluster *c, int32_t from, int32_t to) {
  static const double inside_s = 3.4e-6, between_s = 9.6e-6;
  if (!c->gpu)
    return (double)hec_cluster_latency_ps(c, from, to) * 1e-12;
  return hec_cluster_node(c, from) == hec_cluster_node(c, to) ? inside_s : between_s;
}

/* By what factor the slowest port is slower than the laws say (--slow): 1 or more. */
static double slowest_port(const hec_cluster *c, int32_t n_ranks) {
  double left = 1;
  for (int32_t r = 0; r < n_ranks; r++)
    left = slower(left, hec_cluster_port_left(c, r));
  return 1 / left;
}

/* Seconds by the fitted law of a node's GPUs; false: the ranks are on several nodes, or the GPU has no such law. */
static bool inside_node(const hec_cluster *c, hec_collective_op op, int32_t n_ranks, double bytes, double *seconds) {
  hec_collective_how how = HEC_COLLECTIVE_NONE;
  if (c->gpu && n_ranks <= c->devices_per_node)
    *seconds = hec_gpu_collective_s(&c->gpu->gpu, op, n_ranks, bytes, &how) * slowest_port(c, n_ranks);
  return how != HEC_COLLECTIVE_NONE;
}

/* Slowest port, NIC and leaf link, out or in, by rates for messages of that size. They are among the first n_ranks
 * devices and the first n_nics NICs of their nodes.
 */
typedef struct {
  double port, nic, leaf;
} slowest_links;

static slowest_links slowest_of(const hec_cluster *c, int32_t n_ranks, int32_t n_nics, double message_bytes) {
  slowest_links slowest = {DBL_MAX, DBL_MAX, DBL_MAX};
  int32_t n_nodes = n_nodes_of(c, n_ranks), seen_nics = 0; /* NIC links come node by node */
  for (int32_t i = 0; i < c->n_links; i++) {
    const hec_link *link = &c->links[i];
    bool is_port = link->kind == HEC_LINK_PORT_OUT || link->kind == HEC_LINK_PORT_IN;
    bool is_nic = link->kind == HEC_LINK_NIC_OUT || link->kind == HEC_LINK_NIC_IN;
    double rate = link->bandwidth * share_of(link, message_bytes);
    if (is_port && link->device < n_ranks)
      slowest.port = slower(slowest.port, rate);
    if (is_nic && link->node < n_nodes && seen_nics++ % c->nics < n_nics)
      slowest.nic = slower(slowest.nic, rate);
    if (!is_port && !is_nic)
      slowest.leaf = slower(slowest.leaf, rate);
  }
  return slowest;
}

/* Does any hop from a rank to the next, around the ring, use a leaf link? */
static bool uses_leaf(const hec_cluster *c, int32_t n_ranks) {
  int32_t n_nodes = n_nodes_of(c, n_ranks), last = (n_nodes - 1) * c->devices_per_node;
  const int32_t *route;
  if (n_nodes < 2)
    return false;
  int32_t n = hec_cluster_route(c, last, 0, &route);
  for (int32_t i = 0; i < n; i++)
    if (c->links[route[i]].kind == HEC_LINK_LEAF_UP)
      return true;
  return false; /* the last node and the first share a leaf: so do all between */
}

double hec_link_cost_allreduce_strided(const hec_cluster *c, int32_t n_ranks, int32_t stride, double bytes) {
  HEC_ASSERT(n_ranks >= 1 && n_ranks <= c->n_devices && stride >= 1 && n_ranks % stride == 0);
  int32_t n_nodes = n_nodes_of(c, n_ranks), n = n_ranks / stride;
  if (n == 1 || bytes <= 0)
    return 0;
  int32_t n_rings = nics_used(c, ranks_in(c, n_nodes - 1, n_ranks));
  slowest_links slowest = slowest_of(c, n_ranks, n_rings, bytes / (double)n);
  double all_bytes = bytes * (double)stride, ring_bytes = all_bytes / (double)n_rings, busiest_s = 0, latency_s = 0;
  if (n_nodes > 1)
    busiest_s = ring_bytes / slowest.nic;
  if (c->devices_per_node > 1 && bytes / slowest.port > busiest_s)
    busiest_s = bytes / slowest.port;
  if (uses_leaf(c, n_ranks)) {
    bool rails = c->nics == c->devices_per_node;
    double leaf_s = (rails ? ring_bytes : all_bytes) / slowest.leaf;
    busiest_s = leaf_s > busiest_s ? leaf_s : busiest_s;
  }
  for (int32_t r = 0; r < n_ranks; r += stride)
    latency_s += hop_s(c, r, r + stride < n_ranks ? r + stride : 0);
  return 2 * (double)(n - 1) / (double)n * (busiest_s + latency_s);
}

double hec_link_cost_allreduce(const hec_cluster *c, int32_t n_ranks, double bytes) {
  const hec_curve *measured = hec_curves_find(&c->measured, HEC_CURVE_ALLREDUCE, false, 0, n_ranks);
  if (measured && n_ranks > 1 && bytes > 0)
    return hec_curve_s(measured, bytes);
  double inside_s;
  if (n_ranks > 1 && bytes > 0 && inside_node(c, HEC_ALL_REDUCE, n_ranks, bytes, &inside_s))
    return inside_s;
  return hec_link_cost_allreduce_strided(c, n_ranks, 1, bytes);
}

double hec_link_cost_allgather(const hec_cluster *c, int32_t n_ranks, double bytes) {
  const hec_curve *measured = hec_curves_find(&c->measured, HEC_CURVE_COUNTS, false, 0, n_ranks);
  if (measured && n_ranks > 1 && bytes > 0)
    return hec_curve_s(measured, bytes);
  HEC_ASSERT(n_ranks >= 1 && n_ranks <= c->n_devices);
  if (n_ranks == 1 || bytes <= 0)
    return 0;
  double inside_s;
  if (inside_node(c, HEC_ALL_GATHER, n_ranks, bytes * (double)n_ranks, &inside_s))
    return inside_s;
  int32_t n_nodes = n_nodes_of(c, n_ranks);
  slowest_links slowest = slowest_of(c, n_ranks, c->nics, bytes);
  double port_s = (double)(n_ranks - 1) * bytes / slowest.port, node_s = 0;
  for (int32_t node = 0; node < n_nodes && n_nodes > 1; node++) {
    int32_t own = ranks_in(c, node, n_ranks);
    double in_s = (double)(n_ranks - own) * bytes / ((double)nics_used(c, own) * slowest.nic);
    node_s = in_s > node_s ? in_s : node_s;
  }
  double latency_s = (double)hec_cluster_latency_ps(c, n_ranks - 1, 0) * 1e-12;
  return (port_s > node_s ? port_s : node_s) + latency_s;
}
