/* Maps of a sweep and the sentences about them, of rows whose times are set by hand. Axes: ranks to the right, tokens
 * downwards; micro-batches and laws make four grids. */
#include "tests/support/test.h"
#include "tools/front/sweep/sweep.h"

#include <math.h>
#include <string.h>

static const char spec[] =
    "{\"trace\": [{\"synth\": {\"workload\": \"lognormal\"}}], \"policy\": [\"ep\", \"eplb\", \"hecate\"],"
    " \"ranks\": [8, 16], \"tokens\": [\"auto\", 4096], \"micro_batches\": [1, 2],"
    " \"law\": [\"alpha_beta\", \"max_min\"]}";

typedef struct {
  int policy, ranks, tokens, micro_batches, law; /* places of values */
} at;

typedef struct {
  hec_arena arena;
  hec_sweep sweep;
  hec_sweep_rows rows;
  hec_report_maps maps;
} maker;

/* seconds: below 0, the row does not fit; NAN, it cannot run. */
static void make(double (*seconds)(at), maker *m) {
  m->sweep = (hec_sweep){.n = 0};
  ck_ok(hec_sweep_parse(spec, sizeof spec - 1, "spec", &m->sweep));
  m->rows = hec_sweep_rows_new(&m->sweep);
  for (int64_t i = 0; i < m->sweep.n; i++) {
    int place[HEC_SWEEP_AXES];
    for (int a = 0; a < HEC_SWEEP_AXES; a++)
      place[a] = (int)(hec_sweep_at(&m->sweep, i, (hec_sweep_axis)a) - m->sweep.axis[a].value);
    at where = {place[HEC_AXIS_policy], place[HEC_AXIS_ranks], place[HEC_AXIS_tokens], place[HEC_AXIS_micro_batches],
                place[HEC_AXIS_law]};
    hec_sweep_row row = {.model = "m", .cluster = "c"};
    (void)strcpy(row.schedule, where.ranks ? "hecate" : where.law ? "lina" : "serial");
    row.value[HEC_SWEEP_MEDIAN] = fabs(seconds(where));
    row.value[HEC_SWEEP_FITS] = seconds(where) > 0;
    row.why = isnan(seconds(where)) ? "it cannot" : NULL;
    row.value[HEC_SWEEP_TOKENS_USED] = where.tokens ? 4096 : where.ranks ? 512 : 1024;
    hec_sweep_rows_set(&m->rows, i, &row);
  }
  m->maps = hec_sweep_maps(&m->rows, &m->arena);
}

static void finish(maker *m) {
  hec_sweep_rows_free(&m->rows);
  hec_sweep_free(&m->sweep);
  hec_arena_free(&m->arena);
}

/* Milliseconds. One micro-batch on 8 ranks: eplb 80 of ep's 100, hecate 90. Elsewhere hecate 50. max_min adds 1 %. */
static double by_ranks(at a) {
  bool small = a.ranks == 0 && a.micro_batches == 0;
  double ms = a.policy == 0 ? 100 : a.policy == 1 ? 80 : small ? 90 : 50;
  return 1e-3 * ms * (a.law ? 1.01 : 1);
}

HEC_TEST(grids_that_do_not_differ_are_one) {
  maker m = {0};
  make(by_ranks, &m);
  const hec_report_maps *maps = &m.maps;
  ck_assert_str_eq(maps->x_name, "ranks");
  ck_assert_str_eq(maps->y_name, "tokens per rank");
  ck_assert_str_eq(maps->x_value[0], "8 ranks");
  ck_assert_str_eq(maps->y_value[0], "auto (512 to 1024 tokens)");
  ck_assert_str_eq(maps->y_value[1], "4096 tokens");
  ck_assert_int_eq(maps->n_maps, 2); /* laws do not differ, micro-batches do */
  ck_assert_str_eq(maps->maps[0].fixed, "1 micro-batch, any law");
  ck_assert_str_eq(maps->maps[1].fixed, "2 micro-batches, any law");
  const hec_report_cell *cell = maps->maps[0].cells;
  ck_assert_int_eq((int)maps->maps[0].n_joined, 2);
  ck_assert_str_eq(cell[0].name, "eplb");
  ck_assert_ptr_nonnull(strstr(cell[0].about, "copies in spare slots"));
  ck_assert_ptr_eq(cell[0].schedule, NULL); /* the laws' differ */
  ck_assert_str_eq(cell[1].schedule, "hecate");
  ck_assert_double_eq_tol(cell[0].seconds.low, 0.08, 1e-12);
  ck_assert_double_eq_tol(cell[0].seconds.high, 0.0808, 1e-12);
  ck_assert_double_eq_tol(cell[0].vs_ep.low, 1.25, 1e-12);
  ck_assert_double_eq_tol(cell[0].over_next.high, 1.125, 1e-12);
  ck_assert_str_eq(cell[0].next_name, "hecate");
  ck_assert_str_eq(cell[1].name, "hecate");
  ck_assert_str_eq(maps->names[0], "hecate");
  ck_assert_int_eq((int)maps->n_cells[0], 12);
  ck_assert_int_eq((int)maps->n_cells[1], 4);
  finish(&m);
}

