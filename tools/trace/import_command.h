/* `hecate-trace import INPUT...` and `hecate-trace convert IN`. */
#pragma once

/* argv[0] is the command's name; returns the exit code. What is said goes to standard output, or to stderr where the trace
 * goes there. */
int hec_import_command(int argc, char **argv);
int hec_convert_command(int argc, char **argv);
