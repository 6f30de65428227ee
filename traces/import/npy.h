/* NumPy's .npy format, version 1 to 3: magic, version, length of the header (2 or 4 bytes), the header, the numbers.
 * The header is a Python dictionary: {'descr': '<u2', 'fortran_order': False, 'shape': (1024, 48, 8), }. What its axes
 * mean it does not say: axes.h. Own code: readers of it are in Python or C++. */
#pragma once
#include "traces/import/bytes.h"

typedef struct {
  int64_t shape[3];
  int n_dimensions, item; /* item: bytes of a number */
  bool is_signed;
  uint64_t data_at;
} hec_npy;

bool hec_npy_is(const char *head, size_t n);
/* The header of whole numbers in two or three dimensions, in C order. */
hec_status hec_npy_read(const hec_import_file *file, int64_t line, const hec_import_bytes *bytes,
                        hec_npy *array) HEC_MUST_USE;
/* Are there as many numbers as the shape says? At most `max` bytes of them. */
hec_status hec_npy_check_length(const hec_import_file *file, int64_t line, const hec_import_bytes *bytes,
                                const hec_npy *array, uint64_t max) HEC_MUST_USE;
