/* From the command line to a launch, and from its results to the user. Under a process manager every process comes here;
 * all read the trace and plan for themselves, the one that speaks prints. */
#include "tools/run/run_commands.h"

#include "runtime/base/progress.h"
#include "runtime/plan/cbc/cbc.h"
#include "runtime/program/job.h"
#include "tools/front/colour.h"
#include "tools/front/execution.h"
#include "tools/front/job_args.h"
#include "tools/front/job_make.h"
#include "tools/front/target.h"
#include "tools/front/timeline_files.h"
#include "tools/run/measure.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 20, STEPS_MAX = 100000, WARMUP_STEPS_MIN = 3 };

typedef struct {
  hec_job_options job;
  hec_target_args target;
  hec_training_args training; /* of it: layout, pipeline, zero */
  const char *trace, *out, *format;
  const hec_timeline_format *timelines;
  int64_t steps, seed, timeline_iter;
  bool json, list, check;
} settings;

/* One command at work. */
typedef struct {
  const settings *s;
  hec_target target;
  hec_arena arena;
  bool launched;
  hec_job job;
  hec_stages stages; /* with --layout */
  const hec_policy *policies[HEC_POLICIES_MAX];
  hec_execution execution;
  hec_measure_options options;
} command;

static const hec_run_option_words words[] = {
    {"cluster", NULL,
     "what plans are made for: preset (--list), JSON file or line, see Cluster below. Default: this machine's cores, "
     "or the hosts of mpirun, at assumed rates; of backend nccl a preset with such devices."},
    {"model", NULL,
     "preset (--list), JSON file, or a config.json of Hugging Face; layers, experts and top-k come from the trace. "
     "Default: the trace's where an expert is at most 1 MiB, else tiny."},
    {"ranks", NULL, "ranks, at most 256 (default 4; under mpirun: its processes)"},
    {"tokens", NULL, "tokens per rank and micro-batch; loads are scaled to it (default 256)"},
    {"micro_batches", NULL,
     "micro-batches of an iteration that has one record: it is repeated (default 1). With --layout, micro-batches of "
     "a step, a record each (default 4 for each stage)."},
    {"warmup", NULL, "iterations run but not reported (default 1; 0 below 3 iterations)"},
    {"layers", NULL, "the first N MoE layers of the trace (default 4)"},
    {.key = NULL},
};

static const hec_run_option_words layout_words[] = {
    {"layout", NULL,
     "execute training steps in pipeline stages: \"pp=2 vpp=2 ep=2\"; ranks = pp x dp, and dp follows from --ranks; "
     "tp, cp and "
     "etp are not executed"},
    {"pipeline", NULL, "with --layout: gpipe, 1f1b (default) or interleaved (default with virtual stages)"},
    {"zero", NULL, "with --layout: 1 shards optimizer state over the ranks of a stage (ZeRO-1; default 0)"},
    {.key = NULL},
};

