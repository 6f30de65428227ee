/* Prices every row of the tables with the preset of its GPU, and forms the errors per kind and GPU. Rank correlation is
 * Spearman's (GSL): does a longer prediction mean a longer measurement? O(rows log rows). */
#include "validate/device/judge.h"

#include "validate/stats.h"

#include <gsl/gsl_statistics_double.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS_MAX = 64, NAME_MAX_LENGTH = 63 };

typedef struct {
  int32_t n;
  const char *name[GPUS_MAX];
  bool known[GPUS_MAX];
  hec_gpu gpu[GPUS_MAX];
} gpus;

/* The preset for a name in the tables: itself, or what is before the first '_' ("h200_sxm"). */
static hec_status gpu_of(gpus *all, const char *name, const char *sister, hec_arena *arena, const hec_gpu **gpu) {
  char head[NAME_MAX_LENGTH + 1] = "";
  int32_t i = 0;
  while (i < all->n && strcmp(all->name[i], name) != 0)
    i++;
  *gpu = NULL;
  if (i == GPUS_MAX)
    return HEC_OK;
  if (i == all->n) {
    size_t length = strcspn(name, "_");
    all->name[all->n++] = name;
    if (length <= NAME_MAX_LENGTH)
      memcpy(head, name, length);
    const char *preset = hec_gpu_known(name) ? name : head;
    all->known[i] = hec_gpu_known(preset);
    if (all->known[i])
      HEC_TRY(hec_gpu_load(preset, arena, &all->gpu[i]));
    if (all->known[i] && sister)
      HEC_TRY(hec_gpu_scale(sister, arena, &all->gpu[i]));
  }
  *gpu = all->known[i] ? &all->gpu[i] : NULL;
  return HEC_OK;
}

static hec_status price(hec_judgement *judgement, const char *sister) {
  gpus *all = HEC_NEW(&judgement->arena, gpus, 1);
  for (int32_t i = 0; i < judgement->cases.n; i++) {
    hec_case *c = &judgement->cases.cases[i];
    const hec_gpu *gpu;
    HEC_TRY(gpu_of(all, c->gpu, sister, &judgement->arena, &gpu));
    if (!gpu && !c->why_not)
      c->why_not = hec_arena_printf(&judgement->arena, "gpu: no preset \"%.60s\" (hecate-sim --list devices)", c->gpu);
    if (gpu)
      hec_case_predict(gpu, &judgement->arena, c);
    if (!c->why_not && !(c->predicted_s > 0 && isfinite(c->predicted_s)))
      c->why_not = "the law gives no finite time above 0 for this size";
    judgement->n_not += c->why_not != NULL;
  }
  return HEC_OK;
}

/* Rows in order of kind, GPU, place in the tables. */
static int by_kind(const void *a, const void *b) {
  const hec_case *x = *(const hec_case *const *)a, *y = *(const hec_case *const *)b;
  int kind = strcmp(x->kind, y->kind), gpu = strcmp(x->gpu, y->gpu);
  return kind ? kind : gpu ? gpu : (x > y) - (x < y);
}

static hec_judged_kind judge(const hec_case *const *rows, int32_t n, hec_arena *scratch) {
  double *predicted = HEC_NEW(scratch, double, n), *measured = HEC_NEW(scratch, double, n),
         *room = HEC_NEW(scratch, double, 2 * n);
  for (int32_t i = 0; i < n; i++) {
    predicted[i] = rows[i]->predicted_s;
    measured[i] = rows[i]->measured_s;
  }
  hec_error error = hec_error_of(predicted, measured, n);
  double correlation = n > 1 ? gsl_stats_spearman(predicted, 1, measured, 1, (size_t)n, room) : 1;
  return (hec_judged_kind){.kind = rows[0]->kind,
                           .gpu = rows[0]->gpu,
                           .rows = n,
                           .median = error.median,
                           .p90 = error.p90,
                           .signed_median = error.bias,
                           .correlation = isfinite(correlation) ? correlation : 1};
}

static void find_kinds(hec_judgement *judgement) {
  hec_arena scratch = {0};
  const hec_case **rows = hec_malloc((size_t)judgement->cases.n + 1, sizeof *rows);
  int32_t n = 0;
  for (int32_t i = 0; i < judgement->cases.n; i++)
    if (!judgement->cases.cases[i].why_not)
      rows[n++] = &judgement->cases.cases[i];
  qsort(rows, (size_t)n, sizeof *rows, by_kind);
  judgement->kinds = HEC_NEW(&judgement->arena, hec_judged_kind, n + 1);
  for (int32_t first = 0, end; first < n; first = end) {
    for (end = first + 1;
         end < n && strcmp(rows[end]->kind, rows[first]->kind) == 0 && strcmp(rows[end]->gpu, rows[first]->gpu) == 0;)
      end++;
    judgement->kinds[judgement->n_kinds++] = judge(rows + first, end - first, &scratch);
    hec_arena_free(&scratch);
  }
  free(rows);
}

