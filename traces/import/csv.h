/* Tables as text (RFC 4180): a line of names, then lines of fields; quotes around a field, doubled inside.
 * Own code: fields are used where they were read, and messages name line and column. */
#pragma once
#include "traces/digits.h"
#include "traces/import/importer.h"

enum { HEC_CSV_FIELDS = 64, HEC_CSV_LINE_MAX = 1 << 20, HEC_CSV_NAMES = 32, HEC_CSV_RANK_MAX = (1 << 16) - 1 };

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
  int n_fields, n_columns;           /* n_columns: of the first line */
  hec_text names;                    /* of the columns, a zero byte behind each */
  bool used[HEC_CSV_FIELDS];         /* columns that are read */
  const char *wanted[HEC_CSV_NAMES]; /* [n_wanted] "a|b|c": what was looked for */
  int n_wanted;
  int kind[3]; /* columns of method, model and phase, -1: none: hec_csv_find_kinds */
} hec_csv;

/* Reads the names. To be closed in any case. The file is of an import, or (job NULL) a table by itself. */
hec_status hec_csv_open(hec_csv *csv, const hec_import_file *file) HEC_MUST_USE;
void hec_csv_close(hec_csv *csv);
/* The next line that is not blank, with as many fields as there are names. */
hec_status hec_csv_next(hec_csv *csv, bool *more) HEC_MUST_USE;
/* The column of one of these names ("layer|layer_id"; a literal), -1: none; several are an error, for which is meant? Case does
 * not matter. */
hec_status hec_csv_find(hec_csv *csv, const char *names, int *column) HEC_MUST_USE;
hec_status hec_csv_want(hec_csv *csv, const char *names, int *column) HEC_MUST_USE;
/* Adds `, but "exprt" (did you mean "expert"?)` if a column that nobody reads is near to one of `names`, else nothing.
 * Is there one? */
bool hec_csv_add_near(const hec_csv *csv, const char *names, hec_text *words);
/* qsort of lines, left alone where they are in order already, as they are as a rule. */
void hec_csv_sort(void *lines, size_t n, size_t bytes, int (*compare)(const void *, const void *));
/* A whole number, also as 7.0: what was a table of floats once writes them so. */
hec_status hec_csv_integer(const hec_csv *csv, int column, int64_t max, int64_t *value) HEC_MUST_USE;
/* Columns that say of what kind a line is: method, model_name, phase. Lines of several kinds do not go into one trace:
 * one is chosen (--method, --model, --phase). Else all lines of all files must be of one. Without a phase it is
 * `phase`, as assumed. */
hec_status hec_csv_find_kinds(hec_import_file *file, hec_csv *csv, const char *phase) HEC_MUST_USE;
/* Is the line one of those wanted? Others are counted. */
hec_status hec_csv_choose(hec_import_file *file, const hec_csv *csv, bool *take) HEC_MUST_USE;
/* Behind the last hec_csv_find: columns that nobody reads are left out, and counted. */
void hec_csv_leave_columns(hec_import_file *file, const hec_csv *csv);
const char *hec_csv_name(const hec_csv *csv, int column);
hec_status hec_csv_fail(const hec_csv *csv, int column, const char *expected) HEC_MUST_USE; /* found: the field */

/* For recognise: has the first line a column of one of these names? */
bool hec_csv_head_has(const char *head, size_t n, const char *names);
bool hec_csv_head_has_all(const char *head, size_t n, const char *const *columns); /* as hec_importer's */
