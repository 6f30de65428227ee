/* HarMoEny (arXiv 2506.12417, github.com/sacs-epfl/HarMoEny; reference policies.md 3.13, traces.md 2): imbalance of
 * Qwen1.5-MoE on its own trace.
 *
 * Set-up: the two recorded forward passes on 6 ranks of 10 experts, loads as recorded by source, q = 150.
 * Inferred: nothing of the loads. The published numbers are of several data sets, of which the trace is one.
 * Why ours can differ: the recorded assignments (top-1 counts of the file) are taken as they are; which passes the
 * published numbers average is not stated. Throughput (+37 to 70 %) is not simulated: its baselines fetch experts from
 * host memory, which has no link here. */
#include "validate/published/system_bench.h"

enum { RANKS = 6, EXPERTS = 60 };
static const char file[] = "traces/harmoeny_qwen15_moe_a27b_per_rank.jsonl";

static hec_status measure(hec_system_report *report, int32_t tokens, double *fixed, double *left, bool *there) {
  hec_system_setup setup = {.cluster = "v100-1edr", .n_ranks = RANKS, .tokens = tokens, .forward = true};
  HEC_TRY(hec_system_moe("olmoe", hec_system_few(report, 24, 4), &setup.moe));
  setup.moe.n_experts = EXPERTS;
  setup.moe.top_k = 1;
  const hec_system_shape shape = {setup.moe.n_layers, EXPERTS, 1, RANKS, tokens, 2};
  hec_loads loads;
  hec_lab_cell ep, harmoeny;
  HEC_TRY(hec_system_recorded(report, file, &shape, &loads, there));
  if (!*there)
    return HEC_OK;
  setup.loads = &loads;
  HEC_TRY(hec_system_simulate(report, &setup, "ep", NULL, &ep));
  HEC_TRY(hec_system_simulate(report, &setup, "harmoeny", NULL, &harmoeny));
  *fixed = ep.overload;
  *left = harmoeny.overload;
  return HEC_OK;
}

static hec_status run(hec_system_report *report) {
  static const int32_t tokens[] = {16384, 4096, 65536};
  double fixed[3] = {0}, left[3] = {0};
  bool there = false;
  for (int32_t i = 0; i < 3; i++)
    HEC_TRY(measure(report, tokens[i], &fixed[i], &left[i], &there));
  hec_system_row r = {.quantity = "busiest over mean, static placement (an input)",
                      .kind = HEC_SYSTEM_VALUE,
                      .unit = "",
                      .setup = "Qwen1.5-MoE, 6 ranks of 10 experts, recorded passes scaled to 16384 assignments a rank",
                      .source = "traces of the repository (traces.md 2)",
                      .assumed = "size of the batch",
                      .published = {1.65, 1.83},
                      .ours = hec_system_number(fixed[0]),
                      .moves = hec_system_range(fixed, 3),
                      .moved_by = "4096 to 65536 assignments a rank",
                      .skipped = there ? NULL : hec_system_absent(report, file)};
  hec_system_add(report, &r);
  r.quantity = "busiest over mean, HarMoEny";
  r.published = hec_system_number(1.02);
  r.ours = hec_system_number(left[0]);
  r.moves = hec_system_range(left, 3);
  hec_system_add(report, &r);
  return HEC_OK;
}

const hec_system hec_system_harmoeny = {
    .name = "harmoeny",
    .title = "HarMoEny, spare ranks filled after the gate",
    .source = "arXiv 2506.12417, github.com/sacs-epfl/HarMoEny",
    .differs =
        "The trace is one of several runs behind its numbers. Throughput is not simulated: its experts come from host "
        "memory.",
    .run = run,
};
