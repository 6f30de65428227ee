/* What FSMoE's planner (fsmoe.h) sees of a problem: times in seconds by the cost laws, bytes of gradients. */
#pragma once
#include "runtime/plan/planners/fsmoe.h"

typedef struct hec_problem hec_problem; /* runtime/plan/problem.h */

typedef struct {
  hec_fsmoe_layer forward, backward;
  double dense_s;  /* of a block in the backward pass: all but its exchanges and experts */
  double tensor_s; /* what tensor parallelism adds to it: its exchanges, and the addition */
  double gradient; /* bytes of a block's dense gradients; 0: nobody to reduce with */
  hec_fsmoe_reduce reduce;
} hec_fsmoe_view;

/* Of an average layer whose experts all get as many tokens. Scratch comes from the arena and goes back to it. */
hec_fsmoe_view hec_fsmoe_view_of(const hec_problem *problem, hec_arena *arena);

/* Everything the planner decides, before training. Slots by backward order: slot 0 is the last layer's. */
typedef struct {
  int32_t degree;              /* of both directions */
  const hec_fsmoe_slot *slots; /* [n_layers] of a micro-batch with gradients; NULL when not training */
  double time_s;               /* predicted: exchanges, experts and what of the gradients nothing hides, all layers */
} hec_fsmoe_decision;
/* `folded`: as No-IIO sees it. What is decided stays on the arena. */
hec_fsmoe_decision hec_fsmoe_decide(const hec_problem *problem, bool folded, hec_arena *arena);
