/* Numbers one by one: on every processor the bytes of the CPU, whatever the alignment, the size and the list. */
#include "runtime/exec/math/math.h"
#include "tests/exec/processor_case.h"

#include <math.h>
#include <string.h>

static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 31, 127, 128, 129, 1000, 4095, 4097, 65537};
enum { SIZES = sizeof sizes / sizeof *sizes };

static float *bytes_of(hec_numbers of) {
  float *x = HEC_NEW(&hec_case_arena, float, of.n + 1);
  if (of.n > 0)
    memcpy(x, of.x, (size_t)of.n * sizeof *x);
  return x;
}

START_TEST(vectors) {
  hec_processor *on = hec_case.on;
  int64_t n = sizes[_i / HEC_CASE_SHIFTS];
  hec_case_shift(_i % HEC_CASE_SHIFTS);
  hec_numbers x = hec_case_random(n), y = hec_case_poisoned(n), z = hec_case_random(n), w = hec_case_poisoned(n);
  float *sum = bytes_of(z), *x2 = bytes_of(x), *x3 = bytes_of(x);
  on->math->copy(on, &(hec_piece){y.at, x.at, n}, 1);
  hec_case_expect_bytes(y, x.x);
  on->math->copy(on, (const hec_piece[]){{w.at, x.at, n}, {y.at, z.at, n}}, 2);
  hec_case_expect_bytes(w, x.x);
  hec_case_expect_bytes(y, z.x);
  on->math->scale(on, x.at, 0.731F, n);
  hec_math_scale(x2, 0.731F, n);
  on->math->scale(on, w.at, -1.37F, n);
  hec_math_scale(x3, -1.37F, n);
  hec_case_expect_bytes(x, x2);
  on->math->add(on, (const hec_piece[]){{z.at, x.at, n}, {z.at, w.at, n}}, 2); /* the same place twice */
  hec_math_add(sum, x2, n);
  hec_math_add(sum, x3, n);
  hec_case_expect_bytes(z, sum);
  hec_case_expect_bytes(w, x3);
  on->math->zero(on, y.at, n);
  memset(sum, 0, (size_t)(n + 1) * sizeof *sum);
  hec_case_expect_bytes(y, sum);
}
END_TEST

START_TEST(nothing) {
  hec_processor *on = hec_case.on;
  on->math->copy(on, NULL, 0);
  on->math->add(on, NULL, 0);
  on->math->gemm(on, NULL, 0);
  on->math->activate(on, NULL, 0);
  on->math->activate_backward(on, NULL, 0);
  on->math->adam(on, &(hec_adam){.rate = 1, .epsilon = 1}, 1, NULL, 0);
  on->math->zero(on, NULL, 0);
  on->math->scale(on, NULL, 2, 0);
  on->math->to_device(on, NULL, NULL, 0);
  on->math->to_host(on, NULL, NULL, 0);
}
END_TEST

/* Pieces of the same size that fill a place in a random order, more than one launch takes. */
START_TEST(lists_of_copies) {
  static const int32_t lengths[] = {2, 70, 71, 500};
  hec_processor *on = hec_case.on;
  int32_t n = lengths[_i];
  const int64_t size = 37;
  hec_case_shift(2);
  hec_numbers to = hec_case_poisoned(n * size), from = hec_case_random(n * size + 50);
  hec_piece *list = HEC_NEW(&hec_case_arena, hec_piece, n);
  for (int32_t i = 0; i < n; i++) {
    int64_t at = (int64_t)(i * 7 % n) * size, source = (int64_t)hec_test_below(&hec_case_seed, (uint64_t)from.n - 40);
    int64_t some = n % 7 != 0 ? size : 0; /* 70 = 7 * 10: those of 70 and 7 places would meet */
    if (n % 7 == 0)
      at = i * size, some = i % 5 == 0 ? 0 : size - i % 3;
    list[i] = (hec_piece){to.at + at, from.at + source, some};
    memcpy(to.x + at, from.x + source, (size_t)some * sizeof *to.x);
  }
  on->math->copy(on, list, n);
  memset(list, 0xFF, (size_t)n * sizeof *list); /* it may go when the call returns */
  hec_case_expect_bytes(to, to.x);
}
END_TEST

/* A list of n additions into one array, terms from anywhere in another. How: 0 random pieces, which share numbers and
 * bounds in every way. 1 the same pieces of as many sources, source by source, as an exchange leaves them; 2 one piece
 * n times. */
static void check_additions(int how, int32_t n, int64_t max) {
  enum { PIECES = 90 };
  int64_t room = max * PIECES;
  hec_numbers to = hec_case_random(room), from = hec_case_random(room);
  hec_piece *list = HEC_NEW(&hec_case_arena, hec_piece, n);
  for (int32_t i = 0; i < n; i++) {
    int64_t size =
        how == 0 ? (int64_t)hec_test_below(&hec_case_seed, (uint64_t)max + 1) : max - (how == 1 ? i % PIECES % 5 : 0);
    int64_t at =
        how == 0 ? (int64_t)hec_test_below(&hec_case_seed, (uint64_t)(room - size)) : i % PIECES * max * (how == 1);
    int64_t term = (int64_t)hec_test_below(&hec_case_seed, (uint64_t)(room - size) + 1);
    hec_math_add(to.x + at, from.x + term, size);
    list[i] = (hec_piece){to.at + at, from.at + term, size};
  }
  hec_case.on->math->add(hec_case.on, list, n);
  memset(list, 0xFF, (size_t)n * sizeof *list);
  hec_case_expect_bytes(to, to.x);
  hec_case_expect_bytes(from, from.x);
}

