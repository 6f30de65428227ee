/* Groups the clean rows of a device by law and variant and fits each group. Judges it on rows that it did not see, and
 * keeps what is good enough. Repeats (the same work measured with another version or framework) say what no law can
 * beat. */
#include "validate/device/constants.h"

#include "validate/device/fit.h"
#include "validate/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  hec_fit_rows rows;
  const void **work;
  double *measured_s;
  uint64_t *shape;
  const hec_case **source; /* [rows.n] */
} group;

static bool counts(const hec_case *c, const char *device) {
  return !c->why_not && c->fit && strcmp(c->gpu, device) == 0;
}

static group gather(const hec_cases *cases, const hec_case *first, const hec_gpu *gpu, hec_arena *arena) {
  group g = {.rows = {.law = hec_cost_law_find(first->law), .sheet = &gpu->sheet}};
  g.work = HEC_NEW(arena, const void *, cases->n);
  g.measured_s = HEC_NEW(arena, double, cases->n);
  g.shape = HEC_NEW(arena, uint64_t, cases->n);
  g.source = HEC_NEW(arena, const hec_case *, cases->n);
  for (int32_t i = 0; i < cases->n; i++) {
    const hec_case *c = &cases->cases[i];
    if (!counts(c, gpu->name) || strcmp(c->law, first->law) != 0 || strcmp(c->variant, first->variant) != 0)
      continue;
    g.work[g.rows.n] = c->work;
    g.measured_s[g.rows.n] = c->measured_s;
    g.shape[g.rows.n] = c->shape;
    g.source[g.rows.n++] = c;
  }
  g.rows.work = g.work;
  g.rows.measured_s = g.measured_s;
  g.rows.shape = g.shape;
  return g;
}

