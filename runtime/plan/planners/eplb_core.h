/* EPLB's placement of replicated experts on slots: a pure function from loads to slots, and what its policies share. */
#ifndef HEC_PLAN_EPLB_CORE_H
#define HEC_PLAN_EPLB_CORE_H
#include "runtime/plan/policy.h"

/* One layer's placement, with its workspace. Divisibility: n_slots by n_ranks, n_ranks and n_groups and n_slots by
 * n_nodes, n_experts by n_groups; n_slots >= n_experts. */
typedef struct {
  int32_t n_experts, n_slots, n_groups, n_nodes, n_ranks;
  int32_t *slot;         /* [n_slots] result: expert in slot i of rank i / (n_slots / n_ranks), in packing order */
  int32_t *count;        /* [n_experts] result: slots of the expert */
  int32_t *listed;       /* scratch [n_experts] experts in the order of their nodes */
  int32_t *replica;      /* scratch [n_slots] */
  double *weight;        /* scratch [n_slots] */
  int32_t *order, *pack; /* scratch [n_slots] */
  double *pack_weight;   /* scratch [n_ranks] or more */
  int32_t *n_packed;     /* scratch, likewise */
  uint64_t units;        /* inner steps of the last placement */
} hec_eplb;

/* n_groups == n_nodes == 1: the global form. */
hec_eplb hec_eplb_new(hec_arena *arena, int32_t n_experts, int32_t n_slots, int32_t n_groups, int32_t n_nodes,
                      int32_t n_ranks);
void hec_eplb_place(hec_eplb *eplb, const uint64_t *load);

/* How the policies differ. */
typedef struct {
  bool hierarchical;
  int32_t redundant;            /* slots per rank beyond what expert parallelism needs */
  bool match;                   /* packs go to the ranks that hold most of them (slot_match.h) */
  int32_t layers_per_iteration; /* that are rearranged at most, the others in the iterations to come; 0: all */
} hec_eplb_options;

/* The policies: slots per rank = what expert parallelism needs, ceil(E / ep), and `redundant` more (problem.slots
 * instead if set), at least ceil(E / R), at most E. Hierarchical where nodes are equally filled and divide the experts;
 * groups of experts are then the smallest multiple of the nodes that divides the experts and is at least 8
 * (DeepSeek-V3: 8; reference policies.md 4.2), or as many as nodes if there is none. Else global. */
void hec_eplb_init(hec_policy_run *run, hec_eplb_options options);
void hec_eplb_decide(hec_policy_run *run);

#endif
