/* The critical path against what makes it one. In a walk (walk.h) every time is a maximum over what came before plus a
 * duration. So along the path, and only there, time is lost. With everything that is done off the path made instant,
 * the program takes as long as before, to the picosecond. With a step of the path longer by D, D longer. On random
 * programs of every policy and schedule, with durations drawn at random, equal ones and empty ones among them. */
#include "runtime/program/critical_path.h"

#include "runtime/program/walk.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static int64_t time_of(hec_walk *walk, const hec_program *program, const int64_t *ps, hec_timeline *t) {
  hec_walk_run(walk, program, (hec_walk_options){.own = hec_walk_own_measured, .context = ps, .on_time = true}, t);
  return hec_timeline_end_ps(t);
}

static bool is_own(const hec_op *op) {
  return op->kind == HEC_OP_COMPUTE || op->kind == HEC_OP_LOCAL || op->kind == HEC_OP_PLAN;
}

static void check_form(const hec_critical_path *path, const hec_timeline *t, const char *name) {
  int64_t at = 0;
  for (int32_t i = 0; i < path->n; i++) {
    const hec_critical_step *s = &path->steps[i];
    ck_assert_msg(s->begin_ps == at && s->end_ps > at, "a gap or an empty step: %s", name);
    ck_assert_msg(i == 0 || s->op > path->steps[i - 1].op, "ids do not rise: %s", name);
    at = t->end_ps[(size_t)s->op * (size_t)t->n_ranks + (size_t)s->rank];
    ck_assert_msg(s->end_ps == at && t->begin_ps[(size_t)s->op * (size_t)t->n_ranks + (size_t)s->rank] >= s->begin_ps,
                  "not when it ends: %s", name);
  }
  ck_assert_msg(at == hec_timeline_end_ps(t), "the path ends before the iteration: %s", name);
}

static void check_time(hec_walk *walk, const hec_program *program, int64_t *ps, uint64_t *seed, const char *name) {
  HEC_SCOPED(hec_timeline) t = {0}, other = {0};
  HEC_SCOPED(hec_critical_path) path = {0};
  size_t n = program->n_ops * (size_t)program->n_ranks;
  int64_t total = time_of(walk, program, ps, &t);
  hec_critical_path_find(&path, &t, program);
  check_form(&path, &t, name);
  int64_t *on_path = HEC_NEW(&arena, int64_t, n);
  for (int32_t i = 0; i < path.n; i++) {
    size_t at = (size_t)path.steps[i].op * (size_t)program->n_ranks + (size_t)path.steps[i].rank;
    on_path[at] = ps[at];
  }
  ck_assert_msg(time_of(walk, program, on_path, &other) == total, "something off the path decides: %s", name);
  for (int32_t k = 0; k < 4 && path.n > 0; k++) {
    const hec_critical_step *s = &path.steps[hec_test_below(seed, (uint64_t)path.n)];
    size_t at = (size_t)s->op * (size_t)program->n_ranks + (size_t)s->rank;
    if (!is_own(&program->ops[s->op]))
      continue;
    ps[at] += 12345;
    ck_assert_msg(time_of(walk, program, ps, &other) == total + 12345, "a step of the path does not count: %s", name);
    ps[at] -= 12345;
  }
}

static void visit(const hec_test_step *step, void *context) {
  hec_arena_mark mark = hec_arena_save(&arena);
  hec_link_cost cost = hec_link_cost_new(&step->c->cluster, &arena);
  hec_walk *walk = hec_walk_new(&cost, step->program->n_ranks, &arena);
  check_time(walk, step->program, hec_test_random_ps(step->program, context, &arena), context,
             hec_test_step_name(step));
  hec_walk_free(walk);
  hec_link_cost_free(&cost);
  hec_arena_rewind(&arena, mark);
}

HEC_TEST_LOOP(only_the_path_counts, hec_test_cases(24)) {
  uint64_t seed = 9100 + (uint64_t)_i;
  hec_test_each(hec_test_random_case(&arena, &seed, (hec_test_wish){0}), false, visit, &seed);
}

/* Two ranks: rank 1 computes 0 to 5, rank 0 0 to 3. An exchange of both ends at 12 on rank 0 and at 9 on rank 1; rank 0
 * computes on until 14. The path: rank 1 until 5, the exchange on rank 0, then rank 0. A late start leads it. */
HEC_TEST(by_hand) {
  HEC_SCOPED(hec_program) p = {0};
  hec_program_clear(&p, 2);
  HEC_RESERVE(p.transfers, p.transfers_capacity, 1);
  p.transfers[p.n_transfers++] = (hec_transfer){.bytes = 7, .source = 1, .destination = 0, .item = -1, .after = -1};
  hec_op op = hec_op_new(HEC_OP_LOCAL, HEC_LANE_COMPUTE, HEC_ROLE_EMBEDDING, -1);
  hec_op sent = hec_op_new(HEC_OP_EXCHANGE, HEC_LANE_TOKEN, HEC_ROLE_EMBEDDING, -1);
  sent.exchange.n_transfers = 1;
  int32_t first = hec_program_add(&p, op, NULL, 0), exchange = hec_program_add(&p, sent, &first, 1);
  (void)hec_program_add(&p, op, &exchange, 1);
  HEC_SCOPED(hec_timeline) t = {0};
  hec_timeline_resize(&t, 3, 2);
  static const int64_t begin[] = {0, 1, 5, 5, 12, 9}, end[] = {3, 5, 12, 9, 14, 10};
  memcpy(t.begin_ps, begin, sizeof begin);
  memcpy(t.end_ps, end, sizeof end);
  t.late_ps[1] = 1;
  hec_timeline_check(&t, &p);
  HEC_SCOPED(hec_critical_path) path = {0};
  hec_critical_path_find(&path, &t, &p);
  static const hec_critical_step wanted[] = {{0, 1, 1, 5}, {1, 0, 5, 12}, {2, 0, 12, 14}};
  ck_assert_int_eq(path.n, 3);
  for (int i = 0; i < 3; i++)
    ck_assert_msg(memcmp(&path.steps[i], &wanted[i], sizeof *wanted) == 0, "step %d: op %d, rank %d, %d to %d", i,
                  path.steps[i].op, path.steps[i].rank, (int)path.steps[i].begin_ps, (int)path.steps[i].end_ps);
  t.end_ps[0] = 5; /* both are ready at once: the rank itself */
  hec_critical_path_find(&path, &t, &p);
  ck_assert_int_eq(path.n, 3);
  ck_assert_int_eq(path.steps[0].rank, 0);
}
