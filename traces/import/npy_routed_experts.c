/* .npy files. As a rule they hold routed experts. vLLM's routed_experts of a request (--enable-return-routed-experts)
 * are (tokens, layers, top_k) of uint8 or uint16. Traces as ExFlow's are (tokens, layers) of top-1 experts. A file is
 * a request; several are taken in the order of their names. Others hold tables of counts. Which it is, and in what
 * order axes are, the file does not say: axes.h. A window of a request is in memory; all of it where gzip or a stream
 * is read. */
#include "runtime/base/arena.h"
#include "traces/import/npy_counts.h"
#include "traces/import/routed.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  hec_import_bytes bytes;
  hec_routed routed;
  hec_npy_counts counts;
  bool read, is_counts;
} request;

static void close_file(void *state) {
  request *r = state;
  hec_routed_free(&r->routed);
  hec_npy_counts_free(&r->counts);
  hec_import_bytes_close(&r->bytes);
}

static hec_status read_request(hec_import_file *file, request *r) {
  unsigned char room[6];
  const unsigned char *head = room;
  hec_npy array = {.item = 0};
  const hec_reading *reading = NULL;
  HEC_TRY(hec_import_bytes_unpack(file->input, HEC_ROUTED_BYTES_MAX, &r->bytes));
  if (r->bytes.length >= 6)
    HEC_TRY(hec_import_bytes_at(&r->bytes, 0, 6, room, &head));
  if (r->bytes.length < 6 || !hec_npy_is((const char *)head, 6))
    return hec_import_fail(file, 0, "header", "expected a .npy file, found other bytes");
  HEC_TRY(hec_npy_read(file, 0, &r->bytes, &array));
  const hec_axes_case of = {.n = array.n_dimensions, .shape = array.shape, .ids = true, .counts = true};
  HEC_TRY(hec_axes_choose(file, 0, "shape", &of, &reading));
  r->is_counts = reading->counts;
  hec_import_assume_phase(file->job, r->is_counts ? "train" : "prefill+decode");
  return r->is_counts ? hec_npy_counts_read(file, &r->bytes, &array, reading, &r->counts)
                      : hec_routed_read(file, 0, "experts", &r->bytes, &array, reading, &r->routed);
}

static hec_status next(hec_import_file *file, hec_import_row *row, bool *more) {
  request *r = file->state;
  if (!r->read)
    HEC_TRY(read_request(file, r));
  r->read = true;
  return r->is_counts ? hec_npy_counts_next(file, &r->counts, row, more) : hec_routed_next(file, &r->routed, row, more);
}

static bool recognise(const char *head, size_t n) {
  return hec_npy_is(head, n);
}

const hec_importer hec_importer_npy_routed_experts = {
    .name = "npy-routed-experts",
    .summary = ".npy of expert ids (tokens, layers, top_k), a file per request, transitions; or of counts: --axes",
    .source = "vLLM, --enable-return-routed-experts; ExFlow's traces",
    .pattern = "*.npy *.npy.gz",
    .files = HEC_FILES_SEQUENCE,
    .numbered = true,
    .paths = true,
    .axes = true,
    .tail = true,
    .counted = HEC_COUNTED_BEFORE_DROP,
    .recognise = recognise,
    .begin = hec_routed_begin,
    .state_bytes = sizeof(request),
    .next = next,
    .close = close_file,
};
