/* Journals and parts of sweeps.
 *
 *   line 1    {"format":"hecate-sweep-rows","version":2,"tool":...,"digest":"...","shard":0,"of":1,"rows":...,
 *              "values":...,"spec":"..."}            the spec itself, so that a part can be joined anywhere
 *   others    SUM INDEX ok MODEL|CLUSTER|SCHEDULE| VALUE ...  one finished row (| a tab); 17 significant digits, or nan
 *             SUM INDEX no REASON                    it could not run
 *
 * SUM is FNV-1a (64 bits, 16 hexadecimal digits) of the line from INDEX on. Lines are appended with one write each
 * batch and never changed: whatever ends the process, at most the last line is torn. On opening, a line without its
 * end is cut off and one whose sum is wrong does not count: its row is computed again. A part is the same file with
 * the rows in order and none missing. */
#define HEC_FORMAT "hecate-sweep-rows"
#include "runtime/base/files.h"
#include "runtime/base/table.h"
#include "runtime/base/value.h"
#include "tools/front/sweep/sweep_kind.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 2 };
static const off_t bytes_max = (off_t)4 << 30; /* a million rows have about 1 GB */

static uint64_t sum_of(const char *bytes, size_t n) {
  uint64_t sum = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < n; i++)
    sum = (sum ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
  return sum;
}

/* ---- Writing ---- */

static void add_header(const hec_sweep *s, const char *tool, int32_t shard, int32_t n_shards, hec_text *out) {
  char digest[24];
  (void)snprintf(digest, sizeof digest, "%016" PRIx64, s->digest);
  HEC_SCOPED(hec_text) spec = {0};
  hec_text_add_bytes(&spec, s->text, s->length);
  hec_json_out json = hec_json_begin(out, 0);
  HEC_JSON(&json, HEC_OBJECT(NULL, HEC_TEXT("format", HEC_FORMAT), HEC_INT("version", VERSION), HEC_TEXT("tool", tool),
                             HEC_TEXT("digest", digest), HEC_INT("shard", shard), HEC_INT("of", n_shards),
                             HEC_INT("rows", s->n), HEC_INT("values", s->kind->n), HEC_TEXT("spec", spec.data)));
}

static void add_row(const hec_sweep_rows *rows, int64_t index, hec_text *scratch, hec_text *out) {
  const hec_sweep_row *row = rows->row[index];
  scratch->length = 0;
  if (row->why)
    hec_text_printf(scratch, "%" PRId64 " no %s", index, row->why);
  else
    hec_text_printf(scratch, "%" PRId64 " ok %s\t%s\t%s\t", index, row->model, row->cluster, row->schedule);
  for (int32_t i = 0; !row->why && i < rows->sweep->kind->n; i++) {
    if (isnan(row->value[i]))
      hec_text_add(scratch, " nan");
    else
      hec_text_printf(scratch, " %.17g", row->value[i]);
  }
  hec_text_printf(out, "%016" PRIx64 " %s\n", sum_of(scratch->data, scratch->length), scratch->data);
}

void hec_sweep_part(const hec_sweep_rows *rows, const char *tool, int32_t shard, int32_t n_shards, hec_text *out) {
  HEC_SCOPED(hec_text) scratch = {0};
  add_header(rows->sweep, tool, shard, n_shards, out);
  for (int64_t i = 0; i < rows->sweep->n; i++)
    if (hec_sweep_mine(rows->sweep, i, shard, n_shards))
      add_row(rows, i, &scratch, out);
}

static hec_status write_all(const hec_sweep_journal *journal, const hec_text *text) {
  for (size_t at = 0; at < text->length;) {
    ssize_t n = write(journal->file, text->data + at, text->length - at);
    if (n < 0 && errno != EINTR)
      return hec_fail(HEC_FAILED, "%s: cannot be written: %s", journal->path, strerror(errno));
    at += n > 0 ? (size_t)n : 0;
  }
  return HEC_OK;
}

hec_status hec_sweep_journal_add(hec_sweep_journal *journal, const hec_sweep_rows *rows, const int64_t *index,
                                 int32_t n) {
  HEC_SCOPED(hec_text) text = {0}, scratch = {0};
  for (int32_t i = 0; i < n; i++)
    add_row(rows, index[i], &scratch, &text);
  return write_all(journal, &text);
}