static hec_status check_layout(const settings *s) {
  const struct {
    bool given;
    const char *why;
  } refused[] = {
      {s->target.virtual,
       "--virtual: is not there for pipeline stages yet: ranks need cores of their own for times to mean something"},
      {strcmp(s->target.backend, "nccl") == 0, "--backend: expected cpu or mpi beside --layout, found nccl"},
      {s->out != NULL, "--out: is not there for pipeline stages yet; --json has all numbers"},
  };
  for (size_t i = 0; s->training.layout && i < sizeof refused / sizeof refused[0]; i++)
    if (refused[i].given)
      return hec_fail(HEC_BAD_INPUT, "%s", refused[i].why);
  if (!s->training.layout && (s->training.pipeline || s->training.zero >= 0))
    return hec_fail(HEC_BAD_INPUT, "%s: expected --layout beside it, found none",
                    s->training.pipeline ? "--pipeline" : "--zero");
  return HEC_OK;
}

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.job = HEC_JOB_OPTIONS,
                  .target = HEC_TARGET_ARGS,
                  .training = HEC_TRAINING_ARGS,
                  .steps = -1,
                  .timeline_iter = -1,
                  .seed = 1};
  s->job.schedule = "published"; /* what is measured must not depend on a prediction that chooses it */
  const hec_arg args[] = {
      HEC_ARG_JOB("What runs", s->job, HEC_OPTIONS_JOB " layers", words),
      HEC_ARG_WHOLE("--steps", s->steps, "N", "iterations from the start of the trace (default 20)", 1, STEPS_MAX),
      HEC_ARG_USE("Pipeline stages", &s->training, hec_training_rows, HEC_N_TRAINING_OPTIONS, "layout pipeline zero",
                  layout_words),
      HEC_ARG_JOB("Policies", s->job, HEC_OPTIONS_POLICY " " HEC_OPTIONS_DENSE " " HEC_OPTIONS_PLACEMENT, NULL),
      HEC_ARG_TARGET("Execution", s->target, "backend transport precision threads virtual pin timeout", NULL),
      {"--check", HEC_ARG_FLAG, &s->check, NULL,
       "compare everything with a dense reference on one rank; exit 1 where it differs", 0, 0},
      HEC_ARG_WHOLE("--seed", s->seed, "N", "of weights and tokens (default 1)", 0, HEC_ITER_MAX),
      HEC_ARG_TITLE("Output"),
      HEC_ARG_WORD(
          "--out", s->out, "DIR",
          "write report.html (opens offline), summary.json, summary.csv and timeline.json (opens in Perfetto)"),
      HEC_ARG_WHOLE("--timeline-iter", s->timeline_iter, "I",
                    "with --out: iteration to draw (default: nearest the median, of the last 64 at most)", 0,
                    HEC_ITER_MAX),
      HEC_TIMELINE_FORMAT_ARG(s->format),
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document on stdout and nothing else", 0, 0},
      {"--list", HEC_ARG_FLAG, &s->list, NULL, "list backends, transports, policies, schedules and presets", 0, 0},
      {.name = NULL}};
  const hec_command text = {
      .program = "hecate-run",
      .usage = "hecate-run [replay] TRACE [options]\n       hecate-run COMMAND [options]",
      .summary = "Executes the iterations of a recorded trace for real: the plans, transfers and schedules that "
                 "hecate-sim simulates,\nwith the trace's routing on a float32 model with made-up weights and tokens, "
                 "and measures them.",
      .examples = "  hecate-run traces/sample-synthetic.jsonl --check\n"
                  "  hecate-run trace.jsonl --layout \"pp=2 ep=2\" --check\n"
                  "  hecate-run trace.jsonl --ranks 8 --virtual --policy ep,eplb,hecate --out result\n"
                  "  mpirun -n 4 hecate-run trace.jsonl --backend mpi --json\n"
                  "  hecate-run trace.jsonl --backend nccl --transport local --ranks 4 --check",
      .notes = HEC_JOB_ARGS_FORMS,
      .first = "--cluster --model --ranks --tokens --steps --policy --backend --virtual --check --out",
      .args = args};
  int32_t n;
  HEC_TRY(hec_args_parse(&text, argc, argv, &s->trace, 1, &n, done));
  if (*done || s->list || strcmp(s->target.backend, "list") == 0)
    return HEC_OK;
  if (n == 0)
    return hec_fail(HEC_BAD_INPUT, "expected a trace file, or train --text FILE; see hecate-run --help");
  if (s->timeline_iter >= 0 && !s->out)
    return hec_fail(HEC_BAD_INPUT, "--timeline-iter: expected --out DIR beside it, found none");
  HEC_TRY(check_layout(s));
  return hec_timeline_format_arg(s->format, s->out, &s->timelines);
}

/* ---- Where it runs ---- */

