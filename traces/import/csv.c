/* Lines are cut in the buffer itself: a field is a pointer into it. The buffer holds a line, at most 1 MiB. Fields are
 * a few bytes long, so bytes are looked at one by one: a call of strspn or strcspn takes longer than the field. */
#include "traces/import/csv.h"

#include "runtime/base/arena.h"
#include "runtime/base/nearest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- lines ---- */

static void reserve(hec_csv *csv, size_t capacity) {
  HEC_RESERVE(csv->buffer, csv->allocated, capacity + HEC_DIGITS_AHEAD);
  csv->capacity = capacity;
}

static hec_status fill(hec_csv *csv) {
  size_t got = 0;
  memmove(csv->buffer, csv->buffer + csv->at, csv->end - csv->at);
  csv->end -= csv->at;
  csv->at = 0;
  if (csv->end + 1 >= csv->capacity) {
    if (csv->capacity >= HEC_CSV_LINE_MAX)
      return hec_import_fail(csv->file, csv->line + 1, "line", "expected at most %d bytes, found more",
                             HEC_CSV_LINE_MAX);
    reserve(csv, 2 * csv->capacity);
  }
  HEC_TRY(csv->source->read(csv->source, csv->buffer + csv->end, csv->capacity - csv->end - 1, &got));
  csv->end += got;
  csv->ended = got == 0;
  memset(csv->buffer + csv->end, 0, HEC_DIGITS_AHEAD);
  csv->zero = strlen(csv->buffer);
  return HEC_OK;
}

/* The next line without its end, zero-terminated; NULL at the end of the file. */
static hec_status read_line(hec_csv *csv, char **line) {
  size_t looked = csv->at;
  *line = NULL;
  for (;;) {
    char *feed = looked < csv->end ? memchr(csv->buffer + looked, '\n', csv->end - looked) : NULL;
    if (!feed && !csv->ended) {
      looked = csv->end - csv->at;
      HEC_TRY(fill(csv));
      continue;
    }
    if (!feed && csv->at == csv->end)
      return HEC_OK;
    if (!feed && csv->file->job) /* a file that was cut may end so, and the last number with it */
      hec_import_assume(csv->file->job, "the last line of %.200s is whole, though no line end is behind it",
                        csv->file->input->path);
    size_t end = feed ? (size_t)(feed - csv->buffer) : csv->end;
    *line = csv->buffer + csv->at;
    csv->line++;
    if (csv->zero < end)
      return hec_import_fail(csv->file, csv->line, "line", "expected text, found a zero byte");
    csv->buffer[end] = 0;
    if (end > csv->at && csv->buffer[end - 1] == '\r')
      csv->buffer[end - 1] = 0;
    csv->at = end + (end < csv->end);
    return HEC_OK;
  }
}

static char *pass_blanks(char *p) {
  while (*p == ' ' || *p == '\t')
    p++;
  return p;
}

/* A quoted field from behind its first quote; returns what is behind it, NULL when the closing quote is missing. */
static char *cut_quoted(char *from) {
  for (char *to = from;;) {
    char *quote = strchr(from, '"');
    if (!quote)
      return NULL;
    size_t n = (size_t)(quote - from);
    if (to < from) /* doubled quotes have become one */
      memmove(to, from, n);
    to += n;
    if (quote[1] != '"') {
      *to = 0;
      return quote + 1;
    }
    *to++ = '"';
    from = quote + 2;
  }
}

static hec_status cut_fields(hec_csv *csv, char *p) {
  for (csv->n_fields = 0;;) {
    if (csv->n_fields == HEC_CSV_FIELDS)
      return hec_import_fail(csv->file, csv->line, "line", "expected at most %d fields, found more", HEC_CSV_FIELDS);
    p = pass_blanks(p);
    bool quoted = *p == '"';
    p += quoted;
    csv->field[csv->n_fields++] = p;
    char *next = p, *end = NULL; /* end: of a field without quotes */
    if (quoted) {
      next = cut_quoted(p);
      next = next ? pass_blanks(next) : NULL;
      if (!next || (*next && *next != ','))
        return hec_import_fail(csv->file, csv->line, "line", "expected a comma behind a quoted field, found none");
    } else {
      while (*next && *next != ',')
        next++;
      for (end = next; end > p && (end[-1] == ' ' || end[-1] == '\t');)
        end--;
    }
    bool last = *next == 0;
    if (end)
      *end = 0;
    if (last)
      return HEC_OK;
    p = next + 1;
  }
}

hec_status hec_csv_next(hec_csv *csv, bool *more) {
  char *line = NULL;
  do
    HEC_TRY(read_line(csv, &line));
  while (line && *pass_blanks(line) == 0);
  *more = line != NULL;
  if (!line)
    return HEC_OK;
  HEC_TRY(cut_fields(csv, line));
  if (csv->n_columns > 0 && csv->n_fields != csv->n_columns)
    return hec_import_fail(csv->file, csv->line, "line", "expected %d fields, found %d", csv->n_columns, csv->n_fields);
  return HEC_OK;
}

hec_status hec_csv_open(hec_csv *csv, const hec_import_file *file) {
  bool more = false;
  *csv = (hec_csv){.file = file};
  HEC_TRY(hec_import_source(file->input, &csv->source));
  reserve(csv, 1 << 14);
  HEC_TRY(fill(csv));
  if (csv->end >= 3 && memcmp(csv->buffer, "\xef\xbb\xbf", 3) == 0)
    csv->at = 3; /* byte order mark */
  HEC_TRY(hec_csv_next(csv, &more));
  if (!more)
    return hec_import_fail(file, 1, "line", "expected the names of columns, found the end of the file");
  for (int i = 0; i < csv->n_fields; i++)
    hec_text_add_bytes(&csv->names, csv->field[i], strlen(csv->field[i]) + 1);
  csv->n_columns = csv->n_fields;
  return HEC_OK;
}

