/* Cost laws: values worked out by hand on a round data sheet, and what must hold for any constants. More work never takes
 * less time, every law is in range, and the two ends of an overlap are a maximum and a sum. */
#include "models/gpu.h"
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

static const hec_gpu_sheet sheet = {.flops = {1e15, 2e15},
                                    .sms = 100,
                                    .hbm_bandwidth = 1e12,
                                    .memory_bytes = 8e10,
                                    .nvlink_bandwidth = 1e11,
                                    .nvlink_ranks = 8,
                                    .nic_bandwidth = 1e10,
                                    .launch_s = 2e-7};

static void near(double found, double expected) {
  ck_assert_msg(fabs(found - expected) <= 1e-9 * expected, "expected %.12g, found %.12g", expected, found);
}

HEC_TEST(overlap_is_between_maximum_and_sum) {
  near(hec_overlap(3, 2, 0), 3);
  near(hec_overlap(3, 2, 1), 5);
  near(hec_overlap(2, 2, 0.25), 3); /* (t - 2)^2 = 1 */
}

/* 256 x 128 x 256: with 64x64 tiles 8 blocks, one wave of 2 64 64 256 / 1e13 = 0.2097 us. And x, W and y are 262144
 * bytes. */
HEC_TEST(gemm_by_hand) {
  double c[12] = {1e-6, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 4};
  hec_gemm_work work = {.m = 256, .n = 128, .k = 256, .groups = 1};
  near(hec_cost_law_gemm.seconds(&sheet, c, &work), 1e-6 + 2.62144e-7);
  c[4] = 1; /* nothing overlaps */
  near(hec_cost_law_gemm.seconds(&sheet, c, &work), 1e-6 + 2.62144e-7 + 2.097152e-7);
  work.precision = HEC_LAW_FP8; /* half the math, x and W half the bytes, and 4 bytes per element of x to quantise it */
  work.quantise = true;
  near(hec_cost_law_gemm.seconds(&sheet, c, &work), 1e-6 + 1.6384e-7 + 1.048576e-7 + 2.62144e-7);
  work.quantise = false; /* x is fp8 already: nothing to quantise, and a launch less */
  near(hec_cost_law_gemm.seconds(&sheet, c, &work), 8e-7 + 1.6384e-7 + 1.048576e-7);
}

/* A long k on a small grid is split. 64 x 64 x 65536 is one block of 53.7 us on one SM, 13.4 us on each of 4. That is
 * less than the 16.8 us of x and W. More splits only add partial sums. */
HEC_TEST(gemm_splits_k) {
  const double c[12] = {0, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0};
  const hec_gemm_work work = {.m = 64, .n = 64, .k = 65536, .groups = 1};
  double bytes_s = (2.0 * 65536 * 128 + 2 * 64 * 64) / 1e12, partial_s = 4 * 8.0 * 64 * 64 / 1e12;
  near(hec_cost_law_gemm.seconds(&sheet, c, &work), bytes_s + partial_s + 1e-6);
}

HEC_TEST(grouped_by_hand) {
  const int64_t rows[] = {64, 0, 32};
  hec_grouped_load load = hec_grouped_load_of(rows, 3);
  const double tiles[] = {6, 3, 2, 2, 2};
  ck_assert(load.rows == 96 && load.active == 2 && load.busiest == 64);
  for (int t = 0; t < HEC_GROUPED_TILES; t++)
    near(load.tiles[t], tiles[t]);
  /* t0 quantised hbm exposed elementwise uneven efficiency l2 route row */
  double c[10] = {1e-5, 1, 1, 0, 1, 0, 1, 50, 0, 0};
  hec_grouped_work work = {.load = load, .hidden = 128, .inter = 64, .tokens = 48, .top_k = 2, .gated = true};
  near(hec_cost_law_grouped.seconds(&sheet, c, &work), 1e-5 + 1.14688e-7 + 6.9632e-8 + 1.10592e-7);
  c[8] = 1e-9; /* 96 choices to route */
  near(hec_cost_law_grouped.seconds(&sheet, c, &work), 1e-5 + 1.14688e-7 + 6.9632e-8 + 1.10592e-7 + 9.6e-8);
  c[9] = 2e-9; /* 96 rows */
  near(hec_cost_law_grouped.seconds(&sheet, c, &work), 1e-5 + 1.14688e-7 + 6.9632e-8 + 1.10592e-7 + 2.88e-7);
  work.load = hec_grouped_load_of(rows + 1, 1);
  near(hec_cost_law_grouped.seconds(&sheet, c, &work), 1e-5); /* nothing to do but the launches */
}

