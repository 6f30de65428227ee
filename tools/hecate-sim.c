/* hecate-sim TRACE: every policy on a recorded trace, simulated, as one table (or JSON, CSV, timeline). Sub-commands:
 * plan, flows, sweep, breakeven. */
#include "runtime/base/temporary.h"
#include "runtime/report/report.h"
#include "sim/compare.h"
#include "tools/common/breakeven_command.h"
#include "tools/common/flows_command.h"
#include "tools/common/job_args.h"
#include "tools/common/machine.h"
#include "tools/common/output.h"
#include "tools/common/plan_command.h"
#include "tools/common/sweep_command.h"
#include "tools/common/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef HEC_VERSION
#define HEC_VERSION "0.1.0"
#endif

typedef struct {
  hec_job_args job;
  const char *trace, *out;
  bool json, list, check;
  int64_t timeline_iter, threads; /* 0: all cores */
} settings;

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.job = hec_job_args_default, .timeline_iter = -1};
  const hec_arg args[] = {
      HEC_JOB_ARG_ROWS(s->job),
      HEC_STRAGGLER_ARG_ROWS(s->job.stragglers),
      HEC_POLICY_ARG_ROWS(s->job),
      HEC_PLACEMENT_ARG_ROWS(s->job),
      {.name = "Simulation and output", .kind = HEC_ARG_SECTION},
      {"--law", HEC_ARG_TEXT, &s->job.law, "L",
       "network law of --list: alpha_beta (default), max_min (exact sharing, slower), nccl_rounds (bounded as in NCCL)",
       0, 0},
      {"--out", HEC_ARG_TEXT, &s->out, "DIR",
       "write report.html (a page for people, opens offline), summary.json, summary.csv and timeline.json (opens in "
       "Perfetto)",
       0, 0},
      {"--timeline-iter", HEC_ARG_INT, &s->timeline_iter, "I",
       "with --out: iteration to draw (default: of each policy the one nearest its median)", 0, HEC_ITER_MAX},
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document on stdout and nothing else", 0, 0},
      HEC_ARG_WHOLE("--threads", s->threads, "N", "threads, which share the policies (default: all cores)", 1, 1024),
      {"--check", HEC_ARG_FLAG, &s->check, NULL, "verify every program and timeline while running", 0, 0},
      {"--list", HEC_ARG_FLAG, &s->list, NULL, "list policies, schedules, collectives, laws and presets", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-sim",
      .usage = "hecate-sim TRACE [options]\n       hecate-sim COMMAND [options]",
      .summary = "Simulates a training iteration (or forward pass) of a Mixture-of-Experts model on recorded expert "
                 "loads under each\n"
                 "placement policy, and compares iteration time, exposed communication, traffic and memory.",
      .examples = "  hecate-sim traces/sample-synthetic.jsonl\n"
                  "  hecate-sim trace.jsonl.gz --cluster dgx-h100 --ranks 64 --policy ep,eplb,hecate --out result\n"
                  "  hecate-sim trace.jsonl --placement expert_map.json --policy eplb,hecate\n"
                  "  hecate-sim trace.jsonl --policy ep,hecate --schedule serial,pipemoe,hecate\n"
                  "  hecate-sim trace.jsonl --attention full,causal,s2:shards=8,local=512 --policy ep,hecate\n"
                  "  hecate-sim trace.jsonl --cluster \"4x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G\" --law "
                  "max_min --json\n\n" HEC_JOB_ARGS_FORMS,
      .args = args};
  int32_t n;
  HEC_TRY(hec_args_parse(&command, argc, argv, &s->trace, 1, &n, done));
  if (!*done && !s->list && n == 0)
    return hec_fail(HEC_BAD_INPUT, "expected a trace file; see hecate-sim --help");
  if (!*done && s->timeline_iter >= 0 && !s->out)
    return hec_fail(HEC_BAD_INPUT, "--timeline-iter: expected --out DIR beside it, found none");
  return HEC_OK;
}

