/* See the header. Percentile and basic intervals: Davison and Hinkley, Bootstrap Methods and their Application (1997),
 * chapter 5. Random numbers: splitmix64 (Steele, Lea, Flood, OOPSLA 2014), so that draws are the same everywhere.
 * O(draws * readings) in all. */
#include "validate/resample.h"

#include "runtime/base/quantile.h"

#include <gsl/gsl_sort.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TAIL 0.025
enum { KEPT_MIN = 3 };

static uint64_t next(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static int32_t below(uint64_t *state, int32_t n) {
  return (int32_t)((next(state) >> 32) * (uint64_t)n >> 32);
}

/* ---- Choosing ---- */

void hec_choose_readings(const double *disturbance, int32_t n, double *value) {
  int32_t n_read = 0, n_kept = 0;
  for (int32_t i = 0; i < n; i++) {
    n_read += value[i] > 0;
    n_kept += value[i] > 0 && disturbance[i] <= 1;
  }
  int32_t wanted = (n_read + 1) / 2 > KEPT_MIN ? (n_read + 1) / 2 : KEPT_MIN;
  bool *kept = hec_malloc((size_t)n + 1, sizeof *kept);
  for (int32_t i = 0; i < n; i++)
    kept[i] = value[i] > 0 && disturbance[i] <= 1;
  for (; n_kept < wanted && n_kept < n_read; n_kept++) {
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++)
      if (value[i] > 0 && !kept[i] && (best < 0 || disturbance[i] < disturbance[best]))
        best = i;
    kept[best] = true;
  }
  for (int32_t i = 0; i < n; i++)
    value[i] = kept[i] ? value[i] : 0;
  free(kept);
}

/* ---- Medians ---- */

/* Sorts. */
static double median_of(double *x, int32_t n) {
  gsl_sort(x, 1, (size_t)n);
  return hec_values_quantile(x, n, 0.5);
}

static int32_t collect(const hec_readings *r, int32_t row, const int32_t *rounds, int32_t n, double *out) {
  int32_t n_found = 0;
  for (int32_t k = 0; k < n; k++) {
    double value = r->value[(size_t)row * (size_t)r->n_rounds + (size_t)(rounds ? rounds[k] : k)];
    if (value > 0)
      out[n_found++] = value;
  }
  return n_found;
}

typedef struct {
  const hec_readings *readings;
  hec_medians *out;
  int32_t *ran, *drawn; /* [n_rounds] rounds in which the block has readings; of a draw */
  double *stretch;      /* [n_rows] */
  double *scratch;      /* [n_rounds] */
  uint64_t state;
} drawing;

static void draw_block(drawing *d, int32_t block) {
  const hec_readings *r = d->readings;
  hec_medians *m = d->out;
  int32_t first = r->row_at[block], last = r->row_at[block + 1], n_ran = 0;
  for (int32_t round = 0; round < r->n_rounds; round++) {
    bool any = false;
    for (int32_t row = first; row < last; row++)
      any = any || r->value[(size_t)row * (size_t)r->n_rounds + (size_t)round] > 0;
    if (any)
      d->ran[n_ran++] = round;
  }
  for (int32_t row = first; row < last; row++) {
    int32_t n = collect(r, row, NULL, r->n_rounds, d->scratch);
    m->middle[row] = n > 0 ? median_of(d->scratch, n) : 0;
    m->known[row] = n > 1;
    d->stretch[row] = n > 0 ? 1 + HEC_FEW / ((double)n * n * n) : 1;
  }
  for (int32_t b = 0; b < HEC_DRAWS; b++) {
    for (int32_t k = 0; k < n_ran; k++)
      d->drawn[k] = d->ran[below(&d->state, n_ran)];
    for (int32_t row = first; row < last; row++) {
      double *to = &m->drawn[(size_t)b * (size_t)m->n_rows + (size_t)row];
      int32_t n = collect(r, row, d->drawn, n_ran, d->scratch);
      *to = m->middle[row];
      if (n > 0 && m->known[row])
        *to *= exp(d->stretch[row] * log(median_of(d->scratch, n) / m->middle[row]));
    }
  }
}

void hec_medians_draw(const hec_readings *readings, uint64_t seed, hec_arena *arena, hec_medians *m) {
  int32_t n = readings->row_at[readings->n_blocks], n_rounds = readings->n_rounds;
  *m = (hec_medians){.n_rows = n,
                     .middle = HEC_NEW(arena, double, n),
                     .drawn = HEC_NEW(arena, double, (size_t)n *HEC_DRAWS),
                     .known = HEC_NEW(arena, bool, n)};
  drawing d = {.readings = readings,
               .out = m,
               .ran = HEC_NEW(arena, int32_t, n_rounds),
               .drawn = HEC_NEW(arena, int32_t, n_rounds),
               .stretch = HEC_NEW(arena, double, n),
               .scratch = HEC_NEW(arena, double, n_rounds),
               .state = seed};
  for (int32_t block = 0; block < readings->n_blocks; block++)
    draw_block(&d, block);
}

/* ---- Intervals ---- */

hec_interval hec_interval_of(double estimate, double *drawn, int32_t n) {
  gsl_sort(drawn, 1, (size_t)n);
  int32_t cut = (int32_t)(TAIL * n);
  double low = drawn[cut], high = drawn[n - 1 - cut];
  return (hec_interval){fmin(low, estimate * (estimate / high)), fmax(high, estimate * (estimate / low))};
}

