/* The spec of a sweep: an object whose members are axes, one value or an array of them each. Keys are hecate-sim's
 * options with _ for -; "trace" has paths and synthetic traces:
 *
 *   {"trace": ["loads.jsonl.gz", {"synth": {"workload": "lognormal", "top_k": [1, 2, 4], "iterations": 20}}],
 *    "policy": "all", "cluster": ["p4d-4x8", "4x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G"],
 *    "tokens": [1024, 4096], "law": ["alpha_beta", "max_min"], "m": ["auto", 0, 2]}
 *
 * Paths are relative to the folder of the spec. Members of "synth" are options of hecate-trace synth (all but --drift and
 * --out); arrays there multiply, too. An axis that is left out has the one value "auto": what hecate-sim takes without the
 * option. So do policy (all), law (alpha_beta), slow and skew ("": none, which may be one of several values). Unknown keys, unknown names, a value twice, an empty array: errors that name file, line and field.
 * A spec with a layout or a set-up is of training steps: a key that means nothing there is an error, too.
 * Linear in the spec and in the product of the synthetic traces; values of one axis are compared pairwise. */
#include "tools/front/sweep/sweep_kind.h"

#include "models/preset_data.h"
#include "runtime/base/files.h"
#include "runtime/base/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Values ---- */

/* The first of one value or of the elements of an array, and how many. */
static hec_status values_of(const hec_json *json, const hec_json_value *v, const hec_json_value **first, int32_t *n) {
  *first = v;
  *n = 1;
  if (!hec_json_is_array(v))
    return HEC_OK;
  *n = hec_json_length(v);
  *first = hec_json_first(v);
  return *n > 0 ? HEC_OK : hec_json_error(json, v, "at least one value");
}

static hec_status add_value(hec_sweep *s, hec_sweep_axis axis, const char *text, double number,
                            const hec_json_value *at) {
  if (s->axis[axis].n == HEC_SWEEP_VALUES_MAX)
    return hec_json_error(s->json, at, "at most 16384 values of an axis");
  for (int32_t i = 0; i < s->axis[axis].n; i++)
    if (strcmp(s->axis[axis].value[i].text, text) == 0)
      return hec_json_error(s->json, at, "every value of an axis once");
  int32_t n = s->axis[axis].n, capacity = s->axis[axis].capacity;
  if (n == capacity) { /* doubles on the arena: what is left behind is as much as what is kept */
    capacity = capacity ? 2 * capacity : 8;
    hec_sweep_value *grown = HEC_NEW(&s->arena, hec_sweep_value, capacity);
    if (n > 0)
      memcpy(grown, s->axis[axis].value, (size_t)n * sizeof *grown);
    s->axis[axis].value = grown;
    s->axis[axis].capacity = capacity;
  }
  s->axis[axis].value[n] = (hec_sweep_value){.text = hec_arena_text(&s->arena, text), .number = number, .at = at};
  s->axis[axis].n++;
  return HEC_OK;
}

/* Whether v is an integer (or, unless whole, a number) from least to most; texts and messages never round it. */
static bool is_number(const hec_json_value *v, bool whole, double min, double max) {
  if (!hec_json_is_number(v))
    return false;
  double x = hec_json_number(v);
  return x >= min && x <= max && (!whole || x == floor(x));
}

static hec_status number_error(const hec_sweep *s, const hec_json_value *v, hec_sweep_axis axis) {
  char expected[128];
  (void)snprintf(expected, sizeof expected, "%s from %.10g to %.10g%s or \"auto\"",
                 hec_sweep_option(axis)->kind == HEC_RUN_REAL ? "a number" : "a whole number",
                 hec_sweep_option(axis)->min, hec_sweep_option(axis)->max,
                 hec_sweep_option(axis)->kind == HEC_RUN_PAPER ? ", \"paper\"" : "");
  return hec_json_error(s->json, v, expected);
}

