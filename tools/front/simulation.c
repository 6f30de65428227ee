/* See simulation.h. */
#include "tools/front/simulation.h"

#include "models/training/dispatcher.h"
#include "runtime/base/progress.h"
#include "runtime/plan/cbc/cbc.h"
#include "tools/front/cross_check.h"
#include "tools/front/job_make.h"
#include "tools/front/machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const hec_run_option_words hec_simulation_words[] = {
    {"schedule", "S[,S...]",
     "best (default): each policy under its fastest; published: under that of its paper; or schedules of --list for "
     "all"},
    {"attention", "K[,K...]", NULL},
    {.key = NULL},
};

/* The one list of what no prediction has; laws add theirs (hec_law_limits). The first screen, --full, JSON and the page print it. */
static const char not_modelled[] = "pipeline parallelism, ZeRO, products in fp8, context parallelism, MFU (--layout "
                                   "has these), jitter of kernels, failures, data "
                                   "loading";
static const char no_kernels[] = "dispatch kernels as in DeepEP (--dispatcher has them)";

typedef struct {
  const hec_simulation_args *args;
  hec_trace_reader *reader;
  const hec_compare_options *options;
  hec_arena *arena;
  int32_t n_left_out; /* policies */
} runner;

/* With experts in shards not every policy runs: those asked for must, "all" means those that do, and says so. */
static hec_status choose_policies(const hec_job_options *args, hec_arena *arena, const hec_policy **policies,
                                  int32_t *n, int32_t *n_left) {
  HEC_TRY(hec_job_args_chosen(args, arena, policies, n));
  *n_left = 0;
  if (args->esp <= 1 || strcmp(args->policy, "all") != 0)
    return HEC_OK;
  int32_t n_all = *n;
  *n = 0;
  for (int32_t i = 0; i < n_all; i++)
    if (policies[i]->shards)
      policies[(*n)++] = policies[i];
  *n_left = n_all - *n;
  return HEC_OK;
}

static void say_left_out(const runner *r, hec_job *job) {
  HEC_SCOPED(hec_text) names = {0};
  for (int32_t i = 0; hec_policies[i]; i++)
    if (!hec_policies[i]->shards && (!hec_policies[i]->placed || r->args->job.placement))
      hec_text_printf(&names, "%s%s", names.length > 0 ? ", " : "", hec_policies[i]->name);
  hec_job_assume(job, r->arena, "policies: %" PRId32 " left out, which do not run with experts in shards (--esp): %s",
                 r->n_left_out, names.data);
}

/* One comparison, under one kind of attention (NULL: the model's). */
static hec_status compare(const runner *r, const char *attention, hec_job *job, hec_summary *summary) {
  hec_job_options wanted = r->args->job;
  wanted.attention = attention;
  wanted.solver = hec_solver_cbc();
  HEC_TRY(hec_job_make(&wanted, r->reader, r->arena, job));
  if (r->n_left_out > 0)
    say_left_out(r, job);
  if (!r->args->job.schedule)
    hec_job_assume(job, r->arena,
                   "schedule: each policy under the fastest that its paper does not exclude (--schedule published: its "
                   "own)");
  hec_job_note_groups(job, r->options->policies, r->options->n_policies, r->arena);
  hec_job_note_transitions(job, r->options->policies, r->options->n_policies, r->arena);
  hec_progress_stage("simulating", "iterations");
  hec_status status = hec_compare(job, r->reader, r->options, r->arena, summary);
  if (status == HEC_OK) {
    hec_job_note_tokens(job, summary->tokens, r->arena);
    hec_job_note_history(job, r->options->policies, r->options->n_policies, job->warmup + summary->n_iterations,
                         r->arena);
  }
  return status;
}

/* The kinds of attention after the first: only what the table of kinds says of them. The trace is at its begin again. */
static hec_status compare_others(const runner *r, const char *const *kind, int32_t n, hec_summary_attention *found) {
  for (int32_t k = 1; k < n; k++) {
    hec_job *job = HEC_NEW(r->arena, hec_job, 1);
    HEC_SCOPED(hec_summary) summary = {0};
    hec_status status = compare(r, kind[k], job, &summary);
    if (status == HEC_OK)
      found[k] = hec_summary_attention_of(&summary, r->arena);
    HEC_TRY(status);
    HEC_TRY(hec_trace_rewind(r->reader));
  }
  return HEC_OK;
}

/* Only of a file that can be read again quickly. */
static hec_status count_iterations(hec_trace_reader *reader, int64_t *n) {
  enum { BYTES_MAX = 1 << 28 };
  struct stat info;
  *n = 0;
  if (stat(hec_trace_origin(reader), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > BYTES_MAX)
    return HEC_OK;
  const hec_trace_record *record = NULL;
  int64_t last = -1;
  hec_progress_stage("reading the trace", "iterations");
  hec_status status = HEC_OK;
  while ((status = hec_trace_next(reader, &record)) == HEC_OK && record) {
    *n += record->iter != last;
    last = record->iter;
    hec_progress_at((double)*n, 0, 0);
  }
  return status == HEC_OK ? hec_trace_rewind(reader) : status;
}

hec_status hec_simulation_run(const hec_simulation_args *args, hec_trace_reader *reader, hec_arena *arena,
                              hec_simulation *simulation) {
  const hec_policy *policies[HEC_POLICIES_MAX];
  const char *kind[HEC_ATTENTIONS_MAX];
  int32_t n_kinds, n_policies, n_left_out;
  hec_job_rows rows;
  hec_compare_options *options = &simulation->options;
  hec_summary *summary = &simulation->summary;
  *options = (hec_compare_options){.check = args->check,
                                   .n_threads = args->threads > 0 ? (int32_t)args->threads : hec_machine_cores()};
  HEC_TRY(count_iterations(reader, &options->n_iterations));
  HEC_TRY(hec_job_args_law(args->job.law, &options->law));
  HEC_TRY(choose_policies(&args->job, arena, policies, &n_policies, &n_left_out));
  HEC_TRY(hec_job_args_rows(policies, n_policies, args->job.schedule ? args->job.schedule : "best", arena, &rows));
  options->policies = rows.policies;
  options->schedule = "best";
  options->schedules = rows.schedules;
  options->n_policies = rows.n;
  HEC_TRY(hec_job_args_collective(args->job.collective, &options->collective));
  HEC_TRY(hec_job_args_attentions(args->job.attention, arena, kind, &n_kinds));
  const runner r = {args, reader, options, arena, n_left_out};
  HEC_TRY(compare_others(&r, kind, n_kinds, simulation->attentions));
  HEC_TRY(compare(&r, kind[0], &simulation->job, summary));
  HEC_TRY(hec_cross_check(&simulation->job, reader, options, arena, summary));
  summary->tool = "hecate-sim " HEC_VERSION;
  summary->trace = hec_trace_origin(reader);
  HEC_SCOPED(hec_text) missing = {0};
  const hec_dispatcher *by = simulation->job.problem.dispatch.by;
  hec_text_printf(&missing, "%s, %s%s%s", not_modelled, by && by->part_s ? "" : no_kernels,
                  by && by->part_s ? "" : ", ", summary->not_modelled);
  summary->not_modelled = hec_args_with_flags(missing.data, arena);
  if (n_kinds > 1) {
    simulation->attentions[0] = hec_summary_attention_of(summary, arena);
    summary->attentions = simulation->attentions;
    summary->n_attentions = n_kinds;
  }
  return HEC_OK;
}

void hec_simulation_free(hec_simulation *simulation) {
  hec_summary_free(&simulation->summary);
}
