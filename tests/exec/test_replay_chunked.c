/* Replays under schedules that cut a layer's tokens into chunks (replay_rows.c). */
#include "tests/exec/replay_rows.h"
#include "tests/support/test.h"

HEC_REPLAY_ROWS("chunked")
