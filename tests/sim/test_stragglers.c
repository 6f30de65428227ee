/* Slow ranks, slow links and start skew: a serial program by hand, the engine against the walk, what skew may cost at most,
 * where its time is booked, and the bounds, over random problems. */
#include "models/straggler.h"
#include "runtime/plan/bound/bound.h"
#include "tests/support/check_main.h"
#include "tests/support/random_problem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static hec_arena arena;
static void teardown(void) {
  hec_arena_free(&arena);
}

static void apply(const char *slow, const char *skew, int32_t n_ranks, hec_cluster *cluster) {
  hec_text said = {0};
  ck_assert_msg(hec_stragglers_apply(&(hec_stragglers){slow, skew}, n_ranks, cluster, &arena, cluster, &said) == HEC_OK,
                "%s", hec_last_error());
  hec_text_free(&said);
}

/* ---- By hand ---- */

/* Two ranks; a row takes a nanosecond, a byte too. 4000 rows, an exchange of 1000 bytes each way, 2000 rows, back. */
static void make_serial(hec_program *p) {
  hec_program_clear(p, 2);
  HEC_RESERVE(p->shapes, p->shapes_capacity, 1);
  p->shapes[p->n_shapes++] = (hec_work_shape){.flops_per_row = 1};
  HEC_RESERVE(p->transfers, p->transfers_capacity, 2);
  p->transfers[p->n_transfers++] =
      (hec_transfer){.bytes = 1000, .source = 0, .destination = 1, .item = -1, .after = -1};
  p->transfers[p->n_transfers++] =
      (hec_transfer){.bytes = 1000, .source = 1, .destination = 0, .item = -1, .after = -1};
  hec_op work = hec_op_new(HEC_OP_COMPUTE, HEC_LANE_COMPUTE, HEC_ROLE_EMBEDDING, -1);
  hec_op sent = hec_op_new(HEC_OP_EXCHANGE, HEC_LANE_TOKEN, HEC_ROLE_DISPATCH, -1);
  work.compute.rows = 4000;
  sent.exchange.n_transfers = 2;
  int32_t at = hec_program_add(p, work, NULL, 0);
  at = hec_program_add(p, sent, &at, 1);
  work.compute.rows = 2000;
  at = hec_program_add(p, work, &at, 1);
  sent.reverse = true;
  sent.exchange.part_at = p->ops[1].exchange.part_at;
  (void)hec_program_add(p, sent, &at, 1);
  hec_program_check(p);
}

/* Nanoseconds: when it ends; waiting of both ranks under alpha_beta, under max_min; start skew of rank 1.
 *   plain       4000 + 1000 + 2000 + 1000
 *   rank at 0.8 5000, 1000, 2500, 1000 on rank 1; rank 0 waits 1000 and 500
 *   link at 0.5 rank 0 sends for 2000 each time. By alpha_beta a rank minds its own ports: rank 1 ends 1000 earlier, twice
 *   3 us late   rank 1 from 3000 on: 7000, 8000, 10000, 11000; rank 0 waits 3000 before the first exchange
 *   all         rank 1: 3000, 8000, 10000, 12500, 14500. alpha_beta's rank 0: 4000, 8000 to 9000, 11000, 12500 to 13500, so
 *               it waits 4000 + 1500 + 1000; max_min's until 10000, 12000, then 12500 to 14500: 4000 + 500 */
static const struct {
  const char *slow, *skew;
  int64_t end, wait[2], late;
} by_hand[] = {{NULL, NULL, 8000, {0, 0}, 0},
               {"rank=1:0.8", NULL, 9500, {1500, 1500}, 0},
               {"link=port_out:device0:0.5", NULL, 10000, {2000, 0}, 0},
               {NULL, "rank=1:3us", 11000, {3000, 3000}, 3000},
               {"rank=1:0.8,link=port_in:device1:0.5", "rank=1:3us", 14500, {6500, 4500}, 3000}};

