/* What an import left out, so that nothing is lost without a word: names with how often, said at the end. A file may have any
 * number of names, so a few are kept and the rest is counted. */
#include "traces/import/job.h"

#include "runtime/base/nearest.h"

#include <inttypes.h>
#include <string.h>

static const struct {
  const char *one, *several, *of; /* of: before its name */
} kinds[HEC_LEFT_KINDS] = {
    {"key", "keys", ""}, {"column", "columns", ""}, {"line", "lines", "of "}, {"request", "requests", "with "}};

void hec_import_leave(hec_import *job, hec_import_left kind, const char *name, const char *const *known, size_t n) {
  hec_import_left_name *entry = NULL;
  char plain[sizeof entry->name];
  job->n_left[kind]++;
  if (job->n_left_names > 0 && job->left[job->last_left].kind == kind &&
      strncmp(job->left[job->last_left].name, name, sizeof plain - 1) == 0) {
    job->left[job->last_left].n++;
    return;
  }
  hec_name_copy(plain, sizeof plain, name);
  hec_make_plain(plain);
  for (size_t i = 0; i < job->n_left_names && !entry; i++)
    if (job->left[i].kind == kind && strcmp(job->left[i].name, plain) == 0)
      entry = &job->left[i];
  if (!entry && job->n_left_names == HEC_LEFT_NAMES)
    return;
  if (!entry) {
    entry = &job->left[job->n_left_names++];
    const char *nearest = hec_nearest(plain, known, n);
    *entry = (hec_import_left_name){.kind = kind};
    memcpy(entry->name, plain, sizeof plain);
    hec_name_copy(entry->nearest, sizeof entry->nearest, nearest ? nearest : "");
  }
  entry->n++;
  job->last_left = (size_t)(entry - job->left);
}

/* keys "mtp_indx" (3, nearest known name: mtp_idx), "x" (1) */
void hec_import_say_left(hec_import *job) {
  for (int kind = 0; kind < HEC_LEFT_KINDS; kind++) {
    HEC_SCOPED(hec_text) words = {0};
    int64_t rest = job->n_left[kind];
    for (size_t i = 0; i < job->n_left_names; i++) {
      const hec_import_left_name *l = &job->left[i];
      if ((int)l->kind != kind)
        continue;
      if (words.length == 0)
        hec_text_printf(&words, "%s %s", job->n_left[kind] > 1 ? kinds[kind].several : kinds[kind].one, kinds[kind].of);
      else
        hec_text_add(&words, ", ");
      hec_text_printf(&words, "\"%s\" (%" PRId64 "%s%s)", l->name, l->n, l->nearest[0] ? ", nearest known name: " : "",
                      l->nearest);
      rest -= l->n;
    }
    if (rest > 0)
      hec_text_printf(&words, "%s%" PRId64 " more", words.length > 0 ? ", " : "", rest);
    if (words.length > 0)
      hec_import_note(job, "left out", words.data);
  }
}

static void add_some(hec_text *words, int64_t n, const char *one, const char *several) {
  if (n > 0)
    hec_text_printf(words, "%s%" PRId64 " %s", words->length > 0 ? ", " : "", n, n > 1 ? several : one);
}

void hec_import_sum_up(hec_import *job, hec_text *line) {
  HEC_SCOPED(hec_text) left = {0};
  int64_t dense = 0;
  for (size_t s = 0; s < job->n_slots; s++)
    dense += job->slots[s].dense;
  for (int kind = HEC_LEFT_KINDS - 1; kind >= 0; kind--)
    add_some(&left, job->n_left[kind], kinds[kind].one, kinds[kind].several);
  add_some(&left, dense, "layer without tokens", "layers without tokens");
  add_some(&left, job->n_empty, "step without tokens", "steps without tokens");
  add_some(&left, job->n_unwanted, "step before --from", "steps before --from");
  add_some(&left, job->n_incomplete, "incomplete step at the end", "incomplete steps at the end");
  bool table = job->n_lines_read > 0;
  add_some(line, table ? job->n_lines_read : job->n_rows_read, table ? "line" : "row of counts (per layer and source)",
           table ? "lines" : "rows of counts (per layer and source)");
  hec_text_printf(line, " in %" PRId64 " step%s; left out: %s", job->n_steps_read, job->n_steps_read == 1 ? "" : "s",
                  left.length > 0 ? left.data : "nothing");
  if (job->stopped)
    hec_text_add(line, ", and all behind --until");
}
