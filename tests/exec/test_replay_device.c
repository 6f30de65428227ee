/* Every policy executed on devices with streams, against the dense reference. The devices (queued_cpu.h) carry out what
 * they are given as late as they may and in a random order, so a stream that should wait for another one and does not gives
 * wrong numbers: the last tests leave waits out on purpose and must be caught. */
#include "tests/exec/replay_case.h"
#include "tests/support/check_main.h"
#include "tests/support/queued_cpu.h"
#include "tests/support/random_problem.h"

#include <stdatomic.h>
#include <string.h>

static hec_arena arena;
static void setup(void) {
  hec_math_open();
}
static void teardown(void) {
  hec_arena_free(&arena);
}

static void expect(hec_replay_case *c, hec_replay_launch launch, uint64_t device_seed) {
  launch.device_seed = device_seed;
  if (hec_replay_all(c, launch) != HEC_OK)
    ck_abort_msg("%s\n%s", hec_last_error(), c->line);
}

START_TEST(random_mode) {
  uint64_t seed = 6031 + (uint64_t)_i;
  hec_replay_case *c = hec_replay_random(&arena, &seed, (hec_replay_wish){0});
  expect(c, (hec_replay_launch){.turn = 1 + _i}, seed);
}
END_TEST

START_TEST(exact_mode) {
  uint64_t seed = 7031 + (uint64_t)_i;
  hec_replay_case *c = hec_replay_random(&arena, &seed, (hec_replay_wish){.exact = true});
  expect(c, (hec_replay_launch){.turn = 1 + _i}, seed);
}
END_TEST

START_TEST(forward_only) {
  uint64_t seed = 7277 + (uint64_t)_i;
  expect(hec_replay_random(&arena, &seed, (hec_replay_wish){.forward = true}), (hec_replay_launch){.turn = 1 + _i}, seed);
}
END_TEST

START_TEST(each_number_of_ranks) {
  static const int32_t ranks[] = {1, 2, 4, 8};
  uint64_t seed = 7377 + (uint64_t)_i;
  hec_replay_wish wish = {.ranks = ranks[_i], .steps = 3, .micro_batches = 2};
  expect(hec_replay_random(&arena, &seed, wish), (hec_replay_launch){.turn = 1 + _i}, seed);
}
END_TEST

START_TEST(each_collective) {
  for (int32_t k = 0; hec_collectives[k]; k++) {
    uint64_t seed = 7477 + (uint64_t)_i;
    hec_replay_wish wish = {.ranks = 4 + 2 * (_i % 3), .layers = 1, .steps = 1, .exact = _i % 2};
    hec_replay_case *c = hec_replay_random(&arena, &seed, wish);
    c->replay.collective = hec_collectives[k];
    expect(c, (hec_replay_launch){.turn = 1 + _i + k}, seed);
  }
}
END_TEST

/* As over NCCL: what is to be added comes to stand beside first. */
START_TEST(staged) {
  uint64_t seed = 7527 + (uint64_t)_i;
  hec_replay_wish wish = {.ranks = 2 + _i % 6, .layers = 2, .steps = 1, .micro_batches = 2};
  expect(hec_replay_random(&arena, &seed, wish), (hec_replay_launch){.staged = true, .turn = _i}, seed);
}
END_TEST

static atomic_int n_seen;
static void verify(void *context, const hec_replayed *iteration) {
  const hec_program *program = hec_lowering_program(iteration->low);
  (void)context;
  hec_timeline_check(iteration->timeline, program);
  ck_assert_int_gt(hec_timeline_end_ps(iteration->timeline), 0);
  ck_assert(iteration->probe_s == NULL && iteration->interrupted >= 0 && iteration->interrupted < 1);
  n_seen++;
}

START_TEST(timelines) {
  for (int32_t is_virtual = 0; is_virtual < 2; is_virtual++) {
    uint64_t seed = 7577 + (uint64_t)_i;
    hec_replay_case *c = hec_replay_random(&arena, &seed, (hec_replay_wish){.ranks = 1 + _i, .steps = 2});
    c->replay.virtual_time = is_virtual;
    c->replay.measured = verify;
    c->replay.probe = true; /* asked for, not there */
    n_seen = 0;
    expect(c, (hec_replay_launch){.turn = 1 + _i}, seed);
    ck_assert_int_gt(n_seen, 0);
  }
}
END_TEST

/* ---- Faults ---- */

static void break_one(hec_rank *rank, hec_processor *on) {
  if (rank->rank == 1)
    hec_queued_cpu_break(on, "out of order");
}

