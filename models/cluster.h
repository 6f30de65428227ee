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
 * The latency given for a class counts once per hop of that class: it is on the outgoing link (port out, NIC out, leaf up).
 * `nic_through_port` says whether traffic between nodes also takes the device ports. Default false (reference
 * hecate.md section 14, "NVLink ports count intra-node tokens; bytes between nodes use the NIC").
 */
#pragma once
#include "models/curve.h"
#include "models/laws/cost_law.h"
#include "runtime/base/arena.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct hec_gpu_laws; /* models/gpu_compute.h */

/* With `gpu` the laws of that GPU price compute. The fields from flops to launch_s sum them up for those who need one
 * number: flops_efficiency is what its fastest product reaches in a step. Without it they are the law itself.
 * Time of one GEMM of `rows` rows: max(gemm_a + rows rounded up to the tile * flops_per_row / (flops*efficiency),
 *                                      gemm_c + weight_bytes / hbm). */
typedef struct {
  double flops;            /* peak FLOP/s of the training dtype */
  double flops_efficiency; /* share of it that large GEMMs reach */
  double hbm_bandwidth;    /* bytes/s, effective */
  double memory_bytes;     /* capacity */
  double gemm_a_s, gemm_c_s;
  int32_t gemm_tile;          /* rows */
  double launch_s;            /* fixed cost of any other compute or local operation */
  double comm_share;          /* share of the device's compute that a communication kernel takes while it runs, 0..1 */
  double speed;               /* 1; a slow rank has less: divides every compute rate */
  double skew_s;              /* its rank begins an iteration so long after time 0 */
  const hec_curves *measured; /* replaces the law where a curve fits; NULL: none */
  const struct hec_gpu_laws *gpu; /* NULL: known by its peak and a few constants */
  double
      in_step; /* what a kernel takes in a training step over what it takes alone, by the laws: HEC_IN_STEP; else 1 */
} hec_device;

/* Kernels in a step take longer than alone: lower clocks, interference, gaps that host and allocator leave, ranks that are late.
 * Fitted to 31 published Mixtral-8x22B runs on H100 (arXiv 2504.14960), with the network's and the overlap's constants.
 * It goes with the attention kernels of the largest table. Training steps take the fastest, and have another form
 * (training/step.h). */
#define HEC_IN_STEP 1.183
/* What rings reach of a GPU's NIC over what the messages of an exchange do: 0.96 of its rate over 0.718 (cluster_gpu.c). */
#define HEC_NIC_RING (0.96 / 0.718)

typedef enum {
  HEC_LINK_PORT_OUT,
  HEC_LINK_PORT_IN,
  HEC_LINK_NIC_OUT,
  HEC_LINK_NIC_IN,
  HEC_LINK_LEAF_UP,
  HEC_LINK_LEAF_DOWN,
  HEC_N_LINK_KINDS
} hec_link_kind;
extern const char *const hec_link_kind_name[HEC_N_LINK_KINDS]; /* "port_out", as in JSON */

/* What share of a link's bandwidth a message reaches: linear between points, constant before the first and after the
 * last. Ascending in bytes, and bytes / share rises too: a larger message never takes less time. */
typedef struct {
  double bytes, share;
} hec_link_share;

enum { HEC_LINK_SHARES_MAX = 32 };

typedef struct {
  hec_link_kind kind;
  int32_t device;   /* whose port; -1 for NIC and leaf links */
  int32_t node;     /* whose NIC or port; -1 for leaf links */
  double nominal;   /* bytes/s, data sheet */
  double bandwidth; /* bytes/s, nominal * efficiency: what every law uses */
  double whole;     /* the same before --slow */
  int64_t latency_ps;
  bool by_laws;                 /* rate and shares are a GPU's (cluster_gpu.c) */
  int32_t n_shares;             /* 0: every message reaches the whole bandwidth */
  const hec_link_share *shares; /* [n_shares] */
  const uint8_t *share_at;      /* [64] the first point of 2^i bytes or more, n_shares if none; NULL: not made */
} hec_link;

