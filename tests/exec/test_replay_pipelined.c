/* Schedules that cut a layer's tokens into chunks, executed by real ranks against the dense reference: in random and exact
 * mode, for each number of ranks, forward only, over transports that add and that do not, in virtual time, on devices. Each
 * case takes one policy, so that all of them are met by every schedule. With four micro-batches Tutel tries every degree, 8
 * the last; with the few tokens of these cases many chunks are then empty on some rank, or on all. */
#include "tests/exec/replay_case.h"
#include "tests/support/check_main.h"
#include "tests/support/random_problem.h"

#include <string.h>

static hec_arena arena;
static void setup(void) {
  hec_math_open();
}
static void teardown(void) {
  hec_arena_free(&arena);
}

static int32_t count_policies(void) {
  int32_t n = 0;
  while (hec_policies[n])
    n++;
  return n;
}

static const char *policy_of(int32_t i) {
  return hec_policies[i % count_policies()]->name;
}

static void expect(hec_replay_case *c, hec_replay_launch launch, int32_t policy) {
  launch.pipelined = true;
  launch.policy = policy_of(policy);
  if (hec_replay_all(c, launch) != HEC_OK)
    ck_abort_msg("%s: %s\n%s", launch.policy, hec_last_error(), c->line);
}

/* What was executed really was cut, and some rank had no part in some chunk. */
static int32_t n_cut, n_apart, n_pieces;
static void verify(void *context, const hec_replayed *iteration) {
  const hec_program *program = hec_lowering_program(iteration->low);
  (void)context;
  hec_program_check(program);
  hec_timeline_check(iteration->timeline, program);
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    n_cut += op->degree > 1 && op->role == HEC_ROLE_EXPERTS;
    n_pieces += op->first_byte > 0 && op->role == HEC_ROLE_DENSE_REDUCE;
    for (int32_t r = 0; op->degree > 1 && r < program->n_ranks; r++)
      n_apart += !hec_program_takes_part(program, op, r);
  }
}

START_TEST(random_mode) {
  uint64_t seed = 8031 + (uint64_t)_i;
  expect(hec_replay_random(&arena, &seed, (hec_replay_wish){.micro_batches = 4}), (hec_replay_launch){0}, _i);
}
END_TEST

START_TEST(exact_mode) {
  uint64_t seed = 8531 + (uint64_t)_i;
  expect(hec_replay_random(&arena, &seed, (hec_replay_wish){.exact = true, .micro_batches = 4}), (hec_replay_launch){0},
         _i);
}
END_TEST

START_TEST(each_number_of_ranks) {
  static const int32_t ranks[] = {1, 2, 3, 5, 8};
  uint64_t seed = 8777 + (uint64_t)_i;
  hec_replay_wish wish = {.ranks = ranks[_i % 5], .exact = _i % 2, .steps = 5, .micro_batches = 2};
  expect(hec_replay_random(&arena, &seed, wish), (hec_replay_launch){.threads = _i % 3 == 0}, 3 * _i);
}
END_TEST

START_TEST(forward_only) {
  uint64_t seed = 8877 + (uint64_t)_i;
  expect(hec_replay_random(&arena, &seed, (hec_replay_wish){.forward = true, .micro_batches = 4}),
         (hec_replay_launch){0}, 4 * _i);
}
END_TEST

START_TEST(other_transports) {
  static const hec_transport *const rows[] = {&hec_transport_emulated, &hec_transport_paced};
  uint64_t seed = 8977 + (uint64_t)_i;
  hec_replay_wish wish = {.ranks = 2 + _i % 3, .exact = _i % 2, .steps = 2, .micro_batches = 4};
  expect(hec_replay_random(&arena, &seed, wish), (hec_replay_launch){.transport = rows[_i % 2]}, 5 * _i);
}
END_TEST

START_TEST(on_devices) {
  uint64_t seed = 9077 + (uint64_t)_i;
  hec_replay_wish wish = {.exact = _i % 3 == 0, .steps = 2, .micro_batches = 4, .forward = _i % 7 == 6};
  expect(hec_replay_random(&arena, &seed, wish), (hec_replay_launch){.device_seed = seed, .staged = _i % 2}, _i);
}
END_TEST

START_TEST(timelines) {
  n_cut = 0;
  for (int32_t is_virtual = 0; is_virtual < 2; is_virtual++) {
    uint64_t seed = 9177 + (uint64_t)_i;
    hec_replay_case *c = hec_replay_random(&arena, &seed, (hec_replay_wish){.ranks = 3 + _i, .steps = 3});
    c->replay.virtual_time = is_virtual;
    c->replay.measured = verify;
    expect(c, (hec_replay_launch){.threads = true}, _i);
  }
  ck_assert_int_gt(n_cut, 0);
}
END_TEST

/* Three tokens in eight chunks: most are empty everywhere. */
START_TEST(hardly_any_tokens) {
  uint64_t seed = 9277;
  hec_replay_case *c =
      hec_replay_random(&arena, &seed, (hec_replay_wish){.ranks = 4, .steps = 1, .micro_batches = 4, .top_k = 1});
  for (int32_t i = 0; i < 4 * c->problem.n_layers; i++)
    for (int32_t s = 0; s < 4; s++) {
      uint32_t *row = hec_load_row(&c->replay.steps[0].loads[i % 4], i / 4, s);
      memset(row, 0, (size_t)c->problem.n_experts * sizeof *row);
      row[i % c->problem.n_experts] = s < 3;
    }
  c->replay.measured = verify;
  n_apart = 0;
  for (int32_t p = 0; p < count_policies(); p += 4)
    expect(c, (hec_replay_launch){.threads = true}, p);
  ck_assert_int_gt(n_apart, 0);
}
END_TEST

/* Blocks of more than 30 MB: their gradients are reduced in pieces, by lina. */
START_TEST(gradients_in_pieces) {
  uint64_t seed = 9377 + (uint64_t)_i;
  hec_replay_case *c = hec_replay_random(
      &arena, &seed,
      (hec_replay_wish){.ranks = 2, .steps = 1, .micro_batches = 1 + _i, .top_k = 1, .layers = 2, .d_model = 1400});
  c->replay.measured = verify;
  n_pieces = 0;
  if (_i == 0)
    expect(c, (hec_replay_launch){.threads = true}, 0);
  else
    expect(c, (hec_replay_launch){.device_seed = seed, .staged = true}, 0);
  ck_assert_int_gt(n_pieces, 1);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("pipelined replay");
  TCase *c = tcase_create("replay");
  tcase_set_timeout(c, 120);
  tcase_add_unchecked_fixture(c, setup, NULL);
  tcase_add_checked_fixture(c, NULL, teardown);
  tcase_add_loop_test(c, random_mode, 0, hec_test_cases(32));
  tcase_add_loop_test(c, exact_mode, 0, hec_test_cases(24));
  tcase_add_loop_test(c, each_number_of_ranks, 0, 10);
  tcase_add_loop_test(c, forward_only, 0, hec_test_cases(8));
  tcase_add_loop_test(c, other_transports, 0, hec_test_cases(8));
  tcase_add_loop_test(c, on_devices, 0, hec_test_cases(16));
  tcase_add_loop_test(c, timelines, 0, 3);
  tcase_add_test(c, hardly_any_tokens);
  tcase_add_loop_test(c, gradients_in_pieces, 0, 2);
  suite_add_tcase(s, c);
  return s;
}

HEC_TEST_MAIN(suite)
