/* Replays on devices with streams (replay_rows.c). */
#include "tests/exec/replay_rows.h"
#include "tests/support/test.h"

HEC_REPLAY_ROWS("device")
