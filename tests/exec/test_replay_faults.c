/* Replays in which something is wrong, each of which must be noticed, and those that only look so. Messages that do not
 * come, ranks that plan from other loads, long turns, devices that fail or forget to wait. */
#include "runtime/exec/launch/world.h"
#include "tests/exec/launch_case.h"
#include "tests/exec/replay_case.h"
#include "tests/support/queued_cpu.h"
#include "tests/support/test.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

HEC_TEST_ONCE(hec_math_open)
HEC_TEST_ARENA(arena)

static const double limit_s = HEC_TEST_FOREVER_S;

static void expect_failure(hec_replay_case *c, hec_replay_launch launch, const char *words) {
  ck_assert_int_eq(hec_replay_all(c, launch), HEC_FAILED);
  ck_assert_msg(strstr(hec_last_error(), words) != NULL, "%s", hec_last_error());
}

/* ---- Rows that are left out ---- */

/* Rank 1 does not get what another one sent in an operation: what stood there before stands there after. */
static struct {
  hec_role role;
  bool backward;
} wanted;
static const hec_transport *carrier;
static bool striking; /* of the process: the rank's last published operation is the wanted one, on the victim */
static hec_post *struck;
static float kept[1 << 16];

static void aim(hec_rank *rank, const hec_place *place) {
  striking = rank->rank == 1 && place->role == (int32_t)wanted.role && place->backward == wanted.backward;
}

/* The first message of the struck post, from where it stands into `kept`, or back. */
static void copy_struck(bool keeps) {
  char *at = (char *)kept;
  const hec_message *message = &struck->receives[0];
  for (int32_t i = 0; i < message->n_segments; i++) {
    const hec_segment *segment = &message->segments[i];
    ck_assert(at + segment->bytes <= (char *)kept + sizeof kept);
    memcpy(keeps ? at : segment->at, keeps ? segment->at : at, (size_t)segment->bytes);
    at += segment->bytes;
  }
}

static hec_status leaky_start(hec_rank *rank, hec_post *post) {
  if (striking && !struck && post->n_receives > 0) {
    struck = post;
    copy_struck(true);
  }
  striking = false;
  return carrier->start(rank, post);
}

static hec_status leaky_test(hec_rank *rank, hec_post *post, bool *done) {
  HEC_TRY(carrier->test(rank, post, done));
  if (*done && post == struck)
    copy_struck(false);
  return HEC_OK;
}

/* Of shards, over memory and over TCP, then of tensor parallelism: in groups of 2 and 4, random and exact. With these seeds
 * no row left out is one of zeros, as exact ones may be. */
static const hec_role leaks[2][2] = {{HEC_ROLE_SHARD_GATHER, HEC_ROLE_SHARD_SCATTER},
                                     {HEC_ROLE_TENSOR_GATHER, HEC_ROLE_TENSOR_SCATTER}};
enum { N_SHARD_LEAKS = 32, N_TENSOR_LEAKS = 16 };

HEC_TEST_LOOP(rows_left_out_are_noticed, N_SHARD_LEAKS + N_TENSOR_LEAKS) {
  bool tensor = _i >= N_SHARD_LEAKS;
  int32_t i = tensor ? _i - N_SHARD_LEAKS : _i, width = i / 4 % 2 ? 4 : 2, scatters = i / 2 % 2;
  uint64_t seed = (tensor ? 22877 : 12901) + (uint64_t)(i / 4);
  hec_replay_wish wish = {.ranks = 4, .steps = 1, .micro_batches = 1, .exact = i / 8 % 2};
  if (tensor && scatters)
    wish.exact = false; /* the few nonzeros of exact mode may leave a partial sum 0 */
  *(tensor ? &wish.mp : &wish.esp) = width;
  hec_replay_case *c = hec_replay_random(&arena, &seed, wish);
  for (int32_t l = 0; !tensor && l < c->problem.n_layers; l++) /* every rank has tokens for every expert */
    for (int32_t s = 0; s < 4; s++)
      for (int32_t e = 0; e < c->problem.n_experts; e++)
        hec_load_row(&c->replay.steps[0].loads[0], l, s)[e] = 2;
  wanted.role = leaks[tensor][scatters];
  wanted.backward = i % 2;
  carrier = i / 16 ? &hec_transport_paced : &hec_transport_shm;
  hec_transport leaky = *carrier;
  hec_rank_place_hook = aim;
  hec_replay_expect(c, (hec_replay_launch){.transport = carrier, .policy = "ep"});
  leaky.start = leaky_start;
  leaky.test = leaky_test;
  expect_failure(c, (hec_replay_launch){.transport = &leaky, .policy = "ep"}, "tolerance");
}

/* ---- Plans and turns ---- */

/* One rank that plans from other loads is found, and named. */
HEC_TEST(different_plans) {
  uint64_t seed = 677;
  hec_replay_wish wish = {.ranks = 4, .steps = 3, .micro_batches = 1};
  hec_replay_case *c = hec_replay_random(&arena, &seed, wish);
  c->replay.differ_rank = 2;
  c->replay.differ_iteration = 1;
  c->replay.check = false;
  expect_failure(c, (hec_replay_launch){.policy = "ep", .limit_s = limit_s}, "rank 2");
}

/* In virtual time ranks compute one after the other. Others who compute are no reason to be late, a rank that is stopped
 * while it is its turn is one. The hook runs where the rank takes no turn itself. Time that counts passes for rank 0 alone, at
 * looks at its clock. Nearly the limit for each turn that ended, or a quarter of it once rank 1 stops. */
enum { TURNS = 8 };
static int stop_signal;
static struct {
  atomic_int looks; /* of rank 0 */
  atomic_bool stops;
} * watched; /* shared with the ranks */
static hec_rank *of_process;

