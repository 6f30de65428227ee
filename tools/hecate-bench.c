/* hecate-bench: how fast the project itself is. Loads are synthetic and in memory; wall clock of one thread; medians.
 * The numbers are for comparing two builds on one machine, or parts of one run with each other. */
#include "runtime/program/job.h"
#include "runtime/program/lower.h"
#include "sim/simulate.h"
#include "tools/bench/bench.h"
#include "tools/front/job_args.h"
#include "tools/front/output.h"
#include "tools/front/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  hec_job_options job; /* policy, law, ranks, tokens */
  int64_t layers, experts, iterations;
  bool json, no_trace;
} settings;

typedef struct {
  double lower_s, simulate_s, report_s, total_s; /* medians per iteration */
  double decide_s, replan_s;                     /* medians, all layers: every iteration; one on which it is due */
  double refine_s, refine_p99_s;                 /* one layer: median, 99th percentile */
  double transfers;                              /* mean per iteration */
} timing;

/* Lowering with planning before and after the gate, simulation, and what the report needs; median of n iterations after a
 * warm-up. */
static timing time_policy(const hec_problem *problem, const hec_policy *policy, const hec_law *law,
                          const hec_load *loads, int32_t n_loads, int32_t n) {
  HEC_SCOPED(hec_arena) arena = {0};
  const hec_schedule *schedule = hec_schedule_find(policy->schedule);
  HEC_OPENED(hec_lowering) *low = hec_lowering_new(problem, policy, schedule, NULL, &arena);
  HEC_OPENED(hec_sim) *sim = hec_sim_new(problem, law, &arena);
  HEC_SCOPED(hec_timeline) timeline = {0};
  double *peak = HEC_NEW(&arena, double, problem->n_ranks);
  double *t[4], sent = 0;
  for (int32_t k = 0; k < 4; k++)
    t[k] = HEC_NEW(&arena, double, n);
  for (int32_t i = -8; i < n; i++) {
    double a = hec_bench_now_s();
    hec_lower_iteration(low, i + 8, &loads[(i + 8) % n_loads], 1, 1);
    double b = hec_bench_now_s();
    hec_sim_run(sim, hec_lowering_program(low), (hec_sim_options){0}, &timeline);
    double c = hec_bench_now_s();
    hec_breakdown breakdown = hec_timeline_breakdown(&timeline, hec_lowering_program(low));
    double traffic[HEC_N_TRAFFIC], moved[HEC_N_TRAFFIC];
    hec_program_traffic(hec_lowering_program(low), traffic, moved);
    hec_program_memory_peak(hec_lowering_program(low), peak, NULL);
    double d = hec_bench_now_s();
    HEC_ASSERT(breakdown.total_s > 0);
    if (i < 0)
      continue;
    sent += (double)hec_lowering_program(low)->n_transfers;
    t[0][i] = b - a;
    t[1][i] = c - b;
    t[2][i] = d - c;
    t[3][i] = d - a;
  }
  timing result = {.lower_s = hec_bench_quantile(t[0], n, 0.5),
                   .simulate_s = hec_bench_quantile(t[1], n, 0.5),
                   .report_s = hec_bench_quantile(t[2], n, 0.5),
                   .total_s = hec_bench_quantile(t[3], n, 0.5),
                   .transfers = sent / n};
  return result;
}

/* Planning alone, as a trainer would call it, every `step`-th iteration: decide[n], refine[n * n_layers]. */
static void time_planning(const hec_problem *problem, const hec_policy *policy, const hec_load *loads, int32_t n_loads,
                          int32_t n, int32_t step, double *decide, double *refine) {
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(policy, problem, &arena);
  for (int32_t i = -8; i < n; i++) {
    const hec_load *load = &loads[(i + 8) % n_loads];
    double a = hec_bench_now_s();
    hec_policy_decide(&run, (int64_t)(i + 8) * step, 0);
    double b = hec_bench_now_s();
    if (i >= 0)
      decide[i] = b - a;
    for (int32_t l = 0; l < problem->n_layers; l++) {
      a = hec_bench_now_s();
      hec_policy_refine(&run, l, load);
      b = hec_bench_now_s();
      if (i >= 0)
        refine[i * problem->n_layers + l] = b - a;
    }
    hec_policy_observe(&run, load);
  }
}

