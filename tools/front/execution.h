/* What every command that executes chooses and says alike: policies, iterations, the head of its report and what its
 * numbers do not say. */
#pragma once
#include "runtime/exec/replay.h"
#include "runtime/program/summary.h"
#include "tools/front/job_args.h"
#include "tools/front/target.h"

/* The policies asked for without the bounds, which nothing can execute (said among the job's defaults); HEC_BAD_INPUT when
 * none is left. */
hec_status hec_execution_policies(const hec_job_options *args, hec_job *job, hec_arena *arena,
                                  const hec_policy *policies[HEC_POLICIES_MAX], int32_t *n) HEC_MUST_USE;

/* The first `wanted` iterations of the trace; `asked`: by the user, else said among the defaults. */
hec_status hec_execution_steps(hec_job *job, hec_trace_reader *reader, int32_t wanted, bool asked, hec_arena *arena,
                               hec_recording *recording) HEC_MUST_USE;

enum { HEC_EXECUTION_LIMITS_MAX = 12 };
typedef struct {
  hec_summary_execution summary; /* points into this struct: it must not move */
  hec_text cpu, library;
  const char *limits[HEC_EXECUTION_LIMITS_MAX];
} hec_execution; /* hec_execution_free */
void hec_execution_free(hec_execution *execution);

/* After the backend was opened: who and where. */
void hec_execution_place(const hec_target *target, const hec_target_args *args, int32_t n_ranks, int32_t warmup,
                         hec_execution *execution);
/* The same with what the numbers of a job do not say. own_cluster: the user named it; predicts: what is measured validates predictions. The
 * caller adds the seed. */
void hec_execution_describe(const hec_target *target, const hec_target_args *args, const hec_job *job, bool own_cluster,
                            bool predicts, hec_execution *execution);
/* HEC_BAD_INPUT where a rank, even without copies, fits neither this machine's memory nor its share of a device. With
 * `check` it is also an error if the dense reference, which the process that speaks computes, does not fit this
 * machine's. */
hec_status hec_execution_check_memory(const hec_target *target, const hec_problem *problem, int32_t ranks_here,
                                      bool check) HEC_MUST_USE;
void hec_execution_mind(hec_execution *execution, const char *limit); /* one more sentence; lives as long */
/* hecate-run's warnings on stderr; `advice`: how to have ranks take turns, "" or "; use ...". */
void hec_execution_warn(const hec_execution *execution, const hec_target *target, bool pin, const char *advice);
