/* hecate-validate trainer: PyTorch's iteration predicted and run. The work is hecate.torch.validate's, in Python, which has these
 * options again; this checks them, finds a Python and becomes it. */
#include "runtime/base/arena.h"
#include "runtime/base/text.h"
#include "tools/front/args.h"
#include "tools/validate/validate_commands.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static hec_status parse(int argc, char **argv, bool *done) {
  const char *policy, *hot, *example, *out;
  int64_t ranks, rounds, block, layers, experts, d_model, d_ffn, batch, length, period;
  bool json;
  const hec_arg args[] = {
      HEC_ARG_WORD("--policy", policy, "P[,P...]", "policies (default ep,eplb,hecate)"),
      HEC_ARG_WORD("--hot", hot, "X[,X...]", "skews: added to the logits of two experts (default 1,4)"),
      HEC_ARG_WHOLE("--ranks", ranks, "N", "gloo processes (default: the cores, at least 2)", 1, 256),
      HEC_ARG_WHOLE("--rounds", rounds, "N", "turns of every case (default 4)", 1, 10000),
      HEC_ARG_WHOLE("--block", block, "N", "steps of a turn, the first of them not measured (default 8)", 2, 10000),
      HEC_ARG_WHOLE("--layers", layers, "N", "blocks, each with MoE (default 4)", 2, 1000),
      HEC_ARG_WHOLE("--experts", experts, "N", "experts of a layer (default 16)", 2, 65536),
      HEC_ARG_WHOLE("--d-model", d_model, "N", "width (default 128)", 4, 65536),
      HEC_ARG_WHOLE("--d-ffn", d_ffn, "N", "inner width of an expert (default 512)", 1, 65536),
      HEC_ARG_WHOLE("--batch", batch, "N", "sequences of a step, a multiple of the ranks (default 16)", 1, 65536),
      HEC_ARG_WHOLE("--length", length, "N", "tokens of a sequence (default 64)", 1, 65536),
      HEC_ARG_WHOLE("--period", period, "N", "iterations between decisions (default 8)", 1, 1000000),
      HEC_ARG_WORD("--example", example, "FILE", "train_moe.py (default: that of the source tree)"),
      HEC_ARG_WORD("--out", out, "DIR", "where the cluster file, the model file and the traces stay"),
      {"--json", HEC_ARG_FLAG, &json, NULL, "one JSON document on stdout and nothing else", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-validate trainer",
      .usage = "hecate-validate trainer [options]",
      .summary = "Measures the operations of a PyTorch trainer here, predicts its iteration under several policies, trains\n"
                 "it, and prints predicted beside measured. Needs PyTorch and the package hecate: in\n"
                 "$HECATE_TORCH_PYTHON, else python3.",
      .examples = "  hecate-validate trainer --policy ep,hecate --rounds 6\n",
      .first = "--policy --hot --ranks --rounds --block --out --json",
      .args = args};
  int32_t n;
  return hec_args_parse(&command, argc, argv, NULL, 0, &n, done);
}

/* Returns only where no Python can be run. */
static hec_status become_python(int argc, char **argv) {
  const char *given = getenv("HECATE_TORCH_PYTHON"), *name = given && *given ? given : "python3";
  char option[] = "-m", module[] = "hecate.torch.validate", **words = hec_malloc((size_t)argc + 3, sizeof *words);
  words[1] = option;
  words[2] = module;
  for (int i = 1; i < argc; i++)
    words[i + 2] = argv[i];
  words[argc + 2] = NULL;
  hec_text program = {0};
  hec_text_add(&program, name);
  words[0] = program.data;
  (void)execvp(words[0], words);
  int error = errno;
  free(words);
  hec_text_free(&program);
  return hec_fail(HEC_FAILED, "%s cannot be run: %s; set HECATE_TORCH_PYTHON to a Python that has PyTorch", name,
                  strerror(error));
}

int hec_trainer_command(int argc, char **argv) {
  bool done;
  hec_status status = parse(argc, argv, &done);
  if (status == HEC_OK && !done)
    status = become_python(argc, argv);
  return hec_tool_exit("hecate-validate", status);
}
