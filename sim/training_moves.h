/* What a policy's copies and moves of experts cost, beside the loads that they give: closed forms over the links of one
 * expert-parallel group.
 *
 *   forward    what is gathered before the gate hides beside the attention before it; what is decided after the gate does not
 *   backward   gradients of copies go home and are added up there, beside the attention of the layer; copies that are not kept
 *              are gathered again
 *   a step     gradients of copies that stay are added up among those who keep the expert, as replicas.h does; beside what hides
 *              data-parallel traffic
 *              experts that move between ranks, once in a period of the policy; the stages of a pipeline move theirs at once.
 *              Every group moves what it keeps: with ZeRO 1 / edp of the optimizer's state, with FSDP of the parameters, too
 *
 * An expert in etp parts: a rank of the problem is etp GPUs, which share all it does. So whatever it takes they take 1 / etp of. */
#pragma once
#include "models/training/groups.h"
#include "runtime/plan/collective.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"

typedef struct {
  hec_sparse sparse;
  hec_collective_plan plan, other;
  hec_plan before; /* the last plan */
  int64_t *bytes;  /* [n_ranks * n_ranks] scratch */
  hec_transfer_list list;
  int32_t *keeper;            /* [n_ranks] scratch */
  double share;               /* of a GPU in what a rank does: 1 / etp */
  double grad_bytes, added_s; /* of an expert's gradients; to add up one byte of them */
  double kept;                /* of an expert's gradients a keeper has its part: 1; FSDP: 1 / edp */
  bool shared;                /* ZeRO: each keeper updates a part, and parameters come back instead of gradients */
  hec_problem moved;          /* the run's, with the bytes of an expert's state that a group keeps */
} hec_training_moves;

/* `training`: NULL: experts are whole, gradients as large as the problem's, added up in no time, and there is no ZeRO. */
hec_training_moves hec_training_moves_new(const hec_policy_run *run, const hec_training *training, hec_arena *arena);
void hec_training_moves_free(hec_training_moves *moves);

/* Gathering the guests of a layer as the plan now stands, or bringing their gradients home and adding them up, as if nothing hid it;
 * seconds. */
double hec_training_gather_s(hec_training_moves *moves, hec_policy_run *run, int32_t layer, bool scatter);
/* Adding up the gradients of all layers' residents in the plan that hec_training_migration_s was last called with, layers one after
 * the other. */
double hec_training_replicas_s(hec_training_moves *moves, hec_policy_run *run);
/* Moving experts from the last plan that it was called with to this one, all layers one after the other. */
double hec_training_migration_s(hec_training_moves *moves, hec_policy_run *run);
