/* From a spec to what runs: traces in memory, and one number that tells this sweep from every other.
 *
 * The digest is FNV-1a (64 bits) over the program's name and version, the bytes of the spec, and each file it names,
 * with lengths. It guards against mixing up sweeps, not against malice. Files are kept as
 * text (traces with gzip undone), read-only, one copy for all threads. Rows are computed from these bytes alone: what
 * happens to the files later changes nothing. */
#include "tools/front/sweep/sweep_kind.h"

#include "models/gpu.h"
#include "models/preset_data.h"
#include "models/straggler.h"
#include "models/training/dispatcher.h"
#include "runtime/base/files.h"
#include "tools/front/job_make.h"
#include "traces/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t bytes_max = (size_t)8 << 30; /* of all traces together */
static const double made_counts_max = 1 << 30;   /* of a synthetic one: before it fills the memory */

static uint64_t add_bytes(uint64_t digest, const char *bytes, size_t n) {
  for (size_t i = 0; i < n; i++)
    digest = (digest ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
  return digest;
}

static uint64_t add_text(uint64_t digest, const char *bytes, size_t n) {
  char length[32];
  int digits = snprintf(length, sizeof length, "%zu:", n);
  return add_bytes(add_bytes(digest, length, (size_t)digits), bytes, n);
}

/* A failure, as one about a value of the spec. */
static hec_status blame(const hec_sweep *s, const hec_sweep_value *value, const char *what, const char *why) {
  char expected[1200];
  (void)snprintf(expected, sizeof expected, "%s (%.1000s)", what, why);
  return value->at ? hec_json_error(s->json, value->at, expected)
                   : hec_fail(HEC_BAD_INPUT, "%s: expected %s", s->origin, expected);
}

static bool is_auto(const hec_sweep_value *value) {
  return strcmp(value->text, HEC_SWEEP_AUTO) == 0;
}

/* ---- Traces ---- */

/* A source to its end, which may have `left` more bytes; *bytes is the caller's to free, also on failure. */
static hec_status read_source(const char *path, size_t left, char **bytes, size_t *length) {
  hec_source *source = NULL;
  size_t capacity = 0, n = 0, got = 1;
  HEC_TRY(hec_source_open(path, &source));
  hec_status status = HEC_OK;
  while (status == HEC_OK && got > 0 && n <= left) {
    HEC_RESERVE(*bytes, capacity, n + ((size_t)1 << 18));
    status = source->read(source, *bytes + n, capacity - n, &got);
    n += status == HEC_OK ? got : 0;
  }
  source->close(source);
  *length = n;
  if (status == HEC_OK && n > left)
    status = hec_fail(HEC_BAD_INPUT, "%s: expected at most %zu more bytes, found more", path, left);
  return status;
}

/* Made as hecate-trace synth makes it. */
static hec_status make(const hec_synth_options *options, size_t left, char **bytes, size_t *length) {
  double counts = (double)options->n_iterations * options->n_layers * options->n_sources * options->n_experts;
  if (counts > made_counts_max)
    return hec_fail(HEC_BAD_INPUT, "iterations x layers x source_ranks x experts: expected at most %.0f, found %.0f",
                    made_counts_max, counts);
  hec_text text = {0};
  hec_status status = hec_synth_write_memory(options, &text, left);
  *bytes = text.data;
  *length = text.length;
  return status;
}

/* Every record once: whoever runs later meets none that is broken. */
static hec_status check_trace(const hec_sweep_trace *trace, const char *origin) {
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  const hec_trace_record *record = NULL;
  hec_status status = hec_trace_open_memory(trace->bytes, trace->length, origin, &reader);
  do
    status = status == HEC_OK ? hec_trace_next(reader, &record) : status;
  while (status == HEC_OK && record);
  return status;
}

/* A path in a spec that leads nowhere: where it was looked for. */
static hec_status blame_path(const hec_sweep *s, const hec_sweep_value *value, const char *what) {
  char why[1100];
  bool nowhere = value->path && access(value->path, F_OK) != 0;
  (void)snprintf(why, sizeof why, "%.900s%s", hec_last_error(),
                 nowhere ? "; paths in a spec are relative to its folder" : "");
  return blame(s, value, what, why);
}

/* The header alone is looked at first, so that something else of any size is told at once. */
static hec_status read_trace(const char *path, size_t left, char **bytes, size_t *length) {
  struct stat info;
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
    return hec_fail(HEC_BAD_INPUT, "%s: expected a regular file, found something else", path);
  HEC_TRY(hec_trace_open(path, &reader));
  return read_source(path, left, bytes, length);
}

static hec_status load_traces(hec_sweep *s) {
  size_t left = bytes_max;
  for (int32_t i = 0; i < s->axis[HEC_AXIS_trace].n; i++) {
    hec_sweep_trace *trace = &s->traces[i];
    const hec_sweep_value *value = &s->axis[HEC_AXIS_trace].value[i];
    hec_status status = trace->made ? make(&trace->synth, left, &trace->bytes, &trace->length)
                                    : read_trace(value->path, left, &trace->bytes, &trace->length);
    if (status == HEC_OK)
      status = check_trace(trace, trace->made ? value->text : value->path);
    if (status != HEC_OK) /* a disk that fails is no fault of the spec */
      return status == HEC_FAILED ? status : blame_path(s, value, "a trace that can be read");
    left -= trace->length;
    s->digest = add_text(add_text(s->digest, value->text, strlen(value->text)), trace->bytes, trace->length);
  }
  return HEC_OK;
}

/* ---- Models and clusters ---- */

/* A file goes to `content`: it is a JSON document, which has no zero inside. */
static hec_status read_preset_or_file(hec_sweep *s, const char *kind, hec_sweep_value *value) {
  const hec_preset_data *preset = hec_preset_find(kind, value->text);
  size_t length = 0;
  HEC_OPENED(hec_json) *json = NULL;
  if (preset)
    s->digest = add_text(s->digest, preset->text, preset->length);
  if (!value->path) /* a cluster's line is in the spec */
    return HEC_OK;
  HEC_TRY(hec_file_read(value->path, "a JSON file", HEC_JSON_BYTES_MAX, &value->content, &length));
  HEC_TRY(hec_json_parse(value->content, length, value->path, &json));
  s->digest = add_text(s->digest, value->content, length);
  return HEC_OK;
}

static hec_status make_cluster(const hec_sweep_value *value, hec_arena *arena, hec_cluster *cluster) {
  return value->content ? hec_cluster_parse_json(value->content, value->path, arena, cluster)
                        : hec_cluster_load(value->line ? value->line : value->text, arena, cluster);
}

hec_status hec_sweep_cluster(const hec_sweep_rows *rows, int64_t index, hec_arena *arena, hec_cluster *cluster) {
  const hec_sweep_value *value = hec_sweep_at(rows->sweep, index, HEC_AXIS_cluster);
  return strcmp(value->text, HEC_SWEEP_AUTO) == 0 ? hec_cluster_load(rows->row[index]->cluster, arena, cluster)
                                                  : make_cluster(value, arena, cluster);
}

static hec_status load_cluster(hec_sweep *s, hec_sweep_value *value) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_cluster cluster;
  hec_status status = read_preset_or_file(s, "cluster", value);
  if (status == HEC_OK)
    status = make_cluster(value, &arena, &cluster);
  return status == HEC_OK ? HEC_OK
                          : blame_path(s, value, "a cluster: a preset of hecate-sim --list, a JSON file or a line");
}

