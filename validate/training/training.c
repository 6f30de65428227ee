/* Reads, predicts and sums up published runs: see training.h. */
#include "validate/training/training.h"

#include "validate/training/training_rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- A row's own metric ---- */

/* "3454 (2835)": the first number; "~13", "23,600", "2.77M" as people write them. 0: none. */
static double number_of(const char *text) {
  char plain[64];
  size_t n = 0;
  for (; *text && n + 1 < sizeof plain; text++)
    if (*text != ',' && *text != '~')
      plain[n++] = *text;
  plain[n] = 0;
  const char *end;
  double value;
  if (!hec_number_read(plain, &end, &value) || value <= 0)
    return 0;
  return *end == 'M' ? value * 1e6 : *end == 'K' || *end == 'k' ? value * 1e3 : value;
}

typedef enum { STEP_S, STEP_MS, TOKENS_GPU, TOKENS_ALL, TFLOPS, MFU, N_METRICS } metric;

static metric metric_of(const char *text) {
  if (strstr(text, "step time"))
    return strstr(text, " ms") ? STEP_MS : STEP_S;
  if (strstr(text, "tokens/s"))
    return strstr(text, "all") ? TOKENS_ALL : TOKENS_GPU;
  return strstr(text, "FLOP/s") ? TFLOPS : strstr(text, "MFU") ? MFU : N_METRICS;
}

static double in_metric(metric m, const hec_training_case *c) {
  const hec_training_result *r = &c->result;
  const double value[N_METRICS] = {
      [STEP_S] = r->step_s,
      [STEP_MS] = r->step_s * 1e3,
      [TOKENS_GPU] = r->tokens_per_s_per_gpu,
      [TOKENS_ALL] = r->tokens_per_s_per_gpu * (double)c->set_up.layout.gpus,
      [TFLOPS] = r->model_tflops_per_gpu,
      [MFU] = 100 * r->mfu,
  };
  return value[m];
}

static void predict(hec_training_case *c, hec_arena *arena) {
  metric m = metric_of(c->metric);
  const hec_training_job job = {.training = &c->set_up};
  if (hec_training_run(&job, &c->result) != HEC_OK) {
    c->why_not = hec_arena_text(arena, hec_last_error());
    return;
  }
  c->predicted = in_metric(m, c);
  double ratio = c->predicted / c->measured;
  c->error = (m <= STEP_MS ? ratio : 1 / ratio) - 1;
}

/* ---- Rows ---- */

static hec_status read_row(hec_training_rules *rules, const hec_case_file *csv, const hec_step_constants *constants,
                           hec_training_case *c) {
  hec_arena *arena = rules->arena;
  *c = (hec_training_case){.line = (int32_t)csv->csv.line};
  const struct {
    const char *name, **to;
  } texts[] = {{"id", &c->id},         {"model", &c->model}, {"gpu_type", &c->gpu},
               {"metric", &c->metric}, {"notes", &c->notes}, {"source", &c->source}};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    *texts[i].to = hec_arena_text(arena, hec_case_file_text(csv, texts[i].name));
  c->measured = number_of(hec_case_file_text(csv, "value"));
  if (c->measured <= 0 || metric_of(c->metric) == N_METRICS) {
    c->why_not = c->measured <= 0 ? "value: expected a number above 0" : "metric: none that a step time gives";
    return HEC_OK;
  }
  HEC_TRY(hec_training_rules_apply(rules, csv, c));
  c->set_up.constants = *constants;
  if (!c->why_not)
    predict(c, arena);
  return HEC_OK;
}

static hec_status read_rows(hec_training_rules *rules, hec_case_file *csv, const hec_step_constants *constants,
                            hec_training_table *table) {
  static const char *const needed[] = {"id", "model", "gpus", "gpu_type", "metric", "value", "notes", "source"};
  for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
    if (hec_case_file_column(csv, needed[i]) < 0)
      return hec_fail(HEC_BAD_INPUT, "%s:1: expected a column \"%s\" (the form of this table: docs/layouts.md)",
                      csv->input.path, needed[i]);
  for (bool more = true;;) {
    HEC_TRY(hec_csv_next(&csv->csv, &more));
    if (!more)
      return HEC_OK;
    HEC_RESERVE(table->cases, table->capacity, table->n + 1);
    HEC_TRY(read_row(rules, csv, constants, &table->cases[table->n]));
    table->n++;
  }
}

/* ---- Families ---- */

static int32_t family_of(hec_training_table *table, const hec_training_case *c) {
  for (int32_t f = 0; f < table->n_families; f++) {
    const hec_training_family *family = &table->families[f];
    if (strcmp(family->source, c->source) == 0 && strcmp(family->model, c->model) == 0 &&
        strcmp(family->gpu, c->gpu) == 0)
      return f;
  }
  table->families[table->n_families] = (hec_training_family){.source = c->source, .model = c->model, .gpu = c->gpu};
  return table->n_families++;
}

/* Ranks of n values, ties at their mean. */
static void ranks_of(const double *value, int32_t n, double *rank) {
  for (int32_t i = 0; i < n; i++) {
    int32_t below = 0, same = 0;
    for (int32_t j = 0; j < n; j++) {
      below += value[j] < value[i];
      same += value[j] == value[i];
    }
    rank[i] = (double)below + 0.5 * (double)(same - 1);
  }
}