enum { HEC_ROUTE_MAX = 8 };

/* What bounds a rank's sends and receives in flight (sim/rounds.h). */
typedef struct {
  int32_t channels, channels_per_peer; /* the latter divides the former */
  int32_t batch;                       /* rounds that a set of channels works on at a time */
  /* Protocol LL is for transfers inside a node with at most `ll_bytes` on each of their channels. Every 4 bytes travel
   * with a flag of 4 bytes, so they reach `ll_share` of their links. What is a little larger takes as long as the
   * largest of these:
   * inferred, since NCCL changes protocol about where both are as fast. Between nodes it has no LL unless told to. */
  int32_t ll_bytes; /* 0: never */
  double ll_share;
  /* What a relay (PXN) waits for before it passes a transfer's first bytes on. NCCL cuts what goes between nodes into 128 KiB
   * (512 KiB stay inside a node and meet no relay). 0: nothing. */
  int32_t chunk_bytes;
} hec_p2p;

typedef struct {
  char name[64];
  int32_t n_nodes, devices_per_node, n_devices; /* n_devices = n_nodes * devices_per_node */
  int32_t nics;                                 /* per node */
  bool pxn, nic_through_port;
  hec_p2p p2p; /* of law nccl_rounds */
  bool sized;  /* some link has shares by message size */
  int32_t n_links;
  hec_link *links;                /* [n_links] */
  hec_device *devices;            /* [n_devices] */
  double cores;                   /* processors that all devices share; 0: each device is its own */
  double plan_a_s, plan_b_s;      /* simulated planning time: a + b * work units */
  hec_curves measured;            /* of every device, and of its collectives; n 0: none */
  const struct hec_gpu_laws *gpu; /* of its collectives inside a node; NULL: by the links */
  int32_t *route_at;   /* [n_devices * n_devices + 1] into route_link; (s, d) at s * n_devices + d; empty for s == d */
  int32_t *route_link; /* link ids, in the order they are crossed */
  uint8_t *route_side; /* per entry: 1 the link is on the source's side, 2 on the destination's, 3 both (fabric);
                          a port of the other end's device is only the other end's */
} hec_cluster;

enum { HEC_DEVICES_MAX = 4096 };

