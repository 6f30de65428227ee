/* Options of a row. What can vary is a row of a table; behind the row's name may stand its options:
 *
 *     llep:cap=1.3,min=512          a gate, a policy: NAME, or NAME:option=value,option=value
 *     ep,llep:cap=1.3,min=512,eplb  a list: a comma goes on with the same row where "option=" follows
 *
 * A row lists its options as data (hec_option); a value goes into a field of the row's own struct. Reading depends on no
 * locale. */
#pragma once
#include "runtime/base/text.h"

/* A number that the user leaves to what uses it; and, of FSSDP's t, to the formula of its paper. */
enum { HEC_AUTO = -1, HEC_T_PAPER = -2 };

typedef enum {
  HEC_OPTION_INT,   /* whole numbers, the field is an int32_t */
  HEC_OPTION_WHOLE, /* whole numbers, the field is a double */
  HEC_OPTION_REAL,  /* the field is a double */
} hec_option_type;

typedef struct {
  const char *name; /* NULL: the end of a list */
  hec_option_type type;
  size_t at; /* offset of the field */
  double min, max;
  const char *help;    /* what it is */
  const char *source;  /* who says the default; NULL: whoever the row is from */
  const char *initial; /* the default in words; NULL: the number in the field */
  const char *word;    /* a word that is taken beside numbers; NULL: none */
  int32_t word_value;  /* what it puts into the field */
} hec_option;

enum { HEC_OPTIONS_MAX = 32 }; /* of one row: a bit each */

/* In a list of rows, where the row that begins at `text` ends: at a comma before another row, or at the end. */
const char *hec_options_end(const char *text);

/* Reads "option=value,..." into the fields of `values`; *given: bit i for options[i]. `where` and `row` begin the messages:
 * "WHERE ROW: cap: expected a number from 0.01 to 100, found "x"". On failure nothing is changed. `options` NULL: the row
 * takes none. `bytes`: the size of *values. */
hec_status hec_options_read(const char *where, const char *row, const char *text, const hec_option *options,
                            void *values, size_t bytes, uint32_t *given) HEC_MUST_USE;
/* ":cap=1.3,min=512", those that were given, in the order of the list; nothing where none was. */
void hec_options_write(const hec_option *options, const void *values, uint32_t given, hec_text *out);
/* "what it is, 0.01 to 100; default 1 (source)". */
void hec_option_explain(const hec_option *option, const void *values, hec_text *out);
