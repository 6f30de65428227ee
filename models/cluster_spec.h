/* What the forms of a cluster (preset, JSON, one line) are read into, before it is flattened to links and routes. */
#ifndef HEC_MODELS_CLUSTER_SPEC_H
#define HEC_MODELS_CLUSTER_SPEC_H
#include "models/cluster.h"

/* A class of links. bandwidth 0: not given. */
typedef struct {
  double bandwidth, latency_s, efficiency;
} hec_link_spec;

typedef struct {
  char name[64];
  int64_t n_nodes, devices_per_node, nics;
  bool pxn, nic_through_port;
  hec_link_spec port, nic, leaf;
  int64_t nodes_per_leaf; /* 0: no leaf tier */
  hec_device device;      /* every device */
  double plan_a_s, plan_b_s;
} hec_cluster_spec;

/* Limits of every number, whatever the form. */
#define HEC_BANDWIDTH_LEAST 1.0
#define HEC_BANDWIDTH_MOST 1e18
#define HEC_LATENCY_MOST 10.0
#define HEC_FLOPS_LEAST 1.0
#define HEC_FLOPS_MOST 1e21
#define HEC_MEMORY_MOST 1e18
#define HEC_SECONDS_MOST 10.0
#define HEC_SHARE_LEAST 1e-6
enum { HEC_TILE_MOST = 1 << 20 };

/* Defaults of everything optional. */
hec_cluster_spec hec_cluster_spec_default(void);

/* Counts that fit together; `origin` names the source in the message. */
hec_status hec_cluster_spec_check(const hec_cluster_spec *spec, const char *origin) HEC_MUST_USE;

/* Makes devices, links and routes of a checked spec. O(n_devices^2). */
void hec_cluster_build(const hec_cluster_spec *spec, hec_arena *arena, hec_cluster *cluster);

#endif
