/* What a policy's copies and moves of experts cost, beside the loads that they give: closed forms over the links of one
 * expert-parallel group.
 *
 *   forward    what is gathered before the gate hides beside the attention before it; what is decided after the gate does not
 *   backward   gradients of copies go home beside the attention of the layer; gathered again where copies are not kept
 *   a step     experts that move between ranks, once in a period of the policy; the stages of a pipeline move theirs at once
 *
 * The gradients of copies that stay from step to step are not in here. */
#ifndef HEC_SIM_TRAINING_MOVES_H
#define HEC_SIM_TRAINING_MOVES_H
#include "runtime/plan/collective.h"
#include "runtime/plan/policy.h"

typedef struct {
  hec_sparse sparse;
  hec_collective_plan plan, other;
  hec_plan before; /* the last plan */
  int64_t *bytes;  /* [n_ranks * n_ranks] scratch */
  hec_transfer_list list;
} hec_training_moves;

hec_training_moves hec_training_moves_new(const hec_policy_run *run, hec_arena *arena);
void hec_training_moves_free(hec_training_moves *moves);

/* Gathering the guests of a layer as the plan now stands, or bringing their gradients home, as if nothing hid it; seconds. */
double hec_training_gather_s(hec_training_moves *moves, hec_policy_run *run, int32_t layer, bool scatter);
/* Moving experts from the last plan that it was called with to this one, all layers one after the other. */
double hec_training_migration_s(hec_training_moves *moves, hec_policy_run *run);

#endif
