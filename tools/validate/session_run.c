/* From the command line to a launched session and back. Without a trace the job is made from a made-up one: a single
 * record of equal loads. So every choice and check is that of a recorded trace; nothing of it is executed. Under a
 * process manager every process comes here. */
#include "tools/validate/session_run.h"

#include "runtime/base/progress.h"
#include "runtime/base/value.h"
#include "runtime/exec/math/math.h"
#include "runtime/plan/cbc/cbc.h"
#include "tools/front/colour.h"
#include "tools/front/machine.h"
#include "tools/front/output.h"
#include "tools/front/timeline_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

const hec_run_option_words hec_session_words[] = {
    {"cluster", NULL,
     "links between ranks, which emulated, paced and --virtual imitate: preset (--list), JSON file or line. Default: "
     "0.25 GB/s and 30 us; of backend nccl a preset with such devices. Otherwise calibration finds the rates. Under "
     "mpirun its shape is that of the hosts."},
    {"model", NULL, "preset (--list), JSON file, or a config.json of Hugging Face (default cpu-512)"},
    {"ranks", NULL,
     "ranks, at most the cores unless --virtual; of backend nccl they may share devices (default 2; under mpirun: its "
     "processes)"},
    {"tokens", NULL, "tokens per rank; a half and a quarter are calibrated too (default 128)"},
    {"layers", NULL, "MoE layers (default 2)"},
    {"phase", NULL, "train or forward (default: the trace's, else train)"},
    {"micro_batches", NULL, "with --layout: micro-batches of a step, a record each (default 4 for each stage)"},
    {"law", NULL,
     "network law of --list: alpha_beta (default), max_min (exact sharing, slower; the default between hosts), "
     "nccl_rounds (bounded as in NCCL)"},
    {"esp", NULL, "experts in S shards, as for compare --esp S (default 1)"},
    {.key = NULL},
};

hec_session_args hec_session_args_default(void) {
  hec_session_args args = {.job = HEC_JOB_OPTIONS, .target = HEC_TARGET_ARGS, .seed = 1, .within_s = 120};
  args.job.model = "cpu-512";
  args.job.schedule = "published"; /* what is predicted must not be chosen by the prediction */
  args.job.law = NULL;             /* as the links are: law_of */
  return args;
}

enum { ROUNDS_MAX = 64 }; /* where nobody says how many: room for so many readings */

/* What stands between ranks when no cluster is named: slow enough that placement matters, as it does on clusters. Device
 * rates only serve until the first calibration cases have run. Hosts are those that the process manager made. */
static void default_line(const hec_session_run_state *run, int32_t ranks, char line[HEC_CPU_LINE_BYTES]) {
  int32_t per_host = hec_target_per_host(&run->target, ranks);
  (void)snprintf(line, HEC_CPU_LINE_BYTES,
                 "%" PRId32 "x%" PRId32 " nvlink=0.25G@30us%s flops=50G eff=1 hbm=10G mem=8G tile=8", ranks / per_host,
                 per_host, per_host < ranks ? " nic=0.25G@30us" : "");
}

/* A trace of one record of equal loads in the shape of `moe`. */
static void make_trace(const hec_moe *moe, int32_t layers, int32_t ranks, const char *phase, hec_text *out) {
  hec_json_out json = hec_json_begin(out, 0);
  HEC_JSON(&json, HEC_OBJECT(NULL, HEC_TEXT("format", "hecate-trace"), HEC_INT("version", 1), HEC_TEXT("name", ""),
                             HEC_TEXT("phase", phase), HEC_INT("layers", layers), HEC_INT("experts", moe->n_experts),
                             HEC_INT("top_k", moe->top_k), HEC_INT("source_ranks", ranks),
                             HEC_TEXT("layout", "layer x source_rank x expert"),
                             HEC_TEXT("unit", "token-expert assignments")));
  json = hec_json_begin(out, 0);
  hec_json_object(&json, NULL);
  hec_json_int(&json, "iter", 1);
  hec_json_array(&json, "layers");
  for (int32_t l = 0; l < layers; l++) {
    hec_json_array(&json, NULL);
    for (int32_t r = 0; r < ranks; r++) {
      hec_json_array(&json, NULL);
      for (int32_t e = 0; e < moe->n_experts; e++)
        hec_json_int(&json, NULL, 1);
      hec_json_close(&json);
    }
    hec_json_close(&json);
  }
  hec_json_close(&json);
  hec_json_close(&json);
}

