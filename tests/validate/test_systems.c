/* Published numbers of other systems: how a row is judged, loads as they are described, recorded data that is absent or
 * unfit, and every row of the table in a quick run: complete, finite, the same twice. */
#include "models/json.h"
#include "tests/support/check_main.h"
#include "validate/published/system_bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- judging ---- */

static hec_system_row gain(double low, double high, double our_low, double our_high) {
  return (hec_system_row){.quantity = "q",
                          .kind = HEC_SYSTEM_GAIN,
                          .setup = "s",
                          .source = "p",
                          .assumed = "",
                          .published = {low, high},
                          .ours = {our_low, our_high}};
}

START_TEST(rows_are_judged) {
  static const struct {
    double published[2], ours[2], ratio;
    hec_winner winner;
  } row[] = {
      {{2, 2}, {1.8, 1.8}, 0.9, HEC_WINNER_SAME},           {{2, 2}, {0.9, 0.9}, 0.45, HEC_WINNER_OTHER},
      {{2, 2}, {1.005, 1.005}, 0.5025, HEC_WINNER_OTHER},   {{0.9, 0.9}, {0.8, 0.95}, 0.9686442, HEC_WINNER_SAME},
      {{1.5, 6}, {0.5, 8}, 2.0 / 3, HEC_WINNER_OPEN},       {{1.5, 6}, {1, 9}, 1, HEC_WINNER_SAME},
      {{1.005, 1.005}, {2, 2}, 1.9900498, HEC_WINNER_NONE}, {{0.8, 1.2}, {2, 2}, 2.0412415, HEC_WINNER_NONE},
  };
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    hec_system_row r = gain(row[i].published[0], row[i].published[1], row[i].ours[0], row[i].ours[1]);
    ck_assert_double_eq_tol(hec_system_ratio(&r), row[i].ratio, 1e-7);
    ck_assert_msg(hec_system_winner(&r) == row[i].winner, "row %d", (int)i);
    r.kind = HEC_SYSTEM_VALUE;
    ck_assert_int_eq(hec_system_winner(&r), HEC_WINNER_NONE);
    r.skipped = "why";
    ck_assert(isnan(hec_system_ratio(&r)));
  }
}
END_TEST

static hec_status add_four(hec_system_report *report) {
  hec_system_row r = gain(2, 2, 2.2, 2.2); /* 1.1: within 10 % but for rounding, so a little less is taken */
  r.ours = hec_system_number(2.19);
  hec_system_add(report, &r);
  r = gain(2, 2, 1.5, 1.5);
  r.moves = (hec_span){1, 3};
  r.moved_by = "tokens";
  hec_system_add(report, &r);
  r = gain(2, 2, 0.5, 0.5);
  r.moves = (hec_span){0.4, 0.9};
  r.moved_by = "tokens";
  hec_system_add(report, &r);
  r.skipped = "no data";
  hec_system_add(report, &r);
  return HEC_OK;
}
static const hec_system four = {"four", "title", "source", "differs", add_four};

static hec_system_report *run(const hec_system *system, const char *shared) {
  hec_system_report *report;
  const hec_system_options options = {.seed = 1, .shared = shared, .stamp = "a stamp", .quick = true};
  ck_assert_msg(hec_systems_run(system, &options, &report) == HEC_OK, "%s", hec_last_error());
  return report;
}

START_TEST(rows_are_summed) {
  hec_system_report *report = run(&four, NULL);
  hec_system_summary sum = hec_system_sum(report, NULL);
  ck_assert_int_eq(sum.numbers, 4);
  ck_assert_int_eq(sum.compared, 3);
  ck_assert_int_eq(sum.skipped, 1);
  ck_assert_int_eq(sum.within_10, 1);
  ck_assert_int_eq(sum.within_25, 2);
  ck_assert_int_eq(sum.winners, 3);
  ck_assert_int_eq(sum.winners_same, 2);
  ck_assert_int_eq(sum.varied, 2);
  ck_assert_int_eq(sum.reached, 1);
  hec_text text = {0};
  hec_systems_markdown(report, &text);
  ck_assert_ptr_nonnull(strstr(text.data, "a stamp."));
  ck_assert_ptr_nonnull(strstr(text.data, "| 3 | q | 2.00x | 0.50x | 0.25 | **other** | 0.40-0.90x (tokens) |"));
  ck_assert_ptr_nonnull(strstr(text.data, "| 4 | q | 2.00x | skipped |"));
  ck_assert_ptr_nonnull(strstr(text.data, "four: of 4 numbers 3 compared (1 skipped); within 10 %: 1, within 25 %: 2; "
                                          "who wins: 2 of 3 the same; in the range tried: 1 of 2."));
  ck_assert_ptr_nonnull(strstr(text.data, "- 1 to 3: s. Published in: p."));
  hec_text_free(&text);
  hec_systems_free(report);
}
END_TEST

