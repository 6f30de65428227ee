/* Reads, predicts and sums up published runs: see training.h. */
#include "validate/training/training.h"

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
  if (strstr(text, "step time") || strstr(text, "iteration time"))
    return strstr(text, "ms") ? STEP_MS : STEP_S;
  if (strstr(text, "tokens/s")) /* "tokens/s" alone is the job's */
    return strstr(text, "GPU") || strstr(text, "gpu") || strstr(text, "device") ? TOKENS_GPU : TOKENS_ALL;
  return strstr(text, "FLOP/s") || strstr(text, "FLOPS") ? TFLOPS : strstr(text, "MFU") ? MFU : N_METRICS;
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

/* As if nothing of its recipe but the precision were known. */
static double default_error(const hec_training_case *c) {
  hec_training plain = c->set_up;
  hec_training_result result;
  plain.recipe = hec_recipe_default();
  plain.recipe.precision = c->set_up.recipe.precision;
  plain.recipe.fabric = c->set_up.recipe.fabric;
  const hec_training_job job = {.training = &plain};
  return hec_training_run(&job, &result) == HEC_OK ? (1 + c->error) * result.step_s / c->result.step_s - 1 : NAN;
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
  c->default_error = default_error(c);
}

/* ---- Rows ---- */

typedef struct {
  hec_training_rules rules;
  hec_training_table *table;
} reader;

static hec_status read_row(const hec_case_file *csv, void *context) {
  reader *r = context;
  hec_training_table *table = r->table;
  HEC_RESERVE(table->cases, table->capacity, table->n + 1);
  hec_training_case *c = &table->cases[table->n++];
  *c = (hec_training_case){.line = (int32_t)csv->csv.line};
  const struct {
    const char *name, **to;
  } texts[] = {{"id", &c->id},         {"model", &c->model}, {"gpu_type", &c->gpu},
               {"metric", &c->metric}, {"notes", &c->notes}, {"source", &c->source}};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    *texts[i].to = hec_case_file_text(csv, texts[i].name);
  c->measured = number_of(hec_case_file_text(csv, "value"));
  if (c->measured <= 0 || metric_of(c->metric) == N_METRICS) {
    c->why_not = c->measured <= 0 ? "value: expected a number above 0" : "metric: none that a step time gives";
    return HEC_OK;
  }
  HEC_TRY(hec_training_rules_apply(&r->rules, csv, c));
  c->set_up.constants = table->constants;
  if (!c->why_not)
    predict(c, &table->arena);
  return HEC_OK;
}

hec_status hec_training_judge(const char *path, const hec_step_constants *constants, hec_training_table *table) {
  static const char *const columns[] = {"id", "model", "gpus", "gpu_type", "metric", "value", "notes", "source", NULL};
  reader r = {.table = table};
  *table = (hec_training_table){.file = path, .constants = constants ? *constants : hec_step_constants_fitted};
  HEC_TRY(hec_training_rules_open(&table->arena, &r.rules));
  hec_status status = hec_case_file_each(path, &table->arena, columns, "docs/layouts.md", read_row, &r);
  hec_training_rules_close(&r.rules);
  if (status == HEC_OK)
    hec_training_sum_up(table);
  return status;
}

void hec_training_table_free(hec_training_table *table) {
  free(table->cases);
  hec_arena_free(&table->arena);
}

/* ---- Report ---- */

/* For people: without what stands in parentheses or behind a semicolon. Of a file at a commit the repository's and the file's
 * name: owners, commits and folders would leave no room for what differs. */
static const char *short_source(hec_doc *doc, const char *source) {
  enum { CHARACTERS = 50 };
  static const char site[] = "https://github.com/";
  source += strncmp(source, site, strlen(site)) == 0 ? strlen(site) : 0;
  size_t n = strcspn(source, "(;"), name = strcspn(source, "@ ");
  while (n > 0 && source[n - 1] == ' ')
    n--;
  if (source[name] != '@')
    return hec_doc_text(doc, "%.*s", (int)(n < CHARACTERS ? n : CHARACTERS), source);
  size_t commit = strcspn(source, " "), file = n, from = name;
  while (file > commit && !strchr("/ ", source[file - 1]))
    file--;
  while (from > 0 && source[from - 1] != '/')
    from--;
  return hec_doc_text(doc, "%.*s%s%.*s", (int)(name - from), source + from, file < n ? " " : "", (int)(n - file),
                      source + file);
}