/* Spearman's: Pearson's of the ranks. NAN where one side puts nothing in order. */
static double rank_correlation(double *a, double *b, int32_t n, hec_arena *arena) {
  double *ra = HEC_NEW(arena, double, n), *rb = HEC_NEW(arena, double, n), mean = 0.5 * (double)(n - 1);
  double aa = 0, bb = 0, ab = 0;
  ranks_of(a, n, ra);
  ranks_of(b, n, rb);
  for (int32_t i = 0; i < n; i++) {
    aa += (ra[i] - mean) * (ra[i] - mean);
    bb += (rb[i] - mean) * (rb[i] - mean);
    ab += (ra[i] - mean) * (rb[i] - mean);
  }
  return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : NAN;
}

/* family -1: all rows. Step time over step time, whatever the metric. */
static hec_error errors_of(const hec_training_table *table, int32_t family, double *rank) {
  hec_arena arena = {0};
  double *predicted = HEC_NEW(&arena, double, table->n + 1), *measured = HEC_NEW(&arena, double, table->n + 1);
  double *speed = HEC_NEW(&arena, double, table->n + 1), *true_speed = HEC_NEW(&arena, double, table->n + 1);
  int32_t n = 0;
  for (int32_t i = 0; i < table->n; i++) {
    const hec_training_case *c = &table->cases[i];
    if (c->why_not || (family >= 0 && c->family != family))
      continue;
    predicted[n] = 1 + c->error;
    measured[n] = 1;
    speed[n] = c->result.tokens_per_s_per_gpu;
    true_speed[n] = speed[n] * (1 + c->error);
    n++;
  }
  hec_error error = n > 0 ? hec_error_of(predicted, measured, n) : (hec_error){0};
  *rank = n >= 3 ? rank_correlation(speed, true_speed, n, &arena) : NAN;
  hec_arena_free(&arena);
  return error;
}

static void sum_up(hec_training_table *table) {
  double rank;
  table->families = HEC_NEW(&table->arena, hec_training_family, table->n + 1);
  for (int32_t i = 0; i < table->n; i++) {
    table->cases[i].family = family_of(table, &table->cases[i]);
    table->families[table->cases[i].family].rows += !table->cases[i].why_not;
    table->n_predicted += !table->cases[i].why_not;
  }
  for (int32_t f = 0; f < table->n_families; f++)
    table->families[f].error = errors_of(table, f, &table->families[f].rank);
  table->error = errors_of(table, -1, &rank);
}

hec_status hec_training_judge(const char *path, const hec_step_constants *constants, hec_training_table *table) {
  hec_case_file csv;
  hec_training_rules rules;
  *table = (hec_training_table){.file = path};
  HEC_TRY(hec_training_rules_open(&table->arena, &rules));
  hec_status status = hec_case_file_open(path, &table->arena, &csv);
  if (status == HEC_OK)
    status = read_rows(&rules, &csv, constants ? constants : &hec_step_constants_fitted, table);
  hec_case_file_close(&csv);
  hec_training_rules_close(&rules);
  if (status == HEC_OK)
    sum_up(table);
  return status;
}

void hec_training_table_free(hec_training_table *table) {
  free(table->cases);
  hec_arena_free(&table->arena);
}

/* ---- Report ---- */

static void family_rows(const hec_training_table *table, hec_doc *doc) {
  hec_doc_table(doc, "families", "source | model | GPU | rows | median | 90th percentile | signed | rank correlation");
  for (int32_t f = 0; f < table->n_families; f++) {
    const hec_training_family *a = &table->families[f];
    HEC_ROW(doc, HEC_SHOW("source", HEC_AS_IS, a->source), HEC_SHOW("model", HEC_AS_IS, a->model),
            HEC_SHOW("gpu", HEC_AS_IS, a->gpu), HEC_SHOW("rows", HEC_AS_IS, a->rows),
            HEC_SHOW("median", HEC_PERCENT, a->rows ? a->error.median : NAN),
            HEC_SHOW("p90", HEC_PERCENT, a->rows ? a->error.p90 : NAN),
            HEC_SHOW("signed_median", HEC_SIGNED, a->rows ? a->error.bias : NAN),
            HEC_SHOW("rank_correlation", HEC_FIXED2, a->rank));
  }
  hec_doc_end(doc);
}

static void case_rows(const hec_training_table *table, hec_doc *doc) {
  hec_doc_table(doc, "rows", table->details ? "id | metric | measured | predicted | step time" : NULL);
  for (int32_t i = 0; i < table->n; i++) {
    const hec_training_case *c = &table->cases[i];
    if (c->why_not)
      HEC_ROW(doc, HEC_SHOW("id", HEC_AS_IS, c->id), HEC_KEEP("line", c->line),
              HEC_SHOW("why_not", HEC_AS_IS, c->why_not));
    else
      HEC_ROW(doc, HEC_SHOW("id", HEC_AS_IS, c->id), HEC_KEEP("line", c->line),
              HEC_SHOW("metric", HEC_AS_IS, c->metric), HEC_SHOW("measured", HEC_FIXED2, c->measured),
              HEC_SHOW("predicted", HEC_FIXED2, c->predicted), HEC_SHOW("step_error", HEC_SIGNED, c->error));
  }
  hec_doc_end(doc);
}

void hec_training_report(const void *of, hec_doc *doc) {
  const hec_training_table *table = of;
  hec_doc_note(doc, "# Published training runs: predicted step time over measured");
  hec_doc_note(doc, "%d of %d rows can be expressed. All of them: median error %.1f %%, 90th percentile %.1f %%.",
               (int)table->n_predicted, (int)table->n, 100 * table->error.median, 100 * table->error.p90);
  family_rows(table, doc);
  case_rows(table, doc);
}
