/* What must hold between simulations. Nothing is faster than `ideal` or than the bound of its class, more bandwidth is
 * never slower. Communication that takes a share of the device never helps. The event engine repeats the walk to the
 * picosecond, and every timeline is sound. Also with late and slow ranks, slow links and tensor parallelism. */
#include "runtime/plan/bound/bound.h"
#include "tests/sim/sim_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

HEC_TEST_ARENA(arena)

/* ---- Changes of a random case; false: it cannot be had of this one ---- */

typedef bool change(hec_test_case *c, uint64_t *seed);

/* Up to three late ranks of up to a millisecond, two slow ranks and three slow links. */
static bool disturb(hec_test_case *c, uint64_t *seed) {
  hec_cluster *cluster = &c->cluster;
  uint64_t n_ranks = (uint64_t)c->problem.n_ranks;
  for (int i = 0; i < 3; i++)
    cluster->devices[hec_test_below(seed, n_ranks)].skew_s = 1e-3 * hec_test_uniform(seed) * hec_test_uniform(seed);
  for (int i = 0; i < 2; i++)
    cluster->devices[hec_test_below(seed, n_ranks)].speed *= 0.2 + 0.8 * hec_test_uniform(seed);
  for (int i = 0; i < 3; i++)
    cluster->links[hec_test_below(seed, (uint64_t)cluster->n_links)].bandwidth *= 0.1 + 0.9 * hec_test_uniform(seed);
  hec_problem old = c->problem;
  ck_ok(hec_problem_make(&c->moe, cluster, old.train, old.n_ranks, old.tokens, &c->problem));
  c->problem.t = old.t;
  c->problem.m = old.m;
  c->problem.period = old.period;
  return true;
}

/* Tensor parallelism. */
static bool widen(hec_test_case *c, uint64_t *seed) {
  (void)seed;
  for (int32_t mp = 4; mp > 1; mp /= 2)
    if (c->problem.n_ranks % mp == 0 && c->cluster.devices_per_node % mp == 0)
      return hec_problem_tensor(&c->problem, mp) == HEC_OK;
  return false;
}

/* Networks so slow that only bytes count. */
static bool slow_network(hec_test_case *c, uint64_t *seed) {
  static const char *const lines[] = {"1x8 nvlink=10M flops=300T mem=40G hbm=900000G",
                                      "2x4 nvlink=10M nic=10M flops=300T mem=40G hbm=900000G",
                                      "4x2 nvlink=1G nic=1M flops=300T mem=40G hbm=900000G",
                                      "2x4 nvlink=1G nic=1M nics=4 flops=300T mem=40G hbm=900000G",
                                      "2x4 nvlink=1G nic=1M nics=4 pxn=1 flops=300T mem=40G hbm=900000G",
                                      ("4x2 nvlink=3M nic=1M through=1 leaf=2 uplink=1M flops=300T mem=40G "
                                       "hbm=900000G")};
  c->problem.n_ranks = c->problem.n_ranks > 8 ? 8 : c->problem.n_ranks;
  hec_test_recluster(c, lines[hec_test_below(seed, 6)], &arena);
  for (int32_t i = 0; i < c->n_iterations * c->n_micro_batches; i++)
    c->loads[i] = hec_test_random_load(&arena, &c->problem, seed);
  return true;
}

/* ---- Nothing is faster than it can be ---- */

typedef struct {
  const hec_law *law;
  hec_bound *bound;
  bool fill;
  int64_t ideal_ps[16]; /* per iteration */
  double nearest;       /* bound over time */
} floors;

static hec_bound_time bound_of(const hec_test_step *step, const floors *f, hec_bound_class class) {
  HEC_SCOPED(hec_arena) own = {0};
  hec_bound_begin(f->bound, (hec_bound_case){.class = class,
                                             .tokens_wait = step->schedule->tokens_wait,
                                             .by_node = step->schedule->by_node,
                                             .closed_form = f->law == &hec_law_alpha_beta,
                                             .n_micro_batches = step->c->n_micro_batches});
  for (int32_t mb = 0; mb < step->c->n_micro_batches; mb++) {
    hec_load load = hec_test_actual_load(step, mb, &own);
    hec_bound_add(f->bound, &load);
  }
  return hec_bound_end(f->bound);
}

