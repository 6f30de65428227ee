/* hecate-run: executes what hecate-sim simulates. Sub-commands are rows of a table; without one's name: replay. */
#include "runtime/base/temporary.h"
#include "runtime/exec/math/math.h"
#include "tools/front/output.h"
#include "tools/front/tool.h"
#include "tools/run/run_commands.h"

#include <stddef.h>

static const hec_tool_command commands[] = {
    {"replay", NULL, hec_replay_command, NULL}, /* what is done without a name */
    {"train", "a small language model, trained under a policy; records its loads", hec_train_command, NULL},
    {"alltoallv", "a traffic matrix as one exchange, measured", hec_alltoallv_command, NULL},
    {.name = NULL}};

int main(int argc, char **argv) {
  hec_output_hold_standard();
  hec_math_open(); /* before any thread, fork or MPI */
  hec_temporary_watch_signals();
  const hec_tool tool = {.name = "hecate-run",
                         .summary = "executes expert placement policies on recorded loads, measures and checks them",
                         .commands = commands,
                         .run = hec_replay_command};
  return hec_tool_main(&tool, argc, argv);
}