/* ---- Reading ---- */

/* A name up to its tab. */
static bool read_name(char **at, char name[HEC_SWEEP_NAME_BYTES]) {
  size_t n = strcspn(*at, "\t");
  if ((*at)[n] == 0 || n >= HEC_SWEEP_NAME_BYTES)
    return false;
  memcpy(name, *at, n);
  name[n] = 0;
  *at += n + 1;
  return true;
}

/* Values of a row; false when it has not exactly as many as it should. */
static bool read_values(char *at, double *value, int32_t n) {
  for (int32_t i = 0; i < n; i++) {
    char *end = at;
    if (*at != ' ')
      return false;
    value[i] = strtod(at + 1, &end);
    if (end <= at + 1)
      return false;
    at = end;
  }
  return *at == 0;
}

/* A line that does not hold what a whole one would is as if it was not there. `line` ends in a zero. */
static void read_line(char *line, hec_sweep_rows *rows, int32_t shard, int32_t n_shards) {
  enum { SUM_DIGITS = 16 };
  size_t length = strlen(line);
  hec_sweep_row row = {0};
  char *end = line;
  if (length < SUM_DIGITS + 2 || line[SUM_DIGITS] != ' ')
    return;
  uint64_t sum = strtoull(line, &end, 16);
  char *from = line + SUM_DIGITS + 1;
  if (end != line + SUM_DIGITS || sum != sum_of(from, length - SUM_DIGITS - 1) || *from < '0' || *from > '9')
    return;
  int64_t index = strtoll(from, &end, 10);
  if (index >= rows->sweep->n || !hec_sweep_mine(rows->sweep, index, shard, n_shards))
    return;
  char *rest = end + 4;
  bool ran = strncmp(end, " ok ", 4) == 0;
  if (!ran && strncmp(end, " no ", 4) == 0)
    row.why = rest;
  if (row.why || (ran && read_name(&rest, row.model) && read_name(&rest, row.cluster) &&
                  read_name(&rest, row.schedule) && read_values(rest, row.value, rows->sweep->kind->n)))
    hec_sweep_rows_set(rows, index, &row);
}

/* Lines from `at` on; returns where the last whole one ends. */
static size_t read_lines(char *text, size_t at, size_t length, hec_sweep_rows *rows, int32_t shard, int32_t n_shards) {
  for (char *end; at < length && (end = memchr(text + at, '\n', length - at)) != NULL;) {
    *end = 0;
    read_line(text + at, rows, shard, n_shards);
    at = (size_t)(end - text) + 1;
  }
  return at;
}

static hec_status read_file(int file, const char *path, char **text, size_t *length) {
  struct stat info;
  bool known = fstat(file, &info) == 0;
  if (!known || !S_ISREG(info.st_mode) || info.st_size > bytes_max)
    return hec_fail(HEC_BAD_INPUT, "%s: expected a file of rows of at most 4 GiB, found %s", path,
                    !known                   ? "none"
                    : S_ISDIR(info.st_mode)  ? "a directory"
                    : !S_ISREG(info.st_mode) ? "no regular file"
                                             : "more");
  size_t n = 0, max = (size_t)info.st_size;
  *text = hec_malloc(max + 1, 1);
  while (n < max) {
    ssize_t got = pread(file, *text + n, max - n, (off_t)n);
    if (got < 0 && errno != EINTR)
      return hec_fail(HEC_FAILED, "%s: cannot be read: %s", path, strerror(errno));
    if (got == 0)
      break;
    n += got > 0 ? (size_t)got : 0;
  }
  (*text)[n] = 0;
  *length = n;
  return HEC_OK;
}

/* ---- Journal ---- */

