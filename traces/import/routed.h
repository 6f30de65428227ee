/* Experts of every token of a request, [tokens][layers][top_k], as inference servers return them. */
#pragma once
#include "traces/import/axes.h"
#include "traces/import/npy.h"

#define HEC_ROUTED_BYTES_MAX ((size_t)1 << 28) /* of a request */

typedef struct {
  const hec_import_bytes *bytes;
  hec_import_bytes turned; /* of a request with layers first: in its stead */
  const char *field;       /* for messages */
  uint64_t data_at;
  int item; /* bytes of a number */
  bool is_signed;
  int64_t n_tokens, n_layers, top_k, line;
  bool *is_routed;                  /* [n_layers] */
  int64_t n_window, n_windows;      /* tokens of a window; windows of the request */
  int64_t window, layer;            /* next to be given */
  int64_t layer_before;             /* the last one of the window with tokens, -1: none */
  const unsigned char *numbers;     /* [tokens][n_layers][top_k] of the window */
  unsigned char *room;              /* where they were read from a file */
  uint32_t *ids, *ids_before;       /* [n_window][top_k] of a layer */
  uint32_t *counts, *counts_before; /* [experts] of them */
  uint32_t *last;                   /* [experts] the last token that chose it, from 1 */
  bool repeats;                     /* a token of the layer chose an expert twice */
  size_t routed_capacity, room_capacity, ids_capacity, before_capacity;
} hec_routed; /* zero-initialise */

void hec_routed_free(hec_routed *routed);
/* An importer's begin: as many sources as --ranks says. */
hec_status hec_routed_begin(hec_import *job, const hec_import_input *beside) HEC_MUST_USE;
/* Ids of an array; `field` for messages. `bytes` stay till the last row. */
hec_status hec_routed_read(hec_import_file *file, int64_t line, const char *field, const hec_import_bytes *bytes,
                           const hec_npy *array, const hec_reading *reading, hec_routed *routed) HEC_MUST_USE;
/* The next layer of the next tokens of the request; *more false behind the last, and file->kept counts requests. */
hec_status hec_routed_next(hec_import_file *file, hec_routed *routed, hec_import_row *row, bool *more) HEC_MUST_USE;