static void time_plans(const hec_problem *problem, const hec_policy *policy, const hec_load *loads, int32_t n_loads,
                       int32_t n, timing *out) {
  HEC_SCOPED(hec_arena) arena = {0};
  int32_t n_refine = n * problem->n_layers, period = policy->period > 0 ? policy->period : 1;
  double *decide = HEC_NEW(&arena, double, n), *refine = HEC_NEW(&arena, double, n_refine);
  time_planning(problem, policy, loads, n_loads, n, period, decide, refine);
  out->replan_s = hec_bench_quantile(decide, n, 0.5);
  time_planning(problem, policy, loads, n_loads, n, 1, decide, refine);
  out->decide_s = hec_bench_quantile(decide, n, 0.5);
  out->refine_s = hec_bench_quantile(refine, n_refine, 0.5);
  out->refine_p99_s = hec_bench_quantile(refine, n_refine, 0.99);
}

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  static const hec_run_option_words words[] = {
      {"policy", NULL, "policies to time (default all)"},
      {"law", NULL, "network law (default alpha_beta)"},
      {"ranks", NULL, "ranks, 8 per node (default 32)"},
      {"tokens", NULL, "tokens per rank (default 2048, as in recorded training); more: longer window, more copies"},
      {.key = NULL},
  };
  *s = (settings){.job = HEC_JOB_OPTIONS, .layers = 12, .experts = 64, .iterations = 200};
  s->job.ranks = 32;
  s->job.tokens = 2048;
  const hec_arg args[] = {HEC_ARG_JOB("", s->job, "policy law ranks tokens", words),
                          {"--layers", HEC_ARG_INT, &s->layers, "L", "MoE layers (default 12)", 1, 1024},
                          {"--experts", HEC_ARG_INT, &s->experts, "E", "experts per layer (default 64)", 3, 4096},
                          {"--iterations", HEC_ARG_INT, &s->iterations, "N", "iterations timed (default 200)", 1, 1e6},
                          {"--no-trace", HEC_ARG_FLAG, &s->no_trace, NULL, "leave the trace reader out", 0, 0},
                          {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document", 0, 0},
                          {.name = NULL}};
  const hec_command command = {
      .program = "hecate-bench",
      .usage = "hecate-bench [options]\n       hecate-bench COMMAND [options]",
      .summary =
          "Times lowering (planning before and after the gate in it), simulation and reporting per iteration, planning "
          "alone\n"
          "(decide; replan: a decide on which the policy's period is due; refine of one layer), and the trace reader.\n"
          "Transfers: of tokens and experts from rank to rank, per iteration; simulated: so many millions a second.\n"
          "Synthetic loads in memory, one thread, wall clock, medians.",
      .examples = "  hecate-bench --iterations 50 --no-trace\n  hecate-bench --policy ep,hecate --ranks 64 --json",
      .args = args};
  return hec_args_options(&command, argc, argv, done);
}

typedef struct {
  settings settings;
  const hec_policy *policy[HEC_POLICIES_MAX];
  timing time[HEC_POLICIES_MAX];
  int32_t n_policies, layers, experts;
  hec_trace_bench trace;
} results;

static void add_policy(hec_doc *doc, const char *name, const timing *t) {
  HEC_ROW(doc, HEC_SHOW("policy", HEC_AS_IS, name), HEC_KEEP("iterations_per_s", 1 / t->total_s),
          HEC_SHOW(NULL, HEC_AS_IS, (int64_t)(1 / t->total_s)), HEC_SHOW("lower_s", HEC_SECONDS, t->lower_s),
          HEC_SHOW("simulate_s", HEC_SECONDS, t->simulate_s), HEC_SHOW("report_s", HEC_SECONDS, t->report_s),
          HEC_SHOW("decide_s", HEC_SECONDS, t->decide_s), HEC_SHOW("replan_s", HEC_SECONDS, t->replan_s),
          HEC_SHOW("refine_layer_s", HEC_SECONDS, t->refine_s),
          HEC_SHOW("refine_layer_p99_s", HEC_SECONDS, t->refine_p99_s), HEC_KEEP("transfers", t->transfers),
          HEC_SHOW(NULL, HEC_AS_IS, (int64_t)t->transfers), HEC_KEEP("transfers_per_s", t->transfers / t->simulate_s),
          HEC_SHOW(NULL, HEC_FIXED2, 1e-6 * t->transfers / t->simulate_s));
}

