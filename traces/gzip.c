/* The one door to zlib: gzip (RFC 1952) between the scanner and a source, and between the writer and a sink. Members
 * may follow one another (as `cat a.gz b.gz` makes them) and be followed by zero bytes (tape padding). Anything else
 * behind a member, or a damaged or unfinished one, is an error. So a cut file never looks like a short trace. */
#define ZLIB_CONST /* zlib then promises not to write to its input */
#include "traces/sink.h"
#include "traces/source.h"

#include "runtime/base/arena.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* Digits have many short matches, where zlib's default level (6) takes four times as long for 8 % fewer bytes. */
enum { BLOCK_BYTES = 1 << 16, GZIP_WINDOW = 15 + 16, GZIP_LEVEL = 3 };

/* zlib's memory: with none left it never sees NULL, and nothing has to tell that from damaged data. */
static void *allocate(void *context, unsigned n, unsigned bytes) {
  (void)context;
  return hec_malloc(n, bytes);
}

static void release(void *context, void *memory) {
  (void)context;
  free(memory);
}

typedef struct {
  hec_source base;
  hec_source *packed;
  z_stream zlib;
  bool in_member, packed_ended;
  unsigned char block[BLOCK_BYTES];
} gzip_source;

static hec_status refill(gzip_source *s) {
  size_t got = 0;
  HEC_TRY(s->packed->read(s->packed, (char *)s->block, sizeof s->block, &got));
  s->zlib.next_in = s->block;
  s->zlib.avail_in = (uInt)got;
  s->packed_ended = got == 0;
  return HEC_OK;
}

/* Between members: skips zero bytes, begins the next member, or leaves *ended set. */
static hec_status next_member(gzip_source *s, bool *ended) {
  *ended = false;
  for (;;) {
    while (s->zlib.avail_in > 0 && *s->zlib.next_in == 0) {
      s->zlib.next_in++;
      s->zlib.avail_in--;
    }
    if (s->zlib.avail_in > 0)
      break;
    HEC_TRY(refill(s));
    if (s->packed_ended) {
      *ended = true;
      return HEC_OK;
    }
  }
  if (*s->zlib.next_in != 0x1f)
    return hec_fail(HEC_BAD_INPUT, "%s: expected the end or another gzip member, found byte 0x%02x", s->base.origin,
                    *s->zlib.next_in);
  HEC_ASSERT(inflateReset(&s->zlib) == Z_OK);
  s->in_member = true;
  return HEC_OK;
}

static hec_status gzip_read(hec_source *source, char *bytes, size_t n, size_t *got) {
  gzip_source *s = (gzip_source *)source;
  n = n < (1u << 30) ? n : 1u << 30;
  s->zlib.next_out = (unsigned char *)bytes;
  s->zlib.avail_out = (uInt)n;
  while (s->zlib.avail_out > 0) {
    if (!s->in_member) {
      bool ended = false;
      HEC_TRY(next_member(s, &ended));
      if (ended)
        break;
    }
    if (s->zlib.avail_in == 0 && !s->packed_ended)
      HEC_TRY(refill(s));
    if (s->packed_ended)
      return hec_fail(HEC_BAD_INPUT, "%s: expected more gzip data, found the end of the file (truncated)",
                      source->origin);
    int code = inflate(&s->zlib, Z_NO_FLUSH);
    if (code == Z_STREAM_END)
      s->in_member = false;
    else if (code != Z_OK && code != Z_BUF_ERROR)
      return hec_fail(HEC_BAD_INPUT, "%s: expected gzip data, found it damaged: %s", source->origin,
                      s->zlib.msg ? s->zlib.msg : "no reason given");
  }
  *got = n - s->zlib.avail_out;
  return HEC_OK;
}

static hec_status gzip_rewind(hec_source *source) {
  gzip_source *s = (gzip_source *)source;
  HEC_TRY(s->packed->rewind(s->packed));
  HEC_ASSERT(inflateReset(&s->zlib) == Z_OK);
  s->zlib.avail_in = 0;
  s->packed_ended = false;
  s->in_member = true;
  return HEC_OK;
}

static void gzip_close(hec_source *source) {
  gzip_source *s = (gzip_source *)source;
  (void)inflateEnd(&s->zlib);
  s->packed->close(s->packed);
  free(s);
}

hec_source *hec_gzip_unpack(hec_source *packed) {
  gzip_source *s = hec_malloc(1, sizeof *s);
  memset(s, 0, sizeof *s);
  s->base = (hec_source){packed->origin, gzip_read, gzip_rewind, gzip_close};
  s->packed = packed;
  s->in_member = true;
  s->zlib = (z_stream){.zalloc = allocate, .zfree = release};
  HEC_ASSERT(inflateInit2(&s->zlib, GZIP_WINDOW) == Z_OK);
  return &s->base;
}

typedef struct {
  hec_sink base;
  hec_sink *plain;
  z_stream zlib;
  unsigned char block[BLOCK_BYTES];
} gzip_sink;

static hec_status deflate_to_plain(gzip_sink *s, int flush) {
  int code = Z_OK;
  do {
    s->zlib.next_out = s->block;
    s->zlib.avail_out = sizeof s->block;
    code = deflate(&s->zlib, flush);
    HEC_ASSERT(code != Z_STREAM_ERROR);
    HEC_TRY(s->plain->write(s->plain, (const char *)s->block, sizeof s->block - s->zlib.avail_out));
  } while (s->zlib.avail_out == 0 || (flush == Z_FINISH && code != Z_STREAM_END));
  return HEC_OK;
}

static hec_status gzip_write(hec_sink *sink, const char *bytes, size_t n) {
  gzip_sink *s = (gzip_sink *)sink;
  while (n > 0) {
    size_t m = n < (1u << 30) ? n : 1u << 30;
    s->zlib.next_in = (const unsigned char *)bytes;
    s->zlib.avail_in = (uInt)m;
    HEC_TRY(deflate_to_plain(s, Z_NO_FLUSH));
    bytes += m;
    n -= m;
  }
  return HEC_OK;
}

static hec_status gzip_sink_close(hec_sink *sink, int keep) {
  gzip_sink *s = (gzip_sink *)sink;
  s->zlib.avail_in = 0;
  hec_status status = keep ? deflate_to_plain(s, Z_FINISH) : HEC_OK;
  (void)deflateEnd(&s->zlib);
  hec_sink *plain = s->plain;
  free(s);
  if (status != HEC_OK) {
    (void)!plain->close(plain, 0);
    return status;
  }
  return plain->close(plain, keep);
}

hec_sink *hec_gzip_pack(hec_sink *plain) {
  gzip_sink *s = hec_malloc(1, sizeof *s);
  memset(s, 0, sizeof *s);
  s->base = (hec_sink){gzip_write, gzip_sink_close};
  s->plain = plain;
  s->zlib = (z_stream){.zalloc = allocate, .zfree = release};
  HEC_ASSERT(deflateInit2(&s->zlib, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  return &s->base;
}