static void visit_floors(const hec_test_step *step, void *context) {
  floors *f = context;
  const hec_problem *p = &step->c->problem;
  if (f->fill)
    f->ideal_ps[step->iteration] = hec_test_end_ps(p, step->program, f->law, (hec_sim_options){.on_time = true});
  if (step->schedule->bound)
    return;
  int64_t ps = hec_test_end_ps(p, step->program, f->law, (hec_sim_options){0}), ideal_ps = f->ideal_ps[step->iteration];
  /* every duration is rounded to a picosecond on its own, so one for each operation in a row */
  ck_assert_msg(step->policy->drops || ps + (int64_t)step->program->n_ops >= ideal_ps,
                "%lld ps, ideal %lld ps (%s): %s", (long long)ps, (long long)ideal_ps, hec_law_name(f->law),
                hec_test_step_name(step));
  hec_bound_class class = hec_bound_class_of(step->policy, p);
  hec_bound_time bound = bound_of(step, f, class); /* that durations are rounded is in it */
  double s = (double)ps * 1e-12;
  ck_assert_msg(s * (1 + 1e-12) >= bound.total_s,
                "%.9g s, bound %.9g s (%s; chain %.9g, tokens %.9g, moved %.9g; %s): %s", s, bound.total_s,
                hec_bound_class_name[class], bound.chain_s, bound.token_s, bound.moved_s, hec_law_name(f->law),
                hec_test_step_name(step));
  f->nearest = fmax(f->nearest, bound.total_s / s);
  if (class == HEC_BOUND_WHOLE) /* what may do less is bounded by more, but for bytes that only copies move */
    ck_assert(bound.chain_s >= bound_of(step, f, HEC_BOUND_COPIES).chain_s * (1 - 1e-12));
}

static const struct {
  const char *what;
  int cases;
  hec_test_wish wish; /* overhead: without it nothing hides behind fixed costs; every second case of `half` */
  const hec_law *law;
  bool half;
  const char *schedule; /* NULL: all that a policy allows */
  change *change;
} below[] = {
    {"as drawn", 32, {0}, &hec_law_alpha_beta, false, NULL, NULL},
    {"serial", 30, {0}, &hec_law_alpha_beta, false, "serial", NULL},
    {"without overhead", 60, {.no_overhead = true}, &hec_law_alpha_beta, false, NULL, NULL},
    {"what moves and the optimizer",
     20,
     {.no_overhead = true, .heavy_state = true},
     &hec_law_alpha_beta,
     false,
     NULL,
     NULL},
    {"flows", 20, {0}, &hec_law_max_min, true, NULL, NULL},
    {"rounds", 20, {0}, &hec_law_nccl_rounds, true, NULL, NULL},
    {"a share of the device", 20, {.comm_share = true}, &hec_law_alpha_beta, true, NULL, NULL},
    /* devices whose speeds differ by up to 10,000: products follow it, traffic through memory does not */
    {"uneven", 30, {.uneven = true}, &hec_law_alpha_beta, true, NULL, NULL},
    {"uneven, flows", 20, {.uneven = true}, &hec_law_max_min, true, NULL, NULL},
    {"slow networks", 36, {.no_overhead = true}, &hec_law_alpha_beta, false, NULL, slow_network},
    {"slow networks, flows", 24, {.no_overhead = true}, &hec_law_max_min, false, NULL, slow_network},
    {"late and slow", 24, {0}, &hec_law_alpha_beta, true, NULL, disturb},
    {"late and slow, flows", 8, {0}, &hec_law_max_min, true, NULL, disturb},
    {"tensor parallelism", 24, {0}, &hec_law_alpha_beta, true, NULL, widen},
    {"tensor parallelism, flows", 16, {0}, &hec_law_max_min, true, NULL, widen},
};

