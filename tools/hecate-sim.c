/* hecate-sim TRACE: every policy on a recorded trace, simulated, as one table (or JSON, CSV, timeline). Sub-commands:
 * plan, flows, sweep, breakeven. */
#include "models/gpu.h"
#include "runtime/base/progress.h"
#include "runtime/base/temporary.h"
#include "tools/front/colour.h"
#include "tools/front/compare_draw.h"
#include "tools/front/machine.h"
#include "tools/front/output.h"
#include "tools/front/page/report.h"
#include "tools/front/simulation.h"
#include "tools/front/summary/summary_write.h"
#include "tools/front/timeline_files.h"
#include "tools/front/tool.h"
#include "tools/front/training/training_summary.h"
#include "tools/sim/sim_commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  hec_simulation_args simulation;
  hec_training_args training;
  const char *trace, *out, *format, *preset;
  const hec_timeline_format *timelines;
  bool json, list, full;
  int64_t timeline_iter;
} settings;

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.simulation = HEC_SIMULATION_ARGS, .training = HEC_TRAINING_ARGS, .timeline_iter = -1};
  const hec_arg args[] = {
      HEC_SIMULATION_ARG_ROWS(s->simulation),
      HEC_ARG_TRAINING("Training job: layout, batch, recipe", s->training),
      HEC_ARG_TITLE("Output"),
      {"--out", HEC_ARG_TEXT, &s->out, "DIR",
       "write report.html (a page for people, opens offline), summary.json, summary.csv and timeline.json (opens in "
       "Perfetto)",
       0, 0},
      {"--timeline-iter", HEC_ARG_INT, &s->timeline_iter, "I",
       "with --out: iteration to draw (default: of each policy the one nearest its median)", 0, HEC_ITER_MAX},
      HEC_TIMELINE_FORMAT_ARG(s->format),
      {"--full", HEC_ARG_FLAG, &s->full, NULL, "print every policy, where its time goes, and every assumption", 0, 0},
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document on stdout and nothing else", 0, 0},
      {"--list", HEC_ARG_FLAG, &s->list, NULL,
       "list policies, schedules, collectives, laws and presets; --list policies: a table in Markdown; --list devices: "
       "GPUs, what is measured of each, and the error",
       0, 0},
      {"--preset", HEC_ARG_TEXT, &s->preset, "NAME",
       "print a preset of --list, a model, a cluster, setup-NAME or recipe-NAME, as JSON: a form for a file of your "
       "own",
       0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-sim",
      .usage = "hecate-sim TRACE [options]\n       hecate-sim COMMAND [options]",
      .summary = "Simulates a training iteration (or forward pass) of a Mixture-of-Experts model on recorded expert "
                 "loads under each\n"
                 "placement policy, and compares iteration time, communication that nothing hides, traffic and memory.",
      .examples =
          "  hecate-sim traces/sample-synthetic.jsonl\n"
          "  hecate-sim trace.jsonl.gz --cluster dgx-h100 --ranks 64 --policy ep,eplb,hecate --out result\n"
          "  hecate-sim trace.jsonl --layout \"pp=8 ep=8\" --cluster \"16x8 gpu=h100 nics=8\" --global-batch 1024\n"
          "  hecate-sim --preset setup-deepseek-v3-2048-h800\n"
          "  hecate-sim trace.jsonl --placement expert_map.json --policy eplb,hecate\n"
          "  hecate-sim trace.jsonl --policy ep,hecate --schedule serial,pipemoe,hecate\n"
          "  hecate-sim trace.jsonl --attention full,causal,s2:shards=8,local=512 --policy ep,hecate\n"
          "  hecate-sim trace.jsonl --cluster \"4x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G\" --law "
          "max_min --json",
      .notes = HEC_JOB_ARGS_FORMS,
      .first = "--cluster --model --ranks --tokens --policy --placement --layout --out --full --list",
      .args = args};
  int32_t n;
  HEC_TRY(hec_args_parse(&command, argc, argv, &s->trace, 1, &n, done));
  if (!*done && !s->list && !s->preset && n == 0)
    return hec_fail(HEC_BAD_INPUT, "expected a trace file; see hecate-sim --help");
  if (!*done && s->timeline_iter >= 0 && !s->out)
    return hec_fail(HEC_BAD_INPUT, "--timeline-iter: expected --out DIR beside it, found none");
  if (!*done && !hec_set_up_wanted(&s->training))
    HEC_TRY(hec_set_up_unwanted(&s->training));
  return *done ? HEC_OK : hec_timeline_format_arg(s->format, s->out, &s->timelines);
}

/* The page shows the iterations that the trace events are of. */
static void look(void *context, int32_t row, int64_t iter, const hec_lowering *low, const hec_timeline *timeline) {
  hec_report_draw(context, row, iter, low, timeline);
}

static hec_status write_out(const settings *s, const hec_job *job, hec_trace_reader *reader,
                            const hec_compare_options *options, hec_summary *summary) {
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_SCOPED(hec_output_files) files = {0};
  HEC_SCOPED(hec_report) report = hec_report_of(summary, &arena);
  const hec_compare_drawing drawing = {s->timeline_iter, look, &report};
  hec_summary_csv(summary, &files.csv);
  hec_summary_json(summary, &files.json);
  hec_timeline_files by_rank = {.out = s->out, .format = s->timelines};
  const hec_timeline_out to = {s->timelines, &files.timeline, hec_timeline_files_put, &by_rank};
  hec_progress_stage("drawing the timelines", NULL);
  hec_status status = hec_trace_rewind(reader);
  if (status == HEC_OK)
    status = hec_timeline_files_begin(&by_rank);
  if (status == HEC_OK)
    status = hec_compare_draw(job, reader, options, summary, &drawing, &to);
  if (status == HEC_OK)
    hec_report_write(&report, &files.page);
  status = hec_timeline_files_finish(&by_rank, status, &files);
  return status;
}