START_TEST(serial_by_hand) {
  hec_cluster cluster;
  hec_program p = {0};
  hec_timeline t = {0};
  ck_assert_int_eq(
      hec_cluster_load("1x2 nvlink=1G@0s flops=1G eff=1 mem=1G hbm=1P tile=1 a=0s c=0s launch=0s", &arena, &cluster),
      HEC_OK);
  apply(by_hand[_i].slow, by_hand[_i].skew, 2, &cluster);
  const hec_problem problem = {.cluster = &cluster, .n_ranks = 2};
  make_serial(&p);
  for (int way = 0; way < 3; way++) {
    hec_sim *sim = hec_sim_new(&problem, way == 2 ? &hec_law_max_min : &hec_law_alpha_beta, &arena);
    hec_sim_run(sim, &p, (hec_sim_options){.force_engine = way == 1}, &t);
    hec_timeline_check(&t, &p);
    ck_assert_int_eq(hec_timeline_end_ps(&t), by_hand[_i].end * 1000);
    ck_assert_int_eq(t.begin_ps[1], by_hand[_i].late * 1000);
    hec_breakdown b = hec_timeline_breakdown(&t, &p);
    ck_assert_double_eq_tol(b.wait_s, 0.5e-9 * (double)by_hand[_i].wait[way == 2], 1e-15);
    ck_assert_double_eq_tol(b.skew_s, 0.5e-9 * (double)by_hand[_i].late, 1e-15);
    hec_sim_run(sim, &p, (hec_sim_options){.force_engine = way == 1, .on_time = true}, &t);
    ck_assert_int_eq(hec_timeline_end_ps(&t), (by_hand[_i].end - by_hand[_i].late) * 1000);
    ck_assert(hec_timeline_breakdown(&t, &p).skew_s == 0);
    hec_sim_free(sim);
  }
  hec_timeline_free(&t);
  hec_program_free(&p);
}
END_TEST

/* ---- Random problems ---- */

typedef struct {
  const hec_law *law;
  hec_bound *bound;
  bool fill;
  int64_t ideal_ps[16]; /* per iteration */
} context;

/* Up to three late ranks of up to a millisecond, two slow ranks and three slow links. */
static void disturb(hec_test_case *c, uint64_t *seed) {
  hec_cluster *cluster = &c->cluster;
  uint64_t n_ranks = (uint64_t)c->problem.n_ranks;
  for (int i = 0; i < 3; i++)
    cluster->devices[hec_test_below(seed, n_ranks)].skew_s = 1e-3 * hec_test_uniform(seed) * hec_test_uniform(seed);
  for (int i = 0; i < 2; i++)
    cluster->devices[hec_test_below(seed, n_ranks)].speed *= 0.2 + 0.8 * hec_test_uniform(seed);
  for (int i = 0; i < 3; i++)
    cluster->links[hec_test_below(seed, (uint64_t)cluster->n_links)].bandwidth *= 0.1 + 0.9 * hec_test_uniform(seed);
  hec_problem old = c->problem;
  ck_assert_msg(hec_problem_make(&c->moe, cluster, old.train, old.n_ranks, old.tokens, &c->problem) == HEC_OK, "%s",
                hec_last_error());
  c->problem.t = old.t;
  c->problem.m = old.m;
  c->problem.period = old.period;
}

static int64_t latest_ps(const hec_timeline *t) {
  int64_t latest = 0;
  for (int32_t r = 0; r < t->n_ranks; r++)
    latest = t->late_ps[r] > latest ? t->late_ps[r] : latest;
  return latest;
}

/* The walk is linear in max and +: no rank ends before its own program would after its skew alone, and all together are
 * late by the latest rank's skew at most. */
static void visit_walk(const hec_test_step *step, void *unused) {
  (void)unused;
  const hec_problem *problem = &step->c->problem;
  hec_arena_mark mark = hec_arena_save(&arena);
  hec_sim *sim = hec_sim_new(problem, &hec_law_alpha_beta, &arena);
  hec_timeline on_time = {0}, walk = {0}, engine = {0};
  for (int one_off = 0; one_off < 2; one_off++) {
    hec_sim_options options = {.without_one_off = one_off == 1};
    hec_sim_run(sim, step->program, options, &walk);
    options.force_engine = true;
    hec_sim_run(sim, step->program, options, &engine);
    options.on_time = true;
    hec_sim_run(sim, step->program, options, &on_time);
    hec_timeline_check(&walk, step->program);
    size_t n = step->program->n_ops * (size_t)problem->n_ranks;
    for (size_t i = 0; i < n; i++) {
      ck_assert_msg(walk.begin_ps[i] == engine.begin_ps[i] && walk.end_ps[i] == engine.end_ps[i],
                    "operation %zu: walk %lld-%lld, engine %lld-%lld: %s", i / (size_t)problem->n_ranks,
                    (long long)walk.begin_ps[i], (long long)walk.end_ps[i], (long long)engine.begin_ps[i],
                    (long long)engine.end_ps[i], hec_test_step_name(step));
      ck_assert(walk.end_ps[i] >= on_time.end_ps[i] && walk.end_ps[i] <= on_time.end_ps[i] + latest_ps(&walk));
    }
  }
  hec_timeline_free(&on_time);
  hec_timeline_free(&walk);
  hec_timeline_free(&engine);
  hec_sim_free(sim);
  hec_arena_rewind(&arena, mark);
}

START_TEST(engine_repeats_the_walk) {
  uint64_t seed = 15000 + (uint64_t)_i;
  hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){0});
  disturb(c, &seed);
  hec_test_each(c, false, visit_walk, NULL);
}
END_TEST

