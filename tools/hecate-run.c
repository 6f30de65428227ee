/* hecate-run: executes what hecate-sim simulates. Sub-commands are rows of a table; without one's name: replay. */
#include "runtime/base/temporary.h"
#include "runtime/exec/math/math.h"
#include "tools/common/alltoallv_command.h"
#include "tools/common/output.h"
#include "tools/common/replay_command.h"
#include "tools/common/train_command.h"

#include <string.h>

static const struct {
  const char *name;
  int (*run)(int argc, char **argv);
} commands[] = {{"replay", hec_replay_command}, {"train", hec_train_command}, {"alltoallv", hec_alltoallv_command}};

int main(int argc, char **argv) {
  hec_output_hold_standard();
  hec_math_open(); /* before any thread, fork or MPI */
  hec_temporary_watch_signals();
  for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
    if (strcmp(argv[1], commands[i].name) == 0)
      return commands[i].run(argc - 1, argv + 1);
  return hec_replay_command(argc, argv);
}
