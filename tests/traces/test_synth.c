/* Generators: exact row sums, the pattern each workload promises, drift as asked for, same seed same bytes. */
#include "tests/support/test.h"
#include "tools/bench/bench.h"
#include "traces/drift.h"
#include "traces/synth.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { LAYERS = 3, EXPERTS = 32, SOURCES = 8, TOKENS = 512, COUNTS_MAX = 1 << 16 };

static uint32_t counts[COUNTS_MAX];
static hec_load load;

static hec_synth_options small(const char *workload) {
  hec_synth_options o = hec_synth_defaults();
  o.workload = workload;
  o.n_layers = LAYERS;
  o.n_experts = EXPERTS;
  o.n_sources = SOURCES;
  o.tokens = TOKENS;
  o.n_iterations = 30;
  return o;
}

static hec_synth *open_synth(const hec_synth_options *o) {
  hec_synth *synth = NULL;
  ck_ok(hec_synth_check(o));
  ck_ok(hec_synth_new(o, &synth));
  load = (hec_load){o->n_layers, o->n_sources, o->n_experts, counts};
  ck_assert_int_le((int64_t)o->n_layers * o->n_sources * o->n_experts, COUNTS_MAX);
  return synth;
}

static uint64_t row_sum(int layer, int source) {
  uint64_t sum = 0;
  for (int e = 0; e < load.n_experts; e++)
    sum += hec_load_row(&load, layer, source)[e];
  return sum;
}

static uint64_t expert_sum(int layer, int expert) {
  uint64_t sum = 0;
  for (int s = 0; s < load.n_sources; s++)
    sum += hec_load_row(&load, layer, s)[expert];
  return sum;
}

/* Tokens of the hottest of the 8 ranks over the mean. */
static double overload(int layer, int *hottest) {
  uint64_t rank_load[SOURCES] = {0}, total = 0;
  for (int e = 0; e < EXPERTS; e++)
    rank_load[e * SOURCES / EXPERTS] += expert_sum(layer, e);
  *hottest = 0;
  for (int r = 0; r < SOURCES; r++) {
    total += rank_load[r];
    *hottest = rank_load[r] > rank_load[*hottest] ? r : *hottest;
  }
  return (double)rank_load[*hottest] * SOURCES / (double)total;
}

HEC_TEST(rows_sum_exactly) {
  uint64_t random = 5;
  for (const hec_synth_workload *w = hec_synth_workloads; w->name; w++)
    for (int round = 0; round < 40; round++) {
      hec_synth_options o = hec_synth_defaults();
      o.workload = round % 2 ? w->name : w->alias;
      o.n_layers = 1 + (int32_t)hec_test_below(&random, 3);
      o.n_experts = 2 + (int32_t)hec_test_below(&random, 40);
      o.top_k = 1 + (int32_t)hec_test_below(&random, (uint64_t)(o.n_experts < 8 ? o.n_experts - 1 : 8));
      o.n_sources = 2 + (int32_t)hec_test_below(&random, 9);
      o.tokens = (int64_t)hec_test_below(&random, round % 4 == 0 ? 3 : 3000);
      o.ranks = (int32_t)hec_test_below(&random, 60);
      o.seed = hec_test_below(&random, 1000);
      o.sigma = 4 * hec_test_uniform(&random);
      o.exponent = 4 * hec_test_uniform(&random);
      o.hot_share = hec_test_uniform(&random);
      o.period = 1 + (int32_t)hec_test_below(&random, 5);
      o.switch_iter = (int64_t)hec_test_below(&random, 6);
      HEC_OPENED(hec_synth) *synth = open_synth(&o);
      for (int iter = 1; iter <= 6; iter++) {
        hec_synth_next(synth, &load);
        for (int l = 0; l < o.n_layers; l++) {
          uint64_t total = 0;
          for (int s = 0; s < o.n_sources; s++) {
            uint64_t sum = row_sum(l, s);
            total += sum;
            ck_assert_msg(w->ragged || sum == (uint64_t)(o.tokens * o.top_k), "%s: %llu", w->name,
                          (unsigned long long)sum);
            ck_assert_uint_eq(sum % (uint64_t)o.top_k, 0);
            for (int e = 0; e < o.n_experts; e++) /* the experts of a token differ */
              ck_assert_uint_le(hec_load_row(&load, l, s)[e], sum / (uint64_t)o.top_k);
          }
          ck_assert_uint_eq(total, (uint64_t)(o.tokens * o.top_k * o.n_sources));
        }
      }
    }
}