static hec_status load_model(hec_sweep *s, hec_sweep_value *value) {
  hec_moe moe;
  hec_status status = read_preset_or_file(s, "moe", value);
  if (status == HEC_OK)
    status = value->content ? hec_moe_parse(value->content, value->path, &moe) : hec_moe_load(value->text, &moe);
  return status == HEC_OK ? HEC_OK : blame_path(s, value, "a model: a preset of hecate-sim --list or a JSON file");
}

/* ---- Training jobs ---- */

static bool names_file(const hec_setup *setup) {
  HEC_SCOPED(hec_text) name = {0};
  const char *cluster = setup->cluster;
  return (setup->model && !hec_preset_find("moe", setup->model)) || (setup->device && !hec_gpu_known(setup->device)) ||
         (cluster && !hec_preset_find("cluster", cluster) && !hec_cluster_is_line(cluster)) ||
         (cluster && hec_cluster_is_line(cluster) && hec_cluster_line_file(cluster, &name));
}

/* What it names has to be in this program: other files would be read while rows are computed. */
static hec_status load_setup(hec_sweep *s, hec_sweep_value *value) {
  static const char must[] =
      "a set-up (preset or JSON file) whose model, device and cluster are no files; name those in the spec";
  HEC_SCOPED(hec_arena) arena = {0};
  hec_setup setup = {.model = NULL};
  hec_status status = read_preset_or_file(s, "setup", value);
  if (status == HEC_OK)
    status = value->content ? hec_setup_parse(value->content, strlen(value->content), value->path, &arena, &setup)
                            : hec_setup_load(value->text, &arena, &setup);
  if (status == HEC_OK && names_file(&setup))
    status = hec_fail(HEC_BAD_INPUT, "it names another file");
  return status == HEC_OK ? HEC_OK : blame_path(s, value, must);
}

