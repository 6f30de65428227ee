/* The table of dispatch rules. */
#include "runtime/plan/dispatch/dispatch.h"

#include <string.h>

const hec_dispatch *hec_dispatch_find(const char *name) {
#define ROW(rule) &hec_dispatch_##rule,
  static const hec_dispatch *const rows[] = {HEC_DISPATCH_LIST(ROW) NULL};
#undef ROW
  for (size_t i = 0; rows[i]; i++)
    if (strcmp(rows[i]->name, name) == 0)
      return rows[i];
  return NULL;
}
