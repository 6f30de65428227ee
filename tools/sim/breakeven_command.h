/* `hecate-sim breakeven [--cluster C] [--model M] [--json]`: how many tokens a copy of an expert must take over to pay.
 */
#ifndef HEC_TOOLS_BREAKEVEN_COMMAND_H
#define HEC_TOOLS_BREAKEVEN_COMMAND_H

int hec_breakeven_command(int argc, char **argv); /* argv[0] is "breakeven"; returns the exit code */

#endif
