/* See table.h. Splits a line in place: separators become zeros. O(bytes). */
#include "validate/device/table.h"

#include "runtime/base/files.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_MAX = 256 << 20, CHUNK = 1 << 16 };

static hec_status read_whole(const char *path, hec_arena *arena, char **text) {
  FILE *file = hec_file_open(path, "rb");
  if (!file)
    return hec_fail(HEC_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
  char *data = NULL;
  size_t capacity = 0, length = 0, n;
  do {
    HEC_RESERVE(data, capacity, length + CHUNK);
    n = fread(data + length, 1, CHUNK, file);
    length += n;
  } while (n > 0 && length <= BYTES_MAX);
  int failed = ferror(file), error = errno;
  (void)fclose(file);
  hec_status status = HEC_OK;
  if (failed)
    status = hec_fail(HEC_FAILED, "%s: cannot be read: %s", path, strerror(error));
  else if (length > BYTES_MAX)
    status = hec_fail(HEC_BAD_INPUT, "%s: expected at most 256 MiB", path);
  else if (memchr(data, 0, length))
    status = hec_fail(HEC_BAD_INPUT, "%s: expected text, found a zero byte", path);
  if (status == HEC_OK) {
    *text = HEC_NEW(arena, char, length + 1);
    memcpy(*text, data, length);
  }
  free(data);
  return status;
}

/* Splits the line at `at` into fields; returns their number, and where the next line begins. */
static int32_t split(char *at, const char **field, char **next) {
  int32_t n = 0;
  for (;;) {
    bool quoted = *at == '"';
    char *begin = quoted ? at + 1 : at, *end = begin;
    while (*end && *end != '\n' && (quoted ? *end != '"' : *end != ','))
      end++;
    if (n < HEC_TABLE_COLUMNS_MAX)
      field[n] = begin;
    n++;
    char *after = end;
    if (quoted && *after == '"')
      after++;
    while (*after && *after != '\n' && *after != ',')
      after++;
    char stop = *after;
    *end = '\0';
    *after = '\0';
    if (!quoted && end > begin && end[-1] == '\r')
      end[-1] = '\0';
    if (stop != ',') {
      *next = stop == '\n' ? after + 1 : after;
      return n;
    }
    at = after + 1;
  }
}

hec_status hec_table_open(const char *path, hec_arena *arena, hec_table *csv) {
  const char *slash = strrchr(path, '/');
  *csv = (hec_table){.name = hec_arena_text(arena, slash ? slash + 1 : path), .line = 1};
  HEC_TRY(read_whole(path, arena, &csv->text));
  csv->n_columns = split(csv->text, csv->column, &csv->next);
  if (csv->n_columns > HEC_TABLE_COLUMNS_MAX)
    return hec_fail(HEC_BAD_INPUT, "%s:1: expected at most %d columns, found %d", csv->name, HEC_TABLE_COLUMNS_MAX,
                    (int)csv->n_columns);
  return HEC_OK;
}

hec_status hec_table_next(hec_table *csv, bool *more) {
  while (*csv->next == '\n' || (*csv->next == '\r' && csv->next[1] == '\n')) {
    csv->next += *csv->next == '\r' ? 2 : 1;
    csv->line++;
  }
  *more = *csv->next != '\0';
  if (!*more)
    return HEC_OK;
  csv->line++;
  int32_t n = split(csv->next, csv->field, &csv->next);
  if (n == csv->n_columns)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "%s:%d: expected %d fields as in the header, found %d", csv->name, (int)csv->line,
                  (int)csv->n_columns, (int)n);
}

int32_t hec_table_column(const hec_table *csv, const char *name) {
  for (int32_t i = 0; i < csv->n_columns; i++)
    if (strcmp(csv->column[i], name) == 0)
      return i;
  return -1;
}

const char *hec_table_text(const hec_table *csv, const char *column) {
  int32_t i = hec_table_column(csv, column);
  HEC_ASSERT(i >= 0);
  return csv->field[i];
}

bool hec_table_number(const hec_table *csv, const char *column, double *value) {
  const char *text = hec_table_text(csv, column);
  char *end;
  *value = strtod(text, &end);
  return end != text && *end == '\0' && isfinite(*value);
}

bool hec_table_whole(const hec_table *csv, const char *column, int64_t *value) {
  double number;
  if (!hec_table_number(csv, column, &number) || !(number >= 0 && number <= 9007199254740992.0))
    return false;
  *value = (int64_t)number;
  return (double)*value == number;
}
