/* Files of every importer, damaged at random places (seeded: same number, same damage). None may crash. Who is refused is told
 * the file. Who is accepted must be the same trace, or another one of the same shape with other numbers. Or it is of a
 * shape that another whole file of the format has. A step, a layer or a rank less or more. A name that was misspelt is
 * never passed over in silence. HECATE_TEST_CASES=N takes N times as many; HECATE_MUTANTS=1 lists those that were
 * accepted. */
#include "runtime/base/arena.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"
#include "traces/import/import.h"
#include "traces/import/job.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

enum { FILES_MAX = 16, WORDS_MAX = 16 };

typedef struct {
  const hec_importer *format;
  hec_import_options options;
  char words[256];
  char path[FILES_MAX][512];
  hec_text file[FILES_MAX];
  int n_files;
} fixture;

/* What came of an import. */
typedef struct {
  bool accepted;
  int32_t n_layers, n_sources, n_experts, top_k;
  int64_t n_records, n_cells;
  hec_text steps, cells, notes; /* int64_t; uint32_t, one record behind the other */
} outcome;

/* ---- fixtures ---- */

static void read_file(const char *path, hec_text *text) {
  char block[4096];
  FILE *file = fopen(path, "rb");
  ck_assert_msg(file != NULL, "%s", path);
  for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;)
    hec_text_add_bytes(text, block, n);
  ck_assert_int_eq(fclose(file), 0);
}

/* In order of names, so that seeds mean the same everywhere. */
static void read_folder(fixture *f, const char *folder) {
  struct dirent **entries = NULL;
  int n = scandir(folder, &entries, NULL, alphasort);
  ck_assert_int_ge(n, 0);
  for (int i = 0; i < n; i++) {
    struct stat info;
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
    bool other = strcmp(entries[i]->d_name, "options") == 0 || strcmp(entries[i]->d_name, "expected.jsonl") == 0 ||
                 strcmp(entries[i]->d_name, "data.json") == 0 || strcmp(entries[i]->d_name, "e2e.csv") == 0 ||
                 entries[i]->d_name[0] == '.';
    free(entries[i]);
    if (other)
      continue;
    ck_assert_int_eq(stat(path, &info), 0);
    if (S_ISDIR(info.st_mode)) {
      read_folder(f, path);
      continue;
    }
    ck_assert_int_lt(f->n_files, FILES_MAX);
    hec_name_copy(f->path[f->n_files], sizeof f->path[0], path);
    read_file(path, &f->file[f->n_files++]);
  }
  free(entries);
}

/* "--top-k 2 --ep 2" */
static void read_options(fixture *f, const char *folder) {
  char path[640], *rest = f->words;
  HEC_SCOPED(hec_text) text = {0};
  (void)snprintf(path, sizeof path, "%s/options", folder);
  read_file(path, &text);
  (void)snprintf(f->words, sizeof f->words, "%s", text.data);
  f->options.last_step = -1;
  for (char *name, *value; (name = strtok_r(rest, " \n", &rest)) != NULL;) {
    value = strtok_r(rest, " \n", &rest);
    ck_assert(value != NULL);
    int64_t n = strtoll(value, NULL, 10);
    hec_import_options *o = &f->options;
    int64_t *number = strcmp(name, "--top-k") == 0     ? &o->top_k
                      : strcmp(name, "--experts") == 0 ? &o->experts
                      : strcmp(name, "--layers") == 0  ? &o->layers
                      : strcmp(name, "--ranks") == 0   ? &o->ranks
                      : strcmp(name, "--ep") == 0      ? &o->ep
                                                       : NULL;
    if (number)
      *number = n;
    else if (strcmp(name, "--method") == 0)
      o->method = value;
    else if (strcmp(name, "--axes") == 0)
      o->axes = value;
    else
      ck_abort_msg("%s: an option that this test does not know", name);
  }
}

static void read_fixture(fixture *f, const hec_importer *format) {
  char folder[512];
  *f = (fixture){.format = format};
  (void)snprintf(folder, sizeof folder, "%s/tests/traces/import/%s", HEC_SOURCE_DIR, format->name);
  read_options(f, folder);
  read_folder(f, folder);
  ck_assert_int_gt(f->n_files, 0);
}

/* ---- imports ---- */