/* What is in the file goes to `rows`; a new or torn beginning is written anew. */
static hec_status take_over(hec_sweep_journal *journal, const hec_text *header, char *text, size_t length,
                            hec_sweep_rows *rows, const int32_t shard[2]) {
  size_t whole = 0;
  bool same = length >= header->length && memcmp(text, header->data, header->length) == 0;
  if (!same && !(length < header->length && memcmp(text, header->data, length) == 0))
    return hec_fail(HEC_BAD_INPUT,
                    "%s: is not of this sweep and shard (spec, traces, models, clusters, version or build differ); "
                    "remove it or choose another --out",
                    journal->path);
  if (same)
    whole = read_lines(text, header->length, length, rows, shard[0], shard[1]);
  if (ftruncate(journal->file, (off_t)whole) != 0)
    return hec_fail(HEC_FAILED, "%s: cannot be written: %s", journal->path, strerror(errno));
  return same ? HEC_OK : write_all(journal, header);
}

hec_status hec_sweep_journal_open(const char *path, const char *tool, int32_t shard, int32_t n_shards,
                                  hec_sweep_rows *rows, hec_sweep_journal *journal) {
  *journal = (hec_sweep_journal){open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666), path};
  if (journal->file < 0)
    return hec_fail(HEC_BAD_INPUT, "%s: cannot be written: %s", path, strerror(errno));
  if (!hec_file_claim(journal->file))
    return hec_fail(HEC_BAD_INPUT, "%s: in use by another process", path);
  char *text = NULL;
  size_t length = 0;
  HEC_SCOPED(hec_text) header = {0};
  add_header(rows->sweep, tool, shard, n_shards, &header);
  hec_status status = read_file(journal->file, path, &text, &length);
  if (status == HEC_OK)
    status = take_over(journal, &header, text, length, rows, (const int32_t[2]){shard, n_shards});
  free(text);
  return status;
}

void hec_sweep_journal_close(hec_sweep_journal *journal, bool remove) {
  if (remove)
    (void)unlink(journal->path);
  if (journal->file >= 0)
    (void)close(journal->file);
  journal->file = -1;
}

/* ---- Merging ---- */

/* What a part says of itself. */
typedef struct {
  hec_json *json;
  const char *tool, *digest, *spec;
  int64_t shard, of, rows, values;
  size_t length; /* of the line */
} part_header;

static hec_status read_header(const char *path, const char *text, size_t length, part_header *h) {
  static const char *const known[] = {"format", "version", "tool",   "digest", "shard",
                                      "of",     "rows",    "values", "spec",   NULL};
  const char *end = length > 0 ? memchr(text, '\n', length) : NULL, *format = "";
  int64_t version = 0;
  if (!end || strncmp(text, "{\"format\":\"" HEC_FORMAT "\"", sizeof "{\"format\":\"" HEC_FORMAT "\"" - 1) != 0)
    return hec_fail(HEC_BAD_INPUT, "%s:1: expected a part of a sweep, as sweep --shard writes it", path);
  h->length = (size_t)(end - text) + 1;
  HEC_TRY(hec_json_parse(text, h->length, path, &h->json));
  const hec_json_value *root = hec_json_root(h->json);
  HEC_TRY(hec_json_only(h->json, root, known));
  HEC_TRY(hec_json_want_text(h->json, root, "format", &format));
  HEC_TRY(hec_json_want_int(h->json, root, "version", VERSION, VERSION, &version));
  HEC_TRY(hec_json_want_text(h->json, root, "tool", &h->tool));
  HEC_TRY(hec_json_want_text(h->json, root, "digest", &h->digest));
  HEC_TRY(hec_json_want_int(h->json, root, "of", 1, HEC_SWEEP_ROWS_MAX, &h->of));
  HEC_TRY(hec_json_want_int(h->json, root, "shard", 0, h->of - 1, &h->shard));
  HEC_TRY(hec_json_want_int(h->json, root, "rows", 1, HEC_SWEEP_ROWS_MAX, &h->rows));
  HEC_TRY(hec_json_want_int(h->json, root, "values", 1, HEC_SWEEP_COLUMNS_MAX, &h->values));
  return hec_json_want_text(h->json, root, "spec", &h->spec);
}

