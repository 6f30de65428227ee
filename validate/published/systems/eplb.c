/* EPLB as TensorRT-LLM serves with it (its tech blog 4; reference policies.md 4.12): imbalance of DeepSeek-R1 before and
 * after, where the table prints (busiest - mean) / mean; here busiest over mean, so that it can be a ratio.
 *
 * Set-up: 32 ranks with 9 slots and 36 ranks with 8, 256 experts, on recorded loads of the same model (SGLang's expert
 * statistics, 12 workloads of prefill and decode); each workload stands still, so the window's load is the present one.
 * The number is the mean over workloads and layers, the range that of the workloads.
 * Inferred: the recorded workloads stand for those of the blog, which are not public.
 * Why ours can differ: another workload; one workload's load over a whole recording is smoother than an iteration's;
 * experts are placed with all ranks in one domain (the global form), as on an NVL72. */
#include "validate/published/system_bench.h"

#include "validate/stats.h"

enum { EXPERTS = 256, TOP_K = 8, TOKENS = 1024, WORKLOADS_MAX = 12 };
static const char file[] = "traces/sglang_deepseek_r1_ep_statistics.jsonl";

typedef struct {
  double before[WORKLOADS_MAX], after[WORKLOADS_MAX];
  int32_t n;
} imbalance;

static double mean(const double *value, int32_t n) {
  double sum = 0;
  for (int32_t i = 0; i < n; i++)
    sum += value[i];
  return sum / n;
}

static hec_status measure(hec_system_report *report, int32_t n_ranks, int32_t slots, imbalance *out) {
  *out = (imbalance){0};
  hec_system_setup setup = {.cluster = "gb200-nvl72",
                            .n_ranks = n_ranks,
                            .tokens = TOKENS,
                            .forward = true,
                            .period = 1,
                            .slots = slots,
                            .warmup = 1};
  HEC_TRY(hec_system_moe("deepseek-v3", hec_system_few(report, 58, 4), &setup.moe));
  const hec_system_shape shape = {
      setup.moe.n_layers, EXPERTS, TOP_K, n_ranks, TOKENS, hec_system_few(report, WORKLOADS_MAX, 2)};
  hec_loads loads;
  bool there;
  HEC_TRY(hec_system_recorded(report, file, &shape, &loads, &there));
  for (out->n = 0; there && out->n < loads.n; out->n++) {
    const hec_load same[2] = {loads.load[out->n], loads.load[out->n]};
    const hec_loads still = {2, (int64_t[]){1, 2}, (int64_t[]){1, 1}, (hec_load *)same};
    hec_lab_cell ep, eplb;
    setup.loads = &still;
    HEC_TRY(hec_system_simulate(report, &setup, "ep", NULL, &ep));
    HEC_TRY(hec_system_simulate(report, &setup, "eplb", NULL, &eplb));
    out->before[out->n] = ep.overload;
    out->after[out->n] = eplb.overload;
  }
  return HEC_OK;
}

static void add(hec_system_report *report, hec_system_row r, const char *quantity, double published,
                const double *value, int32_t n) {
  r.quantity = quantity;
  r.published = hec_system_number(published);
  r.skipped = n > 0 ? NULL : hec_system_absent(report, file);
  if (n > 0) {
    r.ours = hec_system_number(mean(value, n));
    r.moves = hec_system_range(value, n);
  }
  hec_system_add(report, &r);
}

static hec_status run(hec_system_report *report) {
  imbalance nine, eight;
  HEC_TRY(measure(report, 32, 9, &nine));
  HEC_TRY(measure(report, 36, 8, &eight));
  hec_system_row r = {.kind = HEC_SYSTEM_VALUE,
                      .unit = "",
                      .setup = "DeepSeek-R1, EP32 with 9 slots, EP36 with 8 (gb200-nvl72)",
                      .source = "TensorRT-LLM tech blog 4",
                      .assumed = "recorded workloads of another server of the same model, each standing still",
                      .moved_by = "the workload"};
  add(report, r, "busiest over mean, EP32, before (an input)", 2.564, nine.before, nine.n);
  add(report, r, "busiest over mean, EP32, 9 slots", 1.109, nine.after, nine.n);
  add(report, r, "busiest over mean, EP36, 8 slots", 1.115, eight.after, eight.n);
  return HEC_OK;
}

const hec_system hec_system_eplb = {
    .name = "eplb",
    .title = "EPLB in TensorRT-LLM's wide expert parallelism",
    .source = "TensorRT-LLM tech blog 4, github.com/deepseek-ai/EPLB",
    .differs = "Loads are those of another server of the same model.",
    .run = run,
};
