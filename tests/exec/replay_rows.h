/* One table of replays, replay_rows.c: every policy executed by real ranks against the dense reference. A row says which
 * problems, and how they are run; test_replay*.c are its groups, so that they can run side by side. */
#ifndef HEC_TESTS_EXEC_REPLAY_ROWS_H
#define HEC_TESTS_EXEC_REPLAY_ROWS_H
#include "tests/support/check_main.h"

/* All rows of the group; an exit code. */
int hec_replay_rows_run(const char *group);
#define HEC_REPLAY_ROWS(group)                                                                                         \
  int main(void) {                                                                                                     \
    return hec_replay_rows_run(group);                                                                                 \
  }

#endif
