/* hecate-bench planners: what planning on the critical path costs. Some sizes have a limit that this project sets itself.
 * Measured is one layer on one thread, from loads in memory to the replica set and sparse quotas. Loads have three degrees of
 * skew, since what is moved grows with it. The limit is for the median of the worst of the three.
 *
 * Sizes of planners that see the load of the micro-batch: 64 ranks in one domain (TAOT: eight nodes of 8) and 256 experts.
 * LPLB has its 8-rank cube, also with so few experts that ranks are uneven without replicas. LAER has 64 ranks with 4 slots
 * and 32 experts, where its authors measured 0.75 ms (reference hecate.md 10.3). */
#include "runtime/base/progress.h"
#include "runtime/plan/policy.h"
#include "runtime/program/job.h"
#include "tools/bench/bench.h"
#include "tools/front/args.h"
#include "tools/front/colour.h"
#include "tools/front/job_args.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LOADS = 64, SKEWS = 3, TOP_K = 8 };
static const double sigmas[SKEWS] = {0.3, 1, 2};

typedef struct {
  const char *policy;
  int32_t ranks, per_node, experts, slots; /* slots HEC_AUTO: what the policy's paper says */
  double limit_s;                          /* 0: none */
} instance;

static const instance instances[] = {
    {"echo", 64, 64, 256, HEC_AUTO, 100e-6},    {"harmoeny", 64, 64, 256, HEC_AUTO, 100e-6},
    {"llep", 64, 64, 256, HEC_AUTO, 100e-6},    {"moonep", 64, 64, 256, HEC_AUTO, 100e-6},
    {"ultraep", 64, 64, 256, HEC_AUTO, 100e-6}, {"taot", 64, 8, 256, HEC_AUTO, 0},
    {"micromoe", 64, 64, 256, HEC_AUTO, 0},     {"lplb", 8, 8, 256, HEC_AUTO, 300e-6},
    {"lplb", 8, 8, 32, HEC_AUTO, 300e-6},       {"laer", 64, 8, 32, 4, 2e-3},
};
enum { N_INSTANCES = sizeof instances / sizeof *instances };

typedef struct {
  hec_job_options job; /* policy, tokens */
  int64_t iterations;
  bool json;
} settings;

typedef struct {
  double median_s[SKEWS], p99_s; /* p99: of the worst */
} timing;

/* decide before the gate or refine after it, whichever the policy plans in. */
static double plan_once(hec_policy_run *run, const hec_load *load, int64_t iter) {
  double begin = hec_bench_now_s();
  hec_policy_decide(run, iter, 0);
  double decided = hec_bench_now_s();
  hec_policy_refine(run, 0, load);
  double refined = hec_bench_now_s();
  hec_policy_observe(run, load);
  return run->policy->refine ? refined - decided : decided - begin;
}

static hec_status time_instance(const settings *s, const instance *in, hec_arena *arena, timing *out) {
  hec_moe moe;
  hec_cluster cluster;
  hec_problem problem;
  char line[120];
  (void)snprintf(line, sizeof line, "%dx%d nvlink=300G@2us nic=50G@5us flops=312T mem=40G", in->ranks / in->per_node,
                 in->per_node);
  HEC_TRY(hec_cluster_load(line, arena, &cluster));
  HEC_TRY(hec_moe_load("gpt-moe-s", &moe));
  moe.n_layers = moe.n_moe_layers = 1;
  moe.n_experts = in->experts;
  moe.top_k = TOP_K;
  HEC_TRY(hec_problem_make(&moe, &cluster, true, in->ranks, s->job.tokens, &problem));
  problem.slots = in->slots;
  hec_load loads[LOADS];
  for (int32_t i = 0; i < LOADS; i++)
    loads[i] = hec_load_new(arena, 1, in->ranks, in->experts);
  int32_t n = (int32_t)s->iterations;
  double *seconds = HEC_NEW(arena, double, n);
  out->p99_s = 0;
  for (int32_t k = 0; k < SKEWS; k++) {
    HEC_TRY(hec_bench_loads(loads, LOADS, sigmas[k], problem.tokens, TOP_K));
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(hec_policy_find(in->policy), &problem, arena);
    for (int32_t i = -LOADS; i < n; i++) {
      double took = plan_once(&run, &loads[(i + LOADS) % LOADS], i + LOADS);
      if (i >= 0)
        seconds[i] = took;
    }
    out->median_s[k] = hec_bench_quantile(seconds, n, 0.5);
    out->p99_s = fmax(out->p99_s, hec_bench_quantile(seconds, n, 0.99));
  }
  return HEC_OK;
}

static double worst_of(const timing *t) {
  double worst = 0;
  for (int32_t k = 0; k < SKEWS; k++)
    worst = fmax(worst, t->median_s[k]);
  return worst;
}

typedef struct {
  settings settings;
  timing time[N_INSTANCES];
  bool timed[N_INSTANCES];
} results;

