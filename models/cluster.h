/* A cluster: devices under a tree of tiers, flattened to one-way links and routes.
 *
 *     device port (NVLink, PCIe)   out and in, one each per device
 *     NIC                          out and in, `nics` per node; device i of a node uses NIC floor(i * nics / per_node)
 *     leaf uplink                  optional: `nodes_per_leaf` nodes share up and down links (oversubscription); with one
 *                                  NIC per device ("rails") a leaf serves NIC k of all its nodes
 *
 * Routes:  same node           port_out(s), port_in(d)
 *          other node          port_out(s)?, nic_out, [leaf_up, leaf_down,] nic_in, port_in(d)?
 *          with PXN and rails  port_out(s), port_in(relay), nic_out(relay), nic_in, ... : over the local device on d's rail
 * `nic_through_port` says whether traffic between nodes also takes the device ports (default false: reference hecate.md
 * section 14, "NVLink ports count intra-node tokens; bytes between nodes use the NIC").
 */
#ifndef HEC_MODELS_CLUSTER_H
#define HEC_MODELS_CLUSTER_H
#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Time of one GEMM of `rows` rows: max(gemm_a + rows rounded up to the tile * flops_per_row / (flops*efficiency),
 *                                      gemm_c + weight_bytes / hbm). */
typedef struct {
  double flops;            /* peak FLOP/s of the training dtype */
  double flops_efficiency; /* share of it that large GEMMs reach */
  double hbm_bandwidth;    /* bytes/s, effective */
  double memory_bytes;     /* capacity */
  double gemm_a_s, gemm_c_s;
  int32_t gemm_tile;       /* rows */
  double launch_s;         /* fixed cost of any other compute or local operation */
  double comm_share;       /* share of the device's compute that a communication kernel takes while it runs, 0..1 */
  double speed;            /* 1; a slow rank has less: divides every compute rate */
} hec_device;

typedef enum { HEC_LINK_PORT_OUT, HEC_LINK_PORT_IN, HEC_LINK_NIC_OUT, HEC_LINK_NIC_IN, HEC_LINK_LEAF_UP, HEC_LINK_LEAF_DOWN } hec_link_kind;

typedef struct {
  hec_link_kind kind;
  int32_t device;     /* whose port; -1 for NIC and leaf links */
  int32_t node;       /* whose NIC or port; -1 for leaf links */
  double nominal;     /* bytes/s, data sheet */
  double bandwidth;   /* bytes/s, nominal * efficiency: what every law uses */
  int64_t latency_ps;
} hec_link;

enum { HEC_ROUTE_MAX = 8 };

typedef struct {
  char name[64];
  int32_t n_nodes, devices_per_node, n_devices; /* n_devices = n_nodes * devices_per_node */
  int32_t nics;                                 /* per node */
  bool pxn, nic_through_port;
  int32_t n_links;
  hec_link *links;     /* [n_links] */
  hec_device *devices; /* [n_devices] */
  double plan_a_s, plan_b_s; /* simulated planning time: a + b * work units */
  int32_t *route_at;   /* [n_devices * n_devices + 1] into route_link; (s, d) at s * n_devices + d; empty for s == d */
  int32_t *route_link; /* link ids, in the order they are crossed */
  uint8_t *route_side; /* per entry: 1 the link is on the source's side, 2 on the destination's, 3 both (fabric);
                          a port of the other end's device is only the other end's */
} hec_cluster;

/* A preset's name (models/presets/cluster-NAME.json), the path of a JSON file of the same form, or the one-line form
 *     4x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G [hbm=1555G nics=1 eff=0.8 nic_eff=1 nvlink_eff=1 tile=128 sm=0
 *         leaf=16 uplink=200G@1us pxn=1 through=0 a=3us c=3us launch=3us plan=5us@1ns]
 * (nodes x devices per node; G = 1e9, T = 1e12, M = 1e6, K = 1e3, P = 1e15; @ a latency in ns, us or ms). Links: bytes/s.
 * Errors name the field or the position. Memory comes from the arena. */
hec_status hec_cluster_load(const char *spec, hec_arena *arena, hec_cluster *cluster) HEC_MUST_USE;
hec_status hec_cluster_parse_line(const char *line, hec_arena *arena, hec_cluster *cluster) HEC_MUST_USE;
hec_status hec_cluster_parse_json(const char *text, const char *origin, hec_arena *arena, hec_cluster *cluster) HEC_MUST_USE;

/* The links from device s to device d (s != d): returns their number, at most HEC_ROUTE_MAX, and where they are. */
static inline int32_t hec_cluster_route(const hec_cluster *c, int32_t s, int32_t d, const int32_t **links) {
  int32_t at = c->route_at[s * c->n_devices + d];
  *links = c->route_link + at;
  return c->route_at[s * c->n_devices + d + 1] - at;
}
int64_t hec_cluster_latency_ps(const hec_cluster *c, int32_t s, int32_t d); /* sum over the route */
static inline int32_t hec_cluster_node(const hec_cluster *c, int32_t device) { return device / c->devices_per_node; }

/* Bytes/s in or out of a node, all its NICs; nominal (data sheet) or as the laws use it. One node: the port's rate. */
double hec_cluster_node_bandwidth(const hec_cluster *c, bool nominal);

#endif
