/* The report of the published set-ups: its pieces by hand-computed values, its rows against the tables they come from,
 * and a quick run. Complete, the same twice, with and without recorded loads. */
#include "runtime/plan/problem.h"
#include "tests/support/test.h"
#include "validate/published/published.h"
#include "validate/stats.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

/* ---- pieces ---- */

HEC_TEST(statistics) {
  const double value[] = {2.0, 0.5, 8.0};
  ck_assert_double_eq_tol(hec_geo_mean(value, 3), 2.0, 1e-12);
  ck_assert_double_eq(hec_mean(value, 3), 3.5);
  ck_assert_double_eq(hec_min(value, 3), 0.5);
  ck_assert_double_eq(hec_max(value, 3), 8.0);
  ck_assert_double_eq_tol(hec_log_distance(2.385, 2.385 * 3), log(3), 1e-12);
  ck_assert_double_eq_tol(hec_log_distance(3, 1), hec_log_distance(1, 3), 1e-12);
  ck_assert(isnan(hec_log_distance(0, 1)) && isnan(hec_log_distance(NAN, 1)) && isnan(hec_log_distance(INFINITY, 1)));
  const double bad[] = {2.0, 0.0};
  ck_assert(isnan(hec_geo_mean(bad, 2)));
  ck_assert_int_eq(hec_side_of_one(1.2, 0.01), 1);
  ck_assert_int_eq(hec_side_of_one(0.8, 0.01), -1);
  ck_assert_int_eq(hec_side_of_one(1.005, 0.01), 0);
}

HEC_TEST(the_grid_takes_the_first_smallest_number) {
  const hec_grid_point grid[] = {{.objective = NAN}, {.objective = 0.5}, {.objective = 0.3}, {.objective = 0.3}};
  ck_assert_int_eq(hec_grid_best(grid, 4), 2);
  ck_assert_int_eq(hec_grid_best(grid, 2), 1);
  ck_assert_int_eq(hec_grid_best(grid, 1), -1);
}

HEC_TEST(rows_are_judged_by_sign_and_distance) {
  const hec_published_row win = {.kind = HEC_ROW_NUMBER, .paper = {1.5, 3}};
  ck_assert_int_eq(hec_row_verdict(&win, (hec_span){1.2, 9}), HEC_AGREES);
  ck_assert_int_eq(hec_row_verdict(&win, (hec_span){0.9, 9}), HEC_DISAGREES);
  ck_assert_int_eq(hec_row_verdict(&win, (hec_span){1, 9}), HEC_DISAGREES);
  ck_assert_int_eq(hec_row_verdict(&win, (hec_span){NAN, NAN}), HEC_UNDEFINED);
  ck_assert_double_eq_tol(hec_row_distance(&win, (hec_span){3, 3}), log(2) / 2, 1e-12);
  ck_assert_double_eq_tol(hec_row_distance(&win, (hec_span){NAN, NAN}), log(10), 1e-12);
  const hec_published_row loss = {.kind = HEC_ROW_NUMBER, .paper = {0.971, 0.971}};
  ck_assert_int_eq(hec_row_verdict(&loss, (hec_span){0.9, 0.9}), HEC_AGREES);
  ck_assert_int_eq(hec_row_verdict(&loss, (hec_span){1.1, 1.1}), HEC_DISAGREES);
  const hec_published_row sign = {.kind = HEC_ROW_SIGN, .paper = {NAN, NAN}};
  ck_assert_int_eq(hec_row_verdict(&sign, (hec_span){1.1, 1.1}), HEC_AGREES);
  ck_assert(isnan(hec_row_distance(&sign, (hec_span){1.1, 1.1})));
  const hec_published_row info = {.kind = HEC_ROW_INFO};
  ck_assert_int_eq(hec_row_verdict(&info, (hec_span){1.1, 1.1}), HEC_UNDEFINED);
}

static hec_published *open_rows(void) {
  hec_published *p;
  const hec_published_options options = {.cluster_a = "p3dn-4x8", .cluster_b = "p4d-4x8", .seed = 1, .quick = true};
  ck_assert_msg(hec_published_open(&options, &p) == HEC_OK, "%s", hec_last_error());
  return p;
}

