/* What iteration times of a class of policies on a load cannot go below: bound_time.c has the statements. */
#pragma once
#include "models/load.h"
#include "runtime/plan/policy.h"

/* What a policy may do. */
typedef enum {
  HEC_BOUND_COPIES,  /* any copies anywhere, any cut of tokens; each expert has one home */
  HEC_BOUND_WHOLE,   /* an expert (with expert-data parallelism: of each group) is computed on one rank, any rank; with
                        problem.esp on one sharding group, any group */
  HEC_BOUND_SHARDED, /* as COPIES, but slice j of every expert is kept on rank j: whoever computes must gather */
  HEC_N_BOUND_CLASSES
} hec_bound_class;
extern const char *const hec_bound_class_name[HEC_N_BOUND_CLASSES];
/* By the policy's row. With several expert-parallel groups WHOLE needs a policy that works inside them. */
hec_bound_class hec_bound_class_of(const hec_policy *policy, const hec_problem *problem);

typedef struct {
  double chain_s;  /* devices compute, and wait for tokens and all-reduces as the schedule has it */
  double token_s;  /* token exchanges, each the mean over ranks; or, if longer, those inside sharding groups */
  double served_s; /* the chain with tokens that travel or copies whose gradients return (bound_served.c) */
  double moved_s;  /* bytes that must move for copies, beside everything else */
  double total_s;  /* the bound: the largest, and what follows */
} hec_bound_time;

typedef struct hec_bound hec_bound;
hec_bound *hec_bound_new(const hec_problem *problem, hec_arena *arena);
typedef struct {
  hec_bound_class class;
  bool tokens_wait; /* the schedule computes a layer's experts between the exchanges of their tokens; false: it may
                       overlap anything, and cut what it sends */
  bool closed_form; /* all-reduces take their closed form; false: no less than a ring's bytes over a rank's links */
  int32_t n_micro_batches;
  bool by_node; /* the schedule may send a token's row once to a node for several of its experts */
} hec_bound_case;
/* One iteration: begin, then the load of each micro-batch in order (as computed: rewritten where the policy rewrites),
 * then the end. O(ranks * experts) per layer, nothing allocated. */
void hec_bound_begin(hec_bound *bound, hec_bound_case options);
void hec_bound_add(hec_bound *bound, const hec_load *load);
hec_bound_time hec_bound_end(hec_bound *bound);