HEC_TEST(attention_by_hand) {
  double c[10] = {1e-6, 0, 1, 0, 0, 1, 0, 3, 0, 1e4};
  hec_attention_work work = {
      .batch = 1, .seq = 256, .heads = 1, .kv_heads = 1, .head_dim = 64, .head_dim_v = 64, .causal = true};
  near(hec_cost_law_attention.seconds(&sheet, c, &work), 1e-6 + 8.388608e-7); /* the last 128 queries see 2 tiles */
  work.backward = true;
  near(hec_cost_law_attention.seconds(&sheet, c, &work), 1e-6 + 3 * 8.388608e-7);
  work = (hec_attention_work){
      .batch = 100, .seq = 256, .heads = 1, .kv_heads = 1, .head_dim = 64, .head_dim_v = 64, .causal = true};
  near(hec_cost_law_attention.seconds(&sheet, c, &work),
       1e-6 + 131.072e-7); /* 200 blocks of 1.5 tiles: memory is slower */
  work.latent = true;
  near(hec_cost_law_attention.seconds(&sheet, c, &work), 1e-6 + 131.072e-7 + 25600 * 1e4 / sheet.hbm_bandwidth);
  work = (hec_attention_work){
      .batch = 100, .seq = 1024, .heads = 4, .kv_heads = 1, .head_dim = 256, .head_dim_v = 256, .causal = true};
  c[5] = 1e6; /* no memory to wait for */
  double skipped_s = hec_cost_law_attention.seconds(&sheet, c, &work) - 1e-6;
  c[8] = 1; /* the upper triangle is computed too: 64 tiles of a head, not 36 */
  near(hec_cost_law_attention.seconds(&sheet, c, &work) - 1e-6, skipped_s * 64 / 36);
  work.window = 128; /* two tiles for each of eight blocks of queries, of 36 that causal attention would have */
  near(hec_cost_law_attention.seconds(&sheet, c, &work) - 1e-6, skipped_s * 16 / 36);
  work.window = 129;
  near(hec_cost_law_attention.seconds(&sheet, c, &work) - 1e-6, skipped_s * 16 / 36);
  work.window = 130;
  near(hec_cost_law_attention.seconds(&sheet, c, &work) - 1e-6, skipped_s * 24 / 36);
  c[8] = 0;
  work.window = 1024; /* all that there is */
  near(hec_cost_law_attention.seconds(&sheet, c, &work) - 1e-6, skipped_s);
}

HEC_TEST(memory_and_collective_by_hand) {
  const double m[2] = {1e-6, 0.5};
  const hec_memory_work bytes = {1e6};
  near(hec_cost_law_memory.seconds(&sheet, m, &bytes), 3e-6);
  const double c[9] = {1e-5, 0.01, 1000, 2e-5, 0.1, 1e6, 3e-5, 0.5, 1e6};
  const double v[] = {1000, 1e4, 1e8}, expected[] = {1.1e-5, 2.1e-5, 3e-5 + 1.1e8 / 5e10};
  for (int i = 0; i < 3; i++) {
    const hec_collective_work work = {v[i]};
    near(hec_cost_law_collective.seconds(&sheet, c, &work), expected[i]);
  }
  const hec_collective_work above = {
      1.01e6}; /* the last range would begin lower: never less than where the middle one ended */
  near(hec_cost_law_collective.seconds(&sheet, c, &above), 2e-5 + 1e6 / 1e10);
}

HEC_TEST(dispatch_by_hand) {
  near(hec_distinct_groups(4, 2, 2), 2 * (1 - 2.0 / 4 * 1 / 3));
  near(hec_distinct_groups(256, 8, 256), 8);
  double c[10] = {1e-5, 3e-5, 0, 1e-12, 0, 1, 0.5, 0, 1e-9, 0};
  hec_dispatch_work work = {.tokens = 1000, .bytes = 1000, .ranks = 4, .ranks_per_node = 8, .n_nodes = 1, .sms = 10};
  near(hec_cost_law_dispatch.seconds(&sheet, c, &work), 1e-5 + 1e-6 + 3.5e-5); /* NVLink: 4 7/8 1000 bytes */
  work.n_nodes = 4;
  work.nodes = 2; /* the NIC: 2 kB per token at 5 GB/s */
  near(hec_cost_law_dispatch.seconds(&sheet, c, &work), 1e-5 + 6e-5 + 1e-6 + 4e-4);
  c[3] = 1e-9; /* SMs: 4 us per token over 10 SMs, as slow as the NIC */
  near(hec_cost_law_dispatch.seconds(&sheet, c, &work), 1e-5 + 6e-5 + 1e-6 + 4e-4);
}

/* ---- Properties, on all devices with constants ---- */

HEC_TEST_ARENA(arena)
static const char *const devices[] = {"a100", "h100", "h200", "b200", "gb300", "l40s", "h20", "v100"};

static hec_gpu load(int i) {
  hec_gpu gpu;
  ck_ok(hec_gpu_load(devices[i], &arena, &gpu));
  return gpu;
}