/* A row is found by its key; a number of the paper is a range. A number has a reading and a place in the paper. */
HEC_TEST(rows_are_well_formed) {
  HEC_OPENED(hec_published) *p = open_rows();
  int32_t numbers = 0;
  for (int32_t i = 0; i < p->n_rows; i++) {
    const hec_published_row *row = &p->row[i];
    for (int32_t j = 0; j < i; j++)
      ck_assert_str_ne(row->key, p->row[j].key);
    if (row->kind != HEC_ROW_NUMBER)
      continue;
    numbers++;
    ck_assert_msg(row->paper.low > 0 && row->paper.low <= row->paper.high, "%s", row->key);
    /* A ratio that may lie on either side of 1 has no sign to agree with. */
    ck_assert_msg(row->paper.low > 1 || row->paper.high < 1, "%s", row->key);
  }
  ck_assert_int_gt(numbers, 0);
}

/* ---- loads ---- */

/* A recorded trace of 4 layers of 32 experts from 2 sources, 3 records, in a temporary file. */
static char trace_path[64];

static void write_trace(void) {
  (void)snprintf(trace_path, sizeof trace_path, "/tmp/hec_published_XXXXXX");
  int file = mkstemp(trace_path);
  ck_assert_int_ge(file, 0);
  FILE *out = fdopen(file, "w");
  fprintf(out, "{\"format\":\"hecate-trace\",\"version\":1,\"name\":\"small\",\"layers\":4,\"experts\":32,\"top_k\":2,"
               "\"source_ranks\":2,\"layout\":\"layer x source_rank x expert\"}\n");
  for (int i = 0; i < 3; i++) {
    fprintf(out, "{\"iter\":%d,\"layers\":[", 10 * i + 1);
    for (int l = 0; l < 4; l++)
      for (int s = 0; s < 2; s++) {
        fprintf(out, "%s%s[", l || s ? "," : "", s == 0 ? "[" : "");
        for (int e = 0; e < 32; e++)
          fprintf(out, "%s%d", e ? "," : "", e == l ? 100 + i : 2);
        fprintf(out, "]%s", s == 1 ? "]" : "");
      }
    fprintf(out, "]}\n");
  }
  (void)fclose(out);
}

HEC_TEST(recorded_loads_are_cut_as_documented) {
  write_trace();
  HEC_OPENED(hec_loads_store) *store = NULL;
  ck_assert_msg(hec_loads_open(trace_path, 60, 1, &store) == HEC_OK, "%s", hec_last_error());
  (void)remove(trace_path);
  HEC_SCOPED(hec_arena) arena = {0};
  hec_loads loads;
  hec_loads_wish wish = {HEC_LOADS_RECORDED, 1, false, 32, 64, 4, 64, 2};
  ck_assert_int_eq(hec_loads_make(store, &wish, 60, &arena, &loads), HEC_OK);
  ck_assert_int_eq(loads.n, 3);
  ck_assert_int_eq(loads.iter[2], 21);
  ck_assert_int_eq(loads.stride[2], 10);
  for (int32_t l = 0; l < 4; l++) {
    ck_assert_uint_eq(hec_load_layer_total(&loads.load[0], l), 32 * 64 * 2);
    uint64_t total[64] = {0};
    for (int32_t s = 0; s < 32; s++)
      for (int32_t e = 0; e < 64; e++)
        total[e] += hec_load_row(&loads.load[0], l, s)[e];
    for (int32_t e = 0; e < 64; e++) /* layer l, and layer l + 2 of 4 beside it: one hot expert each */
      ck_assert_int_eq(total[e] > 1000, e == l || e == 32 + (l + 2) % 4);
  }
  hec_loads_wish half = {HEC_LOADS_RECORDED, 1, false, 16, 32, 2, 64, 2};
  ck_assert_int_eq(hec_loads_make(store, &half, 2, &arena, &loads), HEC_OK);
  ck_assert_int_eq(loads.n, 2);
  uint64_t second = 0, other = 0; /* every second layer: 0 and 2 */
  for (int32_t s = 0; s < 16; s++) {
    second += hec_load_row(&loads.load[0], 1, s)[2];
    other += hec_load_row(&loads.load[0], 1, s)[1];
  }
  ck_assert_uint_gt(second, 10 * other);
}

