/* hecate-validate trainer: PyTorch's iteration predicted and run. The work is hecate.torch.validate's, in Python; this finds a
 * Python and becomes it. */
#include "tools/front/args.h"
#include "tools/validate/validate_commands.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *python(void) {
  const char *given = getenv("HECATE_TORCH_PYTHON");
  return given && *given ? given : "python3";
}

int hec_trainer_command(int argc, char **argv) {
  const char *name = python();
  char **words = calloc((size_t)argc + 4, sizeof *words);
  if (!words)
    return hec_tool_exit("hecate-validate trainer", hec_fail(HEC_FAILED, "no memory for the arguments"));
  const char *first[] = {name, "-m", "hecate.torch.validate"};
  memcpy(words, first, sizeof first);
  memcpy(words + 3, argv + 1, sizeof *words * (size_t)(argc > 0 ? argc - 1 : 0));
  (void)execvp(name, words);
  hec_status status = hec_fail(HEC_FAILED,
                               "%s: cannot be run: %s; set HECATE_TORCH_PYTHON to a Python that has PyTorch, and PYTHONPATH "
                               "to tools/python unless the package is installed",
                               name, strerror(errno));
  free(words);
  return hec_tool_exit("hecate-validate trainer", status);
}
