/* Experiments: loads and configurations drawn from a seed. Cases really executed by ranks of a launch, each once a round in an
 * order of its own. And a whole session. Nothing here looks at how long anything took. */
#include "runtime/exec/backend.h"
#include "runtime/plan/problem.h"
#include "tests/support/test.h"
#include "tests/validate/imitated.h"
#include "validate/configurations.h"
#include "validate/session.h"

#include <math.h>
#include <string.h>

HEC_TEST_ARENA(arena)
static hec_cluster cluster;

static void setup(void) {
  hec_math_open();
  if (hec_cluster_load("1x2 nvlink=2G@3us flops=1T mem=1G", &arena, &cluster) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
}
static void teardown(void) {
  hec_arena_free(&arena);
}
HEC_TEST_FIXTURE(setup, teardown)

/* ---- Draws ---- */

static const hec_replay_step *draw(double sigma, uint64_t seed) {
  const hec_replay_step *steps;
  hec_experiment_loads wish = {.n_layers = 3,
                               .n_experts = 8,
                               .top_k = 2,
                               .n_ranks = 4,
                               .tokens = 50,
                               .n_steps = 5,
                               .sigma = sigma,
                               .seed = seed};
  if (hec_experiment_draw(&wish, &arena, &steps) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  return steps;
}

static bool alike(const hec_load *a, const hec_load *b) {
  return memcmp(a->counts, b->counts, hec_load_cells(a) * sizeof *a->counts) == 0;
}

HEC_TEST(loads) {
  const hec_replay_step *steps = draw(1, 7), *again = draw(1, 7), *other = draw(1, 8), *even = draw(0, 7);
  for (int32_t i = 0; i < 5; i++) {
    const hec_load *load = &steps[i].loads[0];
    ck_assert(steps[i].n_loads == 1 && steps[i].iter == i);
    ck_assert(load->n_layers == 3 && load->n_sources == 4 && load->n_experts == 8);
    for (int32_t layer = 0; layer < 3; layer++)
      ck_assert_uint_eq(hec_load_layer_total(load, layer), 4 * 50 * 2);
    ck_assert(alike(load, &again[i].loads[0]) && !alike(load, &other[i].loads[0]));
    ck_assert(i == 0 || !alike(load, &steps[i - 1].loads[0]));
    for (int32_t layer = 0; layer < 3; layer++)
      for (int32_t s = 0; s < 4; s++)
        for (int32_t e = 0; e < 8; e++) {
          uint32_t count = hec_load_row(&even[i].loads[0], layer, s)[e];
          ck_assert(count == 12 || count == 13); /* 100 over 8 */
        }
  }
}

enum { DRAWN = 40 };
static void configurations(uint64_t seed, const hec_policy *const *policies, hec_experiment_case *cases) {
  hec_configurations options = {.model = hec_imitated_model(&arena, 2, 8, 2),
                                .cluster = &cluster,
                                .policies = policies,
                                .n_policies = 3,
                                .schedule = "serial",
                                .n_ranks = 2,
                                .tokens = 80,
                                .n_steps = 2,
                                .warmup = 1,
                                .train = true,
                                .seed = seed};
  if (hec_configurations_draw(&options, DRAWN, &arena, cases) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
}

HEC_TEST(random_configurations) {
  static hec_experiment_case one[DRAWN], again[DRAWN], other[DRAWN];
  const hec_policy *const policies[] = {hec_policy_find("ep"), hec_policy_find("hecate"), hec_policy_find("eplb")};
  int32_t times[3] = {0}, n_different = 0, min = 1000, max = 0, seen_k = 0;
  configurations(3, policies, one);
  configurations(3, policies, again);
  configurations(4, policies, other);
  for (int32_t i = 0; i < DRAWN; i++) {
    const hec_problem *p = one[i].problem;
    ck_assert_str_eq(one[i].name, again[i].name);
    n_different += strcmp(one[i].name, other[i].name) != 0;
    for (int32_t k = 0; k < 2; k++)
      ck_assert(alike(&one[i].steps[k].loads[0], &again[i].steps[k].loads[0]));
    for (int32_t k = 0; k < 3; k++)
      times[k] += one[i].policy == policies[k];
    ck_assert(p->n_ranks == 2 && p->n_experts == 8 && p->n_layers == 2 && p->train && p->cluster == &cluster);
    ck_assert(p->tokens >= 10 && p->tokens <= 80 && p->top_k >= 1 && p->top_k <= 4);
    ck_assert(one[i].n_steps == 2 && one[i].warmup == 1 && one[i].model->top_k == p->top_k);
    ck_assert_uint_eq(hec_load_layer_total(&one[i].steps[1].loads[0], 1), (uint64_t)(2 * p->tokens * p->top_k));
    min = p->tokens < min ? p->tokens : min;
    max = p->tokens > max ? p->tokens : max;
    seen_k |= 1 << p->top_k;
  }
  for (int32_t k = 0; k < 3; k++)
    ck_assert_int_ge(times[k], DRAWN / 3);
  ck_assert(n_different > DRAWN / 2 && min == 10 && max == 80 && seen_k == 0x1e);
}

/* ---- Executed ---- */

enum { CASES = 5, ROUNDS = 4, STEPS = 3, WARMUP = 1, RANKS = 2 };
typedef struct {
  hec_experiment experiment;
  int32_t seen[ROUNDS][CASES];     /* iterations handed on */
  int32_t order[ROUNDS][CASES], n; /* cases as they came */
  int32_t n_asked, stop_after;     /* cases; 0: never */
} notes;

static void note(void *context, const hec_experiment_reading *reading, const hec_replayed *iteration) {
  notes *to = context;
  const hec_experiment_case *one = &to->experiment.cases[reading->a_case];
  ck_assert(iteration->step == &one->steps[WARMUP + to->seen[reading->round][reading->a_case]++]);
  hec_timeline_check(iteration->timeline, hec_lowering_program(iteration->low));
  ck_assert(hec_timeline_end_ps(iteration->timeline) > 0 && reading->total_s > 0 && reading->disturbance >= 0);
  for (int32_t i = 0; i < 2 * RANKS; i++)
    ck_assert(iteration->probe_s[i] > 0);
  if (to->seen[reading->round][reading->a_case] == 1)
    to->order[reading->round][to->n++ % CASES] = reading->a_case;
}

static bool go_on(void *context, int32_t round, int32_t done) {
  notes *to = context;
  ck_assert(to->n_asked++ == round * (to->experiment.n_in_turn > 0 ? 2 : CASES) + done);
  return to->stop_after == 0 || to->n_asked <= to->stop_after;
}

static hec_status run_experiment(hec_rank *rank, void *context) {
  return hec_experiment_run(&((notes *)context)->experiment, rank);
}

static void make_cases(const hec_model *model, hec_experiment_case *cases, int32_t n) {
  static const char *const policies[] = {"ep", "hecate", "eplb"};
  for (int32_t i = 0; i < n; i++) {
    hec_problem *problem = HEC_NEW(&arena, hec_problem, 1);
    hec_experiment_loads wish = {.n_layers = model->n_blocks,
                                 .n_experts = model->n_experts,
                                 .top_k = model->top_k,
                                 .n_ranks = RANKS,
                                 .tokens = 8 + i,
                                 .n_steps = STEPS,
                                 .sigma = 1,
                                 .seed = (uint64_t)i};
    cases[i] = (hec_experiment_case){.model = model,
                                     .problem = problem,
                                     .policy = hec_policy_find(policies[i % 3]),
                                     .schedule = i % 2 ? "published" : "serial",
                                     .n_steps = STEPS,
                                     .n_micro_batches = 1,
                                     .warmup = WARMUP};
    if (hec_problem_make(&model->moe, &cluster, true, RANKS, wish.tokens, problem) != HEC_OK ||
        hec_experiment_draw(&wish, &arena, &cases[i].steps) != HEC_OK)
      ck_abort_msg("%s", hec_last_error());
    (void)snprintf(cases[i].name, sizeof cases[i].name, "case %d", (int)i);
  }
}

static hec_launch_options launch_of(size_t bytes, bool threads) {
  return (hec_launch_options){.n_ranks = RANKS,
                              .threads = threads,
                              .transport = &hec_transport_shm,
                              .cluster = &cluster,
                              .memory_bytes = bytes,
                              .limit_s = 30};
}

static int32_t n_in_turn;
static void run_all(notes *to, uint64_t seed, int32_t stop_after) {
  hec_experiment_case *cases = HEC_NEW(&arena, hec_experiment_case, CASES);
  make_cases(hec_imitated_model(&arena, 1, 4, 1), cases, CASES);
  *to = (notes){.experiment = {.cases = cases,
                               .n_cases = CASES,
                               .n_rounds = ROUNDS,
                               .n_in_turn = n_in_turn,
                               .seed = seed,
                               .measured = note,
                               .go_on = go_on,
                               .context = to},
                .stop_after = stop_after};
  hec_launch_options options = launch_of(hec_experiment_bytes(&to->experiment), true);
  if (hec_backend_cpu.launch(&options, run_experiment, to) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
}

HEC_TEST(every_case_every_round) {
  static notes one, again;
  int32_t n_same = 0;
  run_all(&one, 5, 0);
  for (int32_t round = 0; round < ROUNDS; round++)
    for (int32_t i = 0; i < CASES; i++)
      ck_assert_int_eq(one.seen[round][i], STEPS - WARMUP);
  for (int32_t round = 1; round < ROUNDS; round++)
    n_same += memcmp(one.order[round], one.order[0], sizeof one.order[0]) == 0;
  ck_assert_int_lt(n_same, ROUNDS - 1);
  ck_assert_int_eq(one.n_asked, CASES * ROUNDS);
  ck_assert_int_eq(one.experiment.n_probes, CASES * ROUNDS * STEPS * 2 * RANKS); /* the warm-up's too */
  ck_assert(hec_experiment_reference(&one.experiment) > 0);
  run_all(&again, 5, 0); /* orders follow from the seed */
  ck_assert(memcmp(one.order, again.order, sizeof one.order) == 0);
  hec_experiment_close(&one.experiment);
  hec_experiment_close(&again.experiment);
}

/* The first four of five take turns, one in a round beside the fifth, which is in every round. */
HEC_TEST(in_turn) {
  static notes one;
  n_in_turn = CASES - 1;
  run_all(&one, 5, 0);
  n_in_turn = 0;
  for (int32_t round = 0; round < ROUNDS; round++)
    for (int32_t i = 0; i < CASES; i++)
      ck_assert_int_eq(one.seen[round][i], i == round || i == CASES - 1 ? STEPS - WARMUP : 0);
  ck_assert_int_eq(one.n_asked, 2 * ROUNDS);
  hec_experiment_close(&one.experiment);
}

/* All ranks stop before the case that rank 0 found not to be worth it. */
HEC_TEST(stopped) {
  static notes one;
  run_all(&one, 5, CASES + 1); /* the first of the second round is the last */
  int32_t n = 0;
  for (int32_t round = 0; round < ROUNDS; round++)
    for (int32_t i = 0; i < CASES; i++)
      n += one.seen[round][i];
  ck_assert_int_eq(n, (CASES + 1) * (STEPS - WARMUP));
  ck_assert_int_eq(one.n_asked, CASES + 2);
  hec_experiment_close(&one.experiment);
}

/* ---- A session ---- */

static hec_status run_session(hec_rank *rank, void *context) {
  hec_session *s = context;
  hec_status status = hec_session_run(s, rank);
  if (status != HEC_OK || rank->rank != 0)
    return status;
  /* On rank 0 here, because ranks are processes: what it found is nowhere else. */
  HEC_SCOPED(hec_arena) own = {0};
  hec_cluster found;
  if (!s->preset.data || hec_cluster_parse_json(s->preset.data, "preset", &own, &found) != HEC_OK)
    return hec_rank_fail(rank, "the preset: %s", hec_last_error());
  if (found.n_devices != RANKS || found.measured.n < 8)
    status = hec_rank_fail(rank, "%d curves for %d devices", (int)found.measured.n, (int)found.n_devices);
  for (int32_t i = 0; status == HEC_OK && i < s->comparison.n_points; i++) {
    const hec_point *p = &s->comparison.points[i];
    if (!(p->predicted_s > 0) || (p->digest == 0) != (p->n_read == 0) || p->conclusive != (p->n_read >= 1) ||
        (p->conclusive && !(p->measured_s > 0)))
      status = hec_rank_fail(rank, "point %d: predicted %g, measured %g, %d read", (int)i, p->predicted_s,
                             p->measured_s, (int)p->n_read);
  }
  return status;
}

typedef struct {
  hec_session session;
  double clock_s; /* goes on by a second whenever somebody looks */
  int32_t n_progress;
  double left_s;
} timed;

static double tick(void *context) {
  return ((timed *)context)->clock_s += 1;
}

static void see_progress(void *context, const char *what, int32_t done, double left_s) {
  timed *t = context;
  (void)what, (void)done;
  ck_assert(left_s >= 0 && (t->n_progress == 0 || isinf(left_s) || left_s <= t->left_s));
  t->left_s = left_s;
  t->n_progress++;
}

static hec_status run_timed(hec_rank *rank, void *context) {
  return run_session(rank, &((timed *)context)->session);
}

/* How a session of two cases ends: after all rounds; when the time of a clock is over, whatever the machine does. After the
 * least number of rounds where nothing scatters is up to the machine, so not tested here but in test_compare.c. */
static void run_whole(timed *t, double within_s, bool every_round) {
  hec_experiment_case *cases = HEC_NEW(&arena, hec_experiment_case, 2);
  const hec_model *model = hec_imitated_model(&arena, 1, 4, 1);
  make_cases(model, cases, 2);
  hec_session_options options = {
      .calibrate = {.model = model, .base = &cluster, .n_ranks = RANKS, .tokens = 16, .train = true, .seed = 3},
      .machine = {.name = "here", .cpu = "c", .blas = "b", .backend = "cpu", .transport = "shm", .n_cores = RANKS},
      .compare = {.cases = cases,
                  .n_cases = 2,
                  .n_rounds = 2,
                  .law = &hec_law_alpha_beta,
                  .timelines = hec_timeline_formats[0]},
      .seed = 4,
      .within_s = within_s,
      .every_round = every_round,
      .now_s = tick,
      .progress = see_progress,
      .context = t};
  *t = (timed){.clock_s = 0};
  if (hec_session_open(&t->session, &options, &arena) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  hec_launch_options launch = launch_of(hec_session_bytes(&t->session), true);
  if (hec_backend_cpu.launch(&launch, run_timed, t) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
}

HEC_TEST(whole_session) {
  timed t;
  run_whole(&t, 0, true);
  int32_t n = t.session.calibration.n_cases;
  ck_assert_int_eq(t.n_progress, n + 2 * 4); /* one round, then two of the cases, each beside one of them */
  ck_assert(!t.session.time_over && isinf(t.left_s));
  for (int32_t i = 0; i < t.session.comparison.n_points; i++)
    ck_assert_int_eq(t.session.comparison.points[i].n_read, 2);
  ck_assert(t.session.scale && hec_interval_known(t.session.comparison.range.median));
  ck_assert_double_gt(t.session.calibration.probe_s, 0);
  ck_assert_double_gt(t.session.calibration.level, 0);
  hec_session_close(&t.session);
}

HEC_TEST(time_is_over) {
  timed t;
  run_whole(&t, 1, false); /* before anything is compared: said, and no failure */
  ck_assert(t.session.time_over);
  ck_assert_int_eq(t.n_progress, t.session.calibration.n_cases);
  ck_assert_int_eq(t.session.comparison.n_conclusive, 0);
  ck_assert_int_eq(t.session.comparison.points[0].n_read, 0);
  hec_session_close(&t.session);
  int32_t n = t.session.calibration.n_cases;
  run_whole(&t, n + 5, false); /* in the first round: what ran counts, and all of it was in time */
  ck_assert(t.session.time_over && t.n_progress > n && t.n_progress < n + 4);
  ck_assert(t.session.seconds <= n + 5);
  hec_session_close(&t.session);
}
