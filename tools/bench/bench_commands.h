/* hecate-bench collectives, executor, gpu, planners: what is measured with real ranks, or on a device, against a limit.
 * fsmoe: a planner. network: network laws. sweep: sweeps. import: importers of traces. */
#ifndef HEC_TOOLS_BENCH_BENCH_COMMANDS_H
#define HEC_TOOLS_BENCH_BENCH_COMMANDS_H

int hec_collectives_command(int argc, char **argv); /* argv[0] is the command; returns the exit code */
int hec_executor_command(int argc, char **argv);
int hec_gpu_command(int argc, char **argv);
int hec_planners_command(int argc, char **argv);
int hec_fsmoe_command(int argc, char **argv);
int hec_network_command(int argc, char **argv);
int hec_sweep_bench_command(int argc, char **argv);
int hec_import_bench_command(int argc, char **argv);

#endif
