/* One table of replays, replay_rows.c: every policy executed by real ranks against the dense reference. A row says which
 * problems, and how they are run; test_replay*.c are its groups, so that they can run side by side. */
#pragma once
#include "runtime/exec/math/math.h"

int hec_replay_rows(const char *group); /* how many it has */
/* Of a row with several policies a share of those, each with all cases; else a share of the cases. */
void hec_replay_row(const char *group, int i);

/* The tests of a file (tests/support/test.h). */
#define HEC_REPLAY_ROWS(group)                                                                                         \
  HEC_TEST_ONCE(hec_math_open)                                                                                         \
  HEC_TEST_LOOP(one_row, hec_replay_rows(group)) {                                                                     \
    hec_replay_row(group, _i);                                                                                         \
  }
