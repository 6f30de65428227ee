/* A memo of timelines gives what a run gives, for programs of every policy and schedule. And programs that differ in
 * anything that takes time are not taken for each other. */
#include "sim/memo.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

typedef struct {
  const hec_law *law;
  hec_sim *plain, *sharing;
  hec_sim_memo *memo;
  hec_timeline expected, found;
  int32_t n_runs, n_taken;
} work;

static bool known(const work *w, const hec_program *program, hec_sim_options options) {
  HEC_SCOPED(hec_timeline) timeline = {0};
  hec_sim_memo_key key = hec_sim_memo_key_of(program, options);
  bool there = hec_sim_memo_take(w->memo, &key, &timeline);
  return there;
}

static void visit(const hec_test_step *step, void *context) {
  work *w = context;
  for (int without = 0; without < 2; without++) {
    hec_sim_options options = {.without_one_off = without != 0, .on_time = step->schedule->bound};
    w->n_taken += known(w, step->program, options);
    w->n_runs++;
    hec_sim_run(w->plain, step->program, options, &w->expected);
    hec_sim_run(w->sharing, step->program, options, &w->found);
    size_t n = (size_t)w->expected.n_ops * (size_t)w->expected.n_ranks;
    ck_assert_msg(w->found.n_ops == w->expected.n_ops && w->found.n_ranks == w->expected.n_ranks &&
                      memcmp(w->found.begin_ps, w->expected.begin_ps, n * sizeof(int64_t)) == 0 &&
                      memcmp(w->found.end_ps, w->expected.end_ps, n * sizeof(int64_t)) == 0 &&
                      memcmp(w->found.late_ps, w->expected.late_ps, (size_t)w->found.n_ranks * sizeof(int64_t)) == 0,
                  "%s", hec_test_step_name(step));
  }
}

HEC_TEST_LOOP(same_as_run, 6) {
  uint64_t seed = 100 + (uint64_t)_i;
  const hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){.comm_share = _i % 2, .ranks_max = 6});
  work w = {.law = _i % 3 ? &hec_law_max_min : &hec_law_nccl_rounds, .memo = hec_sim_memo_new()};
  w.plain = hec_sim_new(&c->problem, w.law, &arena);
  w.sharing = hec_sim_new(&c->problem, w.law, &arena);
  hec_sim_share(w.sharing, w.memo);
  hec_test_each(c, false, visit, &w);
  ck_assert_int_gt(w.n_taken, w.n_runs / 20); /* ep and all that have moved nothing yet */
  ck_assert_int_lt(w.n_taken, w.n_runs);
  hec_sim_free(w.plain);
  hec_sim_free(w.sharing);
  hec_sim_memo_free(w.memo);
  hec_timeline_free(&w.expected);
  hec_timeline_free(&w.found);
}

/* One thing at a time is changed in a program that has been run, and changed back. */
typedef struct {
  hec_sim_memo *memo;
  int32_t n_tried;
} change;

static bool there(const change *c, const hec_program *program) {
  HEC_SCOPED(hec_timeline) timeline = {0};
  hec_sim_memo_key key = hec_sim_memo_key_of(program, (hec_sim_options){0});
  bool found = hec_sim_memo_take(c->memo, &key, &timeline);
  return found;
}

#define CHANGED(type, place, other)                                                                                    \
  do {                                                                                                                 \
    type kept = place;                                                                                                 \
    place = (other);                                                                                                   \
    ck_assert_msg(!there(c, program), "%s of operation %d", #place, (int)i);                                           \
    place = kept;                                                                                                      \
    ck_assert(there(c, program));                                                                                      \
    c->n_tried++;                                                                                                      \
  } while (0)

static void spoil(const hec_test_step *step, void *context) {
  change *c = context;
  if (step->iteration != 1 || step->program->n_ops == 0)
    return;
  const hec_program *program = step->program;
  HEC_SCOPED(hec_timeline) timeline = {0};
  hec_timeline_resize(&timeline, (int32_t)program->n_ops, program->n_ranks);
  hec_sim_memo_key key = hec_sim_memo_key_of(program, (hec_sim_options){0});
  hec_sim_memo_clear(c->memo);
  hec_sim_memo_put(c->memo, &key, &timeline);
  for (size_t i = 0; i < program->n_ops; i += 3) {
    hec_op *op = &program->ops[i];
    CHANGED(hec_lane, op->lane, op->lane == HEC_LANE_GRAD ? HEC_LANE_PARAM : HEC_LANE_GRAD);
    CHANGED(hec_role, op->role, op->role == HEC_ROLE_HEAD ? HEC_ROLE_GATE : HEC_ROLE_HEAD);
    CHANGED(bool, op->backward, !op->backward);
    CHANGED(bool, op->reverse, !op->reverse);
    CHANGED(bool, op->sliced, !op->sliced);
    CHANGED(bool, op->one_off, !op->one_off);
    if (op->kind == HEC_OP_COMPUTE)
      CHANGED(double, op->compute.rows, op->compute.rows + 1);
    CHANGED(double, op->bytes, op->bytes + 1);
    if (op->kind == HEC_OP_PLAN)
      CHANGED(uint64_t, op->plan.units, op->plan.units + 1);
    if (op->kind == HEC_OP_EXCHANGE)
      CHANGED(int32_t, op->exchange.n_chunks, op->exchange.n_chunks + 1);
    if (op->n_deps > 0)
      CHANGED(int32_t, program->deps[op->dep_at], program->deps[op->dep_at] - 1);
    if (op->kind == HEC_OP_EXCHANGE && op->exchange.n_transfers > 0) {
      CHANGED(int64_t, program->transfers[op->exchange.transfer_at].bytes,
              program->transfers[op->exchange.transfer_at].bytes + 1);
      CHANGED(int32_t, program->transfers[op->exchange.transfer_at].source,
              program->transfers[op->exchange.transfer_at].source + 1);
      CHANGED(int32_t, program->transfers[op->exchange.transfer_at].after,
              program->transfers[op->exchange.transfer_at].after + 1);
    }
    if (op->kind == HEC_OP_COMPUTE)
      CHANGED(double, program->shapes[op->compute.shape].flops_per_row,
              program->shapes[op->compute.shape].flops_per_row + 1);
    if (op->kind == HEC_OP_COMPUTE && op->compute.work_at >= 0 &&
        program->work_index[op->compute.work_at + 1] > program->work_index[op->compute.work_at])
      CHANGED(int32_t, program->work[program->work_index[op->compute.work_at]].rows,
              program->work[program->work_index[op->compute.work_at]].rows + 1);
    if (op->kind == HEC_OP_LOCAL && op->local.bytes_at >= 0)
      CHANGED(double, program->local_bytes[op->local.bytes_at], program->local_bytes[op->local.bytes_at] + 1);
  }
}

HEC_TEST_LOOP(differences_are_seen, 2) {
  uint64_t seed = 7 + (uint64_t)_i;
  change c = {.memo = hec_sim_memo_new()};
  hec_test_each(hec_test_random_case(&arena, &seed, (hec_test_wish){.ranks_max = 4}), false, spoil, &c);
  ck_assert_int_gt(c.n_tried, 1000);
  hec_sim_memo_free(c.memo);
}