HEC_TEST(workloads_keep_their_promise) {
  hec_synth_options o = small("balanced");
  HEC_OPENED(hec_synth) *synth = open_synth(&o);
  hec_synth_next(synth, &load);
  for (int l = 0; l < LAYERS; l++)
    for (int e = 0; e < EXPERTS; e++)
      ck_assert_uint_eq(expert_sum(l, e), TOKENS * 2 * SOURCES / EXPERTS);
  hec_synth_free(synth);

  o = small("hot-expert-set");
  o.n_hot = 3;
  o.hot_share = 0.6;
  synth = open_synth(&o);
  hec_synth_next(synth, &load);
  int n_hot = 0;
  for (int e = 0; e < EXPERTS; e++)
    n_hot += expert_sum(0, e) > 4 * TOKENS * 2 * SOURCES / EXPERTS;
  ck_assert_int_eq(n_hot, 3);
}

HEC_TEST(moving_workloads_keep_their_promise) {
  int hot = 0, last = -1, n_moves = 0, n_bursts = 0, n_hot;
  hec_synth_options o = small("hot-rank");
  HEC_OPENED(hec_synth) *synth = NULL;
  synth = open_synth(&o);
  hec_synth_next(synth, &load);
  ck_assert(fabs(overload(0, &hot) - 0.5 * SOURCES) < 0.2);
  hec_synth_free(synth);

  o = small("spread-heat");
  synth = open_synth(&o);
  hec_synth_next(synth, &load);
  n_hot = 0;
  for (int e = 0; e < EXPERTS; e++)
    n_hot += expert_sum(0, e) > 2 * TOKENS * 2 * SOURCES / EXPERTS;
  ck_assert_int_eq(n_hot, EXPERTS / SOURCES); /* as many hot experts as W2, */
  ck_assert(overload(0, &hot) < 1.6);         /* but no hot rank (4 hot experts on 4 of 8 ranks) */
  hec_synth_free(synth);

  o = small("ragged-source");
  synth = open_synth(&o);
  hec_synth_next(synth, &load);
  uint64_t min = UINT64_MAX, max = 0;
  for (int s = 0; s < SOURCES; s++) {
    uint64_t sum = row_sum(0, s);
    ck_assert_uint_eq(sum, row_sum(1, s)); /* a source has as many tokens in every layer */
    min = sum < min ? sum : min;
    max = sum > max ? sum : max;
  }
  ck_assert_uint_gt(max, 2 * min);
  hec_synth_free(synth);

  o = small("zero-load-experts");
  synth = open_synth(&o);
  hec_synth_next(synth, &load);
  int n_idle = 0;
  for (int e = 0; e < EXPERTS; e++)
    n_idle += expert_sum(2, e) == 0;
  ck_assert_int_eq(n_idle, EXPERTS / 4);
  hec_synth_free(synth);

  o = small("rotating-hot-spot");
  o.period = 5;
  synth = open_synth(&o);
  for (int iter = 1; iter <= 30; iter++) {
    hec_synth_next(synth, &load);
    ck_assert(overload(1, &hot) > 3.5);
    ck_assert(last < 0 || hot == ((iter - 1) % 5 == 0 ? (last + 1) % SOURCES : last));
    n_moves += last >= 0 && hot != last;
    last = hot;
  }
  ck_assert_int_eq(n_moves, 5);
  hec_synth_free(synth);

  o = small("burst");
  o.period = 8;
  synth = open_synth(&o);
  for (int iter = 1; iter <= 24; iter++) {
    hec_synth_next(synth, &load);
    bool burst = overload(1, &hot) > 3;
    ck_assert(burst == ((iter - 1) % 8 >= 6));
    n_bursts += burst;
  }
  ck_assert_int_eq(n_bursts, 6);
}

