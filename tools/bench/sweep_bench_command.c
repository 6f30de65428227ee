/* hecate-bench sweep: configurations per second of a sweep, on one thread and on several. The sweep is made here: a product
 * of drawn loads, NIC speeds, tokens and policies; no file, no journal. Runs of the thread counts alternate; medians. */
#include "tools/bench/bench.h"
#include "tools/front/args.h"
#include "tools/front/job_args.h"
#include "tools/front/machine.h"
#include "tools/front/sweep/sweep.h"

#include <inttypes.h>
#include <string.h>

enum { RUNS_MAX = 99, CLUSTERS = 5, TOKENS = 2 };

typedef struct {
  hec_job_options job; /* policy, law, ranks */
  int64_t configurations, layers, experts, iterations, threads, runs;
  bool json;
} settings;

typedef struct {
  const settings *settings;
  int64_t configurations, iterations; /* of the whole sweep */
  int n;                              /* thread counts: one; and --threads where that is more */
  double seconds[2];                  /* medians */
} result;

/* The product's last axis is the policy; loads come first, as many as the asked number needs. */
static hec_status write_spec(const settings *s, hec_arena *arena, hec_text *spec) {
  const hec_policy *policies[HEC_POLICIES_MAX];
  int32_t n_policies;
  HEC_TRY(hec_job_args_policies(s->job.policy, arena, policies, &n_policies));
  int64_t per_load = (int64_t)n_policies * CLUSTERS * TOKENS, n_loads = (s->configurations + per_load - 1) / per_load;
  int32_t per_node = s->job.ranks < 8 ? s->job.ranks : 8;
  hec_text_printf(spec, "{\"trace\":[");
  for (int64_t i = 0; i < n_loads; i++)
    hec_text_printf(spec,
                    "%s{\"synth\":{\"workload\":\"lognormal\",\"layers\":%" PRId64 ",\"experts\":%" PRId64
                    ",\"top_k\":2,\"source_ranks\":%" PRId32 ",\"tokens\":2048,\"iterations\":%" PRId64
                    ",\"seed\":%" PRId64 "}}",
                    i ? "," : "", s->layers, s->experts, s->job.ranks, s->iterations, i + 1);
  hec_text_printf(spec, "],\"cluster\":[");
  for (int c = 0; c < CLUSTERS; c++)
    hec_text_printf(spec, "%s\"%" PRId32 "x%d nvlink=300G@2us nic=%dG@5us flops=312T mem=40G\"", c ? "," : "",
                    (s->job.ranks + per_node - 1) / per_node, per_node, 25 * (c + 1));
  hec_text_printf(spec, "],\"ranks\":%" PRId32 ",\"tokens\":[2048,4096],\"law\":\"%s\",\"policy\":[", s->job.ranks,
                  s->job.law);
  for (int32_t p = 0; p < n_policies; p++)
    hec_text_printf(spec, "%s\"%s\"", p ? "," : "", policies[p]->name);
  hec_text_printf(spec, "]}");
  return HEC_OK;
}

static hec_status time_once(const hec_sweep *sweep, int64_t threads, double *seconds) {
  HEC_SCOPED(hec_sweep_rows) rows = hec_sweep_rows_new(sweep);
  double begin = hec_bench_now_s();
  hec_status status = hec_sweep_run(&rows, &(hec_sweep_run_options){.n_threads = (int32_t)threads, .n_shards = 1});
  *seconds = hec_bench_now_s() - begin;
  for (int64_t i = 0; status == HEC_OK && i < sweep->n; i++)
    if (rows.row[i]->why)
      status = hec_fail(HEC_FAILED, "configuration %" PRId64 ": %s", i, rows.row[i]->why);
  return status;
}

static hec_status measure(const settings *s, hec_sweep *sweep, result *r) {
  HEC_SCOPED(hec_text) spec = {0};
  double seconds[2][RUNS_MAX];
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_TRY(write_spec(s, &arena, &spec));
  HEC_TRY(hec_sweep_parse(spec.data, strlen(spec.data), "the benchmark's sweep", sweep));
  HEC_TRY(hec_sweep_load(sweep, "hecate-bench", hec_source_digest));
  *r = (result){
      .settings = s, .configurations = sweep->n, .iterations = sweep->n * s->iterations, .n = s->threads > 1 ? 2 : 1};
  for (int64_t i = 0; i < s->runs; i++)
    for (int k = 0; k < r->n; k++)
      HEC_TRY(time_once(sweep, k ? s->threads : 1, &seconds[k][i]));
  for (int k = 0; k < r->n; k++)
    r->seconds[k] = hec_bench_quantile(seconds[k], (int32_t)s->runs, 0.5);
  return HEC_OK;
}