static hec_status choose_steps(command *c, hec_trace_reader *reader) {
  const settings *s = c->s;
  int32_t wanted = s->steps > 0 ? (int32_t)s->steps : STEPS;
  hec_recording *r = &c->options.recording;
  if (s->training.layout)
    HEC_TRY(hec_stages_steps(&c->stages, wanted, &c->job, reader, &c->arena, r));
  else
    HEC_TRY(hec_execution_steps(&c->job, reader, wanted, s->steps > 0, &c->arena, r));
  if (r->n_steps > 1 && r->steps[0].stride > 1)
    hec_job_assume(&c->job, &c->arena, "mean: over the iterations that ran, not weighted by the stride");
  c->job.warmup = s->job.warmup >= 0 ? s->job.warmup : r->n_steps >= WARMUP_STEPS_MIN;
  if (s->job.warmup < 0)
    hec_job_assume(&c->job, &c->arena, "warm-up: %s; choose with --warmup",
                   c->job.warmup ? "the first iteration runs but is not reported" : "none, too few iterations");
  if (c->job.warmup >= r->n_steps)
    return hec_fail(HEC_BAD_INPUT, "--warmup: expected less than the %" PRId32 " iterations that run, found %" PRId32,
                    r->n_steps, c->job.warmup);
  bool there = s->timeline_iter < 0;
  for (int32_t i = 0; i < r->n_steps; i++)
    there = there || r->steps[i].iter == s->timeline_iter;
  if (!there)
    return hec_fail(HEC_BAD_INPUT, "--timeline-iter: no iteration %" PRId64 " is among those that run",
                    s->timeline_iter);
  return HEC_OK;
}

static hec_status make_job(command *c, hec_trace_reader *reader, int32_t ranks) {
  hec_job_options wanted = c->s->job;
  wanted.solver = hec_solver_cbc();
  HEC_TRY(hec_job_args_collective(c->s->job.collective, &c->options.collective));
  wanted.like = c->target.backend->like ? c->target.backend->like() : NULL;
  if (ranks > 0) {
    wanted.ranks = ranks;
    wanted.per_host = hec_target_per_host(&c->target, ranks);
  }
  const hec_job_options asked = wanted;
  if (c->s->training.layout)
    HEC_TRY(hec_stages_open(&c->s->training, &asked, ranks, reader, &c->stages, &wanted));
  HEC_TRY(hec_job_make_executed(&wanted, reader, &c->arena, &c->job));
  if (!wanted.cluster && !wanted.like)
    hec_target_say_hosts(&c->target, &c->job, &c->arena);
  c->options.policies = c->policies;
  HEC_TRY(hec_execution_policies(&c->s->job, &c->job, &c->arena, c->policies, &c->options.n_policies));
  if (c->s->training.layout) {
    HEC_TRY(hec_stages_make(&asked, &c->arena, &c->job, &c->stages));
    HEC_TRY(hec_stages_policies(&c->stages, &asked, &c->job, &c->arena, c->policies, &c->options.n_policies));
    c->options.stages = &c->stages;
  }
  hec_job_note_groups(&c->job, c->policies, c->options.n_policies, &c->arena);
  hec_job_note_transitions(&c->job, c->policies, c->options.n_policies, &c->arena);
  HEC_TRY(choose_steps(c, reader));
  return HEC_OK;
}

/* ---- What is said about it ---- */

static void describe(command *c) {
  const settings *s = c->s;
  hec_execution_describe(&c->target, &s->target, &c->job, s->job.cluster != NULL, false, &c->execution);
  c->execution.summary.seed = (uint64_t)s->seed;
  hec_execution_mind(&c->execution, "routing is the trace's; weights and tokens are made up");
}

/* ---- The run ---- */

static hec_status show(const settings *s, hec_measured *m) {
  if (s->out)
    HEC_TRY(hec_timeline_write_out(s->out, s->timelines, &m->files));
  if (s->out && !s->json)
    hec_output_mention(s->out, true, false, s->timelines, &m->printed);
  HEC_TRY(hec_output_print(&m->printed));
  return m->failed.length ? hec_fail(HEC_FAILED, "--check: %s", m->failed.data) : HEC_OK;
}

