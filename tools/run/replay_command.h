/* hecate-run [replay]: the policies on a recorded trace, executed and measured. */
#ifndef HEC_TOOLS_RUN_REPLAY_COMMAND_H
#define HEC_TOOLS_RUN_REPLAY_COMMAND_H

int hec_replay_command(int argc, char **argv);

#endif
