/* What must hold between simulations: nothing is faster than `ideal`, more bandwidth is never slower, communication
 * that takes a share of the device never helps, the event engine repeats the walk to the picosecond, and every timeline
 * is sound. */
#include "tests/support/check_main.h"
#include "tests/support/random_problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static hec_arena arena;
static void teardown(void) {
  hec_arena_free(&arena);
}

static int64_t time_of(const hec_problem *problem, const hec_program *program, const hec_law *law,
                       hec_sim_options options) {
  hec_arena own = {0};
  hec_sim *sim = hec_sim_new(problem, law, &own);
  hec_timeline timeline = {0};
  hec_sim_run(sim, program, options, &timeline);
  hec_timeline_check(&timeline, program);
  int64_t end = hec_timeline_end_ps(&timeline);
  hec_timeline_free(&timeline);
  hec_sim_free(sim);
  hec_arena_free(&own);
  return end;
}

typedef struct {
  const hec_law *law;
  bool fill;
  int64_t ideal_ps[16]; /* per iteration */
} bound;

static void visit_ideal(const hec_test_step *step, void *context) {
  bound *b = context;
  bool ideal = strcmp(step->policy->name, "ideal") == 0;
  if (b->fill != ideal || step->policy->drops)
    return;
  int64_t ps = time_of(&step->c->problem, step->program, b->law, (hec_sim_options){0});
  if (b->fill) {
    b->ideal_ps[step->iteration] = ps;
    return;
  }
  /* every duration is rounded to a picosecond on its own, so one for each operation in a row */
  int64_t rounding = (int64_t)step->program->n_ops;
  ck_assert_msg(ps + rounding >= b->ideal_ps[step->iteration], "%lld ps, ideal %lld ps (%s): %s", (long long)ps,
                (long long)b->ideal_ps[step->iteration], hec_law_name(b->law), hec_test_step_name(step));
}

static void compare_with_ideal(uint64_t seed, hec_test_wish wish, const hec_law *law) {
  wish.uniform = !wish.uneven;
  hec_test_case *c = hec_test_random_case(&arena, &seed, wish);
  bound b = {.law = law, .fill = true};
  c->only_policy = "ideal";
  hec_test_each(c, false, visit_ideal, &b);
  c->only_policy = NULL;
  b.fill = false;
  hec_test_each(c, false, visit_ideal, &b);
}

START_TEST(none_below_ideal) {
  compare_with_ideal(1000 + (uint64_t)_i, (hec_test_wish){0}, &hec_law_alpha_beta);
}
END_TEST
START_TEST(none_below_ideal_without_overhead) { /* nothing hides behind fixed costs */
  compare_with_ideal(2000 + (uint64_t)_i, (hec_test_wish){.no_overhead = true}, &hec_law_alpha_beta);
}
END_TEST
START_TEST(none_below_ideal_with_heavy_state) { /* nothing but the optimizer counts */
  compare_with_ideal(2500 + (uint64_t)_i, (hec_test_wish){.no_overhead = true, .heavy_state = true},
                     &hec_law_alpha_beta);
}
END_TEST
START_TEST(none_below_ideal_of_flows) {
  compare_with_ideal(3000 + (uint64_t)_i, (hec_test_wish){.no_overhead = _i % 2 == 0},
                     _i % 4 < 2 ? &hec_law_max_min : &hec_law_nccl_rounds);
}
END_TEST
START_TEST(none_below_ideal_with_comm_share) {
  compare_with_ideal(4000 + (uint64_t)_i, (hec_test_wish){.no_overhead = _i % 2 == 0, .comm_share = true},
                     &hec_law_alpha_beta);
}
END_TEST

/* Devices whose speeds differ by up to 10,000: products follow it, traffic through memory does not. */
START_TEST(none_below_ideal_uneven) {
  compare_with_ideal(5000 + (uint64_t)_i, (hec_test_wish){.no_overhead = _i % 2 == 0, .uneven = true},
                     _i % 4 == 1 ? &hec_law_max_min : &hec_law_alpha_beta);
}
END_TEST