static hec_status add_number(hec_sweep *s, hec_sweep_axis axis, const hec_json_value *v) {
  if (hec_sweep_option(axis)->kind == HEC_RUN_PAPER && hec_json_is_string(v) && strcmp(hec_json_text(v), "paper") == 0)
    return add_value(s, axis, "paper", HEC_T_PAPER, v);
  if (!is_number(v, hec_sweep_option(axis)->kind != HEC_RUN_REAL, hec_sweep_option(axis)->min,
                 hec_sweep_option(axis)->max))
    return number_error(s, v, axis);
  HEC_SCOPED(hec_text) text = {0};
  hec_text_add_double(&text, hec_json_number(v));
  return add_value(s, axis, text.data, hec_json_number(v), v);
}

static hec_status add_policy(hec_sweep *s, const hec_policy *policy, const hec_json_value *at) {
  HEC_TRY(add_value(s, HEC_AXIS_policy, policy->name, 0, at));
  s->axis[HEC_AXIS_policy].value[s->axis[HEC_AXIS_policy].n - 1].policy = policy;
  return HEC_OK;
}

static hec_status add_all_policies(hec_sweep *s, const hec_json_value *at) {
  for (int32_t i = 0; hec_policies[i]; i++)
    if (s->kind->takes(hec_policies[i]))
      HEC_TRY(add_policy(s, hec_policies[i], at));
  return HEC_OK;
}

/* A policy, with options or not. */
static hec_status read_policy(hec_sweep *s, const hec_json_value *v) {
  const hec_policy *policy;
  HEC_SCOPED(hec_text) where = {0};
  hec_json_where(s->json, v, &where);
  hec_status status = hec_policy_read(hec_json_text(v), hec_sweep_option(HEC_AXIS_policy)->values->table, where.data,
                                      &s->arena, &policy);
  if (status == HEC_OK && !s->kind->takes(policy))
    return hec_json_error(s->json, v, "a policy that runs; balanced routing stands beside every row");
  return status == HEC_OK ? add_policy(s, policy, v) : status;
}

static hec_status add_row(hec_sweep *s, hec_sweep_axis axis, const hec_json_value *v) {
  const char *name = hec_json_is_string(v) ? hec_json_text(v) : "";
  if (axis == HEC_AXIS_policy && *name)
    return strcmp(name, "all") == 0 ? add_all_policies(s, v) : read_policy(s, v);
  hec_table rows = *hec_sweep_option(axis)->values->table;
  if (axis == HEC_AXIS_collective)
    rows.also = HEC_SWEEP_AUTO;
  if (axis == HEC_AXIS_schedule)
    rows.also = HEC_SWEEP_AUTO ", best, published";
  if (axis == HEC_AXIS_schedule && (strcmp(name, "best") == 0 || strcmp(name, "published") == 0))
    return add_value(s, axis, name, 0, v);
  const void *row = hec_table_find(rows.rows, name);
  if (row && (!rows.offered || rows.offered(row)))
    return add_value(s, axis, name, 0, v);
  HEC_SCOPED(hec_text) expected = {0};
  hec_table_expect(&rows, name, &expected);
  return hec_json_error(s->json, v, expected.data);
}

/* The value added last names a file beside the spec. */
static void set_path(hec_sweep *s, hec_sweep_axis axis) {
  hec_sweep_value *value = &s->axis[axis].value[s->axis[axis].n - 1];
  HEC_SCOPED(hec_text) path = {0};
  hec_file_beside(s->origin, value->text, &path);
  value->path = hec_arena_text(&s->arena, path.data);
}

static bool names_file(hec_sweep_axis axis, const char *text) {
  for (int32_t i = 0; i < HEC_N_SWEEP_OF_FILES; i++)
    if (axis == hec_sweep_of_files[i])
      return !hec_preset_find(hec_sweep_option(axis)->values->presets, text) &&
             !(axis == HEC_AXIS_cluster && hec_cluster_is_line(text));
  return false;
}

/* The cluster added last may be a line that names a device file beside the spec. */
static hec_status set_line(hec_sweep *s) {
  hec_sweep_value *value = &s->axis[HEC_AXIS_cluster].value[s->axis[HEC_AXIS_cluster].n - 1];
  HEC_SCOPED(hec_text) name = {0}, path = {0}, moved = {0};
  if (!hec_cluster_is_line(value->text) || !hec_cluster_line_file(value->text, &name))
    return HEC_OK;
  hec_file_beside(s->origin, name.data, &path);
  HEC_TRY(hec_cluster_line_move(value->text, path.data, &moved));
  value->line = hec_arena_text(&s->arena, moved.data);
  return HEC_OK;
}

