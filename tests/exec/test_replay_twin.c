/* What is executed in expert-sharding groups beside what would be simulated: the same programs, the same bytes. And beside
 * itself over another transport: the same sums. */
#include "tests/exec/replay_case.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <stdatomic.h>
#include <string.h>

HEC_TEST_ONCE(hec_math_open)
HEC_TEST_ARENA(arena)

/* Bytes sent by kind of operation; the role of a rank is that of the operation it last published. */
static _Atomic int64_t sent[HEC_N_ROLES];
static _Thread_local int32_t role = -1;
static void note_role(hec_rank *rank, const hec_place *place) {
  (void)rank;
  role = place->role;
}

static hec_status counting_start(hec_rank *rank, hec_post *post) {
  for (int32_t i = 0; role >= 0 && post->lane != HEC_CHANNEL_CONTROL && i < post->n_sends; i++)
    atomic_fetch_add(&sent[role], post->sends[i].bytes);
  role = -1; /* the second half of an all-reduce starts later */
  return hec_transport_shm.start(rank, post);
}

typedef struct {
  hec_lowering *low; /* as hecate-sim lowers it, without detail */
  hec_replay_case *c;
  int64_t n_inside;
} twin;

static void compare_with_twin(void *context, const hec_replayed *iteration) {
  twin *t = context;
  const hec_program *executed = hec_lowering_program(iteration->low), *simulated;
  double ordinary[HEC_N_TRAFFIC], one_off[HEC_N_TRAFFIC], found[HEC_N_TRAFFIC] = {0};
  hec_lower_iteration(t->low, iteration->step->iter, iteration->step->loads, iteration->step->n_loads,
                      t->c->replay.n_micro_batches);
  simulated = hec_lowering_program(t->low);
  hec_timeline_check(iteration->timeline, executed);
  ck_assert_uint_eq(hec_program_digest(simulated), hec_program_digest(executed));
  hec_program_traffic(simulated, ordinary, one_off);
  for (int32_t r = 0; r < HEC_N_ROLES; r++)
    if (hec_role_traffic[r] != HEC_TRAFFIC_NONE)
      found[hec_role_traffic[r]] += (double)atomic_load(&sent[r]);
  ck_assert_double_eq(found[HEC_TRAFFIC_DISPATCH], ordinary[HEC_TRAFFIC_DISPATCH]);
  ck_assert_double_eq(found[HEC_TRAFFIC_COMBINE], ordinary[HEC_TRAFFIC_COMBINE]);
  t->n_inside += atomic_load(&sent[HEC_ROLE_SHARD_GATHER]);
  for (int32_t r = 0; r < HEC_N_ROLES; r++)
    atomic_store(&sent[r], 0);
}

HEC_TEST_LOOP(programs_and_bytes_are_the_simulators, 6) {
  uint64_t seed = 12677 + (uint64_t)_i;
  hec_replay_wish wish = {.ranks = 4, .esp = _i % 3 == 2 ? 4 : 2, .steps = 3, .layers = 2};
  hec_replay_case *c = hec_replay_random(&arena, &seed, wish);
  hec_transport counting = hec_transport_shm;
  counting.start = counting_start;
  hec_rank_place_hook = note_role;
  c->replay.measured = compare_with_twin;
  c->replay.virtual_time = _i % 2;
  int64_t n_inside = 0;
  for (int32_t s = 0; hec_schedules[s]; s++) {
    if (hec_schedules[s]->bound)
      continue;
    twin t = {.c = c};
    t.low = hec_lowering_new(&c->problem, hec_policy_find("ep"), hec_schedules[s], NULL, &arena);
    c->replay.context = &t;
    hec_replay_expect(c,
                      (hec_replay_launch){
                          .threads = true, .transport = &counting, .policy = "ep", .schedule = hec_schedules[s]->name});
    n_inside += t.n_inside;
    hec_lowering_free(t.low);
  }
  ck_assert_int_gt(n_inside, 0);
}

/* Parts are added in the order of ranks, on arrival or from staging: the same bits, so the same error. */
HEC_TEST_LOOP(sums_are_the_same_over_all_transports, hec_test_cases(8)) {
  uint64_t seed = 12977 + (uint64_t)_i;
  hec_replay_wish wish = {.ranks = 4, .esp = 4, .steps = 2, .micro_batches = 1};
  hec_replay_case *c = hec_replay_random(&arena, &seed, wish);
  hec_replay_check first, again;
  hec_replay_launch launch = {.threads = true, .policy = "ep", .schedule = "fsmoe", .result = &first};
  hec_replay_expect(c, launch);
  launch.result = &again;
  for (int32_t t = 0; hec_transports[t]; t++) {
    launch.transport = hec_transports[t];
    hec_replay_expect(c, launch);
    ck_assert_msg(again.worst == first.worst && strcmp(again.worst_at, first.worst_at) == 0,
                  "%s: %.17g at %s, not %.17g at %s", hec_transports[t]->name, again.worst, again.worst_at, first.worst,
                  first.worst_at);
  }
}
