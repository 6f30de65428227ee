/* Every policy executed by real ranks against the dense reference: over random problems, under the schedules in turn, in
 * random and exact mode; for each number of ranks, transport, way of launching and clock; top-k 1 to 8; each collective. */
#include "runtime/exec/launch/world.h"
#include "tests/exec/replay_case.h"
#include "tests/support/check_main.h"
#include "tests/support/random_problem.h"

#include <signal.h>
#include <string.h>
#include <time.h>

static hec_arena arena;
static void setup(void) {
  hec_math_open();
}
static void teardown(void) {
  hec_arena_free(&arena);
}

static void expect(hec_replay_case *c, hec_replay_launch launch) {
  if (hec_replay_all(c, launch) != HEC_OK)
    ck_abort_msg("%s\n%s", hec_last_error(), c->line);
}

START_TEST(random_mode) {
  uint64_t seed = 31 + (uint64_t)_i;
  expect(hec_replay_random(&arena, &seed, (hec_replay_wish){0}), (hec_replay_launch){.turn = 1 + _i});
}
END_TEST

START_TEST(exact_mode) {
  uint64_t seed = 5031 + (uint64_t)_i;
  expect(hec_replay_random(&arena, &seed, (hec_replay_wish){.exact = true}), (hec_replay_launch){.turn = 1 + _i});
}
END_TEST

START_TEST(each_number_of_ranks) {
  static const int32_t ranks[] = {1, 2, 3, 4, 8};
  for (int32_t exact = 0; exact < 2; exact++) {
    uint64_t seed = 77 + (uint64_t)_i;
    hec_replay_wish wish = {.ranks = ranks[_i], .exact = exact, .steps = 3, .micro_batches = 2};
    expect(hec_replay_random(&arena, &seed, wish), (hec_replay_launch){.turn = 1 + _i});
  }
}
END_TEST

START_TEST(each_top_k) {
  uint64_t seed = 177 + (uint64_t)_i;
  hec_replay_wish wish = {.ranks = 3, .steps = 2, .micro_batches = 3, .top_k = 1 + _i};
  expect(hec_replay_random(&arena, &seed, wish), (hec_replay_launch){.threads = true, .turn = 1 + _i});
}
END_TEST

START_TEST(forward_only) {
  uint64_t seed = 277 + (uint64_t)_i;
  expect(hec_replay_random(&arena, &seed, (hec_replay_wish){.forward = true}),
         (hec_replay_launch){.turn = 1 + _i, .threads = _i % 2});
}
END_TEST

START_TEST(each_collective) {
  for (int32_t k = 0; hec_collectives[k]; k++) {
    uint64_t seed = 377 + (uint64_t)_i;
    hec_replay_case *c =
        hec_replay_random(&arena, &seed, (hec_replay_wish){.ranks = 4 + 2 * (_i % 3), .exact = _i % 2});
    c->replay.collective = hec_collectives[k];
    expect(c, (hec_replay_launch){.turn = 1 + _i + k});
  }
}
END_TEST

/* Emulated and paced links; the second has no adding receive, so everything that is summed goes through staging. */
START_TEST(other_transports) {
  static const hec_transport *const rows[] = {&hec_transport_emulated, &hec_transport_paced};
  for (int32_t t = 0; t < 2; t++) {
    uint64_t seed = 477 + (uint64_t)_i;
    hec_replay_wish wish = {.ranks = 2 + _i % 3, .exact = _i % 2, .steps = 2};
    expect(hec_replay_random(&arena, &seed, wish), (hec_replay_launch){.transport = rows[t], .threads = _i % 3 == 0, .turn = 1 + _i});
  }
}
END_TEST

/* In virtual time and in real time; the timelines of all iterations are verified against their programs. */
static int32_t n_seen;
static void verify(void *context, const hec_replayed *iteration) {
  const hec_program *program = hec_lowering_program(iteration->low);
  (void)context;
  hec_program_check(program);
  hec_timeline_check(iteration->timeline, program);
  ck_assert_int_gt(hec_timeline_end_ps(iteration->timeline), 0);
  ck_assert(iteration->interrupted >= 0 && iteration->interrupted <= 1);
  n_seen++;
}

START_TEST(timelines) {
  for (int32_t is_virtual = 0; is_virtual < 2; is_virtual++) {
    uint64_t seed = 577 + (uint64_t)_i;
    hec_replay_case *c = hec_replay_random(&arena, &seed, (hec_replay_wish){.ranks = 1 + _i, .steps = 2});
    c->replay.virtual_time = is_virtual;
    c->replay.measured = verify;
    n_seen = 0;
    expect(c, (hec_replay_launch){
                  .threads = true, .turn = 1 + _i, .transport = _i % 2 ? &hec_transport_shm : &hec_transport_emulated});
    ck_assert_int_gt(n_seen, 0);
  }
}
END_TEST

/* Lanes really overlap: with links that take far longer than attention, the attention that a gather is scheduled beside
 * begins before the gather ends (one lane after the other would never show that). */
