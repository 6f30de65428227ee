/* What the forms of a cluster (preset, JSON, one line) are read into, before it is flattened to links and routes.
 *
 * Keys of the line that a first cluster does without (the others: hecate-sim --help; their fields in hec_device):
 *     tile=128    rows to which a GEMM's are rounded up: its time is a staircase of this width. GPUs 64 to 256; on a CPU
 *                 core time grows with rows almost from one on: tile=8
 *     a=3us       fixed time of a GEMM that computing bounds: max(a + computing, c + reading the weights)
 *     c=3us       fixed time of one that reading its weights bounds
 *     launch=3us  of any other operation on the device: attention's start, a permutation, a reduction
 *     sm=0        share of the device's compute that a communication kernel takes while it runs, 0 to 0.99
 *     through=0   1: bytes to other nodes also take the device's nvlink port (no path from NIC to device of its own)
 *     pxn=0       1: with a NIC per device, traffic to another rail goes over the local device on that rail
 *     p2p=32:4    law nccl_rounds: channels of a rank for sends and receives, and how many of them each peer takes
 *     step=1.183  with gpu=: what a kernel takes in a step over what it takes alone (hec_device.in_step)
 *     plan=5us@1ns  time to plan once, and time per unit of work that the policy did (runtime/plan/policy.h) */
#pragma once
#include "models/cluster.h"
#include "models/json.h"

/* A class of links. bandwidth 0: not given. */
typedef struct {
  double bandwidth, latency_s, efficiency; /* of a GPU's laws until given otherwise */
  int32_t n_shares;
  const hec_link_share *shares; /* [n_shares] */
  const uint8_t *share_at;      /* hec_link; hec_cluster_build makes it */
  bool by_laws;                 /* efficiency and shares are those of a GPU, not given */
} hec_link_spec;

typedef struct {
  char name[64];
  int64_t n_nodes, devices_per_node, nics;
  bool pxn, nic_through_port;
  hec_link_spec port, nic, leaf;
  int64_t nodes_per_leaf; /* 0: no leaf tier */
  hec_device device;      /* every device */
  double cores;
  double plan_a_s, plan_b_s;
  hec_p2p p2p;
  const struct hec_gpu_laws *gpu; /* what its links and devices were taken from; NULL: none */
} hec_cluster_spec;

/* Limits of every number, whatever the form. */
#define HEC_BANDWIDTH_MIN 1.0
#define HEC_BANDWIDTH_MAX 1e18
#define HEC_LATENCY_MAX 10.0
#define HEC_FLOPS_MIN 1.0
#define HEC_FLOPS_MAX 1e21
#define HEC_MEMORY_MAX 1e18
#define HEC_SECONDS_MAX 10.0
#define HEC_IN_STEP_MAX 100.0
#define HEC_SHARE_MIN 1e-6
#define HEC_SIZE_SHARE_MIN 1e-3 /* of a message by its size: bytes / share stay integers of 64 bits */
enum { HEC_TILE_MAX = 1 << 20, HEC_CHANNELS_MAX = 1024, HEC_LL_BYTES_MAX = 1 << 30, HEC_CHUNK_BYTES_MAX = 1 << 30 };

#define HEC_NIC_LATENCY_S 17e-6 /* between GPUs, where nothing is given (cluster_gpu.c) */

/* Defaults of everything optional. */
hec_cluster_spec hec_cluster_spec_default(void);

/* Counts that fit together; `origin` names the source in the message. */
hec_status hec_cluster_spec_check(const hec_cluster_spec *spec, const char *origin) HEC_MUST_USE;

/* The optional member "p2p" of an object, over what *p2p has. */
hec_status hec_p2p_read(const hec_json *json, const hec_json_value *object, hec_p2p *p2p) HEC_MUST_USE;

/* Reads an unsigned decimal number at *text and moves past it; false when there is none. No hexadecimal, inf or nan. */
bool hec_cluster_read_decimal(const char **text, double *value);
/* The same with ns, us, ms or s behind it; 0 needs none. */
bool hec_cluster_read_seconds(const char **text, double *value);

/* Device and links of a GPU (hec_gpu_laws_load), before anything else that is given. Of devices_per_node, which is known:
 *   port   the data sheet's rate; latency and shares by message size from the all-to-all law of a node's GPUs
 *   NIC    the data sheet's rate; the share of it as measured for send and receive between nodes (cluster_gpu.c)
 * `name`: a preset, or a path relative to the folder of `file`; "": to the working folder. */
hec_status hec_cluster_spec_take_gpu(hec_cluster_spec *spec, const char *name, const char *file,
                                     hec_arena *arena) HEC_MUST_USE;

/* The fields of a device that names a GPU which sum its laws up (hec_device). Others are left as they are. */
void hec_cluster_sum_up(hec_device *device);

/* Makes devices, links and routes of a checked spec. O(n_devices^2). */
void hec_cluster_build(const hec_cluster_spec *spec, hec_arena *arena, hec_cluster *cluster);
