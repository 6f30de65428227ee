/* Pipeline stages that are executed. From --layout and --pipeline to the ranks of a stage, its layers, the order of
 * its pieces and the micro-batches of a step. The job is that of one stage's ranks with all layers
 * (runtime/exec/pipeline.h).
 *
 *     hec_stages_open, hec_job_make_executed with its options, hec_stages_make, hec_stages_steps */
#pragma once
#include "models/training/layout.h"
#include "runtime/exec/pipeline.h"
#include "tools/front/job_make.h"

typedef struct {
  hec_layout layout; /* for the ranks of all stages */
  const hec_pipeline_schedule *schedule;
  hec_pipeline_order order;
  const int32_t *layer_at; /* [n_parts + 1] */
  int32_t zero;            /* 0 or 1: ZeRO-1 */
} hec_stages;

/* `made`: ranks that a process manager made; 0: none. `of_stage`: the options of the job. HEC_BAD_INPUT: sizes that do not fit, with
 * what would. What is not executed (tp, cp, etp, some schedules), with what is; options that mean nothing here. */
hec_status hec_stages_open(const hec_training_args *args, const hec_job_options *options, int32_t made,
                           hec_trace_reader *reader, hec_stages *stages, hec_job_options *of_stage) HEC_MUST_USE;
/* Layers that run by default: `usual`; more where the layout has more parts; what it names. */
int32_t hec_stages_layers(const hec_layout *layout, int32_t usual);
/* The order of pieces. What the user did not choose is said among the job's defaults. */
hec_status hec_stages_make(const hec_job_options *options, hec_arena *arena, hec_job *job,
                           hec_stages *stages) HEC_MUST_USE;
/* `n` steps. Micro-batches take the records of the trace in order and begin again at its end. */
hec_status hec_stages_steps(const hec_stages *stages, int32_t n, hec_job *job, hec_trace_reader *reader,
                            hec_arena *arena, hec_recording *recording) HEC_MUST_USE;
/* Those of `policies` that stages can execute, in place. HEC_BAD_INPUT: one that was named (not by "all") cannot, or none can. */
hec_status hec_stages_policies(const hec_stages *stages, const hec_job_options *options, hec_job *job, hec_arena *arena,
                               const hec_policy **policies, int32_t *n) HEC_MUST_USE;
