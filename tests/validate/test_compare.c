/* Comparisons whose outcome is known: what is "measured" is the prediction times a factor per case. And the negative
 * controls, on programs of one operation and on machines on which they must change nothing. */
#include "models/json.h"
#include "runtime/program/duration.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"
#include "tests/validate/imitated.h"
#include "tools/validate/session_report.h"

#include <math.h>
#include <string.h>

enum { CASES = 4, ROUNDS = 5, STEPS = 4, WARMUP = 1, POINTS = CASES * (STEPS - WARMUP), RANKS = 4 };

HEC_TEST_ARENA(arena)
static hec_cluster cluster;
static hec_experiment_case cases[CASES];

/* Four sizes of one problem: predictions differ by far more than 5 %. */
static void setup(void) {
  const hec_model *model = hec_imitated_model(&arena, 2, 8, 2);
  if (hec_cluster_load("1x4 nvlink=2G@3us flops=50G mem=1G tile=1", &arena, &cluster) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  for (int32_t i = 0; i < CASES; i++) {
    hec_problem *problem = HEC_NEW(&arena, hec_problem, 1);
    hec_experiment_loads wish = {.n_layers = 2,
                                 .n_experts = 8,
                                 .top_k = 2,
                                 .n_ranks = RANKS,
                                 .tokens = 64 << i,
                                 .n_steps = STEPS,
                                 .sigma = 1,
                                 .seed = 3 + (uint64_t)i};
    cases[i] = (hec_experiment_case){.model = model,
                                     .problem = problem,
                                     .policy = hec_policy_find(i % 2 ? "hecate" : "ep"),
                                     .schedule = "serial",
                                     .n_steps = STEPS,
                                     .n_micro_batches = 1,
                                     .warmup = WARMUP};
    (void)snprintf(cases[i].name, sizeof cases[i].name, "case %d", (int)i);
    if (hec_problem_make(&model->moe, &cluster, true, RANKS, wish.tokens, problem) != HEC_OK ||
        hec_experiment_draw(&wish, &arena, &cases[i].steps) != HEC_OK)
      ck_abort_msg("%s", hec_last_error());
  }
}

static void teardown(void) {
  hec_arena_free(&arena);
}
HEC_TEST_FIXTURE(setup, teardown)

/* ---- Rounds ---- */

typedef struct {
  hec_comparison comparison;
  hec_experiment_reading reading;
  int32_t only; /* the step that is executed; 0: all */
} session;

static void add(void *context, int32_t index, const hec_replayed *iteration) {
  session *s = context;
  s->reading.total_s = 1e-12 * (double)hec_timeline_end_ps(iteration->timeline);
  if (index >= WARMUP && (s->only == 0 || index == s->only))
    hec_comparison_add(&s->comparison, &s->reading, iteration);
}

static void open_session(session *s, bool draw) {
  *s = (session){0};
  hec_comparison_open(&s->comparison,
                      &(hec_comparison_options){.cases = cases,
                                                .n_cases = CASES,
                                                .n_rounds = ROUNDS,
                                                .seed = 5,
                                                .law = &hec_law_alpha_beta,
                                                .timelines = draw ? hec_timeline_formats[0] : NULL},
                      &arena);
  ck_assert_int_eq(s->comparison.n_points, POINTS);
}

static void read_case(session *s, int32_t a_case, int32_t round, double factor, double disturbance) {
  s->reading = (hec_experiment_reading){.a_case = a_case, .round = round, .disturbance = disturbance};
  hec_imitated_run(&(hec_imitated){.cluster = &cluster, .factor = factor}, &cases[a_case], add, s);
}

static void finish(session *s) {
  if (hec_comparison_finish(&s->comparison, &cluster, NULL) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
}

/* Rounds scatter by -2, -1, 0, 1 and 2 % around each case's factor; the median is the factor. */
static void read_all(session *s, const double *factor) {
  for (int32_t round = 0; round < ROUNDS; round++)
    for (int32_t i = 0; i < CASES; i++)
      read_case(s, i, (round * 2 + i) % ROUNDS, factor[i] * (1 + 0.01 * (round - 2)), 0);
}

/* ---- What is said ---- */

static const hec_session *session_of(const hec_comparison *c) {
  hec_session *s = HEC_NEW(&arena, hec_session, 1);
  s->comparison = *c;
  s->options.compare = c->options;
  return s;
}

static const char *ranking_of(const hec_comparison *c) {
  HEC_SCOPED(hec_text) text = {0};
  ck_assert(hec_report_add_ranking(&(hec_session_report){.session = session_of(c)}, "", "; ", &text));
  const char *said = hec_arena_text(&arena, text.data);
  return said;
}

HEC_TEST(known_errors) {
  static const double factor[] = {1, 1.25, 0.8, 1.04};
  session s;
  open_session(&s, false);
  read_all(&s, factor);
  finish(&s);
  hec_comparison *c = &s.comparison;
  ck_assert_int_eq(c->n_conclusive, POINTS);
  ck_assert(c->disturbed <= 0);
  for (int32_t k = 0; k < POINTS; k++) {
    const hec_point *p = &c->points[k];
    ck_assert(p->conclusive && p->n_clean == ROUNDS && p->a_case == k / (STEPS - WARMUP));
    ck_assert_double_eq_tol(p->measured_s / p->predicted_s, factor[p->a_case], 1e-7);
    ck_assert_double_eq_tol(p->raw_s, p->measured_s, 1e-12);
    ck_assert_double_eq_tol(p->spread, 0.02, 1e-6);
    for (int32_t role = 0; role < HEC_N_ROLES; role++)
      ck_assert_double_eq_tol(p->measured_role_s[role], factor[p->a_case] * p->predicted_role_s[role], 1e-9);
    ck_assert(p->predicted_role_s[HEC_ROLE_EXPERTS] > 0);
  }
  for (int32_t i = 0; i < CASES; i++) {
    ck_assert_double_eq_tol(c->by_case[i].error.worst, fabs(1 / factor[i] - 1), 1e-6);
    ck_assert_double_eq_tol(c->by_case[i].error.bias, 1 / factor[i] - 1, 1e-6);
    ck_assert_int_eq(c->by_case[i].n_conclusive, STEPS - WARMUP);
  }
  /* errors 0, 0.2, 0.25 and 0.0385, three times each */
  ck_assert_double_eq_tol(c->error.median, (0.2 + 1 - 1 / 1.04) / 2, 1e-6);
  ck_assert_double_eq_tol(c->error.worst, 0.25, 1e-6);
  ck_assert_int_eq(c->error.n, POINTS);
  ck_assert_double_eq_tol(c->raw.median, c->error.median, 1e-9);
  ck_assert(c->kendall_tau >= 1 && c->ranking.pairs == 6 && c->ranking.wrong == 0);
  ck_assert(c->n_right == 6 && c->n_wrong == 0 && c->n_not_apart == 0);
  ck_assert(c->chosen == 0 && c->best == 0 && fabs(c->regret) <= 0);
  for (int32_t i = 0; i < CASES;
       i++) { /* readings are 2 % to either side, and five of them do not say all (resample.h) */
    const hec_compared_case *one = &c->by_case[i];
    ck_assert(one->measured.low < one->measured_s && one->measured.high > one->measured_s);
    ck_assert_double_eq_tol((one->measured.high - one->measured.low) / one->measured_s, 0.04 * 1.32, 0.01);
    ck_assert(one->range.median.low <= one->error.median && one->range.median.high >= one->error.median);
  }
  ck_assert(c->range.median.low < c->error.median && c->range.median.high > c->error.median);
  ck_assert(c->range.median.low > 0 && c->range.median.high < 0.2);
  hec_comparison_close(c);
}

/* Order: the two largest are measured the other way round by 20 %: one pair in six is wrong; within 5 % it is no pair. */
HEC_TEST(ranking) {
  for (int32_t apart = 0; apart < 2; apart++) {
    session s;
    double factor[CASES] = {1, 1, 1, 1};
    open_session(&s, false);
    read_all(&s, factor);
    finish(&s);
    double ratio = s.comparison.by_case[3].predicted_s / s.comparison.by_case[2].predicted_s;
    hec_comparison_close(&s.comparison);
    factor[3] = (apart ? 1 / 1.2 : 1 / 1.02) / ratio;
    open_session(&s, false);
    read_all(&s, factor);
    finish(&s);
    ck_assert_double_eq_tol(s.comparison.kendall_tau, apart ? 4.0 / 6 : 1, 1e-9);
    ck_assert_int_eq(s.comparison.ranking.pairs, apart ? 6 : 5);
    ck_assert_int_eq(s.comparison.ranking.wrong, apart ? 1 : 0);
    ck_assert_int_eq(s.comparison.n_wrong, apart ? 1 : 0); /* two per cent apart, known to as much: no order */
    ck_assert_int_eq(s.comparison.n_not_apart, apart ? 0 : 1);
    ck_assert_int_eq(s.comparison.n_right, 5);
    hec_comparison_close(&s.comparison);
  }
}

/* The cheapest by prediction is measured dearer than another: that is what choosing it costs. */
HEC_TEST(regret) {
  session s;
  double factor[CASES] = {1, 1, 1, 1};
  open_session(&s, false);
  read_all(&s, factor);
  finish(&s);
  double ratio = s.comparison.by_case[1].predicted_s / s.comparison.by_case[0].predicted_s;
  hec_comparison_close(&s.comparison);
  factor[0] = 1.3 * ratio;
  open_session(&s, false);
  read_all(&s, factor);
  finish(&s);
  ck_assert_int_eq(s.comparison.chosen, 0);
  ck_assert(s.comparison.best != 0 && s.comparison.regret > 0);
  ck_assert_double_eq_tol(s.comparison.regret,
                          s.comparison.by_case[0].measured_s / s.comparison.by_case[s.comparison.best].measured_s - 1,
                          1e-12);
  ck_assert_double_eq_tol(s.comparison.by_case[0].measured_s / s.comparison.by_case[1].measured_s, 1.3, 1e-6);
  hec_comparison_close(&s.comparison);
}

/* Of readings that something disturbed the least disturbed half counts, so there is always a number. Of 5 rounds 0, 1, 2
 * are spoilt, of the last case 2 and the other 3 are not quiet either. */
HEC_TEST(disturbed_rounds) {
  session s;
  open_session(&s, false);
  for (int32_t i = 0; i < CASES; i++)
    for (int32_t round = 0; round < ROUNDS; round++) {
      bool spoilt = round < (i < 3 ? i : 2);
      read_case(&s, i, round, spoilt ? 7 : 1.1, spoilt ? 5 : i == 3 ? 2 : 0);
    }
  finish(&s);
  hec_comparison *c = &s.comparison;
  for (int32_t k = 0; k < POINTS; k++) {
    ck_assert(c->points[k].conclusive && c->points[k].n_read == ROUNDS);
    ck_assert_double_eq_tol(c->points[k].measured_s / c->points[k].predicted_s, 1.1, 1e-7);
  }
  ck_assert_int_eq(c->n_conclusive, POINTS);
  ck_assert_double_eq_tol(c->error.worst, 1 - 1 / 1.1, 1e-6);
  ck_assert(c->by_case[3].measured_s > 0 && c->points[POINTS - 1].n_clean == 0);
  ck_assert_double_eq_tol(c->disturbed, 8.0 / 20, 1e-12);
  ck_assert_ptr_nonnull(strstr(ranking_of(c), "6 pairs right, 0 wrong, 0 not told apart"));
  hec_comparison_close(c);
}

/* The time was over before two of four cases ran: they are said to be missing, and are in no number. */
HEC_TEST(no_time_for_all) {
  session s;
  open_session(&s, false);
  for (int32_t round = 0; round < 2; round++)
    for (int32_t i = 0; i < 2 - round; i++)
      read_case(&s, i, round, 1.1 + 0.01 * round, 0);
  finish(&s);
  hec_comparison *c = &s.comparison;
  ck_assert_int_eq(c->n_conclusive, 2 * (STEPS - WARMUP));
  ck_assert(c->n_min == 0 && c->n_max == 2 && c->n_ranked == 2 && c->n_pairs == 1);
  ck_assert_int_eq(c->by_case[3].n_conclusive, 0);
  ck_assert(c->by_case[3].measured_s <= 0 && !hec_interval_known(c->by_case[3].measured));
  ck_assert(hec_interval_known(c->by_case[0].measured)); /* two readings */
  ck_assert(!hec_interval_known(c->by_case[1].measured) && !hec_interval_known(c->by_case[1].range.median)); /* one */
  ck_assert_int_eq(c->n_not_apart, 1);
  ck_assert(isinf(hec_comparison_half_width(c)));
  ck_assert_ptr_nonnull(strstr(ranking_of(c), "; of 2 policies; there was no time for the other 2"));
  hec_comparison_close(c);
}

/* Iterations differ in their loads: two cases are ranked by those that count in both, not at all when there is none. */
HEC_TEST(ranked_by_common_iterations) {
  static const int32_t only[CASES] = {1, 2, 0, 1};
  session s;
  double ratio = 0;
  for (int32_t pass = 0; pass < 2; pass++) {
    open_session(&s, false);
    for (int32_t i = 0; i < CASES; i++)
      for (int32_t round = 0; round < ROUNDS; round++) {
        s.only = only[i];
        /* case 2 is measured dearer than case 3 */
        read_case(&s, i, round, i == 2 && pass == 1 ? 1.2 * ratio : 1, 0);
      }
    finish(&s);
    const hec_comparison *c = &s.comparison;
    ck_assert_int_eq(c->n_conclusive, 1 + 1 + (STEPS - WARMUP) + 1);
    ck_assert_int_eq(c->n_right + c->n_wrong + c->n_not_apart, 4); /* not (0, 1) nor (1, 3) */
    ck_assert_int_eq(c->ranking.pairs, 4);
    ck_assert_int_eq(c->ranking.wrong, pass);
    ck_assert_double_eq_tol(c->kendall_tau, pass ? 0.5 : 1, 1e-12);
    ratio = c->points[c->point_at[3]].predicted_s / c->points[c->point_at[2]].predicted_s;
    hec_comparison_close(&s.comparison);
  }
}

/* With no two cases that count nothing is ranked: no tau, no best, and neither text says that there is. */
HEC_TEST(one_case_is_no_ranking) {
  session s;
  open_session(&s, false);
  for (int32_t round = 0; round < ROUNDS; round++)
    for (int32_t i = 0; i < CASES; i++) {
      s.only = 2;
      if (i == 1)
        read_case(&s, i, round, 1.25, 0);
    }
  finish(&s);
  const hec_comparison *c = &s.comparison;
  ck_assert_int_eq(c->n_conclusive, 1);
  ck_assert_int_eq(c->n_ranked, 1);
  ck_assert_int_eq(c->n_pairs, 0);
  ck_assert_str_eq(ranking_of(c), "none: no two policies differ in an iteration that both executed");
  HEC_SCOPED(hec_text) text = {0};
  hec_report_add_verdict(&(hec_session_report){.session = session_of(c)}, &text);
  ck_assert_str_eq(text.data, "Predicted within 20.0 % [20.0, 20.0 %] (the one iteration that was executed).\n"
                              "Ranking: not tested, no two policies differ in an iteration that both executed.\n");
  hec_comparison_close(&s.comparison);
}

/* Measuring may stop once the case that is known least is known well enough: two quiet rounds are not enough, five are.
 * A case whose rounds scatter by 10 % keeps all waiting. */
HEC_TEST(narrow_enough) {
  session s;
  for (int32_t wild = 0; wild < 2; wild++) {
    open_session(&s, false);
    ck_assert(isinf(hec_comparison_half_width(&s.comparison)));
    for (int32_t round = 0; round < ROUNDS; round++) {
      for (int32_t i = 0; i < CASES; i++)
        read_case(&s, i, round, 1 + (wild && i == 2 ? 0.05 : 0.002) * ((round * 3) % ROUNDS - 2), 0);
      double half = hec_comparison_half_width(&s.comparison);
      ck_assert(round == 0 ? isinf(half) : wild && round > 1 ? half > HEC_NARROW : true);
      ck_assert(round < ROUNDS - 1 || (half <= HEC_NARROW) == !wild);
    }
    hec_comparison_close(&s.comparison);
  }
}

/* What was executed is not what is planned again: named, whatever changed. */
HEC_TEST(another_program) {
  session s;
  double factor[CASES] = {1, 1, 1, 1};
  open_session(&s, false);
  read_all(&s, factor);
  hec_load_row(&cases[2].steps[2].loads[0], 1, 0)[0] += 1;
  ck_assert_int_eq(hec_comparison_finish(&s.comparison, &cluster, NULL), HEC_FAILED);
  ck_assert_msg(strstr(hec_last_error(), "case 2, iteration 2:") != NULL, "%s", hec_last_error());
  hec_comparison_close(&s.comparison);
}

/* ---- The overlay ---- */

/* Sum of the durations of complete events in processes first .. first + RANKS, in microseconds. */
static double sum_of(const hec_json_value *events, int32_t first, int32_t *n) {
  double sum = 0;
  for (const hec_json_value *e = hec_json_first(events); e; e = hec_json_next(e)) {
    double pid = hec_json_number(hec_json_get(e, "pid"));
    if (strcmp(hec_json_text(hec_json_get(e, "ph")), "X") == 0 && pid >= first && pid < first + RANKS) {
      sum += hec_json_number(hec_json_get(e, "dur"));
      ++*n;
    }
  }
  return sum;
}

HEC_TEST(overlay) {
  session s;
  HEC_OPENED(hec_json) *json = NULL;
  double factor[CASES] = {1, 1.5, 2, 0.5};
  open_session(&s, true);
  read_all(&s, factor);
  finish(&s);
  if (hec_json_parse(s.comparison.events.data, s.comparison.events.length, "overlay", &json) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  const hec_json_value *root = hec_json_root(json), *events = hec_json_get(root, "traceEvents");
  ck_assert(events && hec_json_is_array(events));
  for (int32_t i = 0; i < CASES; i++) {
    char label[64];
    int32_t n[2] = {0, 0};
    double predicted = sum_of(events, (2 * i + 1) * 10000, &n[0]),
           measured = sum_of(events, (2 * i + 2) * 10000, &n[1]);
    ck_assert(n[0] > 0 && n[0] == n[1]);
    ck_assert_double_eq_tol(measured / predicted / factor[i], 1, 0.021); /* the last round's scatter */
    (void)snprintf(label, sizeof label, "case %d, predicted", (int)i);
    ck_assert_ptr_nonnull(strstr(s.comparison.events.data, label));
    (void)snprintf(label, sizeof label, "case %d, measured", (int)i);
    ck_assert_ptr_nonnull(strstr(s.comparison.events.data, label));
  }
  hec_comparison_close(&s.comparison);
}

static hec_status list_file(void *text, const char *folder, int32_t rank, const hec_text *file) {
  hec_text_printf(text, "%s %d %s\n", folder, (int)rank, file->length > 0 ? "full" : "empty");
  return HEC_OK;
}

/* Files of ranks: two folders a case, none of them another's even where cases have one name. */
HEC_TEST(files_of_ranks) {
  session s;
  hec_experiment_case named[CASES];
  double factor[CASES] = {1, 1, 1, 1};
  HEC_SCOPED(hec_text) expected = {0};
  memcpy(named, cases, sizeof named);
  for (int32_t i = 0; i < CASES; i++)
    (void)snprintf(named[i].name, sizeof named[i].name, "ep, 16 tokens, top-%d", i == 3 ? 1 : (int)i);
  open_session(&s, true);
  s.comparison.options.cases = named;
  s.comparison.options.timelines = hec_timeline_format_find("kineto");
  s.comparison.options.pack = list_file;
  read_all(&s, factor);
  finish(&s);
  for (int32_t i = 0; i < CASES; i++)
    for (int32_t measured = 0; measured < 2; measured++)
      for (int32_t r = 0; r < RANKS; r++)
        hec_text_printf(&expected, "ep-16-tokens-top-%d%s-%s %d full\n", i == 3 ? 1 : (int)i, i == 3 ? "-4" : "",
                        measured ? "measured" : "predicted", (int)r);
  ck_assert_str_eq(s.comparison.events.data, expected.data);
  hec_comparison_close(&s.comparison);
}

/* ---- Controls ---- */

static double under(const char *control, const hec_problem *problem, const hec_program *program) {
  HEC_SCOPED(hec_arena) scratch = {0};
  HEC_SCOPED(hec_program) broken = {0};
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(problem->cluster, &scratch);
  const hec_control *row = control ? hec_controls : NULL;
  while (row && strcmp(row->name, control) != 0)
    row++;
  double seconds = hec_control_predict(row, problem, program, &cost, &broken);
  return seconds;
}

/* Without a control: the simulator's own iteration. */
static void same_as_simulator(const hec_test_step *step, void *context) {
  HEC_SCOPED(hec_arena) scratch = {0};
  HEC_SCOPED(hec_timeline) timeline = {0};
  HEC_OPENED(hec_sim) *sim = hec_sim_new(&step->c->problem, &hec_law_alpha_beta, &scratch);
  (void)context;
  hec_sim_run(sim, step->program, (hec_sim_options){0}, &timeline);
  ck_assert_double_eq_tol(under(NULL, &step->c->problem, step->program), 1e-12 * (double)hec_timeline_end_ps(&timeline),
                          1e-15);
}

HEC_TEST_LOOP(no_control, hec_test_cases(16)) {
  uint64_t seed = 61 + (uint64_t)_i;
  hec_test_each(hec_test_random_case(&arena, &seed, (hec_test_wish){.ranks_max = 6}), false, same_as_simulator, NULL);
}

/* An iteration of plain expert parallelism on a machine, with loads of that skew. */
static void controls_on(const char *line, double sigma, double found[4]) {
  static const char *const names[] = {NULL, "mean_compute", "mean_bytes", "flat_rate"};
  HEC_SCOPED(hec_arena) scratch = {0};
  hec_cluster machine;
  hec_problem problem;
  const hec_replay_step *steps;
  const hec_model *model = hec_imitated_model(&scratch, 2, 8, 2);
  hec_experiment_loads wish = {.n_layers = 2,
                               .n_experts = 8,
                               .top_k = 2,
                               .n_ranks = RANKS,
                               .tokens = 64,
                               .n_steps = 1,
                               .sigma = sigma,
                               .seed = 8};
  if (hec_cluster_load(line, &scratch, &machine) != HEC_OK ||
      hec_problem_make(&model->moe, &machine, true, RANKS, 64, &problem) != HEC_OK ||
      hec_experiment_draw(&wish, &scratch, &steps) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  HEC_OPENED(hec_lowering) *low =
      hec_lowering_new(&problem, hec_policy_find("ep"), hec_schedule_find("serial"), NULL, &scratch);
  hec_lower_iteration(low, 0, steps[0].loads, 1, 1);
  for (int32_t k = 0; k < 4; k++)
    found[k] = under(names[k], &problem, hec_lowering_program(low));
}

#define FREE_LINKS "1x4 nvlink=1000P flops=10G hbm=1000P mem=1G launch=0s plan=0s@0s tile=1 "
#define FREE_COMPUTE "1x4 nvlink=100M@1us flops=1000000P hbm=1000P mem=1G a=0s c=0s launch=0s plan=0s@0s tile=1"
static bool equal(double a, double b) {
  return fabs(a / b - 1) < 1e-6;
}

HEC_TEST(controls) {
  double s[4];
  controls_on(FREE_LINKS "a=0s c=0s", 1.5, s); /* skewed, only computing costs, in proportion to rows */
  ck_assert(s[1] < 0.95 * s[0] && equal(s[2], s[0]) && equal(s[3], s[0]));
  controls_on(FREE_COMPUTE, 1.5, s); /* only bytes cost */
  ck_assert(equal(s[1], s[0]) && s[2] < 0.95 * s[0] && equal(s[3], s[0]));
  controls_on(FREE_LINKS "a=1ms c=1ms", 0, s); /* balanced, GEMMs with a fixed cost */
  ck_assert(equal(s[1], s[0]) && equal(s[2], s[0]) && s[3] < 0.95 * s[0]);
  controls_on("1x4 nvlink=100M@1us flops=10G hbm=1000P mem=1G a=0s c=0s tile=1", 0, s); /* balanced, a flat law */
  ck_assert(equal(s[1], s[0]) && equal(s[2], s[0]) && equal(s[3], s[0]));
}

/* One exchange: 0 sends 3000 bytes to 1, 1 sends 1000 to 0: the mean port carries 2000. */
HEC_TEST(mean_of_ports) {
  const hec_problem *problem = cases[0].problem;
  HEC_SCOPED(hec_program) program = {0};
  hec_program_clear(&program, RANKS);
  HEC_RESERVE(program.transfers, program.transfers_capacity, 2);
  program.transfers[0] = (hec_transfer){.bytes = 3000, .source = 0, .destination = 1, .item = -1, .after = -1};
  program.transfers[1] = (hec_transfer){.bytes = 1000, .source = 1, .destination = 0, .item = -1, .after = -1};
  program.n_transfers = 2;
  hec_op sent = hec_op_new(HEC_OP_EXCHANGE, HEC_LANE_TOKEN, HEC_ROLE_DISPATCH, -1);
  sent.exchange.n_transfers = 2;
  (void)hec_program_add(&program, sent, NULL, 0);
  ck_assert_double_eq_tol(under(NULL, problem, &program), 3e-6 + 3000 / 2e9, 1e-11);
  ck_assert_double_eq_tol(under("mean_bytes", problem, &program), 3e-6 + 2000 / 2e9, 1e-11);
  ck_assert_double_eq_tol(under("mean_compute", problem, &program), 3e-6 + 3000 / 2e9, 1e-11);
  ck_assert_int_eq(program.transfers[0].bytes, 3000); /* the program itself stays */
}
