/* hecate-validate compare: calibrates (or takes a calibration), predicts, executes, reports. One launch does all of it, so
 * that under a process manager every process knows the calibration. */
#include "tools/front/job_make.h"
#include "tools/front/output.h"
#include "tools/front/timeline_files.h"
#include "tools/validate/session_run.h"
#include "tools/validate/validate_commands.h"
#include "validate/calibrate/calibration_file.h"
#include "validate/configurations.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 6, RANDOM_STEPS = 1, WARMUP_STEPS = 1 };

typedef struct {
  hec_session_args session;
  const char *out, *calibration, *stamp, *format;
  const hec_timeline_format *timelines;
  int64_t steps, random;
  bool json;
} settings;

typedef struct {
  const settings *s;
  hec_session_run_state run;
  const hec_policy *policies[HEC_POLICIES_MAX];
  int32_t n_policies;
  hec_recording recording;
  hec_problem problem;        /* of the trace's cases */
  hec_experiment_case *cases; /* [n_cases] */
  int32_t n_cases;
  hec_calibration_file given;
  hec_text line; /* the command line */
} command;

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.session = hec_session_args_default()};
  const hec_arg args[] = {
      HEC_ARG_JOB("What runs", s->session.job, HEC_OPTIONS_SESSION, hec_session_words),
      HEC_ARG_WHOLE("--steps", s->steps, "N",
                    "iterations of each policy that are compared, after one of warm-up (default 6; with --random 1)", 1,
                    100000),
      HEC_ARG_WHOLE("--random", s->random, "N",
                    "N random configurations (tokens, top-k, skew, policy) instead of a trace's iterations", 1, 1000),
      HEC_SESSION_TIME_ROWS(s->session, "2m; all policies: give 6m"),
      HEC_ARG_WHOLE("--seed", s->session.seed, "N", "of weights, orders, made-up loads and configurations (default 1)",
                    0, HEC_ITER_MAX - 1e6),
      HEC_ARG_JOB("Policies", s->session.job, HEC_OPTIONS_POLICY " nonmoe_scale", NULL),
      HEC_SESSION_TARGET_ROWS(s->session),
      HEC_ARG_WORD(
          "--calibration", s->calibration, "FILE",
          "of calibrate --out with the same --model, --esp, --ranks, --backend, --transport, --precision and --cluster "
          "(default: calibrate now)"),
      HEC_ARG_TITLE("Output"),
      HEC_ARG_WORD("--out", s->out, "DIR",
                   "write report.html (opens offline), summary.json, summary.csv (a line per iteration), compare.md "
                   "and timeline.json (predicted and measured lanes side by side, opens in Perfetto)"),
      HEC_TIMELINE_FORMAT_ARG(s->format),
      HEC_ARG_WORD("--stamp", s->stamp, "TEXT",
                   "with --out: a line for the head of compare.md, such as date and commit"),
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document on stdout and nothing else", 0, 0},
      {.name = NULL}};
  const hec_command text = {
      .program = "hecate-validate compare",
      .usage = "hecate-validate compare TRACE [options]\n       hecate-validate compare --random N [options]",
      .summary =
          "Predicts iterations and executes them on this machine, side by side: laws are fitted to calibration cases\n"
          "that are executed in turn with what is predicted, never to what is predicted. Errors by policy and by\n"
          "kind of operation with their intervals, ranking of the policies, negative controls. It never refuses a\n"
          "busy machine: it says how disturbed it was, and which policies it cannot tell apart. Two minutes at most\n"
          "(--within), enough for three policies on two cores; give all policies six.\n\n"
          "Which --transport answers which question:\n"
          "  shm             how well computing and this machine's memory are predicted\n"
          "  emulated        computing, waiting and order under links that are known (--cluster)\n"
          "  paced           the same on a real TCP stack (no latency; of a message some 60 to 100 kB pass unpaced)\n"
          "  nccl            of backend nccl: computing and NCCL on this machine's GPUs, one to a rank\n"
          "  local           of backend nccl: with --virtual computing, one operation at a time; without it ranks "
          "that\n"
          "                  share a GPU work at once, which no prediction describes\n"
          "None of them says how well a cluster's network is predicted.\n\n"
          "Exit code 1: a run failed. Large errors and a wrong ranking are printed and are no failure:\n"
          "hecate-validate gate judges.",
      .examples = "  hecate-validate compare traces/charlm-e16-noaux.jsonl.gz --transport emulated --out result\n"
                  "  hecate-validate compare --random 24 --within 4m --json\n"
                  "  mpirun -n 2 hecate-validate compare trace.jsonl --backend mpi\n"
                  "  hecate-validate compare trace.jsonl --backend nccl --virtual",
      .notes = HEC_JOB_ARGS_FORMS,
      .first = "--cluster --model --ranks --tokens --steps --within --policy --backend --transport --out",
      .args = args};
  int32_t n;
  HEC_TRY(hec_args_parse(&text, argc, argv, &s->session.trace, 1, &n, done));
  *done = *done || hec_session_run_list(&s->session);
  if (*done)
    return HEC_OK;
  if (n == 0 && s->random == 0)
    return hec_fail(HEC_BAD_INPUT, "expected a trace file, or --random N; see hecate-validate compare --help");
  if (s->stamp && !s->out)
    return hec_fail(HEC_BAD_INPUT, "--stamp: expected --out DIR beside it, found none");
  s->session.target.ranks = s->session.job.ranks;
  return hec_timeline_format_arg(s->format, s->out, &s->timelines);
}

