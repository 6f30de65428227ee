/* hecate-validate compare: calibrates, predicts, executes, reports. One launch does all of it, so that under a process
 * manager every process knows the calibration: rank 0 fits, writes the cluster file, and every rank reads it. */
#include "runtime/base/arena.h"
#include "runtime/exec/math.h"
#include "tools/common/handover.h"
#include "tools/common/job_args.h"
#include "tools/common/machine.h"
#include "tools/common/output.h"
#include "tools/common/validate_commands.h"
#include "tools/common/where.h"
#include "validate/configurations.h"
#include "validate/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 6, WARMUP_STEPS = 1, REPEATS = 5 };

typedef struct {
  hec_job_args job;
  hec_where_args where;
  const char *trace, *out;
  int64_t layers, steps, repeat, seed, random;
  bool json;
} settings;

typedef struct {
  const settings *s;
  hec_where where;
  hec_arena arena;
  bool launched;
  hec_job job;
  hec_model model;
  const hec_policy *policies[HEC_POLICIES_MAX];
  int32_t n_policies;
  hec_recording recording;
  hec_lab_case *cases;
  hec_problem problem; /* of the cases: of the calibrated cluster once there is one */
  const hec_collective *collective;
  hec_session session;
  hec_handover handover;
  hec_text cpu;
} command;

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.job = hec_job_args_default, .where.backend = "cpu", .repeat = REPEATS, .steps = STEPS, .seed = 1};
  s->job.model = "cpu-512";
  const hec_arg args[] = {HEC_ARG_TITLE("What runs"),
                          HEC_ARG_WORD("--cluster", s->job.cluster, "C", "links that are imitated"),
                          HEC_ARG_WORD("--model", s->job.model, "M", "shape (default cpu-512)"),
                          HEC_ARG_WHOLE("--ranks", s->job.ranks, "R", "ranks (default 2)", 1, 65536),
                          HEC_ARG_WHOLE("--tokens", s->job.tokens, "N", "tokens per rank (default 256)", 1, 100000000),
                          HEC_ARG_WHOLE("--layers", s->layers, "N", "MoE layers (default 2)", 1, 100000),
                          HEC_ARG_WHOLE("--steps", s->steps, "N", "iterations (default 6)", 1, 100000),
                          HEC_ARG_WHOLE("--repeat", s->repeat, "N", "rounds (default 5)", 1, 1000),
                          HEC_POLICY_ARG_ROWS(s->job),
                          HEC_ARG_WORD("--backend", s->where.backend, "B", "cpu, mpi"),
                          HEC_ARG_WORD("--transport", s->where.transport, "T", "shm, emulated, paced"),
                          {"--virtual", HEC_ARG_FLAG, &s->where.virtual_time, NULL, "virtual time", 0, 0},
                          HEC_ARG_REAL("--timeout", s->where.limit_s, "S", "longest wait", 0.01, 1e6),
                          HEC_ARG_WHOLE("--seed", s->seed, "N", "seed", 0, HEC_ITER_MAX),
                          HEC_ARG_WHOLE("--random", s->random, "N", "random configurations", 0, 1000),
                          HEC_ARG_WORD("--out", s->out, "DIR", "folder"),
                          {.name = NULL}};
  const hec_command text = {
      .program = "hecate-validate compare", .usage = "hecate-validate compare TRACE", .args = args};
  int32_t n;
  HEC_TRY(hec_args_parse(&text, argc, argv, &s->trace, 1, &n, done));
  return HEC_OK;
}

