/* `hecate-trace import INPUT...` and `hecate-trace convert IN`. */
#ifndef HEC_TOOLS_IMPORT_COMMAND_H
#define HEC_TOOLS_IMPORT_COMMAND_H
#include "runtime/base/status.h"

/* argv[0] is the command's name. What is said goes to standard output, or to stderr where the trace goes there. */
hec_status hec_import_command(int argc, char **argv) HEC_MUST_USE;
hec_status hec_convert_command(int argc, char **argv) HEC_MUST_USE;

#endif
