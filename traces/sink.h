/* Where a written trace goes: a file under a temporary name, standard output, gzip in front when the name ends in .gz; or
 * memory. */
#pragma once
#include "runtime/base/status.h"
#include "runtime/base/text.h"

#include <stddef.h>

typedef struct hec_sink hec_sink;
struct hec_sink {
  hec_status (*write)(hec_sink *sink, const char *bytes, size_t n);
  /* Flushes and, with `keep`, puts the file in place; otherwise removes it. Frees the sink in every case. */
  hec_status (*close)(hec_sink *sink, int keep);
};

hec_status hec_sink_open(const char *path, hec_sink **sink) HEC_MUST_USE;
/* Adds to `text`, which stays the caller's; more than `limit` bytes are an error. */
hec_sink *hec_sink_memory(hec_text *text, size_t limit);

/* traces/gzip.c. Takes over `plain`. The gzip header carries no time and no name: same bytes in, same bytes out. */
hec_sink *hec_gzip_pack(hec_sink *plain);
