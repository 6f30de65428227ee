/* LPLB (github.com/deepseek-ai/LPLB; reference policies.md 4.3): throughput of DeepSeek-R1 in SGLang.
 *
 * Set-up: 2 nodes of 8 H20, EP16, prefill; EPLB and LPLB with 2 redundant experts a rank.
 * Loads: recorded of the same model (SGLang's expert statistics), 12 workloads in file order, scaled to the tokens.
 * Inferred: the baseline of the pull request is EPLB with as many replicas; 4096 tokens a rank (1024 and 8192 are tried);
 * GSM8K's loads are not public.
 * Why ours can differ: the gain is that of batches that differ from the average, and recorded are averages of workloads;
 * serving overheads, decode and key-value traffic are not modelled. */
#include "validate/published/system_bench.h"

enum { RANKS = 16, EXPERTS = 256, TOP_K = 8, SLOTS = 18 };
static const char file[] = "traces/sglang_deepseek_r1_ep_statistics.jsonl";
static const char cluster[] =
    "2x8 nvlink=450G@2us nic=50G@5us nics=8 pxn=1 nic_eff=0.9 flops=148T eff=0.85 mem=96G hbm=4000G";

static hec_status measure(hec_system_report *report, int32_t tokens, double *gain, bool *there) {
  hec_system_setup setup = {.cluster = cluster,
                            .n_ranks = RANKS,
                            .tokens = tokens,
                            .forward = true,
                            .slots = SLOTS,
                            .period = 1,
                            .warmup = 1};
  HEC_TRY(hec_system_moe("deepseek-v3", hec_system_few(report, 20, 2), &setup.moe));
  const hec_system_shape shape = {setup.moe.n_layers, EXPERTS, TOP_K, RANKS, tokens, hec_system_few(report, 12, 3)};
  hec_loads loads;
  hec_lab_cell eplb, lplb;
  HEC_TRY(hec_system_recorded(report, file, &shape, &loads, there));
  if (!*there)
    return HEC_OK;
  setup.loads = &loads;
  HEC_TRY(hec_system_simulate(report, &setup, "eplb", NULL, &eplb));
  HEC_TRY(hec_system_simulate(report, &setup, "lplb", NULL, &lplb));
  *gain = eplb.ordinary_s / lplb.ordinary_s;
  return HEC_OK;
}

static hec_status run(hec_system_report *report) {
  static const int32_t tokens[] = {4096, 1024, 8192};
  double gain[3] = {0};
  bool there = false;
  for (int32_t i = 0; i < 3; i++)
    HEC_TRY(measure(report, tokens[i], &gain[i], &there));
  hec_system_add(report,
                 &(hec_system_row){.quantity = "throughput over EPLB",
                                   .setup = "16 H20 in 2 nodes, DeepSeek-R1, 2 redundant experts a rank, 4096 "
                                            "tokens a rank, forward",
                                   .source = "SGLang pull requests 24515, 36777: 19,715 to about 20,000 tokens/s",
                                   .assumed = "baseline, tokens; recorded averages of other workloads",
                                   .published = hec_system_number(20000.0 / 19715),
                                   .ours = hec_system_number(gain[0]),
                                   .moves = hec_system_range(gain, 3),
                                   .moved_by = "1024 to 8192 tokens",
                                   .skipped = there ? NULL : hec_system_absent(report, file)});
  return HEC_OK;
}

const hec_system hec_system_lplb = {
    .name = "lplb",
    .title = "LPLB, tokens split by a linear programme",
    .source = "github.com/deepseek-ai/LPLB, SGLang pull requests 24515 and 36777",
    .differs = "Its gain is that of batches that differ from the average; recorded loads are averages.",
    .run = run,
};