/* As a shell takes it back: in quotes unless it is plain, a quote in it as '\'' */
static void add_word(const char *word, hec_text *line) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (word[0] != 0 && word[strspn(word, plain)] == 0) {
    hec_text_add(line, word);
    return;
  }
  size_t at = line->length;
  hec_text_add(line, "'");
  for (; *word; word++)
    hec_text_add_bytes(line, *word == '\'' ? "'\\''" : word, *word == '\'' ? 4 : 1);
  hec_text_add(line, "'");
  hec_make_plain(line->data + at);
}

/* Kept is what the numbers depend on: not where they are written, nor how. */
static bool is_dropped(const char *word, int *i) {
  static const char *const names[] = {"--out", "--stamp", "--timeline-format"};
  for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
    size_t n = strlen(names[k]);
    if (strncmp(word, names[k], n) != 0 || (word[n] != 0 && word[n] != '='))
      continue;
    *i += word[n] == 0; /* its value is the next word */
    return true;
  }
  return strcmp(word, "--json") == 0;
}

static void keep_line(int argc, char **argv, hec_text *line) {
  hec_text_add(line, "hecate-validate");
  for (int i = 0; i < argc; i++) {
    if (is_dropped(argv[i], &i))
      continue;
    hec_text_add(line, " ");
    add_word(argv[i], line);
  }
}

/* ---- What is compared ---- */

static hec_status draw_random(command *c) {
  const settings *s = c->s;
  const hec_problem *p = &c->run.job.problem;
  int32_t steps = s->steps > 0 ? (int32_t)s->steps : RANDOM_STEPS;
  hec_configurations o = {.model = &c->run.model,
                          .cluster = &c->run.job.cluster,
                          .policies = c->policies,
                          .n_policies = c->n_policies,
                          .schedule = s->session.job.schedule,
                          .n_ranks = p->n_ranks,
                          .tokens = p->tokens,
                          .ep = p->esp > 1 ? 0 : p->ep,
                          .esp = p->esp,
                          .n_steps = steps + WARMUP_STEPS,
                          .warmup = WARMUP_STEPS,
                          .train = p->train,
                          .seed = (uint64_t)s->session.seed};
  c->n_cases = (int32_t)s->random;
  c->cases = HEC_NEW(&c->run.arena, hec_experiment_case, c->n_cases);
  return hec_configurations_draw(&o, c->n_cases, &c->run.arena, c->cases);
}

static hec_status read_trace(command *c) {
  const settings *s = c->s;
  hec_job *job = &c->run.job;
  int32_t wanted = (s->steps > 0 ? (int32_t)s->steps : STEPS) + WARMUP_STEPS;
  HEC_TRY(hec_execution_steps(job, c->run.reader, wanted, true, &c->run.arena, &c->recording));
  if (c->recording.n_steps <= WARMUP_STEPS)
    return hec_fail(HEC_BAD_INPUT, "%s: expected at least %d iterations, one of them to warm up, found %" PRId32,
                    s->session.trace, WARMUP_STEPS + 1, c->recording.n_steps);
  if (s->steps == 0)
    hec_job_assume(job, &c->run.arena,
                   "iterations: %" PRId32 " of the trace, after %d that warms up; choose with --steps",
                   c->recording.n_steps - WARMUP_STEPS, WARMUP_STEPS);
  c->problem = job->problem;
  c->n_cases = c->n_policies;
  c->cases = HEC_NEW(&c->run.arena, hec_experiment_case, c->n_cases);
  for (int32_t p = 0; p < c->n_cases; p++) {
    c->cases[p] = (hec_experiment_case){.model = &c->run.model,
                                        .problem = &c->problem,
                                        .policy = c->policies[p],
                                        .schedule = s->session.job.schedule,
                                        .steps = c->recording.steps,
                                        .n_steps = c->recording.n_steps,
                                        .n_micro_batches = c->recording.n_micro_batches,
                                        .warmup = WARMUP_STEPS};
    (void)snprintf(c->cases[p].name, sizeof c->cases[p].name, "%s", c->policies[p]->name);
  }
  return HEC_OK;
}