START_TEST(a_device_that_fails_is_named) {
  uint64_t seed = 7677;
  hec_replay_case *c = hec_replay_random(&arena, &seed, (hec_replay_wish){.ranks = 3, .steps = 1});
  hec_replay_launch launch = {.device_seed = 1, .device = break_one, .policy = "hecate", .limit_s = 2};
  ck_assert(hec_replay_all(c, launch) != HEC_OK);
  ck_assert_msg(strstr(hec_last_error(), "rank 1, in ") && strstr(hec_last_error(), "the device failed: out of order"),
                "%s", hec_last_error());
}
END_TEST

/* A processor keeps what it gave of the host's memory, so executors must not ask for more and more. */
static atomic_int n_asked;
static _Thread_local const hec_streams *giving;

static void *count_memory(hec_processor *on, size_t bytes) {
  n_asked++;
  return giving->host_memory(on, bytes);
}

static void watch_memory(hec_rank *rank, hec_processor *on) {
  static _Thread_local hec_streams watched;
  (void)rank;
  giving = on->streams;
  watched = *on->streams;
  watched.host_memory = count_memory;
  on->streams = &watched;
}

START_TEST(memory_of_the_host_is_taken_once) {
  uint64_t seed = 7707;
  hec_replay_case *c = hec_replay_random(&arena, &seed, (hec_replay_wish){.ranks = 1, .steps = 1});
  n_asked = 0;
  expect(c, (hec_replay_launch){.device = watch_memory}, seed);
  ck_assert_int_eq(n_asked, 1);
}
END_TEST

/* Only where a policy may bring the assignments of all sources together is there room for that, in every layer. */
START_TEST(room_is_for_the_assignments_of_one_source) {
  uint64_t seed = 7717;
  hec_replay_case *c = hec_replay_random(&arena, &seed, (hec_replay_wish){.ranks = 8, .steps = 1});
  size_t one = hec_replay_bytes(&c->replay, hec_policy_find("ep"));
  ck_assert_uint_lt(one, hec_replay_bytes(&c->replay, hec_policy_find("ep-balanced")));
}
END_TEST

/* Streams that skip some of their waits. */
static int32_t skipped; /* every how many-th wait of a rank is left out */
static _Thread_local int32_t n_waits;
static _Thread_local const hec_streams *honest;

static void after_sometimes(hec_processor *on, const hec_event *event) {
  if (n_waits++ % skipped != 0)
    honest->after(on, event);
}

static void leave_waits_out(hec_rank *rank, hec_processor *on) {
  static _Thread_local hec_streams careless;
  static _Thread_local bool made;
  (void)rank;
  if (!made) {
    honest = on->streams;
    careless = *honest;
    careless.after = after_sometimes;
  }
  made = true;
  on->streams = &careless;
  n_waits = 0;
}

START_TEST(missing_waits_are_noticed) {
  int32_t n_noticed = 0, n = 6;
  skipped = 1 + 2 * _i;
  for (int32_t i = 0; i < n; i++) {
    uint64_t seed = 7777 + (uint64_t)i;
    hec_replay_wish wish = {.ranks = 3, .steps = 1, .micro_batches = 1};
    hec_replay_case *c = hec_replay_random(&arena, &seed, wish);
    hec_replay_launch launch = {.device_seed = seed, .device = leave_waits_out, .policy = "hecate", .limit_s = 2};
    n_noticed += hec_replay_all(c, launch) != HEC_OK;
  }
  ck_assert_msg(n_noticed >= n / 2, "noticed %d of %d", n_noticed, n);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("replay on devices");
  TCase *c = tcase_create("replay"), *faults = tcase_create("faults");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, staged, 0, hec_test_cases(4));
  tcase_add_loop_test(c, random_mode, 0, hec_test_cases(8));
  tcase_add_loop_test(c, exact_mode, 0, hec_test_cases(6));
  tcase_add_loop_test(c, forward_only, 0, hec_test_cases(4));
  tcase_add_loop_test(c, each_number_of_ranks, 0, 4);
  tcase_add_loop_test(c, each_collective, 0, hec_test_cases(3));
  tcase_add_loop_test(c, timelines, 0, 4);
  suite_add_tcase(s, c);
  tcase_add_checked_fixture(faults, setup, teardown);
  tcase_set_timeout(faults, 120);
  tcase_add_test(faults, a_device_that_fails_is_named);
  tcase_add_test(faults, memory_of_the_host_is_taken_once);
  tcase_add_test(faults, room_is_for_the_assignments_of_one_source);
  tcase_add_loop_test(faults, missing_waits_are_noticed, 0, 3);
  suite_add_tcase(s, faults);
  return s;
}

HEC_TEST_MAIN(suite)
