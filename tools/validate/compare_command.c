/* hecate-validate compare: calibrates (or takes a calibration), predicts, executes, reports. One launch does all of it, so
 * that under a process manager every process knows the calibration. */
#include "runtime/program/job.h"
#include "tools/front/job_make.h"
#include "tools/front/output.h"
#include "tools/front/stages.h"
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
  hec_training_args training; /* of it: layout, pipeline, zero */
  int32_t micro_batches;      /* of a step; 0: not said */
  bool chose_ranks, chose_layers;
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
  hec_problem problem; /* of the trace's cases */
  hec_stages stages;   /* with --layout */
  hec_job stage_job;   /* likewise: of a stage's ranks */
  hec_text layout;
  hec_experiment_case *cases; /* [n_cases] */
  int32_t n_cases;
  hec_calibration_file given;
  hec_text line; /* the command line */
} command;

static const hec_run_option_words layout_words[] = {
    {"layout", NULL,
     "compare training steps in pipeline stages: \"pp=2 vpp=2\"; ranks = pp x dp, each with a core of its own"},
    {"pipeline", NULL, "with --layout: gpipe, 1f1b (default) or interleaved (default with virtual stages)"},
    {"zero", NULL, "with --layout: 1 shards optimizer state over the ranks of a stage (ZeRO-1; default 0)"},
    {.key = NULL},
};