/* Mean and deviation of the logarithm of the shares; the Zipf law by rank. */
HEC_TEST(laws_of_popularity) {
  hec_synth_options o = small("lognormal");
  o.n_layers = 64;
  o.n_experts = 64;
  o.n_sources = 1;
  o.tokens = 1000000;
  o.top_k = 1;
  o.sigma = 0.7;
  HEC_OPENED(hec_synth) *synth = open_synth(&o);
  hec_synth_next(synth, &load);
  double variance = 0;
  for (int l = 0; l < 64; l++) {
    double sum = 0, squares = 0;
    for (int e = 0; e < 64; e++) {
      double x = log((double)expert_sum(l, e));
      sum += x / 64;
      squares += x * x / 64;
    }
    variance += (squares - sum * sum) * 64 / 63 / 64;
  }
  ck_assert_msg(fabs(sqrt(variance) - 0.7) < 0.02, "%g", sqrt(variance)); /* 4096 draws: s.e. 0.008 */
  hec_synth_free(synth);

  o.workload = "zipf";
  o.exponent = 1.25;
  o.n_layers = 1;
  synth = open_synth(&o);
  hec_synth_next(synth, &load);
  uint64_t max = 0, second = 0;
  for (int e = 0; e < 64; e++) {
    uint64_t x = expert_sum(0, e);
    second = x > max ? max : x > second ? x : second;
    max = x > max ? x : max;
  }
  ck_assert(fabs((double)max / (double)second - pow(2, 1.25)) < 0.05);
}

static void check_drift(hec_synth_options o) {
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_OPENED(hec_synth) *synth = open_synth(&o);
  hec_drift drift = hec_drift_new(&arena, o.n_layers, o.n_experts, o.lag, o.n_knots);
  uint64_t *totals = HEC_NEW(&arena, uint64_t, o.n_layers * o.n_experts);
  for (int64_t i = 0; i < o.n_iterations; i++) {
    hec_synth_next(synth, &load);
    for (int l = 0; l < o.n_layers; l++)
      for (int e = 0; e < o.n_experts; e++)
        totals[l * o.n_experts + e] = expert_sum(l, e);
    hec_drift_add(&drift, totals);
  }
  for (int k = 0; k < o.n_knots; k++) {
    double median = hec_histogram_quantile(&drift.correlation[k], 0.5);
    ck_assert_msg(fabs(median - o.correlation[k]) <= 0.03, "%s seed %d lag %d: %.4f, wanted %.4f", o.workload,
                  (int)o.seed, o.lag[k], median, o.correlation[k]);
  }
}

static void set_drift(hec_synth_options *o, int n, const int32_t *lags, const double *correlations) {
  o->n_knots = n;
  memcpy(o->lag, lags, (size_t)n * sizeof *lags);
  memcpy(o->correlation, correlations, (size_t)n * sizeof *correlations);
}

HEC_TEST(drift_as_wanted) {
  for (uint64_t seed = 1; seed <= 6; seed++) { /* LAER's training drift */
    hec_synth_options o = small(seed % 3 == 0 ? "zipf" : "lognormal");
    o.seed = seed;
    o.n_layers = 8;
    o.n_experts = seed % 2 ? 16 : 48;
    o.n_iterations = seed % 4 == 0 ? 120 : 40;
    o.sigma = 0.5 + (double)(seed % 3) * 0.5;
    set_drift(&o, 4, (int32_t[]){1, 5, 9, 20}, (double[]){0.96, 0.89, 0.76, 0.33});
    check_drift(o);
  }
  hec_synth_options o = small("lognormal");
  o.n_layers = 8;
  o.n_iterations = 100;
  set_drift(&o, 1, (int32_t[]){1}, (double[]){0.5});
  check_drift(o);
  set_drift(&o, 2, (int32_t[]){1, 2}, (double[]){0.98, 0.95});
  check_drift(o);
  set_drift(&o, 3, (int32_t[]){1, 10, 30}, (double[]){0.9, 0.6, 0.2});
  check_drift(o);
  set_drift(&o, 2, (int32_t[]){1, 2}, (double[]){0.1, 0.95}); /* no process has this */
  hec_synth *synth = NULL;
  ck_refused(hec_synth_new(&o, &synth), "--drift: expected correlations that this trace can have");
  ck_assert_ptr_null(synth);
}