static hec_status make(command *c, hec_trace_reader *reader, int32_t ranks) {
  const settings *s = c->s;
  hec_job_options wanted;
  char line[HEC_CPU_LINE_BYTES];
  HEC_TRY(hec_job_args_options(&s->job, &wanted));
  HEC_TRY(hec_job_args_collective(s->job.collective, &c->collective));
  wanted.layers = s->layers > 0 ? (int32_t)s->layers : 2;
  wanted.ranks = ranks > 0 ? ranks : wanted.ranks > 0 ? wanted.ranks : 2;
  if (wanted.tokens == 0)
    wanted.tokens = 128;
  (void)snprintf(line, sizeof line, "1x%" PRId32 " nvlink=0.25G@30us flops=50G eff=1 hbm=10G mem=8G tile=8",
                 wanted.ranks);
  if (!wanted.cluster)
    wanted.cluster = line;
  HEC_TRY(hec_job_make_executed(&wanted, reader, &c->arena, &c->job));
  HEC_TRY(hec_recording_read(&c->job, reader, (int32_t)s->steps + WARMUP_STEPS, &c->arena, &c->recording));
  HEC_TRY(hec_model_make(&c->job.moe, false, (uint64_t)s->seed, &c->model));
  const hec_policy *found[HEC_POLICIES_MAX];
  int32_t n;
  HEC_TRY(hec_job_args_policies(s->job.policies, found, &n));
  if (s->random > 0) {
    const hec_policy *kept[HEC_POLICIES_MAX];
    int32_t n_kept = 0;
    for (int32_t p = 0; p < n; p++) {
      const hec_schedule *schedule;
      HEC_TRY(hec_schedule_of(found[p], s->job.schedule, &schedule));
      if (!schedule->bound)
        kept[n_kept++] = found[p];
    }
    hec_configurations o = {.model = &c->model,
                            .cluster = &c->job.cluster,
                            .policies = kept,
                            .n_policies = n_kept,
                            .schedule = s->job.schedule,
                            .n_ranks = c->job.problem.n_ranks,
                            .tokens = c->job.problem.tokens,
                            .n_steps = 2,
                            .warmup = 1,
                            .train = c->job.problem.train,
                            .seed = (uint64_t)s->seed};
    c->n_policies = (int32_t)s->random;
    c->cases = HEC_NEW(&c->arena, hec_lab_case, c->n_policies);
    return hec_configurations_draw(&o, c->n_policies, &c->arena, c->cases);
  }
  c->cases = HEC_NEW(&c->arena, hec_lab_case, n);
  c->problem = c->job.problem;
  for (int32_t p = 0; p < n; p++) {
    const hec_schedule *schedule;
    HEC_TRY(hec_schedule_of(found[p], s->job.schedule, &schedule));
    if (schedule->bound)
      continue;
    hec_lab_case *one = &c->cases[c->n_policies++];
    *one = (hec_lab_case){.model = &c->model,
                          .problem = &c->problem,
                          .policy = found[p],
                          .schedule = s->job.schedule,
                          .steps = c->recording.steps,
                          .n_steps = c->recording.n_steps,
                          .n_micro_batches = c->recording.n_micro_batches,
                          .warmup = WARMUP_STEPS};
    (void)snprintf(one->name, sizeof one->name, "%s", found[p]->name);
  }
  return HEC_OK;
}

static void report(command *c, hec_text *out) {
  const hec_comparison *k = &c->session.comparison;
  const hec_calibration *cal = &c->session.calibration;
  hec_text_printf(out,
                  "calibration: %d iterations, %.1f %% interrupted; exchange a %.1f us b %.4f (res %.1f %%/%.1f %%), "
                  "plan a %.1f us, speed %.4f share %.3f\n",
                  cal->n_read, 100 * cal->disturbed, 1e6 * cal->exchange.a, cal->exchange.b,
                  100 * cal->exchange.residual_median, 100 * cal->exchange.residual_p90, 1e6 * cal->plan.a, cal->speed, cal->comm_share);
  for (int32_t i = 0; i < cal->n_curves; i++) {
    const hec_calibrated_curve *f = &cal->curves[i];
    hec_text_printf(out, "  %-12s %d  n %4d knots %2d res %.2f %% / %.2f %%:", hec_curve_name[f->kind], f->backward,
                    f->fit.n_observations, f->fit.n_knots, 100 * f->fit.residual_median, 100 * f->fit.residual_p90);
    for (int32_t j = 0; j < f->fit.n_knots; j++)
      hec_text_printf(out, " %g:%.3f", f->fit.x[j], 1e3 * f->fit.y[j]);
    hec_text_add(out, "\n");
  }
  for (int32_t i = 0; i < c->n_policies; i++) {
    const hec_compared_case *of = &k->by_case[i];
    hec_text_printf(out, "%-40s %8.3f %8.3f ms  err med %.2f %% p90 %.2f %% worst %.2f %% bias %+.2f %%  %d/%d\n",
                    of->a_case->name, 1e3 * of->predicted_s, 1e3 * of->measured_s, 100 * of->error.median,
                    100 * of->error.p90, 100 * of->error.worst, 100 * of->error.bias, of->n_conclusive, of->n_points);
    for (int32_t role = 0; role < HEC_N_ROLES; role++)
      if (of->measured_role_s[role] > 0)
        hec_text_printf(out, "      %-36s %9.3f %9.3f %+.1f %%\n", hec_role_name[role],
                        1e3 * of->predicted_role_s[role], 1e3 * of->measured_role_s[role],
                        100 * (of->predicted_role_s[role] / of->measured_role_s[role] - 1));
  }
  hec_text_printf(out,
                  "all: median %.2f %% p90 %.2f %% worst %.2f %% bias %+.2f %% (raw %.2f / %.2f / %.2f), %d of %d "
                  "points, %.1f %% interrupted\n",
                  100 * k->error.median, 100 * k->error.p90, 100 * k->error.worst, 100 * k->error.bias,
                  100 * k->raw.median, 100 * k->raw.p90, 100 * k->raw.bias, k->n_conclusive, k->n_points,
                  100 * k->disturbed);
  hec_text_printf(out, "tau %.3f; apart %.3f: %d pairs, %d wrong\n", k->kendall_tau, k->ranking.tau, k->ranking.pairs,
                  k->ranking.wrong);
  for (int32_t i = 0; i < k->n_controls; i++)
    hec_text_printf(out, "control %-14s n %3d median %.2f %% p90 %.2f %%\n", k->controls[i].control->name,
                    k->controls[i].n, 100 * k->controls[i].error.median, 100 * k->controls[i].error.p90);
}

