/* What a step of pipeline stages took. Every rank notes when its pieces were done. From that, rank 0 makes the timeline
 * of the step's program (program/pipelines/step_program.h). It hands it on as an iteration that was executed
 * (replay.h).
 *
 *     hec_pipeline_watch_begin, then for each piece _input and _done, then _end */
#pragma once
#include "runtime/exec/launch/probe.h"
#include "runtime/exec/replay.h"
#include "runtime/program/pipelines/step_program.h"

typedef struct {
  const hec_replay *replay;
  const hec_pipeline_order *order;
  hec_rank *rank; /* of the launch */
  int64_t start_ns;
  double probed_s[2];
  int32_t n_own, n_done; /* stamps of a rank, at most; of this one so far */
  hec_step_stamp *own;   /* [n_own] the last one: the step's end */
  int32_t *op_at;        /* [n_own] operations of the stage's program behind each */
  hec_probe probe;
  /* On rank 0, of all ranks: */
  hec_step_stamp *all; /* [n_ranks][n_own] */
  double *probe_s;     /* [n_ranks][2] */
  uint64_t *digest;    /* [n_ranks] of the programs of their stages */
  hec_program program;
  hec_step_ops ops;
  hec_timeline timeline;
  int64_t *lost_ps; /* [n_ops * n_ranks] */
} hec_pipeline_watch;

void hec_pipeline_watch_open(hec_pipeline_watch *watch, const hec_replay *replay, const hec_pipeline_order *order,
                             hec_rank *rank, hec_arena *arena);
void hec_pipeline_watch_close(hec_pipeline_watch *watch);
/* hec_runner_begin, and all ranks begin together. */
hec_status hec_pipeline_watch_begin(hec_pipeline_watch *watch, hec_runner *runner, int64_t iter) HEC_MUST_USE;
void hec_pipeline_watch_input(hec_pipeline_watch *watch); /* of the next piece: it is there */
void hec_pipeline_watch_done(hec_pipeline_watch *watch, const hec_program *program);
/* Behind hec_runner_end, which ends the step. Calls replay.measured on rank 0. */
hec_status hec_pipeline_watch_end(hec_pipeline_watch *watch, const hec_exec *exec, const hec_program *program,
                                  const hec_replay_step *step) HEC_MUST_USE;