static void report(const void *of, hec_doc *doc) {
  const results *r = of;
  const settings *s = &r->settings;
  double rate = (double)r->trace.bytes / r->trace.seconds;
  HEC_ADD(doc, HEC_KEEP("version", 1), HEC_KEEP("ranks", s->job.ranks), HEC_KEEP("layers", r->layers),
          HEC_KEEP("experts", r->experts), HEC_KEEP("law", s->job.law));
  hec_doc_note(doc,
               "%d ranks x %d layers x %d experts, %d tokens per rank, %s, one thread, medians of %d iteration%s "
               "(synthetic loads)",
               s->job.ranks, r->layers, r->experts, s->job.tokens, s->job.law, (int)s->iterations,
               s->iterations == 1 ? "" : "s");
  hec_doc_table(doc, "policies",
                "policy | a second | lowering | simulate | report | decide | replan | refine | p99 | transfers | M/s");
  for (int32_t p = 0; p < r->n_policies; p++)
    add_policy(doc, r->policy[p]->name, &r->time[p]);
  hec_doc_end(doc);
  if (s->no_trace)
    return;
  HEC_ADD(doc, HEC_KEEP("trace_reader_bytes_per_s", rate));
  hec_doc_note(doc, "trace reader %.0f MB/s (%.0f MB in memory)", 1e-6 * rate, 1e-6 * (double)r->trace.bytes);
}

static hec_status run(results *r, hec_arena *arena) {
  const settings *s = &r->settings;
  HEC_TRY(hec_job_args_policies(s->job.policy, arena, r->policy, &r->n_policies));
  const hec_law *law;
  HEC_TRY(hec_job_args_law(s->job.law, &law));
  hec_moe moe;
  hec_cluster cluster;
  hec_problem problem;
  char line[160];
  int32_t per_node = s->job.ranks < 8 ? s->job.ranks : 8;
  (void)snprintf(line, sizeof line, "%dx%d nvlink=300G@2us nic=50G@5us flops=312T mem=40G",
                 (s->job.ranks + per_node - 1) / per_node, per_node);
  HEC_TRY(hec_cluster_load(line, arena, &cluster));
  HEC_TRY(hec_moe_load("gpt-moe-s", &moe));
  moe.n_layers = moe.n_moe_layers = (int32_t)s->layers;
  moe.n_experts = (int32_t)s->experts;
  HEC_TRY(hec_moe_check(&moe, "the benchmark's model"));
  HEC_TRY(hec_problem_make(&moe, &cluster, true, s->job.ranks, s->job.tokens, &problem));
  enum { LOADS = 64 };
  hec_load loads[LOADS];
  for (int32_t i = 0; i < LOADS; i++)
    loads[i] = hec_load_new(arena, problem.n_layers, problem.n_ranks, problem.n_experts);
  HEC_TRY(hec_bench_loads(loads, LOADS, 1, problem.tokens, problem.top_k));
  r->layers = problem.n_layers;
  r->experts = problem.n_experts;
  for (int32_t p = 0; p < r->n_policies; p++) {
    r->time[p] = time_policy(&problem, r->policy[p], law, loads, LOADS, (int32_t)s->iterations);
    time_plans(&problem, r->policy[p], loads, LOADS, (int32_t)s->iterations, &r->time[p]);
  }
  return s->no_trace ? HEC_OK : hec_trace_bench_read(64 << 20, &r->trace);
}

static int bench_command(int argc, char **argv) {
  results r = {.n_policies = 0};
  bool done;
  hec_status status = parse(argc, argv, &r.settings, &done);
  if (status != HEC_OK || done)
    return hec_tool_exit("hecate-bench", status);
  if (argc == 1) /* other tools answer a bare call by usage; this one works for a while in silence */
    fprintf(stderr, "hecate-bench: times every policy; options and other benchmarks: hecate-bench --help\n");
  HEC_SCOPED(hec_arena) arena = {0};
  status = run(&r, &arena);
  int code = hec_bench_report(status, false, report, &r, r.settings.json);
  return code;
}

static const hec_tool_command commands[] = {
    {"collectives", "sparse collectives against their limits", hec_collectives_command, NULL},
    {"executor", "CPU time per operation of the executor", hec_executor_command, NULL},
    {"planners", "planners on the critical path against their limits", hec_planners_command, NULL},
    {"gpu", "a GPU: memory, products, launches", hec_gpu_command, NULL},
    {"fsmoe", "FSMoE's degrees by enumeration and by SLSQP", hec_fsmoe_command, NULL},
    {"network", "network laws on all-to-alls, beside a peer", hec_network_command, NULL},
    {"sweep", "configurations per second of sweeps", hec_sweep_bench_command, NULL},
    {"import", "importers of traces: MB/s and memory of each format", hec_import_bench_command, NULL},
    {.name = NULL}};

int main(int argc, char **argv) {
  hec_output_hold_standard();
  const hec_tool tool = {.name = "hecate-bench",
                         .summary = "times hecate: lowering, simulation, planning, executor, networks",
                         .commands = commands,
                         .run = bench_command};
  return hec_tool_main(&tool, argc, argv);
}