static hec_status open_loads(hec_session_run_state *run, hec_job_options *wanted) {
  const hec_session_args *a = run->args;
  if (a->trace) {
    HEC_TRY(hec_job_args_open(a->trace, &run->kept, &run->reader));
    int32_t layers = hec_trace_header_of(run->reader)->n_layers;
    if (wanted->layers == 0)
      wanted->layers = layers < HEC_SESSION_LAYERS ? layers : HEC_SESSION_LAYERS;
    return HEC_OK;
  }
  hec_moe moe;
  HEC_TRY(hec_moe_load(wanted->model, &moe));
  if (wanted->layers == 0)
    wanted->layers = moe.n_moe_layers < HEC_SESSION_LAYERS ? moe.n_moe_layers : HEC_SESSION_LAYERS;
  if (wanted->layers > 512)
    return hec_fail(HEC_BAD_INPUT, "--layers: expected at most 512, found %" PRId32, wanted->layers);
  int32_t layers = moe.n_moe_layers > wanted->layers ? moe.n_moe_layers : wanted->layers;
  make_trace(&moe, layers, wanted->ranks, wanted->phase ? wanted->phase : "train", &run->kept);
  return hec_trace_open_memory(run->kept.data, run->kept.length, "the model's shape", &run->reader);
}

static const char *like(const hec_session_run_state *run) {
  return run->target.backend->like ? run->target.backend->like() : NULL;
}

static hec_status check_cores(const hec_session_run_state *run) {
  const hec_summary_execution *e = &run->execution.summary;
  if (!hec_summary_execution_crowded(e) || run->target.link) /* devices work on all ranks' work at once */
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT,
                  "%" PRId32 " ranks on %" PRId32 " core%s would take turns, which no calibration describes: choose at "
                  "most %" PRId32 " --ranks%s",
                  e->n_ranks_here, e->n_cores, e->n_cores == 1 ? "" : "s", e->n_cores,
                  run->no_virtual             ? ", and a layout of as many"
                  : run->target.backend->here ? ", or --backend cpu --virtual"
                                              : ", or --virtual");
}

static hec_status make_job(hec_session_run_state *run, int32_t ranks) {
  const hec_session_args *a = run->args;
  hec_job_options wanted = a->job;
  char line[HEC_CPU_LINE_BYTES];
  wanted.solver = hec_solver_cbc();
  HEC_TRY(hec_job_args_collective(a->job.collective, &run->collective));
  if (wanted.phase && strcmp(wanted.phase, "train") != 0 && strcmp(wanted.phase, "forward") != 0)
    return hec_fail(HEC_BAD_INPUT, "--phase: expected train or forward, found \"%s\"", wanted.phase);
  wanted.warmup = 0;
  wanted.ranks = ranks > 0 ? ranks : wanted.ranks > 0 ? wanted.ranks : HEC_SESSION_RANKS;
  if (wanted.ranks > HEC_RANKS_MAX)
    return hec_fail(HEC_BAD_INPUT, "--ranks: expected at most the %d ranks that can be executed, found %" PRId32,
                    HEC_RANKS_MAX, wanted.ranks);
  if (wanted.tokens == 0)
    wanted.tokens = HEC_SESSION_TOKENS;
  default_line(run, wanted.ranks, line);
  wanted.like = like(run);
  if (!wanted.cluster)
    wanted.cluster = wanted.like ? wanted.like : line;
  HEC_TRY(open_loads(run, &wanted));
  HEC_TRY(hec_job_make_executed(&wanted, run->reader, &run->arena, &run->job));
  return hec_model_make(&run->job.moe, false, (uint64_t)a->seed, &run->model);
}

/* Of a transport that imitates links: these obey it, so no other predicts them. NULL: real links. */
static const char *own_law(const hec_session_run_state *run) {
  return run->args->target.virtual ? "alpha_beta" : run->target.transport->law;
}