static hec_status body(hec_rank *rank, void *context) {
  command *c = context;
  HEC_TRY(hec_session_run(&c->session, rank));
  if (rank->rank != 0)
    return HEC_OK;
  if (c->session.refused[0])
    return hec_rank_report(rank, HEC_FAILED, c->session.refused);
  hec_text text = {0};
  report(c, &text);
  hec_status status = hec_handover_put(&c->handover, &text);
  hec_text_free(&text);
  return status;
}

static void progress(void *context, const char *what, int32_t done, int32_t of) {
  (void)context;
  if (isatty(2))
    fprintf(stderr, "\r\033[K%s: %d of %d", what, done, of);
}

static hec_status launch(command *c) {
  const hec_launch_options options = {.n_ranks = c->job.problem.n_ranks,
                                      .pin = true,
                                      .transport = c->where.transport,
                                      .cluster = &c->job.cluster,
                                      .memory_bytes = hec_session_bytes(&c->session),
                                      .limit_s = c->s->where.limit_s};
  c->launched = true;
  HEC_TRY(c->where.backend->launch(&options, body, c));
  if (!c->where.backend->speaks())
    return HEC_OK;
  hec_text text = {0};
  HEC_TRY(hec_handover_rewind(&c->handover));
  HEC_TRY(hec_handover_get(&c->handover, &text));
  hec_status status = hec_output_print(&text);
  hec_text_free(&text);
  return status;
}

static hec_status run(command *c) {
  const settings *s = c->s;
  int32_t ranks = 0;
  hec_trace_reader *reader = NULL;
  hec_text kept = {0};
  hec_math_open();
  HEC_TRY(hec_where_open(&s->where, &c->where, &ranks));
  hec_status status = hec_job_args_open(s->trace, &kept, &reader);
  if (status == HEC_OK)
    status = make(c, reader, ranks);
  hec_machine_cpu(&c->cpu);
  if (status == HEC_OK) {
    const char *law = s->where.virtual_time ? "alpha_beta" : c->where.transport->law;
    const hec_session_options options = {.calibrate = {.model = &c->model,
                                                       .base = &c->job.cluster,
                                                       .n_ranks = c->job.problem.n_ranks,
                                                       .tokens = c->job.problem.tokens,
                                                       .train = c->job.problem.train,
                                                       .virtual_time = s->where.virtual_time,
                                                       .seed = (uint64_t)s->seed + 1000},
                                         .machine = {.name = "this machine",
                                                     .cpu = c->cpu.data,
                                                     .blas = hec_math_library(),
                                                     .backend = c->where.backend->name,
                                                     .transport = c->where.transport->name,
                                                     .n_cores = hec_machine_cores()},
                                         .compare = {.cases = c->cases,
                                                     .n_cases = c->n_policies,
                                                     .n_rounds = (int32_t)s->repeat,
                                                     .collective = c->collective,
                                                     .law = hec_law_find(law ? law : "alpha_beta")},
                                         .seed = (uint64_t)s->seed,
                                         .progress = progress};
    status = hec_session_open(&c->session, &options, &c->arena);
  }
  if (status == HEC_OK)
    status = hec_handover_open(&c->handover);
  if (status == HEC_OK)
    status = launch(c);
  hec_trace_close(reader);
  hec_text_free(&kept);
  return status;
}

int hec_compare_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_status status = parse(argc, argv, &s, &done);
  if (status != HEC_OK || done)
    return hec_tool_exit("hecate-validate", status);
  command c = {.s = &s, .handover = {-1}};
  s.where.ranks = s.job.ranks;
  status = run(&c);
  int code = hec_where_speaks(&c.where) ? hec_tool_exit("hecate-validate", status) : (int)status;
  hec_arena_free(&c.arena);
  hec_where_close(&c.where, code, c.launched);
  return code;
}