START_TEST(lists_of_additions) {
  static const int32_t lengths[] = {1, 2, 39, 40, 41, 240, 241, 700};
  static const int64_t max[] = {5, 64, 4099};
  hec_case_shift(_i % HEC_CASE_SHIFTS);
  for (size_t j = 0; j < sizeof max / sizeof *max; j++)
    check_additions(_i / 8, lengths[_i % 8], max[j]);
}
END_TEST

/* ---- Adam ---- */

static void adam_oracle(const hec_adam *a, int64_t step, double *p, double g, double *m, double *v) {
  double beta1 = (double)a->beta1, beta2 = (double)a->beta2;
  *m = beta1 * *m + (1 - beta1) * g;
  *v = beta2 * *v + (1 - beta2) * g * g;
  double mean = *m / (1 - pow(beta1, (double)step)), square = *v / (1 - pow(beta2, (double)step));
  *p -= (double)a->rate * mean / (sqrt(square) + (double)a->epsilon);
}

static const hec_adam with = {.rate = 1e-2F, .beta1 = 0.9F, .beta2 = 0.999F, .epsilon = 1e-3F};

/* Its bytes are the CPU's, and near the formula. */
START_TEST(adam) {
  hec_processor *on = hec_case.on;
  int32_t n = hec_case_sizes[_i / HEC_CASE_SHIFTS];
  hec_case_shift(_i % HEC_CASE_SHIFTS);
  hec_numbers params = hec_case_random(n), grads = hec_case_random(n), first = hec_case_random(n);
  hec_numbers second = hec_case_random(n);
  double *p = hec_case_doubles(n), *m = hec_case_doubles(n), *v = hec_case_doubles(n);
  for (int32_t i = 0; i < n; i++) {
    second.x[i] = fabsf(second.x[i]);
    p[i] = (double)params.x[i];
    m[i] = (double)first.x[i];
    v[i] = (double)second.x[i];
  }
  hec_case_send(second);
  for (int64_t step = 1; step <= 4; step++) {
    hec_moments of = {params.at, grads.at, first.at, second.at, n, step == 4};
    on->math->adam(on, &with, step, &of, 1);
    for (int32_t i = 0; i < n; i++)
      adam_oracle(&with, step, &p[i], (double)grads.x[i], &m[i], &v[i]);
    hec_math_adam(&with, step, params.x, grads.x, first.x, second.x, n);
    if (step < 4)
      hec_case_expect_bytes(grads, grads.x);
  }
  memset(grads.x, 0, (size_t)n * sizeof *grads.x);
  hec_case_expect_bytes(params, params.x);
  hec_case_expect_bytes(first, first.x);
  hec_case_expect_bytes(second, second.x);
  hec_case_expect_bytes(grads, grads.x);
  hec_case_expect(params.x, p, n);
  hec_case_expect(first.x, m, n);
  hec_case_expect(second.x, v, n);
}
END_TEST

START_TEST(adam_of_many) {
  enum { LIST = 130 };
  hec_processor *on = hec_case.on;
  hec_moments list[LIST];
  int64_t at[LIST + 1] = {0};
  for (int32_t i = 0; i < LIST; i++)
    at[i + 1] = at[i] + (i % 9 == 4 ? 0 : 1 + (int64_t)hec_test_below(&hec_case_seed, 90));
  hec_case_shift(_i);
  hec_numbers params = hec_case_random(at[LIST]), grads = hec_case_random(at[LIST]);
  hec_numbers first = hec_case_random(at[LIST]), second = hec_case_random(at[LIST]);
  for (int64_t i = 0; i < at[LIST]; i++)
    second.x[i] = fabsf(second.x[i]);
  hec_case_send(second);
  hec_math_adam(&with, 3, params.x, grads.x, first.x, second.x, at[LIST]);
  for (int32_t i = 0; i < LIST; i++) {
    int64_t n = at[i + 1] - at[i];
    list[i] = (hec_moments){params.at + at[i], grads.at + at[i], first.at + at[i], second.at + at[i], n, i % 2 == 0};
    if (i % 2 == 0 && n > 0)
      memset(grads.x + at[i], 0, (size_t)n * sizeof *grads.x);
  }
  on->math->adam(on, &with, 3, list, LIST);
  hec_case_expect_bytes(params, params.x);
  hec_case_expect_bytes(first, first.x);
  hec_case_expect_bytes(second, second.x);
  hec_case_expect_bytes(grads, grads.x);
}
END_TEST

TCase *hec_case_numbers(void) {
  TCase *c = tcase_create("numbers");
  hec_case_fixture(c);
  tcase_add_loop_test(c, vectors, 0, SIZES * HEC_CASE_SHIFTS);
  tcase_add_test(c, nothing);
  tcase_add_loop_test(c, lists_of_copies, 0, 4);
  tcase_add_loop_test(c, lists_of_additions, 0, 24);
  tcase_add_loop_test(c, adam, 0, HEC_CASE_SIZES * HEC_CASE_SHIFTS);
  tcase_add_loop_test(c, adam_of_many, 0, HEC_CASE_SHIFTS);
  return c;
}
