/* hecate-sim sweep SPEC.json, hecate-sim sweep merge PART...: many configurations, one row each. */
#ifndef HEC_TOOLS_SIM_SWEEP_COMMAND_H
#define HEC_TOOLS_SIM_SWEEP_COMMAND_H

/* argv[0] is "sweep". Returns the exit code. */
int hec_sweep_command(int argc, char **argv);

#endif