/* Each reason once, with its number of rows. */
static void say_not_expressed(const hec_training_table *table, hec_doc *doc) {
  enum { REASONS = 5 };
  const char *reason[REASONS] = {0};
  int32_t count[REASONS] = {0}, n = 0, left = table->n - table->n_predicted;
  HEC_SCOPED(hec_text) words = {0};
  for (int32_t i = 0; i < table->n; i++) {
    int32_t r = 0;
    if (!table->cases[i].why_not)
      continue;
    while (r < n && strcmp(reason[r], table->cases[i].why_not) != 0)
      r++;
    if (r == REASONS)
      continue;
    n = r == n ? n + 1 : n;
    reason[r] = table->cases[i].why_not;
    count[r]++;
  }
  hec_text_add(&words, "Not expressed:");
  for (int32_t r = 0; r < n; left -= count[r++])
    hec_text_printf(&words, "%s %s (%d)", r ? ";" : "", reason[r], (int)count[r]);
  if (left > 0)
    hec_text_printf(&words, "; others (%d)", (int)left);
  hec_text_add(&words, ". --details lists each row.");
  if (n > 0)
    hec_doc_note(doc, "%s", words.data);
}

static void family_rows(const hec_training_table *table, hec_doc *doc) {
  hec_doc_table(doc, "families",
                "source | model | GPU | rows | median | 90th percentile | signed | rank correlation | anchored");
  for (int32_t f = 0; f < table->n_families; f++) {
    const hec_training_family *a = &table->families[f];
    HEC_ROW(doc, HEC_CELL(short_source(doc, a->source)), HEC_KEEP("source", a->source),
            HEC_SHOW("model", HEC_AS_IS, a->model), HEC_SHOW("gpu", HEC_AS_IS, a->gpu),
            HEC_SHOW("rows", HEC_AS_IS, a->rows), HEC_SHOW("median", HEC_PERCENT, a->rows ? a->error.median : NAN),
            HEC_SHOW("p90", HEC_PERCENT, a->rows ? a->error.p90 : NAN),
            HEC_SHOW("signed_median", HEC_SIGNED, a->rows ? a->error.bias : NAN),
            HEC_SHOW("rank_correlation", HEC_FIXED2, a->rank), HEC_SHOW("anchored_median", HEC_PERCENT, a->anchored),
            HEC_KEEP("anchored_p90", a->anchored_p90));
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
              HEC_SHOW("predicted", HEC_FIXED2, c->predicted), HEC_SHOW("step_error", HEC_SIGNED, c->error),
              HEC_KEEP("default_error", c->default_error), HEC_KEEP("host_share", c->result.host_s / c->result.step_s),
              HEC_KEEP("step_s", c->result.step_s), HEC_KEEP("bubble_s", c->result.bubble_s),
              HEC_KEEP("dispatch_s", c->result.dispatch_s), HEC_KEEP("tensor_s", c->result.tensor_s),
              HEC_KEEP("data_s", c->result.data_s), HEC_KEEP("optimizer_s", c->result.optimizer_s),
              HEC_KEEP("measured_gib", hec_training_gib_measured(c->notes)),
              HEC_KEEP("predicted_gib", hec_training_gib_predicted(c)));
  }
  hec_doc_end(doc);
}

void hec_training_report(const void *of, hec_doc *doc) {
  const hec_training_table *table = of;
  hec_doc_note(doc, "# Published training runs: predicted step time over measured");
  if (table->n_predicted > 0)
    hec_doc_note(doc, "%d of %d rows can be expressed. All of them: median error %.1f %%, 90th percentile %.1f %%.",
                 (int)table->n_predicted, (int)table->n, 100 * table->error.median, 100 * table->error.p90);
  else
    hec_doc_note(doc, "None of %d rows can be expressed.", (int)table->n);
  say_not_expressed(table, doc);
  const hec_step_constants *k = &table->constants;
  hec_doc_note(doc,
               "Global constants: in_step %.3f, nic %.3f, hidden %.2f, host %.1f ms, overlapped %.2f. None is of one "
               "model, GPU or source. A sixth is of one class of network: on EFA the host takes %.2f times as long.",
               k->in_step, k->nic, k->hidden, 1e3 * k->host_s, k->overlapped, hec_step_fabric_host(HEC_FABRIC_EFA));
  if (table->fitted_part)
    hec_doc_note(doc, "The first three were fitted just now to the %d rows whose id contains \"%s\".",
                 (int)table->fitted_rows, table->fitted_part);
  HEC_ADD(doc, HEC_OBJECT("constants", HEC_KEEP("in_step", k->in_step), HEC_KEEP("nic", k->nic),
                          HEC_KEEP("hidden", k->hidden), HEC_KEEP("host_s", k->host_s),
                          HEC_KEEP("overlapped", k->overlapped)));
  if (table->n_anchored > 0)
    hec_doc_note(doc,
                 "Anchored: one factor from one run of a family predicts the family's other runs of the same recipe. "
                 "Median over %d families: %.1f %%.",
                 (int)table->n_anchored, 100 * table->anchored);
  family_rows(table, doc);
  hec_training_bands_report(table, doc);
  hec_training_memory_report(table->cases, table->n, doc);
  case_rows(table, doc);
  if (table->imbalance)
    hec_imbalance_report(table->imbalance, doc);
}
