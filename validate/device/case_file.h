/* A table of cases in CSV, read by the reader of traces (traces/import/csv.h): a header line, then one row a line. Errors name
 * file, line and what was expected. */
#pragma once
#include "runtime/base/arena.h"
#include "traces/import/csv.h"

typedef struct {
  hec_csv csv;
  hec_import_file file;
  hec_import_input input;
  hec_arena *arena;
  const char *column[HEC_CSV_FIELDS]; /* names in the header */
} hec_case_file;                      /* must not move */

/* Position of a column; -1: there is none. */
int32_t hec_case_file_column(const hec_case_file *csv, const char *name);

/* Opens the table, wants these columns (ends with NULL; `page`: that has the form of the table), and hands over row by row. */
typedef hec_status hec_case_file_row(const hec_case_file *csv, void *context);
hec_status hec_case_file_each(const char *path, hec_arena *arena, const char *const *columns, const char *page,
                              hec_case_file_row *row, void *context) HEC_MUST_USE;

/* Fields of the current row by column name; the column must be there (a bug otherwise). */
const char *hec_case_file_text(const hec_case_file *csv, const char *column);
bool hec_case_file_number(const hec_case_file *csv, const char *column,
                          double *value); /* finite; false: not a number */
bool hec_case_file_whole(const hec_case_file *csv, const char *column, int64_t *value); /* 0 to 2^53; false: not one */