static void add_first_screen(const settings *s, hec_summary *summary, hec_text *out) {
  HEC_SCOPED(hec_text) more = {0};
  hec_text_add(&more, "--full prints every row, where the time goes, and notes of policies");
  if (!s->out)
    hec_text_add(&more, "; --out DIR writes a page with charts, JSON, CSV and a timeline");
  hec_summary_first_screen(summary, more.data, out);
}

/* Frees the text. */
static hec_status print_text(const settings *s, hec_text *text) {
  if (!s->json && s->out)
    hec_output_mention(s->out, true, false, s->timelines, text);
  hec_status status = hec_output_print(text);
  hec_text_free(text);
  return status;
}

static hec_status print(const settings *s, hec_summary *summary) {
  hec_text text = {0};
  if (s->json)
    hec_summary_json(summary, &text);
  else if (s->full)
    hec_summary_table(summary, &text);
  else
    add_first_screen(s, summary, &text);
  return print_text(s, &text);
}

static hec_status check_out(const settings *s) {
  hec_path_use reads[HEC_JOB_READS + 1];
  hec_job_args_reads(&s->simulation.job, s->trace, reads);
  reads[HEC_JOB_READS] = (hec_path_use){"--setup", s->training.setup, false};
  return hec_timeline_files_check(&(hec_timeline_files){.out = s->out, .format = s->timelines}, reads,
                                  HEC_JOB_READS + 1);
}

static hec_status run(const settings *s, hec_trace_reader *reader, hec_arena *arena) {
  HEC_SCOPED(hec_simulation) simulation = {.summary = {0}};
  if (s->out)
    HEC_TRY(check_out(s));
  hec_status status = hec_simulation_run(&s->simulation, reader, arena, &simulation);
  simulation.summary.trace = s->trace;
  if (status == HEC_OK && s->out)
    status = write_out(s, &simulation.job, reader, &simulation.options, &simulation.summary);
  if (status == HEC_OK)
    status = print(s, &simulation.summary);
  return status;
}

/* A training step instead of an iteration of one group: --layout, --setup. */
static hec_status run_training(const settings *s, hec_trace_reader *reader, hec_arena *arena) {
  const hec_policy *policies[HEC_POLICIES_MAX];
  hec_set_up *set_up = HEC_NEW(arena, hec_set_up, 1);
  hec_training_summary summary;
  hec_text text = {0};
  int32_t n;
  if (s->timeline_iter >= 0)
    return hec_fail(HEC_BAD_INPUT, "--timeline-iter: a training job draws a whole step; leave it out");
  if (s->out)
    HEC_TRY(check_out(s));
  HEC_TRY(hec_job_args_chosen(&s->simulation.job, arena, policies, &n));
  HEC_TRY(hec_set_up_make(&s->training, &s->simulation.job, reader, arena, set_up));
  const hec_training_choice choice = {.policies = policies,
                                      .n_policies = n,
                                      .n_threads = s->simulation.threads > 0 ? (int32_t)s->simulation.threads
                                                                             : hec_machine_cores(),
                                      .warmup = s->simulation.job.warmup};
  HEC_TRY(hec_training_compare(set_up, &choice, reader, arena, &summary));
  summary.tool = "hecate-sim " HEC_VERSION;
  summary.trace = s->trace;
  if (s->out)
    HEC_TRY(hec_training_write_out(&summary, s->out, s->timelines));
  if (s->json)
    hec_training_json(&summary, &text);
  else
    hec_training_screen(&summary, s->full, &text);
  return print_text(s, &text);
}

static hec_status list(const char *what) {
  if (!what)
    hec_job_args_list();
  else if (strcmp(what, "policies") == 0)
    hec_job_args_list_policies();
  else if (strcmp(what, "devices") != 0)
    return hec_fail(HEC_BAD_INPUT, "--list: expected nothing, \"policies\" or \"devices\" beside it, found \"%s\"",
                    what);
  else {
    HEC_SCOPED(hec_text) text = {0};
    hec_status status = hec_gpu_list(&text);
    if (status == HEC_OK)
      status = hec_output_print(&text);
    return status;
  }
  return HEC_OK;
}

static int compare_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_status status = parse(argc, argv, &s, &done);
  if (status != HEC_OK || done)
    return hec_tool_exit("hecate-sim", status);
  if (s.list)
    return hec_tool_exit("hecate-sim", list(s.trace));
  if (s.preset)
    return hec_tool_exit("hecate-sim", hec_job_args_print_preset(s.preset));
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  HEC_SCOPED(hec_text) kept = {0};
  status = hec_job_args_open(s.trace, &kept, &reader);
  if (status == HEC_OK && hec_set_up_wanted(&s.training))
    status = run_training(&s, reader, &arena);
  else if (status == HEC_OK)
    status = run(&s, reader, &arena);
  return hec_tool_exit("hecate-sim", status);
}

static const hec_tool_command commands[] = {
    {"recommend", "the fastest layout that fits, the policy it wants, and why others lose", hec_recommend_command,
     NULL},
    {"plan", "one plan: owners and copies of experts, tokens per rank, bytes moved", hec_plan_command, NULL},
    {"flows", "a bare set of flows, or a traffic matrix on a cluster: when each ends", hec_flows_command, NULL},
    {"sweep", "every configuration of a product, a row each", hec_sweep_command, NULL},
    {"sweep merge", "the files of a sweep that was split over machines, joined", NULL, NULL},
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
