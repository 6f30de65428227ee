/* Break-even tokens: the golden values of reference policies.md 0.3, and the laws against a scan. */
#include "models/compute_cost.h"
#include "runtime/plan/breakeven.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <math.h>

HEC_TEST_ARENA(arena)

/* SwiGLU in bf16, weights twice and gradients back in fp32: q = 4/3 F/BW; bf16 gradients or kept weights: F/BW. */
static const struct {
  const char *machine;
  const char *line;
  int32_t from, to;
  double tokens;
} golden[] = {
    {"H20", "1x8 nvlink=450G flops=120T eff=1 mem=96G", 0, 1, 356},
    {"A100", "1x8 nvlink=300G flops=200T eff=1 mem=80G", 0, 1, 889},
    {"H100", "2x8 nvlink=450G nic=50G nics=8 flops=600T eff=1 mem=80G", 0, 1, 1778},
    {"GB200", "1x8 nvlink=900G flops=1500T eff=1 mem=192G", 0, 1, 2222},
    {"H100, RDMA", "2x8 nvlink=450G nic=50G nics=8 flops=600T eff=1 mem=80G", 0, 8, 16000},
};

HEC_TEST(golden_values) {
  for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
    hec_cluster cluster;
    ck_ok(hec_cluster_parse_line(golden[i].line, &arena, &cluster));
    hec_breakeven_path path = hec_breakeven_path_of(&cluster, golden[i].from, golden[i].to);
    double flops_s = cluster.devices[0].flops * cluster.devices[0].flops_efficiency;
    double twice = hec_breakeven_plain(HEC_BREAKEVEN_twice_fp32, 2, flops_s, path.bandwidth, 1);
    ck_assert_msg(round(twice) == golden[i].tokens, "%s: %g", golden[i].machine, twice);
    const hec_breakeven equal[] = {HEC_BREAKEVEN_forward, HEC_BREAKEVEN_twice_bf16, HEC_BREAKEVEN_kept_fp32};
    for (int k = 0; k < 3; k++) /* F/BW: 3/4 of it */
      ck_assert_double_eq_tol(hec_breakeven_plain(equal[k], 2, flops_s, path.bandwidth, 1), 0.75 * twice, 1e-9 * twice);
    ck_assert_double_eq_tol(hec_breakeven_plain(HEC_BREAKEVEN_twice_fp32, 2, flops_s, path.bandwidth, 0.1), 0.1 * twice,
                            1e-9 * twice);
  }
}

/* Without fixed costs, tiles of one row and an endless memory the law is the plain formula, whatever the expert's size. */
HEC_TEST(law_without_overhead_is_plain) {
  for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
    hec_cluster cluster;
    char line[256];
    (void)snprintf(line, sizeof line, "%s hbm=1000000T a=0s c=0s launch=0s tile=1", golden[i].line);
    ck_ok(hec_cluster_parse_line(line, &arena, &cluster));
    hec_breakeven_path path = hec_breakeven_path_of(&cluster, golden[i].from, golden[i].to);
    double flops_s = cluster.devices[0].flops;
    for (int size = 0; size < 2; size++) {
      hec_moe moe = {
          .d_model = size ? 4096 : 1000, .d_ffn = size ? 1536 : 700, .n_ffn_matrices = 2 + size, .dtype_bytes = 2};
      for (hec_breakeven way = 0; way < HEC_N_BREAKEVEN; way++) {
        double plain = hec_breakeven_plain(way, 2, flops_s, path.bandwidth, 0.5);
        int64_t law = hec_breakeven_by_law(way, &moe, &cluster, &path, 0.5);
        ck_assert_msg(law >= (int64_t)(plain * 0.999) && law <= (int64_t)(plain * 1.001) + 1, "%s, %s: %lld, plain %g",
                      golden[i].machine, hec_breakeven_ways[way].name, (long long)law, plain);
      }
    }
  }
}