static void visit_engine(const hec_test_step *step, void *context) {
  (void)context;
  const hec_problem *problem = &step->c->problem;
  hec_arena_mark mark = hec_arena_save(&arena);
  for (int one_off = 0; one_off < 2; one_off++) {
    hec_sim *sim = hec_sim_new(problem, &hec_law_alpha_beta, &arena);
    hec_timeline walk = {0}, engine = {0};
    hec_sim_run(sim, step->program, (hec_sim_options){.without_one_off = one_off == 1}, &walk);
    hec_sim_run(sim, step->program, (hec_sim_options){.without_one_off = one_off == 1, .force_engine = true}, &engine);
    size_t n = step->program->n_ops * (size_t)problem->n_ranks;
    for (size_t i = 0; i < n; i++)
      ck_assert_msg(walk.begin_ps[i] == engine.begin_ps[i] && walk.end_ps[i] == engine.end_ps[i],
                    "operation %zu (%s) rank %zu: walk %lld-%lld, engine %lld-%lld: %s", i / (size_t)problem->n_ranks,
                    hec_role_name[step->program->ops[i / (size_t)problem->n_ranks].role], i % (size_t)problem->n_ranks,
                    (long long)walk.begin_ps[i], (long long)walk.end_ps[i], (long long)engine.begin_ps[i],
                    (long long)engine.end_ps[i], hec_test_step_name(step));
    hec_timeline_check(&walk, step->program);
    hec_timeline_free(&walk);
    hec_timeline_free(&engine);
    hec_sim_free(sim);
  }
  hec_arena_rewind(&arena, mark);
}

START_TEST(engine_repeats_the_walk) {
  uint64_t seed = 5000 + (uint64_t)_i;
  hec_test_each(hec_test_random_case(&arena, &seed, (hec_test_wish){0}), false, visit_engine, NULL);
}
END_TEST

/* Which book a moment goes to, by the rule of timeline.h, one rank at a time, from the set of all interval ends. */
static int by_time(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static void book_again(const hec_timeline *t, const hec_program *program, double book[HEC_N_BOOKS + 1]) {
  int64_t total = hec_timeline_end_ps(t), *cut = malloc((2 * (size_t)t->n_ops + 2) * sizeof *cut);
  for (int32_t r = 0; r < t->n_ranks; r++) {
    size_t n = 0;
    cut[n++] = 0;
    cut[n++] = total;
    for (int32_t i = 0; i < t->n_ops; i++)
      if (t->begin_ps[i * t->n_ranks + r] >= 0) {
        cut[n++] = t->begin_ps[i * t->n_ranks + r];
        cut[n++] = t->end_ps[i * t->n_ranks + r];
      }
    qsort(cut, n, sizeof *cut, by_time);
    for (size_t k = 0; k + 1 < n; k++) {
      int32_t lane = HEC_N_LANES, where = HEC_N_BOOKS; /* the first busy lane, in the order of their names */
      for (int32_t i = 0; i < t->n_ops && cut[k] < cut[k + 1]; i++) {
        size_t at = (size_t)(i * t->n_ranks + r);
        if (t->begin_ps[at] >= 0 && t->begin_ps[at] <= cut[k] && t->end_ps[at] >= cut[k + 1] &&
            (int32_t)program->ops[i].lane < lane) {
          lane = (int32_t)program->ops[i].lane;
          where = (int32_t)hec_role_book[program->ops[i].role];
        }
      }
      book[where] += 1e-12 * (double)(cut[k + 1] - cut[k]) / t->n_ranks;
    }
  }
  free(cut);
}

static void visit_breakdown(const hec_test_step *step, void *context) {
  const hec_law *law = context;
  hec_arena_mark mark = hec_arena_save(&arena);
  hec_sim *sim = hec_sim_new(&step->c->problem, law, &arena);
  hec_timeline timeline = {0};
  hec_sim_run(sim, step->program, (hec_sim_options){0}, &timeline);
  hec_breakdown told = hec_timeline_breakdown(&timeline, step->program);
  double counted[HEC_N_BOOKS + 1] = {0}, sum = told.wait_s;
  book_again(&timeline, step->program, counted);
  for (int32_t i = 0; i < HEC_N_BOOKS; i++) {
    sum += told.book_s[i];
    ck_assert_msg(fabs(told.book_s[i] - counted[i]) <= 1e-9 * told.total_s, "book %d: %.12g, counted %.12g: %s", i,
                  told.book_s[i], counted[i], hec_test_step_name(step));
  }
  ck_assert_msg(fabs(told.wait_s - counted[HEC_N_BOOKS]) <= 1e-9 * told.total_s, "%s", hec_test_step_name(step));
  ck_assert_msg(fabs(sum - told.total_s) <= 1e-12 * told.total_s, "%.17g and %.17g: %s", sum, told.total_s,
                hec_test_step_name(step));
  ck_assert(told.total_s == (double)hec_timeline_end_ps(&timeline) * 1e-12);
  for (int32_t lane = 0; lane < HEC_N_LANES; lane++) {
    double busy = 0;
    for (int32_t i = 0; i < timeline.n_ops; i++)
      for (int32_t r = 0; r < timeline.n_ranks && (int32_t)step->program->ops[i].lane == lane; r++)
        busy += (double)(timeline.end_ps[i * timeline.n_ranks + r] - timeline.begin_ps[i * timeline.n_ranks + r]);
    ck_assert_double_le(fabs(busy * 1e-12 / timeline.n_ranks - told.busy_s[lane]), 1e-9 * told.total_s);
  }
  hec_timeline_free(&timeline);
  hec_sim_free(sim);
  hec_arena_rewind(&arena, mark);
}

START_TEST(breakdown_adds_up) {
  uint64_t seed = 6000 + (uint64_t)_i;
  hec_test_wish wish = {.ranks_most = 4};
  hec_test_each(hec_test_random_case(&arena, &seed, wish), false, visit_breakdown,
                _i % 2 ? (void *)&hec_law_max_min : (void *)&hec_law_alpha_beta);
}
END_TEST

/* A fixed program on two clusters that differ in one thing. */
typedef struct {
  const hec_problem *slow;
  const hec_law *law;
  double slack; /* relative */
} pair;

static void visit_pair(const hec_test_step *step, void *context) {
  const pair *p = context;
  int64_t fast = time_of(&step->c->problem, step->program, p->law, (hec_sim_options){0});
  int64_t slow = time_of(p->slow, step->program, p->law, (hec_sim_options){0});
  int64_t slack = (int64_t)step->program->n_ops + (int64_t)(p->slack * (double)slow);
  ck_assert_msg(fast <= slow + slack, "%lld ps, with less bandwidth %lld ps (%s): %s", (long long)fast, (long long)slow,
                hec_law_name(p->law), hec_test_step_name(step));
}

static void more_bandwidth(uint64_t seed, const hec_law *law) {
  const hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){0});
  hec_problem slow = c->problem;
  hec_cluster cluster = c->cluster;
  slow.cluster = &cluster;
  cluster.links = HEC_NEW(&arena, hec_link, cluster.n_links);
  memcpy(cluster.links, c->cluster.links, (size_t)cluster.n_links * sizeof *cluster.links);
  double factor = 0.2 + 0.7 * hec_test_uniform(&seed);
  for (int32_t l = 0; l < cluster.n_links; l++)
    cluster.links[l].bandwidth *= factor;
  pair p = {.slow = &slow, .law = law, .slack = 0};
  hec_test_each(c, false, visit_pair, &p);
}

