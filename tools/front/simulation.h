/* One comparison on a trace, from options to a summary: what hecate-sim and libhecate (hec_simulate) do alike. */
#pragma once
#include "runtime/program/job.h"
#include "sim/compare.h"
#include "tools/front/job_args.h"

typedef struct {
  hec_job_options job;
  int64_t threads; /* 0: all cores */
  bool check;
} hec_simulation_args;

#define HEC_SIMULATION_ARGS ((hec_simulation_args){.job = HEC_JOB_OPTIONS})

/* Rows of a table of options (args.h). */
extern const hec_run_option_words hec_simulation_words[];
#define HEC_SIMULATION_ARG_ROWS(a)                                                                                     \
  HEC_ARG_JOB("What runs", (a).job, HEC_OPTIONS_JOB " " HEC_OPTIONS_STRAGGLERS, NULL),                                 \
      HEC_ARG_JOB("Policies", (a).job,                                                                                 \
                  HEC_OPTIONS_POLICY " " HEC_OPTIONS_DENSE " " HEC_OPTIONS_HEAD " " HEC_OPTIONS_DISPATCH               \
                                     " " HEC_OPTIONS_PLACEMENT,                                                        \
                  hec_simulation_words),                                                                               \
      HEC_ARG_JOB("Simulation and output", (a).job, "law", NULL),                                                      \
      HEC_ARG_WHOLE("--threads", (a).threads, "N", "threads, which share the policies (default: all cores)", 1, 1024), \
  {                                                                                                                    \
    "--check", HEC_ARG_FLAG, &(a).check, NULL, "verify every program and timeline while running", 0, 0                 \
  }

typedef struct {
  hec_job job;
  hec_compare_options options;
  hec_summary summary; /* tool and trace (its path or name) are set */
  hec_summary_attention attentions[HEC_ATTENTIONS_MAX];
} hec_simulation; /* stays where it is: the summary points into it. Zero-initialise */

/* Every policy, under every schedule and kind of attention asked for. The trace stands at its end.
 * Free with hec_simulation_free, after a failure too. */
hec_status hec_simulation_run(const hec_simulation_args *args, hec_trace_reader *reader, hec_arena *arena,
                              hec_simulation *simulation) HEC_MUST_USE;
void hec_simulation_free(hec_simulation *simulation);
