/* MoonEP (github.com/MoonshotAI/MoonEP; reference policies.md 4.5): exact balance, and the bench of a public fork.
 *
 * Set-up: 8 H200, 8192 tokens a rank, width 7168, top-8, 896 experts, as the fork's bench; one layer, forward.
 * Inferred: inner width 2048 (weights do not travel under balanced loads, so only skewed ones depend on it); the bench's
 * routing is random, so balanced. Balance is measured on loads of sigma 1.5, because it must hold for every input.
 * Why ours can differ: dispatch sends every assignment here, while the system sends a token once to a rank that has
 * several of its experts: of 8 choices among 8 ranks 5.25 are expected to differ, so theirs is to be 0.66 of ours at the
 * same rate. Planning is a GPU kernel there, a law of 5 us and 1 ns a step here.
 * Not here: the end-to-end figure on H20 (no numbers in text), prefetch bandwidths (which bytes they count is not
 * stated). */
#include "validate/published/system_bench.h"

enum { RANKS = 8, TOKENS = 8192, EXPERTS = 896 };

static hec_status measure(hec_system_report *report, double sigma, hec_lab_cell *cell) {
  hec_system_setup setup = {.cluster = "dgx-h200", .n_ranks = RANKS, .tokens = TOKENS, .forward = true};
  HEC_TRY(hec_system_moe("deepseek-v3", 1, &setup.moe));
  setup.moe.n_experts = EXPERTS;
  setup.moe.n_shared_experts = 0;
  const hec_system_shape shape = {1, EXPERTS, setup.moe.top_k, RANKS, TOKENS, 1};
  hec_loads loads;
  HEC_TRY(hec_system_lognormal(report, &shape, sigma, HEC_DRIFT_NONE, &loads));
  setup.loads = &loads;
  return hec_system_simulate(report, &setup, "moonep", NULL, cell);
}

static hec_status run(hec_system_report *report) {
  hec_lab_cell even, skewed;
  HEC_TRY(measure(report, 0, &even));
  HEC_TRY(measure(report, 1.5, &skewed));
  hec_system_row r = {.quantity = "busiest over mean after, any input",
                      .kind = HEC_SYSTEM_VALUE,
                      .unit = "",
                      .setup = "8 H200 (dgx-h200), 8192 tokens a rank, width 7168, top-8, 896 experts; sigma 1.5",
                      .source = "README (exact by construction)",
                      .assumed = "synthetic loads",
                      .published = hec_system_number(1),
                      .ours = hec_system_number(skewed.overload)};
  hec_system_add(report, &r);
  r.setup = "8 H200 (dgx-h200), 8192 tokens a rank, width 7168, top-8, 896 experts; balanced loads, one layer forward";
  r.source = "bench of the fork github.com/zhumakhan/MoonEP";
  r.assumed = "synthetic loads; every assignment is sent, there a token once per rank";
  r.quantity = "planning";
  r.unit = "us";
  r.moved_by = "sigma 0 to 1.5";
  r.published = hec_system_number(51);
  r.ours = hec_system_number(even.plan_s * 1e6);
  r.moves = hec_system_range((double[]){even.plan_s * 1e6, skewed.plan_s * 1e6}, 2);
  hec_system_add(report, &r);
  r.quantity = "dispatch";
  r.published = hec_system_number(1717);
  r.ours = hec_system_number(even.dispatch_s * 1e6);
  r.moves = hec_system_range((double[]){even.dispatch_s * 1e6, skewed.dispatch_s * 1e6}, 2);
  hec_system_add(report, &r);
  return HEC_OK;
}

const hec_system hec_system_moonep = {
    .name = "moonep",
    .title = "exact balance of every micro-batch",
    .source = "github.com/MoonshotAI/MoonEP and public forks",
    .differs = "The system sends a token once to a rank that has several of its experts, here every assignment travels "
               "(5.25 of 8 are expected to differ). End-to-end numbers exist as a figure only.",
    .run = run,
};
