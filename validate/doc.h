/* A report, said once: its paragraphs, tables, lists and members as data, in the order of the page. Whoever reports hands them to
 * a hec_doc; which form that writes, the report does not know. JSON is for programs, the other forms are for people.
 *
 *     void hec_rows_report(const void *of, hec_doc *doc) {
 *       hec_doc_note(doc, "# Rows");
 *       hec_doc_table(doc, "rows", "id | measured, ms");
 *       for each row:                                               {"rows": [{"id": "a",
 *         HEC_ROW(doc, HEC_SHOW("id", HEC_AS_IS, row->id),                     "measured_s": 0.0015,
 *                 HEC_SHOW("measured_s", HEC_MS, row->s),                      "bound": false}]}
 *                 HEC_KEEP("bound", row->bound));
 *       hec_doc_end(doc);                                           # Rows
 *     }
 *                                                                   | id | measured, ms |
 *     hec_doc_write(hec_rows_report, &rows, HEC_DOC_JSON, 1, &out); |---|---|
 *                                                                   | a | 1.500 |
 *
 * A value has a key, under which programs find it in full, and a form, in which people see it. Without a key it is for people
 * alone; without a form (HEC_KEEP), and outside of a table or list, it is for programs alone. */
#pragma once
#include "runtime/base/arena.h"
#include "runtime/base/value.h"
#include "validate/resample.h"

typedef enum { HEC_DOC_JSON, HEC_DOC_MARKDOWN, HEC_DOC_TEXT } hec_doc_kind; /* text: for a terminal, by plain.h */

/* For programs: null where they are no interval. */
static inline hec_value hec_value_interval(const char *key, hec_interval interval) {
  return hec_interval_known(interval) ? hec_value_pair(key, interval.low, interval.high)
                                      : hec_value_text(key, HEC_NOT, NULL);
}
/* Four members of an error, null unless `known`. */
#define HEC_KEEP_ERROR(error, known)                                                                                   \
  HEC_KEEP("median", (known) ? (error).median : NAN), HEC_KEEP("p90", (known) ? (error).p90 : NAN),                    \
      HEC_KEEP("worst", (known) ? (error).worst : NAN), HEC_KEEP("bias", (known) ? (error).bias : NAN)

/* ---- A report ---- */

enum { HEC_DOC_DEPTH = 4 };

typedef struct {
  hec_doc_kind kind;
  const char *missing; /* what people see of a number that is not known; "-" */
  /* The writer's own: */
  hec_arena arena;
  hec_text page, row; /* for people; row: of a table, not yet ended */
  hec_json_out json;
  struct {
    bool list, muted, in_row; /* muted: not for this form */
  } open[HEC_DOC_DEPTH];      /* tables and lists, the outermost first: the document */
  int depth, n_columns;       /* n_columns: whose rule is still to be written */
  unsigned numbers, column;   /* a bit for each column with numbers in the first row; the cell's */
} hec_doc;

typedef void hec_doc_report(const void *of, hec_doc *doc);
/* Writes what the report says. indent: of JSON; 0: one line. */
void hec_doc_write(hec_doc_report *report, const void *of, hec_doc_kind kind, int indent, hec_text *out);

/* For people, in Markdown: a paragraph, heading or preformatted block ("```"). */
void hec_doc_note(hec_doc *doc, const char *format, ...) __attribute__((format(printf, 2, 3)));
void hec_doc_take(hec_doc *doc, hec_text *note); /* one that was written; frees it */

/* Each is ended by hec_doc_end. A table may be in a row of another, where people do not see it. */
void hec_doc_table(hec_doc *doc, const char *key, const char *heads); /* heads "a | b"; NULL: not for people */
void hec_doc_list(hec_doc *doc, const char *key);                     /* of texts without keys */
void hec_doc_end(hec_doc *doc);
/* The next row of the table; members of the row, of the document, or of the list. */
#define HEC_ROW(doc, ...) hec_doc_row(doc), HEC_ADD(doc, __VA_ARGS__)
#define HEC_ADD(doc, ...) hec_doc_add(doc, HEC_VALUES(__VA_ARGS__), HEC_N_VALUES(__VA_ARGS__))
void hec_doc_row(hec_doc *doc);
void hec_doc_add(hec_doc *doc, const hec_value *values, int32_t n);
/* A text that lives as long as the report. */
const char *hec_doc_text(hec_doc *doc, const char *format, ...) __attribute__((format(printf, 2, 3)));
