/* Measured curves: values between, before and after the points, which curve answers which question, and what a cluster file
 * with curves changes. Those durations and no others. */
#include "models/compute_cost.h"
#include "models/link_cost.h"
#include "tests/support/test.h"

static const double sizes[] = {2, 4, 10, 20}, times[] = {3, 4, 4, 9};

static hec_curve curve_of(hec_curve_kind kind, int32_t n) {
  return (hec_curve){.kind = kind, .n = n, .x = sizes, .seconds = times};
}

/* On the points, between, right of the last with the last slope; left of the first by kind. */
HEC_TEST(piecewise_linear) {
  for (hec_curve_kind kind = 0; kind < HEC_N_CURVE_KINDS; kind++) {
    hec_curve curve = curve_of(kind, 4);
    for (int32_t i = 0; i < 4; i++)
      ck_near(hec_curve_s(&curve, sizes[i]), times[i]);
    ck_near(hec_curve_s(&curve, 3), 3.5);
    ck_near(hec_curve_s(&curve, 7), 4);
    ck_near(hec_curve_s(&curve, 12), 5);
    ck_near(hec_curve_s(&curve, 40), 19);
    ck_near(hec_curve_s(&curve, 1), hec_curve_has_rows(kind) ? 3 : 1.5);
    ck_near(hec_curve_s(&curve, 1e-3), hec_curve_has_rows(kind) ? 3 : 1.5e-3);
    curve = curve_of(kind, 2);
    ck_near(hec_curve_s(&curve, 10), 7);
    curve = curve_of(kind, 1); /* in proportion beyond the one point */
    ck_near(hec_curve_s(&curve, 1), hec_curve_has_rows(kind) ? 3 : 1.5);
    ck_near(hec_curve_s(&curve, 8), 12);
  }
}

/* Never falls, never negative, and equals the segment found by going through all points. */
HEC_TEST(random_curves) {
  uint64_t seed = 31;
  for (int32_t trial = 0; trial < 500; trial++) {
    double x[HEC_CURVE_POINTS_MAX], s[HEC_CURVE_POINTS_MAX];
    int32_t n = 2 + (int32_t)hec_test_below(&seed, HEC_CURVE_POINTS_MAX - 1);
    for (int32_t i = 0; i < n; i++) {
      x[i] = (i > 0 ? x[i - 1] : 0) + 0.5 + 10 * hec_test_uniform(&seed);
      s[i] = (i > 0 ? s[i - 1] : 0) + (hec_test_below(&seed, 4) ? hec_test_uniform(&seed) : 0);
    }
    hec_curve curve = {.kind = (hec_curve_kind)hec_test_below(&seed, HEC_N_CURVE_KINDS), .n = n, .x = x, .seconds = s};
    double last = 0;
    for (double at = 0.25; at < x[n - 1] + 20; at += 0.25 + hec_test_uniform(&seed)) {
      int32_t k = 1;
      while (k < n - 1 && x[k] < at)
        k++;
      double expected = s[k - 1] + (s[k] - s[k - 1]) / (x[k] - x[k - 1]) * (at - x[k - 1]);
      if (at < x[0])
        expected = hec_curve_has_rows(curve.kind) ? s[0] : s[0] / x[0] * at;
      double found = hec_curve_s(&curve, at);
      ck_assert_double_eq_tol(found, expected, 1e-11);
      ck_assert(found >= last - 1e-12);
      last = found;
    }
  }
}

HEC_TEST(units) {
  ck_assert(hec_curve_has_rows(HEC_CURVE_ATTENTION) && hec_curve_has_rows(HEC_CURVE_GATE) &&
            hec_curve_has_rows(HEC_CURVE_SHARED) && hec_curve_has_rows(HEC_CURVE_EXPERT));
  ck_assert(!hec_curve_has_rows(HEC_CURVE_PERMUTE) && !hec_curve_has_rows(HEC_CURVE_UNPERMUTE) &&
            !hec_curve_has_rows(HEC_CURVE_REDUCE) && !hec_curve_has_rows(HEC_CURVE_OPTIMIZER));
  ck_assert(hec_curve_is_exchange(HEC_CURVE_TOKENS) && hec_curve_is_exchange(HEC_CURVE_SLICED_SCATTER) &&
            !hec_curve_is_exchange(HEC_CURVE_COUNTS) && !hec_curve_is_exchange(HEC_CURVE_SLICED_REDUCE) &&
            !hec_curve_is_exchange(HEC_CURVE_EXPERT));
  for (hec_curve_kind kind = 0; kind < HEC_N_CURVE_KINDS; kind++)
    ck_assert(hec_curve_has_ranks(kind) == (kind == HEC_CURVE_ALLREDUCE || kind == HEC_CURVE_COUNTS));
}

