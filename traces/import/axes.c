/* A reading is possible if each of its sizes agrees with what is known: --layers, --top-k, --experts, files before. It is
 * likely if models have such sizes. The first of these is taken: the one that --axes names; the only possible one. The
 * documented one, if no other is likely or the format says so. All others are refused. */
#include "traces/import/axes.h"

#include "traces/import/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Twice what the deepest models have (126 layers, Llama 3.1 405B; top-8 of 256 experts, DeepSeek-V3, and above). */
enum { LAYERS_LIKELY = 256, TOP_K_LIKELY = 32 };

const hec_reading hec_readings[] = {
    {"tokens,layers,top_k", 3, {HEC_AXIS_TOKENS, HEC_AXIS_LAYERS, HEC_AXIS_TOP_K}, false},
    {"layers,tokens,top_k", 3, {HEC_AXIS_LAYERS, HEC_AXIS_TOKENS, HEC_AXIS_TOP_K}, false},
    {"steps,layers,experts", 3, {HEC_AXIS_STEPS, HEC_AXIS_LAYERS, HEC_AXIS_EXPERTS}, true},
    {"tokens,layers", 2, {HEC_AXIS_TOKENS, HEC_AXIS_LAYERS}, false},
    {"layers,tokens", 2, {HEC_AXIS_LAYERS, HEC_AXIS_TOKENS}, false},
    {"tokens,top_k", 2, {HEC_AXIS_TOKENS, HEC_AXIS_TOP_K}, false},
    {"layers,experts", 2, {HEC_AXIS_LAYERS, HEC_AXIS_EXPERTS}, true},
    {"steps,experts", 2, {HEC_AXIS_STEPS, HEC_AXIS_EXPERTS}, true},
    {.name = NULL},
};

int hec_reading_place(const hec_reading *reading, hec_axis axis) {
  for (int i = 0; i < reading->n; i++)
    if (reading->axis[i] == axis)
      return i;
  return -1;
}

bool hec_axes_known(const char *name) {
  const hec_reading *r = hec_readings;
  while (r->name && strcmp(r->name, name) != 0)
    r++;
  return r->name != NULL;
}

static bool allowed(const hec_axes_case *of, const hec_reading *r) {
  return r->n == of->n && (r->counts ? of->counts : of->ids);
}

/* The size of an axis; a reading without the axis has one of it. -1: not known yet. */
static int64_t size_of(const hec_axes_case *of, const hec_reading *r, hec_axis axis) {
  int place = hec_reading_place(r, axis);
  return place < 0 ? 1 : of->shape ? of->shape[place] : -1;
}

static bool is(int64_t size, int64_t known) {
  return size < 0 || known <= 0 || size == known;
}

static bool possible(const hec_import_file *file, const hec_axes_case *of, const hec_reading *r) {
  int64_t experts = hec_import_experts(file->job), top_k = hec_import_top_k(file->job);
  if (!is(size_of(of, r, HEC_AXIS_LAYERS), hec_import_options_of(file->job)->layers))
    return false;
  if (r->counts)
    return is(size_of(of, r, HEC_AXIS_EXPERTS), experts);
  int64_t k = size_of(of, r, HEC_AXIS_TOP_K);
  return is(k, top_k) && (experts == 0 || k <= experts);
}

/* A token that is sent to most of the experts is none of an MoE model: that axis is rather of experts. */
static bool likely(const hec_import_file *file, const hec_axes_case *of, const hec_reading *r) {
  int64_t experts = hec_import_experts(file->job), k = size_of(of, r, HEC_AXIS_TOP_K);
  const hec_import_options *o = hec_import_options_of(file->job);
  if (o->layers == 0 && size_of(of, r, HEC_AXIS_LAYERS) > LAYERS_LIKELY)
    return false;
  return r->counts || o->top_k > 0 || (k <= TOP_K_LIKELY && (experts == 0 || 2 * k <= experts));
}

/* "tokens,layers,top_k (ids: 1024 tokens, 4 layers, top_k 2)" */
static void add_reading(hec_text *words, const hec_axes_case *of, const hec_reading *r) {
  static const char *const names[] = {"tokens", "layers", "top_k", "steps", "experts"};
  hec_text_printf(words, "%s%s (%s", words->length > 0 ? "; " : "", r->name, r->counts ? "counts" : "expert ids");
  for (int i = 0; i < r->n && of->shape; i++) {
    bool k = r->axis[i] == HEC_AXIS_TOP_K;
    hec_text_printf(words, "%s%s%" PRId64 " %s", i > 0 ? ", " : ": ", k ? "top-" : "", of->shape[i],
                    k ? "experts each" : names[r->axis[i]]);
  }
  hec_text_add(words, ")");
}

