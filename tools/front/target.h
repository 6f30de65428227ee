/* Where ranks run, from the command line: the same options, checks and messages for every command that executes. */
#pragma once
#include "runtime/exec/backend.h"
#include "tools/front/options.h"

typedef struct hec_job hec_job; /* runtime/program/job.h */

typedef struct {
  const hec_backend *backend;
  const hec_transport *transport;
  const hec_device_link *link; /* NULL: ranks have no devices */
  hec_precision precision;     /* of the devices' products */
} hec_target;

/* Finds and starts the backend and its transport. *ranks: those that a process manager made, 0: the caller chooses.
 * HEC_BAD_INPUT for what does not go together. target->backend is set as soon as it is known: hec_target_exit is every
 * way out. */
hec_status hec_target_open(const hec_target_args *args, hec_target *target, int32_t *ranks) HEC_MUST_USE;
/* Ranks of each host, as the process manager made them: what plans are made for when no cluster is named. n_ranks: all are on one
 * host, or hosts are unlike, which no line of a cluster can say. */
int32_t hec_target_per_host(const hec_target *target, int32_t n_ranks);
/* Says it among the job's defaults. */
void hec_target_say_hosts(const hec_target *target, hec_job *job, hec_arena *arena);
/* How the devices of so many ranks exchange data, for backends with devices; once the ranks are known. */
hec_status hec_target_choose_link(const hec_target_args *args, hec_target *target, int32_t n_ranks) HEC_MUST_USE;
/* What carries the messages: the link where there are devices, else the transport; and what ranks are. */
const char *hec_target_carrier(const hec_target *target);
const char *hec_target_carrier_summary(const hec_target *target);
const char *hec_target_ranks_are(const hec_target *target, const hec_target_args *args);
/* hec_tool_exit in the one process that may print (also while there is no backend yet), and the end of the backend; returns
 * the exit code. A failure before the launch abandons the other processes of a process manager, and this one, with it. */
int hec_target_exit(hec_target *target, const char *program, hec_status status, bool launched);

/* What `--backend list` asks for, and --list (`all`); false: neither was. */
bool hec_target_list(const hec_target_args *args, bool all);