/* The first part says which sweep it is, the others must be of the same. */
static hec_status match(const char *path, const part_header *h, const char *tool, int64_t of, hec_sweep *sweep) {
  uint64_t digest = strtoull(h->digest, NULL, 16);
  if (strcmp(h->tool, tool) != 0)
    return hec_fail(HEC_BAD_INPUT, "%s:1: tool: expected %s, found \"%.60s\"", path, tool, h->tool);
  if (!sweep->json) {
    HEC_TRY(hec_sweep_parse(h->spec, strlen(h->spec), path, sweep));
    sweep->digest = digest;
  }
  if (digest != sweep->digest || h->rows != sweep->n || h->values != sweep->kind->n ||
      strcmp(h->spec, sweep->text) != 0)
    return hec_fail(HEC_BAD_INPUT, "%s:1: digest: expected a part of the same sweep as the first, found another", path);
  if (of > 0 && h->of != of)
    return hec_fail(HEC_BAD_INPUT, "%s:1: of: expected %" PRId64 " like the first part, found %" PRId64, path, of,
                    h->of);
  return HEC_OK;
}

static hec_status complete(const char *path, const hec_sweep_rows *rows, const part_header *h) {
  int64_t missing = 0;
  for (int64_t i = 0; i < rows->sweep->n; i++)
    missing += !rows->row[i] && hec_sweep_mine(rows->sweep, i, (int32_t)h->shard, (int32_t)h->of);
  if (missing == 0)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "%s: %" PRId64 " rows of shard %" PRId64 "/%" PRId64 " are missing or broken", path,
                  missing, h->shard, h->of);
}

/* The sweep that is put together. */
typedef struct {
  const char *tool;
  int64_t of; /* into how many shards the sweep was cut; 0: no part was read yet */
  bool *seen; /* [of] */
  hec_sweep *sweep;
  hec_sweep_rows *rows;
} merger;

static hec_status take_part(merger *m, const char *path, char *text, size_t length) {
  part_header h = {0};
  hec_status status = read_header(path, text, length, &h);
  if (status == HEC_OK)
    status = match(path, &h, m->tool, m->of, m->sweep);
  if (status == HEC_OK && m->of == 0) {
    m->of = h.of;
    m->seen = hec_malloc((size_t)m->of, sizeof *m->seen);
    memset(m->seen, 0, (size_t)m->of * sizeof *m->seen);
  }
  if (status == HEC_OK && m->seen[h.shard])
    status = hec_fail(HEC_BAD_INPUT, "%s: shard %" PRId64 "/%" PRId64 " is there twice", path, h.shard, h.of);
  if (status == HEC_OK) {
    m->seen[h.shard] = true;
    if (!m->rows->row)
      *m->rows = hec_sweep_rows_new(m->sweep);
    (void)read_lines(text, h.length, length, m->rows, (int32_t)h.shard, (int32_t)h.of);
    status = complete(path, m->rows, &h);
  }
  hec_json_free(h.json);
  return status;
}

/* Of the sweep that the parts are from, which ones were not given. */
static hec_status all_there(const merger *m) {
  HEC_SCOPED(hec_text) missing = {0};
  int64_t n = 0;
  for (int64_t i = 0; i < m->of; i++)
    if (!m->seen[i] && ++n <= HEC_TABLE_LISTED)
      hec_text_printf(&missing, "%s%" PRId64, n > 1 ? ", " : "", i);
  return n == 0 ? HEC_OK
                : hec_fail(HEC_BAD_INPUT,
                           "parts: expected all %" PRId64 ", missing: %s%s (made by --shard I/%" PRId64 ", I from 0)",
                           m->of, missing.data, n > HEC_TABLE_LISTED ? ", ..." : "", m->of);
}

hec_status hec_sweep_merge(const char *const *paths, int32_t n, const char *tool, hec_sweep *sweep,
                           hec_sweep_rows *rows) {
  merger m = {.tool = tool, .sweep = sweep, .rows = rows};
  hec_status status = HEC_OK;
  for (int32_t i = 0; status == HEC_OK && i < n; i++) {
    char *text = NULL;
    size_t length = 0;
    int file = open(paths[i], O_RDONLY | O_CLOEXEC);
    status = file < 0 ? hec_fail(HEC_BAD_INPUT, "%s: cannot be opened: %s", paths[i], strerror(errno))
                      : read_file(file, paths[i], &text, &length);
    if (status == HEC_OK)
      status = take_part(&m, paths[i], text, length);
    free(text);
    if (file >= 0)
      (void)close(file);
  }
  if (status == HEC_OK)
    status = all_there(&m);
  free(m.seen);
  return status;
}
