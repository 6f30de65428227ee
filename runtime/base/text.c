/* See text.h. The nesting of the JSON writer is a small stack of "is this the first member" flags. */
#include "runtime/base/text.h"

#include "runtime/base/arena.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hec_text_add_bytes(hec_text *text, const char *bytes, size_t n) {
  HEC_RESERVE(text->data, text->capacity, text->length + n + 1);
  if (n > 0) /* bytes may be NULL otherwise */
    memcpy(text->data + text->length, bytes, n);
  text->length += n;
  text->data[text->length] = 0;
}

void hec_text_add(hec_text *text, const char *string) {
  hec_text_add_bytes(text, string, strlen(string));
}

void hec_text_wrap(hec_text *text, const char *words, size_t column, int indent, size_t columns) {
  for (const char *at = words; *at;) {
    size_t word = strcspn(at, " ");
    bool wraps = column + 1 + word > columns;
    if (wraps)
      hec_text_printf(text, "\n%*s", indent, "");
    else
      hec_text_add(text, " ");
    hec_text_add_bytes(text, at, word);
    column = (wraps ? (size_t)indent : column + 1) + word;
    at += word + (at[word] == ' ');
  }
}

void hec_text_add_plain(hec_text *text, const char *string) {
  size_t at = text->length;
  hec_text_add(text, string);
  hec_make_plain(text->data + at);
}

void hec_text_printf(hec_text *text, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int n = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  HEC_ASSERT(n >= 0);
  HEC_RESERVE(text->data, text->capacity, text->length + (size_t)n + 1);
  (void)vsnprintf(text->data + text->length, (size_t)n + 1, format, again);
  va_end(again);
  text->length += (size_t)n;
}

void hec_text_add_double(hec_text *text, double value) {
  if (!isfinite(value)) {
    hec_text_add(text, "null");
    return;
  }
  char digits[40];
  for (int precision = 15; precision <= 17; precision++) {
    (void)snprintf(digits, sizeof digits, "%.*g", precision, value);
    if (strtod(digits, NULL) == value)
      break;
  }
  hec_text_add(text, digits);
}

/* Digits with sign, point and exponent, and nothing else: strtod alone would take "inf" and blanks too. */
static bool is_number(const char *field) {
  char *end = NULL;
  if (strspn(field, "+-.0123456789eE") != strlen(field))
    return false;
  (void)strtod(field, &end);
  return end != field && *end == 0;
}

void hec_text_add_csv(hec_text *text, const char *field) {
  const char *mark = *field && strchr("=+-@\t\r", *field) && !is_number(field) ? "'" : "";
  if (!strpbrk(field, ",\"\r\n")) {
    hec_text_printf(text, "%s%s", mark, field);
    return;
  }
  hec_text_printf(text, "\"%s", mark);
  for (; *field; field++)
    hec_text_add_bytes(text, *field == '"' ? "\"\"" : field, *field == '"' ? 2 : 1);
  hec_text_add(text, "\"");
}

bool hec_number_read(const char *text, const char **end, double *value) {
  char *stop;
  *value = strtod(text, &stop);
  size_t n = (size_t)(stop - text), mantissa = strcspn(text, "eE"), zeros = strspn(text, "0.+-");
  *end = stop;
  bool decimal = n > 0 && strspn(text, "0123456789+-.eE") >= n; /* no hexadecimal, blanks, infinity */
  bool zero = zeros >= (n < mantissa ? n : mantissa);
  return decimal && isfinite(*value) && (*value != 0 || zero);
}

void hec_text_free(hec_text *text) {
  free(text->data);
  *text = (hec_text){0};
}

hec_json_out hec_json_begin(hec_text *out, int indent) {
  return (hec_json_out){.out = out, .indent = indent, .first = {true}};
}

static void new_line(hec_json_out *json) {
  hec_text_add(json->out, "\n");
  for (int i = 0; i < json->indent * json->depth; i++)
    hec_text_add(json->out, " ");
}

