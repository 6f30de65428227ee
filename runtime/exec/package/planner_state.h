/* What the files of libhecate's planner share: the planner, and a step of it. Internal to this folder. */
#pragma once
#include "runtime/exec/package/hecate.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"

/* The public codes are ints. */
#define TRY(expression)                                                                                                \
  do {                                                                                                                 \
    int try_code_ = (int)(expression);                                                                                 \
    if (try_code_ != HECATE_OK)                                                                                        \
      return try_code_;                                                                                                \
  } while (0)

/* A micro-batch: the plan as the step made it, and as refine left it. */
struct hec_step {
  hec_planner *planner;
  hec_policy_plans decided, plans;
  hec_load load; /* counts given to refine */
  bool *seen;    /* [n_layers] refine was called */
  bool open;     /* between begin and release */
  bool ended;    /* its counts are history */
  int32_t planned;
  /* Guests as items; gathered: which of them the step decided on. */
  uint8_t *gathered; /* [n_layers * n_experts * n_ranks] */
  int32_t *expert, *owner, *receiver_at, *receiver;
  hec_step *next; /* of the planner's steps */
};

struct hec_planner {
  hec_arena arena;
  hec_moe moe;
  hec_cluster cluster;
  hec_problem problem;
  hec_policy_run run;
  hec_plan before; /* the last step's plan, as homes and residents stood before the step */
  hec_routing routing;
  hec_step *steps;   /* all that were ever made, to be used again */
  hec_step *current; /* of hec_planner_step; before the first: ended, with the first plan */
  hec_move_list moves;
  hec_planner_move *listed; /* [n_listed] the same for others */
  size_t n_listed, listed_capacity;
  int32_t *split_rank; /* [holders of a row, slots counted] */
  uint32_t *split_tokens;
};

static inline const hec_plan *hec_step_plan(const hec_step *step) {
  return &step->plans.plan[0];
}
/* A step with the plan in force, ended. */
hec_step *hec_step_new(hec_planner *planner);
/* A decision into this step; arguments are checked. */
void hec_step_decide(hec_step *step, int64_t iteration, int32_t micro_batch);
hec_status hec_step_check(const hec_planner *planner, int64_t iteration, int32_t micro_batch) HEC_MUST_USE;
