/* Tables as text (RFC 4180): a line of names, then lines of fields; quotes around a field, doubled inside. */
#ifndef HEC_TRACES_IMPORT_CSV_H
#define HEC_TRACES_IMPORT_CSV_H
#include "traces/digits.h"
#include "traces/import/importer.h"

enum { HEC_CSV_FIELDS = 64, HEC_CSV_LINE_MAX = 1 << 20 };

typedef struct {
  const hec_import_file *file;
  hec_source *source;
  char *buffer; /* [capacity + HEC_DIGITS_AHEAD] */
  size_t capacity, allocated, at, end;
  size_t zero; /* the first zero byte of the unread ones, or their end */
  bool ended;
  int64_t line; /* of the fields, 1-based */
  /* Zero-terminated, blanks around them gone, HEC_DIGITS_AHEAD bytes to be read of each; till the next line. */
  char *field[HEC_CSV_FIELDS];
  int n_fields, n_columns; /* n_columns: of the first line */
  hec_text names;          /* of the columns, a zero byte behind each */
} hec_csv;

/* Reads the names. To be closed in any case. */
hec_status hec_csv_open(hec_csv *csv, const hec_import_file *file) HEC_MUST_USE;
void hec_csv_close(hec_csv *csv);
/* The next line that is not blank, with as many fields as there are names. */
hec_status hec_csv_next(hec_csv *csv, bool *more) HEC_MUST_USE;
/* The column of one of these names ("layer|layer_id"), -1: none; several are an error, for which is meant? */
hec_status hec_csv_find(const hec_csv *csv, const char *names, int *column) HEC_MUST_USE;
hec_status hec_csv_want(const hec_csv *csv, const char *names, int *column) HEC_MUST_USE;
/* A whole number, also as 7.0: what was a table of floats once writes them so. */
hec_status hec_csv_integer(const hec_csv *csv, int column, int64_t most, int64_t *value) HEC_MUST_USE;
const char *hec_csv_name(const hec_csv *csv, int column);
hec_status hec_csv_fail(const hec_csv *csv, int column, const char *expected) HEC_MUST_USE; /* found: the field */

/* For recognise: has the first line a column of one of these names? */
bool hec_csv_head_has(const char *head, size_t n, const char *names);

#endif
