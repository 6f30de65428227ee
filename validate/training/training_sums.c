/* What rows of published runs come to: errors by family, the order of its layouts, and what one measured run is worth. */
#include "validate/training/training.h"

#include <math.h>
#include <string.h>

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
  HEC_SCOPED(hec_arena) arena = {0};
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
  return error;
}

/* ---- Anchored ---- */

/* Two metrics of one run: ids that differ in their last part only. */
static bool same_run(const char *a, const char *b) {
  const char *last_a = strrchr(a, '-'), *last_b = strrchr(b, '-');
  return last_a && last_b && last_a - a == last_b - b && strncmp(a, b, (size_t)(last_a - a)) == 0 &&
         strlen(last_a) <= 4 && strlen(last_b) <= 4;
}

static bool same_recipe(const hec_training *a, const hec_training *b) {
  hec_recipe x = a->recipe, y = b->recipe;
  x.stated = y.stated = 0;
  return memcmp(&x, &y, sizeof x) == 0 && a->mtp == b->mtp;
}

double hec_training_left(const hec_training_table *table, int32_t anchor, int32_t row) {
  const hec_training_case *a = &table->cases[anchor], *b = &table->cases[row];
  if (anchor == row || a->family != b->family || a->why_not || b->why_not || same_run(a->id, b->id) ||
      !same_recipe(&a->set_up, &b->set_up))
    return NAN;
  return (1 + b->error) / (1 + a->error) - 1;
}

/* Of all pairs of rows of the family that are other runs of one recipe. O(rows^2). */
static void anchor_family(const hec_training_table *table, int32_t f, hec_training_family *family, double *pair) {
  int32_t n = 0;
  for (int32_t i = 0; i < table->n; i++)
    for (int32_t j = 0; j < table->n; j++) {
      double left = table->cases[i].family == f ? hec_training_left(table, i, j) : NAN;
      if (!isnan(left))
        pair[n++] = fabs(left);
    }
  family->anchored = n > 0 ? hec_median(pair, n) : NAN;
  family->anchored_p90 = n > 0 ? hec_quantile(pair, n, 0.9) : NAN;
}

void hec_training_sum_up(hec_training_table *table) {
  double rank;
  int32_t n = 0;
  table->families = HEC_NEW(&table->arena, hec_training_family, table->n + 1);
  table->n_families = table->n_predicted = 0;
  for (int32_t i = 0; i < table->n; i++) {
    table->cases[i].family = family_of(table, &table->cases[i]);
    table->families[table->cases[i].family].rows += !table->cases[i].why_not;
    table->n_predicted += !table->cases[i].why_not;
  }
  table->error = errors_of(table, -1, &rank);
  double *anchored = HEC_NEW(&table->arena, double, table->n_families + 1),
         *pair = HEC_NEW(&table->arena, double, (int64_t)table->n * table->n + 1);
  for (int32_t f = 0; f < table->n_families; f++) {
    hec_training_family *family = &table->families[f];
    family->error = errors_of(table, f, &family->rank);
    anchor_family(table, f, family, pair);
    if (!isnan(family->anchored))
      anchored[n++] = family->anchored;
  }
  table->n_anchored = n;
  table->anchored = n > 0 ? hec_median(anchored, n) : NAN;
}