HEC_TEST(a_sentence_per_family) {
  maker m = {0};
  make(by_ranks, &m);
  ck_assert_str_eq(
      m.maps.families,
      "Rearrangement (eplb) wins all 4 cells with 8 ranks and 1 micro-batch, and none elsewhere: 1.25 times as "
      "fast as ep.\n"
      "FSSDP (hecate) wins 12 of 16 cells, among them 8 of the 8 with 16 ranks: 2.00 times as fast as ep.\n"
      "Plain expert parallelism wins nowhere and comes nearest, 25 % behind, with 8 ranks, tokens per rank auto "
      "(512 to 1024 tokens), 1 micro-batch, law alpha_beta.\n");
  finish(&m);
}

/* hecate everywhere, but under max_min with 4096 tokens, where ep stays in front by a hair. */
static double by_law(at a) {
  bool plain = a.law && a.tokens;
  return a.policy == 0 ? (plain ? 0.05 : 0.1) : a.policy == 1 ? 0.2 : plain ? 0.051 : 0.05;
}

HEC_TEST(a_family_that_wins_elsewhere) {
  maker m = {0};
  make(by_law, &m);
  ck_assert_str_eq(
      m.maps.families,
      "Plain expert parallelism (ep) wins all 4 cells with 4096 tokens and law max_min, and none elsewhere.\n"
      "FSSDP (hecate) wins 12 of 16 cells, among them 8 of the 8 with tokens per rank auto (512 to 1024 tokens): "
      "2.00 times as fast as ep.\n"
      "Rearrangement wins nowhere and comes nearest, 300 % behind, with 8 ranks, tokens per rank auto (512 to "
      "1024 tokens), 1 micro-batch, law alpha_beta.\n");
  ck_assert_int_eq(m.maps.n_maps, 2);
  ck_assert_str_eq(m.maps.maps[1].fixed, "any micro-batches, law max_min");
  finish(&m);
}

/* The same winner everywhere, but gains 6 % apart with two micro-batches under max_min. Three grids, of which two are one
 * where they are no product of values. */
static double by_gain(at a) {
  return a.policy == 0 ? (a.law && a.micro_batches ? 0.106 : 0.1) : a.policy == 1 ? 0.2 : 0.05;
}

HEC_TEST(gains_that_differ_keep_grids_apart) {
  maker m = {0};
  make(by_gain, &m);
  ck_assert_int_eq(m.maps.n_maps, 2);
  ck_assert_int_eq((int)m.maps.maps[0].n_joined, 3);
  ck_assert_str_eq(m.maps.maps[0].fixed,
                   "1 micro-batch, law alpha_beta; or 1 micro-batch, law max_min; or 2 micro-batches, "
                   "law alpha_beta");
  ck_assert_str_eq(m.maps.maps[1].fixed, "2 micro-batches, law max_min");
  ck_assert_str_eq(
      m.maps.families,
      "FSSDP (hecate) wins everywhere: 2.00 to 2.12 times as fast as ep.\n"
      "Plain expert parallelism wins nowhere and comes nearest, 100 % behind, with 8 ranks, tokens per rank auto "
      "(512 to 1024 tokens), 1 micro-batch, law alpha_beta.\n"
      "Rearrangement wins nowhere and comes nearest, 300 % behind, with 8 ranks, tokens per rank auto (512 to "
      "1024 tokens), 1 micro-batch, law alpha_beta.\n");
  finish(&m);
}

/* One micro-batch: on 8 ranks ep is too large; on 16 it cannot run. Two: nothing fits on 8, nothing runs on 16 with 4096 tokens. */
static double by_memory(at a) {
  double ms = a.policy == 0 ? 100 : a.policy == 1 ? 80 : 50;
  if (a.micro_batches)
    return 1e-3 * (a.ranks == 0 ? -ms : a.tokens ? (double)NAN : ms);
  return 1e-3 * (a.policy > 0 ? ms : a.ranks == 0 ? -ms : (double)NAN);
}

HEC_TEST(without_ep_that_fits) {
  maker m = {0};
  HEC_SCOPED(hec_text) verdict = {0};
  make(by_memory, &m);
  const hec_report_cell *one = m.maps.maps[0].cells, *two = m.maps.maps[1].cells;
  ck_assert_int_eq(m.maps.n_maps, 2);
  ck_assert_str_eq(one[0].no_ep, "ep does not fit");
  ck_assert_str_eq(one[1].no_ep, "ep cannot run");
  ck_assert(!(one[0].vs_ep.low > 0) && !(one[1].vs_ep.low > 0));
  ck_assert_double_eq_tol(one[0].over_next.low, 1.6, 1e-12);
  ck_assert(two[0].who < 0 && two[0].ran && two[3].who < 0 && !two[3].ran);
  ck_assert(two[1].no_ep == NULL && two[1].vs_ep.low > 1.9);
  hec_report_maps_verdict(&m.maps, &verdict);
  static const char *const says[] = {
      "hecate in 10 of 10 cells", "FSSDP (hecate) wins everywhere: 2.00 times as fast as ep where ep fits.\n",
      "In 8 of the 10 cells ep does not fit or cannot run: gains there are over the next that fits.\n",
      "In 4 more cells nothing fits into memory.\nIn 2 more cells nothing can run: the CSV says why.\n"};
  for (size_t i = 0; i < sizeof says / sizeof *says; i++)
    ck_assert_msg(strstr(verdict.data, says[i]) != NULL, "no \"%s\" in \"%s\"", says[i], verdict.data);
  finish(&m);
}
