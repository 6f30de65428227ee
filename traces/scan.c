/* Pull scanner for JSON (RFC 8259), one pass, O(bytes), memory: one window of 256 KiB.
 *
 * Window:  [ read ... at ... unread ... end ][ zero bytes, SLACK ]
 * The zero bytes are no digit, quote or bracket, so inner loops need no bounds check per byte. Who meets one asks
 * whether it is the sentinel (at == end) or a zero byte of the file. A number is parsed only while at <= safe = end -
 * SLACK or when the source has ended, so no number is cut by the window's edge. */
#include "traces/scan.h"

#include "runtime/base/arena.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW_BYTES = 256 << 10, SLACK = HEC_SCAN_AHEAD, FOUND_BYTES = 48 };

/* ---- the window ---- */

static void flush_capture(hec_scan *scan) {
  if (scan->capture && scan->capture->length <= HEC_SCAN_TEXT_MAX) /* what is too long is refused, not kept */
    hec_text_add_bytes(scan->capture, scan->capture_from, (size_t)(scan->at - scan->capture_from));
}

static hec_status fill(hec_scan *scan) {
  flush_capture(scan);
  size_t n_left = (size_t)(scan->end - scan->at);
  HEC_ASSERT(n_left < WINDOW_BYTES);
  memmove(scan->window, scan->at, n_left);
  scan->at = scan->capture_from = scan->window;
  size_t got = 0;
  hec_status status =
      scan->ended ? HEC_OK : scan->source->read(scan->source, scan->window + n_left, WINDOW_BYTES - n_left, &got);
  if (got == 0)
    scan->ended = true;
  char *end = scan->window + n_left + got;
  memset(end, 0, SLACK);
  scan->end = end;
  scan->safe = scan->ended ? end : end - (n_left + got < SLACK ? n_left + got : SLACK);
  return status;
}

hec_status hec_scan_look_ahead(hec_scan *scan) {
  while (!scan->ended && scan->end - scan->at < SLACK)
    HEC_TRY(fill(scan));
  return HEC_OK;
}

hec_status hec_scan_begin(hec_scan *scan, hec_source *source) {
  *scan = (hec_scan){.source = source, .line = 1};
  scan->window = hec_malloc(WINDOW_BYTES + SLACK, 1);
  scan->at = scan->end = scan->window;
  HEC_TRY(hec_scan_look_ahead(scan));
  if (scan->end - scan->at >= 3 && memcmp(scan->at, "\xef\xbb\xbf", 3) == 0)
    scan->at += 3; /* byte order mark */
  return HEC_OK;
}

hec_status hec_scan_rewind(hec_scan *scan) {
  HEC_TRY(scan->source->rewind(scan->source));
  char *window = scan->window;
  *scan = (hec_scan){.source = scan->source, .window = window, .at = window, .end = window, .line = 1};
  HEC_TRY(hec_scan_look_ahead(scan));
  if (scan->end - scan->at >= 3 && memcmp(scan->at, "\xef\xbb\xbf", 3) == 0)
    scan->at += 3;
  return HEC_OK;
}

void hec_scan_end(hec_scan *scan) {
  free(scan->window);
  if (scan->source)
    scan->source->close(scan->source);
}

/* ---- messages ---- */

static void describe_found(const hec_scan *scan, char found[FOUND_BYTES]) {
  unsigned char byte = (unsigned char)*scan->at;
  size_t n_left = (size_t)(scan->end - scan->at), n = 0;
  if (n_left == 0) {
    (void)snprintf(found, FOUND_BYTES, "end of file");
  } else if (byte == '\n' || byte == '\r') {
    (void)snprintf(found, FOUND_BYTES, "end of line");
  } else if (byte < 0x20 || byte >= 0x7f) {
    (void)snprintf(found, FOUND_BYTES, "byte 0x%02x", byte);
  } else if (strchr("{}[],:", byte)) {
    (void)snprintf(found, FOUND_BYTES, "'%c'", byte);
  } else {
    bool quoted = byte == '"';
    for (n = quoted ? 1 : 0; n < n_left && n < 32; n++) {
      unsigned char c = (unsigned char)scan->at[n];
      if (c < 0x20 || c >= 0x7f || (quoted ? c == '"' : strchr("{}[],:\" ", c) != NULL))
        break;
    }
    if (quoted && n < n_left && scan->at[n] == '"')
      n++;
    (void)snprintf(found, FOUND_BYTES, "%.*s%s", (int)n, scan->at, n >= 32 ? "..." : "");
  }
}