/* Those of a kind: possible ones, or all where none is. */
static hec_status refuse(const hec_import_file *file, int64_t line, const char *field, const hec_axes_case *of,
                         bool any_possible) {
  HEC_SCOPED(hec_text) words = {0};
  char shape[80] = "";
  for (int i = 0, n = 0; i < of->n && of->shape; i++)
    n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%" PRId64, i > 0 ? " x " : ": ", of->shape[i]);
  for (const hec_reading *r = hec_readings; r->name; r++)
    if (allowed(of, r) && (!any_possible || possible(file, of, r)))
      add_reading(&words, of, r);
  return hec_import_fail(
      file, line, field, "expected axes that are certain%s, found %d%s; --axes NAME decides which it is: %s",
      any_possible ? "" : " and of the sizes that are known (--layers, --top-k, --experts)", of->n, shape, words.data);
}

/* The one that --axes names, or that was taken before. */
static hec_status take_named(const hec_import_file *file, int64_t line, const char *field, const hec_axes_case *of,
                             const char *name, const hec_reading **reading) {
  bool said = hec_import_options_of(file->job)->axes != NULL;
  for (const hec_reading *r = hec_readings; r->name; r++)
    if (strcmp(r->name, name) == 0)
      *reading = r;
  if ((*reading)->n != of->n)
    return hec_import_fail(file, line, field, "expected %d axes (%s %s), found %d", (*reading)->n,
                           said ? "--axes" : "as before,", name, of->n);
  if (!allowed(of, *reading))
    return hec_import_fail(file, line, field, "expected %s, found --axes %s", of->ids ? "expert ids" : "counts", name);
  return HEC_OK;
}

hec_status hec_axes_choose(hec_import_file *file, int64_t line, const char *field, const hec_axes_case *of,
                           const hec_reading **reading) {
  const hec_reading *first = NULL, *last_possible = NULL;
  int n_possible = 0, n_likely = 0;
  const char *named = hec_import_options_of(file->job)->axes;
  *reading = NULL;
  named = !named && file->words[0].length > 0 ? file->words[0].data : named;
  if (named)
    return take_named(file, line, field, of, named, reading);
  for (const hec_reading *r = hec_readings; r->name; r++) {
    if (!allowed(of, r))
      continue;
    first = first ? first : r;
    bool can = possible(file, of, r);
    n_possible += can;
    n_likely += can && likely(file, of, r);
    last_possible = can ? r : last_possible;
  }
  HEC_ASSERT(first);
  bool first_fits = possible(file, of, first) && likely(file, of, first);
  *reading = n_possible == 1 && likely(file, of, last_possible) ? last_possible
             : first_fits && (n_likely == 1 || of->documented)  ? first
                                                                : NULL;
  if (!*reading)
    return refuse(file, line, field, of, n_possible > 0);
  if (!of->documented || *reading != first)
    hec_import_assume(file->job, "axes: %s (--axes)", (*reading)->name);
  hec_text_add(&file->words[0], (*reading)->name);
  return HEC_OK;
}

/* ---- sizes that --axes makes unlikely ---- */

static int64_t size_in(const hec_reading *reading, const int64_t *shape, hec_axis axis) {
  int place = hec_reading_place(reading, axis);
  return place < 0 ? -1 : shape[place];
}

void hec_axes_keep_sizes(hec_import *job, const hec_reading *reading, const int64_t *shape) {
  bool said = job->options.axes && job->options.layers == 0; /* --layers: the user knows them */
  bool more = job->axes && size_in(reading, shape, HEC_AXIS_TOKENS) > size_in(reading, job->shape, HEC_AXIS_TOKENS);
  if (said && (!job->axes || more)) {
    job->axes = reading;
    memcpy(job->shape, shape, (size_t)reading->n * sizeof *shape);
  }
}

void hec_axes_say_sizes(hec_import *job) {
  const hec_reading *r = job->axes;
  HEC_SCOPED(hec_text) words = {0};
  int64_t layers = r ? size_in(r, job->shape, HEC_AXIS_LAYERS) : -1;
  int64_t tokens = r ? size_in(r, job->shape, HEC_AXIS_TOKENS) : -1;
  bool beyond = layers > LAYERS_LIKELY, swapped = tokens >= 0 && layers > tokens;
  if (!beyond && !swapped)
    return;
  for (int i = 0; i < r->n; i++)
    hec_text_printf(&words, "%s%" PRId64, i > 0 ? " x " : "shape ", job->shape[i]);
  hec_text_printf(&words, " is read as %s: %" PRId64 " layers", r->name, layers);
  if (swapped)
    hec_text_printf(&words, " of %" PRId64 " tokens", tokens);
  hec_text_printf(&words, ", %s; is --axes right (--layers N says so)?",
                  swapped ? "more layers than tokens" : "more than models have");
  hec_import_note(job, "mind", words.data);
}
