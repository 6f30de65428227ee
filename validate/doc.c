/* Written as it is said; what is not for the form is passed over. Between two parts of a page is a blank line. A row of a table
 * is kept until it ends: the first one says where numbers are, which text has to the right. */
#include "validate/doc.h"

#include "validate/plain.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool for_programs(const hec_doc *doc) {
  return doc->kind == HEC_DOC_JSON;
}

void hec_doc_write(hec_doc_report *report, const void *of, hec_doc_kind kind, int indent, hec_text *out) {
  hec_doc doc = {.kind = kind, .missing = "-", .json = hec_json_begin(out, indent)};
  if (for_programs(&doc))
    hec_json_object(&doc.json, NULL);
  report(of, &doc);
  HEC_ASSERT(doc.depth == 0);
  const char *page = doc.page.data ? doc.page.data : "";
  if (for_programs(&doc))
    hec_json_close(&doc.json);
  else if (kind == HEC_DOC_TEXT)
    hec_plain_add(out, page);
  else
    hec_text_add(out, page);
  hec_text_free(&doc.page);
  hec_arena_free(&doc.arena);
}

/* ---- Parts ---- */

static void begin_part(hec_doc *doc) {
  if (doc->page.length > 0)
    hec_text_add(&doc->page, "\n");
}

void hec_doc_take(hec_doc *doc, hec_text *note) {
  while (note->length > 0 && note->data[note->length - 1] == '\n')
    note->length--;
  if (note->length > 0 && !for_programs(doc)) {
    begin_part(doc);
    hec_text_add_bytes(&doc->page, note->data, note->length);
    hec_text_add(&doc->page, "\n");
  }
  hec_text_free(note);
}

const char *hec_doc_text(hec_doc *doc, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const char *text = hec_arena_vprintf(&doc->arena, format, arguments);
  va_end(arguments);
  return text;
}

void hec_doc_note(hec_doc *doc, const char *format, ...) {
  va_list arguments;
  hec_text note = {0};
  va_start(arguments, format);
  hec_text_add(&note, hec_arena_vprintf(&doc->arena, format, arguments));
  va_end(arguments);
  hec_doc_take(doc, &note);
}

/* Whether that which opens is for this form. */
static bool enter(hec_doc *doc, bool list, bool there) {
  bool muted = doc->open[doc->depth].muted || !there;
  doc->depth++;
  HEC_ASSERT(doc->depth < HEC_DOC_DEPTH);
  doc->open[doc->depth].list = list;
  doc->open[doc->depth].muted = muted;
  doc->open[doc->depth].in_row = false;
  return !muted;
}

void hec_doc_table(hec_doc *doc, const char *key, const char *heads) {
  bool seen = heads && doc->depth == 0;
  if (!enter(doc, false, for_programs(doc) ? key != NULL : seen))
    return;
  if (for_programs(doc)) {
    hec_json_array(&doc->json, key);
    return;
  }
  begin_part(doc);
  hec_text_printf(&doc->page, "| %s |\n", heads);
  doc->numbers = 0;
  doc->n_columns = 1;
  for (; (heads = strchr(heads, '|')) != NULL; heads++)
    doc->n_columns++;
}

void hec_doc_list(hec_doc *doc, const char *key) {
  if (!enter(doc, true, !for_programs(doc) || key))
    return;
  if (for_programs(doc))
    hec_json_array(&doc->json, key);
  else
    begin_part(doc);
}

static void add_rule(hec_doc *doc) {
  for (int i = 0; i < doc->n_columns; i++)
    hec_text_printf(&doc->page, "%s---%s|", i == 0 ? "|" : "",
                    doc->kind == HEC_DOC_TEXT && (doc->numbers >> i & 1) ? ":" : "");
  hec_text_add(&doc->page, doc->n_columns > 0 ? "\n" : "");
  doc->n_columns = 0;
}