static void report(const void *of, hec_doc *doc) {
  const result *r = of;
  const settings *s = r->settings;
  HEC_ADD(doc, HEC_KEEP("version", 1), HEC_KEEP("configurations", r->configurations),
          HEC_KEEP("iterations", r->iterations), HEC_KEEP("law", s->job.law));
  hec_doc_note(doc,
               "%" PRId64 " configurations of %" PRId64 " iterations, %" PRId32 " ranks x %" PRId64 " layers x %" PRId64
               " experts, %s, medians of %" PRId64 " (synthetic loads)",
               r->configurations, s->iterations, s->job.ranks, s->layers, s->experts, s->job.law, s->runs);
  hec_doc_table(doc, "runs", "threads | seconds | configurations per s | iterations per s | speed-up");
  for (int k = 0; k < r->n; k++)
    HEC_ROW(doc, HEC_SHOW("threads", HEC_AS_IS, k ? s->threads : (int64_t)1),
            HEC_SHOW("seconds", HEC_FIXED, r->seconds[k]),
            HEC_SHOW("configurations_per_s", HEC_FIXED2, (double)r->configurations / r->seconds[k]),
            HEC_SHOW("iterations_per_s", HEC_FIXED2, (double)r->iterations / r->seconds[k]),
            HEC_SHOW(NULL, HEC_FIXED2, r->seconds[0] / r->seconds[k]));
  hec_doc_end(doc);
}

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  static const hec_run_option_words words[] = {
      {"policy", NULL, "policies (default ep,fastermoe,flexmoe,eplb,hecate)"},
      {"law", NULL, "network law (default alpha_beta)"},
      {"ranks", NULL, "ranks, 8 per node (default 32)"},
      {.key = NULL},
  };
  *s = (settings){.job = HEC_JOB_OPTIONS,
                  .configurations = 250,
                  .layers = 12,
                  .experts = 64,
                  .iterations = 20,
                  .threads = hec_machine_cores(),
                  .runs = 3};
  s->job.policy = "ep,fastermoe,flexmoe,eplb,hecate";
  s->job.ranks = 32;
  const hec_arg args[] = {
      HEC_ARG_JOB("", s->job, "policy law ranks", words),
      HEC_ARG_WHOLE("--configurations", s->configurations, "N",
                    "at least so many: loads times 5 NIC speeds, 2 token counts, policies (default 250)", 1, 100000),
      HEC_ARG_WHOLE("--layers", s->layers, "L", "MoE layers (default 12)", 1, 1024),
      HEC_ARG_WHOLE("--experts", s->experts, "E", "experts per layer (default 64)", 3, 4096),
      HEC_ARG_WHOLE("--iterations", s->iterations, "N", "iterations of a configuration (default 20)", 1, 100000),
      HEC_ARG_WHOLE("--threads", s->threads, "N", "beside one thread (default: all cores)", 1, 1024),
      HEC_ARG_WHOLE("--runs", s->runs, "N", "runs of each; the median counts (default 3)", 1, RUNS_MAX),
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-bench sweep",
      .usage = "hecate-bench sweep [options]",
      .summary = "Configurations per second of hecate-sim sweep, on one thread and on several, and the speed-up.\n"
                 "Synthetic loads in memory, wall clock of the simulation alone (drawing the loads is before it).",
      .examples = "  hecate-bench sweep --configurations 50 --runs 1\n"
                  "  hecate-bench sweep --policy ep,hecate --law max_min --ranks 8 --layers 2 --configurations 20 "
                  "--runs 1 --json",
      .args = args};
  return hec_args_options(&command, argc, argv, done);
}

int hec_sweep_bench_command(int argc, char **argv) {
  settings s;
  bool done;
  HEC_SCOPED(hec_sweep) sweep = {0};
  result r;
  const hec_law *law;
  hec_status status = parse(argc, argv, &s, &done);
  if (status == HEC_OK && !done)
    status = hec_job_args_law(s.job.law, &law);
  if (status == HEC_OK && !done)
    status = measure(&s, &sweep, &r);
  return hec_bench_report(status, done, report, &r, s.json);
}
