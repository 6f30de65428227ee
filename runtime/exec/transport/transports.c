/* The table of transports. */
#include "runtime/exec/transport/transport.h"

#include "runtime/base/table.h"

#define ROW(name) &hec_transport_##name,
const hec_transport *const hec_transports[] = {HEC_TRANSPORT_LIST(ROW) NULL};

HEC_TABLE_OF(hec_transport);
const hec_transport *hec_transport_find(const char *name) {
  return hec_table_find(hec_transports, name);
}