HEC_TEST_ROWS(nothing_is_below_ideal_or_its_bound, below) {
  uint64_t next = 1000 * (uint64_t)(1 + _i);
  for (int i = 0, n = hec_test_cases(below[_i].cases); i < n; next++) {
    uint64_t seed = next;
    hec_test_wish wish = below[_i].wish;
    wish.no_overhead |= below[_i].half && i % 2 == 0;
    hec_test_case *c = hec_test_random_case(&arena, &seed, wish);
    if (below[_i].change && !below[_i].change(c, &seed))
      continue;
    floors f = {.law = below[_i].law, .bound = hec_bound_new(&c->problem, &arena), .fill = true};
    c->only_policy = "ideal";
    hec_test_each(c, false, visit_floors, &f);
    c->only_policy = NULL;
    c->only_schedule = below[_i].schedule;
    f.fill = false;
    hec_test_each(c, false, visit_floors, &f);
    ck_assert_msg(f.nearest > 0, "%s", below[_i].what);
    hec_arena_free(&arena);
    i++;
  }
}

/* ---- The engine and the walk ---- */

static int64_t latest_ps(const hec_timeline *t) {
  int64_t latest = 0;
  for (int32_t r = 0; r < t->n_ranks; r++)
    latest = t->late_ps[r] > latest ? t->late_ps[r] : latest;
  return latest;
}

/* The walk is linear in max and +. No rank ends before its own program would after its skew alone, and all together are
 * late by the latest rank's skew at most. */
static void visit_engine(const hec_test_step *step, void *unused) {
  (void)unused;
  const hec_problem *problem = &step->c->problem;
  for (int one_off = 0; one_off < 2; one_off++) {
    hec_sim_options options = {.without_one_off = one_off == 1};
    HEC_SCOPED(hec_timeline) walk = hec_test_simulate(problem, step->program, &hec_law_alpha_beta, options);
    options.force_engine = true;
    HEC_SCOPED(hec_timeline) engine = hec_test_simulate(problem, step->program, &hec_law_alpha_beta, options);
    options.on_time = true;
    HEC_SCOPED(hec_timeline) on_time = hec_test_simulate(problem, step->program, &hec_law_alpha_beta, options);
    size_t n = step->program->n_ops * (size_t)problem->n_ranks;
    for (size_t i = 0; i < n; i++) {
      ck_assert_msg(walk.begin_ps[i] == engine.begin_ps[i] && walk.end_ps[i] == engine.end_ps[i],
                    "operation %zu (%s) rank %zu: walk %lld-%lld, engine %lld-%lld: %s", i / (size_t)problem->n_ranks,
                    hec_role_name[step->program->ops[i / (size_t)problem->n_ranks].role], i % (size_t)problem->n_ranks,
                    (long long)walk.begin_ps[i], (long long)walk.end_ps[i], (long long)engine.begin_ps[i],
                    (long long)engine.end_ps[i], hec_test_step_name(step));
      ck_assert(walk.end_ps[i] >= on_time.end_ps[i] && walk.end_ps[i] <= on_time.end_ps[i] + latest_ps(&walk));
    }
  }
}

/* Every third with late and slow ranks. */
static hec_test_case *sometimes_disturbed(int i, uint64_t seed, hec_test_wish wish) {
  hec_test_case *c = hec_test_random_case(&arena, &seed, wish);
  if (i % 3 == 0)
    (void)disturb(c, &seed);
  return c;
}

HEC_TEST_LOOP(engine_repeats_the_walk, hec_test_cases(40)) {
  hec_test_each(sometimes_disturbed(_i, 15000 + (uint64_t)_i, (hec_test_wish){0}), false, visit_engine, NULL);
}

