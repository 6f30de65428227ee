/* hecate-bench collectives, hecate-bench executor: what is measured with real ranks. */
#ifndef HEC_TOOLS_COMMON_BENCH_COMMANDS_H
#define HEC_TOOLS_COMMON_BENCH_COMMANDS_H

int hec_collectives_command(int argc, char **argv); /* argv[0] is the command; returns the exit code */
int hec_executor_command(int argc, char **argv);

#endif
