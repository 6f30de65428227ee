/* Experts of every token of a request, [tokens][layers][top_k], as inference servers return them. */
#ifndef HEC_TRACES_IMPORT_ROUTED_H
#define HEC_TRACES_IMPORT_ROUTED_H
#include "traces/import/importer.h"

#define HEC_ROUTED_BYTES_MAX ((size_t)1 << 28) /* of a request */

typedef struct {
  uint32_t *ids; /* [n_layers][n_tokens][top_k] */
  size_t capacity;
  int64_t n_tokens, n_layers, top_k, line;
  int64_t layer, layer_before; /* next to be given; the last one with tokens, -1: none */
  uint32_t *counts;
} hec_routed;

void hec_routed_free(hec_routed *routed);
/* For an importer's begin: as many sources as --ranks says. */
void hec_routed_begin(hec_import *job);
/* A .npy file, or (no such magic) int32 of --layers x --top-k; `field` for messages. */
hec_status hec_routed_read(hec_import_file *file, int64_t line, const char *field, const char *bytes, size_t n,
                           hec_routed *routed) HEC_MUST_USE;
/* The next layer of the request; *more false behind the last, and file->kept counts requests. */
hec_status hec_routed_next(hec_import_file *file, hec_routed *routed, hec_import_row *row, bool *more) HEC_MUST_USE;

#endif
