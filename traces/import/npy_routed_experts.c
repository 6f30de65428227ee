/* .npy files of routed experts: vLLM's routed_experts of a request (--enable-return-routed-experts), (tokens, layers,
 * top_k) of uint8 or uint16; traces as ExFlow's, (tokens, layers) of top-1 experts. A file is a request; several are
 * taken in the order of their names. One request is in memory. */
#include "runtime/base/arena.h"
#include "traces/import/routed.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  hec_routed routed;
  bool read;
} request;

static hec_status begin(hec_import *job, const hec_import_input *beside) {
  (void)beside;
  hec_routed_begin(job);
  return HEC_OK;
}

static hec_status open_file(hec_import_file *file) {
  file->state = memset(hec_malloc(1, sizeof(request)), 0, sizeof(request));
  return HEC_OK;
}

static void close_file(hec_import_file *file) {
  request *r = file->state;
  if (!r)
    return;
  hec_routed_free(&r->routed);
  free(r);
}

static hec_status next(hec_import_file *file, hec_import_row *row, bool *more) {
  request *r = file->state;
  if (!r->read) {
    hec_text bytes = {0};
    hec_status status = hec_import_slurp(file->input, HEC_ROUTED_BYTES_MAX, &bytes);
    bool magic = bytes.length >= 6 && memcmp(bytes.data, "\x93NUMPY", 6) == 0;
    if (status == HEC_OK && !magic)
      status = hec_import_fail(file, 0, "header", "expected a .npy file, found other bytes");
    if (status == HEC_OK)
      status = hec_routed_read(file, 0, "experts", bytes.data, bytes.length, &r->routed);
    hec_text_free(&bytes);
    HEC_TRY(status);
  }
  r->read = true;
  return hec_routed_next(file, &r->routed, row, more);
}

static bool recognise(const char *head, size_t n) {
  return n >= 6 && memcmp(head, "\x93NUMPY", 6) == 0;
}

const hec_importer hec_importer_npy_routed_experts = {
    .name = "npy-routed-experts",
    .summary = ".npy (tokens, layers, top_k) or (tokens, layers) of expert ids, a file per request; transitions",
    .source = "vLLM, --enable-return-routed-experts; ExFlow's traces",
    .pattern = "*.npy *.npy.gz",
    .files = HEC_FILES_SEQUENCE,
    .numbered = true,
    .paths = true,
    .tail = true,
    .counted = HEC_COUNTED_BEFORE_DROP,
    .phase = "prefill+decode",
    .recognise = recognise,
    .begin = begin,
    .open = open_file,
    .next = next,
    .close = close_file,
};
