/* Bytes of an input at any place of it: of a file that is read there, or in memory. */
#pragma once
#include "traces/import/importer.h"

#include <stdio.h>

typedef struct {
  const hec_import_input *input;
  FILE *file;         /* NULL: in memory */
  const char *memory; /* [length] */
  uint64_t length;
  hec_text text; /* whose memory it is where it was read */
} hec_import_bytes;

/* As they are: gzip is not undone, and a stream is no such file. To be closed in any case. */
hec_status hec_import_bytes_open(const hec_import_input *input, hec_import_bytes *bytes) HEC_MUST_USE;
/* At most so many; gzip is undone, and what that or a stream gives is in memory. */
hec_status hec_import_bytes_unpack(const hec_import_input *input, size_t max, hec_import_bytes *bytes) HEC_MUST_USE;
void hec_import_bytes_close(hec_import_bytes *bytes);
/* n bytes from `at`, which the caller knows to be there: *found is where they lie, or `room` [n], into which they were
 * read. */
hec_status hec_import_bytes_at(const hec_import_bytes *bytes, uint64_t at, size_t n, void *room,
                               const unsigned char **found) HEC_MUST_USE;

/* Little-endian. Inlined with `item` as a constant, which makes it one load. */
static inline uint64_t hec_import_number(const unsigned char *p, int item) {
  uint64_t value = 0;
  for (int i = 0; i < item; i++)
    value |= (uint64_t)p[i] << (8 * i);
  return value;
}
