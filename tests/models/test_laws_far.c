/* Laws far from what they were fitted to: tiny and huge sizes, 1 to 8 choices, 2 to 72 ranks, heads of 16 to 1024, every device
 * and kernel. Times are finite and above 0, never less for more work, and one more row costs a wave of tiles at most. */
#include "models/gpu.h"
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

static hec_arena arena;
static const char *const devices[] = {"a100", "a100-40", "h100", "h200",  "h800", "h20",
                                      "b200", "gb200",   "b300", "gb300", "l40s", "v100"};
enum { SHAPES = 300 };

static hec_gpu load(int i) {
  hec_gpu gpu;
  ck_assert_int_eq(hec_gpu_load(devices[i], &arena, &gpu), HEC_OK);
  return gpu;
}

/* From low to high, every power of two as likely. */
static int64_t between(uint64_t *seed, double low, double high) {
  return (int64_t)(low * exp(log(high / low) * hec_test_uniform(seed)));
}

static bool is_of(const hec_law_fit *fit, const char *law) {
  return strcmp(fit->law->name, law) == 0;
}

/* `more` is as much in everything. `step`: it is one row more, and may cost a wave. */
static void more_is_no_less(const hec_gpu *gpu, const hec_law_fit *fit, const char *what, const void *less,
                            const void *more, double jump) {
  double a = hec_law_fit_s(gpu, fit, less), b = hec_law_fit_s(gpu, fit, more);
  ck_assert_msg(isfinite(a) && a > 0 && a < 1e6 && b >= a * (1 - 1e-12) && b <= jump * a,
                "%s %s %s: %s: %.6g s, more %.6g s", gpu->name, fit->law->name, fit->variant, what, a, b);
}

static hec_gemm_work gemm_of(uint64_t *seed) {
  return (hec_gemm_work){.m = between(seed, 1, 1e6),
                         .n = between(seed, 16, 3e5),
                         .k = between(seed, 16, 3e5),
                         .groups = 1,
                         .precision = hec_test_below(seed, 2) ? HEC_LAW_FP8 : HEC_LAW_BF16,
                         .quantise = hec_test_below(seed, 2)};
}

/* SHAPES shapes of each fit of the law that the device has, from one row of random numbers. */
typedef void shape_check(const hec_gpu *gpu, const hec_law_fit *fit, uint64_t *seed);
static void check_shapes(int device, const char *law, uint64_t seed, shape_check *check) {
  hec_gpu gpu = load(device);
  for (int32_t f = 0; f < gpu.n_fits; f++)
    for (int k = 0; is_of(&gpu.fits[f], law) && k < SHAPES; k++)
      check(&gpu, &gpu.fits[f], &seed);
  hec_arena_free(&arena);
}

static void check_gemm(const hec_gpu *gpu, const hec_law_fit *fit, uint64_t *seed) {
  hec_gemm_work work = gemm_of(seed);
  if (gpu->sheet.flops[HEC_LAW_FP8] <= 0)
    work.precision = HEC_LAW_BF16;
  hec_gemm_work m = work, n = work, depth = work, row = work;
  m.m += between(seed, 1, 1e5);
  n.n += between(seed, 1, 1e5);
  depth.k += between(seed, 1, 1e5);
  row.m += 1;
  more_is_no_less(gpu, fit, "m", &work, &m, INFINITY);
  more_is_no_less(gpu, fit, "n", &work, &n, INFINITY);
  more_is_no_less(gpu, fit, "k", &work, &depth, INFINITY);
  more_is_no_less(gpu, fit, "a row", &work, &row, 2);
}

HEC_TEST_ROWS(gemm, devices) {
  check_shapes(_i, "gemm", 5, check_gemm);
}

static void check_grouped(const hec_gpu *gpu, const hec_law_fit *fit, uint64_t *seed) {
  enum { EXPERTS = 32 };
  int64_t rows[EXPERTS], n = 1 + (int64_t)hec_test_below(seed, EXPERTS);
  for (int64_t e = 0; e < n; e++)
    rows[e] = between(seed, 1, 1e5) - (int64_t)hec_test_below(seed, 2);
  rows[0] += 1;
  hec_grouped_work work = {.hidden = between(seed, 64, 3e4),
                           .inter = between(seed, 16, 6e4),
                           .tokens = between(seed, 1, 1e6),
                           .top_k = 1 + (int64_t)hec_test_below(seed, 8),
                           .gated = hec_test_below(seed, 2)};
  work.load = hec_grouped_load_of(rows, (int32_t)n);
  hec_grouped_work hidden = work, inter = work, choices = work, row = work;
  hidden.hidden += between(seed, 1, 1e4);
  inter.inter += between(seed, 1, 1e4);
  choices.top_k += 1;
  int32_t busiest = 0;
  for (int32_t e = 1; e < n; e++)
    busiest = rows[e] > rows[busiest] ? e : busiest;
  rows[busiest] += 1;
  row.load = hec_grouped_load_of(rows, (int32_t)n);
  more_is_no_less(gpu, fit, "hidden", &work, &hidden, INFINITY);
  more_is_no_less(gpu, fit, "inter", &work, &inter, INFINITY);
  more_is_no_less(gpu, fit, "choices", &work, &choices, INFINITY);
  more_is_no_less(gpu, fit, "a row", &work, &row, 2);
}

