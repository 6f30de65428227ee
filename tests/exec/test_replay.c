/* Replays under the schedules in turn: random and exact, for each number of ranks, transport, way of launching and clock (replay_rows.c). */
#include "tests/exec/replay_rows.h"
#include "tests/support/test.h"

HEC_REPLAY_ROWS("plain")
