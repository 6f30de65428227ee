/* Replays in groups of ranks that share experts or the dense part (replay_rows.c). */
#include "tests/exec/replay_rows.h"
#include "tests/support/test.h"

HEC_REPLAY_ROWS("groups")