HEC_TEST_ROWS(grouped, devices) {
  check_shapes(_i, "grouped", 6, check_grouped);
}

static void check_attention(const hec_gpu *gpu, const hec_law_fit *fit, uint64_t *seed) {
  int64_t heads = 1 + (int64_t)hec_test_below(seed, 128), kv = 1 + (int64_t)hec_test_below(seed, (uint64_t)heads);
  hec_attention_work work = {.batch = between(seed, 1, 512),
                             .seq = between(seed, 1, 3e5),
                             .heads = heads,
                             .kv_heads = kv,
                             .head_dim = between(seed, 16, 1024),
                             .head_dim_v = between(seed, 16, 1024),
                             .window = hec_test_below(seed, 2) ? between(seed, 1, 3e5) : 0,
                             .causal = hec_test_below(seed, 2),
                             .backward = hec_test_below(seed, 2),
                             .latent = hec_test_below(seed, 2)};
  hec_attention_work seq = work, batch = work, more_heads = work, wider = work, full = work, token = work;
  seq.seq += between(seed, 1, 1e4);
  batch.batch += 1;
  more_heads.heads += 1;
  wider.head_dim += 8;
  full.causal = false;
  token.seq += 1;
  more_is_no_less(gpu, fit, "seq", &work, &seq, INFINITY);
  more_is_no_less(gpu, fit, "batch", &work, &batch, 2.01);
  more_is_no_less(gpu, fit, "heads", &work, &more_heads, 2.01);
  more_is_no_less(gpu, fit, "head_dim", &work, &wider, 2);
  more_is_no_less(gpu, fit, "full", &work, &full, 2.01);
  more_is_no_less(gpu, fit, "a token", &work, &token, 4);
}

HEC_TEST_ROWS(attention, devices) {
  check_shapes(_i, "attention", 7, check_attention);
}

HEC_TEST_ROWS(collectives, devices) {
  hec_gpu gpu = load(_i);
  uint64_t seed = 8;
  for (int k = 0; k < 4 * SHAPES; k++) {
    hec_collective_op op = (hec_collective_op)hec_test_below(&seed, HEC_N_COLLECTIVE_OPS);
    hec_collective_how how;
    int32_t ranks = 2 + (int32_t)hec_test_below(&seed, 71);
    double bytes = (double)between(&seed, 1, 1e12), more = bytes * (1 + 10 * hec_test_uniform(&seed));
    double a = hec_gpu_collective_s(&gpu, op, ranks, bytes, &how),
           b = hec_gpu_collective_s(&gpu, op, ranks, more, &how);
    if (how == HEC_COLLECTIVE_NONE)
      continue;
    ck_assert_msg(isfinite(a) && a > 1e-6 && b >= a, "%s %s %d: %.6g s, more %.6g s", gpu.name,
                  hec_collective_op_name[op], (int)ranks, a, b);
    ck_assert_msg(a >= hec_collective_port_bytes(op, ranks, bytes) / (2 * gpu.sheet.nvlink_bandwidth),
                  "%s %s %d: faster than twice NVLink", gpu.name, hec_collective_op_name[op], (int)ranks);
  }
  hec_arena_free(&arena);
}

static void check_dispatch(const hec_gpu *gpu, const hec_law_fit *fit, uint64_t *seed) {
  int64_t nodes = 1 + (int64_t)hec_test_below(seed, 16), choices = 1 + (int64_t)hec_test_below(seed, 8);
  const double others = (double)(nodes - 1) / (double)nodes;
  hec_dispatch_work work = {.tokens = between(seed, 1, 1e6),
                            .bytes = (double)between(seed, 64, 1e5),
                            .ranks = hec_distinct_groups(256, 8 * nodes, choices),
                            .nodes = others * hec_distinct_groups(256, nodes, choices),
                            .ranks_per_node = 8,
                            .n_nodes = (int32_t)nodes,
                            .sms = 2 + (int32_t)hec_test_below(seed, 40)};
  hec_dispatch_work tokens = work, bytes = work, chosen = work, fewer_sms = work;
  tokens.tokens += 1;
  bytes.bytes += 128;
  chosen.ranks = hec_distinct_groups(256, 8 * nodes, choices + 1);
  chosen.nodes = others * hec_distinct_groups(256, nodes, choices + 1);
  fewer_sms.sms -= 1;
  more_is_no_less(gpu, fit, "a token", &work, &tokens, 2);
  more_is_no_less(gpu, fit, "bytes", &work, &bytes, 3.1);
  more_is_no_less(gpu, fit, "choices", &work, &chosen, 2.01);
  more_is_no_less(gpu, fit, "fewer SMs", &work, &fewer_sms, 2.01);
}

HEC_TEST_ROWS(dispatch, devices) {
  check_shapes(_i, "dispatch", 9, check_dispatch);
}
