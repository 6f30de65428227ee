/* `hecate-run train`: a character-level GPT-MoE language model trained on a text. Returns the exit code. Call
 * hec_math_open first (before any thread or fork). */
#ifndef HEC_TOOLS_RUN_TRAIN_COMMAND_H
#define HEC_TOOLS_RUN_TRAIN_COMMAND_H

int hec_train_command(int argc, char **argv); /* argv[0] is "train" */

#endif