static bool between_hosts(const hec_session_run_state *run) {
  return run->job.problem.n_ranks > run->job.cluster.devices_per_node;
}

/* Exchanges that are under way together share the links between hosts, which max_min knows: docs/hosts.md. */
static const char *law_of(const hec_session_run_state *run) {
  const char *own = own_law(run), *wanted = run->args->job.law;
  return own ? own : wanted ? wanted : between_hosts(run) ? "max_min" : HEC_JOB_OPTIONS.law;
}

static hec_status check_law(const hec_session_run_state *run) {
  const char *own = own_law(run), *wanted = run->args->job.law;
  const hec_law *law;
  HEC_TRY(hec_job_args_law(law_of(run), &law));
  if (!own || !wanted || strcmp(wanted, own) == 0)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "--law: expected %s, which these imitated links obey, found %s", own, wanted);
}

static void say_defaults(hec_session_run_state *run, bool chose_ranks) {
  const hec_session_args *a = run->args;
  hec_job *job = &run->job;
  const char *class = a->target.virtual || run->execution.summary.imitates
                          ? "imitated"
                          : "to begin with: calibration finds this machine's own";
  if (a->job.layers == 0 && (!a->trace || job->header.n_layers > job->moe.n_moe_layers))
    hec_job_assume(job, &run->arena, "layers: %" PRId32 "%s; choose with --layers", job->moe.n_moe_layers,
                   a->trace ? ", the first of the trace" : "");
  if (chose_ranks)
    hec_job_assume(job, &run->arena, "ranks: %" PRId32 "; choose with --ranks", job->problem.n_ranks);
  if (a->job.tokens == 0)
    hec_job_assume(job, &run->arena, "tokens per rank: %" PRId32 "%s; choose with --tokens", job->problem.tokens,
                   a->trace ? ", every layer scaled to it" : "");
  if (between_hosts(run) && !own_law(run) && !a->job.law)
    hec_job_assume(job, &run->arena, "network law: max_min, since ranks are on several hosts; choose with --law");
  if (!a->job.cluster && !like(run))
    hec_target_say_hosts(&run->target, job, &run->arena);
  if (!a->job.cluster && like(run))
    hec_job_assume(job, &run->arena, "links: those of preset %s between ranks, %s; choose with --cluster", like(run),
                   class);
  else if (!a->job.cluster)
    hec_job_assume(job, &run->arena, "links: 0.25 GB/s and 30 us between ranks, %s; choose with --cluster", class);
}