HEC_TEST(synthetic_loads_do_not_depend_on_how_many_are_asked_for) {
  HEC_OPENED(hec_loads_store) *store = NULL;
  ck_assert_int_eq(hec_loads_open(NULL, 8, 7, &store), HEC_OK);
  ck_assert(!hec_loads_recorded(store));
  HEC_SCOPED(hec_arena) arena = {0};
  hec_loads few, many;
  hec_loads_wish wish = {HEC_LOADS_SYNTHETIC, 1.25, true, 16, 32, 3, 100, 2};
  ck_assert_int_eq(hec_loads_make(store, &wish, 8, &arena, &many), HEC_OK);
  ck_assert_int_eq(hec_loads_make(store, &wish, 2, &arena, &few), HEC_OK);
  ck_assert_int_eq(many.n, 8);
  for (int32_t i = 0; i < 2; i++)
    ck_assert_mem_eq(few.load[i].counts, many.load[i].counts, 3 * 16 * 32 * sizeof(uint32_t));
  for (int32_t l = 0; l < 3; l++)
    ck_assert_uint_eq(hec_load_layer_total(&many.load[7], l), 16 * 100 * 2);
}

HEC_TEST(unfit_traces_are_refused) {
  hec_loads_store *store;
  ck_assert_int_eq(hec_loads_open("/nonexistent/trace", 8, 1, &store), HEC_BAD_INPUT);
  ck_assert_ptr_null(store);
  FILE *out = fopen((write_trace(), trace_path), "w");
  fprintf(out, "{\"format\":\"hecate-trace\",\"version\":1,\"name\":\"x\",\"layers\":2,\"experts\":8,\"top_k\":2,"
               "\"source_ranks\":1,\"layout\":\"layer x expert\"}\n{\"iter\":1,\"layers\":[[1,1,1,1,1,1,1,1],"
               "[1,1,1,1,1,1,1,1]]}\n");
  (void)fclose(out);
  ck_assert_int_eq(hec_loads_open(trace_path, 8, 1, &store), HEC_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "32 experts"));
  (void)remove(trace_path);
}

/* ---- the cache of cells ---- */

static hec_cell_cache *open_cache_on(const char *cluster_b, hec_loads_store *store, const hec_setup *inputs) {
  return hec_cell_cache_new(
      &(hec_cell_cache_options){.base = *inputs, .store = store, .cluster = {"p3dn-4x8", cluster_b}});
}

static hec_cell_cache *open_cache(hec_loads_store *store, const hec_setup *inputs) {
  return open_cache_on("p4d-4x8", store, inputs);
}

#define SETTING_OF(ranks, experts, model)                                                                              \
  "{\"title\": \"\", \"source\": \"\", \"differs\": \"\", \"cluster\": \"B\", \"ranks\": " #ranks                      \
  ", \"experts\": " #experts ", \"model\": \"" model "\", \"loads\": \"series\"}"
static const hec_system b16 = {"b16", SETTING_OF(16, 32, "gpt-moe-s")},
                        b32 = {"b32", SETTING_OF(32, 64, "bert-moe-deep")};

static const hec_setup_cell *cell_of(hec_cell_cache *cache, const hec_system_file *file, const char *run) {
  const hec_setup_cell *cell;
  hec_setup setup;
  hec_scope scope = hec_scope_of(file, false);
  ck_assert_msg(hec_measure_cell(cache, &scope, run, &cell, &setup) == HEC_OK, "%s", hec_last_error());
  return cell;
}

