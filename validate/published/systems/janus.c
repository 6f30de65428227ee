/* Janus (SIGCOMM 2023, doi 10.1145/3603269.3604869; reference policies.md 3.8): fetching experts in place of sending tokens.
 *
 * Set-up: 32 A100 in 4 nodes. Inferred: p4d-4x8's rates, the shapes of gpt-moe-s with 32 experts and sequence 2048; 32,768
 * tokens a rank, where its own criterion says fetch by far (8192 is tried); loads synthetic.
 * Why ours can differ: the numbers are "up to" over models that are not at hand; the baseline there is Tutel. Traffic is
 * not compared: 16 times less is for a shape that is not at hand. */
#include "validate/published/system_bench.h"

enum { RANKS = 32 };

static hec_status measure(hec_system_report *report, int32_t tokens, double gain[HEC_SYSTEM_SKEWS]) {
  hec_system_setup setup = {.cluster = "p4d-4x8", .n_ranks = RANKS, .tokens = tokens, .warmup = 1};
  HEC_TRY(hec_system_moe("gpt-moe-s", hec_system_few(report, 6, 2), &setup.moe));
  setup.moe.n_experts = RANKS;
  return hec_system_gains(report, &setup, 3, "ep", "janus", gain);
}

static hec_status run(hec_system_report *report) {
  double gain[2 * HEC_SYSTEM_SKEWS];
  HEC_TRY(measure(report, hec_system_few(report, 32768, 8192), gain));
  HEC_TRY(measure(report, 8192, gain + HEC_SYSTEM_SKEWS));
  hec_system_row r = {.quantity = "iteration over expert parallelism, up to",
                      .setup = "32 A100 in 4 nodes (p4d-4x8), gpt-moe-s with 32 experts, 32768 tokens a rank",
                      .source = "abstract, doi 10.1145/3603269.3604869",
                      .assumed = "model, tokens; " HEC_SYSTEM_SKEW_TEXT,
                      .published = hec_system_number(2.06),
                      .ours = hec_system_number(gain[0]),
                      .moves = hec_system_range(gain, 2 * HEC_SYSTEM_SKEWS),
                      .moved_by = "sigma 0.5 to 1.5, 8192 or 32768 tokens"};
  hec_system_add(report, &r);
  r.quantity = "traffic, up to";
  r.published = hec_system_number(16);
  r.skipped = "the shape it is for is not at hand";
  hec_system_add(report, &r);
  return HEC_OK;
}

const hec_system hec_system_janus = {
    .name = "janus",
    .title = "Janus, experts fetched in place of tokens",
    .source = "SIGCOMM 2023, doi 10.1145/3603269.3604869",
    .differs = "Its numbers are the most over models that are not at hand.",
    .run = run,
};
