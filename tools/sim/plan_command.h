/* hecate-sim plan: one plan of one layer and iteration. */
#ifndef HEC_TOOLS_SIM_PLAN_COMMAND_H
#define HEC_TOOLS_SIM_PLAN_COMMAND_H

int hec_plan_command(int argc, char **argv); /* argv[0] is "plan"; returns the exit code */

#endif
