/* What this machine is, for the head of a measurement. */
#ifndef HEC_TOOLS_COMMON_MACHINE_H
#define HEC_TOOLS_COMMON_MACHINE_H
#include "runtime/base/text.h"

void hec_machine_cpu(hec_text *name); /* "Intel(R) Xeon(R) ..."; "unknown CPU" where the system does not say */
int32_t hec_machine_cores(void);      /* that this process may use */
double hec_machine_memory(void);      /* bytes */

#endif