START_TEST(bandwidth_helps_alpha_beta) {
  more_bandwidth(7000 + (uint64_t)_i, &hec_law_alpha_beta);
}
END_TEST
START_TEST(bandwidth_helps_max_min) {
  more_bandwidth(8000 + (uint64_t)_i, &hec_law_max_min);
}
END_TEST

static void visit_share(const hec_test_step *step, void *context) {
  const pair *p = context; /* slow: with comm_share */
  int64_t without = time_of(&step->c->problem, step->program, p->law, (hec_sim_options){0});
  int64_t with = time_of(p->slow, step->program, p->law, (hec_sim_options){0});
  ck_assert_msg(with + (int64_t)step->program->n_ops >= without, "share: %lld ps, none: %lld ps: %s", (long long)with,
                (long long)without, hec_test_step_name(step));
}

START_TEST(share_never_helps) {
  uint64_t seed = 9000 + (uint64_t)_i;
  const hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){0});
  hec_problem shared = c->problem;
  hec_cluster cluster = c->cluster;
  shared.cluster = &cluster;
  cluster.devices = HEC_NEW(&arena, hec_device, cluster.n_devices);
  for (int32_t d = 0; d < cluster.n_devices; d++) {
    cluster.devices[d] = c->cluster.devices[d];
    cluster.devices[d].comm_share = 0.1 + 0.8 * hec_test_uniform(&seed);
  }
  pair p = {.slow = &shared, .law = &hec_law_alpha_beta};
  hec_test_each(c, false, visit_share, &p);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("bounds");
  TCase *c = tcase_create("bounds");
  tcase_set_timeout(c, 60);
  tcase_add_checked_fixture(c, NULL, teardown);
  tcase_add_loop_test(c, none_below_ideal, 0, hec_test_cases(64));
  tcase_add_loop_test(c, none_below_ideal_without_overhead, 0, hec_test_cases(64));
  tcase_add_loop_test(c, none_below_ideal_with_heavy_state, 0, hec_test_cases(40));
  tcase_add_loop_test(c, none_below_ideal_of_flows, 0, hec_test_cases(40));
  tcase_add_loop_test(c, none_below_ideal_uneven, 0, hec_test_cases(80));
  tcase_add_loop_test(c, none_below_ideal_with_comm_share, 0, hec_test_cases(40));
  tcase_add_loop_test(c, engine_repeats_the_walk, 0, hec_test_cases(60));
  tcase_add_loop_test(c, breakdown_adds_up, 0, hec_test_cases(30));
  tcase_add_loop_test(c, bandwidth_helps_alpha_beta, 0, hec_test_cases(30));
  tcase_add_loop_test(c, bandwidth_helps_max_min, 0, hec_test_cases(30));
  tcase_add_loop_test(c, share_never_helps, 0, hec_test_cases(30));
  suite_add_tcase(s, c);
  return s;
}

HEC_TEST_MAIN(suite)
