/* The sub-commands of hecate-sim, a file each. */
#pragma once

/* argv[0] is the command; returns the exit code. */
int hec_plan_command(int argc, char **argv);
int hec_flows_command(int argc, char **argv);
int hec_sweep_command(int argc, char **argv);
int hec_breakeven_command(int argc, char **argv);
int hec_recommend_command(int argc, char **argv);
