/* The table of backends; backend.h says what a row is. */
#include "runtime/exec/backend.h"

#include <string.h>

#define ROW(name) &hec_backend_##name,
const hec_backend *const hec_backends[] = {HEC_BACKEND_LIST(ROW) NULL};

const hec_backend *hec_backend_find(const char *name) {
  for (const hec_backend *const *b = hec_backends; *b; b++)
    if (strcmp((*b)->name, name) == 0)
      return *b;
  return NULL;
}