static int32_t n_beside, n_gathers;
static void count_overlaps(void *context, const hec_replayed *iteration) {
  const hec_program *program = hec_lowering_program(iteration->low);
  const hec_timeline *timeline = iteration->timeline;
  size_t n_ranks = (size_t)program->n_ranks;
  (void)context;
  for (size_t g = 0; g < program->n_ops; g++)
    for (size_t a = g; a < program->n_ops && program->ops[g].role == HEC_ROLE_GATHER; a++) {
      const hec_op *attention = &program->ops[a];
      if (program->ops[g].kind != HEC_OP_EXCHANGE || attention->role != HEC_ROLE_ATTENTION || attention->backward ||
          attention->layer != program->ops[g].layer)
        continue;
      n_gathers++;
      n_beside += timeline->begin_ps[a * n_ranks] < timeline->end_ps[g * n_ranks];
    }
}

START_TEST(lanes_overlap) {
  uint64_t seed = 777;
  hec_replay_case *c =
      hec_replay_random(&arena, &seed, (hec_replay_wish){.ranks = 2, .steps = 2, .micro_batches = 1, .top_k = 1});
  hec_cluster slow;
  if (hec_cluster_load("2x1 nvlink=1M@1ms nic=1M@50ms flops=1G mem=1G", &arena, &slow) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  c->cluster = slow;
  c->problem.t = c->problem.n_experts;
  c->problem.m = c->problem.n_experts;
  c->replay.measured = count_overlaps;
  n_beside = n_gathers = 0;
  expect(c, (hec_replay_launch){.threads = true, .transport = &hec_transport_emulated, .policy = "hecate-nosharding"});
  ck_assert_int_gt(n_gathers, 0);
  ck_assert_int_gt(n_beside, 0);
}
END_TEST

/* The same for schedule `laer`: a layer's gather lies beside the experts of the layer before, and the return of its
 * gradients beside those experts' backward, on some rank. */
static int32_t n_ahead, n_behind;
static void count_under_experts(void *context, const hec_replayed *iteration) {
  const hec_program *program = hec_lowering_program(iteration->low);
  const hec_timeline *t = iteration->timeline;
  size_t n_ranks = (size_t)program->n_ranks;
  (void)context;
  for (size_t g = 0; g < program->n_ops; g++)
    for (size_t x = 0; x < program->n_ops; x++) {
      const hec_op *moved = &program->ops[g], *experts = &program->ops[x];
      bool returns = moved->role == HEC_ROLE_SCATTER, beside = false;
      if (moved->kind != HEC_OP_EXCHANGE || (moved->role != HEC_ROLE_GATHER && !returns) ||
          experts->role != HEC_ROLE_EXPERTS || experts->backward != returns || moved->layer != experts->layer + 1)
        continue;
      for (size_t r = 0; r < n_ranks; r++)
        beside = beside || (t->begin_ps[g * n_ranks + r] < t->end_ps[x * n_ranks + r] &&
                            t->end_ps[g * n_ranks + r] > t->begin_ps[x * n_ranks + r]);
      *(returns ? &n_behind : &n_ahead) += beside;
    }
}

START_TEST(experts_overlap) {
  uint64_t seed = 778;
  hec_replay_case *c = hec_replay_random(
      &arena, &seed, (hec_replay_wish){.ranks = 2, .steps = 2, .micro_batches = 1, .top_k = 2, .layers = 3});
  if (hec_cluster_load("2x1 nvlink=1M@1ms nic=1M@50ms flops=1G mem=1G", &arena, &c->cluster) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  c->replay.measured = count_under_experts;
  c->replay.virtual_time = true; /* in real time these few rows can be done before the return is posted */
  n_ahead = n_behind = 0;
  expect(c, (hec_replay_launch){.threads = true, .transport = &hec_transport_emulated, .policy = "laer"});
  ck_assert_int_gt(n_ahead, 0);
  ck_assert_int_gt(n_behind, 0);
}
END_TEST

/* A link whose law takes longer than the longest wait for a peer: nobody is late, for nobody is waited for. */
START_TEST(law_beyond_the_limit) {
  uint64_t seed = 877;
  hec_replay_case *c = hec_replay_random(
      &arena, &seed,
      (hec_replay_wish){.ranks = 2, .steps = 1, .micro_batches = 1, .top_k = 1, .layers = 1, .forward = true});
  const hec_load *load = &c->replay.steps[0].loads[0]; /* no tokens: the counts are the only exchange */
  memset(load->counts, 0, (size_t)load->n_sources * (size_t)load->n_experts * sizeof *load->counts);
  if (hec_cluster_load("2x1 nvlink=1G@1us nic=1G@2500ms flops=1G mem=1G", &arena, &c->cluster) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  expect(c, (hec_replay_launch){.transport = &hec_transport_emulated, .policy = "ep", .limit_s = 2});
}
END_TEST

/* A buffer that takes the place of very many small ones, each free after another operation: in the second micro-batch
 * all tokens meet on one rank, in the first there were hardly any. */
START_TEST(more_fragments_than_operations) {
  uint64_t seed = 977;
  hec_replay_case *c = hec_replay_random(
      &arena, &seed, (hec_replay_wish){.ranks = 8, .steps = 1, .micro_batches = 2, .top_k = 8, .layers = 48});
  const hec_load *loads = c->replay.steps[0].loads;
  for (int32_t l = 0; l < c->problem.n_layers; l++)
    for (int32_t s = 0; s < c->problem.n_ranks; s++) {
      size_t row = (size_t)c->problem.n_experts * sizeof *loads->counts;
      memset(hec_load_row(&loads[0], l, s), 0, row);
      memset(hec_load_row(&loads[1], l, s), 0, row);
      hec_load_row(&loads[0], l, s)[l % c->problem.n_experts] = 1;
      hec_load_row(&loads[1], l, s)[0] = (uint32_t)(c->problem.tokens * c->problem.top_k);
    }
  c->replay.check = false;
  expect(c, (hec_replay_launch){.threads = true, .policy = "ep"});
}
END_TEST

/* In virtual time ranks compute one after the other: others who compute are no reason to be late, a rank that is stopped
 * while it is its turn is one. The hook runs where the rank takes no turn itself. */
enum { TURNS = 40, TURN_MS = 50 };
static int stop_signal;
static void compute_long(hec_rank *rank, const hec_place *place) {
  if (place->role != (stop_signal ? HEC_ROLE_ATTENTION : HEC_ROLE_COUNTS))
    return;
  while (rank->rank == 0 && stop_signal && atomic_load(&rank->world->turn->holder) == 0)
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  if (rank->rank == 0)
    return;
  for (int32_t i = 0; i < TURNS; i++) {
    if (hec_rank_take_turn(rank) != HEC_OK)
      return;
    if (stop_signal)
      (void)raise(stop_signal);
    (void)nanosleep(&(struct timespec){.tv_nsec = TURN_MS * 1000000}, NULL);
    hec_rank_end_turn(rank);
  }
}

static hec_status with_turns(int32_t signal) {
  uint64_t seed = 1077;
  hec_replay_case *c = hec_replay_random(
      &arena, &seed, (hec_replay_wish){.ranks = 2, .steps = 1, .micro_batches = 1, .layers = 1, .forward = true});
  c->replay.virtual_time = true;
  stop_signal = signal;
  hec_rank_place_hook = compute_long;
  hec_status status = hec_replay_all(c, (hec_replay_launch){.policy = "ep", .limit_s = 1});
  hec_rank_place_hook = NULL;
  return status;
}

START_TEST(long_turns) {
  if (with_turns(0) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
}
END_TEST

START_TEST(stopped_in_its_turn) {
  ck_assert_int_eq(with_turns(SIGSTOP), HEC_FAILED);
  ck_assert_msg(strstr(hec_last_error(), "for rank 1 in ") != NULL, "%s", hec_last_error());
}
END_TEST

/* One rank that plans from other loads is found, and named. */
START_TEST(different_plans) {
  uint64_t seed = 677;
  hec_replay_case *c = hec_replay_random(&arena, &seed, (hec_replay_wish){.ranks = 4, .steps = 3, .micro_batches = 1});
  c->replay.differ_rank = 2;
  c->replay.differ_iteration = 1;
  c->replay.check = false;
  hec_status status = hec_replay_all(c, (hec_replay_launch){.policy = "ep", .limit_s = 5});
  ck_assert_int_eq(status, HEC_FAILED);
  ck_assert_msg(strstr(hec_last_error(), "rank 2") != NULL, "%s", hec_last_error());
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("replay");
  TCase *c = tcase_create("replay");
  tcase_set_timeout(c, 120);
  tcase_add_unchecked_fixture(c, setup, NULL);
  tcase_add_checked_fixture(c, NULL, teardown);
  tcase_add_loop_test(c, random_mode, 0, hec_test_cases(40));
  tcase_add_loop_test(c, exact_mode, 0, hec_test_cases(24));
  tcase_add_loop_test(c, each_number_of_ranks, 0, 5);
  tcase_add_loop_test(c, each_top_k, 0, 8);
  tcase_add_loop_test(c, forward_only, 0, hec_test_cases(8));
  tcase_add_loop_test(c, each_collective, 0, hec_test_cases(6));
  tcase_add_loop_test(c, other_transports, 0, hec_test_cases(8));
  tcase_add_loop_test(c, timelines, 0, 4);
  tcase_add_test(c, lanes_overlap);
  tcase_add_test(c, experts_overlap);
  tcase_add_test(c, different_plans);
  suite_add_tcase(s, c);
  TCase *limits = tcase_create("limits");
  tcase_set_timeout(limits, 30);
  tcase_add_unchecked_fixture(limits, setup, NULL);
  tcase_add_checked_fixture(limits, NULL, teardown);
  tcase_add_test(limits, law_beyond_the_limit);
  tcase_add_test(limits, more_fragments_than_operations);
  tcase_add_test(limits, long_turns);
  tcase_add_test(limits, stopped_in_its_turn);
  suite_add_tcase(s, limits);
  return s;
}

HEC_TEST_MAIN(suite)
