/* Where ranks run, from the command line: the same options, checks and messages for every command that executes. */
#ifndef HEC_FRONT_WHERE_H
#define HEC_FRONT_WHERE_H
#include "runtime/exec/backend.h"
#include "tools/front/options.h"

typedef struct {
  const hec_backend *backend;
  const hec_transport *transport;
  const hec_device_link *link; /* NULL: ranks have no devices */
  hec_precision precision;     /* of the devices' products */
} hec_where;

/* Finds and starts the backend and its transport. *ranks: those that a process manager made, 0: the caller chooses.
 * HEC_BAD_INPUT for what does not go together. where->backend is set as soon as it is known: hec_where_exit is every
 * way out. */
hec_status hec_where_open(const hec_where_args *args, hec_where *where, int32_t *ranks) HEC_MUST_USE;
/* How the devices of so many ranks exchange data, for backends with devices; once the ranks are known. */
hec_status hec_where_choose_link(const hec_where_args *args, hec_where *where, int32_t n_ranks) HEC_MUST_USE;
/* What carries the messages: the link where there are devices, else the transport; and what ranks are. */
const char *hec_where_carrier(const hec_where *where);
const char *hec_where_carrier_summary(const hec_where *where);
const char *hec_where_ranks_are(const hec_where *where, const hec_where_args *args);
/* hec_tool_exit in the one process that may print (also while there is no backend yet), and the end of the backend; returns
 * the exit code. A failure before the launch abandons the other processes of a process manager, and this one, with it. */
int hec_where_exit(hec_where *where, const char *program, hec_status status, bool launched);

/* What `--backend list` asks for, and --list (`all`); false: neither was. */
bool hec_where_list(const hec_where_args *args, bool all);

#endif
