/* The table of cost laws, walked by presets, fits, lists and tests. */
#include "models/laws/cost_law.h"

#include <string.h>

#define ROW(name) &hec_cost_law_##name,
const hec_cost_law *const hec_cost_laws[] = {HEC_COST_LAW_LIST(ROW) NULL};

const hec_cost_law *hec_cost_law_find(const char *name) {
  for (const hec_cost_law *const *law = hec_cost_laws; *law; law++)
    if (strcmp((*law)->name, name) == 0)
      return *law;
  return NULL;
}
