/* The degree of a layer in chunks: published values, the formula against the layer played step by step, and what
 * follows from it. */
#include "runtime/plan/planners/degree.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

HEC_TEST_ARENA(arena)

/* Milliseconds of one chunk of r: alpha + whole / r. */
typedef struct {
  double a2a_alpha, a2a, experts_alpha, experts;
} linear;

static hec_chunk_time chunk_of(linear l, int32_t degree) {
  return (hec_chunk_time){l.a2a_alpha + l.a2a / degree, l.experts_alpha + l.experts / degree};
}

static void chunks_of(linear l, hec_chunk_time *chunks) {
  for (int32_t i = 0; i < HEC_N_DEGREES; i++)
    chunks[i] = chunk_of(l, hec_degrees[i]);
}

/* FSMoE's testbed A, 48 GPUs, B = 4, L = 1024, f = 1.2, groups of 8 (reference policies.md 1.6 and 6.4, "No-IIO
 * forward"). Intra-node collectives are folded into the all-to-all, half of their alpha and of their time each. */
static linear published(double m, double h, double alpha, double beta) {
  double n_a2a = 1.2 * 4 * 1024 * m / 8, n_ag = 1.2 * 4 * 1024 * m, n_exp = n_a2a * h;
  return (linear){.a2a_alpha = .28746 + (.33789 + .39539) / 2,
                  .a2a = n_a2a * 2.3201e-6 + n_ag * (2.3478e-7 + 2.2171e-7) / 2,
                  .experts_alpha = alpha,
                  .experts = n_exp * beta};
}

HEC_TEST(published_values) {
  hec_chunk_time gpt[HEC_N_DEGREES], mixtral[HEC_N_DEGREES];
  chunks_of(published(1600, 6400, .706, 7.657e-11), gpt);
  chunks_of(published(4096, 14336, .957, 1.586e-10), mixtral);
  ck_assert_int_eq(hec_degree_best(gpt, NULL), 1);
  ck_assert_double_eq_tol(hec_degree_s(1, gpt[0]), 10.647, 6e-4);
  ck_assert_int_eq(hec_degree_best(mixtral, NULL), 2);
  ck_assert_double_eq_tol(hec_degree_s(2, mixtral[1]), 23.484, 6e-4);
}

/* Both lanes, operation by operation: all dispatches, then the combines, each after its experts. */
static double played(int32_t degree, hec_chunk_time chunk) {
  double token = 0, compute = 0, arrived[8], computed[8];
  for (int32_t c = 0; c < degree; c++)
    arrived[c] = token += chunk.a2a_s;
  for (int32_t c = 0; c < degree; c++)
    computed[c] = compute = (compute > arrived[c] ? compute : arrived[c]) + chunk.experts_s;
  for (int32_t c = 0; c < degree; c++)
    token = (token > computed[c] ? token : computed[c]) + chunk.a2a_s;
  return token;
}

static double below_one(uint64_t *seed) {
  return (double)hec_test_below(seed, 1000000) * 1e-6;
}

HEC_TEST_LOOP(formula_is_the_pipeline, 200) {
  uint64_t seed = 1 + (uint64_t)_i;
  linear l = {below_one(&seed) * .1, below_one(&seed), below_one(&seed) * .1, below_one(&seed)};
  hec_chunk_time forward[HEC_N_DEGREES], backward[HEC_N_DEGREES];
  chunks_of(l, forward);
  chunks_of((linear){l.a2a_alpha, l.a2a, 2 * l.experts_alpha, 2 * l.experts}, backward);
  double min = 1e9, min_forward = 1e9;
  for (int32_t i = 0; i < HEC_N_DEGREES; i++) {
    double there = played(hec_degrees[i], forward[i]), back = played(hec_degrees[i], backward[i]);
    ck_assert_double_eq_tol(hec_degree_s(hec_degrees[i], forward[i]), there, 1e-12);
    min = there + back < min ? there + back : min;
    min_forward = there < min_forward ? there : min_forward;
  }
  for (int32_t i = 0; i < HEC_N_DEGREES; i++) {
    double there = played(hec_degrees[i], forward[i]), back = played(hec_degrees[i], backward[i]);
    if (hec_degrees[i] == hec_degree_best(forward, backward))
      ck_assert_double_eq_tol(there + back, min, 1e-12);
    if (hec_degrees[i] == hec_degree_best(forward, NULL))
      ck_assert_double_eq_tol(there, min_forward, 1e-12);
  }
}

HEC_TEST_LOOP(without_latency_cutting_never_costs, 50) {
  uint64_t seed = 1001 + (uint64_t)_i;
  linear l = {.a2a = below_one(&seed), .experts = below_one(&seed)};
  for (int32_t i = 1; i < HEC_N_DEGREES; i++)
    ck_assert_double_le(hec_degree_s(hec_degrees[i], chunk_of(l, hec_degrees[i])),
                        hec_degree_s(hec_degrees[i - 1], chunk_of(l, hec_degrees[i - 1])) + 1e-12);
}

HEC_TEST(lower_of_equals) {
  const hec_chunk_time nothing[HEC_N_DEGREES] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};
  ck_assert_int_eq(hec_degree_best(nothing, nothing), 1);
  /* no experts to compute: every degree moves the same bytes */
  const hec_chunk_time travel[HEC_N_DEGREES] = {{8, 0}, {4, 0}, {2, 0}, {1, 0}};
  ck_assert_int_eq(hec_degree_best(travel, NULL), 1);
}

/* By hand: 1000 tokens, top-1, two ranks, two experts: 500 rows cross, 1000 are computed. */
HEC_TEST(balanced_by_hand) {
  hec_problem *p =
      hec_test_problem(&arena, "1x2 nvlink=1G@3us flops=1T mem=40G a=0s c=0s launch=0s tile=1 eff=1", 2, 1, 2, 1, true);
  p->tokens = 1000;
  double row_s = p->expert.flops_per_row / 1e12 + p->expert.bytes_per_row / p->cluster->devices[0].hbm_bandwidth;
  size_t used = arena.used_bytes;
  for (int32_t i = 0; i < HEC_N_DEGREES; i++) {
    hec_chunk_time chunk = hec_degree_balanced(p, hec_degrees[i], false, &arena);
    ck_assert_double_eq_tol(chunk.a2a_s, 3e-6 + 500.0 / hec_degrees[i] * p->bytes.token / 1e9, 1.1e-9);
    ck_assert_double_eq_tol(chunk.experts_s, 1000.0 / hec_degrees[i] * row_s, 1e-12);
    ck_assert_double_ge(hec_degree_balanced(p, hec_degrees[i], true, &arena).experts_s, chunk.experts_s * 1.9);
  }
  ck_assert_uint_eq(arena.used_bytes, used);
}

/* A link that costs nothing but latency is best not cut; one without latency, with much to compute, as often as may be. */
HEC_TEST(extremes) {
  hec_problem *late = hec_test_problem(&arena, "1x4 nvlink=900G@1ms flops=1000T mem=40G", 4, 1, 4, 2, true);
  ck_assert_int_eq(hec_degree_of(late, &arena), 1);
  hec_problem *even = hec_test_problem(&arena, "1x4 nvlink=100M@0s flops=10G mem=40G a=0s c=0s launch=0s tile=1 eff=1",
                                       4, 1, 4, 2, true);
  ck_assert_int_gt(hec_degree_of(even, &arena), 1);
  hec_problem *alone = hec_test_problem(&arena, "1x1 nvlink=1G flops=1T mem=40G", 1, 1, 4, 2, false);
  ck_assert_int_eq(hec_degree_of(alone, &arena), 1);
}