static double correlation_across(int64_t iter) {
  hec_synth_options o = small("lognormal");
  o.n_experts = 256;
  o.switch_iter = iter;
  double x[2][256], sum[2] = {0}, xx = 0, yy = 0, xy = 0;
  HEC_OPENED(hec_synth) *synth = open_synth(&o);
  for (int t = 0; t < 2; t++) {
    hec_synth_next(synth, &load);
    for (int e = 0; e < 256; e++) {
      x[t][e] = (double)expert_sum(0, e);
      sum[t] += x[t][e] / 256;
    }
  }
  for (int e = 0; e < 256; e++) {
    xx += (x[0][e] - sum[0]) * (x[0][e] - sum[0]);
    yy += (x[1][e] - sum[1]) * (x[1][e] - sum[1]);
    xy += (x[0][e] - sum[0]) * (x[1][e] - sum[1]);
  }
  return xy / sqrt(xx * yy);
}

HEC_TEST(switch_draws_anew) {
  ck_assert(correlation_across(0) > 0.98);
  ck_assert(fabs(correlation_across(2)) < 0.25);
  ck_assert(correlation_across(3) > 0.98);
}

static size_t read_file(const char *path, char *bytes, size_t capacity) {
  FILE *file = fopen(path, "rb");
  ck_assert_ptr_nonnull(file);
  size_t n = fread(bytes, 1, capacity, file);
  (void)fclose(file);
  return n;
}

HEC_TEST(written_traces) {
  char folder[] = "/tmp/hecate-synth-XXXXXX", paths[3][64];
  ck_assert_ptr_nonnull(mkdtemp(folder));
  static char a[1 << 20], b[1 << 20];
  hec_synth_options o = small("lognormal");
  o.shape = "gpt-moe-s";
  o.ranks = 4;
  set_drift(&o, 2, (int32_t[]){1, 5}, (double[]){0.9, 0.5});
  for (int i = 0; i < 3; i++) {
    (void)snprintf(paths[i], sizeof paths[i], "%s/%d", folder, i);
    o.seed = i < 2 ? 7 : 8;
    ck_ok(hec_synth_write(&o, paths[i]));
  }
  size_t n = read_file(paths[0], a, sizeof a);
  ck_assert(n == read_file(paths[1], b, sizeof b) && memcmp(a, b, n) == 0); /* same seed, same bytes */
  ck_assert(n != read_file(paths[2], b, sizeof b) || memcmp(a, b, n) != 0);
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  ck_ok(hec_trace_open(paths[0], &reader));
  const hec_trace_header *h = hec_trace_header_of(reader);
  ck_assert_str_eq(h->synthetic,
                   "{\"generator\":\"hecate-trace synth\",\"seed\":7,\"parameters\":{\"workload\":\"lognormal\","
                   "\"title\":\"lognormal\",\"tokens_per_source\":512,\"sigma\":1,\"drift\":[{\"lag\":1,"
                   "\"correlation\":0.9},{\"lag\":5,\"correlation\":0.5}]}}");
  ck_assert_str_eq(h->shape, "\"gpt-moe-s\"");
  ck_assert_ptr_nonnull(strstr(h->notes, "Synthetic"));
  ck_assert_ptr_nonnull(strstr(h->notes, "--drift 1:0.9,5:0.5 --ranks 4 --shape gpt-moe-s"));
  ck_assert(h->ranks == 4 && h->n_layers == LAYERS && h->n_experts == EXPERTS && h->n_sources == SOURCES);
  const hec_trace_record *record = NULL;
  for (int i = 1; i <= 31; i++) {
    ck_ok(hec_trace_next(reader, &record));
    ck_assert(i == 31 ? !record : record && record->iter == i);
  }
  for (int i = 0; i < 3; i++)
    (void)remove(paths[i]);
  ck_assert_int_eq(rmdir(folder), 0);
}