static outcome import(const fixture *f, int changed, const hec_text *mutant) {
  hec_import_input inputs[FILES_MAX];
  HEC_OPENED(hec_import) *job = NULL;
  hec_import_record record;
  hec_trace_header header;
  outcome o = {.accepted = true};
  bool more = true;
  for (int i = 0; i < f->n_files; i++) {
    const hec_text *text = i == changed ? mutant : &f->file[i];
    inputs[i] = (hec_import_input){.path = f->path[i], .bytes = text->data ? text->data : "", .length = text->length};
  }
  o.accepted = hec_import_begin(f->format, &f->options, inputs, f->n_files, &job) == HEC_OK;
  while (o.accepted && more) {
    o.accepted = hec_import_next(job, &record, &more) == HEC_OK;
    if (!o.accepted || !more)
      break;
    o.n_records++;
    o.n_cells += (int64_t)hec_load_cells(&record.load);
    hec_text_add_bytes(&o.steps, (const char *)&record.iter, sizeof record.iter);
    hec_text_add_bytes(&o.cells, (const char *)record.load.counts, hec_load_cells(&record.load) * sizeof(uint32_t));
  }
  if (o.accepted) {
    hec_import_header(job, &header);
    o.n_layers = header.n_layers;
    o.n_sources = header.n_sources;
    o.n_experts = header.n_experts;
    o.top_k = header.top_k;
    hec_text_add(&o.notes, job->notes.data ? job->notes.data : "");
    hec_text_add(&o.notes, "read ");
    hec_import_sum_up(job, &o.notes);
    ck_assert(o.n_records > 0 && o.n_cells == o.n_records * o.n_layers * o.n_sources * o.n_experts);
  }
  return o;
}

static void free_outcome(outcome *o) {
  hec_text_free(&o->steps);
  hec_text_free(&o->cells);
  hec_text_free(&o->notes);
}

/* ---- damage ---- */

typedef struct {
  const char *name;
  void (*apply)(hec_text *text, uint64_t *seed, char misspelt[64]);
} damage;

static void replace(hec_text *text, size_t at, size_t n, const char *by, size_t length) {
  hec_text out = {0};
  hec_text_add_bytes(&out, text->data, at);
  hec_text_add_bytes(&out, by, length);
  hec_text_add_bytes(&out, text->data + at + n, text->length - at - n);
  hec_text_free(text);
  *text = out;
}

static size_t below(uint64_t *seed, size_t n) {
  return n > 0 ? (size_t)hec_test_below(seed, n) : 0;
}

static void flip(hec_text *text, uint64_t *seed, char misspelt[64]) {
  (void)misspelt;
  size_t at = below(seed, text->length);
  text->data[at] = (char)(text->data[at] ^ 1 << below(seed, 8));
}

static void set(hec_text *text, uint64_t *seed, char misspelt[64]) {
  static const char bytes[] = "0123456789,:;.\"'[]{}()-+eE \n\r\t\\\0\x7f\xff/ax_";
  (void)misspelt;
  text->data[below(seed, text->length)] = bytes[below(seed, sizeof bytes - 1)];
}

static void cut_some(hec_text *text, uint64_t *seed, char misspelt[64]) {
  (void)misspelt;
  size_t at = below(seed, text->length), n = 1 + below(seed, 8);
  replace(text, at, n < text->length - at ? n : text->length - at, "", 0);
}

static void repeat_some(hec_text *text, uint64_t *seed, char misspelt[64]) {
  char copy[16];
  (void)misspelt;
  size_t from = below(seed, text->length), n = 1 + below(seed, sizeof copy);
  n = n < text->length - from ? n : text->length - from;
  memcpy(copy, text->data + from, n);
  replace(text, below(seed, text->length), 0, copy, n);
}

static void truncate_it(hec_text *text, uint64_t *seed, char misspelt[64]) {
  (void)misspelt;
  text->length = below(seed, text->length);
  text->data[text->length] = 0;
}

/* A line that begins somewhere: from..*end, its end included. */
static size_t some_line(const hec_text *text, uint64_t *seed, size_t *end) {
  size_t from = below(seed, text->length);
  while (from > 0 && text->data[from - 1] != '\n')
    from--;
  const char *feed = memchr(text->data + from, '\n', text->length - from);
  *end = feed ? (size_t)(feed - text->data) + 1 : text->length;
  return from;
}

