/* systems/hecate.json as rows, inputs and lengths, and how a row is judged. Every value is a ratio of means over
 * iterations. It is oriented so that the paper's claim reads "above 1" (or below, where the paper prints a loss). */
#include "validate/published/published.h"
#include "validate/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- judging ---- */

static const double side_tolerance = 0.001; /* nearer to 1 than this, nobody wins */

/* The side of 1 that the paper's number lies on, -1, 0 (no statement) or 1; ranges: both ends must agree. */
static int32_t paper_side(const hec_published_row *row) {
  if (row->kind == HEC_ROW_SIGN)
    return 1;
  if (row->kind == HEC_ROW_INFO)
    return 0;
  int32_t low = hec_side_of_one(row->paper.low, side_tolerance),
          high = hec_side_of_one(row->paper.high, side_tolerance);
  return low == high ? low : 0;
}

hec_verdict hec_row_verdict(const hec_published_row *row, hec_span ours) {
  int32_t side = paper_side(row);
  if (side == 0 || isnan(ours.low) || isnan(ours.high))
    return HEC_UNDEFINED;
  return hec_side_of_one(ours.low, side_tolerance) == side && hec_side_of_one(ours.high, side_tolerance) == side
             ? HEC_AGREES
             : HEC_DISAGREES;
}

static double end_distance(double ours, double paper) {
  double distance = hec_log_distance(ours, paper);
  return isnan(distance) ? log(10) : distance;
}

double hec_row_distance(const hec_published_row *row, hec_span ours) {
  if (row->kind != HEC_ROW_NUMBER)
    return NAN;
  return (end_distance(ours.low, row->paper.low) + end_distance(ours.high, row->paper.high)) / 2;
}

/* ---- reading ---- */

static hec_row_kind kind_of(const hec_scope *scope) {
  const char *kind = hec_scope_text(scope, "kind");
  return !kind ? HEC_ROW_NUMBER : strcmp(kind, "sign") == 0 ? HEC_ROW_SIGN : HEC_ROW_INFO;
}

static hec_status read_row(hec_scope *scope, void *context) {
  hec_published *p = context;
  if (p->n_rows == HEC_PUBLISHED_ROWS_MAX)
    return hec_json_error(scope->file->json, scope->open[scope->n - 1], "at most 48 rows");
  hec_published_row *row = &p->row[p->n_rows++];
  *row = (hec_published_row){.key = hec_scope_text(scope, "key"),
                             .quantity = hec_scope_text(scope, "quantity"),
                             .where = hec_scope_text(scope, "where"),
                             .kind = kind_of(scope),
                             .paper_text = hec_scope_text(scope, "paper"),
                             .inputs = hec_scope_text(scope, "depends_on"),
                             .reading = hec_scope_text(scope, "reading"),
                             .scope = *scope};
  if (!row->key || !row->quantity || !row->where || !row->paper_text || !row->inputs)
    return hec_json_error(scope->file->json, scope->open[scope->n - 1],
                          "a row with key, quantity, where, paper and depends_on");
  HEC_TRY(hec_scope_flag(scope, "long", &row->long_run));
  HEC_TRY(hec_scope_flag(scope, "followed", &row->followed));
  return row->kind == HEC_ROW_NUMBER ? hec_measure_published(scope, &row->paper) : HEC_OK;
}

/* An object of the file as a set-up over another one. */
static hec_status read_setup(const hec_published *p, const hec_json_value *object, const hec_setup *base,
                             hec_setup *setup) {
  hec_scope scope = {.file = &p->file, .quick = p->options.quick};
  if (!object || !hec_json_is_object(object))
    return hec_json_error(p->file.json, hec_json_root(p->file.json), "objects inputs, search and sets.long");
  hec_scope_push(&scope, object);
  return hec_setup_read(&scope, base, setup);
}

static hec_status read_file(hec_published *p) {
  const hec_json_value *root = hec_json_root(p->file.json);
  const hec_setup none = hec_setup_default();
  hec_scope scope = hec_scope_of(&p->file, p->options.quick);
  double kept = 1;
  HEC_TRY(read_setup(p, hec_json_get(root, "inputs"), &none, &p->plain));
  HEC_TRY(read_setup(p, hec_json_get(root, "search"), &p->plain, &p->search));
  HEC_TRY(read_setup(p, hec_scope_named(&scope, "sets", "long"), &p->plain, &p->longer));
  HEC_TRY(hec_scope_number(&scope, "kept", 1, 1e6, &kept));
  HEC_TRY(hec_scope_rows(&scope, read_row, p));
  return hec_loads_open(p->options.trace, (int32_t)kept, p->options.seed, &p->loads);
}

hec_status hec_published_open(const hec_published_options *options, hec_published **out) {
  static const hec_system hecate = {.name = "hecate"};
  hec_published *p = hec_malloc(1, sizeof *p);
  memset(p, 0, sizeof *p);
  p->options = *options;
  hec_status status = hec_system_open(&hecate, &p->file);
  if (status == HEC_OK)
    status = read_file(p);
  if (status != HEC_OK) {
    hec_published_free(p);
    p = NULL;
  }
  if (p) {
    p->recorded = hec_loads_recorded(p->loads);
    p->trace_stride = hec_loads_trace_stride(p->loads);
    hec_name_copy(p->trace_name, sizeof p->trace_name, hec_loads_trace_name(p->loads));
  }
  *out = p;
  return status;
}

void hec_published_free(hec_published *published) {
  if (!published)
    return;
  hec_loads_close(published->loads);
  hec_system_close(&published->file);
  free(published);
}