/* What the layout asks of the session: ranks for all stages, a layer for each part. */
static hec_status parse_layout(settings *s) {
  hec_layout l;
  const struct {
    bool given;
    const char *why;
  } refused[] = {
      {s->random > 0, "--random: expected a trace beside --layout"},
      {s->session.target.virtual,
       "--virtual: is not there for pipeline stages yet: choose a layout of as many ranks as cores"},
      {strcmp(s->session.target.backend, "nccl") == 0, "--backend: expected cpu or mpi beside --layout, found nccl"},
  };
  if (!s->training.layout && (s->training.pipeline || s->training.zero >= 0 || s->session.job.micro_batches > 0))
    return hec_fail(HEC_BAD_INPUT, "%s: expected --layout beside it, found none",
                    s->training.pipeline    ? "--pipeline"
                    : s->training.zero >= 0 ? "--zero"
                                            : "--micro-batches");
  if (!s->training.layout)
    return HEC_OK;
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
    if (refused[i].given)
      return hec_fail(HEC_BAD_INPUT, "%s", refused[i].why);
  HEC_TRY(hec_layout_read(s->training.layout, &l));
  s->chose_ranks = s->session.job.ranks == 0;
  s->chose_layers = s->session.job.layers == 0;
  s->micro_batches = s->session.job.micro_batches;
  s->session.job.micro_batches = 0; /* the calibration's iterations have one */
  if (s->chose_ranks && (int64_t)l.pp * l.ep <= HEC_RANKS_MAX)
    s->session.job.ranks = l.pp * l.ep;
  if (s->chose_layers)
    s->session.job.layers = hec_stages_layers(&l, HEC_SESSION_LAYERS);
  return HEC_OK;
}

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.session = hec_session_args_default(), .training = HEC_TRAINING_ARGS};
  const hec_arg args[] = {
      HEC_ARG_JOB("What runs", s->session.job, HEC_OPTIONS_SESSION " micro_batches", hec_session_words),
      HEC_ARG_WHOLE("--steps", s->steps, "N",
                    "iterations of each policy that are compared, after one of warm-up (default 6; with --random 1)", 1,
                    100000),
      HEC_ARG_WHOLE("--random", s->random, "N",
                    "N random configurations (tokens, top-k, skew, policy) instead of a trace's iterations", 1, 1000),
      HEC_SESSION_TIME_ROWS(s->session, "2m; all policies: give 6m"),
      HEC_ARG_WHOLE("--seed", s->session.seed, "N", "of weights, orders, made-up loads and configurations (default 1)",
                    0, HEC_ITER_MAX - 1e6),
      HEC_ARG_USE("Pipeline stages", &s->training, hec_training_rows, HEC_N_TRAINING_OPTIONS, "layout pipeline zero",
                  layout_words),
      HEC_ARG_JOB("Policies", s->session.job, HEC_OPTIONS_POLICY " nonmoe_scale law", hec_session_words),
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
          "None of them says how well a cluster's network is predicted. With --backend mpi the network is what MPI "
          "runs\n"
          "on: tools/hosts makes hosts with shaped links on one machine.\n\n"
          "Exit code 1: a run failed. Large errors and a wrong ranking are printed and are no failure:\n"
          "hecate-validate gate judges.",
      .examples = "  hecate-validate compare traces/charlm-e16-noaux.jsonl.gz --transport emulated --out result\n"
                  "  hecate-validate compare trace.jsonl --layout \"pp=2 vpp=2\" --policy ep\n"
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
  HEC_TRY(parse_layout(s));
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

/* Stages of the session's ranks: another job, since records are spread over the ranks of one stage. */
static hec_status make_stages(command *c) {
  const settings *s = c->s;
  hec_job *job = &c->run.job, *stage = &c->stage_job;
  hec_arena *arena = &c->run.arena;
  hec_job_options asked = s->session.job, of_stage;
  asked.ranks = job->problem.n_ranks;
  asked.layers = job->moe.n_layers;
  asked.tokens = job->problem.tokens;
  asked.cluster = job->cluster_spec;
  asked.micro_batches = s->micro_batches;
  HEC_TRY(hec_stages_open(&s->training, &asked, 0, c->run.reader, &c->stages, &of_stage));
  HEC_TRY(hec_job_make_executed(&of_stage, c->run.reader, arena, stage));
  int32_t before = stage->n_defaults;
  HEC_TRY(hec_stages_make(&asked, arena, stage, &c->stages));
  HEC_TRY(hec_stages_policies(&c->stages, &asked, stage, arena, c->policies, &c->n_policies));
  if (s->chose_ranks)
    hec_job_assume(stage, arena, "ranks: %" PRId32 ", as few as the layout can have; choose with --ranks", asked.ranks);
  if (s->chose_layers)
    hec_job_assume(stage, arena, "layers: %" PRId32 ", the first of the trace; choose with --layers", asked.layers);
  for (int32_t i = before; i < stage->n_defaults; i++)
    hec_job_assume(job, arena, "%s", stage->defaults[i]);
  hec_layout_write(&c->stages.layout, &c->layout);
  hec_text_add(&c->layout, c->stages.zero ? ", ZeRO-1" : "");
  hec_text_printf(&c->layout, ", %" PRId32 " micro-batches", c->stages.order.shape.n_micro_batches);
  return HEC_OK;
}

static hec_status read_records(command *c, int32_t wanted) {
  hec_job *job = &c->run.job;
  c->problem = job->problem;
  if (!c->s->training.layout)
    return hec_execution_steps(job, c->run.reader, wanted, true, &c->run.arena, &c->recording);
  HEC_TRY(make_stages(c));
  c->problem = c->stage_job.problem;
  return hec_stages_steps(&c->stages, wanted, &c->stage_job, c->run.reader, &c->run.arena, &c->recording);
}

static hec_status read_trace(command *c) {
  const settings *s = c->s;
  hec_job *job = &c->run.job;
  int32_t wanted = (s->steps > 0 ? (int32_t)s->steps : STEPS) + WARMUP_STEPS;
  HEC_TRY(read_records(c, wanted));
  if (c->recording.n_steps <= WARMUP_STEPS)
    return hec_fail(HEC_BAD_INPUT, "%s: expected at least %d iterations, one of them to warm up, found %" PRId32,
                    s->session.trace, WARMUP_STEPS + 1, c->recording.n_steps);
  if (s->steps == 0)
    hec_job_assume(job, &c->run.arena,
                   "iterations: %" PRId32 " of the trace, after %d that warms up; choose with --steps",
                   c->recording.n_steps - WARMUP_STEPS, WARMUP_STEPS);
  c->n_cases = c->n_policies;
  c->cases = HEC_NEW(&c->run.arena, hec_experiment_case, c->n_cases);
  for (int32_t p = 0; p < c->n_cases; p++) {
    c->cases[p] = (hec_experiment_case){.model = &c->run.model,
                                        .problem = &c->problem,
                                        .policy = c->policies[p],
                                        .schedule = s->training.layout ? "serial" : s->session.job.schedule,
                                        .order = s->training.layout ? &c->stages.order : NULL,
                                        .layer_at = c->stages.layer_at,
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
                                     .layout = s->training.layout ? c->layout.data : NULL,
                                     .command = c->line.data,
                                     .stamp = s->stamp,
                                     .given_file = s->calibration,
                                     .given_summary = c->given.summary,
                                     .given_cases = c->given.cases,
                                     .n_given_cases = c->given.n_cases};
  hec_text shown = {0};
  HEC_SCOPED(hec_output_files) files = {.timeline = c->run.session.comparison.events};
  c->run.session.comparison.events = (hec_text){0};
  hec_doc_write(hec_compare_report, &report, s->json ? HEC_DOC_JSON : HEC_DOC_TEXT, 2, &shown);
  if (s->out) {
    hec_doc_write(hec_compare_report, &report, HEC_DOC_JSON, 2, &files.json);
    hec_doc_write(hec_compare_report, &report, HEC_DOC_MARKDOWN, 2, &files.report);
    hec_compare_csv(&report, &files.csv);
    hec_compare_page(&report, &files.page);
  }
  return hand_over(handover, true, s->out, &shown, &files);
}

/* Where the session was started. */
static hec_status take(void *context, hec_handover *handover) {
  const settings *s = ((command *)context)->s;
  HEC_SCOPED(hec_text) text = {0};
  HEC_SCOPED(hec_output_files) files = {0};
  HEC_TRY(hand_over(handover, false, s->out, &text, &files));
  if (s->out)
    HEC_TRY(hec_timeline_write_out(s->out, s->timelines, &files));
  if (s->out && !s->json)
    hec_output_mention(s->out, true, true, s->timelines, &text);
  return hec_output_print(&text);
}

static hec_status run(command *c) {
  const settings *s = c->s;
  HEC_TRY(hec_session_run_open(&c->run));
  HEC_TRY(hec_execution_policies(&s->session.job, &c->run.job, &c->run.arena, c->policies, &c->n_policies));
  hec_job_note_groups(&c->run.job, c->policies, c->n_policies, &c->run.arena);
  hec_job_note_transitions(&c->run.job, c->policies, c->n_policies, &c->run.arena);
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
               .run = {.no_virtual = s.training.layout != NULL,
                       .tool = "hecate-validate compare " HEC_VERSION,
                       .args = &s.session,
                       .folder = s.out,
                       .timelines = s.timelines,
                       .calibration = s.calibration,
                       .report = report}};
  c.run.context = &c;
  keep_line(argc, argv, &c.line);
  int code = hec_session_run_close(&c.run, run(&c));
  hec_text_free(&c.line);
  hec_text_free(&c.layout);
  return code;
}
