/* What is planned for: model, cluster and ranks, with the derived sizes that planners and lowering share. */
#ifndef HEC_PLAN_PROBLEM_H
#define HEC_PLAN_PROBLEM_H
#include "models/cluster.h"
#include "models/compute_cost.h"
#include "models/memory_cost.h"
#include "models/moe.h"

enum { HEC_AUTO = -1, HEC_T_PAPER = -2 };

typedef struct {
  const hec_moe *moe;
  const hec_cluster *cluster;
  bool train;               /* false: forward phase only */
  int32_t n_ranks, n_nodes; /* ranks are devices 0..n_ranks-1; nodes they touch */
  int32_t n_layers;         /* MoE layers */
  int32_t n_experts, top_k;
  int32_t tokens; /* per rank and micro-batch */
  int32_t ep;     /* ranks of one expert-parallel group: largest divisor of n_ranks that is at most n_experts */
  int32_t dp;     /* expert-data-parallel copies of it: n_ranks / ep; group of rank r is r / ep */
  hec_memory_cost bytes;
  hec_work_shape expert;       /* forward, per assignment */
  double window_s;             /* forward time of the non-MoE part before an MoE layer (hides sparse collectives) */
  double dense_window_s;       /* the same where s2 leaves the layer's attention dense */
  const uint64_t *transitions; /* [n_layers - 1][n_experts][n_experts] tokens of expert a in a layer and b in the next;
                                  NULL: not known */
  /* Options; HEC_AUTO: what the policy's paper or DESIGN says. */
  int32_t t, m;   /* FSSDP overlap degree (HEC_T_PAPER too) and guests per rank and layer */
  int32_t period; /* iterations between decisions of periodic policies */
  int32_t slots;  /* physical slots per rank and layer of policies that reserve some (EPLB, FlexMoE, ECHO) */
} hec_problem;

/* The window of one layer. */
static inline double hec_problem_window_s(const hec_problem *p, int32_t layer) {
  return hec_moe_dense_attention(p->moe, layer) ? p->dense_window_s : p->window_s;
}

/* Derives everything from model, cluster, ranks and tokens; n_layers, n_experts, top_k from the model. */
hec_status hec_problem_make(const hec_moe *moe, const hec_cluster *cluster, bool train, int32_t n_ranks, int32_t tokens,
                            hec_problem *problem) HEC_MUST_USE;

static inline int32_t hec_problem_node(const hec_problem *p, int32_t rank) {
  return rank / p->cluster->devices_per_node;
}
/* One past the last rank of a node (the last node may be partly used). */
static inline int32_t hec_problem_node_end(const hec_problem *p, int32_t node) {
  int32_t end = (node + 1) * p->cluster->devices_per_node;
  return end < p->n_ranks ? end : p->n_ranks;
}

/* Bytes of a rank without any copy: dense state, its share of expert state (even split, rounded up), activations and
 * token buffers at balanced load. Used by m and by the memory verdict of planners. */
double hec_problem_bytes_without_copies(const hec_problem *problem);

#endif
