/* hecate-validate: predictions against what is known. */
#include "runtime/base/temporary.h"
#include "tools/front/output.h"
#include "tools/front/tool.h"
#include "tools/validate/validate_commands.h"

#include <stddef.h>

static const hec_tool_command commands[] = {
    {"calibrate", "a cluster file for this machine, from measurements", hec_calibrate_command, "This machine"},
    {"compare", "predicted against measured, per policy and operation", hec_compare_command, NULL},
    {"gate", "the regression gate: stored predictions, bands, broken laws that must fail", hec_gate_command, NULL},
    {"hardware", "laws against measured collectives and GEMMs", hec_hardware_command, "Others' numbers"},
    {"outcomes", "a recorded run of three placement methods, predicted from its loads", hec_outcomes_command, NULL},
    {"published", "the numbers of the FSSDP paper beside ours, simulated", hec_published_command, NULL},
    {"trainer", "a PyTorch trainer's iteration, predicted and run (needs PyTorch)", hec_trainer_command, NULL},
    {"training", "published training runs, by layout and recipe", hec_training_command, NULL},
    {.name = NULL}};

int main(int argc, char **argv) {
  hec_output_hold_standard();
  hec_temporary_watch_signals();
  const hec_tool tool = {.name = "hecate-validate",
                         .summary = "compares what hecate predicts with what is known",
                         .description = "Compares what hecate predicts with what is known.",
                         .commands = commands};
  return hec_tool_main(&tool, argc, argv);
}
