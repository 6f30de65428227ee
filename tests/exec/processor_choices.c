/* Assignments against double loops, and the CPU's bytes: sums over a token's assignments have one order. */
#include "runtime/exec/model/model.h"
#include "tests/exec/processor_case.h"

#include <math.h>
#include <string.h>

typedef struct {
  int32_t tokens, experts, d;
  uint32_t counts[8];
} load;

/* Skewed: some experts have none, some tokens have none, one token has nearly all. */
static const load loads[] = {{13, 5, 19, {17, 4, 8, 0, 1}},
                             {300, 8, 128, {0, 299, 300, 1, 64, 0, 133, 100}},
                             {2, 3, 1, {2, 0, 1}},
                             {40, 4, 1000, {0, 9, 0, 2}},
                             {6, 2, 24, {0, 0}},
                             {1, 8, 132, {1, 1, 0, 1, 1, 1, 1, 1}}};
enum { LOADS = sizeof loads / sizeof *loads };

/* The same assignments there and here. */
typedef struct {
  hec_assignments there, here;
  hec_numbers weights; /* [2 n] there: weight, weight_grad */
} choices;

static choices choose(const load *l) {
  hec_model model = {.n_experts = l->experts};
  int32_t n = 0;
  for (int32_t e = 0; e < l->experts; e++)
    n += (int32_t)l->counts[e];
  choices c = {.weights = hec_case_random(2 * (int64_t)n)};
  c.there = hec_assignments_new(&hec_case_arena, &model, n, c.weights.at);
  hec_assign_forced(&(hec_token_row){l->counts, l->experts, l->tokens, 0, 0}, &c.there);
  for (int32_t j = 0; j < n; j++)
    c.there.token[j] = j % 11 == 0 ? c.there.token[j] : (int32_t)hec_test_below(&hec_case_seed, (uint64_t)l->tokens);
  c.here = c.there;
  c.here.weight = c.weights.x;
  c.here.weight_grad = c.weights.x + n;
  return c;
}

START_TEST(weights) {
  const load *l = &loads[_i / 4];
  const hec_arithmetic *math = hec_case.on->math, *cpu = hec_processor_cpu.math;
  choices c = choose(l);
  int64_t n = (int64_t)l->tokens * l->experts;
  hec_numbers p = hec_case_random(n), dp = hec_case_poisoned(n), balance = hec_case_random(l->experts);
  bool exact = _i / 2 % 2;
  c.there.balance = _i % 2 ? balance.x : NULL; /* of the host */
  c.here.balance = _i % 2 ? balance.x : NULL;
  math->weigh(hec_case.on, &c.there, p.at, l->experts, exact);
  cpu->weigh(&hec_processor_cpu, &c.here, p.x, l->experts, exact);
  hec_case_expect_bytes(c.weights, c.weights.x);
  double *expected = hec_case_doubles(n);
  for (int64_t i = 0; i < n; i++)
    expected[i] = _i % 2 ? (double)balance.x[i % l->experts] : 0;
  for (int32_t e = 0; e < l->experts; e++)
    for (int32_t j = c.here.expert_at[e]; j < c.here.expert_at[e + 1]; j++) {
      ck_assert(exact || c.here.weight[j] == p.x[c.here.token[j] * l->experts + e]);
      ck_assert(c.here.weight_grad[j] == 0);
      c.here.weight_grad[j] = (float)(1 + j % 17) * 0.37F;
      expected[c.here.token[j] * l->experts + e] += (double)c.here.weight_grad[j];
    }
  hec_case_send(c.weights);
  math->choice_gradient(hec_case.on, &c.there, l->experts, dp.at);
  hec_case_expect(hec_case_fetch(dp), expected, n);
  cpu->choice_gradient(&hec_processor_cpu, &c.here, l->experts, dp.x);
  hec_case_expect_bytes(dp, dp.x);
}
END_TEST

/* Rows in any order, with gaps, so that they begin at every offset where d is odd. */
typedef struct {
  hec_numbers numbers;
  float **there, **here;
} rows;

