/* One comparison on a trace, from options to a summary: what hecate-sim and libhecate (hec_simulate) do alike. */
#ifndef HEC_FRONT_SIMULATION_H
#define HEC_FRONT_SIMULATION_H
#include "sim/compare.h"
#include "tools/front/job_args.h"

typedef struct {
  hec_job_args job;
  int64_t threads; /* 0: all cores */
  bool check;
} hec_simulation_args;

#define HEC_SIMULATION_ARGS ((hec_simulation_args){.job = hec_job_args_default})

/* Rows of a table of options (args.h). */
/* clang-format off */
#define HEC_SIMULATION_ARG_ROWS(a) \
  HEC_JOB_ARG_ROWS((a).job), \
  HEC_STRAGGLER_ARG_ROWS((a).job.stragglers), \
  HEC_POLICY_ARG_ROWS((a).job, "S[,S...]", "K[,K...]"), \
  HEC_PLACEMENT_ARG_ROWS((a).job), \
  HEC_ARG_TITLE("Simulation and output"), \
  HEC_ARG_WORD("--law", (a).job.law, "L", "network law of --list: alpha_beta (default), max_min (exact sharing, slower), nccl_rounds (bounded as in NCCL)"), \
  HEC_ARG_WHOLE("--threads", (a).threads, "N", "threads, which share the policies (default: all cores)", 1, 1024), \
  {"--check", HEC_ARG_FLAG, &(a).check, NULL, "verify every program and timeline while running", 0, 0}
/* clang-format on */

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

#endif
