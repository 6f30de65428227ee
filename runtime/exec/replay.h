/* Replay: the iterations of a trace executed for real on one rank of a launch. Every rank plans for itself from the
 * same past loads. After each gate that the policy looks at, it also plans from the counts that it received. Every
 * iteration verifies that all ranks planned the same program. Routing is forced to the recorded counts; all else is
 * computed.
 */
#pragma once
#include "runtime/exec/check.h"
#include "runtime/exec/runner.h"
#include "traces/trace.h"

typedef struct hec_job hec_job; /* runtime/program/job.h */

/* Loads of the iterations to execute, in memory. */
typedef struct {
  int64_t iter, stride;
  int32_t n_loads;       /* 1: used n_micro_batches times */
  const hec_load *loads; /* n_sources = ranks */
} hec_replay_step;

/* The first `n_wanted` iterations of a trace (all when it has fewer), of the job's layers, spread and scaled. As many
 * records in each as in the first: HEC_BAD_INPUT otherwise. */
typedef struct {
  const hec_replay_step *steps; /* [n_steps] */
  int32_t n_steps, n_micro_batches;
  hec_token_range tokens; /* of their records */
} hec_recording;
hec_status hec_recording_read(const hec_job *job, hec_trace_reader *reader, int32_t n_wanted, hec_arena *arena,
                              hec_recording *recording) HEC_MUST_USE;

/* An iteration that was executed, as rank 0 sees it. */
typedef struct {
  const hec_replay_step *step;
  hec_lowering *low;          /* NULL: pipeline stages, each with its own */
  const hec_program *program; /* of pipeline stages: of the pieces of a step (program/pipelines/step_program.h) */
  uint64_t digest;            /* of what was executed (hec_program_digest); of pipeline stages hec_stages_digest */
  const hec_timeline *timeline;
  double interrupted; /* hec_exec_interrupted */
  hec_exec_moving moving;
  const int64_t *lost_ps; /* [n_ops * n_ranks] hec_exec_lost_ps; NULL: not known */
  const double *probe_s;  /* [2 * n_ranks] of every rank before and after; NULL unless `probe`, and on devices */
} hec_replayed;

typedef struct {
  const hec_problem *problem; /* fp32: 4 bytes a parameter, 4 a gradient, 8 of moments */
  const hec_model *model;
  const hec_replay_step *steps; /* [n_steps] */
  int32_t n_steps, n_micro_batches;
  const char *schedule;             /* "published" or a row */
  const hec_collective *collective; /* NULL: by cost */
  bool virtual_time, check;
  bool probe;      /* every rank runs a speed probe (probe.h) before and after each iteration, all at once */
  double capacity; /* bytes of a rank, see hec_exec_options; 0: no limit */
  /* For tests of faults: rank `rank` plans from loads that differ in `iteration`. */
  int32_t differ_rank;
  int64_t differ_iteration; /* -1: never */
  /* After every iteration, on rank 0 only. */
  void (*measured)(void *context, const hec_replayed *iteration);
  void *context;
} hec_replay;

/* Bytes that each rank's region must have for this policy. */
size_t hec_replay_bytes(const hec_replay *replay, const hec_policy *policy);
/* Runs all steps of one policy; called by every rank. `result` is filled in on rank 0 when check. */
hec_status hec_replay_run(const hec_replay *replay, const hec_policy *policy, hec_rank *rank,
                          hec_replay_check *result) HEC_MUST_USE;