static void show_progress(int64_t iterations, void *context) {
  (void)context;
  if (iterations % 16 == 0)
    fprintf(stderr, "\r%" PRId64 " iterations", iterations);
}

/* The page shows the iterations that the trace events are of. */
static void look(void *context, int32_t row, int64_t iter, const hec_lowering *low, const hec_timeline *timeline) {
  hec_report_draw(context, row, iter, low, timeline);
}

static hec_status write_out(const settings *s, const hec_job *job, hec_trace_reader *reader,
                            const hec_compare_options *options, hec_summary *summary) {
  hec_arena arena = {0};
  hec_output_files files = {0};
  hec_report report = hec_report_of(summary, &arena);
  const hec_compare_drawing drawing = {s->timeline_iter, look, &report};
  hec_summary_csv(summary, &files.csv);
  hec_summary_json(summary, &files.json);
  hec_status status = hec_trace_rewind(reader);
  if (status == HEC_OK)
    status = hec_compare_draw(job, reader, options, summary, &drawing, &files.timeline);
  if (status == HEC_OK)
    hec_report_write(&report, &files.page);
  if (status == HEC_OK)
    status = hec_output_write(s->out, &files);
  hec_output_free(&files);
  hec_report_free(&report);
  hec_arena_free(&arena);
  return status;
}

static hec_status print(const settings *s, hec_summary *summary) {
  hec_text text = {0};
  if (s->json)
    hec_summary_json(summary, &text);
  else
    hec_summary_table(summary, &text);
  if (!s->json && s->out)
    hec_output_mention(s->out, true, false, &text);
  hec_status status = hec_output_print(&text);
  hec_text_free(&text);
  return status;
}

typedef struct {
  const settings *s;
  hec_trace_reader *reader;
  const hec_compare_options *options;
  hec_arena *arena;
  int32_t n_left_out; /* policies */
} runner;

/* With experts in shards not every policy runs: those asked for must, "all" means those that do, and says so. */
static hec_status choose_policies(const hec_job_args *args, const hec_policy **policies, int32_t *n, int32_t *n_left) {
  HEC_TRY(hec_job_args_chosen(args, policies, n));
  *n_left = 0;
  if (args->esp <= 1 || strcmp(args->policies, "all") != 0)
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
  hec_text names = {0};
  for (int32_t i = 0; hec_policies[i]; i++)
    if (!hec_policies[i]->shards)
      hec_text_printf(&names, "%s%s", names.length > 0 ? ", " : "", hec_policies[i]->name);
  hec_job_say(job, r->arena, "policies: %" PRId32 " left out, which do not run with experts in shards (--esp): %s",
              r->n_left_out, names.data);
  hec_text_free(&names);
}

/* One comparison, under one kind of attention (NULL: the model's). */
static hec_status compare(const runner *r, const char *attention, hec_job *job, hec_summary *summary) {
  hec_job_options wanted;
  HEC_TRY(hec_job_args_options(&r->s->job, &wanted));
  wanted.attention = attention;
  HEC_TRY(hec_job_make(&wanted, r->reader, r->arena, job));
  if (r->n_left_out > 0)
    say_left_out(r, job);
  hec_status status = hec_compare(job, r->reader, r->options, r->arena, summary);
  if (r->options->progress)
    fprintf(stderr, "\r\033[K");
  return status;
}

/* The kinds of attention after the first: only what the table of kinds says of them. The trace is at its begin again. */
static hec_status compare_others(const runner *r, const char *const *kind, int32_t n, hec_summary_attention *found) {
  for (int32_t k = 1; k < n; k++) {
    hec_job *job = HEC_NEW(r->arena, hec_job, 1);
    hec_summary summary = {0};
    hec_status status = compare(r, kind[k], job, &summary);
    if (status == HEC_OK)
      found[k] = hec_summary_attention_of(&summary, r->arena);
    hec_summary_free(&summary);
    HEC_TRY(status);
    HEC_TRY(hec_trace_rewind(r->reader));
  }
  return HEC_OK;
}