/* ---- loads ---- */

static const hec_system_shape small = {2, 16, 2, 4, 100, 3};

static hec_status check_hot(hec_system_report *report) {
  hec_loads loads;
  ck_assert_int_eq(hec_system_hot(report, &small, 4, 0.8, &loads), HEC_OK);
  for (int32_t i = 0; i < 3; i++)
    for (int32_t l = 0; l < 2; l++) {
      ck_assert_uint_eq(hec_load_layer_total(&loads.load[i], l), 800);
      uint64_t hot = 0;
      for (int32_t s = 0; s < 4; s++)
        for (int32_t e = 0; e < 4; e++)
          hot += hec_load_row(&loads.load[i], l, s)[e];
      ck_assert_int_le(llabs((long long)hot - 640), 8); /* rounding of 64 cells */
    }
  ck_assert_double_eq_tol(hec_system_overload(&loads, 0), 3.2, 0.04); /* the first of 4 ranks has 80 % */
  ck_assert_double_eq_tol(hec_system_overload(&loads, 2), 1.733,
                          0.03); /* a group's first rank: 80 + 20 * 4 / 12 % of its half */
  return add_four(report);
}

static hec_status check_stated(hec_system_report *report) {
  const hec_system_shape shape = {4, 64, 8, 16, 1024, 2};
  for (int32_t i = 0; i < 3; i++) {
    static const double stated[] = {1.2, 2, 3};
    double sigma, before = 0;
    hec_loads loads;
    ck_assert_int_eq(hec_system_lognormal_of(report, &shape, 0, stated[i], HEC_DRIFT_NONE, &loads, &sigma), HEC_OK);
    ck_assert_double_eq_tol(hec_system_overload(&loads, 0) / stated[i], 1, 0.01);
    ck_assert_double_gt(sigma, before);
    before = sigma;
  }
  return add_four(report);
}

/* A trace of 4 layers of 16 experts from 4 sources: layer l has all of its load on expert l. */
static char folder[64];
static void write_trace(void) {
  (void)snprintf(folder, sizeof folder, "/tmp/hec_systems_XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  char path[96];
  (void)snprintf(path, sizeof path, "%s/small.jsonl", folder);
  FILE *out = fopen(path, "w");
  fprintf(out, "{\"format\":\"hecate-trace\",\"version\":1,\"name\":\"small\",\"layers\":4,\"experts\":16,\"top_k\":2,"
               "\"source_ranks\":4,\"layout\":\"layer x source_rank x expert\"}\n");
  for (int i = 0; i < 2; i++) {
    fprintf(out, "{\"iter\":%d,\"layers\":[", 10 * i + 1);
    for (int l = 0; l < 4; l++)
      for (int s = 0; s < 4; s++) {
        fprintf(out, "%s%s[", l || s ? "," : "", s == 0 ? "[" : "");
        for (int e = 0; e < 16; e++)
          fprintf(out, "%s%d", e ? "," : "", e == l ? 7 : 0);
        fprintf(out, "]%s", s == 3 ? "]" : "");
      }
    fprintf(out, "]}\n");
  }
  (void)fclose(out);
}

static hec_status check_recorded(hec_system_report *report) {
  hec_loads loads;
  bool there = true;
  ck_assert_int_eq(hec_system_recorded(report, "none.jsonl", &small, &loads, &there), HEC_OK);
  ck_assert(!there);
  ck_assert_ptr_nonnull(strstr(hec_system_absent(report, "none.jsonl"), "none.jsonl"));
  ck_assert_int_eq(hec_system_recorded(report, "small.jsonl", &small, &loads, &there), HEC_OK);
  ck_assert(there);
  ck_assert_int_eq(loads.n, 2);
  ck_assert_int_eq(loads.stride[1], 10);
  for (int32_t l = 0; l < 2; l++) /* layers 0 and 2 of 4; 100 tokens of top-2 a rank */
    for (int32_t s = 0; s < 4; s++)
      ck_assert_uint_eq(hec_load_row(&loads.load[1], l, s)[2 * l], 200);
  const hec_system_shape other = {2, 8, 2, 4, 100, 3}, deep = {5, 16, 2, 4, 100, 3};
  ck_assert_int_eq(hec_system_recorded(report, "small.jsonl", &other, &loads, &there), HEC_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "small.jsonl: expected 8 experts"));
  ck_assert_int_eq(hec_system_recorded(report, "small.jsonl", &deep, &loads, &there), HEC_BAD_INPUT);
  return add_four(report);
}

