/* Pipelines: a replay whose layers are spread over pipeline stages, executed for real on the ranks of a launch.
 *
 *     launch   0 1 2 3 | 4 5 6 7       stages are outermost, as in models/training/layout.h: rank r is rank r % n_ranks of
 *              stage 0   stage 1       stage r / n_ranks, where n_ranks are those of replay.problem
 *
 * A stage is a group of ranks (launch/group.h) with a problem, a policy and a program of its own: the layers of its parts.
 * What happens inside a stage (expert parallelism, several expert-parallel groups, the all-reduce of gradients) is the
 * program's. This file adds the order of pieces (program/pipelines) and what goes between stages. Rank i of a stage
 * sends the stream of its tokens to rank i of the stage that has the next part. It sends the stream's gradient to rank
 * i of the stage that has the part before.
 *
 * Deadlock freedom: a device sends in the order of its pieces and does not wait for the end of its newest send. So a
 * piece waits only for pieces that its input comes from, and for the receiver of the send before. */
#pragma once
#include "runtime/exec/replay.h"
#include "runtime/program/pipelines/pipeline_schedule.h"

/* A fault on purpose, for tests of the check: stage 0 (of a gradient: the last one) does it once, in the last step. */
typedef enum {
  HEC_PIPELINE_RIGHT,
  HEC_PIPELINE_SENDS_ANOTHER,          /* micro-batch 0's activations are another micro-batch's */
  HEC_PIPELINE_SENDS_ANOTHER_GRADIENT, /* likewise its gradients */
  HEC_PIPELINE_FORGETS,                /* gradients of the micro-batches before the last are not kept */
  /* With ZeRO-1, of the stage's first rank: */
  HEC_PIPELINE_UPDATES_ANOTHER, /* the part of another rank is updated, by gradients that are not summed there */
  HEC_PIPELINE_UPDATES_NOTHING
} hec_pipeline_fault;

/* What a rank of a stage held, at most over all steps: as the program has it, which is what simulators predict, and counted
 * (hec_exec_memory). The executor's workspace beside it: streams of all micro-batches, scratch. */
typedef struct {
  hec_rank_memory predicted, counted;
  double workspace;
} hec_stage_memory;

typedef struct {
  /* problem: of all layers, on the ranks of one stage (its expert-parallel groups may be several). schedule, virtual_time and
   * differ_* are not used. measured: of every step, with a program of its pieces. */
  hec_replay replay;
  const hec_pipeline_order *order; /* its micro-batches are the replay's */
  const int32_t *layer_at;         /* [n_parts + 1] layers of each part */
  hec_pipeline_fault fault;
  hec_stage_memory *memory; /* on rank 0: [ranks of the launch], filled in after the last step; NULL: not asked for */
} hec_pipelined;

/* With ZeRO-1 (problem.zero) gradients of a stage are reduce-scattered among the ranks that keep the parameters. Each
 * updates its part of them, and an all-gather brings the parts back: the stage's program has all three
 * (program/lowering.c).
 *
 * HEC_BAD_INPUT for what cannot be executed so: schedules with split or paired pieces, an odd number of stages of
 * several parts ... */
hec_status hec_pipelined_check_schedule(const hec_pipeline_schedule *schedule,
                                        const hec_pipeline_shape *shape) HEC_MUST_USE;
/* ... and policies that change their plan within an iteration or compute something else than the gate chose. With ZeRO-1 also those
 * that move experts, whose optimizer state is in parts then. */
hec_status hec_pipelined_check(const hec_pipelined *pipelined, const hec_policy *policy) HEC_MUST_USE;
/* Bytes that each rank's region must have. */
hec_status hec_pipelined_bytes(const hec_pipelined *pipelined, const hec_policy *policy, size_t *bytes) HEC_MUST_USE;
/* Runs all steps; called by every rank of a launch of n_stages * n_ranks. `result` is filled in on rank 0 when check. */
hec_status hec_pipelined_run(const hec_pipelined *pipelined, const hec_policy *policy, hec_rank *rank,
                             hec_replay_check *result) HEC_MUST_USE;
