/* Replays of token rows that travel once per node or over relays (replay_rows.c). */
#include "tests/exec/replay_rows.h"
#include "tests/support/test.h"

HEC_REPLAY_ROWS("routes")
