/* What is planned for: model, cluster and ranks, with the derived sizes that planners and lowering share.
 *
 * Parallel dimensions: dp * ep * esp = n_ranks, consecutive ranks from the inside out: esp, ep, dp. An expert-parallel group
 * of ep ranks has every expert; with dp > 1 there are several, and each keeps all experts for itself:
 *
 *   tokens     stay inside the group of their source, and so do guests and their gradients
 *   gradients  of the groups' copies of an expert are all-reduced between the groups
 *   planning   each group plans for itself, on the loads of its own sources; groups plan at the same time
 *
 * A policy sees one group: a problem of ep ranks with dp 1 (hec_problem_of_group). Those whose paper places experts over all
 * ranks see all of them, and their row says so (policy.h, `all_ranks`). ep: the largest divisor of the ranks that is at most
 * the number of experts, or what the user chose (hec_problem_group).
 *
 * An expert-sharding group
 * (ESP; DeepSpeed-TED, FSMoE) is esp ranks of one node; an expert lives on it as esp shards, each d_ffn / esp wide:
 *
 *   dispatch   source i's assignments for an expert of group g travel to the rank of g with i's index in its own group
 *   AllGather  of all arrived rows inside the group; every rank computes its shard over them: partial sums of outputs
 *   ReduceScatter inside the group: each rank adds the parts of the rows that arrived at it; combine is dispatch reversed
 *
 * Backward the same, since a shard's gradients need all rows, too. Plans speak of groups: a home is the first rank of a group
 * and stands for all of it. With esp > 1 every group has experts of its own (dp 1), and homes never move: policies whose
 * row says so (policy.h, `shards`).
 *
 * Tensor parallelism of the dense part (mp; FSMoE's MP group, arXiv 2501.10714) is none of these, and any policy has
 * it. A group of S = mp consecutive ranks of one node shares attention and dense FFNs. Each rank keeps its own T
 * tokens at its MoE layers (sequence parallelism; Megatron-LM, Korthikanti et al., MLSys 2023):
 *
 *   AllGather      of the group's rows: each rank sends its T to the S - 1 others
 *   attention      heads / S of them over S T rows: as many FLOPs, 1/S of the weights. The S T rows are S times as many whole
 *                  sequences of seq_len, never longer ones, so a token's context stays what it is
 *   ReduceScatter  of the partial sums: each rank gets S - 1 parts of its T rows and adds them to its own
 *
 * and backward the same with gradients. A block without MoE does so twice, for attention and for its FFN. The
 * projections of attention and the matrices of dense FFNs are cut, rounded up to whole parameters. Low-rank forms (MLA)
 * are cut as a whole, though systems cut the up-projections alone. Norms, gate, shared experts, embedding and head are
 * whole on every rank, over its own rows. So a rank's dense gradients are two parts. What is cut is reduced among the
 * n/S ranks of equal place in their groups, what is whole among all n. What backward needs of gathered rows is kept,
 * not gathered again (Megatron-LM has both). With recomputation it is gathered again, and the ReduceScatter comes again
 * too. */
#pragma once
#include "models/cluster.h"
#include "models/compute_cost.h"
#include "models/memory_cost.h"
#include "models/moe.h"
#include "runtime/base/option.h"

typedef struct hec_solver hec_solver; /* milp.h */

/* How tokens travel, where not as an all-to-all of rows of every assignment (runtime/program/dispatched.h). */
typedef struct {
  const struct hec_dispatcher *by; /* models/training/dispatcher.h; NULL: it is that all-to-all */
  const struct hec_gpu *gpu;       /* whose laws its kernels have, with the cluster's NIC */
  int32_t sms;                     /* that copy */
  double row;                      /* bytes of a token on the way to its experts; on the way back bytes.token */
} hec_problem_dispatch;

