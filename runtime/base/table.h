/* Tables of named rows. Whatever can vary (policies, schedules, laws, gates, backends, formats) is such a table. It is
 * an array of pointers to rows that ends with NULL, where the first member of a row is its name. This is the one place
 * that looks a name up and that answers a name which is in no row. */
#pragma once
#include "runtime/base/text.h"

/* A table as messages speak of it. */
typedef struct {
  const void *rows;                 /* the array: [n + 1] pointers, the last one NULL */
  bool (*offered)(const void *row); /* whether a user may name the row; NULL: any */
  const char *also;                 /* a further word that is taken beside the rows, like "all"; NULL: none */
  const char *list;                 /* the command that lists the rows; NULL: the message lists all */
} hec_table;

/* Beside a table's look-up: the rows are of the form above. */
#define HEC_TABLE_OF(type) _Static_assert(offsetof(type, name) == 0, "the first member of a row is its name")

/* The row of that name; NULL: there is none. */
const void *hec_table_find(const void *rows, const char *name);
/* The names of the rows, separated by ", "; the further word first. */
void hec_table_names(const hec_table *table, hec_text *names);

/* What to expect where a name was not found, for the place of X in "expected X, found NAME". Up to HEC_TABLE_LISTED names
 * are all told, of a longer table the command that lists them; and the nearest name. */
enum { HEC_TABLE_LISTED = 6 };
void hec_table_expect(const hec_table *table, const char *name, hec_text *expected);
/* HEC_BAD_INPUT: "WHERE: expected ..., found "NAME"". */
hec_status hec_table_unknown(const hec_table *table, const char *where, const char *name) HEC_MUST_USE;

/* Words that have no rows, as one text: "train forward". Which of them `word` is; else the error as above. */
hec_status hec_word_of(const char *words, const char *where, const char *word, int32_t *which) HEC_MUST_USE;
