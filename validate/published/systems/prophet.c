/* Pro-Prophet (arXiv 2411.10003; reference policies.md 3.9): Pro-Prophet and FasterMoE over DeepSpeed-MoE.
 *
 * Set-up: 16 RTX 3090 in 4 nodes and 8 RTX 2080 Ti in 2 nodes; S, M, L: 12 layers of width 512, 1024, 2048 with inner
 * 1024, 2048, 4096; DS, DM: S and M with 24 layers; top-1 and top-2; 4096 tokens on the 2080 Ti.
 * Inferred: one expert a GPU; tokens are in all, 16,384 on the 3090 (per GPU is tried: that many times more), PCIe 4
 * and 3 x16, 100 Gb/s a node, half precision; loads synthetic. DeepSpeed is `ep`, no drops.
 * Why ours can differ: skew decides these gains and is not public (the ranges); Pro-Prophet's scheduler hides copies under
 * experts too, ours under attention only; fixed costs of a framework on small models (512 wide) are not modelled. */
#include "validate/published/system_bench.h"

typedef struct {
  const char *name;
  int32_t layers, d_model;
} model;
static const model models[] = {{"S", 12, 512}, {"M", 12, 1024}, {"L", 12, 2048}, {"DS", 24, 512}, {"DM", 24, 1024}};
enum { N_MODELS = sizeof models / sizeof *models };

typedef struct {
  const char *name, *cluster;
  int32_t n_ranks, tokens;
  double fastermoe[2][N_MODELS], prophet[2][N_MODELS]; /* [top-k - 1]; 0: not published */
} machine;

static const machine machines[] = {
    {"16 RTX 3090",
     "4x4 nvlink=32G@5us nvlink_eff=0.75 nic=12.5G@5us flops=71T eff=0.6 mem=24G hbm=936G",
     16,
     1024,
     {{1.63, 1.99, 1.62, 1.34, 1.68}, {2.31, 1.82, 1.94, 1.77, 1.84}},
     {{1.98, 2.22, 1.80, 1.70, 2.26}, {2.62, 2.10, 2.23, 1.94, 2.07}}},
    {"8 RTX 2080 Ti",
     "2x4 nvlink=16G@5us nvlink_eff=0.75 nic=12.5G@5us flops=54T eff=0.6 mem=11G hbm=616G",
     8,
     512,
     {{1.20, 1.02, 0, 1.12, 0.96}, {1.56, 1.29, 0, 1.44, 1.25}},
     {{1.30, 1.18, 0, 1.30, 1.26}, {1.91, 1.94, 0, 1.64, 1.58}}},
};

static hec_status make_setup(hec_system_report *report, const machine *on, const model *m, int32_t top_k,
                             hec_system_setup *setup) {
  *setup = (hec_system_setup){.cluster = on->cluster, .n_ranks = on->n_ranks, .tokens = on->tokens, .warmup = 1};
  HEC_TRY(hec_system_moe("gpt-moe-s", hec_system_few(report, m->layers, 2), &setup->moe));
  setup->moe.n_experts = on->n_ranks;
  setup->moe.top_k = top_k;
  setup->moe.d_model = m->d_model;
  setup->moe.d_ffn = setup->moe.d_ffn_dense = 2 * m->d_model;
  setup->moe.n_heads = setup->moe.n_kv_heads = m->d_model / 64;
  setup->moe.d_head = 64;
  setup->moe.seq_len = 1024;
  return HEC_OK;
}

static hec_status add(hec_system_report *report, const machine *on, const model *m, int32_t top_k, const char *policy,
                      const char *name, double published) {
  hec_system_setup setup;
  double gain[2 * HEC_SYSTEM_SKEWS];
  HEC_TRY(make_setup(report, on, m, top_k, &setup));
  HEC_TRY(hec_system_gains(report, &setup, hec_system_few(report, 6, 3), "ep", policy, gain));
  setup.tokens *= on->n_ranks;
  HEC_TRY(hec_system_gains(report, &setup, hec_system_few(report, 6, 3), "ep", policy, gain + HEC_SYSTEM_SKEWS));
  hec_system_add(report, &(hec_system_row){.quantity = hec_system_text(report, "%s over DeepSpeed, %s, %s, top-%d",
                                                                       name, on->name, m->name, top_k),
                                           .setup = hec_system_text(report, "%s (%s), an expert a GPU, %d tokens a GPU",
                                                                    on->name, on->cluster, on->tokens),
                                           .source = "end-to-end speed-ups, arXiv 2411.10003",
                                           .assumed = "experts, tokens, network; " HEC_SYSTEM_SKEW_TEXT,
                                           .published = hec_system_number(published),
                                           .ours = hec_system_number(gain[0]),
                                           .moves = hec_system_range(gain, 2 * HEC_SYSTEM_SKEWS),
                                           .moved_by = HEC_SYSTEM_SKEW_MOVED ", tokens in all or a GPU"});
  return HEC_OK;
}

static hec_status run(hec_system_report *report) {
  for (int32_t i = 0; i < (int32_t)(sizeof machines / sizeof *machines); i++)
    for (int32_t k = 0; k < 2; k++)
      for (int32_t j = 0; j < N_MODELS; j++) {
        const machine *on = &machines[i];
        if (on->prophet[k][j] == 0)
          continue;
        HEC_TRY(add(report, on, &models[j], k + 1, "prophet", "Pro-Prophet", on->prophet[k][j]));
        HEC_TRY(add(report, on, &models[j], k + 1, "fastermoe", "FasterMoE", on->fastermoe[k][j]));
      }
  return HEC_OK;
}

const hec_system hec_system_prophet = {
    .name = "prophet",
    .title = "Pro-Prophet, copies planned an iteration ahead",
    .source = "arXiv 2411.10003",
    .differs = "Skew, tokens, experts and network are inferred.",
    .run = run,
};
