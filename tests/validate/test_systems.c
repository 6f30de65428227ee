/* Published numbers of other systems. How a row is judged, what a data file says and its mistakes, loads as they are
 * described, recorded data that is absent or unfit. And every row of the table in a quick run. Complete, finite, the
 * same twice. */
#include "models/json.h"
#include "tests/support/test.h"
#include "validate/published/scope.h"
#include "validate/published/system.h"

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

HEC_TEST(rows_are_judged) {
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

static const hec_system four = {
    "four", "{\"title\": \"title\", \"source\": \"source\", \"differs\": \"differs\","
            " \"quantity\": \"q\", \"setup\": \"s\", \"from\": \"p\", \"assumed\": \"\", \"published\": 2, \"rows\": ["
            " {\"value\": 2.19}," /* 1.1 is within 10 % but for rounding, so a little less is taken */
            " {\"moved_by\": \"tokens\", \"rows\": [{\"value\": 1.5, \"also\": [1, 3]},"
            "  {\"value\": 0.5, \"also\": [0.4, \"0.5 + 0.4\"]}, {\"skipped\": \"no data\"}]}]}"};

static hec_system_report *run(const hec_system *system, const char *shared) {
  hec_system_report *report;
  const hec_system_options options = {.seed = 1, .shared = shared, .stamp = "a stamp", .quick = true};
  ck_assert_msg(hec_systems_run(system, &options, &report) == HEC_OK, "%s", hec_last_error());
  return report;
}

HEC_TEST(rows_are_summed) {
  HEC_OPENED(hec_system_report) *report = run(&four, NULL);
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
  HEC_SCOPED(hec_text) text = {0};
  hec_doc_write(hec_systems_report, report, HEC_DOC_MARKDOWN, 0, &text);
  ck_assert_ptr_nonnull(strstr(text.data, "a stamp."));
  ck_assert_ptr_nonnull(strstr(text.data, "| 3 | q | 2.00x | 0.50x | 0.25 | **other** | 0.40-0.90x (tokens) |"));
  ck_assert_ptr_nonnull(strstr(text.data, "| 4 | q | 2.00x | skipped |"));
  ck_assert_ptr_nonnull(strstr(text.data, "four: of 4 numbers 3 compared (1 skipped); within 10 %: 1, within 25 %: 2; "
                                          "who wins: 2 of 3 the same; in the range tried: 1 of 2."));
  ck_assert_ptr_nonnull(strstr(text.data, "- 1 to 3: s. Published in: p."));
}

/* ---- what a file says ---- */

#define FILE_OF(rows) "{\"title\": \"t\", \"source\": \"s\", \"differs\": \"d\", " rows "}"
#define ROW "\"quantity\": \"q\", \"setup\": \"s\", \"from\": \"p\", \"assumed\": \"\", \"published\": 2"

HEC_TEST(formulas_are_computed) {
  static const struct {
    const char *formula;
    double value;
  } known[] = {{"2.5", 2.5},         {"1 / (1 - 0.25) / 2", 1 / 0.75 / 2},
               {"7 - 2 - 1 * 3", 2}, {"least(3, 1.5, 2) + most(1, 4)*10", 41.5},
               {"1e6 * 2", 2e6},     {"3 / 0", NAN},
               {"3 / (1 - 2)", NAN}};
  static const char *const bad[] = {"", "1 +", "(1", "least(1", "sum(1, 2)", "1 2", "1 / ", "x", "x.y", "-1", "1..2"};
  for (size_t i = 0; i < sizeof known / sizeof *known + sizeof bad / sizeof *bad; i++) {
    bool good = i < sizeof known / sizeof *known;
    const char *formula = good ? known[i].formula : bad[i - sizeof known / sizeof *known];
    HEC_SCOPED(hec_text) text = {0};
    HEC_OPENED(hec_json) *json = NULL;
    double value = 0;
    hec_text_printf(&text, "\"%s\"", formula);
    ck_assert_int_eq(hec_json_parse(text.data, text.length, "f", &json), HEC_OK);
    hec_status status = hec_expression(json, hec_json_root(json), NULL, NULL, &value);
    ck_assert_msg(status == (good ? HEC_OK : HEC_BAD_INPUT), "%s", formula);
    if (good)
      ck_assert_msg(value == known[i].value || (isnan(value) && isnan(known[i].value)), "%s: %g", formula, value);
    else
      ck_assert_msg(strstr(hec_last_error(), "formula") != NULL, "%s: %s", formula, hec_last_error());
  }
}

/* AlltoAll of testbed B is linear in the factor: 1, 2, 3 and 4 times, so every form has a value of its own. */
HEC_TEST(values_are_collected_over_axes) {
  static const char text[] = FILE_OF(
      ROW
      ", \"measure\": \"fsmoe-operation\", \"testbed\": \"B\", \"layers\": 1, \"batch\": 1, \"length\": 256,"
      " \"d_model\": 1024, \"d_ffn\": 4096, \"heads\": 8, \"factor\": 1, \"value\": \"a2a\","
      " \"sets\": {\"three\": {\"factor\": 3}, \"B\": {\"per_node\": 4, \"a2a\": [0.175, 3.06e-7],"
      " \"gather\": [0, 0], \"scatter\": [0, 0], \"reduce\": [0, 0], \"simple\": [0, 0], \"simple_backward\": [0, 0],"
      " \"mixtral\": [0, 0], \"mixtral_backward\": [0, 0], \"table\": [1, 2]}},"
      " \"axes\": {\"few\": [{\"factor\": 2}, {\"use\": \"three\"}, {\"factor\": 5, \"slow\": true}]},"
      " \"rows\": [{}, {\"over\": [\"few\"]}, {\"over\": [\"few\"], \"as\": \"mean\"}, {\"over\": [\"few\"], \"as\": "
      "\"geo\"}, {\"over\": [\"few\"], \"as\": \"most\"}, {\"over\": [\"few\"], \"as\": \"spread\"},"
      " {\"vary\": [[{\"factor\": 2}, {\"factor\": 4}]], \"moved_by\": \"m\"},"
      " {\"over\": [\"few\"], \"as\": \"least\", \"by\": \"a2a * 2\"},"
      " {\"factor\": [4, 3]},"
      " {\"over\": [\"few\", [{}, {\"batch\": 2}]], \"as\": \"most\"}]");
  static const hec_system system = {"axes", text};
  HEC_OPENED(hec_system_report) *report = run(&system, NULL);
  const hec_system_row *row = report->row;
  double start = 0.175, one = 3.06e-7 * 256 * 1024 / 4;
  double two = start + 2 * one, three = start + 3 * one;
  const hec_span expected[] = {{start + one, start + one},
                               {two, three},
                               {(two + three) / 2, (two + three) / 2},
                               {sqrt(two * three), sqrt(two * three)},
                               {three, three},
                               {three / two, three / two},
                               {two, two},
                               {0.5, 0.5},
                               {three, three},
                               {start + 6 * one, start + 6 * one}};
  ck_assert_int_eq(report->n_rows, sizeof expected / sizeof *expected);
  for (int32_t i = 0; i < report->n_rows; i++) {
    ck_assert_msg(fabs(row[i].ours.low / expected[i].low - 1) < 1e-12, "row %d: %.17g", i, row[i].ours.low);
    ck_assert_msg(fabs(row[i].ours.high / expected[i].high - 1) < 1e-12, "row %d: %.17g", i, row[i].ours.high);
    ck_assert(i == 6 || (row[i].moves.low == 0 && row[i].moves.high == 0));
  }
  ck_assert_double_eq_tol(row[6].moves.low, two, 1e-12);
  ck_assert_double_eq_tol(row[6].moves.high, start + 4 * one, 1e-12);
}

HEC_TEST(mistakes_in_a_file_are_named) {
  static const struct {
    const char *text, *said;
  } bad[] = {
      {"{\"title\": \"t\"}", "bad.json:1: the document: expected a member \"source\""},
      {FILE_OF(ROW ", \"valeu\": 1"), "valeu: expected a name of"},
      {FILE_OF("\"rows\": [{" ROW "}]"), "rows[0]: expected a row with a \"value\""},
      {FILE_OF("\"rows\": [{\"quantity\": \"q\", \"value\": 1}]"), "rows[0]: expected a row with a text \"setup\""},
      {FILE_OF("\"rows\": [1]"), "rows[0]: expected a row or a group"},
      {FILE_OF(ROW ", \"value\": 1, \"use\": \"none\""), "use: expected a name in \"sets\""},
      {FILE_OF(ROW ", \"value\": 1, \"over\": [\"none\"]"), "over[0]: expected an array of objects"},
      {FILE_OF(ROW ", \"value\": 1, \"as\": \"sum\""), "as: expected range, mean"},
      {FILE_OF(ROW ", \"value\": 1, \"measure\": \"none\""), "measure: expected simulated"},
      {FILE_OF(ROW ", \"value\": \"1 / 0\""), "value: expected a formula that gives a number"},
      {FILE_OF(ROW ", \"value\": \"ep.iteration\""), "expected a cluster and a model"},
      {FILE_OF(ROW ", \"value\": \"ep.speed\""), "value: expected known policies and fields"},
      {FILE_OF(ROW ", \"value\": \"ep.iteration\", \"model\": \"gpt-moe-s\", \"cluster\": \"p4d-4x8\", \"ranks\": 1.5"),
       "ranks: expected a whole number"},
      {FILE_OF(ROW ", \"value\": \"none.iteration\", \"model\": \"gpt-moe-s\", \"layers\": 1, \"cluster\": \"p4d-4x8\","
                   " \"ranks\": 8, \"tokens\": 64, \"iterations\": 1"),
       "\"none.policy\" is none)"},
      {FILE_OF("\"quantity\": \"q\", \"setup\": \"s\", \"from\": \"p\", \"assumed\": \"\", \"published\": [3, 2], "
               "\"value\": 1"),
       "published[1]: expected an end not below"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    const hec_system system = {"bad", bad[i].text};
    hec_system_report *report;
    ck_assert_msg(hec_systems_run(&system, &(hec_system_options){.quick = true}, &report) == HEC_BAD_INPUT, "%zu", i);
    ck_assert_ptr_null(report);
    ck_assert_msg(strstr(hec_last_error(), bad[i].said) != NULL, "%zu: %s", i, hec_last_error());
  }
}

/* ---- loads ---- */

HEC_TEST_ARENA(arena)

static const hec_loads_wish small = {.n_ranks = 4, .n_experts = 16, .n_layers = 2, .tokens = 100, .top_k = 2};

HEC_TEST(hot_experts_have_their_share) {
  hec_loads loads;
  ck_assert_int_eq(hec_loads_hot(&small, 3, 4, 0.8, &arena, &loads), HEC_OK);
  for (int32_t i = 0; i < 3; i++)
    for (int32_t l = 0; l < 2; l++) {
      ck_assert_uint_eq(hec_load_layer_total(&loads.load[i], l), 800);
      uint64_t hot = 0;
      for (int32_t s = 0; s < 4; s++)
        for (int32_t e = 0; e < 4; e++)
          hot += hec_load_row(&loads.load[i], l, s)[e];
      ck_assert_int_le(llabs((long long)hot - 640), 8); /* rounding of 64 cells */
    }
  ck_assert_double_eq_tol(hec_loads_overload(&loads, 0), 3.2, 0.04); /* the first of 4 ranks has 80 % */
  ck_assert_double_eq_tol(hec_loads_overload(&loads, 2), 1.733,
                          0.03); /* a group's first rank: 80 + 20 * 4 / 12 % of its half */
  ck_assert_int_eq(hec_loads_hot(&small, 3, 16, 0.8, &arena, &loads), HEC_BAD_INPUT);
}

HEC_TEST(loads_have_the_stated_imbalance) {
  const hec_loads_wish wish = {
      .still = true, .n_ranks = 16, .n_experts = 64, .n_layers = 4, .tokens = 1024, .top_k = 8};
  HEC_OPENED(hec_loads_store) *store = NULL;
  double sigma, before = 0;
  ck_assert_int_eq(hec_loads_open(NULL, 60, 1, &store), HEC_OK);
  for (int32_t i = 0; i < 3; i++) {
    static const double stated[] = {1.2, 2, 3};
    hec_loads loads;
    ck_assert_int_eq(hec_loads_imbalanced(store, &wish, 2, 0, stated[i], &arena, &loads, &sigma), HEC_OK);
    ck_assert_double_eq_tol(hec_loads_overload(&loads, 0) / stated[i], 1, 0.01);
    ck_assert_double_gt(sigma, before);
    before = sigma;
  }
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

HEC_TEST(recorded_loads_are_read) {
  hec_loads loads;
  char path[96];
  write_trace();
  (void)snprintf(path, sizeof path, "%s/small.jsonl", folder);
  ck_assert_int_eq(hec_loads_of_trace(path, &small, 3, &arena, &loads), HEC_OK);
  ck_assert_int_eq(loads.n, 2);
  ck_assert_int_eq(loads.stride[1], 10);
  for (int32_t l = 0; l < 2; l++) /* layers 0 and 2 of 4; 100 tokens of top-2 a rank */
    for (int32_t s = 0; s < 4; s++)
      ck_assert_uint_eq(hec_load_row(&loads.load[1], l, s)[2 * l], 200);
  hec_loads_wish other = small, deep = small;
  other.n_experts = 8;
  deep.n_layers = 5;
  ck_assert_int_eq(hec_loads_of_trace(path, &other, 3, &arena, &loads), HEC_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "small.jsonl: expected 8 experts"));
  ck_assert_int_eq(hec_loads_of_trace(path, &deep, 3, &arena, &loads), HEC_BAD_INPUT);

  /* in a file: each record standing still, a record beyond the last left out, a file that is not there named */
  static const char text[] =
      FILE_OF(ROW ", \"model\": \"gpt-moe-s\", \"layers\": 2, \"experts\": 16, \"cluster\": \"p4d-4x8\", \"ranks\": 4,"
                  " \"tokens\": 100, \"forward\": true, \"warmup\": 1, \"loads\": \"recorded\", \"iterations\": 3,"
                  " \"value\": \"ep.overload\", \"file\": \"small.jsonl\", \"rows\": ["
                  " {\"over\": [[{\"record\": 0}, {\"record\": 1}, {\"record\": 2}]]}, {\"file\": \"none.jsonl\"},"
                  " {\"over\": [[{\"record\": 1}, {\"file\": \"none.jsonl\", \"optional\": true}]]}]");
  static const hec_system system = {"recorded", text};
  HEC_OPENED(hec_system_report) *report = run(&system, folder);
  ck_assert_ptr_null(report->row[0].skipped);
  ck_assert_double_eq(report->row[0].ours.low, 4); /* one expert has all: one rank of four */
  ck_assert_str_eq(report->row[1].skipped, "none.jsonl is not below the folder of recorded data");
  ck_assert_double_eq(report->row[2].ours.high, 4);
  hec_systems_free(report);
  report = run(&system, NULL);
  ck_assert_str_eq(report->row[0].skipped, "small.jsonl is not below the folder of recorded data");
  (void)remove(path);
  (void)rmdir(folder);
}

/* ---- the table ---- */

static void check_row(const char *system, const hec_system_row *row) {
  ck_assert_msg(row->published.low > 0 && row->published.low <= row->published.high, "%s: %s", system, row->quantity);
  if (row->skipped) {
    ck_assert_msg(strlen(row->skipped) > 10, "%s: %s", system, row->quantity);
    return;
  }
  ck_assert_msg(isfinite(row->ours.low) && isfinite(row->ours.high) && row->ours.low > 0 &&
                    row->ours.low <= row->ours.high,
                "%s: %s", system, row->quantity);
  ck_assert_msg(isfinite(hec_system_ratio(row)), "%s: %s", system, row->quantity);
  if (row->moved_by)
    ck_assert_msg(row->moves.low <= row->ours.low && row->moves.high >= row->ours.high, "%s: %s", system,
                  row->quantity);
}

HEC_TEST(every_system_runs_twice_the_same) {
  HEC_OPENED(hec_system_report) *report = run(NULL, NULL), *again = run(NULL, NULL);
  for (int32_t k = 0; k < report->n_sections; k++) {
    const hec_system_section *section = &report->section[k];
    ck_assert_str_eq(section->file.name, hec_systems[k]->name);
    ck_assert_ptr_eq(hec_system_find(hec_systems[k]->name), hec_systems[k]);
    ck_assert_int_gt(hec_system_sum(report, section).numbers, 0);
    for (int32_t i = section->first; i < section->end; i++) {
      check_row(section->file.name, &report->row[i]);
      for (int32_t j = section->first; j < i; j++)
        ck_assert_msg(strcmp(report->row[j].quantity, report->row[i].quantity) != 0, "%s: %s twice", section->file.name,
                      report->row[i].quantity);
    }
  }
  ck_assert_ptr_null(hec_systems[report->n_sections]);
  HEC_SCOPED(hec_text) a = {0}, b = {0};
  hec_doc_write(hec_systems_report, report, HEC_DOC_JSON, 1, &a);
  hec_doc_write(hec_systems_report, again, HEC_DOC_JSON, 1, &b);
  ck_assert_uint_eq(a.length, b.length);
  ck_assert_mem_eq(a.data, b.data, a.length);
  HEC_OPENED(hec_json) *json = NULL;
  ck_assert_msg(hec_json_parse(a.data, a.length, "report", &json) == HEC_OK, "%s", hec_last_error());
}

/* A file without its row would never be shown; a row without its file is an assertion. */
HEC_TEST(every_file_is_listed) {
  int32_t n = 0;
  for (const hec_preset_data *file = hec_system_data; file->name; file++) {
    ck_assert_msg(hec_system_find(file->name) || strcmp(file->name, "hecate") == 0, "%s.json is not in system_list.h",
                  file->name);
    n++;
  }
  for (int32_t i = 0; hec_systems[i]; i++)
    n--;
  ck_assert_int_eq(n, 1);
}

/* Numbers of the sources, written down a second time. */
HEC_TEST(published_numbers_are_those_of_the_sources) {
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
  HEC_OPENED(hec_system_report) *report = run(NULL, NULL);
  for (size_t k = 0; k < sizeof source / sizeof *source; k++) {
    int32_t found = 0;
    const hec_system_section *section = report->section;
    while (strcmp(section->file.name, source[k].system) != 0)
      section++;
    for (int32_t i = section->first; i < section->end; i++) {
      const hec_system_row *row = &report->row[i];
      if (strcmp(row->quantity, source[k].quantity) != 0)
        continue;
      found++;
      ck_assert_double_ge(row->published.low, source[k].low);
      ck_assert_double_le(row->published.high, source[k].high);
    }
    ck_assert_msg(found == 1, "%s: %s", source[k].system, source[k].quantity);
  }
}
