/* hecate-bench: how fast the project itself is. Loads are synthetic and in memory; wall clock of one thread; medians.
 * The numbers are for comparing two builds on one machine, or parts of one run with each other. */
#include "runtime/program/job.h"
#include "runtime/program/lower.h"
#include "sim/simulate.h"
#include "tools/bench/bench_commands.h"
#include "tools/bench/bench_loads.h"
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
  hec_arena arena = {0};
  const hec_schedule *schedule = hec_schedule_find(policy->schedule);
  hec_lowering *low = hec_lowering_new(problem, policy, schedule, NULL, &arena);
  hec_sim *sim = hec_sim_new(problem, law, &arena);
  hec_timeline timeline = {0};
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
  hec_lowering_free(low);
  hec_sim_free(sim);
  hec_timeline_free(&timeline);
  hec_arena_free(&arena);
  return result;
}

/* Planning alone, as a trainer would call it, every `step`-th iteration: decide[n], refine[n * n_layers]. */
static void time_planning(const hec_problem *problem, const hec_policy *policy, const hec_load *loads, int32_t n_loads,
                          int32_t n, int32_t step, double *decide, double *refine) {
  hec_arena arena = {0};
  hec_policy_run run = hec_policy_start(policy, problem, &arena);
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
  hec_policy_stop(&run);
  hec_arena_free(&arena);
}

static void time_plans(const hec_problem *problem, const hec_policy *policy, const hec_load *loads, int32_t n_loads,
                       int32_t n, timing *out) {
  hec_arena arena = {0};
  int32_t n_refine = n * problem->n_layers, period = policy->period > 0 ? policy->period : 1;
  double *decide = HEC_NEW(&arena, double, n), *refine = HEC_NEW(&arena, double, n_refine);
  time_planning(problem, policy, loads, n_loads, n, period, decide, refine);
  out->replan_s = hec_bench_quantile(decide, n, 0.5);
  time_planning(problem, policy, loads, n_loads, n, 1, decide, refine);
  out->decide_s = hec_bench_quantile(decide, n, 0.5);
  out->refine_s = hec_bench_quantile(refine, n_refine, 0.5);
  out->refine_p99_s = hec_bench_quantile(refine, n_refine, 0.99);
  hec_arena_free(&arena);
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
          "Times lowering (planning before and after the gate in it), simulation and reporting per iteration, planning alone\n"
          "(decide; replan: a decide on which the policy's period is due; refine of one layer), and the trace reader.\n"
          "Transfers: of tokens and experts from rank to rank, per iteration; simulated: so many millions a second.\n"
          "Synthetic loads in memory, one thread, wall clock, medians.",
      .examples = "  hecate-bench --iterations 50 --no-trace\n  hecate-bench --policy ep,hecate --ranks 64 --json",
      .args = args};
  int32_t n;
  return hec_args_parse(&command, argc, argv, NULL, 0, &n, done);
}

static void print_row(const settings *s, const char *name, const timing *t, hec_json_out *json, hec_text *out) {
  if (!s->json) {
    hec_text_printf(out, "%-26s %10.0f %10.1f %10.1f %10.1f %10.1f %10.1f %10.2f %10.2f %10.0f %10.2f\n", name,
                    1 / t->total_s, 1e6 * t->lower_s, 1e6 * t->simulate_s, 1e6 * t->report_s, 1e6 * t->decide_s,
                    1e6 * t->replan_s, 1e6 * t->refine_s, 1e6 * t->refine_p99_s, t->transfers,
                    1e-6 * t->transfers / t->simulate_s);
    return;
  }
  hec_json_object(json, NULL);
  hec_json_string(json, "policy", name);
  hec_json_double(json, "iterations_per_s", 1 / t->total_s);
  hec_json_double(json, "lower_s", t->lower_s);
  hec_json_double(json, "simulate_s", t->simulate_s);
  hec_json_double(json, "report_s", t->report_s);
  hec_json_double(json, "decide_s", t->decide_s);
  hec_json_double(json, "replan_s", t->replan_s);
  hec_json_double(json, "refine_layer_s", t->refine_s);
  hec_json_double(json, "refine_layer_p99_s", t->refine_p99_s);
  hec_json_double(json, "transfers", t->transfers);
  hec_json_double(json, "transfers_per_s", t->transfers / t->simulate_s);
  hec_json_close(json);
}

static hec_status run(const settings *s, hec_arena *arena, hec_text *out) {
  const hec_policy *policies[HEC_POLICIES_MAX];
  int32_t n_policies;
  HEC_TRY(hec_job_args_policies(s->job.policy, arena, policies, &n_policies));
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
  hec_json_out json = hec_json_begin(out, 1);
  if (s->json) {
    hec_json_object(&json, NULL);
    hec_json_int(&json, "version", 1);
    hec_json_int(&json, "ranks", problem.n_ranks);
    hec_json_int(&json, "layers", problem.n_layers);
    hec_json_int(&json, "experts", problem.n_experts);
    hec_json_string(&json, "law", s->job.law);
    hec_json_array(&json, "policies");
  } else {
    hec_text_printf(out,
                    "%d ranks x %d layers x %d experts, %d tokens per rank, %s, one thread, medians of %d iteration%s "
                    "(synthetic loads)\n\n",
                    problem.n_ranks, problem.n_layers, problem.n_experts, problem.tokens, s->job.law,
                    (int)s->iterations, s->iterations == 1 ? "" : "s");
    static const char *const heads[2][10] = {
        {"iterations", "lowering", "simulate", "report", "decide", "replan", "refine", "p99", "transfers", "simulated"},
        {"per s", "us", "us", "us", "us", "us", "us/layer", "us/layer", "mean", "M/s"}};
    for (int32_t i = 0; i < 2; i++) {
      hec_text_printf(out, "%-26s", i == 0 ? "" : "policy");
      for (int32_t k = 0; k < 10; k++)
        hec_text_printf(out, " %10s", heads[i][k]);
      hec_text_printf(out, "\n");
    }
  }
  for (int32_t p = 0; p < n_policies; p++) {
    timing t = time_policy(&problem, policies[p], law, loads, LOADS, (int32_t)s->iterations);
    time_plans(&problem, policies[p], loads, LOADS, (int32_t)s->iterations, &t);
    print_row(s, policies[p]->name, &t, &json, out);
  }
  if (s->json)
    hec_json_close(&json);
  if (!s->no_trace) {
    hec_trace_bench trace;
    HEC_TRY(hec_trace_bench_read(64 << 20, &trace));
    if (s->json)
      hec_json_double(&json, "trace_reader_bytes_per_s", (double)trace.bytes / trace.seconds);
    else
      hec_text_printf(out, "\ntrace reader %.0f MB/s (%.0f MB in memory)\n", 1e-6 * (double)trace.bytes / trace.seconds,
                      1e-6 * (double)trace.bytes);
  }
  if (s->json)
    hec_json_close(&json);
  return HEC_OK;
}

static int bench_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_status status = parse(argc, argv, &s, &done);
  if (status != HEC_OK || done)
    return hec_tool_exit("hecate-bench", status);
  if (argc == 1) /* other tools answer a bare call by usage; this one works for a while in silence */
    fprintf(stderr, "hecate-bench: times every policy; options and other benchmarks: hecate-bench --help\n");
  hec_text out = {0};
  hec_arena arena = {0};
  status = run(&s, &arena, &out);
  hec_arena_free(&arena);
  return hec_bench_exit(status, &out);
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