static bool may_be_none(hec_sweep_axis axis) {
  return axis != HEC_AXIS_trace && hec_sweep_option(axis)->kind == HEC_RUN_MAYBE;
}

static hec_status add_text(hec_sweep *s, hec_sweep_axis axis, const hec_json_value *v) {
  bool none = may_be_none(axis) && hec_json_is_string(v);
  const char *text = hec_json_is_string(v) ? hec_json_text(v) : "";
  hec_attention kind;
  hec_s2 s2;
  const char *expected = text[0] == 0 && !none ? "a text" : NULL;
  if (!expected && axis == HEC_AXIS_phase && strcmp(text, "train") != 0 && strcmp(text, "forward") != 0)
    expected = "train, forward or auto";
  if (!expected && axis == HEC_AXIS_head_gradients && strcmp(text, "beside") != 0 && strcmp(text, "after") != 0)
    expected = "beside, after or auto";
  if (!expected && axis == HEC_AXIS_attention)
    expected = hec_attention_read(text, &kind, &s2);
  if (expected)
    return hec_json_error(s->json, v, expected);
  HEC_TRY(add_value(s, axis, text, 0, v));
  if (names_file(axis, text))
    set_path(s, axis);
  return axis == HEC_AXIS_cluster ? set_line(s) : HEC_OK;
}

/* ---- Traces ---- */

static hec_status add_trace(hec_sweep *s, const char *label, const hec_synth_options *made, const hec_json_value *at) {
  int32_t n = s->axis[HEC_AXIS_trace].n;
  if (n == HEC_SWEEP_TRACES_MAX)
    return hec_json_error(s->json, at, "at most 4096 traces");
  HEC_TRY(add_value(s, HEC_AXIS_trace, label, 0, at));
  if (n == s->trace_capacity) {
    s->trace_capacity = n ? 2 * n : 8;
    hec_sweep_trace *grown = HEC_NEW(&s->arena, hec_sweep_trace, s->trace_capacity);
    if (n > 0)
      memcpy(grown, s->traces, (size_t)n * sizeof *grown);
    s->traces = grown;
  }
  s->traces[n] = (hec_sweep_trace){.made = made != NULL};
  if (made)
    s->traces[n].synth = *made;
  else
    set_path(s, HEC_AXIS_trace);
  return HEC_OK;
}

/* Sets one option of the generator and writes it to the label. */
static hec_status set_synth(const hec_sweep *s, const char *key, const hec_json_value *v, hec_synth_options *o,
                            hec_text *label) {
  const hec_run_option *option = hec_synth_rows;
  while (strcmp(option->key, key) != 0)
    option++;
  void *to = hec_run_option_in(option, o);
  hec_text_printf(label, " %s=", key);
  if (option->kind == HEC_RUN_TEXT) {
    if (!hec_json_is_string(v))
      return hec_json_error(s->json, v, "a text");
    *(const char **)to = hec_json_text(v);
    hec_text_add(label, hec_json_text(v));
    return HEC_OK;
  }
  bool whole = option->kind != HEC_RUN_REAL;
  double max = whole ? option->max : HEC_LONG_MAX;
  if (!is_number(v, whole, whole ? 0 : -max, max))
    return hec_json_error(s->json, v, whole ? "a whole number that hecate-trace synth takes" : "a number");
  double x = hec_json_number(v);
  if (option->kind == HEC_RUN_WHOLE)
    *(int32_t *)to = (int32_t)x;
  else if (option->kind == HEC_RUN_LONG)
    *(int64_t *)to = (int64_t)x;
  else
    *(double *)to = x;
  hec_text_add_double(label, x);
  return HEC_OK;
}