/* Two works of one law, the second at least as much in everything. */
static void never_less(const hec_gpu *gpu, const char *law, const void *less, const void *more) {
  for (int32_t i = 0; i < gpu->n_fits; i++) {
    const hec_law_fit *fit = &gpu->fits[i];
    if (strcmp(fit->law->name, law) != 0)
      continue;
    double a = hec_law_fit_s(gpu, fit, less), b = hec_law_fit_s(gpu, fit, more);
    ck_assert_msg(isfinite(a) && a > 0 && b >= a * (1 - 1e-12), "%s, %s %s: %.6g s, more work %.6g s", gpu->name, law,
                  fit->variant, a, b);
  }
}

HEC_TEST_ROWS(more_work_never_takes_less_time, devices) {
  hec_gpu gpu = load(_i);
  uint64_t seed = 7;
  for (int k = 0; k < 200; k++) {
    int64_t m = 1 + (int64_t)hec_test_below(&seed, 9000), n = 64 + (int64_t)hec_test_below(&seed, 20000);
    const hec_gemm_work gemm = {.m = m, .n = n, .k = 2048, .groups = 1};
    hec_gemm_work more = gemm;
    more.m += (int64_t)hec_test_below(&seed, 300);
    more.n += (int64_t)hec_test_below(&seed, 300);
    never_less(&gpu, "gemm", &gemm, &more);
    int64_t rows[16], twice[16];
    for (int e = 0; e < 16; e++) {
      rows[e] = (int64_t)hec_test_below(&seed, 2) * (int64_t)hec_test_below(&seed, 4000);
      twice[e] = 2 * rows[e];
    }
    const hec_grouped_work grouped = {hec_grouped_load_of(rows, 16), 4096, 1536, 8000, 2, true, HEC_LAW_BF16};
    const hec_grouped_work larger = {hec_grouped_load_of(twice, 16), 4096, 1536, 16000, 2, true, HEC_LAW_BF16};
    if (grouped.load.rows > 0)
      never_less(&gpu, "grouped", &grouped, &larger);
    const hec_attention_work attention = {.batch = 1 + (int64_t)hec_test_below(&seed, 8),
                                          .seq = 1 + (int64_t)hec_test_below(&seed, 9000),
                                          .heads = 32,
                                          .kv_heads = 8,
                                          .head_dim = 128,
                                          .head_dim_v = 128,
                                          .window = k % 4 == 0 ? 1 + (int64_t)hec_test_below(&seed, 9000) : 0,
                                          .causal = k % 2,
                                          .backward = k % 3 == 0,
                                          .latent = k % 5 == 0};
    hec_attention_work longer = attention;
    longer.seq += (int64_t)hec_test_below(&seed, 500);
    longer.batch += (int64_t)hec_test_below(&seed, 2);
    never_less(&gpu, "attention", &attention, &longer);
    double bytes = 1 + hec_test_uniform(&seed) * 1e9;
    const hec_collective_work small = {bytes}, large = {bytes * (1 + hec_test_uniform(&seed))};
    never_less(&gpu, "collective", &small, &large);
    const hec_dispatch_work tokens = {4096, 7168, 5, 0, 8, 1, 20}, more_tokens = {5000, 7168, 5.5, 0.9, 8, 2, 20};
    never_less(&gpu, "dispatch", &tokens, &more_tokens);
  }
}

/* Uneven loads take longer than equal ones of as many rows. */
HEC_TEST_ROWS(uneven_loads_cost, devices) {
  hec_gpu gpu = load(_i);
  const int64_t equal[8] = {512, 512, 512, 512, 512, 512, 512, 512}, uneven[8] = {2003, 601, 509, 401, 301, 201, 79, 1};
  const hec_grouped_work a = {hec_grouped_load_of(equal, 8), 4096, 1536, 4096, 2, true, HEC_LAW_BF16};
  const hec_grouped_work b = {hec_grouped_load_of(uneven, 8), 4096, 1536, 4096, 2, true, HEC_LAW_BF16};
  ck_assert(a.load.rows == b.load.rows);
  never_less(&gpu, "grouped", &a, &b);
}

HEC_TEST(rows_of_the_table) {
  for (const hec_cost_law *const *row = hec_cost_laws; *row; row++) {
    const hec_cost_law *law = *row;
    ck_assert_ptr_eq(hec_cost_law_find(law->name), law);
    ck_assert(law->n_constants <= HEC_LAW_CONSTANTS_MAX && strlen(law->source) > 10 && strlen(law->range) > 10);
    for (int32_t i = 0; i < law->n_constants; i++) {
      const hec_law_constant *c = &law->constants[i];
      ck_assert_msg(c->low <= c->start && c->start <= c->high, "%s.%s", law->name, c->name);
    }
  }
  ck_assert_ptr_null(hec_cost_law_find("no such law"));
}
