/* Rows of a sweep and how they are written: CSV with one column per axis and value, JSON with one row per line. Values
 * in JSON are named as in hecate-sim's own JSON. Columns are rows of one table. Ratios to other rows of a group (same
 * trace, job, law and schedule) are made here from medians. So it does not matter who computed which row. Linear
 * in the rows, times the policies of a group for the ratios. */
#include "tools/front/sweep/sweep_kind.h"

#include "runtime/base/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum { AS_NUMBER, AS_BOOL, AS_PHASE, AS_RARE /* in JSON only where there is something */ } column_kind;
static column_kind kind_of(const hec_summary_value_name *column) {
  static const struct {
    const char *column;
    column_kind kind;
  } others[] = {{"phase_used", AS_PHASE},   {"synthetic", AS_BOOL},    {"fits", AS_BOOL},
                {"balanced_fits", AS_BOOL}, {"hidden_share", AS_RARE}, {"dropped_share", AS_RARE}};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (strcmp(others[i].column, column->column) == 0)
      return others[i].kind;
  return AS_NUMBER;
}

hec_sweep_rows hec_sweep_rows_new(const hec_sweep *sweep) {
  hec_sweep_rows rows = {sweep, hec_malloc((size_t)sweep->n, sizeof *rows.row)};
  for (int64_t i = 0; i < sweep->n; i++)
    rows.row[i] = NULL;
  return rows;
}

void hec_sweep_rows_free(hec_sweep_rows *rows) {
  for (int64_t i = 0; rows->row && i < rows->sweep->n; i++) {
    if (rows->row[i])
      free(rows->row[i]->why);
    free(rows->row[i]);
  }
  free(rows->row);
  *rows = (hec_sweep_rows){0};
}

/* One line, whatever a file is called. */
static void make_plain(char *text) {
  for (; *text; text++)
    *text = (unsigned char)*text < ' ' ? ' ' : *text;
}

void hec_sweep_rows_set(hec_sweep_rows *rows, int64_t index, const hec_sweep_row *from) {
  HEC_ASSERT(index >= 0 && index < rows->sweep->n);
  if (rows->row[index]) /* a journal may have a row twice; they are equal */
    return;
  hec_sweep_row *row = hec_malloc(1, sizeof *row);
  *row = *from;
  if (from->why) {
    row->why = hec_malloc(strlen(from->why) + 1, 1);
    memcpy(row->why, from->why, strlen(from->why) + 1);
    make_plain(row->why);
  }
  for (int32_t i = 0; from->why && i < HEC_SWEEP_COLUMNS_MAX; i++)
    row->value[i] = NAN;
  make_plain(row->model);
  make_plain(row->cluster);
  make_plain(row->schedule);
  rows->row[index] = row;
}

/* ---- Ratios ---- */

/* The first row of a group that ran and is the baseline; of those that rearrange experts the fastest. -1: none. */
static int64_t other_of(const hec_sweep_rows *rows, int64_t index, bool baseline) {
  const hec_sweep *s = rows->sweep;
  int64_t first = index - index % hec_sweep_policies(s), best = -1;
  for (int64_t i = first; i < first + hec_sweep_policies(s); i++) {
    const hec_policy *policy = hec_sweep_policy(s, i);
    const hec_sweep_row *row = rows->row[i];
    if (row->why || !(baseline ? policy->baseline : policy->rearranges))
      continue;
    if (best < 0 || row->value[s->kind->seconds] < rows->row[best]->value[s->kind->seconds])
      best = i;
  }
  return best;
}

int64_t hec_sweep_baseline(const hec_sweep_rows *rows, int64_t index) {
  return other_of(rows, index, true);
}

double hec_sweep_value_of(const hec_sweep_rows *rows, int64_t index, int32_t column) {
  const hec_sweep_row *row = rows->row[index];
  const hec_sweep_kind *kind = rows->sweep->kind;
  if (row->why || (column != kind->vs_ep && column != kind->vs_rearrangement))
    return row->value[column];
  int64_t other = other_of(rows, index, column == kind->vs_ep);
  return other < 0 ? NAN : rows->row[other]->value[kind->seconds] / row->value[kind->seconds];
}

const char *hec_sweep_schedule(const hec_sweep_rows *rows, int64_t index) {
  const hec_sweep *s = rows->sweep;
  const hec_schedule *schedule = NULL;
  if (!rows->row[index]->why)
    return rows->row[index]->schedule;
  if (!hec_sweep_has(s, HEC_AXIS_schedule))
    return "";
  hec_status status =
      hec_schedule_of(hec_sweep_policy(s, index), hec_sweep_at(s, index, HEC_AXIS_schedule)->text, &schedule);
  return status == HEC_OK ? schedule->name : "";
}

/* ---- CSV ---- */

