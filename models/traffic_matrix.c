/* One pass: the first line says how many columns, and so how many lines. O(bytes of the text). */
#include "models/traffic_matrix.h"

#include "models/cluster.h"
#include "runtime/base/files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t FILE_BYTES_MAX = (size_t)256 << 20; /* 4096 lines of 4096 counts of 15 digits */
#define BYTES_MAX 1125899906842624.0                    /* 2^50: 4096 of them still are an int64 */
enum { TOKEN_MAX = 64 };

typedef struct {
  const char *origin, *at, *end, *line_begin;
  int32_t line; /* from 1 */
} reader;

static hec_status wrong(const reader *r, const char *expected, const char *found) {
  return hec_fail(HEC_BAD_INPUT, "%s:%d:%d: expected %s, found %s", r->origin, r->line,
                  (int)(r->at - r->line_begin) + 1, expected, found);
}

static bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

/* To the next number of the line; false at its end. */
static bool find_number(reader *r) {
  while (r->at < r->end && is_blank(*r->at))
    r->at++;
  return r->at < r->end && *r->at != '\n';
}

static hec_status read_number(reader *r, int64_t *bytes) {
  static const char expected[] = "whole bytes from 0 to 2^50";
  char token[TOKEN_MAX + 2] = "\"";
  const char *stop;
  double value;
  size_t n = 0;
  while (r->at + n < r->end && !is_blank(r->at[n]) && r->at[n] != '\n')
    n++;
  size_t kept = n < TOKEN_MAX ? n : TOKEN_MAX - 1;
  for (size_t i = 0; i < kept; i++)
    token[1 + i] = (char)(r->at[i] >= ' ' && r->at[i] < 127 ? r->at[i] : '?');
  token[1 + kept] = '\0';
  bool decimal = hec_number_read(token + 1, &stop, &value) && kept == n && *stop == '\0';
  bool fits = decimal && value >= 0 && value <= BYTES_MAX;
  token[1 + kept] = '"';
  if (!fits || (double)(int64_t)value != value)
    return wrong(r, expected, token);
  *bytes = (int64_t)value;
  r->at += n;
  return HEC_OK;
}

static void next_line(reader *r) {
  r->at += r->at < r->end;
  r->line++;
  r->line_begin = r->at;
}

/* Columns of the first line that has any; the reader stays where it is. */
static int32_t count_columns(reader r) {
  int32_t n = 0;
  for (; r.at < r.end && !find_number(&r); next_line(&r))
    ;
  for (; find_number(&r) && n <= HEC_DEVICES_MAX; n++)
    while (r.at < r.end && !is_blank(*r.at) && *r.at != '\n')
      r.at++;
  return n;
}

static hec_status read_row(reader *r, int32_t n, int64_t *row) {
  char expected[64], found[32];
  (void)snprintf(expected, sizeof expected, "%d numbers, as in the first line", n);
  for (int32_t column = 0; column < n; column++) {
    (void)snprintf(found, sizeof found, "%d", column);
    if (!find_number(r))
      return wrong(r, expected, found);
    HEC_TRY(read_number(r, &row[column]));
  }
  return find_number(r) ? wrong(r, expected, "more") : HEC_OK;
}

hec_status hec_traffic_matrix_parse(const char *text, size_t length, const char *origin, hec_arena *arena,
                                    hec_traffic_matrix *matrix) {
  reader r = {.origin = origin, .at = text, .end = text + length, .line_begin = text, .line = 1};
  int32_t n = count_columns(r), rows = 0;
  char expected[64], found[32];
  if (n == 0)
    return wrong(&r, "a square matrix of bytes", "nothing");
  if (n > HEC_DEVICES_MAX)
    return wrong(&r, "at most 4096 columns", "more");
  int64_t *bytes = HEC_NEW(arena, int64_t, (size_t)n * (size_t)n);
  (void)snprintf(expected, sizeof expected, "%d lines of %d numbers", n, n);
  for (; r.at < r.end; next_line(&r)) {
    if (!find_number(&r))
      continue;
    if (rows == n)
      return wrong(&r, expected, "another line");
    HEC_TRY(read_row(&r, n, bytes + (size_t)rows++ * (size_t)n));
  }
  (void)snprintf(found, sizeof found, "%d", rows);
  if (rows < n)
    return wrong(&r, expected, found);
  *matrix = (hec_traffic_matrix){n, bytes};
  return HEC_OK;
}

hec_status hec_traffic_matrix_read(const char *path, hec_arena *arena, hec_traffic_matrix *matrix) {
  char *text;
  size_t length;
  HEC_TRY(hec_file_read(path, "a matrix", FILE_BYTES_MAX, &text, &length));
  hec_status status = hec_traffic_matrix_parse(text, length, path, arena, matrix);
  free(text);
  return status;
}

void hec_traffic_matrix_write(const hec_traffic_matrix *matrix, hec_text *out) {
  size_t n = (size_t)matrix->n;
  for (size_t i = 0; i < n * n; i++)
    hec_text_printf(out, "%lld%c", (long long)matrix->bytes[i], (i + 1) % n == 0 ? '\n' : ' ');
}

int64_t hec_traffic_matrix_size(const hec_traffic_matrix *matrix) {
  int64_t max = 0;
  int32_t n = matrix->n;
  for (int32_t r = 0; r < n; r++) {
    int64_t sent = 0, received = 0;
    for (int32_t other = 0; other < n; other++) {
      sent += matrix->bytes[(size_t)r * (size_t)n + (size_t)other];
      received += matrix->bytes[(size_t)other * (size_t)n + (size_t)r];
    }
    max = sent > max ? sent : max;
    max = received > max ? received : max;
  }
  return max;
}

hec_traffic_rate hec_traffic_rates(int64_t size_bytes, int32_t n, double seconds) {
  double algbw = seconds > 0 ? (double)size_bytes / seconds : NAN;
  return (hec_traffic_rate){algbw, algbw * (double)(n - 1) / (double)n};
}

const char *hec_traffic_gb_s(double rate, char out[32]) {
  (void)snprintf(out, 32, isnan(rate) ? "-" : "%.4g", 1e-9 * rate);
  return out;
}