/* The product of the members from `member` on: at most HEC_N_SYNTH_ROWS deep. */
static hec_status expand(hec_sweep *s, const hec_json_value *whole, const hec_json_value *member, hec_synth_options o,
                         const char *label) {
  if (!member) {
    if (hec_synth_check(&o) == HEC_OK)
      return add_trace(s, label, &o, whole);
    char why[700];
    (void)snprintf(why, sizeof why, "options that hecate-trace synth takes (%.600s)", hec_last_error());
    return hec_json_error(s->json, whole, why);
  }
  const char *key = hec_json_key(member);
  const hec_json_value *v;
  int32_t n;
  if (strcmp(key, "notes") == 0 || strcmp(key, "sources") == 0)
    return expand(s, whole, hec_json_next(member), o, label);
  HEC_TRY(values_of(s->json, member, &v, &n));
  hec_status status = HEC_OK;
  for (; status == HEC_OK && n > 0; n--, v = hec_json_next(v)) {
    hec_synth_options one = o;
    HEC_SCOPED(hec_text) longer = {0};
    hec_text_add(&longer, label);
    status = set_synth(s, key, v, &one, &longer);
    if (status == HEC_OK)
      status = expand(s, whole, hec_json_next(member), one, longer.data);
  }
  return status;
}

static hec_status add_traces(hec_sweep *s, const hec_json_value *v) {
  static const char *const only_synth[] = {"synth", NULL};
  if (hec_json_is_string(v)) {
    bool standard = strcmp(hec_json_text(v), "-") == 0 || hec_json_text(v)[0] == 0;
    return standard ? hec_json_error(s->json, v, "a trace file") : add_trace(s, hec_json_text(v), NULL, v);
  }
  if (!hec_json_is_object(v))
    return hec_json_error(s->json, v, "a trace file or an object with \"synth\"");
  HEC_TRY(hec_json_only(s->json, v, only_synth));
  const hec_json_value *synth = hec_json_get(v, "synth");
  if (!synth)
    return hec_json_error(s->json, v, "a member \"synth\"");
  const char *known[HEC_N_SYNTH_ROWS + 1] = {NULL};
  for (int k = 0; k < HEC_N_SYNTH_ROWS; k++)
    known[k] = hec_synth_rows[k].key;
  HEC_TRY(hec_json_only(s->json, synth, known));
  return expand(s, synth, hec_json_first(synth), hec_synth_defaults(), "synthetic");
}

/* ---- The whole ---- */

static hec_status add_one(hec_sweep *s, hec_sweep_axis axis, const hec_json_value *v) {
  bool is_auto = hec_json_is_string(v) && strcmp(hec_json_text(v), HEC_SWEEP_AUTO) == 0;
  if (axis == HEC_AXIS_trace)
    return add_traces(s, v);
  if (is_auto && may_be_none(axis))
    return add_value(s, axis, "", 0, v);
  if (is_auto && axis != HEC_AXIS_policy && axis != HEC_AXIS_law)
    return add_value(s, axis, HEC_SWEEP_AUTO, 0, v);
  switch (hec_sweep_option(axis)->kind) {
  case HEC_RUN_TEXT:
  case HEC_RUN_MAYBE:
    return add_text(s, axis, v);
  case HEC_RUN_ROW:
    return add_row(s, axis, v);
  default:
    return add_number(s, axis, v);
  }
}

/* A key that the rows of this sweep do not have. */
static hec_status refuse(const hec_sweep *s, const hec_json_value *v, const char *why) {
  HEC_SCOPED(hec_text) where = {0}, named = {0};
  hec_json_where(s->json, v, &where);
  hec_args_add_flags(why, &named);
  return hec_fail(HEC_BAD_INPUT, "%s: %s", where.data, named.data);
}

static hec_status read_axis(hec_sweep *s, hec_sweep_axis axis) {
  const hec_json_value *root = hec_json_root(s->json), *v = hec_json_get(root, hec_sweep_axis_name(axis));
  int32_t n = 0;
  if (!v && axis == HEC_AXIS_trace)
    return hec_json_error(s->json, root, "a member \"trace\"");
  if (!v && axis == HEC_AXIS_policy)
    return add_all_policies(s, NULL);
  const char *refused = v ? s->kind->refuses(axis) : NULL;
  if (refused)
    return refuse(s, v, refused);
  const char *left_out = axis == HEC_AXIS_law ? HEC_JOB_OPTIONS.law : may_be_none(axis) ? "" : HEC_SWEEP_AUTO;
  if (!v)
    return add_value(s, axis, left_out, 0, NULL);
  HEC_TRY(values_of(s->json, v, &v, &n));
  for (; n > 0; n--, v = hec_json_next(v))
    HEC_TRY(add_one(s, axis, v));
  return HEC_OK;
}

