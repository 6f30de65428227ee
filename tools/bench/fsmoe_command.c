/* hecate-bench fsmoe: the degrees of FSMoE's grid by enumeration, as the planner has them, and by SLSQP as the paper does.
 * How often they agree, what the disagreements cost, and how long each takes. And the planner's gradient partition alone.
 * Without NLopt the enumeration is timed and the rest says why it is not there. */
#include "tools/bench/bench.h"
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
  HEC_SCOPED(hec_arena) arena = {0};
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
  return hec_args_options(&command, argc, argv, done);
}

static const char *const testbeds[] = {"A", "B"};
typedef struct {
  settings settings;
  result of[2][N_KINDS];
  double divided_us;
} results;

static void add_result(hec_doc *doc, const char *testbed, problem_kind kind, const result *r) {
  HEC_ROW(doc, HEC_SHOW("testbed", HEC_AS_IS, testbed), HEC_SHOW("problem", HEC_AS_IS, kind_name[kind]),
          HEC_SHOW("problems", HEC_AS_IS, r->sum.n), HEC_SHOW("enumeration_s", HEC_SECONDS, 1e-6 * r->enumerated_us));
  if (hec_slsqp_version())
    HEC_ADD(doc, HEC_SHOW("slsqp_s", HEC_SECONDS, 1e-6 * r->solved_us), HEC_SHOW("same", HEC_AS_IS, r->sum.same),
            HEC_SHOW("as_good", HEC_AS_IS, r->sum.as_good), HEC_SHOW("worse", HEC_AS_IS, r->sum.worse),
            HEC_SHOW("unanswered", HEC_AS_IS, r->sum.unanswered), HEC_SHOW("gap_worst", HEC_SIGNED2, r->sum.worst),
            HEC_SHOW("gap_mean", HEC_SIGNED2, r->sum.mean),
            HEC_SHOW("rounding_worst", HEC_SIGNED2, r->sum.rounding_worst),
            HEC_KEEP("rounding_mean", r->sum.rounding_mean));
}

static void report(const void *of, hec_doc *doc) {
  const results *all = of;
  const char *version = hec_slsqp_version();
  HEC_ADD(doc, HEC_KEEP("version", 1), HEC_KEEP("solver", version ? version : ""));
  if (version)
    hec_doc_note(doc, "degrees by enumeration and by SLSQP (%s), rounded; gaps are of the layer's time", version);
  else
    hec_doc_note(doc, "degrees by enumeration; no SLSQP: %s", hec_slsqp_absent());
  hec_doc_table(
      doc, "degrees",
      version ? "testbed | problem | layers | enumerated | SLSQP | same | equal | worse | none | worst gap | mean gap "
                "| whole powers, worst"
              : "testbed | problem | layers | enumerated");
  for (int32_t t = 0; t < 2; t++)
    for (int32_t kind = 0; kind < N_KINDS; kind++)
      add_result(doc, testbeds[t], (problem_kind)kind, &all->of[t][kind]);
  hec_doc_end(doc);
  HEC_ADD(doc, HEC_KEEP("layers", all->settings.layers), HEC_KEEP("partition_s", 1e-6 * all->divided_us));
  hec_doc_note(doc, "gradient partition of %d layers: %.0f us", (int)all->settings.layers, all->divided_us);
}

static hec_status run(results *all, hec_arena *arena) {
  const settings *s = &all->settings;
  hec_fsmoe_grid grid[2];
  for (int32_t t = 0; t < 2; t++) {
    HEC_TRY(hec_fsmoe_grid_of(testbeds[t], arena, &grid[t]));
    for (int32_t kind = 0; kind < N_KINDS; kind++)
      all->of[t][kind] = measure(s, &grid[t], (problem_kind)kind);
  }
  all->divided_us = divide_us(s, &grid[0]);
  return HEC_OK;
}

int hec_fsmoe_command(int argc, char **argv) {
  results all = {.divided_us = 0};
  bool done;
  HEC_SCOPED(hec_arena) arena = {0};
  hec_status status = parse(argc, argv, &all.settings, &done);
  if (status == HEC_OK && !done)
    status = run(&all, &arena);
  return hec_bench_report(status, done, report, &all, all.settings.json);
}