typedef struct hec_problem {
  const hec_moe *moe;
  const hec_cluster *cluster;
  bool train;               /* false: forward phase only */
  int32_t n_ranks, n_nodes; /* ranks are devices 0..n_ranks-1; nodes they touch */
  int32_t n_layers;         /* MoE layers */
  int32_t n_experts, top_k;
  int32_t tokens; /* per rank and micro-batch */
  int32_t ep;     /* ranks (esp > 1: sharding groups) of an expert-parallel group */
  int32_t dp;     /* expert-parallel groups: n_ranks / ep; group of rank r is r / ep */
  int32_t esp;    /* ranks of an expert-sharding group; 1: experts are whole */
  int32_t mp;     /* ranks that share the dense part; 1: it is whole on every rank */
  int32_t zero;   /* 1: of what several ranks keep, each updates its part alone (ZeRO-1); 0: each updates all of it */
  bool head_late; /* the head's gradients are reduced after the backward of the layers; false: beside it */
  hec_memory_cost bytes;
  hec_work_shape expert;       /* forward, per assignment; of a shard */
  double window_s;             /* forward time of the non-MoE part before an MoE layer (hides sparse collectives) */
  double dense_window_s;       /* the same where s2 leaves the layer's attention dense */
  double outside_s;            /* of a group alone: reducing a layer's gradients with other groups; 0: there are none */
  const uint64_t *transitions; /* [n_layers - 1][n_experts][n_experts] tokens of expert a in a layer and b in the next;
                                  NULL: not known */
  const hec_solver *solver;    /* of integer programmes; NULL: planners have their heuristics alone */
  const struct hec_placement *placement; /* where the user's experts stand (placement/placement.h); NULL: not told */
  const struct hec_pricer
      *pricer; /* of whole iterations (program/lower.h), for policies that compare them; NULL: none does */
  hec_problem_dispatch dispatch;
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

/* What was chosen for `from` holds for a problem made for another cluster or fewer layers too. That is options, solver
 * and the transitions between the layers it has. Where ranks and experts are as many, it is also the placement and the
 * expert-parallel groups. */
void hec_problem_choose_as(hec_problem *problem, const hec_problem *from);

/* Expert-parallel groups of `ep` ranks from now on; 0: the largest that there can be, as after make. HEC_BAD_INPUT unless ep
 * divides the ranks and every rank of a group has an expert. Before hec_problem_shard. */
hec_status hec_problem_group(hec_problem *problem, int32_t ep) HEC_MUST_USE;

/* What the ranks of one expert-parallel group plan for: rank i is rank group * ep + i of all. Without the placement, which is
 * of all ranks. Its cluster comes from the arena. */
hec_problem hec_problem_of_group(const hec_problem *problem, int32_t group, hec_arena *arena);

/* Expert-sharding groups of `esp` ranks from now on; 1: none, nothing changes. HEC_BAD_INPUT unless esp divides the ranks,
 * the devices of a node and d_ffn, and there is an expert for every group. */
hec_status hec_problem_shard(hec_problem *problem, int32_t esp) HEC_MUST_USE;

/* Groups of `mp` ranks share the dense part from now on; 1: nothing changes. HEC_BAD_INPUT unless mp divides all of
 * these. They are the ranks, the devices of a node, the model's heads and kv heads, and the width of a dense FFN. */
hec_status hec_problem_tensor(hec_problem *problem, int32_t mp) HEC_MUST_USE;

/* ZeRO-1 (arXiv 1910.02054) from now on: optimizer state of the dense part is in n_ranks parts. That of an expert is
 * in as many as groups keep it. Parameters and gradients stay whole. No parts of experts or blocks (esp, mp). */
void hec_problem_share_optimizer(hec_problem *problem);
/* The part of the dense state that a rank updates: `place` of `of`, cut by hec_part_begin; of experts: replicas.h. */
typedef struct {
  int32_t place, of;
} hec_problem_part;
static inline hec_problem_part hec_problem_dense_part(const hec_problem *p, int32_t rank) {
  return p->zero ? (hec_problem_part){rank, p->n_ranks} : (hec_problem_part){0, 1};
}

/* Attention of an MoE layer as a rank computes it, forward, over mp * tokens rows; `dense`: as hec_work_dense_attention. */
hec_work_shape hec_problem_attention(const hec_problem *problem, bool dense);
/* Bytes of dense gradients that a rank has of an MoE block (layer >= 0; all have as many) or of all the rest (-1). Of
 * these, how many are reduced among ranks of equal place only: they are the first ones, and none where mp is 1. */
double hec_problem_gradients(const hec_problem *problem, int32_t layer);
double hec_problem_cut_gradients(const hec_problem *problem, int32_t layer);
/* Of the rest, the head's, where they are reduced on their own. They are complete before the backward of any layer, and frameworks
 * with gradient buckets reduce them beside it (torch DDP; Megatron-LM, --overlap-grad-reduce). 0: with the rest, after it. So where
 * that is wanted (head_late), and where they are cut (mp) or parts are of all that is reduced (zero). Also where the start of one
 * all-reduce more takes longer than the backward of the last layer's attention: elsewhere nothing ends later than with one. */
double hec_problem_head_gradients(const hec_problem *problem);
/* Closed form of reducing `bytes` of an MoE block's gradients, of both parts in proportion. */
double hec_problem_reduce_s(const hec_problem *problem, double bytes);

/* Experts at home on a rank of an expert-parallel group, at most: ceil(E / ep). */
static inline int32_t hec_problem_share(const hec_problem *p) {
  return (p->n_experts + p->ep - 1) / p->ep;
}
/* Slots per rank and layer as wanted, but as many as hold all experts on all ranks at least, and all experts at most. */
static inline int32_t hec_problem_slots(const hec_problem *p, int32_t wanted) {
  int32_t min = (p->n_experts + p->n_ranks - 1) / p->n_ranks, slots = wanted > min ? wanted : min;
  return slots < p->n_experts ? slots : p->n_experts;
}

static inline int32_t hec_problem_node(const hec_problem *p, int32_t rank) {
  return rank / p->cluster->devices_per_node;
}
/* One past the last rank of a node (the last node may be partly used). */
static inline int32_t hec_problem_node_end(const hec_problem *p, int32_t node) {
  int32_t end = (node + 1) * p->cluster->devices_per_node;
  return end < p->n_ranks ? end : p->n_ranks;
}

/* Seconds that a layer's own gradients need, whatever the plan, before or behind those of guests. They are the dense
 * ones of all ranks, and those of experts between groups. */
double hec_problem_own_gradients_s(const hec_problem *problem);

/* Bytes of a rank without any copy: dense state, its share of expert state (even split, rounded up), activations and
 * token buffers at balanced load. Used by m and by the memory verdict of planners. */
double hec_problem_bytes_without_copies(const hec_problem *problem);
/* Bytes of one dense model of everything beside the ranks, at least: parameters, when training gradients and moments, too. */
double hec_problem_bytes_reference(const hec_problem *problem);