static rows make_rows(int32_t n, int32_t d, int32_t gap) {
  rows r = {.numbers = hec_case_poisoned((int64_t)n * (d + gap)),
            .there = HEC_NEW(&hec_case_arena, float *, n + 1),
            .here = HEC_NEW(&hec_case_arena, float *, n + 1)};
  for (int32_t j = 0; j < n; j++) {
    int64_t at = (int64_t)(j * 1009LL % n) * (d + gap); /* 1009 is prime and above n */
    r.there[j] = r.numbers.at + at;
    r.here[j] = r.numbers.x + at;
  }
  return r;
}

START_TEST(rows_of_choices) {
  int form = _i % 6;
  const load *l = &loads[_i / 6];
  const hec_arithmetic *math = hec_case.on->math, *cpu = hec_processor_cpu.math;
  hec_processor *on = hec_case.on, *here = &hec_processor_cpu;
  hec_case_shift(form / 2);
  choices c = choose(l);
  int32_t n = c.here.n, d = l->d;
  int64_t all = (int64_t)l->tokens * d;
  hec_numbers h2 = hec_case_random(all), x = hec_case_random(all), dh2 = hec_case_random(all),
              dx = hec_case_random(all);
  rows row = make_rows(n, d, form % 2 * 3), output = make_rows(n, d, 0);
  double *sum = hec_case_doubles(all), *weighted = hec_case_doubles(all), *dots = hec_case_doubles(n);
  math->permute(on, &c.there, h2.at, d, row.there);
  cpu->permute(here, &c.here, h2.x, d, row.here);
  hec_case_expect_bytes(row.numbers, row.numbers.x);
  math->permute(on, &c.there, x.at, d, output.there);
  cpu->permute(here, &c.here, x.x, d, output.here);
  for (int64_t i = 0; i < all; i++) {
    sum[i] = (double)dh2.x[i];
    weighted[i] = (double)x.x[i];
  }
  for (int32_t j = 0; j < n; j++)
    for (int32_t i = 0; i < d; i++) {
      int64_t at = (int64_t)c.here.token[j] * d + i;
      ck_assert(row.here[j][i] == h2.x[at]);
      sum[at] += (double)h2.x[at];
      dots[j] += (double)dx.x[at] * (double)output.here[j][i];
      weighted[at] += (double)c.here.weight[j] * (double)h2.x[at];
    }
  math->combine(on, &c.there, row.there, d, x.at);
  cpu->combine(here, &c.here, row.here, d, x.x);
  hec_case_expect_bytes(x, x.x);
  hec_case_expect(x.x, weighted, all);
  math->unpermute(on, &c.there, row.there, d, dh2.at);
  cpu->unpermute(here, &c.here, row.here, d, dh2.x);
  hec_case_expect_bytes(dh2, dh2.x);
  hec_case_expect(dh2.x, sum, all);
  bool in_place = form % 2; /* or elsewhere */
  math->uncombine(on, &c.there, dx.at, output.there, d, in_place ? output.there : row.there);
  for (int32_t j = 0; j < n; j++)
    for (int32_t i = 0; i < d; i++)
      (in_place ? output : row).here[j][i] = c.here.weight[j] * dx.x[(int64_t)c.here.token[j] * d + i];
  hec_case_expect_bytes(row.numbers, row.numbers.x);
  hec_case_expect_bytes(output.numbers, output.numbers.x);
  const float *weights_now = hec_case_fetch(c.weights);
  hec_case_expect(weights_now + n, dots, n);
  ck_assert(n == 0 || memcmp(weights_now, c.here.weight, (size_t)n * sizeof *weights_now) == 0);
}
END_TEST

TCase *hec_case_choices(void) {
  TCase *c = tcase_create("choices");
  hec_case_fixture(c);
  tcase_add_loop_test(c, weights, 0, 4 * LOADS);
  tcase_add_loop_test(c, rows_of_choices, 0, 6 * LOADS);
  return c;
}
