/* Counts of experts as a .npy file: [steps][layers][experts], or one step or one layer of it. */
#pragma once
#include "traces/import/axes.h"
#include "traces/import/npy.h"

typedef struct {
  const hec_import_bytes *bytes;
  hec_npy array;
  int64_t n_steps, n_layers, n_experts;
  int64_t step, layer; /* next to be given */
  unsigned char *room; /* of a row */
  uint32_t *counts;    /* [n_experts] */
} hec_npy_counts;      /* zero-initialise */

/* `bytes` stay till the last row. */
hec_status hec_npy_counts_read(hec_import_file *file, const hec_import_bytes *bytes, const hec_npy *array,
                               const hec_reading *reading, hec_npy_counts *counts) HEC_MUST_USE;
/* The next layer; behind the last one, file->kept counts steps. */
hec_status hec_npy_counts_next(hec_import_file *file, hec_npy_counts *counts, hec_import_row *row,
                               bool *more) HEC_MUST_USE;
void hec_npy_counts_free(hec_npy_counts *counts);
