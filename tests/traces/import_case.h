/* What files of importers are made of. */
#pragma once
#include "runtime/base/text.h"
#include "tests/support/check_main.h"

#include <string.h>

/* The 128 bytes in front of the numbers of a .npy, e.g. of "<u2" and "(3, 4)". */
static inline void hec_test_npy_header(hec_text *file, const char *type, const char *shape) {
  char header[118];
  memset(header, ' ', sizeof header);
  header[snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", type, shape)] = ' ';
  header[117] = '\n';
  hec_text_add_bytes(file, "\x93NUMPY\1\0\x76\0", 10);
  hec_text_add_bytes(file, header, sizeof header);
}

/* `n` different experts of a token. */
static inline void hec_test_distinct(uint64_t *seed, int n_experts, int n, uint32_t *ids) {
  for (int k = 0; k < n; k++)
    for (bool again = true; again;) {
      ids[k] = (uint32_t)hec_test_below(seed, (uint64_t)n_experts);
      again = false;
      for (int b = 0; b < k; b++)
        again = again || ids[b] == ids[k];
    }
}