hec_status hec_scan_fail(hec_scan *scan, const char *found, const char *expected, ...) {
  HEC_TRY(hec_scan_look_ahead(scan));
  char described[FOUND_BYTES], wanted[256], path[192];
  if (!found) {
    describe_found(scan, described);
    found = described;
  }
  va_list arguments;
  va_start(arguments, expected);
  (void)vsnprintf(wanted, sizeof wanted, expected, arguments);
  va_end(arguments);
  int n = snprintf(path, sizeof path, "%s%s", scan->prefix, scan->key);
  for (int i = 0; i < scan->n_indices; i++)
    n += snprintf(path + n, sizeof path - (size_t)n, "[%" PRId64 "]", scan->index[i]);
  return hec_fail(HEC_BAD_INPUT, "%s:%" PRId64 ": %s%sexpected %s, found %s", scan->source->origin, scan->line, path,
                  n > 0 ? ": " : "", wanted, found);
}

/* ---- structure ---- */

hec_status hec_scan_peek(hec_scan *scan, int *byte) {
  for (;;) {
    char c = *scan->at;
    if (c == ' ' || c == '\t' || c == '\r') {
      scan->at++;
    } else if (c == '\n' && !scan->one_line) {
      scan->line++;
      scan->at++;
    } else if (c == 0 && scan->at == scan->end && !scan->ended) {
      HEC_TRY(fill(scan));
    } else {
      *byte = (unsigned char)c;
      return HEC_OK;
    }
  }
}

hec_status hec_scan_expect(hec_scan *scan, char byte) {
  int found = 0;
  HEC_TRY(hec_scan_peek(scan, &found));
  if (found != byte)
    return hec_scan_fail(scan, NULL, "'%c'", byte);
  scan->at++;
  return HEC_OK;
}

hec_status hec_scan_more(hec_scan *scan, char closing, bool *first, bool *more) {
  int byte = 0;
  HEC_TRY(hec_scan_peek(scan, &byte));
  *more = byte != closing;
  bool was_first = *first;
  *first = false;
  if (!*more || byte == ',')
    scan->at++;
  if (!*more || was_first != (byte == ','))
    return HEC_OK;
  if (was_first) { /* a comma before the first member */
    scan->at--;
    return hec_scan_fail(scan, NULL, "a value or '%c'", closing);
  }
  return hec_scan_fail(scan, NULL, "',' or '%c'", closing);
}

/* ---- texts ---- */

static hec_status add_utf8(hec_scan *scan, hec_text *text, uint32_t code) {
  char bytes[4];
  size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  if (code == 0)
    return hec_scan_fail(scan, "\\u0000", "text");
  static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (size_t i = n - 1; i > 0; i--, code >>= 6)
    bytes[i] = (char)(0x80 | (code & 0x3f));
  bytes[0] = (char)(lead[n] | code);
  hec_text_add_bytes(text, bytes, n);
  return HEC_OK;
}

static hec_status four_hex_digits(hec_scan *scan, uint32_t *value) {
  HEC_TRY(hec_scan_look_ahead(scan));
  *value = 0;
  for (int i = 0; i < 4; i++) {
    char c = *scan->at;
    uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                            : 16;
    if (digit == 16)
      return hec_scan_fail(scan, NULL, "four hexadecimal digits");
    *value = *value * 16 + digit;
    scan->at++;
  }
  return HEC_OK;
}