static hec_status take_calibration(command *c) {
  const settings *s = c->s;
  const hec_calibration_need need = {.cpu = c->run.execution.cpu.data,
                                     .library = c->run.execution.library.data,
                                     .backend = c->run.target.backend->name,
                                     .transport = hec_session_run_carrier(&c->run),
                                     .problem = &c->run.job.problem};
  HEC_TRY(hec_calibration_read(s->calibration, &need, &c->run.arena, &c->given));
  if (c->given.other_cpu)
    hec_job_assume(&c->run.job, &c->run.arena, "calibration: of another %s than this one holds here",
                   c->run.target.link ? "device" : "CPU");
  return HEC_OK;
}

/* ---- What is said ---- */

/* What is printed, then the files. */
static hec_status hand_over(hec_handover *handover, bool put, bool files, hec_text *shown, hec_output_files *f) {
  hec_text *const texts[] = {shown, &f->json, &f->csv, &f->report, &f->page, &f->timeline};
  return hec_handover_texts(handover, put, texts, files ? 6 : 1);
}

/* On rank 0. */
static hec_status report(void *context, hec_handover *handover) {
  command *c = context;
  const settings *s = c->s;
  const hec_session_report report = {.session = &c->run.session,
                                     .head = &c->run.head,
                                     .random = s->random > 0,
                                     .command = c->line.data,
                                     .stamp = s->stamp,
                                     .given_file = s->calibration,
                                     .given_summary = c->given.summary,
                                     .given_cases = c->given.cases,
                                     .n_given_cases = c->given.n_cases};
  hec_text shown = {0};
  hec_output_files files = {.timeline = c->run.session.comparison.events};
  c->run.session.comparison.events = (hec_text){0};
  hec_doc_write(hec_compare_report, &report, s->json ? HEC_DOC_JSON : HEC_DOC_TEXT, 2, &shown);
  if (s->out) {
    hec_doc_write(hec_compare_report, &report, HEC_DOC_JSON, 2, &files.json);
    hec_doc_write(hec_compare_report, &report, HEC_DOC_MARKDOWN, 2, &files.report);
    hec_compare_csv(&report, &files.csv);
    hec_compare_page(&report, &files.page);
  }
  hec_status status = hand_over(handover, true, s->out, &shown, &files);
  hec_output_free(&files);
  return status;
}

/* Where the session was started. */
static hec_status take(void *context, hec_handover *handover) {
  const settings *s = ((command *)context)->s;
  hec_text text = {0};
  hec_output_files files = {0};
  hec_status status = hand_over(handover, false, s->out, &text, &files);
  if (status == HEC_OK && s->out)
    status = hec_timeline_write_out(s->out, s->timelines, &files);
  if (status == HEC_OK && s->out && !s->json)
    hec_output_mention(s->out, true, true, s->timelines, &text);
  if (status == HEC_OK)
    status = hec_output_print(&text);
  hec_output_free(&files);
  hec_text_free(&text);
  return status;
}

static hec_status run(command *c) {
  const settings *s = c->s;
  HEC_TRY(hec_session_run_open(&c->run));
  HEC_TRY(hec_execution_policies(&s->session.job, &c->run.job, &c->run.arena, c->policies, &c->n_policies));
  hec_job_say_groups(&c->run.job, c->policies, c->n_policies, &c->run.arena);
  hec_job_say_transitions(&c->run.job, c->policies, c->n_policies, &c->run.arena);
  HEC_TRY(s->random > 0 ? draw_random(c) : read_trace(c));
  if (s->calibration)
    HEC_TRY(take_calibration(c));
  hec_execution_mind(&c->run.execution, s->random > 0 ? "loads, weights and tokens are made up"
                                                      : "routing is the trace's; weights and tokens are made up");
  const hec_comparison_options compare = {.cases = c->cases,
                                          .n_cases = c->n_cases,
                                          .collective = c->run.collective,
                                          .law = hec_law_find(c->run.head.law),
                                          .timelines = s->out ? s->timelines : NULL,
                                          .pack = hec_timeline_pack};
  return hec_session_run_launch(&c->run, &compare, s->calibration ? &c->given.cluster : NULL,
                                c->given.other_cpu ? 0 : c->given.probe_s, take);
}

int hec_compare_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_status status = parse(argc, argv, &s, &done);
  if (status != HEC_OK || done)
    return hec_tool_exit("hecate-validate", status);
  command c = {.s = &s,
               .run = {.tool = "hecate-validate compare " HEC_VERSION,
                       .args = &s.session,
                       .folder = s.out,
                       .timelines = s.timelines,
                       .calibration = s.calibration,
                       .report = report}};
  c.run.context = &c;
  keep_line(argc, argv, &c.line);
  int code = hec_session_run_close(&c.run, run(&c));
  hec_text_free(&c.line);
  return code;
}
