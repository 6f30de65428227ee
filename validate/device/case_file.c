/* See case_file.h. */
#include "validate/device/case_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Reads the header. Memory of texts comes from the arena. To be closed in any case. */
static hec_status open_file(const char *path, hec_arena *arena, hec_case_file *csv) {
  *csv = (hec_case_file){.input = {.path = path}, .arena = arena};
  csv->file.input = &csv->input;
  HEC_TRY(hec_csv_open(&csv->csv, &csv->file));
  for (int i = 0; i < csv->csv.n_columns; i++)
    csv->column[i] = hec_csv_name(&csv->csv, i);
  return HEC_OK;
}

int32_t hec_case_file_column(const hec_case_file *csv, const char *name) {
  for (int i = 0; i < csv->csv.n_columns; i++)
    if (strcmp(csv->column[i], name) == 0)
      return i;
  return -1;
}

static hec_status read_rows(hec_case_file *csv, const char *const *columns, const char *page, hec_case_file_row *row,
                            void *context) {
  for (; *columns; columns++)
    if (hec_case_file_column(csv, *columns) < 0)
      return hec_fail(HEC_BAD_INPUT, "%s:1: expected a column \"%s\" (the form of this table: %s)", csv->input.path,
                      *columns, page);
  for (bool more = true;;) {
    HEC_TRY(hec_csv_next(&csv->csv, &more));
    if (!more)
      return HEC_OK;
    HEC_TRY(row(csv, context));
  }
}

hec_status hec_case_file_each(const char *path, hec_arena *arena, const char *const *columns, const char *page,
                              hec_case_file_row *row, void *context) {
  hec_case_file csv;
  hec_status status = open_file(path, arena, &csv);
  if (status == HEC_OK)
    status = read_rows(&csv, columns, page, row, context);
  hec_csv_close(&csv.csv);
  return status;
}

static const char *field_of(const hec_case_file *csv, const char *column) {
  int32_t i = hec_case_file_column(csv, column);
  HEC_ASSERT(i >= 0);
  return csv->csv.field[i];
}

const char *hec_case_file_text(const hec_case_file *csv, const char *column) {
  return hec_arena_text(csv->arena, field_of(csv, column));
}

bool hec_case_file_number(const hec_case_file *csv, const char *column, double *value) {
  const char *text = field_of(csv, column);
  char *end;
  *value = strtod(text, &end);
  return end != text && *end == '\0' && isfinite(*value);
}

bool hec_case_file_whole(const hec_case_file *csv, const char *column, int64_t *value) {
  double number;
  if (!hec_case_file_number(csv, column, &number) || !(number >= 0 && number <= 9007199254740992.0))
    return false;
  *value = (int64_t)number;
  return (double)*value == number;
}
