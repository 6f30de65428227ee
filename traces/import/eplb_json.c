/* Logical counts as JSON: what SGLang's --init-expert-location takes, and the weight matrix of DeepSeek's EPLB,
 *   {"logical_count":[[count x experts] x layers]}   or [... x steps] of those, or the array alone.
 * An array alone needs --axes: nothing says that it is of counts, or what its first axis is. Whole numbers, also as 7.0. Summed over ranks; dense layers are rows of zeros. One step is in memory. Several files
 * (one per workload) become one record after another, with the file's name as label. A file with
 * physical_to_logical_map alone is a placement. */
#include "runtime/base/arena.h"
#include "traces/import/axes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  hec_scan scan;
  hec_scan_matrix counts;
  int64_t step, layer, line;
  bool in_object, in_steps, found; /* inside {..}; inside a list of steps; the counts have begun */
  bool rows_are_steps;             /* [steps][experts] */
  bool first_member, first_step;
} counts_file;

static hec_status open_file(hec_import_file *file) {
  counts_file *c = file->state;
  c->step = -1;
  c->first_member = c->first_step = true;
  HEC_TRY(hec_import_scan(file, &c->scan));
  c->scan.whole_floats = true; /* weights are often float tensors */
  return HEC_OK;
}

static void close_file(void *state) {
  counts_file *c = state;
  hec_scan_end(&c->scan);
  free(c->counts.values);
}

/* How many brackets open before the first number, as far as one can look ahead. */
static hec_status depth_ahead(hec_scan *scan, int *depth) {
  int byte = 0;
  *depth = 0;
  HEC_TRY(hec_scan_peek(scan, &byte));
  HEC_TRY(hec_scan_look_ahead(scan));
  for (const char *p = scan->at; p < scan->end && strchr("[ \t\r\n", *p); p++)
    *depth += *p == '[';
  return HEC_OK;
}

/* To the member with the counts, or past the end of the object. */
static hec_status find_counts(hec_import_file *file, counts_file *c, bool *there) {
  static const char *const known[] = {"logical_count"};
  hec_scan *scan = &c->scan;
  for (;;) {
    HEC_TRY(hec_scan_more(scan, '}', &c->first_member, there));
    if (!*there)
      return HEC_OK;
    HEC_TRY(hec_scan_key(scan));
    if (strcmp(scan->key, "logical_count") == 0)
      return c->found ? hec_scan_fail(scan, "a second one", "this key once") : HEC_OK;
    hec_import_leave(file->job, HEC_LEFT_KEY, scan->key, known, 1);
    HEC_TRY(hec_scan_skip(scan));
  }
}

static hec_status end_of_file(counts_file *c) {
  int byte = 0;
  c->scan.key[0] = 0;
  HEC_TRY(hec_scan_peek(&c->scan, &byte));
  return c->scan.at == c->scan.end ? HEC_OK : hec_scan_fail(&c->scan, NULL, "end of file");
}

/* Opens whatever is around the first step. */
static hec_status begin(hec_import_file *file, counts_file *c, bool *more) {
  int byte = 0, depth = 0;
  HEC_TRY(hec_scan_peek(&c->scan, &byte));
  *more = byte != 0;
  if (!*more)
    return HEC_OK;
  c->in_object = byte == '{';
  if (c->in_object) {
    HEC_TRY(hec_scan_expect(&c->scan, '{'));
    HEC_TRY(find_counts(file, c, more));
    (void)strcpy(c->scan.key, "logical_count");
    if (!*more)
      return hec_scan_fail(&c->scan, "no such key", "this key");
  }
  c->found = true;
  HEC_TRY(depth_ahead(&c->scan, &depth));
  if (depth < 2)
    return hec_scan_fail(&c->scan, NULL, "an array of layers, or of steps of layers");
  c->in_steps = depth > 2;
  if (!c->in_object) {
    const hec_axes_case of = {.n = depth > 2 ? 3 : 2, .ids = true, .counts = true};
    const hec_reading *reading = NULL;
    HEC_TRY(hec_axes_choose(file, c->scan.line, "array", &of, &reading));
    if (!reading->counts)
      return hec_import_fail(file, c->scan.line, "array", "expected --axes of counts, found %s (ids are read as .npy)",
                             reading->name);
    c->rows_are_steps = reading->axis[0] == HEC_AXIS_STEPS && !c->in_steps;
  }
  return c->in_steps ? hec_scan_expect(&c->scan, '[') : HEC_OK;
}

/* After the last step. */
static hec_status finish(hec_import_file *file, counts_file *c) {
  bool there = false;
  if (c->in_object)
    HEC_TRY(find_counts(file, c, &there));
  return end_of_file(c);
}

static hec_status read_step(hec_import_file *file, counts_file *c, bool *more) {
  *more = true;
  if (!c->found)
    HEC_TRY(begin(file, c, more));
  if (!*more)
    return HEC_OK;
  c->scan.n_indices = 0;
  if (c->in_steps)
    HEC_TRY(hec_scan_more(&c->scan, ']', &c->first_step, more));
  else
    *more = c->step < 0;
  if (!*more)
    return finish(file, c);
  c->step++;
  c->layer = 0;
  if (c->in_steps) {
    c->scan.index[0] = c->step;
    c->scan.n_indices = 1;
  }
  c->counts.n_columns = hec_import_experts(file->job) > 0 ? hec_import_experts(file->job) : -1;
  HEC_TRY(hec_scan_rows(&c->scan, &c->counts, "counts"));
  c->line = c->scan.line;
  if (c->counts.n_rows == 0)
    return hec_import_fail(file, c->line, "logical_count", "expected at least one layer, found none");
  return hec_import_set_experts(file, c->line, "logical_count", c->counts.n_columns);
}

static hec_status next(hec_import_file *file, hec_import_row *row, bool *more) {
  counts_file *c = file->state;
  *more = true;
  if (c->step < 0 || c->layer == c->counts.n_rows)
    HEC_TRY(read_step(file, c, more));
  if (!*more)
    return HEC_OK;
  *row = (hec_import_row){.step = c->rows_are_steps ? c->layer : c->step,
                          .layer = c->rows_are_steps ? 0 : c->layer,
                          .source = -1,
                          .n = (int32_t)c->counts.n_columns,
                          .counts = c->counts.values + c->layer * c->counts.n_columns,
                          .line = c->line};
  c->layer++;
  return HEC_OK;
}

static bool recognise(const char *head, size_t n) {
  const char *p = head + strspn(head, " \t\r\n");
  if (*p == '[')
    return p[1 + strspn(p + 1, " \t\r\n")] == '[';
  return *p == '{' && hec_import_has(head, n, "\"logical_count\"");
}

const hec_importer hec_importer_eplb_json = {
    .name = "eplb-json",
    .summary = "SGLang, DeepSeek EPLB: JSON logical_count [layers][experts] or [steps][layers][experts]",
    .source = "SGLang, --init-expert-location; DeepSeek EPLB, weight of eplb.py",
    .pattern = "*.json *.json.gz",
    .files = HEC_FILES_SEQUENCE,
    .axes = true,
    .phase = "prefill+decode",
    .recognise = recognise,
    .state_bytes = sizeof(counts_file),
    .open = open_file,
    .next = next,
    .close = close_file,
};