static hec_status count(hec_sweep *s) {
  double n = 1;
  s->n = s->per_job = 1;
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++)
    n *= s->axis[a].n;
  if (n > HEC_SWEEP_ROWS_MAX)
    return hec_fail(HEC_BAD_INPUT, "%s:1: the document: expected at most %d configurations, found %.0f", s->origin,
                    HEC_SWEEP_ROWS_MAX, n);
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++) {
    s->n *= s->axis[a].n;
    s->per_job *= hec_sweep_makes_job(a) ? 1 : s->axis[a].n;
  }
  return HEC_OK;
}

static hec_status read_all(hec_sweep *s) {
  const char *known[HEC_SWEEP_AXES + 1] = {NULL};
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++)
    known[a] = hec_sweep_axis_name(a);
  const hec_json_value *root = hec_json_root(s->json);
  HEC_TRY(hec_json_only(s->json, root, known));
  bool steps = hec_json_get(root, "layout") || hec_json_get(root, "setup");
  s->kind = steps ? &hec_sweep_steps : &hec_sweep_iterations;
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++)
    HEC_TRY(read_axis(s, (hec_sweep_axis)a));
  return count(s);
}

hec_status hec_sweep_parse(const char *text, size_t length, const char *origin, hec_sweep *s) {
  s->origin = hec_arena_text(&s->arena, origin);
  char *copy = HEC_NEW(&s->arena, char, length + 1);
  if (length > 0)
    memcpy(copy, text, length);
  s->text = copy;
  s->length = length;
  HEC_TRY(hec_json_parse(copy, length, origin, &s->json));
  return read_all(s);
}

/* ---- Look-ups ---- */

const hec_sweep_value *hec_sweep_at(const hec_sweep *s, int64_t index, hec_sweep_axis axis) {
  for (int32_t a = HEC_SWEEP_AXES - 1; a > (int32_t)axis; a--)
    index /= s->axis[a].n;
  return &s->axis[axis].value[index % s->axis[axis].n];
}

bool hec_sweep_has(const hec_sweep *s, int64_t axis) {
  return !s->kind->refuses(axis);
}

void hec_sweep_options(const hec_sweep *s, int64_t index, hec_job_options *options, hec_training_args *training) {
  for (int32_t a = HEC_AXIS_trace + 1; a < HEC_SWEEP_AXES; a++) {
    const hec_sweep_value *v = hec_sweep_at(s, index, (hec_sweep_axis)a);
    const hec_run_option *option = hec_sweep_option(a);
    void *to = hec_run_option_in(option, hec_sweep_of_training(a) ? (void *)training : (void *)options);
    if (option->kind == HEC_RUN_ROW || strcmp(v->text, HEC_SWEEP_AUTO) == 0 || !v->text[0])
      continue;
    if (option->kind == HEC_RUN_TEXT || option->kind == HEC_RUN_MAYBE)
      *(const char **)to = v->text;
    else if (option->kind == HEC_RUN_REAL)
      *(double *)to = v->number;
    else
      *(int32_t *)to = (int32_t)v->number;
  }
  options->model_text = hec_sweep_at(s, index, HEC_AXIS_model)->content;
  const hec_sweep_value *cluster = hec_sweep_at(s, index, HEC_AXIS_cluster);
  options->cluster_text = cluster->content;
  if (cluster->content || cluster->line) /* a device file is relative to what names it */
    options->cluster = cluster->content ? cluster->path : cluster->line;
  training->setup_text = hec_sweep_at(s, index, HEC_AXIS_setup)->content;
}

/* splitmix64's finisher. */
static uint64_t scatter(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

bool hec_sweep_mine(const hec_sweep *s, int64_t index, int32_t i, int32_t n) {
  enum { GROUPS_PER_SHARD = 8 }; /* fewer would leave shards with very unequal work */
  int64_t n_policies = hec_sweep_policies(s);
  uint64_t what = (uint64_t)(s->n / n_policies >= (int64_t)GROUPS_PER_SHARD * n ? index / n_policies : index);
  return n == 1 || scatter(what + 1) % (uint64_t)n == (uint64_t)i;
}