/* `spec`: a preset's name (models/presets/cluster-NAME.json), the one-line form when its first word is NxM,
 * or else the path of a JSON file. Memory comes from the arena. Errors name the field or the position.
 *
 * The one-line form; in brackets what is optional, with an example:
 *     4x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G [hbm=1555G nics=1 eff=0.8 nic_eff=1 nvlink_eff=1 tile=128 sm=0
 *         leaf=16 uplink=200G@1us pxn=1 through=0 p2p=32:4 a=3us c=3us launch=3us plan=5us@1ns slow=3:0.5]
 *     4x8 gpu=a100 [nics=4 step=1.183 ... as above, but for flops, eff, hbm, tile, a, c, launch: the GPU's laws have them]
 * (nodes x devices per node. G = 1e9, T = 1e12, M = 1e6, K = 1e3, P = 1e15. @ a latency in s, ms, us or ns, default 0.
 * links in bytes/s and direction). Defaults: hbm=1555G nics=1 eff=0.8 nic_eff=1 nvlink_eff=1 tile=128 sm=0 pxn=0
 * through=0 p2p=32:4 a=3us c=3us launch=3us plan=5us@1ns, no leaf. `nvlink` may be absent with one device per node (the ports then
 * have the NIC's rate and no latency), `nic` with one node. `slow=RANK:SPEED` may be repeated.
 *
 * The JSON form (numbers in bytes/s, bytes, FLOP/s, seconds):
 *     {"name": "a4", "nodes": 4, "devices_per_node": 8, "nics": 1, "pxn": false, "nic_through_port": false,
 *      "cores": 2,         devices are processes of one machine with so many processors (a share where others use it,
 *                          too); times are those of a device alone
 *      "nvlink": {"bandwidth": 300e9, "latency": 2e-6, "efficiency": 0.8,
 *                 "efficiency_by_bytes": [[2e6, 0.6], [256e6, 1]]},      optional, of any class: hec_link_share
 *      "nic":    {"bandwidth": 50e9, "latency": 5e-6, "efficiency": 1},          of one NIC
 *      "leaf":   {"nodes_per_leaf": 2, "bandwidth": 100e9, "latency": 1e-6, "efficiency": 1},       of one leaf's uplink
 *      "gpu": "a100",      instead of flops to launch_s below, and of bandwidth, latency, efficiency of "nvlink" and "nic"
 *                          that are not given: a device of models/presets/device-NAME.json, or the path of a file,
 *                          relative to the folder of this file (in a line: to the working folder)
 *      "device": {"flops": 312e12, "flops_efficiency": 0.8, "hbm_bandwidth": 1555e9, "hbm_efficiency": 0.9,
 *                 "memory_bytes": 40e9, "gemm_a_s": 3e-6, "gemm_c_s": 3e-6, "gemm_tile": 128, "launch_s": 3e-6,
 *                 "comm_share": 0, "speed": 1, "skew_s": 0, "in_step": 1.183},       in_step: with "gpu" only
 *      "plan": {"a_s": 5e-6, "b_s": 1e-9}, "p2p": {"channels": 32, "channels_per_peer": 4, "batch": 8,
 *                                           "ll_bytes": 16384, "ll_share": 0.5, "chunk_bytes": 131072},
 *      "devices": [{"device": 3, "speed": 0.8}],              any field of "device", for one device
 *      "links": [{"kind": "nic_out", "node": 1, "nic": 0, "bandwidth": 25e9},    one link, both fields as in "nic"
 *                {"kind": "port_in", "device": 5, "efficiency": 0.5}, {"kind": "leaf_up", "leaf": 0, "latency": 1e-5}],
 *      "measured": [{"kind": "expert", "backward": false, "flops_per_row": 2097152, "points": [[1, 2e-5], [64, 1e-3]]},
 *                   {"kind": "all-reduce", "ranks": 2, "points": [[1e6, 3e-4]]}],   size (rows, bytes, or seconds by closed form), seconds: curve.h
 *      "machine": {...}, "calibration": {...},     what calibration says of itself; kept, not used
 *      "notes": ..., "sources": {"field": "where the number is from"}}
 * Required: nodes, devices_per_node, device.flops and device.memory_bytes or gpu, bandwidth of a given link class; nvlink
 * and nic as above. Everything else defaults as in the one-line form (hbm_efficiency 1, latency 0). */
hec_status hec_cluster_load(const char *spec, hec_arena *arena, hec_cluster *cluster) HEC_MUST_USE;
/* Share of its links that a transfer of `bytes` reaches by its protocol alone (law nccl_rounds). */
double hec_p2p_share(const hec_p2p *p2p, bool same_node, double bytes);
/* How long relays on the route from device s to d hold back a transfer of `bytes`. Each holds its first chunk at the
 * rate of the ports before it, as if they were free (law nccl_rounds). */
int64_t hec_cluster_relay_ps(const hec_cluster *c, int32_t s, int32_t d, double bytes);
bool hec_cluster_is_line(const char *spec); /* is its first word NxM? */
/* Does a cluster's line name a device file, gpu=NAME? Adds its name. The other: adds that line with `path` instead, which
 * is refused if it has blanks, for they separate words. */
bool hec_cluster_line_file(const char *line, hec_text *name);
hec_status hec_cluster_line_move(const char *line, const char *path, hec_text *moved) HEC_MUST_USE;
/* Of a cluster's line: a sentence on NICs faster than those that are sold, for 400G is bytes/s and 400Gb bits/s.
 * Else nothing. */
