/* Of a table: columns that are not read, and columns that say of what kind a line is. */
#include "traces/import/csv.h"
#include "traces/import/job.h"

#include <stdio.h>
#include <string.h>

enum { METHOD, MODEL, PHASE };
static const char *const names[] = {"method", "model_name|model", "phase"};
static const char *const options[] = {"--method", "--model"};

static const char *wanted_of(const hec_import_file *file, int kind) {
  const hec_import_options *o = hec_import_options_of(file->job);
  return kind == METHOD ? o->method : kind == MODEL ? o->model : o->phase;
}

/* Files with a column of kinds and without it do not go together, where nobody has chosen. */
static hec_status check_files(hec_import_file *file, int kind, const char *name, bool there) {
  int8_t *known = &file->job->has_kind[kind], found = there ? 1 : -1;
  int8_t before = *known;
  *known = found;
  if (before == 0 || before == found || wanted_of(file, kind))
    return HEC_OK;
  return hec_import_fail(file, 1, name, "expected %s of this name as in the first file, found %s",
                         there ? "no column" : "a column", there ? "one" : "none");
}

hec_status hec_csv_find_kinds(hec_import_file *file, hec_csv *csv, const char *phase) {
  for (int k = 0; k < 3; k++) {
    char name[24];
    HEC_TRY(hec_csv_find(csv, names[k], &csv->kind[k]));
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(names[k], "|"), names[k]);
    HEC_TRY(check_files(file, k, name, csv->kind[k] >= 0));
  }
  if (csv->kind[METHOD] < 0 && wanted_of(file, METHOD))
    return hec_import_fail(file, 1, "method", "expected a column of this name (--method), found none");
  if (csv->kind[PHASE] < 0)
    hec_import_assume_phase(file->job, phase);
  return HEC_OK;
}

/* Nobody has chosen: all lines must be of one kind. */
static hec_status check_line(hec_import_file *file, const hec_csv *csv, int kind) {
  const char *word = csv->field[csv->kind[kind]], *name = hec_csv_name(csv, csv->kind[kind]);
  hec_text *first = &file->words[kind];
  if (!*word)
    return hec_csv_fail(csv, csv->kind[kind], "a name");
  if (first->length == 0)
    hec_text_add(first, word);
  if (strcmp(first->data, word) == 0)
    return HEC_OK;
  return hec_import_fail(file, csv->line, name, "expected %s, as there are several, found %s and %.40s", options[kind],
                         first->data, word);
}

hec_status hec_csv_choose(hec_import_file *file, const hec_csv *csv, bool *take) {
  *take = true;
  for (int k = 0; k < 3 && *take; k++) {
    int column = csv->kind[k];
    const char *wanted = wanted_of(file, k);
    if (column < 0)
      continue;
    *take = !wanted || strcmp(csv->field[column], wanted) == 0;
    if (!*take)
      hec_import_leave(file->job, HEC_LEFT_LINE, csv->field[column], &wanted, 1);
    else if (!wanted && k == PHASE)
      HEC_TRY(hec_import_set_phase(file, csv->line, hec_csv_name(csv, column), csv->field[column]));
    else if (!wanted)
      HEC_TRY(check_line(file, csv, k));
  }
  return HEC_OK;
}

void hec_csv_leave_columns(hec_import_file *file, const hec_csv *csv) {
  char all[HEC_CSV_NAMES * 48] = "";
  const char *known[4 * HEC_CSV_NAMES];
  size_t n = 0, at = 0;
  for (int i = 0; i < csv->n_wanted; i++) { /* "a|b" are two */
    size_t length = strlen(csv->wanted[i]) + 1;
    HEC_ASSERT(at + length <= sizeof all);
    memcpy(all + at, csv->wanted[i], length);
    for (char *p = all + at; p && n < sizeof known / sizeof *known;) {
      known[n++] = p;
      p = strchr(p, '|');
      if (p)
        *p++ = 0;
    }
    at += length;
  }
  for (int i = 0; i < csv->n_columns; i++)
    if (!csv->used[i])
      hec_import_leave(file->job, HEC_LEFT_COLUMN, hec_csv_name(csv, i), known, n);
}
