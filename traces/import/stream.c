/* A stream gives its bytes once, and the first of them were needed to recognise its format. These are kept, and handed
 * out again before the rest. */
#include "traces/import/job.h"

#include "runtime/base/arena.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
  hec_source base;
  hec_source *rest;
  char *head; /* [n] */
  size_t n, at;
} stream;

static hec_status stream_read(hec_source *source, char *bytes, size_t n, size_t *got) {
  stream *s = (stream *)source;
  size_t left = s->n - s->at;
  if (left == 0)
    return s->rest->read(s->rest, bytes, n, got);
  *got = left < n ? left : n;
  memcpy(bytes, s->head + s->at, *got);
  s->at += *got;
  return HEC_OK;
}

static hec_status stream_rewind(hec_source *source) {
  stream *s = (stream *)source;
  return s->rest->rewind(s->rest); /* which says that it cannot */
}

static void stream_close(hec_source *source) {
  (void)source;
}

hec_source *hec_import_stream(hec_source *source, const char *head, size_t n) {
  stream *s = hec_malloc(1, sizeof *s);
  *s = (stream){.base = {source->origin, stream_read, stream_rewind, stream_close},
                .rest = source,
                .head = hec_malloc(n + 1, 1),
                .n = n};
  memcpy(s->head, head, n);
  return &s->base;
}

void hec_import_stream_end(hec_source *source) {
  stream *s = (stream *)source;
  if (!s)
    return;
  s->rest->close(s->rest);
  free(s->head);
  free(s);
}

bool hec_import_is_stream(const hec_import_input *input) {
  struct stat info;
  return !input->bytes && (strcmp(input->path, "-") == 0 || (stat(input->path, &info) == 0 && !S_ISREG(info.st_mode)));
}
