/* Statistics of a trace: golden values of recorded traces, an independent plain computation on random ones. */
#include "tests/support/test.h"
#include "traces/trace_info.h"

#include <math.h>
#include <string.h>

static hec_trace_info info_of(hec_trace_reader *reader, int32_t ranks, int32_t n_lags, const int32_t *lags) {
  hec_trace_info_options options = {.ranks = ranks, .n_lags = n_lags};
  memcpy(options.lags, lags, (size_t)n_lags * sizeof *lags);
  hec_trace_info info;
  ck_ok(hec_trace_info_read(reader, &options, &info));
  return info;
}

/* ---- the plain computation: everything kept, sorted, no histogram ---- */

enum { MAX = 4096 };
typedef struct {
  int n;
  double values[MAX];
} sample;

static void put(sample *s, double value) {
  ck_assert_int_lt(s->n, MAX);
  s->values[s->n++] = value;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void agrees(sample *s, const hec_trace_spread *spread, bool relative) {
  ck_assert_uint_eq(spread->n, (uint64_t)s->n);
  if (s->n == 0)
    return;
  qsort(s->values, (size_t)s->n, sizeof *s->values, compare);
  const double q[] = {0, 0.05, 0.1, 0.5, 0.95, 1};
  const double got[] = {spread->min, spread->p5, spread->p10, spread->p50, spread->p95, spread->max};
  for (int i = 0; i < 6; i++) {
    double at = q[i] * (s->n - 1);
    int k = (int)at;
    double above = s->values[k + 1 < s->n ? k + 1 : k], wanted = s->values[k] + (at - k) * (above - s->values[k]);
    ck_assert_msg(fabs(got[i] - wanted) <= 1e-4 * (relative ? fmax(wanted, 0.001) : 1),
                  "quantile %g: %.9g, wanted %.9g", q[i], got[i], wanted);
  }
}

static double pearson(const double *x, const double *y, int n) {
  double sx = 0, sy = 0, sxx = 0, syy = 0, sxy = 0;
  for (int i = 0; i < n; i++) {
    sx += x[i];
    sy += y[i];
  }
  for (int i = 0; i < n; i++) {
    sxx += (x[i] - sx / n) * (x[i] - sx / n);
    syy += (y[i] - sy / n) * (y[i] - sy / n);
    sxy += (x[i] - sx / n) * (y[i] - sy / n);
  }
  return sxx > 0 && syy > 0 ? sxy / sqrt(sxx * syy) : NAN;
}

static sample overload, peak, cv, gini, correlation[2], tvd;

static void plain_layer(const double *x, int n_experts, int ranks) {
  double total = 0, max = 0, square = 0, pairs = 0, rank_load[64] = {0}, busiest = 0;
  for (int e = 0; e < n_experts; e++) {
    total += x[e];
    max = fmax(max, x[e]);
    rank_load[e * ranks / n_experts] += x[e];
    for (int f = 0; f < n_experts; f++)
      pairs += fabs(x[e] - x[f]);
  }
  if (!(total > 0))
    return;
  double mean = total / n_experts;
  for (int e = 0; e < n_experts; e++)
    square += (x[e] - mean) * (x[e] - mean);
  for (int r = 0; r < ranks; r++)
    busiest = fmax(busiest, rank_load[r]);
  put(&overload, busiest / (total / ranks));
  put(&peak, max / mean);
  put(&cv, sqrt(square / n_experts) / mean);
  put(&gini, pairs / (2.0 * n_experts * total)); /* mean absolute difference over twice the mean, the definition */
}

static void plain_pair(const double *x, const double *y, int n, int which) {
  double r = pearson(x, y, n), sx = 0, sy = 0, distance = 0;
  if (!isnan(r))
    put(&correlation[which], r);
  for (int e = 0; e < n; e++) {
    sx += x[e];
    sy += y[e];
  }
  for (int e = 0; e < n && which == 0 && sx > 0 && sy > 0; e++)
    distance += fabs(x[e] / sx - y[e] / sy) / 2;
  if (which == 0 && sx > 0 && sy > 0)
    put(&tvd, distance);
}

static void random_case(uint64_t seed) {
  enum { LAYERS = 3 };
  int records = 2 + (int)hec_test_below(&seed, 30), experts = 2 + (int)hec_test_below(&seed, 40);
  int sources = 1 + (int)hec_test_below(&seed, 3), ranks = 1 + (int)hec_test_below(&seed, 12);
  static double x[40][LAYERS][64];
  sample *all[] = {&overload, &peak, &cv, &gini, &correlation[0], &correlation[1], &tvd};
  for (size_t i = 0; i < 7; i++)
    all[i]->n = 0;
  HEC_SCOPED(hec_text) text = {0};
  hec_text_printf(
      &text,
      "{\"format\":\"hecate-trace\",\"version\":1,\"layers\":3,\"experts\":%d,\"top_k\":1,\"source_ranks\":%d,"
      "\"layout\":\"layer x source_rank x expert\"}\n",
      experts, sources);
  uint64_t n_empty = 0, n_idle = 0;
  for (int i = 0; i < records; i++) {
    hec_text_printf(&text, "{\"iter\":%d,\"layers\":[", 3 * i);
    for (int l = 0; l < LAYERS; l++) {
      bool empty = hec_test_below(&seed, 8) == 0, constant = hec_test_below(&seed, 16) == 0;
      memset(x[i][l], 0, sizeof x[i][l]);
      hec_text_add(&text, l > 0 ? ",[" : "[");
      for (int s = 0; s < sources; s++) {
        hec_text_add(&text, s > 0 ? ",[" : "[");
        for (int e = 0; e < experts; e++) {
          uint64_t value = empty      ? 0
                           : constant ? 5
                                      : (hec_test_random(&seed) & UINT32_MAX) >> hec_test_below(&seed, 33);
          hec_text_printf(&text, e > 0 ? ",%llu" : "%llu", (unsigned long long)value);
          x[i][l][e] += (double)value;
        }
        hec_text_add(&text, "]");
      }
      hec_text_add(&text, "]");
      double total = 0, zeros = 0;
      for (int e = 0; e < experts; e++) {
        total += x[i][l][e];
        zeros += !(x[i][l][e] > 0);
      }
      n_empty += !(total > 0);
      n_idle += total > 0 ? (uint64_t)zeros : 0;
      plain_layer(x[i][l], experts, ranks);
      if (i >= 1)
        plain_pair(x[i][l], x[i - 1][l], experts, 0);
      if (i >= 4)
        plain_pair(x[i][l], x[i - 4][l], experts, 1);
    }
    hec_text_add(&text, "]}\n");
  }
  hec_trace_reader *reader = NULL;
  ck_ok(hec_trace_open_memory(text.data, text.length, "t", &reader));
  hec_trace_info info = info_of(reader, ranks, 2, (int32_t[]){1, 4});
  hec_trace_close(reader);
  ck_assert(info.n_records == records && info.n_iterations == records && info.stride_min == 3 && info.stride_max == 3);
  ck_assert_uint_eq(info.n_empty_layers, n_empty);
  ck_assert(fabs(info.idle_share - (double)n_idle / (records * 3.0 * experts)) < 1e-12);
  agrees(&overload, &info.overload, true);
  agrees(&peak, &info.expert_peak, true);
  agrees(&cv, &info.cv, true);
  agrees(&gini, &info.gini, false);
  agrees(&correlation[0], &info.correlation[0], false);
  agrees(&correlation[1], &info.correlation[1], false);
  agrees(&tvd, &info.tvd, false);
}

HEC_TEST(agrees_with_plain_computation) {
  for (uint64_t seed = 1; seed <= 300; seed++)
    random_case(seed);
}

HEC_TEST(known_by_hand) {
  static const char text[] =
      "{\"format\":\"hecate-trace\",\"version\":1,\"layers\":1,\"experts\":4,\"top_k\":1,\"ranks\":2}\n"
      "{\"iter\":0,\"layers\":[[1,2,3,6]]}\n{\"iter\":10,\"layers\":[[6,3,2,1]]}\n{\"iter\":10,\"layers\":[[0,0,0,12]]}"
      "\n";
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  ck_ok(hec_trace_open_memory(text, strlen(text), "t", &reader));
  hec_trace_info info = info_of(reader, 0, 1, (int32_t[]){1});
  ck_assert(info.n_records == 3 && info.n_iterations == 2 && info.stride_min == 10 && info.ranks == 2);
  ck_assert(fabs(info.overload.min - 1.5) < 1e-12 && fabs(info.overload.max - 2) < 1e-12);
  ck_assert(fabs(info.expert_peak.min - 2) < 1e-12 && fabs(info.expert_peak.max - 4) < 1e-12);
  ck_assert(fabs(info.gini.max - 0.75) < 1e-12 && fabs(info.cv.max - sqrt(3)) < 1e-12);
  ck_assert(fabs(info.correlation[0].min - -12.0 / 14) < 1e-12); /* deviations -2 -1 0 3 and 3 0 -1 -2 */
  ck_assert(fabs(info.tvd.max - 11.0 / 12) < 1e-12 && fabs(info.idle_share - 0.25) < 1e-12);
  ck_assert(info.idle_worst_layer == 0 && fabs(info.idle_worst - 0.75) < 1e-12);
}

/* Ranks that nobody asked for are no more than there are experts; those asked for are as asked. */
HEC_TEST(ranks_by_default) {
  static const struct {
    const char *also;
    int32_t wanted, ranks;
  } cases[] = {{"", 0, 4}, {",\"ranks\":16", 0, 4}, {",\"ranks\":3", 0, 3}, {"", 8, 8}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[256];
    (void)snprintf(text, sizeof text,
                   "{\"format\":\"hecate-trace\",\"version\":1,\"layers\":1,\"experts\":4,\"top_k\":1%s}\n"
                   "{\"iter\":0,\"layers\":[[1,2,3,6]]}\n",
                   cases[i].also);
    HEC_OPENED(hec_trace_reader) *reader = NULL;
    ck_ok(hec_trace_open_memory(text, strlen(text), "t", &reader));
    hec_trace_info info = info_of(reader, cases[i].wanted, 1, (int32_t[]){1});
    ck_assert_int_eq(info.ranks, cases[i].ranks);
  }
}

/* One value and no pair: nothing is invented. */
HEC_TEST(one_record) {
  static const char text[] = "{\"format\":\"hecate-trace\",\"version\":1,\"layers\":1,\"experts\":1,\"top_k\":1}\n"
                             "{\"iter\":0,\"layers\":[[7]]}\n";
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  ck_ok(hec_trace_open_memory(text, strlen(text), "t", &reader));
  hec_trace_info info = info_of(reader, 1, 1, (int32_t[]){1});
  ck_assert(info.correlation[0].n == 0 && isnan(info.correlation[0].p50) && info.stride_max == 0);
  HEC_SCOPED(hec_text) table = {0}, json = {0};
  hec_trace_info_table(&info, hec_trace_header_of(reader), "p", &table);
  hec_trace_info_json(&info, hec_trace_header_of(reader), "p", &json);
  ck_assert_ptr_nonnull(strstr(json.data, "\"median\": null"));
  ck_assert_ptr_null(strstr(table.data, "nan"));
}

static void close_to(double got, double wanted, double half_last_digit) {
  ck_assert_msg(fabs(got - wanted) <= half_last_digit * 1.001 + 1e-4 * fabs(wanted), "%.6g, wanted %.6g", got, wanted);
}

/* Measured by other means when the traces were collected. */
HEC_TEST(recorded_traces) {
  static const struct {
    const char *file;
    int ranks;
    double peak[3], cv, r_median, r_min, tvd, overload[2];
  } cases[] = {
      {"sglang_deepseek_r1_ep_statistics", 8, {2.61, 6.07, 13.7}, 0.82, 0.997, 0.262, 0.025, {1.66, 4.30}},
      {"sglang_deepseek_r1_ep_statistics", 32, {2.61, 6.07, 13.7}, 0.82, 0.997, 0.262, 0.025, {2.21, 8.55}},
      {"sglang_deepseek_r1_ep_statistics", 64, {2.61, 6.07, 13.7}, 0.82, 0.997, 0.262, 0.025, {2.87, 9.37}},
      {"gptoss20b_decode_per_sequence", 8, {1.76, 3.41, 7.76}, 0.92, 0.821, -0.27, 0.180, {1.61, 2.89}},
      {"gptoss20b_decode_per_sequence", 16, {1.76, 3.41, 7.76}, 0.92, 0.821, -0.27, 0.180, {2.29, 5.62}},
  };
  if (!hec_test_wants("traces.trace_info/recorded_traces", "traces/gptoss20b_decode_per_sequence.jsonl",
                      "figures of recorded traces against those that others computed; made-up ones are"))
    return;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char name[128];
    (void)snprintf(name, sizeof name, "traces/%s.jsonl", cases[i].file);
    hec_trace_reader *reader = NULL;
    ck_ok(hec_trace_open(hec_test_shared_path(name), &reader));
    hec_trace_info info = info_of(reader, cases[i].ranks, 1, (int32_t[]){1});
    hec_trace_close(reader);
    close_to(info.expert_peak.min, cases[i].peak[0], 0.005);
    close_to(info.expert_peak.p50, cases[i].peak[1], 0.005);
    close_to(info.expert_peak.max, cases[i].peak[2], 0.1);
    close_to(info.cv.p50, cases[i].cv, 0.006); /* theirs is the upper of the two middle values */
    close_to(info.correlation[0].p50, cases[i].r_median, 0.0005);
    close_to(info.correlation[0].min, cases[i].r_min, 0.005);
    close_to(info.tvd.p50, cases[i].tvd, 0.0005);
    close_to(info.overload.p50, cases[i].overload[0], 0.008);
    close_to(info.overload.max, cases[i].overload[1], 0.005);
    if (i == 3)
      close_to(info.idle_worst, 0.31, 0.005);
  }
}
