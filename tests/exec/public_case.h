/* Calls of the public interface (hecate.h) in tests. */
#pragma once
#include "runtime/exec/package/hecate.h"
#include "tests/support/test.h"

#include <string.h>

static uint64_t seed; /* of the test */
static inline int32_t below(int32_t n) {
  return (int32_t)hec_test_below(&seed, (uint64_t)n);
}

HEC_OPENED_BY(hec_planner, hec_planner_close)

#define OK(call) ck_assert_msg((call) == HECATE_OK, "%s", hec_error())
/* The call fails as bad input and says `words`. */
#define REFUSED(call, words)                                                                                           \
  do {                                                                                                                 \
    ck_assert_int_eq((call), HECATE_BAD_INPUT);                                                                        \
    ck_assert_msg(strstr(hec_error(), (words)) != NULL, "said: %s", hec_error());                                      \
  } while (0)