hec_status hec_judge_folder(const char *folder, const char *sister, hec_judgement *judgement) {
  *judgement = (hec_judgement){.n_kinds = 0};
  HEC_TRY(hec_cases_read(folder, &judgement->cases));
  HEC_TRY(price(judgement, sister));
  find_kinds(judgement);
  return HEC_OK;
}

void hec_judgement_free(hec_judgement *judgement) {
  hec_cases_free(&judgement->cases);
  hec_arena_free(&judgement->arena);
}

/* ---- Output ---- */

typedef struct {
  const char *file, *reason;
  int32_t rows, first_line;
} left_out;

/* The reasons, each with its number of rows, in the order in which they are met. */
static void list_reasons(const hec_judgement *judgement, hec_doc *doc) {
  enum { REASONS_MAX = 256 };
  left_out *found = hec_malloc(REASONS_MAX, sizeof *found);
  int32_t n = 0, further = 0;
  for (int32_t i = 0; i < judgement->cases.n; i++) {
    const hec_case *c = &judgement->cases.cases[i];
    int32_t k = 0;
    if (!c->why_not)
      continue;
    const char *file = hec_case_tables[c->table]->file;
    while (k < n && (strcmp(found[k].reason, c->why_not) != 0 || strcmp(found[k].file, file) != 0))
      k++;
    if (k == REASONS_MAX) {
      further++;
      continue;
    }
    if (k == n)
      found[n++] = (left_out){file, c->why_not, 0, c->line};
    found[k].rows++;
  }
  hec_doc_note(doc, "Not covered: %" PRId32 " of %" PRId32 " rows", judgement->n_not, judgement->cases.n);
  hec_doc_table(doc, NULL, "rows | of | first line | why");
  for (int32_t k = 0; k < n; k++)
    HEC_ROW(doc, HEC_SHOW(NULL, HEC_AS_IS, found[k].rows), HEC_CELL(found[k].file),
            HEC_SHOW(NULL, HEC_AS_IS, found[k].first_line), HEC_CELL(found[k].reason));
  hec_doc_end(doc);
  if (further > 0)
    hec_doc_note(doc, "%" PRId32 " more rows for other reasons (--json has each)", further);
  free(found);
}

void hec_judgement_report(const void *of, hec_doc *doc) {
  const hec_judgement *judgement = of;
  hec_doc_note(doc,
               "Cost laws against published measurements of GPUs. Errors of |predicted / measured - 1|; bias: median "
               "signed error; rank: Spearman's correlation. Nothing is fitted here; a preset's own error on shapes "
               "that its fit did not see: hecate-sim --list devices.");
  hec_doc_table(doc, "kinds", "kind | gpu | rows | median | p90 | bias | rank");
  for (int32_t k = 0; k < judgement->n_kinds; k++) {
    const hec_judged_kind *kind = &judgement->kinds[k];
    HEC_ROW(doc, HEC_SHOW("kind", HEC_AS_IS, kind->kind), HEC_SHOW("gpu", HEC_AS_IS, kind->gpu),
            HEC_SHOW("rows", HEC_AS_IS, kind->rows), HEC_SHOW("median", HEC_PERCENT, kind->median),
            HEC_SHOW("p90", HEC_PERCENT, kind->p90), HEC_SHOW("signed_median", HEC_SIGNED, kind->signed_median),
            HEC_SHOW("rank_correlation", HEC_FIXED, kind->correlation));
  }
  hec_doc_end(doc);
  if (judgement->n_not > 0)
    list_reasons(judgement, doc);
  hec_doc_table(doc, "rows", NULL);
  for (int32_t i = 0; i < judgement->cases.n; i++) {
    const hec_case *c = &judgement->cases.cases[i];
    HEC_ROW(doc, HEC_KEEP("file", hec_case_tables[c->table]->file), HEC_KEEP("line", c->line),
            c->why_not ? HEC_KEEP("why_not", c->why_not) : HEC_KEEP("predicted_s", c->predicted_s));
  }
  hec_doc_end(doc);
}
