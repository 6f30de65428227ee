/* Whether what a command writes would destroy what it reads, or what it writes beside it. */
#ifndef HEC_BASE_PATHS_H
#define HEC_BASE_PATHS_H
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  const char *what; /* "the trace": as messages call it */
  const char *path; /* NULL and "-": no file, passed over */
  bool written;
} hec_path_use;

/* The same file by device and number (links of both kinds are followed), or where neither is there yet the same name in
 * the same folder. What is no regular file (/dev/null, a pipe) is never the same. */
bool hec_path_same(const char *a, const char *b);

/* Before anything is read or computed: no written path is one of the others. Else one error, naming both. O(n) for each written path. */
hec_status hec_paths_check(const hec_path_use *uses, int32_t n) HEC_MUST_USE;

#endif