static void describe(hec_session_run_state *run) {
  const hec_session_args *a = run->args;
  hec_execution_describe(&run->target, &a->target, &run->job, a->job.cluster != NULL, true, &run->execution);
  run->execution.summary.seed = (uint64_t)a->seed;
  run->head = (hec_summary){.job = &run->job,
                            .tool = run->tool,
                            .trace = a->trace ? a->trace : "",
                            .law = law_of(run),
                            .execution = &run->execution.summary};
  time_t now = time(NULL);
  struct tm parts;
  if (!gmtime_r(&now, &parts) || strftime(run->date, sizeof run->date, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
    run->date[0] = 0;
}

static hec_status check_out(const hec_session_run_state *run) {
  hec_path_use uses[HEC_JOB_READS + 2];
  hec_job_args_reads(&run->args->job, run->args->trace, uses);
  uses[HEC_JOB_READS] = (hec_path_use){"--calibration", run->calibration, false};
  uses[HEC_JOB_READS + 1] = (hec_path_use){"--out", run->file, true};
  if (run->folder)
    HEC_TRY(hec_timeline_files_check(&(hec_timeline_files){.out = run->folder, .format = run->timelines}, uses,
                                     HEC_JOB_READS + 1));
  if (run->file)
    HEC_TRY(hec_output_check_file("--out", run->file));
  return hec_paths_check(uses, HEC_JOB_READS + 2);
}

hec_status hec_session_run_open(hec_session_run_state *run) {
  int32_t ranks = 0;
  run->handover.file = -1;
  hec_math_open();
  HEC_TRY(hec_target_open(&run->args->target, &run->target, &ranks));
  if (run->target.backend->speaks())
    HEC_TRY(check_out(run));
  HEC_TRY(make_job(run, ranks));
  HEC_TRY(hec_target_choose_link(&run->args->target, &run->target, run->job.problem.n_ranks));
  HEC_TRY(check_law(run));
  describe(run);
  HEC_TRY(check_cores(run));
  say_defaults(run, ranks == 0 && run->args->job.ranks == 0);
  return hec_execution_check_memory(&run->target, &run->job.problem, run->execution.summary.n_ranks_here, false);
}

bool hec_session_run_list(const hec_session_args *args) {
  bool listed = hec_target_list(&args->target, args->list);
  if (args->list)
    hec_job_args_list();
  return listed;
}

/* ---- The launch ---- */

static hec_status body(hec_rank *rank, void *context) {
  hec_session_run_state *run = context;
  HEC_TRY(hec_session_run(&run->session, rank));
  if (rank->rank != 0)
    return HEC_OK;
  hec_rank_at_phase(rank, 0, "keeping the results");
  return run->report(run->context, &run->handover);
}

static void progress(void *context, const char *what, int32_t done, double left_s) {
  (void)context;
  hec_progress_until(what, done, left_s);
}

static hec_status launch(hec_session_run_state *run) {
  const hec_launch_options options = {.n_ranks = run->job.problem.n_ranks,
                                      .pin = true,
                                      .transport = run->target.transport,
                                      .link = run->target.link,
                                      .precision = run->target.precision,
                                      .cluster = &run->job.cluster,
                                      .memory_bytes = hec_session_bytes(&run->session),
                                      .limit_s = run->args->target.timeout};
  run->launched = true;
  hec_status status = run->target.backend->launch(&options, body, run);
  hec_progress_stage("writing", NULL);
  return status;
}

const char *hec_session_run_carrier(const hec_session_run_state *run) {
  return run->args->target.virtual ? "virtual" : hec_target_carrier(&run->target);
}

hec_status hec_session_run_launch(hec_session_run_state *run, const hec_comparison_options *compare,
                                  const hec_cluster *given, double given_probe_s,
                                  hec_status (*take)(void *context, hec_handover *handover)) {
  const hec_session_args *a = run->args;
  bool speaks = run->target.backend->speaks();
  hec_session_options options = {
      .calibrate = {.model = &run->model,
                    .base = &run->job.cluster,
                    .n_ranks = run->job.problem.n_ranks,
                    .tokens = run->job.problem.tokens,
                    .esp = run->job.problem.esp,
                    .train = run->job.problem.train,
                    .virtual_time = a->target.virtual,
                    .seed = (uint64_t)a->seed + 1000},
      .machine = {.name = "this machine",
                  .cpu = run->execution.cpu.data,
                  .blas = run->execution.library.data,
                  .unit = run->execution.summary.unit,
                  .backend = run->target.backend->name,
                  .transport = hec_session_run_carrier(run),
                  .date = run->date[0] ? run->date : NULL,
                  .n_cores = run->execution.summary.n_cores},
      .given = given,
      .given_probe_s = given_probe_s,
      .compare = *compare,
      .seed = (uint64_t)a->seed,
      .within_s = a->within_s,
      .every_round = a->repeat > 0,
      .progress = speaks ? progress : NULL,
  };
  options.compare.n_rounds = a->repeat > 0 ? (int32_t)a->repeat : ROUNDS_MAX;
  options.compare.seed = (uint64_t)a->seed;
  HEC_TRY(hec_session_open(&run->session, &options, &run->arena));
  HEC_TRY(hec_handover_open(&run->handover));
  HEC_TRY(launch(run));
  if (!speaks)
    return HEC_OK;
  HEC_TRY(hec_handover_rewind(&run->handover));
  return take(run->context, &run->handover);
}

int hec_session_run_close(hec_session_run_state *run, hec_status status) {
  hec_handover_close(&run->handover);
  hec_session_close(&run->session);
  hec_trace_close(run->reader);
  hec_text_free(&run->kept);
  hec_execution_free(&run->execution);
  hec_arena_free(&run->arena);
  return hec_target_exit(&run->target, "hecate-validate", status, run->launched);
}
