/* Sinks of files and of memory. The file is whole or absent: bytes go to PATH.PID.part in the same folder, renamed at the end. A device or
 * a pipe cannot be replaced by a rename (and must not be): it is written in place. */
#include "traces/sink.h"

#include "runtime/base/arena.h"
#include "runtime/base/files.h"
#include "runtime/base/temporary.h"
#include "runtime/base/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
  hec_sink base;
  FILE *file;
  hec_text path, temporary; /* temporary empty: written in place */
} file_sink;

static hec_status file_write(hec_sink *sink, const char *bytes, size_t n) {
  file_sink *s = (file_sink *)sink;
  if (fwrite(bytes, 1, n, s->file) != n)
    return hec_fail(HEC_FAILED, "%s: cannot be written: %s", s->path.data, strerror(errno));
  return HEC_OK;
}

static hec_status file_close(hec_sink *sink, int keep) {
  file_sink *s = (file_sink *)sink;
  hec_status status = HEC_OK;
  bool flushed = fflush(s->file) == 0;
  int cause = errno;
  if (s->file != stdout && fclose(s->file) != 0 && flushed) {
    flushed = false;
    cause = errno;
  }
  if (keep && !flushed)
    status = hec_fail(HEC_FAILED, "%s: cannot be written: %s", s->path.data, strerror(cause));
  if (s->temporary.data) {
    if (keep && status == HEC_OK && rename(s->temporary.data, s->path.data) != 0)
      status = hec_fail(HEC_FAILED, "%s: cannot be put in place: %s", s->path.data, strerror(errno));
    if (!keep || status != HEC_OK)
      (void)remove(s->temporary.data);
    hec_temporary_drop(s->temporary.data);
  }
  hec_text_free(&s->path);
  hec_text_free(&s->temporary);
  free(s);
  return status;
}

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

hec_status hec_sink_open(const char *path, hec_sink **sink) {
  file_sink *s = hec_malloc(1, sizeof *s);
  *s = (file_sink){.base = {file_write, file_close}};
  struct stat info;
  bool standard = strcmp(path, "-") == 0;
  bool exists = !standard && stat(path, &info) == 0;
  hec_text_add(&s->path, standard ? "standard output" : path);
  if (exists && S_ISDIR(info.st_mode)) {
    hec_text_free(&s->path);
    free(s);
    return hec_fail(HEC_BAD_INPUT, "%s: expected a file to write, found a directory", path);
  }
  if (!standard && (!exists || S_ISREG(info.st_mode)))
    hec_temporary_begin(path, &s->temporary);
  s->file = standard ? stdout : hec_file_open(s->temporary.data ? s->temporary.data : path, "wb");
  if (!s->file) {
    hec_status status = hec_fail(HEC_FAILED, "%s: cannot be written: %s", path, strerror(errno));
    if (s->temporary.data)
      hec_temporary_drop(s->temporary.data);
    hec_text_free(&s->path);
    hec_text_free(&s->temporary);
    free(s);
    return status;
  }
  if (s->temporary.data)
    hec_temporary_hold(s->file);
  *sink = ends_with(path, ".gz") ? hec_gzip_pack(&s->base) : &s->base;
  return HEC_OK;
}

typedef struct {
  hec_sink base;
  hec_text *text;
  size_t limit;
} memory_sink;

static hec_status memory_write(hec_sink *sink, const char *bytes, size_t n) {
  memory_sink *s = (memory_sink *)sink;
  if (n > s->limit - s->text->length)
    return hec_fail(HEC_BAD_INPUT, "expected at most %zu bytes, found more", s->limit);
  hec_text_add_bytes(s->text, bytes, n);
  return HEC_OK;
}

static hec_status memory_close(hec_sink *sink, int keep) {
  (void)keep;
  free(sink);
  return HEC_OK;
}

hec_sink *hec_sink_memory(hec_text *text, size_t limit) {
  HEC_ASSERT(text->length <= limit);
  memory_sink *s = hec_malloc(1, sizeof *s);
  *s = (memory_sink){{memory_write, memory_close}, text, limit};
  return &s->base;
}
