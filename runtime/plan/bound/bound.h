/* What no policy of a class can go below: largest loads, and iteration times.
 *
 * Loads (bound.c): of R ranks, tokens may be cut anywhere (fractions), so each is a lower bound of what whole tokens
 * reach. w_e: tokens of expert e, W their sum, L the largest load of a rank.
 *
 *   mean    W / R. Some rank has at least the mean. Tight where every rank may hold every expert: cut evenly.
 *   whole   one rank per expert:  max(W/R, max over k of w(kR+1) + w(kR) + ... + w(kR+1-k)), w(1) >= w(2) >= ...
 *           Of the kR+1 largest, k+1 share a rank and weigh at least as much as the last k+1 of them.
 *           Tight for E <= R (each its own rank), E = R + 1 (the two smallest together) and R = 1.
 *   slots   any homes, S experts on a rank:  the smallest L >= W/R with  sum over e of max(1, ceil(w_e / L)) <= R S
 *           A slot computes at most L, so expert e needs ceil(w_e / L) of them, and it must be somewhere.
 *           Tight for S = 1 (that many slots, each full evenly) and S >= E.
 *   extra   homes given, B experts more on each rank:  max over sets P of ranks of
 *           max(w(P)/R, (w(P) - (R - |P|) top_B(P)) / |P|), w(P): of experts with home in P, top_B: of its B largest
 *           Those tokens are computed in P, at most |P| L, or on another rank, at most L and at most B experts each.
 *           Taken over the R sets of the fullest ranks (one of any size). Tight for B = 0, B >= E, and R <= 2.
 *   held    who holds what is given:  max over sets S of experts of w(S) / |ranks that hold one of S|
 *           Tokens of S are computed on those ranks only. Always tight (max-flow, min-cut), and found by it.
 *
 * Times (bound_time.c): of a class of policies on a load; see there. */
#ifndef HEC_PLAN_BOUND_H
#define HEC_PLAN_BOUND_H
#include "models/load.h"
#include "runtime/plan/policy.h"

/* load: [n_experts]. Scratch comes from the arena and goes back to it. */
double hec_bound_mean(const uint64_t *load, int32_t n_experts, int32_t n_ranks);
double hec_bound_whole(const uint64_t *load, int32_t n_experts, int32_t n_ranks, hec_arena *arena);
double hec_bound_slots(const uint64_t *load, int32_t n_experts, int32_t n_ranks, int32_t slots,
                       hec_arena *arena); /* slots * n_ranks >= n_experts */
double hec_bound_extra(const uint64_t *load, const int32_t *home, int32_t n_experts, int32_t n_ranks, int32_t extra,
                       hec_arena *arena);
/* holder_at: [n_experts + 1], holder: ranks that hold expert e, ascending and different, at least one. Sums of loads times
 * n_ranks below 2^63. */
double hec_bound_held(const uint64_t *load, const int32_t *holder_at, const int32_t *holder, int32_t n_experts,
                      int32_t n_ranks, hec_arena *arena);

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
  bool by_node;    /* the schedule may send a token's row once to a node for several of its experts */
  bool head_first; /* the head's gradients are reduced beside the backward of the layers (policy.h) */
} hec_bound_case;
/* One iteration: begin, then the load of each micro-batch in order (as computed: rewritten where the policy rewrites),
 * then the end. O(ranks * experts) per layer, nothing allocated. */
void hec_bound_begin(hec_bound *bound, hec_bound_case options);
void hec_bound_add(hec_bound *bound, const hec_load *load);
hec_bound_time hec_bound_end(hec_bound *bound);

#endif