/* Paths may hold any bytes; JSON may not: what is no UTF-8 becomes U+FFFD. */
static void add_quoted(hec_text *out, const char *value) {
  hec_text_add(out, "\"");
  for (const char *p = value; *p; p++) {
    unsigned char c = (unsigned char)*p;
    size_t n = hec_utf8_length(p);
    if (n != 1) {
      hec_text_add_bytes(out, n == 0 ? "\xef\xbf\xbd" : p, n == 0 ? 3 : n);
      p += n == 0 ? 0 : n - 1;
      continue;
    }
    if (c == '"' || c == '\\')
      hec_text_printf(out, "\\%c", c);
    else if (c < 0x20 || c == 0x7f)
      hec_text_printf(out, "\\u%04x", c);
    else
      hec_text_add_bytes(out, p, 1);
  }
  hec_text_add(out, "\"");
}

/* Comma, line and key before a member; `simple` is a number, text or literal. */
static void begin_member(hec_json_out *json, const char *key, bool simple) {
  bool *first = &json->first[json->depth];
  if (!*first)
    hec_text_add(json->out, ",");
  if (json->rows > 0 && json->rows == json->depth)
    hec_text_add(json->out, "\n");
  if (json->indent > 0 && json->depth > 0) {
    if (key || !simple) {
      json->flat[json->depth] = false;
      new_line(json);
    } else if (!*first) {
      hec_text_add(json->out, " ");
    }
  }
  *first = false;
  if (key) {
    add_quoted(json->out, key);
    hec_text_add(json->out, json->indent > 0 ? ": " : ":");
  }
}

static void open_member(hec_json_out *json, const char *key, char opening, char closing) {
  begin_member(json, key, false);
  hec_text_add_bytes(json->out, &opening, 1);
  HEC_ASSERT(json->depth + 1 < 64);
  json->depth++;
  json->first[json->depth] = true;
  json->flat[json->depth] = true;
  json->closing[json->depth] = closing;
}

void hec_json_object(hec_json_out *json, const char *key) {
  open_member(json, key, '{', '}');
}
void hec_json_array(hec_json_out *json, const char *key) {
  open_member(json, key, '[', ']');
}

void hec_json_rows(hec_json_out *json, const char *key) {
  HEC_ASSERT(json->indent == 0 && json->rows == 0);
  hec_json_array(json, key);
  json->rows = json->depth;
}

void hec_json_close(hec_json_out *json) {
  HEC_ASSERT(json->depth > 0);
  if (json->rows == json->depth) {
    json->rows = 0;
    hec_text_add(json->out, "\n");
  }
  char closing = json->closing[json->depth];
  bool own_line = json->indent > 0 && !json->flat[json->depth];
  json->depth--;
  if (own_line)
    new_line(json);
  hec_text_add_bytes(json->out, &closing, 1);
  if (json->depth == 0)
    hec_text_add(json->out, "\n");
}

void hec_json_string(hec_json_out *json, const char *key, const char *value) {
  begin_member(json, key, true);
  add_quoted(json->out, value);
}

void hec_json_int(hec_json_out *json, const char *key, int64_t value) {
  begin_member(json, key, true);
  hec_text_printf(json->out, "%lld", (long long)value);
}

void hec_json_double(hec_json_out *json, const char *key, double value) {
  begin_member(json, key, true);
  hec_text_add_double(json->out, value);
}

void hec_json_double17(hec_json_out *json, const char *key, double value) {
  begin_member(json, key, true);
  if (isfinite(value))
    hec_text_printf(json->out, "%.17g", value);
  else
    hec_text_add(json->out, "null");
}

void hec_json_bool(hec_json_out *json, const char *key, bool value) {
  begin_member(json, key, true);
  hec_text_add(json->out, value ? "true" : "false");
}

void hec_json_null(hec_json_out *json, const char *key) {
  begin_member(json, key, true);
  hec_text_add(json->out, "null");
}

void hec_json_strings(hec_json_out *json, const char *key, const char *const *values, int32_t n) {
  hec_json_array(json, key);
  for (int32_t i = 0; i < n; i++)
    hec_json_string(json, NULL, values[i]);
  hec_json_close(json);
}

void hec_json_ints(hec_json_out *json, const char *key, const int32_t *values, int32_t n) {
  hec_json_array(json, key);
  for (int32_t i = 0; i < n; i++)
    hec_json_int(json, NULL, values[i]);
  hec_json_close(json);
}
