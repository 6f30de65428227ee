/* A growing text buffer and a JSON writer on it. Numbers are printed by us, since cJSON's printer loses digits.
 * Integers are printed in full, doubles with the fewest of 15, 16 or 17 significant digits that read back to the same
 * double. */
#pragma once
#include "runtime/base/scoped.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  char *data; /* zero-terminated once anything was added; NULL before */
  size_t length, capacity;
} hec_text; /* zero-initialise; free with hec_text_free */

void hec_text_add(hec_text *text, const char *string);
void hec_text_add_bytes(hec_text *text, const char *bytes, size_t n);
void hec_text_printf(hec_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Words, a blank before each, in lines of at most `columns`, of which `column` are taken; further lines begin with
 * `indent` blanks. A longer word stands alone. */
void hec_text_wrap(hec_text *text, const char *words, size_t column, int indent, size_t columns);
void hec_text_add_plain(hec_text *text, const char *string); /* made plain (hec_make_plain) */
void hec_text_add_double(hec_text *text, double value);      /* not finite: null */
/* A field of a CSV file (RFC 4180): quoted where a comma, a quote or a line end would be taken for one of ours. Spreadsheets
 * run a cell that begins with = + - @ (or a tab or carriage return before one) as a formula. Such a text gets an
 * apostrophe in front. A number, with its sign, stays as it is. */
void hec_text_add_csv(hec_text *text, const char *field);
void hec_text_free(hec_text *text);
/* Reads the decimal number that `text` begins with; *end: behind it. False: there is none, or it is out of range: too large,
 * or not zero and so small that it would be read as zero. */
bool hec_number_read(const char *text, const char **end, double *value);

/* JSON: keys and values in call order, commas and escapes by the writer. `key` is NULL inside arrays and at the top.
 * Compact by default; with `indent` > 0 objects and arrays open a line per member (numbers in an array stay on one). */
typedef struct {
  hec_text *out;
  int indent, depth;
  int rows;                 /* the depth of hec_json_rows; 0: not open */
  bool first[64], flat[64]; /* per depth: nothing written yet; only numbers and texts so far */
  char closing[64];
} hec_json_out;

hec_json_out hec_json_begin(hec_text *out, int indent);
void hec_json_object(hec_json_out *json, const char *key); /* opens */
void hec_json_array(hec_json_out *json, const char *key);  /* opens */
/* Opens an array of a compact document, not in another one, with a line for each member: a long table that line tools read. */
void hec_json_rows(hec_json_out *json, const char *key);
void hec_json_close(hec_json_out *json); /* closes the innermost; the last one adds a newline */
void hec_json_string(hec_json_out *json, const char *key, const char *value);
void hec_json_int(hec_json_out *json, const char *key, int64_t value);
void hec_json_double(hec_json_out *json, const char *key, double value);
void hec_json_double17(hec_json_out *json, const char *key, double value); /* always 17 significant digits */
void hec_json_bool(hec_json_out *json, const char *key, bool value);
void hec_json_null(hec_json_out *json, const char *key);
void hec_json_strings(hec_json_out *json, const char *key, const char *const *values, int32_t n); /* an array */
void hec_json_ints(hec_json_out *json, const char *key, const int32_t *values, int32_t n);
