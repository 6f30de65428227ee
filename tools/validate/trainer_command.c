/* hecate-validate trainer: PyTorch's iteration predicted and run. The work is hecate.torch.validate's, in Python. This reads the
 * options, finds a Python and becomes it; the options go there as one JSON object. */
#include "runtime/base/text.h"
#include "runtime/base/value.h"
#include "tools/front/args.h"
#include "tools/front/data.h"
#include "tools/validate/validate_commands.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Writes the options as JSON. */
static hec_status parse(int argc, char **argv, hec_text *out, bool *done) {
  const char *policy = "ep,eplb,hecate", *hot = "1,4", *example = NULL, *folder = NULL;
  bool as_json = false;
  double within_s = 120;
  struct {
    const char *name, *help;
    int64_t value;
    double min, max;
  } whole[] = {{"--ranks", "gloo processes (default: the cores, at least 2)", 0, 1, 256},
               {"--layers", "blocks, each with MoE (default 4)", 4, 2, 1000},
               {"--experts", "experts of a layer (default 16)", 16, 2, 65536},
               {"--d-model", "width (default 128)", 128, 4, 65536},
               {"--d-ffn", "inner width of an expert (default 512)", 512, 1, 65536},
               {"--batch", "sequences of a step, a multiple of the ranks (default 16)", 16, 1, 65536},
               {"--length", "tokens of a sequence (default 64)", 64, 1, 65536},
               {"--period", "iterations between decisions (default 8)", 8, 1, 1000000}};
  enum { N_WHOLE = sizeof whole / sizeof whole[0] };
  const hec_arg words[] = {
      HEC_ARG_WORD("--policy", policy, "P[,P...]", "policies (default ep,eplb,hecate)"),
      HEC_ARG_WORD("--hot", hot, "X[,X...]", "skews: added to the logits of two experts (default 1,4)"),
      HEC_ARG_WORD("--example", example, "FILE", "train_moe.py (default: that of the source tree)"),
      HEC_ARG_WORD("--out", folder, "DIR", "where the cluster file, the model file and the traces stay"),
      HEC_ARG_TIME(
          "--within", within_s, "TIME",
          "how long measuring may take, such as 90s or 6m (default 2m). It ends sooner once every time is known "
          "within 2 %.",
          0.001, 1e6),
      {"--json", HEC_ARG_FLAG, &as_json, NULL, "one JSON document on stdout and nothing else", 0, 0}};
  enum { N_WORDS = sizeof words / sizeof words[0] };
  hec_arg args[N_WHOLE + N_WORDS + 1];
  for (int i = 0; i < N_WORDS; i++)
    args[i] = words[i];
  for (int i = 0; i < N_WHOLE; i++)
    args[N_WORDS + i] =
        (hec_arg)HEC_ARG_WHOLE(whole[i].name, whole[i].value, "N", whole[i].help, whole[i].min, whole[i].max);
  args[N_WHOLE + N_WORDS] = (hec_arg){.name = NULL};
  const hec_command command = {
      .program = "hecate-validate trainer",
      .usage = "hecate-validate trainer [options]",
      .summary =
          "Measures the operations of a PyTorch trainer here, predicts its iteration under several policies, trains\n"
          "it, and prints predicted beside measured, then where a step goes. Needs PyTorch and the package\n"
          "hecate: in $HECATE_TORCH_PYTHON, else python3.",
      .examples = "  hecate-validate trainer --policy ep,hecate --within 6m",
      .first = "--policy --hot --ranks --within --out --json",
      .args = args};
  HEC_TRY(hec_args_options(&command, argc, argv, done));
  hec_json_out json = hec_json_begin(out, 0);
  hec_json_object(&json, NULL);
  HEC_JSON(&json, HEC_TEXT("policy", policy), HEC_TEXT("hot", hot), HEC_TEXT("example", example ? example : ""),
           HEC_TEXT("out", folder ? folder : ""), HEC_BOOL("json", as_json), HEC_REAL("within", within_s));
  for (int i = 0; i < N_WHOLE; i++)
    hec_json_int(&json, whole[i].name + 2, whole[i].value);
  hec_json_close(&json);
  return HEC_OK;
}

/* The package that came with this program, behind what the user set. It finds libhecate from its own place. */
static void name_package(void) {
  const char *given = getenv("PYTHONPATH");
  HEC_SCOPED(hec_text) path = {0};
  hec_text_printf(&path, "%s%s", given ? given : "", given && *given ? ":" : "");
  hec_data_folder("python", &path);
  (void)setenv("PYTHONPATH", path.data, 1);
}

/* Returns only where no Python can be run. */
static hec_status become_python(char *options) {
  static char option[] = "-c",
              program[] =
                  "import sys\n"
                  "try:\n"
                  "  import numpy\n"
                  "  import hecate\n"
                  "  hecate.version()\n" // before PyTorch, which takes seconds: no libhecate, or another version's
                  "  from hecate.torch import validate\n"
                  "except ImportError as error:\n"
                  "  sys.exit('hecate-validate: trainer: %s: %s; set HECATE_TORCH_PYTHON to a Python that has '\n"
                  "           'PyTorch 2.1 and numpy, or PYTHONPATH to the folder of the package hecate "
                  "(tools/python)' % (sys.executable, error))\n"
                  "except hecate.Failed as error:\n"
                  "  sys.stderr.write('hecate-validate trainer: %s\\n' % error)\n"
                  "  sys.exit(2)\n"
                  "validate.main(sys.argv[1])\n";
  const char *given = getenv("HECATE_TORCH_PYTHON");
  HEC_SCOPED(hec_text) name = {0};
  hec_text_add(&name, given && *given ? given : "python3");
  name_package();
  char *words[] = {name.data, option, program, options, NULL};
  (void)execvp(name.data, words);
  return hec_fail(HEC_FAILED, "%s cannot be run: %s; set HECATE_TORCH_PYTHON to a Python that has PyTorch", name.data,
                  strerror(errno));
}

int hec_trainer_command(int argc, char **argv) {
  bool done;
  HEC_SCOPED(hec_text) options = {0};
  hec_status status = parse(argc, argv, &options, &done);
  if (status == HEC_OK && !done)
    status = become_python(options.data);
  return hec_tool_exit("hecate-validate", status);
}