/* A layout, a recipe or another text that no job can have is known before any row runs. */
static hec_status check_dispatchers(const hec_sweep *s) {
  for (int32_t i = 0; i < s->axis[HEC_AXIS_dispatcher].n; i++) {
    const hec_sweep_value *value = &s->axis[HEC_AXIS_dispatcher].value[i];
    if (is_auto(value) || hec_table_find(hec_dispatchers, value->text))
      continue;
    (void)!hec_table_unknown(&hec_dispatcher_table, "dispatcher", value->text);
    return blame(s, value, "a dispatcher", hec_last_error());
  }
  return HEC_OK;
}

static hec_status check_texts(const hec_sweep *s, hec_sweep_axis axis) {
  const hec_run_option *option = hec_sweep_option(axis);
  hec_status status = HEC_OK;
  for (int32_t i = 0; status == HEC_OK && i < s->axis[axis].n; i++) {
    HEC_SCOPED(hec_arena) arena = {0};
    hec_training_args args = HEC_TRAINING_ARGS;
    const hec_sweep_value *value = &s->axis[axis].value[i];
    if (option->kind == HEC_RUN_TEXT && !is_auto(value))
      *(const char **)hec_run_option_in(option, &args) = value->text;
    if (hec_set_up_check_texts(&args, &arena) != HEC_OK)
      status = blame(s, value, "what some job can have", hec_last_error());
  }
  return status;
}

/* ---- Stragglers ---- */

/* The cluster looked at last. */
typedef struct {
  const char *name; /* NULL: none yet */
  hec_arena arena;
  hec_cluster cluster;
} loaded;

static hec_status load_once(loaded *last, const hec_sweep_value *value, int32_t ranks_wanted) {
  const char *name = is_auto(value) ? hec_job_cluster_default(ranks_wanted) : value->text;
  if (last->name && strcmp(last->name, name) == 0)
    return HEC_OK;
  hec_arena_free(&last->arena);
  last->name = NULL;
  HEC_TRY(is_auto(value) ? hec_cluster_load(name, &last->arena, &last->cluster)
                         : make_cluster(value, &last->arena, &last->cluster));
  last->name = name;
  return HEC_OK;
}

/* Ranks that a value of that axis, with a trace, asks for. */
static hec_status ranks_wanted(const hec_sweep *s, const hec_sweep_value *ranks, int32_t trace, int32_t *wanted) {
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  const hec_sweep_trace *t = &s->traces[trace];
  if (!is_auto(ranks)) {
    *wanted = (int32_t)ranks->number;
    return HEC_OK;
  }
  HEC_TRY(hec_trace_open_memory(t->bytes, t->length, s->axis[HEC_AXIS_trace].value[trace].text, &reader));
  *wanted = hec_job_ranks_wanted(0, hec_trace_header_of(reader));
  return HEC_OK;
}

typedef struct {
  bool fits;
  int32_t max;    /* ranks of those tried; 0: none can run */
  char why[1000]; /* they do not fit */
} attempt;

