/* Tests that register themselves: a file of them needs no list of them and no main. They run in the order of the file, each in
 * a process of its own. Only a file of tests includes this header, for it is its main. Two files have a main of their own
 * (test_processor.c, test_processor_cuda.c): they run the same cases several times, as they find processors.
 *
 *   HEC_TEST_ARENA(arena)                        an arena that is empty again after each test
 *   HEC_TEST(adds_up) { ck_assert(1 + 1 == 2); }
 *   HEC_TEST_LOOP(each_size, 12) { ... }         `_i` is 0, 1, ... 11, a test each
 *   HEC_TEST_ROWS(each_case, cases) { ... }      `_i` is an index of the array `cases`
 *   HEC_TEST_TABLE(each_policy, hec_policies) { ... }   ... of an array that ends in NULL
 *   HEC_TEST_ABORTS(each_fault, 5) { ... }       passes when it ends in an assertion (SIGABRT)
 *   HEC_TEST_FIXTURE(before, after)              around each test, in its process; either may be NULL
 *   HEC_TEST_ONCE(hec_math_open)                 before all tests, in the process that forks them
 *   HEC_TEST_NEEDS(there_is_one(), "no such device here")   or all are skipped, and the reason is said */
#pragma once
#include "runtime/base/arena.h"
#include "tests/support/checks.h"

#include <signal.h>

/* `main`, where a program has one file of tests; where it has many, each has another name for its own. */
int main(void);
int main(void) {
  return hec_test_run_file(__BASE_FILE__);
}

#define HEC_TEST_ROW(name, times, ends_with)                                                                           \
  static void name##_fn(int _i);                                                                                       \
  static const TTest name##_ttest = {#name, name##_fn, __FILE__, __LINE__};                                            \
  __attribute__((constructor)) static void name##_add(void) {                                                          \
    static hec_test_row name##_row = {.file = __BASE_FILE__, .test = &name##_ttest, .signal = ends_with};              \
    name##_row.n = (int)(times);                                                                                       \
    hec_test_add(&name##_row);                                                                                         \
  }                                                                                                                    \
  static void name##_fn(CK_ATTRIBUTE_UNUSED int _i)

#define HEC_TEST(name) HEC_TEST_ROW(name, 1, 0)
#define HEC_TEST_LOOP(name, n) HEC_TEST_ROW(name, n, 0)
#define HEC_TEST_ROWS(name, array) HEC_TEST_ROW(name, sizeof(array) / sizeof *(array), 0)
#define HEC_TEST_TABLE(name, table)                                                                                    \
  static int name##_rows(void) {                                                                                       \
    int n = 0;                                                                                                         \
    while ((table)[n])                                                                                                 \
      n++;                                                                                                             \
    return n;                                                                                                          \
  }                                                                                                                    \
  HEC_TEST_ROW(name, name##_rows(), 0)
#define HEC_TEST_ABORTS(name, n) HEC_TEST_ROW(name, n, SIGABRT)

#define HEC_TEST_AROUND(name, ...)                                                                                     \
  __attribute__((constructor)) static void name(void) {                                                                \
    static hec_test_row added = {.file = __BASE_FILE__, __VA_ARGS__};                                                  \
    hec_test_add(&added);                                                                                              \
  }

#define HEC_TEST_FIXTURE(before, after) HEC_TEST_AROUND(add_fixture, .setup = before, .teardown = after)
#define HEC_TEST_ONCE(before) HEC_TEST_AROUND(add_once, .once = before)
#define HEC_TEST_NEEDS(condition, why)                                                                                 \
  static const char *lacks(void) {                                                                                     \
    return (condition) ? NULL : (why);                                                                                 \
  }                                                                                                                    \
  HEC_TEST_AROUND(add_needs, .lacks = lacks)
#define HEC_TEST_ARENA(arena)                                                                                          \
  static hec_arena arena;                                                                                              \
  static void free_arena(void) {                                                                                       \
    hec_arena_free(&arena);                                                                                            \
  }                                                                                                                    \
  HEC_TEST_AROUND(add_arena, .teardown = free_arena)