HEC_TEST(options_that_are_refused) {
  static const char *const messages[] = {
      "--workload: expected one (see hecate-trace synth --help), found none",
      "--workload: expected W0 to W7, lognormal or zipf, found W8",
      "--layers: expected a whole number from 1 to 1048576, found 0",
      "--top-k: expected a whole number from 1 to 32, found 33",
      "--drift: expected --workload lognormal or zipf, found W0",
      "--drift, a lag: expected a whole number from 6 to 100, found 5",
      "--iterations (with this --drift): expected a whole number from 7 to 9223372036854775807, found 6",
      "--source-ranks (of W4): expected a whole number from 2 to 1048576, found 1",
      "--workload W5: expected more experts than --top-k, found 32",
      "--hot-share: expected a number from 0 to 1, found 1.5",
      "--tokens: expected a whole number from 0 to 1073741823, found 2147483648",
      "--layers: expected a whole number from 1 to 1048576, found 1048577",
  };
  for (int i = 0; i < 12; i++) {
    hec_synth_options o = small(i == 0 ? NULL : i == 1 ? "W8" : i == 7 ? "W4" : i == 8 ? "W5" : i == 4 ? "W0" : "zipf");
    set_drift(&o, i >= 4 && i <= 6 ? 2 : 0, (int32_t[]){5, 5}, (double[]){0.5, 0.4});
    if (i == 2)
      o.n_layers = 0;
    if (i == 3)
      o.top_k = 33;
    if (i == 6) {
      o.n_knots = 1;
      o.n_iterations = 6;
    }
    if (i == 7)
      o.n_sources = 1;
    if (i == 8)
      o.top_k = 32;
    if (i == 9)
      o.hot_share = 1.5;
    if (i == 10)
      o.tokens = INT64_C(1) << 31;
    if (i == 11)
      o.n_layers = 1048576 + 1;
    hec_status status = hec_synth_check(&o);
    ck_assert_int_eq(status, HEC_BAD_INPUT);
    ck_assert_str_eq(hec_last_error(), messages[i]);
  }
}

HEC_TEST(benchmark_runs) {
  hec_trace_bench result;
  ck_ok(hec_trace_bench_read(1000000, &result));
  ck_assert(result.bytes >= 1000000 && result.records >= 5 && result.seconds > 0);
}

/* The sample in the tree is what its notes say made it. */
HEC_TEST(committed_sample) {
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  ck_ok(hec_trace_open(HEC_SOURCE_DIR "/traces/sample-synthetic.jsonl", &reader));
  const hec_trace_header *h = hec_trace_header_of(reader);
  ck_assert(h->synthetic && h->n_layers == 6 && h->n_experts == 32 && h->n_sources == 16);
  hec_synth_options o = hec_synth_defaults();
  o.workload = "lognormal";
  o.n_layers = 6;
  o.n_experts = 32;
  o.n_sources = 16;
  o.tokens = 4096;
  o.n_iterations = 20;
  o.name = "sample-synthetic";
  o.shape = "gpt-moe-s";
  set_drift(&o, 3, (int32_t[]){1, 5, 9}, (double[]){0.96, 0.89, 0.76});
  HEC_SCOPED(hec_text) command = {0};
  hec_synth_command(&o, &command);
  ck_assert_ptr_nonnull(strstr(h->notes, command.data));
  const hec_trace_record *record = NULL;
  int n = 0;
  do {
    ck_ok(hec_trace_next(reader, &record));
    n += record != NULL;
  } while (record);
  ck_assert_int_eq(n, 20);
}