static double training_s(const hec_device *device, const hec_moe *moe, double rows, bool train) {
  hec_work_shape forward = hec_work_expert(moe), backward = hec_work_backward_of(moe, forward);
  return hec_work_s(device, &forward, rows) + (train ? hec_work_s(device, &backward, rows) : 0);
}

/* By the definition, one number of tokens after the other. */
HEC_TEST_LOOP(law_against_a_scan, 40) {
  uint64_t seed = 900 + (uint64_t)_i;
  hec_cluster cluster;
  char line[256];
  (void)snprintf(
      line, sizeof line, "2x2 nvlink=%dG@%dus nic=%dG@%dus flops=%dT hbm=%dG mem=40G tile=%d a=%dus c=%dus%s",
      50 + (int)hec_test_below(&seed, 800), (int)hec_test_below(&seed, 9), 10 + (int)hec_test_below(&seed, 90),
      (int)hec_test_below(&seed, 30), 1 + (int)hec_test_below(&seed, 60), 300 + (int)hec_test_below(&seed, 3000),
      1 + (int)hec_test_below(&seed, 200), (int)hec_test_below(&seed, 9), (int)hec_test_below(&seed, 9),
      _i % 4 == 3 ? " slow=1:0.7" : "");
  ck_ok(hec_cluster_parse_line(line, &arena, &cluster));
  hec_moe moe = {.d_model = 64 + (int32_t)hec_test_below(&seed, 900),
                 .d_ffn = 64 + (int32_t)hec_test_below(&seed, 900),
                 .n_ffn_matrices = 2 + (int32_t)hec_test_below(&seed, 2),
                 .dtype_bytes = 2,
                 .recompute = _i % 3 == 0};
  double params = hec_moe_expert_params(&moe), exposed = 0.1 + 0.1 * (double)hec_test_below(&seed, 10);
  for (int32_t to = 1; to <= 2; to++) {
    hec_breakeven_path path = hec_breakeven_path_of(&cluster, 0, to);
    for (hec_breakeven way = 0; way < HEC_N_BREAKEVEN; way++) {
      const hec_breakeven_way *w = &hec_breakeven_ways[way];
      bool train = w->gradient_bytes > 0;
      double sent = w->pushes * (path.latency_s + 2 * params / path.bandwidth);
      sent += train ? path.latency_s + w->gradient_bytes * params / path.bandwidth : 0;
      int64_t law = hec_breakeven_by_law(way, &moe, &cluster, &path, exposed), last = 0;
      ck_assert_int_gt(law, 0);
      for (int64_t q = 1; q < 3 * law + 2000; q++) {
        double both = training_s(&cluster.devices[0], &moe, 2 * (double)q, train);
        double left = training_s(&cluster.devices[0], &moe, (double)q, train);
        double copy = training_s(&cluster.devices[to], &moe, (double)q, train);
        double saved = both - (left > copy ? left : copy);
        last = saved > 0 && saved >= exposed * sent ? last : q;
      }
      if (cluster.devices[to].speed == 1) /* the last that does not pay; where the copy is slow a tile more may hurt */
        ck_assert_msg(law == last + 1, "%s: %lld, by the scan %lld: %s", w->name, (long long)law, (long long)last + 1,
                      line);
      else
        ck_assert_int_le(law, last + 1);
    }
  }
}

HEC_TEST(never) { /* a copy on a device of half the speed saves nothing */
  hec_cluster cluster;
  ck_ok(hec_cluster_parse_line("1x2 nvlink=300G flops=200T mem=80G slow=1:0.4", &arena, &cluster));
  hec_breakeven_path path = hec_breakeven_path_of(&cluster, 0, 1);
  hec_moe moe = {.d_model = 1024, .d_ffn = 4096, .n_ffn_matrices = 2, .dtype_bytes = 2};
  ck_assert_int_eq(hec_breakeven_by_law(HEC_BREAKEVEN_twice_fp32, &moe, &cluster, &path, 1), HEC_BREAKEVEN_NEVER);
}