static hec_status run(const settings *s, hec_trace_reader *reader, hec_arena *arena) {
  const hec_policy *policies[HEC_POLICIES_MAX];
  const char *kind[HEC_ATTENTIONS_MAX];
  hec_summary_attention attentions[HEC_ATTENTIONS_MAX];
  int32_t n_kinds, n_policies, n_left_out;
  hec_job_rows rows;
  hec_compare_options options = {.check = s->check,
                                 .n_threads = s->threads > 0 ? (int32_t)s->threads : hec_machine_cores()};
  HEC_TRY(hec_job_args_law(s->job.law, &options.law));
  HEC_TRY(choose_policies(&s->job, policies, &n_policies, &n_left_out));
  HEC_TRY(hec_job_args_rows(policies, n_policies, s->job.schedule, arena, &rows));
  options.policies = rows.policies;
  options.schedules = rows.schedules;
  options.n_policies = rows.n;
  HEC_TRY(hec_job_args_collective(s->job.collective, &options.collective));
  HEC_TRY(hec_job_args_attentions(s->job.attention, arena, kind, &n_kinds));
  if (s->out)
    HEC_TRY(hec_output_check(s->out));
  options.progress = isatty(STDERR_FILENO) == 1 ? show_progress : NULL;
  hec_job job;
  hec_summary summary = {0};
  const runner r = {s, reader, &options, arena, n_left_out};
  HEC_TRY(compare_others(&r, kind, n_kinds, attentions));
  hec_status status = compare(&r, kind[0], &job, &summary);
  summary.tool = "hecate-sim " HEC_VERSION;
  summary.trace = s->trace;
  if (status == HEC_OK && n_kinds > 1) {
    attentions[0] = hec_summary_attention_of(&summary, arena);
    summary.attentions = attentions;
    summary.n_attentions = n_kinds;
  }
  if (status == HEC_OK && s->out)
    status = write_out(s, &job, reader, &options, &summary);
  if (status == HEC_OK)
    status = print(s, &summary);
  hec_summary_free(&summary);
  return status;
}

static int compare_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_status status = parse(argc, argv, &s, &done);
  if (status != HEC_OK || done)
    return hec_tool_exit("hecate-sim", status);
  if (s.list) {
    hec_job_args_list();
    return hec_tool_exit("hecate-sim", HEC_OK);
  }
  hec_arena arena = {0};
  hec_trace_reader *reader = NULL;
  hec_text kept = {0};
  status = hec_job_args_open(s.trace, &kept, &reader);
  if (status == HEC_OK)
    status = run(&s, reader, &arena);
  hec_trace_close(reader);
  hec_text_free(&kept);
  hec_arena_free(&arena);
  return hec_tool_exit("hecate-sim", status);
}

static const hec_tool_command commands[] = {
    {"plan", "one plan: owners and copies of experts, tokens per rank, bytes moved", hec_plan_command, NULL},
    {"flows", "a bare set of flows, or a traffic matrix on a cluster: when each ends", hec_flows_command, NULL},
    {"sweep", "every configuration of a product, a row each", hec_sweep_command, NULL},
    {"sweep merge", "the parts of a sweep that was split over machines, joined", NULL, NULL},
    {"breakeven", "tokens above which a copy of an expert pays", hec_breakeven_command, NULL},
    {.name = NULL}};

int main(int argc, char **argv) {
  hec_output_hold_standard();
  hec_temporary_watch_signals();
  const hec_tool tool = {.name = "hecate-sim",
                         .summary = "simulates expert placement policies on recorded loads, and compares them",
                         .commands = commands,
                         .run = compare_command};
  return hec_tool_main(&tool, argc, argv);
}
