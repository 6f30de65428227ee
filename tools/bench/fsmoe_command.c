/* hecate-bench fsmoe: the degrees of FSMoE's grid by enumeration, as the planner has them, and by SLSQP as the paper does.
 * How often they agree, what the disagreements cost, and how long each takes. And the planner's gradient partition alone.
 * Without NLopt the enumeration is timed and the rest says why it is not there. */
#include "tools/bench/bench_commands.h"
#include "tools/bench/bench_loads.h"
#include "tools/front/args.h"
#include "validate/nlopt/slsqp.h"
#include "validate/published/fsmoe_slsqp.h"
#include "validate/published/fsmoe_testbed.h"

typedef struct {
  int64_t layers, stride;
  bool json;
} settings;

typedef enum { FORWARD, BACKWARD, BACKWARD_REDUCING, N_KINDS } problem_kind;
static const char *const kind_name[N_KINDS] = {"forward", "backward", "backward, its gradients in it"};

static double now_us(void) {
  return 1e6 * hec_bench_now_s();
}

typedef struct {
  hec_fsmoe_comparison sum; /* n only without a solver */
  double enumerated_us, solved_us;
} result;

static result measure(const settings *s, const hec_fsmoe_grid *grid, problem_kind kind) {
  result r = {0};
  bool solver = hec_slsqp_version() != NULL;
  int32_t n = 0;
  for (int32_t i = 0; i < grid->n; i += (int32_t)s->stride, n++) {
    const hec_fsmoe_case_study *study = &grid->study[i];
    const hec_fsmoe_layer *layer = &study->moe[kind != FORWARD];
    double reduce = kind == BACKWARD_REDUCING ? study->reduce.start + study->reduce.per_unit * study->gradient : 0;
    double a = now_us();
    hec_fsmoe_choice best = hec_fsmoe_best(layer, reduce, HEC_FSMOE_DEGREE_MAX);
    double b = now_us();
    r.enumerated_us += b - a;
    if (!solver)
      continue;
    hec_fsmoe_solved solved = hec_fsmoe_slsqp(layer, reduce, HEC_FSMOE_DEGREE_MAX);
    r.solved_us += now_us() - b;
    hec_fsmoe_compare(&r.sum, &best, &solved);
  }
  r.sum.n = n;
  r.enumerated_us /= n;
  r.solved_us /= n;
  return r;
}

/* Microseconds of a partition of `layers` layers of the grid, the mean over a few. */
static double divide_us(const settings *s, const hec_fsmoe_grid *grid) {
  hec_arena arena = {0};
  int32_t layers = (int32_t)s->layers, n = 0;
  hec_fsmoe_part *parts = HEC_NEW(&arena, hec_fsmoe_part, layers);
  hec_fsmoe_slot *slots = HEC_NEW(&arena, hec_fsmoe_slot, layers);
  double spent = 0;
  for (int32_t i = 0; i < grid->n; i += 97 * (int32_t)s->stride, n++) {
    const hec_fsmoe_case_study *study = &grid->study[i];
    for (int32_t v = 0; v < layers; v++)
      parts[v] = (hec_fsmoe_part){study->moe[1], study->dense[1], study->gradient};
    double a = now_us();
    (void)hec_fsmoe_divide(parts, layers, study->reduce, (hec_fsmoe_options){0}, &arena, slots);
    spent += now_us() - a;
  }
  hec_arena_free(&arena);
  return spent / n;
}

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.layers = 24, .stride = 1};
  const hec_arg args[] = {
      HEC_ARG_WHOLE("--layers", s->layers, "L", "layers of the gradient partition that is timed (default 24)", 1, 1024),
      HEC_ARG_WHOLE("--stride", s->stride, "N", "every N-th of the 1,458 layers (default 1)", 1, 1458),
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-bench fsmoe",
      .usage = "hecate-bench fsmoe [options]",
      .summary = "FSMoE's degrees on its own grid, by enumeration and by SLSQP (NLopt): agreement, gaps, times.",
      .examples = "  hecate-bench fsmoe\n  hecate-bench fsmoe --json",
      .args = args};
  int32_t n;
  return hec_args_parse(&command, argc, argv, NULL, 0, &n, done);
}

