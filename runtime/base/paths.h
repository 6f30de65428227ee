/* Whether what a command writes would destroy what it reads, or what it writes beside it. */
#pragma once
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  const char *what; /* "the trace": as messages call it */
  const char *path; /* NULL and "-": no file, passed over */
  bool written;
} hec_path_use;

/* Before anything is read or computed: no written path is one of the others. Else one error, naming both. O(n) for each written path. */
hec_status hec_paths_check(const hec_path_use *uses, int32_t n) HEC_MUST_USE;
