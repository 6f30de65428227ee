/* HarMoEny's statistics: <rank>/moe_layer-<l>.csv, a line per iteration. It reads two columns, "iteration" and
 * "expert distribution": a quoted list of the tokens that this rank sends to each expert. The rank is the folder's
 * name, the layer is in the file's (moe_l<l>.csv in older versions; moe_decoder_layer-<l>.csv of encoder-decoder models:
 * their decoder's layers come behind). Per source rank, before any rescheduling; nothing is dropped. data.json in the
 * folder above says how many ranks there were (world_size), where it is there. */
#include "runtime/base/arena.h"
#include "traces/import/csv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
  hec_csv csv;
  int iteration, distribution; /* columns */
  int64_t layer;
  uint32_t *counts;
  size_t capacity;
} statistics;

static const char *base_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* .../3/moe_layer-0.csv: 3 */
static int32_t rank_of(const char *path) {
  const char *end = strrchr(path, '/'), *from = end;
  while (from && from > path && from[-1] != '/')
    from--;
  size_t n = from ? (size_t)(end - from) : 0;
  if (n == 0 || n > 6 || strspn(from, "0123456789") != n)
    return -1;
  return (int32_t)strtol(from, NULL, 10);
}

/* The last number of the name. */
static bool layer_of(const char *path, int64_t *layer) {
  const char *name = base_of(path), *end = name + strcspn(name, "."), *from = end;
  while (from > name && from[-1] >= '0' && from[-1] <= '9')
    from--;
  if (from == end || end - from > 6)
    return false;
  *layer = hec_import_layer(strstr(name, "decoder") != NULL, strtol(from, NULL, 10) & 0xfffff);
  return true;
}

static hec_status check_world(hec_import *job, const hec_json *json, const char *path) {
  const hec_json_value *root = hec_json_root(json);
  int64_t ranks = 0;
  if (!hec_json_is_object(root) || !hec_json_get(root, "world_size"))
    return HEC_OK;
  HEC_TRY(hec_json_want_int(json, root, "world_size", 1, HEC_TRACE_DIMENSION_MAX, &ranks));
  hec_import_know_ranks(job);
  bool some = hec_import_options_of(job)->renumber;
  if (ranks == hec_import_ranks(job) || (some && ranks > hec_import_ranks(job)))
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT,
                  "%s: world_size: expected as many as there are folders of ranks, %d, found %" PRId64
                  " (--renumber takes those there are)",
                  path, (int)hec_import_ranks(job), ranks);
}

/* RUN/0/moe_layer-0.csv: RUN/data.json */
static hec_status begin(hec_import *job, const hec_import_input *beside) {
  (void)beside;
  HEC_SCOPED(hec_text) path = {0};
  HEC_OPENED(hec_json) *json = NULL;
  struct stat info;
  const char *first = hec_import_first(job)->path, *end = base_of(first);
  for (end -= end > first; end > first && end[-1] != '/';)
    end--;
  hec_text_add_bytes(&path, first, (size_t)(end - first));
  hec_text_add(&path, "data.json");
  hec_import_input input = {.path = path.data};
  hec_status status = HEC_OK;
  if (!hec_import_first(job)->bytes && stat(path.data, &info) == 0 && S_ISREG(info.st_mode)) {
    hec_import_reads(job, path.data);
    status = hec_import_read_json(&input, &json);
    if (status == HEC_OK)
      status = check_world(job, json, path.data);
  }
  return status;
}

static hec_status open_file(hec_import_file *file) {
  statistics *s = file->state;
  HEC_TRY(hec_csv_open(&s->csv, file));
  HEC_TRY(hec_csv_want(&s->csv, "iteration", &s->iteration));
  HEC_TRY(hec_csv_want(&s->csv, "expert distribution", &s->distribution));
  hec_csv_leave_columns(file, &s->csv);
  if (!layer_of(file->input->path, &s->layer))
    return hec_import_fail(file, 0, "name", "expected moe_layer-<number>.csv, found another");
  return HEC_OK;
}

static void close_file(void *state) {
  statistics *s = state;
  hec_csv_close(&s->csv);
  free(s->counts);
}

/* At most 10 digits: how many, 0 when there is no such number up to 2^32 - 1. */
static size_t read_number(const char *p, uint32_t *number) {
  size_t n = hec_digits_short(p, number);
  if (n > 0)
    return n;
  uint64_t value = 0;
  for (; n <= 10 && p[n] >= '0' && p[n] <= '9'; n++)
    value = value * 10 + (uint64_t)(p[n] - '0');
  *number = (uint32_t)value;
  return n <= 10 && value <= UINT32_MAX ? n : 0;
}

static const char *pass_blanks(const char *p) {
  while (*p == ' ')
    p++;
  return p;
}

/* "[12, 166, 0]" */
static hec_status read_list(statistics *s, int64_t *n) {
  const char *p = s->csv.field[s->distribution];
  bool good = *p++ == '[';
  for (*n = 0; good; p++) {
    uint32_t number = 0;
    p = pass_blanks(p);
    size_t digits = read_number(p, &number);
    good = digits > 0 && *n < HEC_TRACE_DIMENSION_MAX;
    if (!good)
      break;
    HEC_RESERVE(s->counts, s->capacity, *n + 1);
    s->counts[(*n)++] = number;
    p = pass_blanks(p + digits);
    good = *p == ',' || (*p == ']' && *pass_blanks(p + 1) == 0);
    if (*p == ']')
      break;
  }
  return good ? HEC_OK : hec_csv_fail(&s->csv, s->distribution, "a list of whole numbers from 0 to 4294967295");
}

static hec_status next(hec_import_file *file, hec_import_row *row, bool *more) {
  statistics *s = file->state;
  int64_t step = 0, n = 0;
  HEC_TRY(hec_csv_next(&s->csv, more));
  if (!*more)
    return HEC_OK;
  HEC_TRY(hec_csv_integer(&s->csv, s->iteration, (INT64_C(1) << 53) - 1, &step));
  HEC_TRY(read_list(s, &n));
  HEC_TRY(hec_import_set_experts(file, s->csv.line, "expert distribution (length)", n));
  *row = (hec_import_row){
      .step = step, .layer = s->layer, .source = -1, .n = (int32_t)n, .counts = s->counts, .line = s->csv.line};
  return HEC_OK;
}

static bool recognise(const char *head, size_t n) {
  return hec_csv_head_has(head, n, "expert distribution") && hec_csv_head_has(head, n, "iteration");
}

const hec_importer hec_importer_harmoeny = {
    .name = "harmoeny",
    .summary = "HarMoEny, <rank>/moe_layer-<l>.csv: tokens of each source rank per expert",
    .source = "github.com/sacs-epfl/HarMoEny",
    .pattern = "moe_*.csv moe_*.csv.gz",
    .behind = "the decoder's",
    .files = HEC_FILES_PARTS,
    .rank_of = rank_of,
    .counted = HEC_COUNTED_BEFORE_DROP,
    .phase = "prefill",
    .recognise = recognise,
    .begin = begin,
    .state_bytes = sizeof(statistics),
    .open = open_file,
    .next = next,
    .close = close_file,
};
