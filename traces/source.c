/* File and memory sources. The first two bytes decide about gzip, and standard input cannot be rewound. So they are
 * read once and handed out again: `head` holds what was peeked at. */
#define _GNU_SOURCE /* F_SETPIPE_SZ */
#include "traces/source.h"

#include "runtime/base/arena.h"
#include "runtime/base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PIPE_BYTES = 1 << 20 };

typedef struct {
  hec_source base;
  FILE *file;        /* NULL: memory */
  const char *bytes; /* [length] of a memory source, the caller's */
  size_t length, at;
  char head[2];
  size_t n_head, head_at; /* peeked bytes, and how many of them were handed out again */
  char *origin;
} plain_source;

static hec_status plain_read(hec_source *source, char *bytes, size_t n, size_t *got) {
  plain_source *s = (plain_source *)source;
  size_t n_given = 0;
  while (n_given < n && s->head_at < s->n_head)
    bytes[n_given++] = s->head[s->head_at++];
  if (s->file) {
    errno = 0;
    n_given += fread(bytes + n_given, 1, n - n_given, s->file);
    if (ferror(s->file))
      return hec_fail(HEC_FAILED, "%s: cannot be read: %s", source->origin, strerror(errno));
  } else {
    size_t left = s->length - s->at, m = left < n - n_given ? left : n - n_given;
    if (m > 0)
      memcpy(bytes + n_given, s->bytes + s->at, m);
    s->at += m;
    n_given += m;
  }
  *got = n_given;
  return HEC_OK;
}

static hec_status plain_rewind(hec_source *source) {
  plain_source *s = (plain_source *)source;
  s->at = 0;
  s->n_head = s->head_at = 0;
  if (!s->file)
    return HEC_OK;
  clearerr(s->file);
  if (s->file == stdin || fseek(s->file, 0, SEEK_SET) != 0)
    return hec_fail(HEC_BAD_INPUT, "%s: expected a file that can be read twice, found a stream", source->origin);
  return HEC_OK;
}

static void plain_close(hec_source *source) {
  plain_source *s = (plain_source *)source;
  if (s->file && s->file != stdin)
    (void)fclose(s->file);
  free(s->origin);
  free(s);
}

static plain_source *plain_new(const char *origin) {
  plain_source *s = hec_malloc(1, sizeof *s);
  size_t length = strlen(origin) + 1;
  char *name = memcpy(hec_malloc(length, 1), origin, length);
  *s = (plain_source){.base = {name, plain_read, plain_rewind, plain_close}, .origin = name};
  return s;
}

/* Looks at the first two bytes and puts the gzip decoder in front when they are its magic. */
static hec_status recognise(plain_source *s, hec_source **source) {
  char head[2];
  size_t n_head = 0;
  hec_status status = plain_read(&s->base, head, sizeof head, &n_head);
  if (status != HEC_OK) {
    plain_close(&s->base);
    return status;
  }
  memcpy(s->head, head, n_head);
  s->n_head = n_head;
  s->head_at = 0;
  bool packed = n_head == 2 && (unsigned char)head[0] == 0x1f && (unsigned char)head[1] == 0x8b;
  *source = packed ? hec_gzip_unpack(&s->base) : &s->base;
  return HEC_OK;
}

hec_status hec_source_open(const char *path, hec_source **source) {
  bool standard = strcmp(path, "-") == 0;
  FILE *file = standard ? stdin : hec_file_open(path, "rb");
  if (!file)
    return hec_fail(HEC_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
  struct stat info = {.st_mode = 0};
  if (fstat(fileno(file), &info) == 0 && S_ISDIR(info.st_mode)) {
    if (!standard)
      (void)fclose(file);
    return hec_fail(HEC_BAD_INPUT, "%s: expected a trace file, found a directory", path);
  }
  (void)setvbuf(file, NULL, _IONBF, 0); /* the scanner reads in large blocks */
#ifdef F_SETPIPE_SZ
  if (S_ISFIFO(info.st_mode)) /* 64 KiB wake writer and reader too often: up to 5 times slower; refused is no matter */
    (void)fcntl(fileno(file), F_SETPIPE_SZ, PIPE_BYTES);
#endif
  plain_source *s = plain_new(standard ? "standard input" : path);
  s->file = file;
  return recognise(s, source);
}

hec_status hec_source_open_memory(const char *bytes, size_t length, const char *origin, hec_source **source) {
  plain_source *s = plain_new(origin);
  s->bytes = bytes;
  s->length = length;
  return recognise(s, source);
}
