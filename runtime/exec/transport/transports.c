/* The table of transports.
 *
 * Could `paced` (and tcp.c under it) go, now that tools/hosts runs MPI between hosts with shaped links? Not without loss:
 * - It needs nothing: no root, no namespaces, no MPI, no tc. Containers often forbid namespaces; tests of tools/hosts are
 *   skipped there.
 * - hecate-validate compare over it predicts times within 1.3 to 1.7 % (validate/results/compare-paced.md). Across hosts it is
 *   3 % with --law max_min, 4 and 8 % with alpha_beta (docs/hosts.md).
 * - It is the one transport of one machine in which a connection breaks, a message moves in part and two ends disagree about a
 *   size: tests/exec has such faults.
 * It proves less about networks: it paces each message, so nothing waits behind anything. For that there is tools/hosts. */
#include "runtime/exec/transport/transport.h"

#include "runtime/base/table.h"

#define ROW(name) &hec_transport_##name,
const hec_transport *const hec_transports[] = {HEC_TRANSPORT_LIST(ROW) NULL};

HEC_TABLE_OF(hec_transport);
const hec_transport *hec_transport_find(const char *name) {
  return hec_table_find(hec_transports, name);
}
