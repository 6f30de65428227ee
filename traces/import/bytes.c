/* Who goes through a file twice, or in the order of its table, need not hold it: it is read where it lies. A stream and
 * gzip have no such places, so they are read whole. */
#include "traces/import/bytes.h"

#include "runtime/base/files.h"

#include <errno.h>
#include <string.h>

static hec_status cannot(const hec_import_input *input, hec_status status, const char *what) {
  return hec_fail(status, "%s: cannot be %s: %s", input->path, what, strerror(errno));
}

hec_status hec_import_bytes_open(const hec_import_input *input, hec_import_bytes *bytes) {
  *bytes = (hec_import_bytes){.input = input, .memory = input->bytes, .length = input->length};
  if (input->bytes)
    return HEC_OK;
  if (hec_import_is_stream(input))
    return hec_fail(HEC_BAD_INPUT, "%s: expected a file, as its parts are read where they lie, found a stream",
                    input->path);
  bytes->file = hec_file_open(input->path, "rb");
  if (!bytes->file || fseeko(bytes->file, 0, SEEK_END) != 0)
    return cannot(input, HEC_BAD_INPUT, "opened");
  off_t end = ftello(bytes->file);
  if (end < 0)
    return cannot(input, HEC_BAD_INPUT, "opened");
  bytes->length = (uint64_t)end;
  return HEC_OK;
}

/* A file, and not gzip's? */
static bool has_places(const hec_import_input *input) {
  if (input->bytes || hec_import_is_stream(input))
    return false;
  unsigned char head[2] = {0};
  FILE *file = hec_file_open(input->path, "rb");
  bool plain = file && fread(head, 1, 2, file) == 2 && !(head[0] == 0x1f && head[1] == 0x8b);
  if (file)
    (void)fclose(file);
  return plain;
}

hec_status hec_import_bytes_unpack(const hec_import_input *input, size_t max, hec_import_bytes *bytes) {
  if (has_places(input)) {
    HEC_TRY(hec_import_bytes_open(input, bytes));
    if (bytes->length <= max)
      return HEC_OK;
    return hec_fail(HEC_BAD_INPUT, "%s: expected at most %zu bytes, found more", input->path, max);
  }
  *bytes = (hec_import_bytes){.input = input};
  hec_status status = hec_import_slurp(input, max, &bytes->text);
  bytes->memory = bytes->text.data;
  bytes->length = bytes->text.length;
  return status;
}

void hec_import_bytes_close(hec_import_bytes *bytes) {
  if (bytes->file)
    (void)fclose(bytes->file);
  hec_text_free(&bytes->text);
  *bytes = (hec_import_bytes){.file = NULL};
}

hec_status hec_import_bytes_at(const hec_import_bytes *bytes, uint64_t at, size_t n, void *room,
                               const unsigned char **found) {
  HEC_ASSERT(at <= bytes->length && n <= bytes->length - at);
  *found = room;
  if (n > 0 && !bytes->file)
    *found = (const unsigned char *)bytes->memory + at;
  else if (n > 0 && (fseeko(bytes->file, (off_t)at, SEEK_SET) != 0 || fread(room, 1, n, bytes->file) != n))
    return hec_fail(HEC_FAILED, "%s: cannot be read: %s", bytes->input->path,
                    ferror(bytes->file) ? strerror(errno) : "it has become shorter");
  return HEC_OK;
}
