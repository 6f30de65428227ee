/* Arrays on two sides, and the suite of all cases. */
#include "tests/exec/processor_case.h"

#include <math.h>
#include <string.h>

hec_case_place hec_case;
uint64_t hec_case_seed;
hec_arena hec_case_arena;

static const uint32_t poison = 0x7FC0DEAD; /* a NaN that no result is */
enum { GUARD = 64 };

static struct {
  int kind, turn;
  int64_t n_used;
} arrays;

static void setup(void) {
  hec_math_open();
  hec_case_seed = 77;
  arrays.kind = arrays.turn = 0;
  arrays.n_used = 0;
}

/* A device that has failed would have done nothing: that is a failure too. */
static void teardown(void) {
  const hec_streams *streams = hec_case.on->streams;
  if (streams) {
    streams->restart(hec_case.on);
    const char *error = streams->error(hec_case.on);
    ck_assert_msg(!error, "%s", error);
  }
  hec_arena_free(&hec_case_arena);
}

void hec_case_fixture(TCase *of) {
  tcase_add_checked_fixture(of, setup, teardown);
  tcase_set_timeout(of, 240);
}

/* ---- Arrays ---- */

void hec_case_shift(int kind) {
  arrays.kind = kind;
  arrays.turn = 0;
}

static int64_t next_shift(void) {
  return arrays.kind == 2 ? arrays.turn++ % 4 : arrays.kind;
}

/* Guards before and after, poison everywhere. */
static hec_numbers make(int64_t n) {
  int64_t begin = (arrays.n_used + 3) / 4 * 4 + GUARD + next_shift();
  hec_numbers of = {.n = n, .x = HEC_NEW(&hec_case_arena, float, n + 2 * GUARD) + GUARD, .at = hec_case.memory + begin};
  arrays.n_used = begin + n + GUARD;
  ck_assert_msg(arrays.n_used <= hec_case.n_memory, "the case needs more memory than there is for it");
  for (int64_t i = -GUARD; i < n + GUARD; i++)
    memcpy(of.x + i, &poison, sizeof poison);
  return of;
}

static void send_all(hec_numbers of) {
  hec_case.on->math->to_device(hec_case.on, of.at - GUARD, of.x - GUARD, of.n + 2 * GUARD);
}

hec_numbers hec_case_random(int64_t n) {
  hec_numbers of = make(n);
  for (int64_t i = 0; i < n; i++)
    of.x[i] = (float)(2 * hec_test_uniform(&hec_case_seed) - 1);
  send_all(of);
  return of;
}

hec_numbers hec_case_poisoned(int64_t n) {
  hec_numbers of = make(n);
  send_all(of);
  return of;
}

hec_numbers hec_case_copy(hec_numbers of) {
  hec_numbers copy = make(of.n);
  if (of.n > 0)
    memcpy(copy.x, of.x, (size_t)of.n * sizeof *of.x);
  send_all(copy);
  return copy;
}

void hec_case_send(hec_numbers of) {
  hec_case.on->math->to_device(hec_case.on, of.at, of.x, of.n);
}

/* One assertion for all: each of Check's writes a file. */
float *hec_case_fetch(hec_numbers of) {
  float *now = HEC_NEW(&hec_case_arena, float, of.n + 2 * GUARD) + GUARD;
  hec_case.on->math->to_host(hec_case.on, now - GUARD, of.at - GUARD, of.n + 2 * GUARD);
  int64_t hit = 0;
  for (int64_t i = 1; i <= GUARD && hit == 0; i++) {
    if (memcmp(now - i, &poison, sizeof poison) != 0)
      hit = -i;
    else if (memcmp(now + of.n + i - 1, &poison, sizeof poison) != 0)
      hit = of.n + i;
  }
  ck_assert_msg(hit == 0, "something written at %lld, outside of %lld numbers", (long long)hit, (long long)of.n);
  return now;
}

double *hec_case_doubles(int64_t n) {
  return HEC_NEW(&hec_case_arena, double, n + 1);
}

void hec_case_near(const float *found, const double *expected, int64_t n, double tolerance) {
  double error = 0, size = 0;
  for (int64_t i = 0; i < n; i++) {
    error += ((double)found[i] - expected[i]) * ((double)found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  ck_assert_msg(sqrt(error) <= tolerance * sqrt(size) + 1e-30, "relative error %g of %lld numbers",
                sqrt(error / (size > 0 ? size : 1)), (long long)n);
}

void hec_case_expect(const float *found, const double *expected, int64_t n) {
  hec_case_near(found, expected, n, HEC_CASE_TOLERANCE);
}

void hec_case_expect_bytes(hec_numbers found, const float *expected) {
  float *now = hec_case_fetch(found);
  int64_t i = 0;
  while (i < found.n && memcmp(now + i, expected + i, sizeof *now) == 0)
    i++;
  ck_assert_msg(i == found.n, "[%lld] of %lld is %.9g, not %.9g", (long long)i, (long long)found.n,
                i < found.n ? (double)now[i] : 0.0, i < found.n ? (double)expected[i] : 0.0);
}

Suite *hec_case_suite(const char *name, bool in_part) {
  Suite *suite = suite_create(name);
  suite_add_tcase(suite, hec_case_products());
  if (hec_case.on->streams)
    suite_add_tcase(suite, hec_case_streams());
  if (in_part)
    return suite;
  suite_add_tcase(suite, hec_case_numbers());
  suite_add_tcase(suite, hec_case_rows());
  suite_add_tcase(suite, hec_case_choices());
  return suite;
}
