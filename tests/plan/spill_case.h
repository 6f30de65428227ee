/* One layer of one expert-parallel group planned by a spilling policy, and who computes what of it. */
#pragma once
#include "runtime/plan/planners/spill.h"

typedef struct {
  hec_arena *arena;
  hec_problem *problem;
  hec_load load; /* one layer */
  hec_policy_run run;
  hec_spill *spill;
  uint64_t *total;    /* [n_experts] assignments of all sources */
  uint64_t *computed; /* [n_ranks * n_experts] */
  uint64_t *rank;     /* [n_ranks] computed there */
} hec_spill_case;

/* A problem of one layer: ranks, experts, and the shape of the cluster. */
hec_spill_case hec_spill_case_new(hec_arena *arena, const char *policy, const char *cluster, int32_t ranks,
                                  int32_t experts);
/* Random shape, 1 to 16 ranks on nodes of 1 to 8, up to 40 experts, now and then fewer than ranks; filled. */
hec_spill_case hec_spill_case_random(hec_arena *arena, const char *policy, uint64_t max, uint64_t *seed);
/* Counts below about 1 .. `max` a cell, of each kind now and then. None at all, one expert only, idle sources, idle
 * experts, a share of the ranks holding all that is hot. */
void hec_spill_case_fill(hec_spill_case *c, uint64_t max, uint64_t *seed);
/* Plans the layer and checks the plan. Each guest must compute something, each host what sources send, every
 * assignment once. Fills total, computed and rank. */
void hec_spill_case_plan(hec_spill_case *c);
void hec_spill_case_stop(hec_spill_case *c); /* and frees the arena */
HEC_SCOPED_BY(hec_spill_case, hec_spill_case_stop)

/* What an independent planner says of one domain: ranks 0 .. n - 1, `moved` to rank r of expert e. */
enum { HEC_SPILL_RANKS = 16, HEC_SPILL_EXPERTS = 40 };
typedef struct {
  int32_t n, n_experts, home[HEC_SPILL_EXPERTS]; /* home: -1 where it is not in the domain */
  int64_t total[HEC_SPILL_EXPERTS], load[HEC_SPILL_RANKS], all;
  int64_t moved[HEC_SPILL_EXPERTS][HEC_SPILL_RANKS];
} hec_spill_oracle;
/* The domain of `n` ranks from `first` on, nothing moved yet. */
hec_spill_oracle hec_spill_oracle_new(const hec_spill_case *c, int32_t first, int32_t n);
/* Fails unless the plan moved the same. */
void hec_spill_oracle_compare(const hec_spill_oracle *o, const hec_spill_case *c, int32_t first);

/* Guests of a rank. */
int32_t hec_spill_case_guests(const hec_spill_case *c, int32_t rank);
int32_t hec_spill_case_home(const hec_spill_case *c, int32_t expert);
