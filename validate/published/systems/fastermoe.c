/* FasterMoE (PPoPP 2022, doi 10.1145/3503221.3508418; reference policies.md 3.2): shadowing over plain expert parallelism.
 *
 * Set-up: 16 V100 (2 nodes of 8, PCIe, 50 Gb/s a node) and 64 V100 (8 nodes, 100 Gb/s), training.
 * Inferred: the model, a GPT of 12 layers, width 1024, inner 4096, top-2, two experts a GPU, 4096 tokens a GPU; the paper's
 * numbers are "up to" over models that are not all known, so ours is one point and its range. Loads are synthetic; on 16
 * GPUs SmartMoE's recorded ones are tried too where they are at hand.
 * Why ours can differ: the paper's "schedule" (pairwise exchanges in groups, overlapped with experts) is no schedule here:
 * those numbers are skipped. Its gate for the topology changes the model. The paper computes in fp32, as here (4 bytes). */
#include "validate/published/system_bench.h"

static const char pcie16[] = "2x8 nvlink=12G@5us nic=6.25G@10us flops=15.7T eff=0.73 mem=32G hbm=900G";
static const char pcie64[] = "8x8 nvlink=12G@5us nic=12.5G@10us flops=15.7T eff=0.73 mem=32G hbm=900G";
static const char file[] = "traces/smartmoe_gpt_e32_r16.jsonl";
enum { TOKENS = 4096 };

static hec_status make_setup(hec_system_report *report, bool large, hec_system_setup *setup) {
  *setup =
      (hec_system_setup){.cluster = large ? pcie64 : pcie16, .n_ranks = large ? 64 : 16, .tokens = TOKENS, .warmup = 1};
  HEC_TRY(hec_system_moe("gpt-moe-s", hec_system_few(report, 12, 2), &setup->moe));
  setup->moe.n_experts = 2 * setup->n_ranks;
  setup->moe.d_model = 1024;
  setup->moe.d_ffn = setup->moe.d_ffn_dense = 4096;
  setup->moe.n_heads = setup->moe.n_kv_heads = 16;
  setup->moe.d_head = 64;
  setup->moe.dtype_bytes = 4;
  setup->moe.grad_bytes = 4;
  setup->moe.optimizer_bytes = 8;
  return HEC_OK;
}

/* With the recorded loads, if they are there; else *gain stays. */
static hec_status measure_recorded(hec_system_report *report, double *gain) {
  hec_system_setup setup;
  HEC_TRY(make_setup(report, false, &setup));
  const hec_system_shape shape = {setup.moe.n_layers, 32, 2, 16, TOKENS, hec_system_few(report, 12, 3)};
  hec_loads loads;
  bool there;
  HEC_TRY(hec_system_recorded(report, file, &shape, &loads, &there));
  setup.loads = &loads;
  return there ? hec_system_gain(report, &setup, "ep", "fastermoe", gain) : HEC_OK;
}

static hec_status run(hec_system_report *report) {
  static const double shadowing[2] = {1.95, 4.74}, schedule[2] = {2.20, 5.72};
  for (int32_t i = 0; i < 2; i++) {
    hec_system_setup setup;
    double gain[HEC_SYSTEM_SKEWS + 1];
    HEC_TRY(make_setup(report, i == 1, &setup));
    HEC_TRY(hec_system_gains(report, &setup, hec_system_few(report, 6, 3), "ep", "fastermoe", gain));
    gain[HEC_SYSTEM_SKEWS] = gain[0];
    if (i == 0)
      HEC_TRY(measure_recorded(report, &gain[HEC_SYSTEM_SKEWS]));
    hec_system_row r = {.quantity = i == 0 ? "shadowing over FastMoE, 16 GPUs, up to"
                                           : "shadowing over FastMoE, 64 GPUs, "
                                             "up to",
                        .setup = i == 0 ? "16 V100 on PCIe, 50 Gb/s a node; 12 layers, width 1024, 32 experts top-2"
                                        : "64 V100 on PCIe, 100 Gb/s a node; 12 layers, width 1024, 128 experts top-2",
                        .source = "evaluation, doi 10.1145/3503221.3508418",
                        .assumed = "the model; " HEC_SYSTEM_SKEW_TEXT,
                        .published = hec_system_number(shadowing[i]),
                        .ours = hec_system_number(gain[0]),
                        .moves = hec_system_range(gain, HEC_SYSTEM_SKEWS + 1),
                        .moved_by =
                            i == 0 ? HEC_SYSTEM_SKEW_MOVED ", and SmartMoE's trace if at hand" : HEC_SYSTEM_SKEW_MOVED};
    hec_system_add(report, &r);
    r.quantity =
        i == 0 ? "shadowing and smart schedule, 16 GPUs, up to" : "shadowing and smart schedule, 64 GPUs, up to";
    r.published = hec_system_number(schedule[i]);
    r.skipped = "the smart schedule (exchanges in groups beside experts) is not built";
    hec_system_add(report, &r);
  }
  return HEC_OK;
}

const hec_system hec_system_fastermoe = {
    .name = "fastermoe",
    .title = "FasterMoE, shadowing of hot experts",
    .source = "PPoPP 2022, doi 10.1145/3503221.3508418",
    .differs =
        "Its numbers are the most over several models and times of training; ours is one model with made-up loads.",
    .run = run,
};