static void cut_line(hec_text *text, uint64_t *seed, char misspelt[64]) {
  size_t end = 0, from = some_line(text, seed, &end);
  (void)misspelt;
  replace(text, from, end - from, "", 0);
}

static void move_line(hec_text *text, uint64_t *seed, bool cut) {
  size_t end = 0, from = some_line(text, seed, &end), other_end = 0;
  HEC_SCOPED(hec_text) line = {0};
  hec_text_add_bytes(&line, text->data + from, end - from);
  if (cut)
    replace(text, from, end - from, "", 0);
  size_t to = text->length > 0 ? some_line(text, seed, &other_end) : 0;
  replace(text, to, 0, line.data, line.length);
}

static void repeat_line(hec_text *text, uint64_t *seed, char misspelt[64]) {
  (void)misspelt;
  move_line(text, seed, false);
}

static void change_order(hec_text *text, uint64_t *seed, char misspelt[64]) {
  (void)misspelt;
  move_line(text, seed, true);
}

/* The first run of such bytes from a place on, -1: none. */
static long some_run(const hec_text *text, uint64_t *seed, bool digits, size_t *n) {
  for (size_t at = below(seed, text->length); at < text->length; at++) {
    for (*n = 0; at + *n < text->length; ++*n) {
      unsigned char c = (unsigned char)text->data[at + *n];
      if (digits ? !isdigit(c) : !(isalpha(c) || c == '_'))
        break;
    }
    if (*n >= (digits ? 1 : 4))
      return (long)at;
    at += *n;
  }
  return -1;
}

static void change_number(hec_text *text, uint64_t *seed, char misspelt[64]) {
  static const char *const numbers[] = {"0",
                                        "1",
                                        "7",
                                        "-1",
                                        "1.5",
                                        "1e3",
                                        "4294967295",
                                        "4294967296",
                                        "9007199254740993",
                                        "00",
                                        "NaN",
                                        "2.0",
                                        "",
                                        "12345678901234567890",
                                        "3",
                                        "null"};
  size_t n = 0, i = below(seed, sizeof numbers / sizeof *numbers);
  long at = some_run(text, seed, true, &n);
  (void)misspelt;
  if (at >= 0)
    replace(text, (size_t)at, n, numbers[i], strlen(numbers[i]));
}

/* Two letters of a name change places, one is lost, or one is doubled. */
static void misspell(hec_text *text, uint64_t *seed, char misspelt[64]) {
  size_t n = 0;
  long at = some_run(text, seed, false, &n);
  if (at < 0)
    return;
  size_t i = (size_t)at + below(seed, n - 1), how = below(seed, 3);
  char pair[2] = {text->data[i + 1], text->data[i]};
  replace(text, i, how == 1 ? 1 : 2, pair + (how == 1), how == 1 ? 0 : 2);
  n -= how == 1;
  if (how == 2) {
    replace(text, i, 0, pair, 1);
    n++;
  }
  bool text_key = text->data[at > 0 ? at - 1 : 0] == '"' && text->data[(size_t)at + n] == '"' &&
                  text->data[(size_t)at + n + 1] == ':';
  const char *feed = memchr(text->data, '\n', text->length);
  bool column = text->data[0] != '{' && (unsigned char)text->data[0] < 0x80 && feed && text->data + at < feed;
  if ((text_key || column) && n < 40)
    (void)snprintf(misspelt, 64, "%.*s", (int)n, text->data + at);
}

static const damage damages[] = {{"flip a bit", flip},
                                 {"set a byte", set},
                                 {"cut bytes", cut_some},
                                 {"repeat bytes", repeat_some},
                                 {"truncate", truncate_it},
                                 {"cut a line", cut_line},
                                 {"repeat a line", repeat_line},
                                 {"change the order of lines", change_order},
                                 {"change a number", change_number},
                                 {"change a number", change_number},
                                 {"misspell", misspell}};

/* ---- judgement ---- */

typedef struct {
  int refused, same, numbers, shape;
} account;

static int64_t cells_that_differ(const outcome *a, const outcome *b) {
  int64_t n = 0;
  const uint32_t *x = (const uint32_t *)(const void *)a->cells.data, *y = (const uint32_t *)(const void *)b->cells.data;
  for (int64_t i = 0; i < a->n_cells; i++)
    n += x[i] != y[i];
  return n;
}