static void end_row(hec_doc *doc) {
  bool in_row = doc->open[doc->depth].in_row;
  doc->open[doc->depth].in_row = false;
  if (in_row && for_programs(doc))
    hec_json_close(&doc->json);
  if (!in_row || for_programs(doc))
    return;
  add_rule(doc);
  hec_text_printf(&doc->page, "|%s\n", doc->row.data ? doc->row.data : "");
  hec_text_free(&doc->row);
}

void hec_doc_row(hec_doc *doc) {
  if (doc->open[doc->depth].muted)
    return;
  end_row(doc);
  doc->open[doc->depth].in_row = true;
  doc->column = 0;
  if (for_programs(doc))
    hec_json_object(&doc->json, NULL);
}

void hec_doc_end(hec_doc *doc) {
  HEC_ASSERT(doc->depth > 0);
  bool muted = doc->open[doc->depth].muted;
  if (!muted)
    end_row(doc);
  if (!muted && for_programs(doc))
    hec_json_close(&doc->json);
  else if (!muted)
    add_rule(doc); /* of a table without rows */
  doc->depth--;
}

/* ---- Values ---- */

static void write_real(const hec_doc *doc, hec_value_form form, double value, char *text, size_t size) {
  if (!isfinite(value))
    (void)snprintf(text, size, "%s", doc->missing);
  else if (form == HEC_SECONDS)
    (void)snprintf(text, size, "%.4g %s",
                   value * (value >= 1      ? 1
                            : value >= 1e-3 ? 1e3
                                            : 1e6),
                   value >= 1      ? "s"
                   : value >= 1e-3 ? "ms"
                                   : "us");
  else if (form == HEC_PERCENT)
    (void)snprintf(text, size, "%.1f %%", 100 * value);
  else if (form == HEC_SIGNED || form == HEC_SIGNED2)
    (void)snprintf(text, size, "%+.*f %%", form == HEC_SIGNED ? 1 : 2, 100 * value);
  else
    (void)snprintf(text, size, "%.*f",
                   form == HEC_MS1      ? 1
                   : form == HEC_FIXED2 ? 2
                                        : 3,
                   form == HEC_MS || form == HEC_MS1 ? 1e3 * value : value);
}

static void add_cell(hec_doc *doc, const hec_value *v) {
  char number[400];
  const char *text = v->kind == HEC_VALUE_TEXT ? v->text : number;
  if (v->kind == HEC_VALUE_INT)
    (void)snprintf(number, sizeof number, "%lld", (long long)v->whole);
  else if (v->kind != HEC_VALUE_TEXT)
    write_real(doc, v->form, v->real[0], number, sizeof number);
  hec_text_add(&doc->row, text ? " " : "");
  size_t at = doc->row.length;
  hec_text_add_plain(&doc->row, text ? text : "");
  for (char *bar = doc->row.data + at; (bar = strchr(bar, '|')) != NULL;)
    *bar = '/'; /* it would end the cell */
  hec_text_add(&doc->row, " |");
  if (doc->n_columns > 0) /* the first row */
    doc->numbers |= (unsigned)(v->kind != HEC_VALUE_TEXT) << doc->column++;
}

static void add_item(hec_doc *doc, const char *text) {
  hec_text_add(&doc->page, "- ");
  hec_text_add_plain(&doc->page, text);
  hec_text_add(&doc->page, "\n");
}

void hec_doc_add(hec_doc *doc, const hec_value *values, int32_t n) {
  bool list = doc->open[doc->depth].list;
  for (const hec_value *v = values; v < values + n && !doc->open[doc->depth].muted; v++)
    if (for_programs(doc) && (v->key || list))
      hec_json_add(&doc->json, v, 1);
    else if (!for_programs(doc) && list)
      add_item(doc, v->text);
    else if (!for_programs(doc) && doc->depth > 0 && v->form != HEC_NOT)
      add_cell(doc, v);
}
