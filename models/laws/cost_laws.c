/* The table of cost laws, walked by presets, fits, lists and tests. */
#include "models/laws/cost_law.h"

#include "runtime/base/table.h"

#define ROW(name) &hec_cost_law_##name,
const hec_cost_law *const hec_cost_laws[] = {HEC_COST_LAW_LIST(ROW) NULL};

const hec_cost_law *hec_cost_law_find(const char *name) {
  return hec_table_find(hec_cost_laws, name);
}
