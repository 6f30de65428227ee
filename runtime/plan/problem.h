/* What is planned for: model, cluster and ranks, with the derived sizes that planners and lowering share.
 *
 * Parallel dimensions: dp * ep * esp = n_ranks, consecutive ranks from the inside out: esp, ep, dp. An expert-sharding group
 * (ESP; DeepSpeed-TED, FSMoE) is esp ranks of one node; an expert lives on it as esp shards, each d_ffn / esp wide:
 *
 *   dispatch   source i's assignments for an expert of group g travel to the rank of g with i's index in its own group
 *   AllGather  of all arrived rows inside the group; every rank computes its shard over them: partial sums of outputs
 *   ReduceScatter inside the group: each rank adds the parts of the rows that arrived at it; combine is dispatch reversed
 *
 * Backward the same, since a shard's gradients need all rows, too. Plans speak of groups: a home is the first rank of a group
 * and stands for all of it. With esp > 1 every group has experts of its own (dp 1), and homes never move: policies whose
 * row says so (policy.h, `shards`). Tensor parallelism of the dense part (FSMoE's mp) is none of these and not modelled: the
 * dense part is replicated, and ranks of a group have tokens of their own. */
#ifndef HEC_PLAN_PROBLEM_H
#define HEC_PLAN_PROBLEM_H
#include "models/cluster.h"
#include "models/compute_cost.h"
#include "models/memory_cost.h"
#include "models/moe.h"
#include "runtime/plan/milp.h"

enum { HEC_AUTO = -1, HEC_T_PAPER = -2 };

typedef struct {
  const hec_moe *moe;
  const hec_cluster *cluster;
  bool train;               /* false: forward phase only */
  int32_t n_ranks, n_nodes; /* ranks are devices 0..n_ranks-1; nodes they touch */
  int32_t n_layers;         /* MoE layers */
  int32_t n_experts, top_k;
  int32_t tokens; /* per rank and micro-batch */
  int32_t ep; /* ranks (esp > 1: groups) that share the experts: largest divisor of n_ranks that is at most n_experts */
  int32_t dp; /* expert-data-parallel copies of it: n_ranks / ep; group of rank r is r / ep */
  int32_t esp; /* ranks of an expert-sharding group; 1: experts are whole */
  hec_memory_cost bytes;
  hec_work_shape expert;       /* forward, per assignment; of a shard */
  double window_s;             /* forward time of the non-MoE part before an MoE layer (hides sparse collectives) */
  double dense_window_s;       /* the same where s2 leaves the layer's attention dense */
  const uint64_t *transitions; /* [n_layers - 1][n_experts][n_experts] tokens of expert a in a layer and b in the next;
                                  NULL: not known */
  const hec_solver *solver;    /* of integer programmes; NULL: planners have their heuristics alone */
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

/* What was chosen for `from` holds for a problem made for another cluster or fewer layers too: options, solver, and the
 * transitions between the layers it has. */
void hec_problem_choose_as(hec_problem *problem, const hec_problem *from);

/* Expert-sharding groups of `esp` ranks from now on; 1: none, nothing changes. HEC_BAD_INPUT unless esp divides the ranks,
 * the devices of a node and d_ffn, and there is an expert for every group. */
hec_status hec_problem_shard(hec_problem *problem, int32_t esp) HEC_MUST_USE;

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