bool hec_medians_level(const hec_medians *m, int32_t first, int32_t last, double *level) {
  int32_t n = 0;
  for (int32_t i = first; i < last; i++)
    n += m->known[i];
  for (int32_t b = 0; b < HEC_DRAWS; b++) {
    double sum = 0;
    for (int32_t i = first; i < last; i++)
      if (m->known[i])
        sum += log(m->drawn[(size_t)b * (size_t)m->n_rows + (size_t)i] / m->middle[i]);
    level[b] = n > 0 ? exp(sum / n) : 1;
  }
  return n > 0;
}

double hec_medians_level_half(const hec_medians *m, int32_t first, int32_t last) {
  double level[HEC_DRAWS];
  if (!hec_medians_level(m, first, last, level))
    return INFINITY;
  hec_interval i = hec_interval_of(1, level, HEC_DRAWS);
  return (i.high - i.low) / 2;
}

double hec_medians_half_width(const hec_medians *m, int32_t first, int32_t last) {
  double *half = hec_malloc((size_t)(last - first) + 1, sizeof *half), drawn[HEC_DRAWS];
  for (int32_t i = first; i < last; i++) {
    for (int32_t b = 0; m->known[i] && b < HEC_DRAWS; b++)
      drawn[b] = m->drawn[(size_t)b * (size_t)m->n_rows + (size_t)i] / m->middle[i];
    hec_interval own = m->known[i] ? hec_interval_of(1, drawn, HEC_DRAWS) : (hec_interval){0, INFINITY};
    half[i - first] = (own.high - own.low) / 2;
  }
  double middle = last > first ? hec_quantile(half, last - first, 0.5) : 0;
  free(half);
  return middle;
}

/* Of a row's error, the sign kept. */
static hec_interval error_interval(double predicted, const hec_medians *m, int32_t row, const double *scale) {
  double drawn[HEC_DRAWS];
  for (int32_t b = 0; b < HEC_DRAWS; b++)
    drawn[b] = predicted * (scale ? scale[b] : 1) / m->drawn[(size_t)b * (size_t)m->n_rows + (size_t)row];
  hec_interval ratio = hec_interval_of(predicted / m->middle[row], drawn, HEC_DRAWS);
  return (hec_interval){ratio.low - 1, ratio.high - 1};
}

hec_error_range hec_error_range_of(const double *predicted, const hec_medians *m, int32_t first, int32_t last,
                                   const bool *chosen, const double *scale) {
  size_t max = (size_t)(last - first) + 1;
  double *p = hec_malloc(6 * max, sizeof *p), *measured = p + max;
  double *end[2] = {p + 2 * max, p + 3 * max}, *size[2] = {p + 4 * max, p + 5 * max}; /* of errors, of |errors| */
  int32_t n = 0;
  bool known = true;
  for (int32_t i = first; i < last; i++)
    if (m->middle[i] > 0 && (!chosen || chosen[i])) {
      p[n] = predicted[i];
      measured[n] = m->middle[i];
      known = known && m->known[i];
      hec_interval e = error_interval(predicted[i], m, i, scale);
      end[0][n] = e.low;
      end[1][n] = e.high;
      size[0][n] = e.low > 0 ? e.low : e.high < 0 ? -e.high : 0;
      size[1][n++] = fmax(e.high, -e.low);
    }
  hec_error_range r = {.error = hec_error_of(p, measured, n)};
  r.median = r.p90 = r.worst = r.bias = (hec_interval){NAN, NAN};
  if (n > 0 && known) {
    r.median = (hec_interval){hec_median(size[0], n), hec_median(size[1], n)};
    r.p90 = (hec_interval){hec_quantile(size[0], n, 0.9), hec_quantile(size[1], n, 0.9)};
    r.worst = (hec_interval){hec_max(size[0], n), hec_max(size[1], n)};
    r.bias = (hec_interval){hec_median(end[0], n), hec_median(end[1], n)};
  }
  free(p);
  return r;
}

static double middle_of_rows(const double *of, const int32_t *row, int32_t n, double *scratch) {
  for (int32_t k = 0; k < n; k++)
    scratch[k] = of[row[k]];
  return hec_median(scratch, n);
}

hec_contest hec_contest_of(const hec_medians *m, const int32_t *a, const int32_t *b, int32_t n) {
  double *scratch = hec_malloc((size_t)n, sizeof *scratch), drawn[HEC_DRAWS];
  hec_contest c = {.range = {NAN, NAN}};
  bool known = true;
  for (int32_t k = 0; k < n; k++)
    known = known && m->known[a[k]] && m->known[b[k]];
  c.ratio = middle_of_rows(m->middle, a, n, scratch) / middle_of_rows(m->middle, b, n, scratch);
  for (int32_t d = 0; d < HEC_DRAWS; d++) {
    const double *of = m->drawn + (size_t)d * (size_t)m->n_rows;
    drawn[d] = middle_of_rows(of, a, n, scratch) / middle_of_rows(of, b, n, scratch);
  }
  if (known) {
    c.range = hec_interval_of(c.ratio, drawn, HEC_DRAWS);
    c.apart = c.range.low > 1 || c.range.high < 1;
  }
  free(scratch);
  return c;
}