static void add_instance(hec_doc *doc, const instance *in, const timing *t) {
  HEC_ROW(doc, HEC_SHOW("policy", HEC_AS_IS, in->policy), HEC_SHOW("ranks", HEC_AS_IS, in->ranks),
          HEC_SHOW("experts", HEC_AS_IS, in->experts));
  if (in->slots != HEC_AUTO)
    HEC_ADD(doc, HEC_KEEP("slots", in->slots));
  HEC_ADD(doc, hec_value_reals("median_s", t->median_s, SKEWS));
  for (int32_t k = 0; k < SKEWS; k++)
    HEC_ADD(doc, HEC_SHOW(NULL, HEC_SECONDS, t->median_s[k]));
  HEC_ADD(doc, HEC_SHOW("p99_s", HEC_SECONDS, t->p99_s));
  if (in->limit_s > 0)
    HEC_ADD(doc, HEC_SHOW("limit_s", HEC_SECONDS, in->limit_s), HEC_KEEP("within", (bool)(worst_of(t) <= in->limit_s)),
            HEC_CELL(worst_of(t) <= in->limit_s ? "within" : "ABOVE"));
  else
    HEC_ADD(doc, HEC_CELL("-"), HEC_CELL(""));
}

static void report(const void *of, hec_doc *doc) {
  const results *r = of;
  const settings *s = &r->settings;
  HEC_ADD(doc, HEC_KEEP("version", 1), HEC_KEEP("tokens", s->job.tokens), HEC_KEEP("top_k", (int32_t)TOP_K),
          HEC_KEEP("iterations", s->iterations), hec_value_reals("sigma", sigmas, SKEWS));
  hec_doc_note(
      doc,
      "one layer's plan from loads in memory, one thread: medians of %d by skew of the loads (synthetic, log-normal "
      "with this sigma; %d tokens per rank, top-%d); p99 of the worst. Judged is the largest of the three medians "
      "against the limit; p99 is not",
      (int)s->iterations, s->job.tokens, TOP_K);
  hec_doc_table(doc, "planners",
                hec_doc_text(doc, "planner | ranks | experts | sigma %g | sigma %g | sigma %g | p99 | limit | ",
                             sigmas[0], sigmas[1], sigmas[2]));
  for (int32_t i = 0; i < N_INSTANCES; i++)
    if (r->timed[i])
      add_instance(doc, &instances[i], &r->time[i]);
  hec_doc_end(doc);
}

static bool asked_for(const hec_policy **policies, int32_t n, const char *name) {
  for (int32_t i = 0; i < n; i++)
    if (strcmp(policies[i]->name, name) == 0)
      return true;
  return false;
}

static hec_status run(results *r, hec_arena *listed) {
  const settings *s = &r->settings;
  const hec_policy *policies[HEC_POLICIES_MAX];
  int32_t n_policies, n_rows = 0, n_wanted = 0;
  HEC_TRY(hec_job_args_policies(s->job.policy, listed, policies, &n_policies));
  for (int32_t i = 0; i < n_policies; i++)
    if (policies[i]->given)
      return hec_fail(HEC_BAD_INPUT, "--policy: expected names without options here, found \"%s\"", policies[i]->name);
  hec_progress_stage("timing", "instances");
  for (int32_t i = 0; i < N_INSTANCES; i++)
    n_wanted += asked_for(policies, n_policies, instances[i].policy);
  for (int32_t i = 0; i < N_INSTANCES; i++) {
    HEC_SCOPED(hec_arena) arena = {0};
    if (!asked_for(policies, n_policies, instances[i].policy))
      continue;
    hec_progress_doing("timing", instances[i].policy);
    hec_progress_at(n_rows, n_wanted, 0);
    HEC_TRY(time_instance(s, &instances[i], &arena, &r->time[i]));
    r->timed[i] = true;
    n_rows++;
  }
  if (n_rows == 0)
    return hec_fail(HEC_BAD_INPUT, "--policy: expected a planner with an instance here, found \"%s\"", s->job.policy);
  return HEC_OK;
}

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  static const hec_run_option_words words[] = {
      {"policy", NULL, "planners to time (default all that have an instance)"},
      {"tokens", NULL, "tokens per rank (default 4096)"},
      {.key = NULL},
  };
  *s = (settings){.job = HEC_JOB_OPTIONS, .iterations = 1000};
  s->job.tokens = 4096;
  const hec_arg args[] = {
      HEC_ARG_JOB("", s->job, "policy tokens", words),
      HEC_ARG_WHOLE("--iterations", s->iterations, "N", "plans timed per skew (default 1000)", 1, 1e6),
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-bench planners",
      .usage = "hecate-bench planners [options]",
      .summary =
          "Times planners whose time lies on the critical path, against limits that this project sets itself for\n"
          "medians: from the loads of one layer to its replica set and quotas. Synthetic loads in memory, one thread.",
      .examples = "  hecate-bench planners\n  hecate-bench planners --json",
      .args = args};
  return hec_args_options(&command, argc, argv, done);
}

int hec_planners_command(int argc, char **argv) {
  results r = {.timed = {false}};
  bool done;
  HEC_SCOPED(hec_arena) listed = {0};
  hec_status status = parse(argc, argv, &r.settings, &done);
  if (status == HEC_OK && !done)
    status = run(&r, &listed);
  return hec_bench_report(status, done, report, &r, r.settings.json);
}
