/* The table of backends; backend.h says what a row is. */
#include "runtime/exec/backend.h"

#include "runtime/base/table.h"

#define ROW(name) &hec_backend_##name,
const hec_backend *const hec_backends[] = {HEC_BACKEND_LIST(ROW) NULL};

HEC_TABLE_OF(hec_backend);
const hec_backend *hec_backend_find(const char *name) {
  return hec_table_find(hec_backends, name);
}
