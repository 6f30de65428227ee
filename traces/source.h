/* Bytes of a trace from a file, standard input or memory, gzip undone: what the scanner reads from. */
#pragma once
#include "runtime/base/status.h"

#include <stddef.h>

typedef struct hec_source hec_source;
struct hec_source {
  const char *origin; /* how messages name it */
  /* Up to `n` bytes into `bytes`; *got 0 at the end. */
  hec_status (*read)(hec_source *source, char *bytes, size_t n, size_t *got);
  hec_status (*rewind)(hec_source *source);
  void (*close)(hec_source *source);
};

/* "-" is standard input. A first pair of bytes 1f 8b puts the gzip decoder in between. */
hec_status hec_source_open(const char *path, hec_source **source) HEC_MUST_USE;
hec_status hec_source_open_memory(const char *bytes, size_t length, const char *origin,
                                  hec_source **source) HEC_MUST_USE;

/* traces/gzip.c. Takes over `packed`, which is closed with the new source. */
hec_source *hec_gzip_unpack(hec_source *packed);
