/* A table in CSV: a header line, then one row a line. Fields are separated by commas; one in double quotes may hold commas.
 * The whole file is in memory; a row is a view of it. Errors name file, line and what was expected. */
#ifndef HEC_VALIDATE_DEVICE_TABLE_H
#define HEC_VALIDATE_DEVICE_TABLE_H
#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { HEC_TABLE_COLUMNS_MAX = 64 };

typedef struct {
  const char *name; /* the file's, without folders */
  char *text, *next;
  int32_t line; /* of `field`; the header is line 1 */
  int32_t n_columns;
  const char *column[HEC_TABLE_COLUMNS_MAX]; /* names in the header */
  const char *field[HEC_TABLE_COLUMNS_MAX];  /* of the current row */
} hec_table;

/* Reads the file (at most 256 MiB) and its header. Memory comes from the arena. */
hec_status hec_table_open(const char *path, hec_arena *arena, hec_table *csv) HEC_MUST_USE;
/* The next row; *more is false at the end. Lines without any character are passed over. */
hec_status hec_table_next(hec_table *csv, bool *more) HEC_MUST_USE;
/* Position of a column; -1: there is none. */
int32_t hec_table_column(const hec_table *csv, const char *name);

/* Fields of the current row by column name; the column must be there (a bug otherwise). */
const char *hec_table_text(const hec_table *csv, const char *column);
bool hec_table_number(const hec_table *csv, const char *column, double *value); /* finite; false: not a number */
bool hec_table_whole(const hec_table *csv, const char *column, int64_t *value); /* 0 to 2^53; false: not one */

#endif