void hec_cluster_doubt(const hec_cluster *c, const char *spec, hec_text *words);
hec_status hec_cluster_parse_line(const char *line, hec_arena *arena, hec_cluster *cluster) HEC_MUST_USE;
hec_status hec_cluster_parse_json(const char *text, const char *origin, hec_arena *arena,
                                  hec_cluster *cluster) HEC_MUST_USE;
hec_status hec_cluster_read(const char *path, hec_arena *arena, hec_cluster *cluster) HEC_MUST_USE; /* a JSON file */

/* The links from device s to device d (s != d): returns their number, at most HEC_ROUTE_MAX, and where they are. */
static inline int32_t hec_cluster_route(const hec_cluster *c, int32_t s, int32_t d, const int32_t **links) {
  int32_t at = c->route_at[s * c->n_devices + d];
  *links = c->route_link + at;
  return c->route_at[s * c->n_devices + d + 1] - at;
}
int64_t hec_cluster_latency_ps(const hec_cluster *c, int32_t s, int32_t d); /* sum over the route */
double hec_cluster_slowest(const hec_cluster *c, int32_t s, int32_t d);     /* bytes/s of the route's slowest link */

/* Devices first .. Ranks first .. first + n - 1 as a cluster of their own. Device i is `first` + i of the whole, with
 * the same rates and routes. Devices are shared with the whole. O(n^2 * route length). */
hec_cluster hec_cluster_part(const hec_cluster *whole, int32_t first, int32_t n, hec_arena *arena);

/* Of a double from 1 to 2^63. */
static inline int32_t hec_floor_log2(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (int32_t)(bits >> 52) - 1023;
}

/* The share of its bandwidth that a message of that size reaches on a link, and on the whole route: the min over its links.
 * A message of b bytes then loads every link of its route like b / share bytes, so that the laws stay linear in loads.
 * Closed forms and network laws do so; the planners' running sums over tokens and the pacing of real bytes do not. */
static inline double hec_link_share_of(const hec_link *link, double bytes) {
  const hec_link_share *at = link->shares;
  int32_t n = link->n_shares;
  if (n == 0)
    return 1;
  if (bytes <= at[0].bytes)
    return at[0].share;
  int32_t i = link->share_at ? link->share_at[hec_floor_log2(bytes)] : 1;
  while (i < n && at[i].bytes < bytes)
    i++;
  if (i == n)
    return at[n - 1].share;
  double part = (bytes - at[i - 1].bytes) / (at[i].bytes - at[i - 1].bytes);
  return at[i - 1].share + (at[i].share - at[i - 1].share) * part;
}
double hec_cluster_share_of(const hec_cluster *c, int32_t s, int32_t d, double bytes);
static inline int32_t hec_cluster_node(const hec_cluster *c, int32_t device) {
  return device / c->devices_per_node;
}

/* The links of a kind, one after another from *first on, by device, node * nics + NIC, or leaf: returns how many. */
int32_t hec_cluster_kind(const hec_cluster *c, hec_link_kind kind, int32_t *first);

/* Share that --slow leaves of a device's port, and of the NIC that is near it: of both directions the smaller one. */
double hec_cluster_port_left(const hec_cluster *c, int32_t device);
double hec_cluster_nic_left(const hec_cluster *c, int32_t device);

/* Rates and memory of this cluster's own devices into a GPU's data sheet, so that its laws follow them: NVLink, the NICs of a
 * node shared out to its GPUs, GPUs of a domain, bytes. What the cluster does not have stays. */
void hec_cluster_take_sheet(const hec_cluster *c, hec_gpu_sheet *sheet);

/* One line for people: "p3dn-4x8: 4 nodes x 8 devices, ..." */
void hec_cluster_describe(const hec_cluster *c, hec_text *text);

/* Bytes/s in or out of a node, all its NICs; nominal (data sheet) or as the laws use it,
 * of the slowest node. One node: the slowest port's rate. */
double hec_cluster_node_bandwidth(const hec_cluster *c, bool nominal);
