/* What this machine is, for the head of a measurement. */
#pragma once
#include "runtime/base/text.h"

#include <stdbool.h>

typedef struct hec_problem hec_problem; /* runtime/plan/problem.h */

void hec_machine_cpu(hec_text *name); /* "Intel(R) Xeon(R) ..."; "unknown CPU" where the system does not say */
int32_t hec_machine_cores(void);      /* that this process may use */
double hec_machine_memory(void);      /* bytes; 0 where the system does not say */
/* Bytes of it that new work can have, by a file like /proc/meminfo; without one, or where it does not say, all of it. */
double hec_machine_memory_free(const char *meminfo);
/* Processes of the job that a process manager (mpirun, srun) started this one in, by what it left in the environment.
 * 1: none did, or it is alone. */
int32_t hec_machine_launched(void);

/* Whether all ranks of it fit in it, and with `check` the dense reference of --check beside them. This is said before
 * the kernel ends one of them for want of memory. */
hec_status hec_machine_check_memory(const hec_problem *problem, int32_t ranks_here, bool check) HEC_MUST_USE;