/* On one of the clusters, with every number of ranks until one fits. */
static hec_status try_cluster(const hec_sweep *s, const hec_stragglers *one, const hec_sweep_value *cluster,
                              loaded *last, attempt *a) {
  for (int32_t r = 0; r < s->axis[HEC_AXIS_ranks].n; r++) {
    const hec_sweep_value *ranks = &s->axis[HEC_AXIS_ranks].value[r];
    for (int32_t t = 0; t < (is_auto(ranks) ? s->axis[HEC_AXIS_trace].n : 1); t++) {
      int32_t wanted;
      HEC_TRY(ranks_wanted(s, ranks, t, &wanted));
      HEC_TRY(load_once(last, cluster, wanted));
      int32_t n_devices = last->cluster.n_devices, n_ranks = wanted > 0 ? wanted : n_devices;
      if (n_ranks > n_devices) /* cannot run, whatever is slow */
        continue;
      a->fits = hec_stragglers_check(one, n_ranks, &last->cluster) == HEC_OK;
      if (a->fits)
        return HEC_OK;
      if (n_ranks > a->max)
        (void)snprintf(a->why, sizeof a->why, "%s", hec_last_error());
      a->max = n_ranks > a->max ? n_ranks : a->max;
    }
  }
  return HEC_OK;
}

/* A value of slow or skew that no configuration can have is known before any runs. O(clusters * ranks * traces). */
static hec_status check_straggler(const hec_sweep *s, hec_sweep_axis axis, const hec_sweep_value *value, loaded *last) {
  const char *text = value->text;
  hec_stragglers one = {axis == HEC_AXIS_slow ? text : NULL, axis == HEC_AXIS_skew ? text : NULL};
  attempt a = {.fits = !text[0]};
  for (int32_t c = 0; !a.fits && c < s->axis[HEC_AXIS_cluster].n; c++)
    HEC_TRY(try_cluster(s, &one, &s->axis[HEC_AXIS_cluster].value[c], last, &a));
  return a.fits || a.max == 0 ? HEC_OK : blame(s, value, "what some configuration can have", a.why);
}

static hec_status check_stragglers(const hec_sweep *s) {
  static const hec_sweep_axis of_stragglers[] = {HEC_AXIS_slow, HEC_AXIS_skew};
  loaded last = {0};
  hec_status status = HEC_OK;
  for (int32_t a = 0; a < 2; a++)
    for (int32_t i = 0; status == HEC_OK && i < s->axis[of_stragglers[a]].n; i++)
      status = check_straggler(s, of_stragglers[a], &s->axis[of_stragglers[a]].value[i], &last);
  hec_arena_free(&last.arena);
  return status;
}

static hec_status load_each(hec_sweep *s, hec_sweep_axis axis,
                            hec_status (*load)(hec_sweep *sweep, hec_sweep_value *value)) {
  for (int32_t i = 0; i < s->axis[axis].n; i++)
    if (!is_auto(&s->axis[axis].value[i]))
      HEC_TRY(load(s, &s->axis[axis].value[i]));
  return HEC_OK;
}

hec_status hec_sweep_load(hec_sweep *s, const char *tool, const char *sources) {
  s->digest = add_text(UINT64_C(0xcbf29ce484222325), tool, strlen(tool));
  s->digest = add_text(s->digest, sources, strlen(sources));
  s->digest = add_text(s->digest, s->text, s->length);
  HEC_TRY(load_each(s, HEC_AXIS_model, load_model));
  HEC_TRY(load_each(s, HEC_AXIS_cluster, load_cluster));
  HEC_TRY(load_each(s, HEC_AXIS_setup, load_setup));
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++)
    if (hec_sweep_of_training(a) && a != HEC_AXIS_setup)
      HEC_TRY(check_texts(s, (hec_sweep_axis)a));
  HEC_TRY(check_dispatchers(s));
  HEC_TRY(load_traces(s));
  return check_stragglers(s);
}

hec_status hec_sweep_read(const char *path, hec_sweep *s) {
  struct stat info;
  char *bytes = NULL;
  size_t length = 0;
  if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
    return hec_fail(HEC_BAD_INPUT, "%s: expected a JSON file, found a directory", path);
  hec_status status = read_source(path, HEC_JSON_BYTES_MAX, &bytes, &length);
  if (status == HEC_OK)
    status = hec_sweep_parse(bytes, length, path, s);
  free(bytes);
  return status;
}

void hec_sweep_free(hec_sweep *s) {
  for (int32_t i = 0; i < s->axis[HEC_AXIS_trace].n; i++)
    free(s->traces[i].bytes);
  for (int32_t a = 0; a < HEC_N_SWEEP_OF_FILES; a++)
    for (int32_t i = 0; i < s->axis[hec_sweep_of_files[a]].n; i++)
      free(s->axis[hec_sweep_of_files[a]].value[i].content);
  hec_json_free(s->json);
  hec_arena_free(&s->arena);
  *s = (hec_sweep){0};
}