HEC_TEST(finding) {
  hec_curve list[] = {curve_of(HEC_CURVE_EXPERT, 4),    curve_of(HEC_CURVE_EXPERT, 4), curve_of(HEC_CURVE_EXPERT, 4),
                      curve_of(HEC_CURVE_ALLREDUCE, 4), curve_of(HEC_CURVE_COUNTS, 4), curve_of(HEC_CURVE_REDUCE, 4)};
  list[0].flops_per_row = 1000;
  list[1].flops_per_row = 1000;
  list[1].backward = true;
  list[2].flops_per_row = 2000;
  list[3].ranks = 2;
  list[4].ranks = 4;
  hec_curves all = {6, list};
  ck_assert_ptr_eq(hec_curves_find(&all, HEC_CURVE_EXPERT, false, 1000, 0), &list[0]);
  ck_assert_ptr_eq(hec_curves_find(&all, HEC_CURVE_EXPERT, true, 1000, 7), &list[1]);
  ck_assert_ptr_eq(hec_curves_find(&all, HEC_CURVE_EXPERT, false, 2000, 0), &list[2]);
  ck_assert_ptr_eq(hec_curves_find(&all, HEC_CURVE_EXPERT, false, 1000 * (1 + 1e-12), 0), &list[0]);
  ck_assert_ptr_null(hec_curves_find(&all, HEC_CURVE_EXPERT, false, 1001, 0));
  ck_assert_ptr_null(hec_curves_find(&all, HEC_CURVE_EXPERT, true, 2000, 0));
  ck_assert_ptr_null(hec_curves_find(&all, HEC_CURVE_SHARED, false, 1000, 0));
  ck_assert_ptr_eq(hec_curves_find(&all, HEC_CURVE_ALLREDUCE, false, 5, 2), &list[3]);
  ck_assert_ptr_null(hec_curves_find(&all, HEC_CURVE_ALLREDUCE, false, 0, 4));
  ck_assert_ptr_eq(hec_curves_find(&all, HEC_CURVE_COUNTS, false, 0, 4), &list[4]);
  ck_assert_ptr_eq(hec_curves_find(&all, HEC_CURVE_REDUCE, false, 123, 9), &list[5]);
  ck_assert_ptr_null(hec_curves_find(&all, HEC_CURVE_REDUCE, true, 0, 0));
  ck_assert_ptr_null(hec_curves_find(NULL, HEC_CURVE_EXPERT, false, 1000, 0));
  ck_assert_ptr_null(hec_curves_find(&(hec_curves){0}, HEC_CURVE_EXPERT, false, 1000, 0));
}

/* ---- In a cluster ---- */

#define MACHINE                                                                                                        \
  "{\"nodes\": 1, \"devices_per_node\": 4, \"nvlink\": {\"bandwidth\": 1e9, \"latency\": 1e-6},\n"                     \
  "\"device\": {\"flops\": 1e12, \"memory_bytes\": 1e9}, \"devices\": [{\"device\": 3, \"speed\": 0.5}]"
#define CURVES                                                                                                         \
  "{\"kind\": \"expert\", \"flops_per_row\": 4000, \"points\": [[1, 2], [11, 12]]},"                                   \
  "{\"kind\": \"expert\", \"backward\": true, \"flops_per_row\": 8000, \"points\": [[1, 5], [11, 25]]},"               \
  "{\"kind\": \"permute\", \"points\": [[100, 1]]},"                                                                   \
  "{\"kind\": \"unpermute\", \"backward\": true, \"points\": [[100, 3]]},"                                             \
  "{\"kind\": \"all-reduce\", \"ranks\": 4, \"points\": [[1000, 7], [2000, 8]]},"                                      \
  "{\"kind\": \"counts\", \"ranks\": 3, \"points\": [[64, 9]]}"

HEC_TEST_ARENA(arena)
static hec_cluster law, measured;