static void csv_value(column_kind kind, double value, hec_text *out) {
  hec_text_add(out, ",");
  if (!isfinite(value))
    return;
  if (kind == AS_BOOL)
    hec_text_add(out, value > 0 ? "true" : "false");
  else if (kind == AS_PHASE)
    hec_text_add(out, value > 0 ? "train" : "forward");
  else
    hec_text_add_double(out, value);
}

static void csv_row(const hec_sweep_rows *rows, int64_t index, hec_text *out) {
  const hec_sweep *s = rows->sweep;
  const hec_sweep_row *row = rows->row[index];
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++)
    if (hec_sweep_has(s, a)) {
      hec_text_add_csv(out, hec_sweep_at(s, index, (hec_sweep_axis)a)->text);
      hec_text_add(out, ",");
    }
  hec_text_printf(out, "%s,", hec_sweep_schedule(rows, index));
  hec_text_add_csv(out, row->model);
  hec_text_add(out, ",");
  hec_text_add_csv(out, row->cluster);
  for (int32_t c = 0; c < s->kind->n; c++)
    csv_value(kind_of(&s->kind->columns[c]), hec_sweep_value_of(rows, index, c), out);
  hec_text_add(out, ",");
  hec_text_add_csv(out, row->why ? row->why : "");
  hec_text_add(out, "\n");
}

void hec_sweep_csv(const hec_sweep_rows *rows, hec_text *out) {
  const hec_sweep *s = rows->sweep;
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++)
    if (hec_sweep_has(s, a))
      hec_text_printf(out, "%s,", hec_sweep_axis_name(a));
  hec_text_printf(out, "%s,%s,%s", s->kind->schedule_used, s->kind->model_used, s->kind->cluster_used);
  for (int32_t c = 0; c < s->kind->n; c++)
    hec_text_printf(out, ",%s", s->kind->columns[c].column);
  hec_text_add(out, ",error\n");
  for (int64_t i = 0; i < s->n; i++)
    csv_row(rows, i, out);
}

/* ---- JSON ---- */

/* Numbers of the spec as numbers; "auto" and names as texts. */
static void json_axis(const hec_sweep *s, int64_t index, hec_sweep_axis axis, hec_json_out *json) {
  const hec_sweep_value *v = hec_sweep_at(s, index, axis);
  bool number = axis != HEC_AXIS_trace && hec_run_option_is_number(hec_sweep_option(axis));
  if (number && v->text[0] >= '0' && v->text[0] <= '9')
    hec_json_double(json, hec_sweep_axis_name(axis), v->number);
  else
    hec_json_string(json, hec_sweep_axis_name(axis), v->text);
}

static void json_value(column_kind kind, const char *key, double value, hec_json_out *json) {
  if (kind == AS_PHASE)
    hec_json_string(json, key, value > 0 ? "train" : "forward");
  else if (kind == AS_BOOL)
    hec_json_bool(json, key, value > 0);
  else
    hec_json_double(json, key, value);
}

static void json_values(const hec_sweep_rows *rows, int64_t index, hec_json_out *json) {
  const hec_sweep_kind *kind = rows->sweep->kind;
  const char *group = NULL;
  for (int32_t c = 0; c < kind->n; c++) {
    const hec_summary_value_name *column = &kind->columns[c];
    double value = hec_sweep_value_of(rows, index, c);
    if (group && (!column->group || strcmp(column->group, group) != 0))
      hec_json_close(json);
    if (column->group && (!group || strcmp(column->group, group) != 0))
      hec_json_object(json, column->group);
    group = column->group;
    if (kind_of(column) != AS_RARE || !isnan(value))
      json_value(kind_of(column), column->key, value, json);
  }
  if (group)
    hec_json_close(json);
}

static void json_row(const hec_sweep_rows *rows, int64_t index, hec_json_out *json) {
  const hec_sweep_kind *kind = rows->sweep->kind;
  hec_json_object(json, NULL);
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++)
    if (hec_sweep_has(rows->sweep, a))
      json_axis(rows->sweep, index, (hec_sweep_axis)a, json);
  hec_json_string(json, kind->schedule_used, hec_sweep_schedule(rows, index));
  if (rows->row[index]->why) {
    hec_json_string(json, "error", rows->row[index]->why);
  } else {
    HEC_JSON(json, HEC_TEXT(kind->model_used, rows->row[index]->model),
             HEC_TEXT(kind->cluster_used, rows->row[index]->cluster));
    json_values(rows, index, json);
  }
  hec_json_close(json);
}

void hec_sweep_json(const hec_sweep_rows *rows, const char *tool, hec_text *out) {
  hec_json_out json = hec_json_begin(out, 0);
  hec_json_object(&json, NULL);
  HEC_JSON(&json, HEC_INT("version", 1), HEC_TEXT("tool", tool), HEC_INT("configurations", rows->sweep->n));
  hec_json_rows(&json, "rows");
  for (int64_t i = 0; i < rows->sweep->n; i++)
    json_row(rows, i, &json);
  hec_json_close(&json);
  hec_json_close(&json);
}