/* After the backslash. `text` NULL: only checked. */
static hec_status escape(hec_scan *scan, hec_text *text) {
  HEC_TRY(hec_scan_look_ahead(scan));
  static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
  char c = *scan->at;
  const char *name = c ? strchr(names, c) : NULL;
  if (name) {
    scan->at++;
    if (text)
      hec_text_add_bytes(text, &bytes[name - names], 1);
    return HEC_OK;
  }
  if (c != 'u')
    return hec_scan_fail(scan, NULL, "an escape character");
  scan->at++;
  uint32_t code = 0, low = 0;
  HEC_TRY(four_hex_digits(scan, &code));
  if (code >= 0xd800 && code < 0xe000) {
    HEC_TRY(hec_scan_look_ahead(scan));
    if (code >= 0xdc00 || scan->at[0] != '\\' || scan->at[1] != 'u')
      return hec_scan_fail(scan, NULL, "a surrogate pair");
    scan->at += 2;
    HEC_TRY(four_hex_digits(scan, &low));
    if (low < 0xdc00 || low >= 0xe000)
      return hec_scan_fail(scan, "another code point", "the second half of a surrogate pair");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  return text ? add_utf8(scan, text, code) : HEC_OK;
}

/* A text, unescaped into `text` when there is one; at most `max` bytes are kept, more is an error. */
static hec_status read_text(hec_scan *scan, hec_text *text, size_t max) {
  int byte = 0;
  HEC_TRY(hec_scan_peek(scan, &byte));
  if (byte != '"')
    return hec_scan_fail(scan, NULL, "a text");
  scan->at++;
  for (;;) {
    const char *from = scan->at, *p = from;
    while (*p != '"' && *p != '\\' && (unsigned char)*p >= 0x20)
      p++;
    scan->at = p;
    if (text)
      hec_text_add_bytes(text, from, (size_t)(p - from));
    if (text && text->length > max)
      return hec_scan_fail(scan, "a longer one", "a text of at most %zu bytes", max);
    if (*p == '"') {
      scan->at++;
      return HEC_OK;
    }
    if (*p == '\\') {
      scan->at++;
      HEC_TRY(escape(scan, text));
    } else if (p == scan->end && !scan->ended) {
      HEC_TRY(fill(scan));
    } else {
      return hec_scan_fail(scan, NULL, "the end of a text");
    }
  }
}

/* Well-formed UTF-8 (RFC 3629): what we print again must be JSON again. */
static bool is_utf8(const unsigned char *p, size_t n) {
  for (size_t i = 0; i < n;) {
    size_t length = p[i] < 0x80 ? 1 : p[i] < 0xc2 ? 0 : p[i] < 0xe0 ? 2 : p[i] < 0xf0 ? 3 : p[i] < 0xf5 ? 4 : 0;
    if (length == 0 || length > n - i)
      return false;
    for (size_t k = 1; k < length; k++)
      if ((p[i + k] & 0xc0) != 0x80)
        return false;
    if ((p[i] == 0xe0 && p[i + 1] < 0xa0) || (p[i] == 0xed && p[i + 1] >= 0xa0) || (p[i] == 0xf0 && p[i + 1] < 0x90) ||
        (p[i] == 0xf4 && p[i + 1] >= 0x90))
      return false;
    i += length;
  }
  return true;
}

hec_status hec_scan_text(hec_scan *scan, hec_text *text) {
  text->length = 0;
  hec_text_add(text, "");
  HEC_TRY(read_text(scan, text, HEC_SCAN_TEXT_MAX));
  if (!is_utf8((const unsigned char *)text->data, text->length))
    return hec_scan_fail(scan, "other bytes", "text in UTF-8");
  return HEC_OK;
}

hec_status hec_scan_long_text(hec_scan *scan, size_t max, hec_text *text) {
  text->length = 0;
  hec_text_add(text, "");
  return read_text(scan, text, max);
}

/* A short key of plain letters that lies in the window: the common one, without an allocation. */
static bool plain_key(hec_scan *scan) {
  const char *from = scan->at + 1, *p = from;
  while (p < scan->end && p - from < HEC_SCAN_KEY - 1 && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x7f &&
         *p != '"' && *p != '\\')
    p++;
  if (p >= scan->end || *p != '"')
    return false;
  memcpy(scan->key, from, (size_t)(p - from));
  scan->key[p - from] = 0;
  scan->at = p + 1;
  return true;
}

hec_status hec_scan_key(hec_scan *scan) {
  scan->n_indices = 0;
  scan->key[0] = 0;
  int byte = 0;
  HEC_TRY(hec_scan_peek(scan, &byte));
  if (byte != '"')
    return hec_scan_fail(scan, NULL, "a key in quotes");
  if (plain_key(scan))
    return hec_scan_expect(scan, ':');
  hec_text text = {0};
  hec_status status = hec_scan_text(scan, &text);
  if (status == HEC_OK)
    (void)snprintf(scan->key, sizeof scan->key, "%s", text.data);
  hec_text_free(&text);
  for (char *p = scan->key; *p; p++) /* a message stays one line of printable text */
    if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f)
      *p = '?';
  HEC_TRY(status);
  return hec_scan_expect(scan, ':');
}

/* ---- what nobody asked for ---- */