static void setup(void) {
  if (hec_cluster_parse_json(MACHINE "}", "law", &arena, &law) != HEC_OK ||
      hec_cluster_parse_json(MACHINE ", \"measured\": [" CURVES "]}", "measured", &arena, &measured) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
}

static void teardown(void) {
  hec_arena_free(&arena);
}
HEC_TEST_FIXTURE(setup, teardown)

static const hec_work_shape expert = {
    .kind = HEC_CURVE_EXPERT, .flops_per_row = 4000, .weight_bytes = 1e6, .bytes_per_row = 100, .n_gemms = 2};

static void ck_keeps_law(const hec_work_shape *shape) {
  for (int32_t d = 0; d < 4; d++)
    for (double rows = 0; rows < 400; rows += 13)
      ck_near(hec_work_s(&measured.devices[d], shape, rows), hec_work_s(&law.devices[d], shape, rows));
}

HEC_TEST(work) {
  hec_work_shape backward = hec_work_backward(expert), other = expert;
  ck_near(hec_work_s(&measured.devices[0], &expert, 6), 7);
  ck_near(hec_work_s(&measured.devices[0], &expert, 0.5), 2);
  ck_near(hec_work_s(&measured.devices[0], &backward, 6), 15);
  ck_near(hec_work_s(&measured.devices[3], &expert, 6), 14); /* half the speed */
  ck_assert(hec_work_s(&measured.devices[0], &expert, 0) <= 0);
  other.exact = true;
  ck_keeps_law(&other);
  other = expert;
  other.kind = HEC_CURVE_NONE;
  ck_keeps_law(&other);
  other.kind = HEC_CURVE_SHARED;
  ck_keeps_law(&other);
  other = expert;
  other.flops_per_row = 4001;
  ck_keeps_law(&other);
  other = backward;
  other.flops_per_row = 4000;
  ck_keeps_law(&other);
}

HEC_TEST(local) {
  ck_near(hec_local_s(&measured.devices[0], HEC_CURVE_PERMUTE, false, 50), 0.5);
  ck_near(hec_local_s(&measured.devices[3], HEC_CURVE_PERMUTE, false, 200), 4);
  ck_near(hec_local_s(&measured.devices[1], HEC_CURVE_UNPERMUTE, true, 100), 3);
  static const struct {
    hec_curve_kind kind;
    bool backward;
    double bytes;
  } by_law[] = {{HEC_CURVE_PERMUTE, true, 50},    {HEC_CURVE_UNPERMUTE, false, 50}, {HEC_CURVE_REDUCE, false, 50},
                {HEC_CURVE_OPTIMIZER, false, 50}, {HEC_CURVE_NONE, false, 50},      {HEC_CURVE_PERMUTE, false, 0}};
  for (size_t i = 0; i < sizeof by_law / sizeof *by_law; i++)
    ck_near(hec_local_s(&measured.devices[3], by_law[i].kind, by_law[i].backward, by_law[i].bytes),
            hec_local_s(&law.devices[3], by_law[i].kind, by_law[i].backward, by_law[i].bytes));
}

HEC_TEST(collectives) {
  ck_near(hec_link_cost_allreduce(&measured, 4, 1500), 7.5);
  ck_near(hec_link_cost_allreduce(&measured, 4, 500), 3.5);
  ck_near(hec_link_cost_allgather(&measured, 3, 128), 18);
  for (int32_t ranks = 1; ranks <= 4; ranks++) {
    if (ranks != 4)
      ck_near(hec_link_cost_allreduce(&measured, ranks, 1500), hec_link_cost_allreduce(&law, ranks, 1500));
    if (ranks != 3)
      ck_near(hec_link_cost_allgather(&measured, ranks, 128), hec_link_cost_allgather(&law, ranks, 128));
    ck_assert(hec_link_cost_allreduce(&measured, ranks, 0) <= 0 && hec_link_cost_allgather(&measured, ranks, 0) <= 0);
  }
}

/* The model's own shapes ask for the curves that they are named after; what is never measured asks for none. */
HEC_TEST(shapes_of_models) {
  hec_moe moe;
  ck_ok(hec_moe_load("gpt-moe-s", &moe));
  ck_assert(hec_work_expert(&moe).kind == HEC_CURVE_EXPERT && hec_work_shared(&moe).kind == HEC_CURVE_SHARED);
  ck_assert(hec_work_attention(&moe).kind == HEC_CURVE_ATTENTION && hec_work_gate(&moe).kind == HEC_CURVE_GATE);
  ck_assert(hec_work_head(&moe).kind == HEC_CURVE_NONE && hec_work_embedding(&moe).kind == HEC_CURVE_NONE);
  ck_assert(hec_work_dense_blocks(&moe).kind == HEC_CURVE_NONE);
  hec_work_shape forward = hec_work_gate(&moe), backward = hec_work_backward(forward);
  ck_assert(!forward.backward && backward.backward && backward.kind == HEC_CURVE_GATE);
}