static int by_number(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static int32_t n_different(const uint64_t *values, int32_t n, hec_arena *arena) {
  uint64_t *sorted = HEC_NEW(arena, uint64_t, n);
  int32_t found = n > 0;
  memcpy(sorted, values, (size_t)n * sizeof *sorted);
  qsort(sorted, (size_t)n, sizeof *sorted, by_number);
  for (int32_t i = 1; i < n; i++)
    found += sorted[i] != sorted[i - 1];
  return found;
}

typedef struct {
  uint64_t repeat;
  double measured_s;
  int32_t index;
} repeat_row;

static int by_repeat(const void *a, const void *b) {
  const repeat_row *x = a, *y = b;
  if (x->repeat != y->repeat)
    return x->repeat > y->repeat ? 1 : -1;
  return (x->index > y->index) - (x->index < y->index);
}

/* |a / b - 1| over neighbours of one measurement, one of which at least is the group's. */
static void measure_noise(const hec_cases *cases, const group *g, hec_arena *arena, hec_law_fit *fit) {
  repeat_row *rows = HEC_NEW(arena, repeat_row, cases->n);
  double *ratio = HEC_NEW(arena, double, cases->n), *one = HEC_NEW(arena, double, cases->n);
  int32_t n = 0, n_pairs = 0, table = g->source[0]->table;
  for (int32_t i = 0; i < cases->n; i++)
    if (counts(&cases->cases[i], g->source[0]->gpu) && cases->cases[i].table == table && cases->cases[i].repeat)
      rows[n++] = (repeat_row){cases->cases[i].repeat, cases->cases[i].measured_s, i};
  qsort(rows, (size_t)n, sizeof *rows, by_repeat);
  for (int32_t i = 1; i < n; i++) {
    const hec_case *a = &cases->cases[rows[i - 1].index], *b = &cases->cases[rows[i].index];
    if (rows[i].repeat != rows[i - 1].repeat ||
        (strcmp(a->variant, g->source[0]->variant) != 0 && strcmp(b->variant, g->source[0]->variant) != 0))
      continue;
    one[n_pairs] = 1;
    ratio[n_pairs++] = a->measured_s / b->measured_s;
  }
  fit->noise_median = fit->noise_p90 = -1;
  if (n_pairs < HEC_CONSTANTS_ROWS_MIN)
    return;
  hec_error error = hec_error_of(ratio, one, n_pairs);
  fit->noise_median = error.median;
  fit->noise_p90 = error.p90;
}

static hec_error error_with(const hec_fit_rows *rows, const double *constants, double *predicted_s) {
  for (int32_t i = 0; i < rows->n; i++)
    predicted_s[i] = rows->law->seconds(rows->sheet, constants, rows->work[i]);
  return hec_error_of(predicted_s, rows->measured_s, rows->n);
}

static void ablate(const hec_fit_rows *rows, double *predicted_s, hec_calibrated *result) {
  for (int32_t k = 0; k < rows->law->n_constants; k++) {
    double constants[HEC_LAW_CONSTANTS_MAX];
    result->without_median[k] = result->without_p90[k] = -1;
    if (rows->law->constants[k].off < 0 || (result->fit.assumed >> k & 1) || rows->law == &hec_cost_law_collective)
      continue;
    memcpy(constants, result->fit.constants, sizeof constants);
    constants[k] = rows->law->constants[k].off;
    (void)hec_law_fit_solve(rows, UINT32_C(1) << k, constants);
    hec_error error = error_with(rows, constants, predicted_s);
    result->without_median[k] = error.median;
    result->without_p90[k] = error.p90;
  }
}

static void fit_group(const hec_cases *cases, const group *g, const hec_constants_options *options, hec_arena *arena,
                      hec_calibrated *result) {
  const hec_fit_rows *rows = &g->rows;
  double *predicted_s = HEC_NEW(arena, double, rows->n);
  hec_law_fit *fit = &result->fit;
  *fit =
      (hec_law_fit){.law = rows->law, .variant = g->source[0]->variant, .device = g->source[0]->gpu, .rows = rows->n};
  fit->source = "fitted by hecate-validate calibrate --from to the tables that docs/devices.md names";
  result->n_shapes = n_different(g->shape, rows->n, arena);
  for (int32_t k = 0; k < rows->law->n_constants; k++)
    fit->constants[k] = rows->law->constants[k].start;
  fit->assumed = hec_law_fit_solve(rows, 0, fit->constants);
  hec_error own = error_with(rows, fit->constants, predicted_s);
  result->own_median = own.median;
  result->own_p90 = own.p90;
  hec_law_fit_cross(rows, predicted_s);
  hec_error unseen = hec_error_of(predicted_s, rows->measured_s, rows->n);
  fit->median = unseen.median;
  fit->p90 = unseen.p90;
  measure_noise(cases, g, arena, fit);
  result->kept = unseen.median <= HEC_CONSTANTS_MEDIAN_MAX;
  for (int32_t k = 0; k < HEC_LAW_CONSTANTS_MAX; k++)
    result->without_median[k] = result->without_p90[k] = -1;
  if (options->ablate && result->kept)
    ablate(rows, predicted_s, result);
}

static bool fitted_already(const hec_constants *calibration, const hec_case *c) {
  for (int32_t i = 0; i < calibration->n; i++)
    if (strcmp(calibration->fits[i].fit.law->name, c->law) == 0 &&
        strcmp(calibration->fits[i].fit.variant, c->variant) == 0)
      return true;
  return false;
}

static int32_t place_of(const hec_cost_law *law) {
  int32_t at = 0;
  while (hec_cost_laws[at] != law)
    at++;
  return at;
}

/* By law, then error: the first of a law is its default (hec_gpu_default_fit). */
static int by_error(const void *a, const void *b) {
  const hec_law_fit *x = a, *y = b;
  if (x->law != y->law)
    return place_of(x->law) - place_of(y->law);
  if (x->median < y->median || x->median > y->median)
    return x->median < y->median ? -1 : 1;
  return strcmp(x->variant, y->variant);
}

/* Kept fits become the device's; with one law alone it keeps its other laws' own. */
static void keep(const hec_constants_options *options, hec_constants *calibration) {
  hec_gpu *gpu = &calibration->gpu;
  gpu->n_fits = 0;
  for (int32_t i = 0; i < gpu->n_own && options->law; i++)
    if (strcmp(gpu->fits[i].law->name, options->law) != 0)
      gpu->fits[gpu->n_fits++] = gpu->fits[i];
  for (int32_t i = 0; i < calibration->n; i++)
    if (calibration->fits[i].kept && gpu->n_fits < HEC_GPU_FITS_MAX)
      gpu->fits[gpu->n_fits++] = calibration->fits[i].fit;
  gpu->n_own = gpu->n_fits;
  qsort(gpu->fits, (size_t)gpu->n_fits, sizeof *gpu->fits, by_error);
}

static hec_status fit_all(const hec_cases *cases, const hec_constants_options *options, hec_constants *calibration) {
  hec_arena scratch = {0};
  calibration->fits = HEC_NEW(&calibration->arena, hec_calibrated, HEC_GPU_FITS_MAX);
  for (int32_t i = 0; i < cases->n && calibration->n < HEC_GPU_FITS_MAX; i++) {
    const hec_case *c = &cases->cases[i];
    if (!counts(c, calibration->gpu.name) || (options->law && strcmp(options->law, c->law) != 0) ||
        fitted_already(calibration, c))
      continue;
    group g = gather(cases, c, &calibration->gpu, &scratch);
    if (g.rows.n >= HEC_CONSTANTS_ROWS_MIN) {
      hec_calibrated *result = &calibration->fits[calibration->n++];
      fit_group(cases, &g, options, &scratch, result);
      result->fit.variant = hec_arena_text(&calibration->arena, result->fit.variant);
      result->fit.device = calibration->gpu.name;
    }
    hec_arena_free(&scratch);
  }
  if (calibration->n == 0)
    return hec_fail(HEC_BAD_INPUT, "%s: expected at least %d clean rows of one law with gpu \"%s\", found none",
                    options->folder, HEC_CONSTANTS_ROWS_MIN, calibration->gpu.name);
  return HEC_OK;
}

hec_status hec_constants_run(const hec_constants_options *options, hec_constants *calibration) {
  HEC_SCOPED(hec_cases) cases = {0};
  *calibration = (hec_constants){.n = 0};
  HEC_TRY(hec_gpu_load(options->device, &calibration->arena, &calibration->gpu));
  if (options->law && !hec_cost_law_find(options->law))
    HEC_TRY(hec_fail(HEC_BAD_INPUT, "--law: expected a cost law such as gemm or grouped, found \"%s\"", options->law));
  HEC_TRY(hec_cases_read(options->folder, &cases));
  HEC_TRY(fit_all(&cases, options, calibration));
  keep(options, calibration);
  return HEC_OK;
}

void hec_constants_free(hec_constants *calibration) {
  hec_arena_free(&calibration->arena);
  *calibration = (hec_constants){.n = 0};
}