HEC_TEST(a_cell_is_simulated_once_and_is_sound) {
  HEC_OPENED(hec_published) *p = open_rows();
  hec_setup inputs = p->plain;
  inputs.drift = false;
  inputs.iterations = 5;
  inputs.warmup = 2;
  HEC_OPENED(hec_cell_cache) *cache = open_cache(p->loads, &inputs);
  hec_system_file file;
  ck_assert_int_eq(hec_system_open(&b16, &file), HEC_OK);
  char run[] = "ep";
  const hec_setup_cell *ep = cell_of(cache, &file, run);
  ck_assert_ptr_eq(cell_of(cache, &file, run), ep);
  ck_assert_int_eq(hec_cell_cache_count(cache), 1);
  run[0] = 'x'; /* what a cell says of itself outlives the formula that asked for it */
  ck_assert_ptr_eq(hec_cell_cache_at(cache, 0, &inputs), ep);
  ck_assert_str_eq(inputs.policy, "ep");
  ck_assert_str_eq(inputs.model, "gpt-moe-s");
  const hec_setup_cell *hecate = cell_of(cache, &file, "hecate-published");
  ck_assert_int_eq(hec_cell_cache_count(cache), 2);
  ck_assert_double_lt(hecate->iteration_s, ep->iteration_s);
  ck_assert_double_lt(hecate->token_s, ep->token_s);
  ck_assert_double_lt(hecate->overload, ep->overload);
  ck_assert_double_gt(hecate->param_bytes, ep->param_bytes);
  ck_assert_double_eq(ep->sparse_s + ep->rearrange_s, 0);
  ck_assert_double_le(hecate->state_bytes, hecate->peak_bytes);
  /* 2 + 2 + 12 bytes: per layer attention (4 d^2, everywhere) and 2 experts of 4 d^2; gate and norms are small. */
  double params = 12 * 12.0 * 768 * 768;
  ck_assert_double_eq_tol(ep->param_bytes / (2 * params), 1, 0.01);
  ck_assert_double_eq_tol(ep->state_bytes / (16 * params), 1, 0.01);
  double layers = 0;
  for (int32_t l = 0; l < ep->n_layers; l++) {
    ck_assert_double_gt(ep->layer_s[l], 0);
    layers += ep->layer_s[l];
  }
  ck_assert_double_lt(layers, ep->iteration_s);
  ck_assert_double_lt(ep->token_s, layers);
  hec_system_close(&file);
}

/* attention < spAG = spRS <= 2 attention. Of L layers, each exposes (spAG - attention) in forward, and with
 * re-materialisation all but the last layer twice that in backward. Owners fixed, nothing to calibrate (m = t), a
 * gather that cannot hide. */
HEC_TEST(rematerialisation_exposes_three_times_as_much) {
  HEC_OPENED(hec_published) *p = open_rows();
  hec_setup inputs = p->plain;
  inputs.drift = false;
  inputs.iterations = 5;
  inputs.warmup = 2;
  /* A device known by its peak: planner and simulator then know the same window. */
  const char *cluster = "4x8 nvlink=300G@2us nvlink_eff=0.72 nic=50G@10us nic_eff=0.89 flops=312T eff=0.32 "
                        "hbm=1321.75G mem=40G";
  HEC_OPENED(hec_cell_cache) *cache = open_cache_on(cluster, p->loads, &inputs);
  hec_system_file file;
  ck_assert_int_eq(hec_system_open(&b32, &file), HEC_OK);
  int32_t own = cell_of(cache, &file, "hecate-published")->t_max;
  hec_cell_cache_free(cache);
  inputs.t = inputs.m = own + (own + 1) / 2;
  cache = open_cache_on(cluster, p->loads, &inputs);
  double plain_s = cell_of(cache, &file, "hecate-published")->sparse_s;
  double ratio = cell_of(cache, &file, "hecate-rm")->sparse_s / plain_s;
  /* Reductions, latencies and the wait for slower ranks are not in the law. */
  ck_assert_msg(fabs(ratio - (3 - 2.0 / 24)) < 0.45, "%g", ratio);
  hec_system_close(&file);
}

HEC_TEST(small_clusters_are_refused) {
  hec_published *published;
  hec_published_options options = {
      .cluster_a = "p3dn-4x8", .cluster_b = "1x8 nvlink=300G flops=100T mem=40G", .quick = true};
  ck_assert_int_eq(hec_published_run(&options, &published), HEC_BAD_INPUT);
  ck_assert_ptr_null(published);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "--cluster-b"));
}

static int32_t row_of(const hec_published *p, const char *key) {
  int32_t i = 0;
  while (strcmp(p->row[i].key, key) != 0)
    i++;
  return i;
}

