/* `hecate-sim flows CASE.json [--law LAW] [--json]`: a bare set of flows under a network law (sim/flows.h). */
#ifndef HEC_TOOLS_FLOWS_COMMAND_H
#define HEC_TOOLS_FLOWS_COMMAND_H

/* argv[0] is the word "flows", the arguments follow. Writes to stdout (with --json: one document and nothing else),
 * errors to stderr. Returns the exit code: 0 done, 1 the run failed, 2 bad input or usage. */
int hec_flows_command(int argc, char **argv);

#endif