void hec_csv_close(hec_csv *csv) {
  if (csv->source)
    csv->source->close(csv->source);
  free(csv->buffer);
  hec_text_free(&csv->names);
}

/* ---- fields ---- */

const char *hec_csv_name(const hec_csv *csv, int column) {
  const char *name = csv->names.data;
  for (int i = 0; i < column; i++)
    name += strlen(name) + 1;
  return name;
}

/* Is `name` one of "a|b|c"? */
static bool is_one_of(const char *name, size_t n, const char *names) {
  for (const char *p = names;; p++) {
    size_t m = strcspn(p, "|");
    if (m == n && strncasecmp(p, name, n) == 0)
      return true;
    p += m;
    if (!*p)
      return false;
  }
}

hec_status hec_csv_find(hec_csv *csv, const char *names, int *column) {
  *column = -1;
  HEC_ASSERT(csv->n_wanted < HEC_CSV_NAMES);
  csv->wanted[csv->n_wanted++] = names;
  for (int i = 0; i < csv->n_columns; i++) {
    const char *name = hec_csv_name(csv, i);
    if (!is_one_of(name, strlen(name), names))
      continue;
    if (*column >= 0)
      return hec_import_fail(csv->file, 1, name, "expected one column of %s, found %s too", names,
                             hec_csv_name(csv, *column));
    *column = i;
    csv->used[i] = true;
  }
  return HEC_OK;
}

bool hec_csv_add_near(const hec_csv *csv, const char *names, hec_text *words) {
  for (int i = 0; i < csv->n_columns; i++) {
    hec_nearest_search search = {.word = hec_csv_name(csv, i)};
    char known[8][32]; /* of "a|b|c" */
    const char *rest = names;
    for (int k = 0; k < 8 && *rest && !csv->used[i]; k++) {
      size_t n = strcspn(rest, "|");
      (void)snprintf(known[k], sizeof known[k], "%.*s", (int)n, rest);
      hec_nearest_offer(&search, known[k]);
      rest += n + (rest[n] == '|');
    }
    if (!search.nearest)
      continue;
    hec_text_printf(words, ", but \"");
    hec_text_add_plain(words, search.word);
    hec_text_add(words, "\"");
    hec_nearest_hint(&search, words);
    return true;
  }
  return false;
}

hec_status hec_csv_want(hec_csv *csv, const char *names, int *column) {
  HEC_SCOPED(hec_text) hint = {0};
  char name[64];
  HEC_TRY(hec_csv_find(csv, names, column));
  if (*column >= 0)
    return HEC_OK;
  (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(names, "|"), names);
  hec_text_add(&hint, "");
  if (csv->n_columns == 1 && strchr(hec_csv_name(csv, 0), ';'))
    hec_text_add(&hint, "; fields are separated by semicolons, commas are read: tr ';' , <FILE >FILE.csv");
  else
    (void)hec_csv_add_near(csv, names, &hint);
  return hec_import_fail(csv->file, 1, name, "expected a column of this name, found none%s", hint.data);
}

hec_status hec_csv_fail(const hec_csv *csv, int column, const char *expected) {
  char found[40];
  size_t n = 0;
  for (const char *p = csv->field[column]; *p && n < sizeof found - 1; p++)
    found[n++] = (char)((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f ? '?' : *p);
  found[n] = 0;
  return hec_import_fail(csv->file, csv->line, hec_csv_name(csv, column), "expected %s, found \"%s\"", expected, found);
}

/* Nothing, or zeros behind a point. */
static bool is_rest(const char *p) {
  size_t zeros = *p == '.' ? strspn(p + 1, "0") : 0;
  return *p == 0 || (zeros > 0 && p[1 + zeros] == 0);
}

hec_status hec_csv_integer(const hec_csv *csv, int column, int64_t max, int64_t *value) {
  const char *p = csv->field[column];
  char expected[64];
  uint32_t small = 0;
  unsigned n = hec_digits_short(p, &small);
  int64_t v = small;
  if (n == 0) /* long, or begins with 0, or no number */
    for (v = 0; n < 18 && p[n] >= '0' && p[n] <= '9'; n++)
      v = v * 10 + (p[n] - '0');
  if (n > 0 && is_rest(p + n) && v <= max) {
    *value = v;
    return HEC_OK;
  }
  (void)snprintf(expected, sizeof expected, "a whole number from 0 to %" PRId64, max);
  return hec_csv_fail(csv, column, expected);
}

bool hec_csv_head_has(const char *head, size_t n, const char *names) {
  const char *p = head, *end = memchr(head, '\n', n);
  end = end ? end : head + n;
  p += end - p >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
  while (p < end) {
    const char *comma = memchr(p, ',', (size_t)(end - p)), *next = comma ? comma : end, *last = next;
    while (p < next && strchr(" \t\"", *p))
      p++;
    while (last > p && strchr(" \t\"\r", last[-1]))
      last--;
    if (is_one_of(p, (size_t)(last - p), names))
      return true;
    p = next + 1;
  }
  return false;
}

bool hec_csv_head_has_all(const char *head, size_t n, const char *const *columns) {
  while (*columns && hec_csv_head_has(head, n, *columns))
    columns++;
  return *columns == NULL;
}

void hec_csv_sort(void *lines, size_t n, size_t bytes, int (*compare)(const void *, const void *)) {
  const char *line = lines;
  size_t i = 1;
  while (i < n && compare(line + (i - 1) * bytes, line + i * bytes) < 0)
    i++;
  if (i < n)
    qsort(lines, n, bytes, compare);
}