/* ---- Where time goes ---- */

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
  HEC_SCOPED(hec_timeline) timeline =
      hec_test_simulate(&step->c->problem, step->program, context, (hec_sim_options){0});
  hec_breakdown told = hec_timeline_breakdown(&timeline, step->program);
  double counted[HEC_N_BOOKS + 1] = {0}, sum = told.wait_s + told.skew_s, skew = 0;
  book_again(&timeline, step->program, counted);
  for (int32_t i = 0; i < HEC_N_BOOKS; i++) {
    sum += told.book_s[i];
    ck_assert_msg(fabs(told.book_s[i] - counted[i]) <= 1e-9 * told.total_s, "book %d: %.12g, counted %.12g: %s", i,
                  told.book_s[i], counted[i], hec_test_step_name(step));
  }
  for (int32_t r = 0; r < timeline.n_ranks; r++)
    skew += fmin(step->c->cluster.devices[r].skew_s, told.total_s) / timeline.n_ranks;
  ck_assert_msg(fabs(skew - told.skew_s) <= 1e-12, "%.15g, %.15g: %s", skew, told.skew_s, hec_test_step_name(step));
  ck_assert_msg(fabs(told.wait_s + told.skew_s - counted[HEC_N_BOOKS]) <= 1e-9 * told.total_s, "%s",
                hec_test_step_name(step));
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
}

HEC_TEST_LOOP(breakdown_adds_up, hec_test_cases(36)) {
  hec_test_each(sometimes_disturbed(_i, 6000 + (uint64_t)_i, (hec_test_wish){.ranks_max = 4}), false, visit_breakdown,
                _i % 2 ? (void *)&hec_law_max_min : (void *)&hec_law_alpha_beta);
}

/* ---- A fixed program on two clusters that differ in one thing ---- */

typedef struct {
  const hec_problem *other; /* never faster */
  const hec_law *law;
} pair;

static void visit_pair(const hec_test_step *step, void *context) {
  const pair *p = context;
  int64_t fast = hec_test_end_ps(&step->c->problem, step->program, p->law, (hec_sim_options){0});
  int64_t slow = hec_test_end_ps(p->other, step->program, p->law, (hec_sim_options){0});
  ck_assert_msg(fast <= slow + (int64_t)step->program->n_ops, "%lld ps, on the other cluster %lld ps (%s): %s",
                (long long)fast, (long long)slow, hec_law_name(p->law), hec_test_step_name(step));
}

/* Less bandwidth, or communication that takes a share of the device. */
static void compare_with_worse(uint64_t seed, const hec_law *law, bool share) {
  const hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){0});
  hec_problem worse = c->problem;
  hec_cluster cluster = c->cluster;
  worse.cluster = &cluster;
  cluster.links = HEC_NEW(&arena, hec_link, cluster.n_links);
  memcpy(cluster.links, c->cluster.links, (size_t)cluster.n_links * sizeof *cluster.links);
  cluster.devices = HEC_NEW(&arena, hec_device, cluster.n_devices);
  memcpy(cluster.devices, c->cluster.devices, (size_t)cluster.n_devices * sizeof *cluster.devices);
  double factor = 0.2 + 0.7 * hec_test_uniform(&seed);
  for (int32_t l = 0; !share && l < cluster.n_links; l++)
    cluster.links[l].bandwidth *= factor;
  for (int32_t d = 0; share && d < cluster.n_devices; d++)
    cluster.devices[d].comm_share = 0.1 + 0.8 * hec_test_uniform(&seed);
  hec_test_each(c, false, visit_pair, &(pair){.other = &worse, .law = law});
}

HEC_TEST_LOOP(bandwidth_helps, hec_test_cases(30)) {
  compare_with_worse(7000 + (uint64_t)_i, _i % 2 ? &hec_law_max_min : &hec_law_alpha_beta, false);
}
HEC_TEST_LOOP(share_never_helps, hec_test_cases(16)) {
  compare_with_worse(9000 + (uint64_t)_i, &hec_law_alpha_beta, true);
}