static void print_json(hec_json_out *json, const char *testbed, problem_kind kind, const result *r) {
  hec_json_object(json, NULL);
  hec_json_string(json, "testbed", testbed);
  hec_json_string(json, "problem", kind_name[kind]);
  hec_json_int(json, "problems", r->sum.n);
  hec_json_double(json, "enumeration_s", 1e-6 * r->enumerated_us);
  if (hec_slsqp_version()) {
    hec_json_double(json, "slsqp_s", 1e-6 * r->solved_us);
    hec_json_int(json, "same", r->sum.same);
    hec_json_int(json, "as_good", r->sum.as_good);
    hec_json_int(json, "worse", r->sum.worse);
    hec_json_int(json, "unanswered", r->sum.unanswered);
    hec_json_double(json, "gap_worst", r->sum.worst);
    hec_json_double(json, "gap_mean", r->sum.mean);
    hec_json_double(json, "rounding_worst", r->sum.rounding_worst);
    hec_json_double(json, "rounding_mean", r->sum.rounding_mean);
  }
  hec_json_close(json);
}

static void print_text(hec_text *out, const char *testbed, problem_kind kind, const result *r) {
  hec_text_printf(out, "%-8s %-30s %6d %12.3f", testbed, kind_name[kind], r->sum.n, r->enumerated_us);
  if (hec_slsqp_version())
    hec_text_printf(out, " %9.1f %6d %6d %6d %6d %8.2f %8.3f %9.2f", r->solved_us, r->sum.same, r->sum.as_good,
                    r->sum.worse, r->sum.unanswered, 100 * r->sum.worst, 100 * r->sum.mean,
                    100 * r->sum.rounding_worst);
  hec_text_printf(out, "\n");
}

static hec_status run(const settings *s, hec_arena *arena, hec_text *out) {
  static const char *const testbeds[] = {"A", "B"};
  hec_fsmoe_grid grid[2];
  for (int32_t t = 0; t < 2; t++)
    HEC_TRY(hec_fsmoe_grid_of(testbeds[t], arena, &grid[t]));
  const char *version = hec_slsqp_version();
  hec_json_out json = hec_json_begin(out, 1);
  if (s->json) {
    hec_json_object(&json, NULL);
    hec_json_int(&json, "version", 1);
    hec_json_string(&json, "solver", version ? version : "");
    hec_json_array(&json, "degrees");
  } else if (version) {
    hec_text_printf(out, "degrees by enumeration and by SLSQP (%s), rounded; gaps are of the layer's time\n\n",
                    version);
    hec_text_printf(out, "%-8s %-30s %6s %12s %9s %6s %6s %6s %6s %8s %8s %9s\n", "testbed", "problem", "layers",
                    "enumerate us", "slsqp us", "same", "equal", "worse", "none", "worst %", "mean %", "whole r %");
  } else {
    hec_text_printf(out, "degrees by enumeration; no SLSQP: %s\n\n%-8s %-30s %6s %12s\n", hec_slsqp_absent(), "testbed",
                    "problem", "layers", "enumerate us");
  }
  for (int32_t t = 0; t < 2; t++)
    for (int32_t kind = 0; kind < N_KINDS; kind++) {
      result r = measure(s, &grid[t], (problem_kind)kind);
      if (s->json)
        print_json(&json, testbeds[t], (problem_kind)kind, &r);
      else
        print_text(out, testbeds[t], (problem_kind)kind, &r);
    }
  double divided = divide_us(s, &grid[0]);
  if (s->json) {
    hec_json_close(&json);
    hec_json_int(&json, "layers", s->layers);
    hec_json_double(&json, "partition_s", 1e-6 * divided);
    hec_json_close(&json);
  } else {
    hec_text_printf(out, "\ngradient partition of %d layers: %.0f us\n", (int)s->layers, divided);
  }
  return HEC_OK;
}

int hec_fsmoe_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_arena arena = {0};
  hec_text out = {0};
  hec_status status = parse(argc, argv, &s, &done);
  if (status == HEC_OK && !done)
    status = run(&s, &arena, &out);
  hec_arena_free(&arena);
  return hec_bench_exit(status, &out);
}
