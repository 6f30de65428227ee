/* The table of dispatch rules. */
#include "runtime/plan/dispatch/dispatch.h"

#include "runtime/base/table.h"

HEC_TABLE_OF(hec_dispatch);
const hec_dispatch *hec_dispatch_find(const char *name) {
#define ROW(rule) &hec_dispatch_##rule,
  static const hec_dispatch *const rows[] = {HEC_DISPATCH_LIST(ROW) NULL};
#undef ROW
  return hec_table_find(rows, name);
}