static hec_status launch(command *c, hec_measure *measure) {
  const hec_launch_options options = {.n_ranks = hec_job_ranks(&c->job),
                                      .threads = c->s->target.threads,
                                      .pin = c->s->target.pin,
                                      .transport = c->target.transport,
                                      .link = c->target.link,
                                      .precision = c->target.precision,
                                      .cluster = &c->job.cluster,
                                      .memory_bytes = hec_measure_bytes(measure),
                                      .limit_s = c->s->target.timeout};
  if (c->target.backend->speaks())
    hec_execution_warn(&c->execution, &c->target, c->s->target.pin,
                       c->options.stages                       ? ""
                       : c->target.backend == &hec_backend_mpi ? "; use --backend cpu --virtual"
                                                               : "; use --virtual");
  c->launched = true;
  hec_progress_stage("executing", "policies");
  hec_status status = c->target.backend->launch(&options, hec_measure_body, measure);
  hec_progress_stage("writing", NULL);
  HEC_TRY(status);
  if (!c->target.backend->speaks())
    return HEC_OK;
  HEC_SCOPED(hec_measured) measured = {0};
  status = hec_measure_take(measure, &measured);
  if (status == HEC_OK)
    status = show(c->s, &measured);
  return status;
}

/* A rank of a pipeline stage has its share of the layers. */
static hec_status check_memory(const command *c) {
  int32_t n_stages = c->job.n_stages > 0 ? c->job.n_stages : 1, here = c->execution.summary.n_ranks_here;
  return hec_execution_check_memory(&c->target, &c->job.problem, (here + n_stages - 1) / n_stages, c->s->check);
}

static hec_status run(command *c) {
  const settings *s = c->s;
  int32_t ranks = 0;
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  HEC_SCOPED(hec_text) kept = {0};
  HEC_TRY(hec_target_open(&s->target, &c->target, &ranks));
  if (s->check && c->target.precision != HEC_FP32)
    return hec_fail(HEC_BAD_INPUT, "--check: its tolerance is that of float32, found --precision %s",
                    s->target.precision);
  if (s->out && c->target.backend->speaks()) {
    hec_path_use reads[HEC_JOB_READS];
    hec_job_args_reads(&s->job, s->trace, reads);
    HEC_TRY(
        hec_timeline_files_check(&(hec_timeline_files){.out = s->out, .format = s->timelines}, reads, HEC_JOB_READS));
  }
  HEC_TRY(hec_job_args_open(s->trace, &kept, &reader));
  HEC_TRY(make_job(c, reader, ranks));
  HEC_TRY(hec_target_choose_link(&s->target, &c->target, hec_job_ranks(&c->job)));
  describe(c);
  c->options.job = &c->job;
  c->options.schedule = s->training.layout ? "serial" : s->job.schedule;
  c->options.execution = &c->execution.summary;
  c->options.tool = "hecate-run " HEC_VERSION;
  c->options.trace = s->trace;
  c->options.law = s->target.virtual ? "alpha_beta" : c->target.transport->law;
  c->options.check = s->check;
  c->options.json = s->json;
  c->options.files = s->out != NULL;
  c->options.timeline_iter = s->timeline_iter;
  c->options.timelines = s->timelines;
  hec_measure measure;
  hec_status status = hec_measure_open(&measure, &c->options, &c->arena);
  if (status == HEC_OK)
    status = check_memory(c);
  if (status == HEC_OK)
    status = launch(c, &measure);
  hec_measure_close(&measure);
  return status;
}

int hec_replay_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_status status = parse(argc, argv, &s, &done);
  if (status != HEC_OK || done)
    return hec_tool_exit("hecate-run", status);
  if (hec_target_list(&s.target, s.list)) {
    if (s.list)
      hec_job_args_list();
    return hec_tool_exit("hecate-run", HEC_OK);
  }
  command c = {.s = &s};
  s.target.ranks = s.job.ranks;
  status = run(&c);
  hec_execution_free(&c.execution);
  hec_arena_free(&c.arena);
  return hec_target_exit(&c.target, "hecate-run", status, c.launched);
}