/* What a disagreement may come from is what the changed inputs of this run say, of this row and no other. */
HEC_TEST(disagreements_are_explained_by_the_run) {
  HEC_OPENED(hec_published) *p = open_rows();
  int32_t growth = row_of(p, "growth"), fastest = row_of(p, "hecate_fastest"), flex = row_of(p, "smartmoe_total");
  hec_published_table *table = &p->table[0];
  table->n_changes = 3;
  table->change[1].change = "skew 1.5";
  table->change[2].change = "tokens 4096";
  table->value[HEC_LOADS_SYNTHETIC][growth] = (hec_published_value){{0.9, 0.9}, 0, HEC_DISAGREES};
  table->value[HEC_LOADS_SYNTHETIC][fastest] = (hec_published_value){{0.8, 0.8}, 0, HEC_DISAGREES};
  table->value[HEC_LOADS_SYNTHETIC][flex] = (hec_published_value){{0.7, 0.7}, 0, HEC_DISAGREES};
  for (int32_t k = 0; k < 3; k++) {
    table->change[k].ours[growth] = (hec_span){k == 1 ? 1.1 : 0.9, k == 1 ? 1.1 : 0.9};
    table->change[k].ours[fastest] = (hec_span){0.8, 0.9};
    table->change[k].ours[flex] = (hec_span){NAN, NAN};
  }
  HEC_SCOPED(hec_text) text = {0};
  hec_doc_write(hec_published_report, p, HEC_DOC_MARKDOWN, 0, &text);
  static const char *const expected[] = {
      "- `growth` (A): the paper says 1.25, here it is 0.900; on synthetic loads it agrees with one input changed: "
      "skew 1.5.\n",
      "- `hecate_fastest` (A and B, 16 and 32): the paper says > 1, here it is 0.800; of 2 changes of one input, "
      "on synthetic loads, none makes it agree.\n",
      "here it is 0.700; no change of one input was run for it.\n"};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
    ck_assert_msg(strstr(text.data, expected[i]) != NULL, "%s%.1500s", expected[i],
                  strstr(text.data, "Where the sign"));
  hec_text_free(&text);
  hec_doc_write(hec_published_report, p, HEC_DOC_JSON, 1, &text);
  ck_assert_ptr_nonnull(strstr(text.data, "\"trace\": null"));
}

/* ---- the whole ---- */

/* A quick run: its report, and the JSON of it. */
typedef struct {
  hec_text markdown, json;
} written;

static written report(const char *trace) {
  hec_published_options options = {
      .cluster_a = "p3dn-4x8", .cluster_b = "p4d-4x8", .trace = trace, .seed = 3, .quick = true, .stamp = "a stamp"};
  HEC_OPENED(hec_published) *published = NULL;
  ck_assert_msg(hec_published_run(&options, &published) == HEC_OK, "%s", hec_last_error());
  const hec_published_table *plain = &published->table[0];
  int32_t fastest = row_of(published, "hecate_fastest");
  for (int32_t i = 0; i < published->n_rows; i++) {
    const hec_published_value *value = &plain->value[HEC_LOADS_SYNTHETIC][i];
    ck_assert_msg(isnan(value->ours.low) || value->ours.low > 0 || published->row[i].kind == HEC_ROW_SIGN, "%s",
                  published->row[i].key);
  }
  ck_assert_int_eq(plain->value[HEC_LOADS_SYNTHETIC][fastest].verdict, HEC_AGREES);
  ck_assert_int_ge(published->best, 0);
  written w = {0};
  hec_doc_write(hec_published_report, published, HEC_DOC_MARKDOWN, 1, &w.markdown);
  hec_doc_write(hec_published_report, published, HEC_DOC_JSON, 1, &w.json);
  return w;
}

static void free_written(written *w) {
  hec_text_free(&w->markdown);
  hec_text_free(&w->json);
}

/* Two runs are the same and whole, and recorded loads get their columns. */
HEC_TEST(two_runs_are_the_same_and_whole) {
  write_trace();
  written a = report(trace_path), b = report(trace_path);
  (void)remove(trace_path);
  ck_assert_uint_eq(a.json.length, b.json.length);
  ck_assert_mem_eq(a.json.data, b.json.data, a.json.length);
  ck_assert_uint_eq(a.markdown.length, b.markdown.length);
  ck_assert_mem_eq(a.markdown.data, b.markdown.data, a.markdown.length);
  ck_assert_ptr_nonnull(strstr(a.markdown.data, "*Recorded* loads: small, every 10th iteration"));
  ck_assert_ptr_nonnull(strstr(a.markdown.data, "| recorded |"));
  ck_assert_ptr_nonnull(strstr(a.markdown.data, "a stamp."));
  HEC_OPENED(hec_published) *p = open_rows();
  for (int32_t i = 0; i < p->n_rows; i++) {
    char key[64];
    (void)snprintf(key, sizeof key, "\"key\": \"%s\"", p->row[i].key);
    ck_assert_msg(strstr(a.json.data, key) != NULL, "%s", key);
    ck_assert_ptr_nonnull(strstr(a.markdown.data, p->row[i].quantity));
  }
  free_written(&a);
  free_written(&b);
}