START_TEST(loads_are_as_described) {
  static const hec_system hot = {"hot", "", "", "", check_hot}, stated = {"stated", "", "", "", check_stated},
                          recorded = {"recorded", "", "", "", check_recorded};
  hec_systems_free(run(&hot, NULL));
  hec_systems_free(run(&stated, NULL));
  write_trace();
  hec_systems_free(run(&recorded, folder));
  char path[96];
  (void)snprintf(path, sizeof path, "%s/small.jsonl", folder);
  (void)remove(path);
  (void)rmdir(folder);
}
END_TEST

/* ---- the table ---- */

static void check_row(const hec_system *system, const hec_system_row *row) {
  ck_assert_msg(row->published.low > 0 && row->published.low <= row->published.high, "%s: %s", system->name,
                row->quantity);
  if (row->skipped) {
    ck_assert_msg(strlen(row->skipped) > 10, "%s: %s", system->name, row->quantity);
    return;
  }
  ck_assert_msg(isfinite(row->ours.low) && isfinite(row->ours.high) && row->ours.low > 0 &&
                    row->ours.low <= row->ours.high,
                "%s: %s", system->name, row->quantity);
  ck_assert_msg(isfinite(hec_system_ratio(row)), "%s: %s", system->name, row->quantity);
  if (row->moved_by)
    ck_assert_msg(row->moves.low <= row->ours.low && row->moves.high >= row->ours.high, "%s: %s", system->name,
                  row->quantity);
}

START_TEST(every_system_runs_twice_the_same) {
  hec_system_report *report = run(NULL, NULL), *again = run(NULL, NULL);
  int32_t n = hec_system_count(report), n_systems = 0;
  for (int32_t i = 0; i < n; i++) {
    const hec_system *system, *other;
    const hec_system_row *row = hec_system_at(report, i, &system);
    check_row(system, row);
    for (int32_t j = 0; j < i; j++) {
      const hec_system_row *before = hec_system_at(report, j, &other);
      ck_assert_msg(other != system || strcmp(before->quantity, row->quantity) != 0, "%s: %s twice", system->name,
                    row->quantity);
    }
    if (i > 0)
      hec_system_at(report, i - 1, &other);
    n_systems += i == 0 || other != system;
  }
  int32_t in_table = 0;
  for (; hec_systems[in_table]; in_table++) {
    ck_assert_ptr_eq(hec_system_find(hec_systems[in_table]->name), hec_systems[in_table]);
    ck_assert_int_gt(hec_system_sum(report, hec_systems[in_table]).numbers, 0);
  }
  ck_assert_int_eq(n_systems, in_table);
  hec_text a = {0}, b = {0};
  hec_systems_json(report, &a);
  hec_systems_json(again, &b);
  ck_assert_uint_eq(a.length, b.length);
  ck_assert_mem_eq(a.data, b.data, a.length);
  hec_json *json;
  ck_assert_msg(hec_json_parse(a.data, a.length, "report", &json) == HEC_OK, "%s", hec_last_error());
  hec_json_free(json);
  hec_text_free(&a);
  hec_text_free(&b);
  hec_systems_free(again);
  hec_systems_free(report);
}
END_TEST

