/* A comparison by execution: every policy over the iterations of a recording, on the ranks of a launch. Rank 0 keeps
 * the rows. At the end it hands over what is to be printed and written. So nothing is seen of a launch that failed. */
#pragma once
#include "runtime/exec/replay.h"
#include "runtime/plan/problem.h"
#include "tools/front/handover.h"
#include "tools/front/output.h"
#include "tools/front/stages.h"
#include "tools/front/summary/summary_write.h"

typedef struct {
  const hec_job *job; /* executed (job.h); warmup: iterations run but not reported */
  const hec_policy *const *policies;
  int32_t n_policies;
  const char *schedule; /* one that every policy allows, or "published" */
  const hec_collective *collective;
  hec_recording recording;
  const hec_stages *stages; /* the job is that of one; NULL: there are no pipeline stages */
  const hec_summary_execution *execution;
  const char *tool, *trace, *law;
  bool check, json, files; /* files: for --out */
  int64_t timeline_iter;   /* -1: nearest the median */
  const hec_timeline_format *timelines;
} hec_measure_options;

typedef struct {
  const hec_measure_options *options;
  hec_model model, exact_model;
  hec_moe exact_moe; /* one layer */
  hec_problem exact_problem;
  hec_replay_step exact_step;
  size_t stage_bytes; /* region of a rank of a stage */
  hec_handover handover;
} hec_measure;

hec_status hec_measure_open(hec_measure *measure, const hec_measure_options *options, hec_arena *arena) HEC_MUST_USE;
void hec_measure_close(hec_measure *measure);
size_t hec_measure_bytes(const hec_measure *measure); /* region of a rank */
hec_status hec_measure_body(hec_rank *rank, void *measure);

typedef struct {
  hec_text printed, failed; /* failed: "" or which checks did */
  hec_output_files files;
} hec_measured; /* zero-initialise */
/* After the launch, where rank 0's results can be read (not in other processes of a process manager). */
hec_status hec_measure_take(hec_measure *measure, hec_measured *measured) HEC_MUST_USE;
void hec_measured_free(hec_measured *measured);
