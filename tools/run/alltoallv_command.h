/* hecate-run alltoallv: a traffic matrix as one exchange, carried out and measured. */
#ifndef HEC_TOOLS_RUN_ALLTOALLV_COMMAND_H
#define HEC_TOOLS_RUN_ALLTOALLV_COMMAND_H

int hec_alltoallv_command(int argc, char **argv); /* argv[0] is "alltoallv" */

#endif
