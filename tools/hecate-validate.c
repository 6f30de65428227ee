/* hecate-validate: predictions against what is known. Sub-commands are a table; those that are not there yet say so. */
#include "tools/common/args.h"
#include "tools/common/output.h"
#include "tools/common/validate_commands.h"

#include <stdio.h>
#include <string.h>

static const struct {
  const char *name, *summary;
  int (*run)(int argc, char **argv); /* NULL: not built yet */
  const char *group;                 /* that begins here; or NULL */
} commands[] = {
    {"calibrate", "a cluster file for this machine, from measurements", hec_calibrate_command, "this machine"},
    {"compare", "predicted against measured, per policy and operation", hec_compare_command, NULL},
    {"gate", "the regression gate: stored predictions, bands, broken laws that must fail", hec_gate_command, NULL},
    {"hardware", "laws against measured collectives and GEMMs", hec_hardware_command, "others' numbers"},
    {"outcomes", "a recorded run of three placement methods, predicted from its loads", hec_outcomes_command, NULL},
    {"published", "the numbers of the FSSDP paper beside ours, simulated", hec_published_command, NULL},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void help(void) {
  printf("usage: hecate-validate COMMAND [options]\n\nCompares what hecate predicts with what is known.\n");
  for (int i = 0; i < N_COMMANDS; i++) {
    if (commands[i].group)
      printf("\n%s:\n", commands[i].group);
    printf("  %-10s %s%s\n", commands[i].name, commands[i].summary, commands[i].run ? "" : " (not built yet)");
  }
  printf("\nhecate-validate COMMAND --help tells more.\n");
}

int main(int argc, char **argv) {
  hec_output_hold_standard();
  if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
    help();
    return 0;
  }
  if (argc > 1 && strcmp(argv[1], "--version") == 0) {
    printf("hecate-validate %s\n", HEC_VERSION);
    return 0;
  }
  for (int i = 0; argc > 1 && i < N_COMMANDS; i++)
    if (strcmp(argv[1], commands[i].name) == 0) {
      if (commands[i].run)
        return commands[i].run(argc - 1, argv + 1);
      return hec_tool_exit("hecate-validate", hec_fail(HEC_BAD_INPUT, "%s: not built yet", argv[1]));
    }
  return hec_tool_exit("hecate-validate", hec_fail(HEC_BAD_INPUT,
                                                   "expected a command (calibrate, compare, gate, hardware, outcomes, "
                                                   "published), found \"%s\"; see hecate-validate --help",
                                                   argc > 1 ? argv[1] : ""));
}