static hec_status skip_digits(hec_scan *scan) {
  bool any = false;
  for (;;) {
    if (*scan->at >= '0' && *scan->at <= '9') {
      scan->at++;
      any = true;
    } else if (scan->at == scan->end && !scan->ended) {
      HEC_TRY(fill(scan));
    } else {
      return any ? HEC_OK : hec_scan_fail(scan, NULL, "a digit");
    }
  }
}

static hec_status skip_number(hec_scan *scan) {
  HEC_TRY(hec_scan_look_ahead(scan));
  if (*scan->at == '-')
    scan->at++;
  if (*scan->at == '0')
    scan->at++;
  else
    HEC_TRY(skip_digits(scan));
  HEC_TRY(hec_scan_look_ahead(scan));
  if (*scan->at == '.') {
    scan->at++;
    HEC_TRY(skip_digits(scan));
    HEC_TRY(hec_scan_look_ahead(scan));
  }
  if (*scan->at == 'e' || *scan->at == 'E') {
    scan->at++;
    if (*scan->at == '+' || *scan->at == '-')
      scan->at++;
    HEC_TRY(skip_digits(scan));
  }
  return HEC_OK;
}

static hec_status skip_scalar(hec_scan *scan, int byte) {
  if (byte == '"')
    return read_text(scan, NULL, 0);
  if (byte == '-' || (byte >= '0' && byte <= '9'))
    return skip_number(scan);
  HEC_TRY(hec_scan_look_ahead(scan));
  static const char *const words[] = {"true", "false", "null"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t n = strlen(words[i]);
    if (strncmp(scan->at, words[i], n) == 0 && hec_scan_ends_token(scan->at[n])) {
      scan->at += n;
      return HEC_OK;
    }
  }
  return hec_scan_fail(scan, NULL, "a JSON value");
}

hec_status hec_scan_skip(hec_scan *scan) {
  char closing[HEC_SCAN_NESTING];
  bool first[HEC_SCAN_NESTING], more = true;
  int depth = 0;
  do {
    if (depth > 0) {
      HEC_TRY(hec_scan_more(scan, closing[depth - 1], &first[depth - 1], &more));
      if (!more) {
        depth--;
        continue;
      }
      if (closing[depth - 1] == '}') {
        HEC_TRY(read_text(scan, NULL, 0));
        HEC_TRY(hec_scan_expect(scan, ':'));
      }
    }
    int byte = 0;
    HEC_TRY(hec_scan_peek(scan, &byte));
    if (byte != '{' && byte != '[') {
      HEC_TRY(skip_scalar(scan, byte));
      continue;
    }
    if (depth == HEC_SCAN_NESTING)
      return hec_scan_fail(scan, "deeper nesting", "at most %d levels of nesting", HEC_SCAN_NESTING);
    scan->at++;
    first[depth] = true;
    closing[depth++] = byte == '{' ? '}' : ']';
  } while (depth > 0);
  return HEC_OK;
}

hec_status hec_scan_raw(hec_scan *scan, hec_text *text) {
  int byte = 0;
  HEC_TRY(hec_scan_peek(scan, &byte));
  text->length = 0;
  hec_text_add(text, "");
  scan->capture = text;
  scan->capture_from = scan->at;
  hec_status status = hec_scan_skip(scan);
  flush_capture(scan);
  scan->capture = NULL;
  HEC_TRY(status);
  if (text->length > HEC_SCAN_TEXT_MAX)
    return hec_scan_fail(scan, "a longer one", "a value of at most %d bytes", HEC_SCAN_TEXT_MAX);
  if (!is_utf8((const unsigned char *)text->data, text->length))
    return hec_scan_fail(scan, "other bytes", "text in UTF-8");
  return HEC_OK;
}

hec_status hec_scan_null(hec_scan *scan, bool *is_null) {
  int byte = 0;
  HEC_TRY(hec_scan_peek(scan, &byte));
  *is_null = byte == 'n';
  return *is_null ? skip_scalar(scan, byte) : HEC_OK;
}

hec_status hec_scan_count_rest(hec_scan *scan, int64_t n, int64_t *n_found) {
  bool first = n == 0, more = true;
  for (*n_found = n;; (*n_found)++) {
    HEC_TRY(hec_scan_more(scan, ']', &first, &more));
    if (!more)
      return HEC_OK;
    HEC_TRY(hec_scan_skip(scan));
  }
}