static int64_t pass_time(int64_t now_ns) {
  static int64_t ahead_ns;
  static uint32_t ended;
  if (!of_process || of_process->rank != 0)
    return now_ns;
  atomic_fetch_add(&watched->looks, 1);
  if (hec_rank_turns(of_process) != ended)
    ahead_ns += stop_signal ? 0 : (int64_t)(0.9e9 * limit_s);
  ended = hec_rank_turns(of_process);
  if (atomic_load(&watched->stops))
    ahead_ns += (int64_t)(0.25e9 * limit_s);
  return now_ns + ahead_ns;
}

static void compute_long(hec_rank *rank, const hec_place *place) {
  of_process = rank;
  if (place->role != (stop_signal ? HEC_ROLE_ATTENTION : HEC_ROLE_COUNTS))
    return;
  while (rank->rank == 0 && stop_signal && atomic_load(&rank->world->turn->holder) == 0)
    (void)sched_yield();
  for (int32_t i = 0; rank->rank == 1 && i < TURNS && hec_rank_take_turn(rank) == HEC_OK; i++) {
    if (stop_signal) {
      atomic_store(&watched->stops, true);
      (void)raise(stop_signal);
    }
    for (int looks = atomic_load(&watched->looks); atomic_load(&watched->looks) < looks + 2;)
      (void)sched_yield();
    hec_rank_end_turn(rank);
  }
}

HEC_TEST_LOOP(long_turns, 2) {
  uint64_t seed = 1077;
  hec_replay_wish wish = {.ranks = 2, .steps = 1, .micro_batches = 1, .layers = 1, .forward = true};
  hec_replay_case *c = hec_replay_random(&arena, &seed, wish);
  hec_replay_launch launch = {.policy = "ep", .limit_s = limit_s};
  c->replay.virtual_time = true;
  stop_signal = _i == 0 ? 0 : SIGSTOP;
  watched = hec_test_shared_page();
  hec_rank_place_hook = compute_long;
  hec_rank_clock_hook = pass_time;
  if (_i == 0)
    hec_replay_expect(c, launch);
  else
    expect_failure(c, launch, "for rank 1 in ");
}

/* ---- Devices ---- */

static void break_one(hec_rank *rank, hec_processor *on) {
  if (rank->rank == 1)
    hec_queued_cpu_break(on, "out of order");
}

HEC_TEST(a_device_that_fails_is_named) {
  uint64_t seed = 7677;
  hec_replay_case *c = hec_replay_random(&arena, &seed, (hec_replay_wish){.ranks = 3, .steps = 1});
  hec_replay_launch launch = {.device_seed = 1, .device = break_one, .policy = "hecate", .limit_s = limit_s};
  expect_failure(c, launch, "the device failed: out of order");
  ck_assert_msg(strstr(hec_last_error(), "rank 1, in ") != NULL, "%s", hec_last_error());
}

/* Streams of which one call is another. */
static _Thread_local const hec_streams *honest;
static _Thread_local hec_streams changed;
static hec_streams *change(hec_processor *on) {
  if (on->streams != &changed) {
    honest = on->streams;
    changed = *honest;
    on->streams = &changed;
  }
  return &changed;
}

/* A processor keeps what it gave of the host's memory, so executors must not ask for more and more. */
static atomic_int n_asked;
static void *count_memory(hec_processor *on, size_t bytes) {
  n_asked++;
  return honest->host_memory(on, bytes);
}
static void watch_memory(hec_rank *rank, hec_processor *on) {
  (void)rank;
  change(on)->host_memory = count_memory;
}

HEC_TEST(memory_of_the_host_is_taken_once) {
  uint64_t seed = 7707;
  hec_replay_case *c = hec_replay_random(&arena, &seed, (hec_replay_wish){.ranks = 1, .steps = 1});
  hec_replay_expect(c, (hec_replay_launch){.device_seed = seed, .device = watch_memory});
  ck_assert_int_eq(n_asked, 1);
}

/* Only where a policy may bring the assignments of all sources together is there room for that, in every layer. */
HEC_TEST(room_is_for_the_assignments_of_one_source) {
  uint64_t seed = 7717;
  hec_replay_case *c = hec_replay_random(&arena, &seed, (hec_replay_wish){.ranks = 8, .steps = 1});
  size_t one = hec_replay_bytes(&c->replay, hec_policy_find("ep"));
  ck_assert_uint_lt(one, hec_replay_bytes(&c->replay, hec_policy_find("ep-balanced")));
}

static int32_t skipped; /* every how many-th wait of a rank is left out */
static _Thread_local int32_t n_waits;
static void after_sometimes(hec_processor *on, const hec_event *event) {
  if (n_waits++ % skipped != 0)
    honest->after(on, event);
}
static void leave_waits_out(hec_rank *rank, hec_processor *on) {
  (void)rank;
  change(on)->after = after_sometimes;
}

HEC_TEST_LOOP(missing_waits_are_noticed, 3) {
  int32_t n_noticed = 0, n = 6;
  skipped = 1 + 2 * _i;
  for (int32_t i = 0; i < n; i++) {
    uint64_t seed = 7777 + (uint64_t)i;
    hec_replay_wish wish = {.ranks = 3, .steps = 1, .micro_batches = 1};
    hec_replay_case *c = hec_replay_random(&arena, &seed, wish);
    /* With wrong counts ranks may wait for each other for ever, which is noticed too. On a busy machine all the more. */
    hec_replay_launch launch = {.device_seed = seed, .device = leave_waits_out, .policy = "hecate", .limit_s = 2};
    n_noticed += hec_replay_all(c, launch) != HEC_OK;
  }
  ck_assert_msg(n_noticed >= n / 2, "noticed %d of %d", n_noticed, n);
}