/* Numbers of the sources, written down a second time. */
START_TEST(published_numbers_are_those_of_the_sources) {
  static const struct {
    const char *system, *quantity;
    double low, high;
  } source[] = {
      {"llep", "gpt-oss-120b, balanced", 1.07, 1.07},
      {"llep", "gpt-oss-120b, 95 % to 1 experts", 6.11, 6.11},
      {"llep", "DeepSeek-V3, balanced", 0.92, 0.92},
      {"llep", "DeepSeek-V3, 80 % to 4 experts", 3.64, 3.64},
      {"llep", "Kimi-K2, 30 % to 1 experts", 1.48, 1.48},
      {"llep", "Kimi-K2, 95 % to 16 experts", 4.83, 4.83},
      {"llep", "gpt-oss-20b, inference, EP8", 1.4, 1.4},
      {"llep", "gpt-oss-120b, inference, EP32", 1.9, 1.9},
      {"laer", "busiest over mean, LAER", 1.29, 1.29},
      {"laer", "busiest over mean, FlexMoE", 1.66, 1.66},
      {"laer", "all-to-all with waiting, FSDP+EP over LAER", 2.68, 2.68},
      {"laer", "iteration, FSDP+EP over LAER, Mixtral-8x7B e16k4", 1.45, 1.45},
      {"laer", "iteration, FlexMoE over LAER, Mixtral-8x22B e16k4", 1.38, 1.38},
      {"ultraep", "busiest over mean after, from 3.03", 1.01, 1.01},
      {"ultraep", "replicas, from 2.01", 46, 46},
      {"ultraep", "sending weights, relayed to direct, from 1.51", 0.194, 0.214},
      {"ultraep", "planning, from 3.03", 0.078, 0.078},
      {"ultraep", "training step over no balancing", 1.49, 1.49},
      {"moonep", "dispatch", 1717, 1717},
      {"smartmoe", "layer time, static over placed every 10 iterations", 1.48908, 1.48909},
      {"smartmoe", "layer time, static over placed every 100 iterations", 1.33203, 1.33204},
      {"fastermoe", "shadowing over FastMoE, 64 GPUs, up to", 4.74, 4.74},
      {"flexmoe", "time to quality, DeepSpeed over FlexMoE, mean", 1.70, 1.70},
      {"prophet", "FasterMoE over DeepSpeed, 8 RTX 2080 Ti, DM, top-1", 0.96, 0.96},
      {"prophet", "Pro-Prophet over DeepSpeed, 16 RTX 3090, L, top-2", 2.23, 2.23},
      {"symi", "FlexMoE, an iteration that moves experts over one that does not", 2.46, 4.10},
      {"eplb", "busiest over mean, EP36, 8 slots", 1.115, 1.115},
      {"taot", "step over expert parallelism, EP16, imbalance 90 %", 1.79, 1.79},
      {"micromoe", "iteration, Megatron-LM over MicroMoE, up to", 1.476, 1.476},
      {"hiermoe", "step over Megatron-LM, both models", 1.18, 1.27},
      {"harmoeny", "busiest over mean, HarMoEny", 1.02, 1.02},
      {"janus", "iteration over expert parallelism, up to", 2.06, 2.06},
  };
  hec_system_report *report = run(NULL, NULL);
  for (size_t k = 0; k < sizeof source / sizeof *source; k++) {
    int32_t found = 0;
    for (int32_t i = 0; i < hec_system_count(report); i++) {
      const hec_system *system;
      const hec_system_row *row = hec_system_at(report, i, &system);
      if (strcmp(system->name, source[k].system) != 0 || strcmp(row->quantity, source[k].quantity) != 0)
        continue;
      found++;
      ck_assert_double_ge(row->published.low, source[k].low);
      ck_assert_double_le(row->published.high, source[k].high);
    }
    ck_assert_msg(found == 1, "%s: %s", source[k].system, source[k].quantity);
  }
  hec_systems_free(report);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("validate.systems");
  TCase *cases = tcase_create("systems");
  tcase_set_timeout(cases, 240);
  tcase_add_test(cases, rows_are_judged);
  tcase_add_test(cases, rows_are_summed);
  tcase_add_test(cases, loads_are_as_described);
  tcase_add_test(cases, every_system_runs_twice_the_same);
  tcase_add_test(cases, published_numbers_are_those_of_the_sources);
  suite_add_tcase(suite, cases);
  return suite;
}

HEC_TEST_MAIN(make_suite)