/* Parts of the breakdown add up, and start skew is what the cluster says. */
static void visit_parts(const hec_test_step *step, void *given) {
  const context *x = given;
  hec_arena_mark mark = hec_arena_save(&arena);
  hec_sim *sim = hec_sim_new(&step->c->problem, x->law, &arena);
  hec_timeline t = {0};
  hec_sim_run(sim, step->program, (hec_sim_options){0}, &t);
  hec_timeline_check(&t, step->program);
  hec_breakdown b = hec_timeline_breakdown(&t, step->program);
  double sum = b.wait_s + b.skew_s, skew = 0;
  for (int32_t i = 0; i < HEC_N_BOOKS; i++)
    sum += b.book_s[i];
  for (int32_t r = 0; r < t.n_ranks; r++)
    skew += fmin(step->c->cluster.devices[r].skew_s, b.total_s) / t.n_ranks;
  ck_assert_msg(fabs(sum - b.total_s) <= 1e-12 * b.total_s, "%s", hec_test_step_name(step));
  ck_assert_msg(fabs(skew - b.skew_s) <= 1e-12, "%.15g, %.15g: %s", skew, b.skew_s, hec_test_step_name(step));
  hec_timeline_free(&t);
  hec_sim_free(sim);
  hec_arena_rewind(&arena, mark);
}

START_TEST(parts_add_up) {
  uint64_t seed = 16000 + (uint64_t)_i;
  hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){0});
  disturb(c, &seed);
  hec_test_each(c, false, visit_parts, &(context){.law = _i % 2 ? &hec_law_max_min : &hec_law_alpha_beta});
}
END_TEST

static int64_t time_of(const hec_test_step *step, const hec_law *law, bool on_time) {
  hec_arena own = {0};
  hec_sim *sim = hec_sim_new(&step->c->problem, law, &own);
  hec_timeline t = {0};
  hec_sim_run(sim, step->program, (hec_sim_options){.on_time = on_time}, &t);
  int64_t end = hec_timeline_end_ps(&t);
  hec_timeline_free(&t);
  hec_sim_free(sim);
  hec_arena_free(&own);
  return end;
}

static void visit_bounds(const hec_test_step *step, void *given) {
  context *x = given;
  bool ideal = step->schedule->bound;
  if (x->fill != ideal)
    return;
  if (ideal) {
    x->ideal_ps[step->iteration] = time_of(step, x->law, true);
    return;
  }
  hec_arena_mark mark = hec_arena_save(&arena);
  int64_t ps = time_of(step, x->law, false), rounding = (int64_t)step->program->n_ops;
  if (!step->policy->drops)
    ck_assert_msg(ps + rounding >= x->ideal_ps[step->iteration], "%lld ps, ideal %lld ps: %s", (long long)ps,
                  (long long)x->ideal_ps[step->iteration], hec_test_step_name(step));
  hec_bound_begin(x->bound, (hec_bound_case){.class = hec_bound_class_of(step->policy, &step->c->problem),
                                             .tokens_wait = step->schedule->tokens_wait,
                                             .closed_form = x->law == &hec_law_alpha_beta,
                                             .n_micro_batches = step->c->n_micro_batches});
  for (int32_t mb = 0; mb < step->c->n_micro_batches; mb++) {
    hec_load load = hec_test_actual_load(step, mb, &arena);
    hec_bound_add(x->bound, &load);
  }
  double bound_s = hec_bound_end(x->bound).total_s;
  ck_assert_msg((double)(ps + rounding) * 1e-12 * (1 + 1e-9) >= bound_s, "%lld ps, bound %.12g s: %s", (long long)ps,
                bound_s, hec_test_step_name(step));
  hec_arena_rewind(&arena, mark);
}

START_TEST(bounds_stay_bounds) {
  uint64_t seed = 17000 + (uint64_t)_i;
  hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){.no_overhead = _i % 2 == 0});
  disturb(c, &seed);
  context x = {.law = _i % 4 < 3 ? &hec_law_alpha_beta : &hec_law_max_min,
               .bound = hec_bound_new(&c->problem, &arena),
               .fill = true};
  c->only_policy = "ideal";
  hec_test_each(c, false, visit_bounds, &x);
  c->only_policy = NULL;
  x.fill = false;
  hec_test_each(c, false, visit_bounds, &x);
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("sim.stragglers");
  TCase *cases = tcase_create("stragglers");
  tcase_set_timeout(cases, 120);
  tcase_add_checked_fixture(cases, NULL, teardown);
  tcase_add_loop_test(cases, serial_by_hand, 0, (int)(sizeof by_hand / sizeof *by_hand));
  tcase_add_loop_test(cases, engine_repeats_the_walk, 0, hec_test_cases(30));
  tcase_add_loop_test(cases, parts_add_up, 0, hec_test_cases(16));
  tcase_add_loop_test(cases, bounds_stay_bounds, 0, hec_test_cases(32));
  suite_add_tcase(suite, cases);
  return suite;
}
HEC_TEST_MAIN(make_suite)