static bool same_shape(const outcome *a, const outcome *b) {
  return a->n_layers == b->n_layers && a->n_sources == b->n_sources && a->n_experts == b->n_experts &&
         a->top_k == b->top_k && a->n_records == b->n_records && a->steps.length == b->steps.length &&
         memcmp(a->steps.data, b->steps.data, a->steps.length) == 0;
}

static void list(const fixture *f, int seed, const char *how, const char *class, const outcome *o,
                 const hec_text *before, const hec_text *after) {
  size_t from = 0, n = before->length < after->length ? before->length : after->length;
  if (!getenv("HECATE_MUTANTS"))
    return;
  while (from < n && before->data[from] == after->data[from])
    from++;
  size_t at = from > 24 ? from - 24 : 0;
  printf("%s %d: %s: %s\n", f->format->name, seed, how, class);
  const hec_text *texts[] = {before, after};
  for (int k = 0; k < 2; k++) {
    printf(k == 0 ? "  was: " : "  is:  ");
    for (size_t i = at; i < texts[k]->length && i < at + 72; i++)
      printf(isprint((unsigned char)texts[k]->data[i]) ? "%c" : "\\x%02x", (unsigned char)texts[k]->data[i]);
    printf("\n");
  }
  printf("  %d layers %d sources %d experts %" PRId64 " records; %s\n", (int)o->n_layers, (int)o->n_sources,
         (int)o->n_experts, o->n_records, o->notes.data);
}

static void judge(const fixture *f, const outcome *whole, uint64_t seed, account *all) {
  uint64_t random = seed + 1;
  char misspelt[64] = "";
  int changed = (int)hec_test_below(&random, (uint64_t)f->n_files), n = hec_test_below(&random, 4) == 0 ? 2 : 1;
  HEC_SCOPED(hec_text) mutant = {0};
  const damage *d = NULL;
  hec_text_add_bytes(&mutant, f->file[changed].data, f->file[changed].length);
  for (int i = 0; i < n && mutant.length > 8; i++) {
    d = &damages[hec_test_below(&random, sizeof damages / sizeof *damages)];
    d->apply(&mutant, &random, n == 1 ? misspelt : (char[64]){""});
  }
  outcome o = import(f, changed, &mutant);
  bool same_bytes =
      mutant.length == f->file[changed].length &&
      memcmp(mutant.data, f->file[changed].data, mutant.length) == 0; /* two equal letters change places */
  const char *class = NULL;
  if (!o.accepted) {
    all->refused++;
    ck_assert_msg(strncmp(hec_last_error(), f->path[0], strlen(HEC_SOURCE_DIR)) == 0,
                  "%s %" PRIu64 ": no file in \"%s\"", f->format->name, seed, hec_last_error());
  } else if (!same_shape(whole, &o)) {
    all->shape++;
    class = "another shape";
  } else if (cells_that_differ(whole, &o) > 0) {
    all->numbers++;
    class = "other numbers";
  } else {
    all->same++;
    class = "the same";
  }
  bool asked = strcmp(f->format->name, "json-routed-experts") != 0 || strstr(misspelt, "experts"); /* its only key */
  if (o.accepted && misspelt[0] && asked && !same_bytes && strcmp(o.notes.data, whole->notes.data) == 0)
    ck_abort_msg("%s %" PRIu64 ": \"%s\" was passed over: %s", f->format->name, seed, misspelt, o.notes.data);
  if (class)
    list(f, (int)seed, n > 1 ? "several" : d->name, class, &o, &f->file[changed], &mutant);
  free_outcome(&o);
}

HEC_TEST_TABLE(damaged_files, hec_importers) {
  static fixture f;
  account all = {0};
  int n = hec_test_cases(1600);
  read_fixture(&f, hec_importers[_i]);
  outcome whole = import(&f, -1, NULL);
  ck_assert_msg(whole.accepted, "%s", hec_last_error());
  for (int seed = 0; seed < n; seed++)
    judge(&f, &whole, (uint64_t)seed, &all);
  printf("%-28s %d mutants: %d refused, %d the same, %d other numbers, %d another shape\n", f.format->name, n,
         all.refused, all.same, all.numbers, all.shape);
  ck_assert_int_gt(all.refused, n / 10);
  free_outcome(&whole);
  for (int i = 0; i < f.n_files; i++)
    hec_text_free(&f.file[i]);
}
