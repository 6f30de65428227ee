/* What tests and their helpers share: assertions, reference data, skips, random numbers. A test file's `main` (test.h) has
 * another name when it is compiled, and is called by the program of its folder (tests/main.c.in). */
#pragma once
#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Check's own note each assertion that holds in a file, for crashes: of tests with a million of them, two thirds of the
 * time. What fails says as much as theirs; a crash names its test alone. */
#undef ck_assert_msg
#undef ck_assert
#define ck_assert_msg(expr, ...)                                                                                       \
  do {                                                                                                                 \
    if (!(expr))                                                                                                       \
      ck_abort_msg(__VA_ARGS__);                                                                                       \
  } while (0)
#define ck_assert(expr) ck_assert_msg(expr, "%s", "Assertion '" #expr "' failed")

#ifdef main /* its other name */
int main(void);
#endif

/* The folder of shared reference data: HECATE_SHARED, default ../shared; NULL when it is not there. */
const char *hec_test_shared(void);
/* Path below it, in a static buffer (4 of them in turn). */
const char *hec_test_shared_path(const char *relative);
/* Path below it of data that a test needs. NULL where it is not there: then the test is skipped, with `unchecked` (what nobody
 * checks without it) as the reason. */
const char *hec_test_wants(const char *test, const char *relative, const char *unchecked);
/* Says on stdout that a test was skipped and why; tools/check counts the lines "SKIPPED <name>: <why>". */
void hec_test_skip(const char *name, const char *why);

/* splitmix64: the random numbers of tests; same seed, same numbers everywhere. */
uint64_t hec_test_random(uint64_t *state);
uint64_t hec_test_below(uint64_t *state, uint64_t n);              /* uniform in 0..n-1 */
double hec_test_uniform(uint64_t *state);                          /* uniform in [0, 1) */
void hec_test_shuffle(uint64_t *state, int32_t *order, int32_t n); /* 0 .. n - 1 in a random order */
