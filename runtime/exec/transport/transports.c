/* The table of transports. */
#include "runtime/exec/transport/transport.h"

#include <string.h>

#define ROW(name) &hec_transport_##name,
const hec_transport *const hec_transports[] = {HEC_TRANSPORT_LIST(ROW) NULL};

const hec_transport *hec_transport_find(const char *name) {
  for (int i = 0; hec_transports[i]; i++)
    if (strcmp(hec_transports[i]->name, name) == 0)
      return hec_transports[i];
  return NULL;
}
