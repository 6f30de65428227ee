/* A rank killed, stopped or cut off in every phase of an iteration. The launch ends within its limit, names the rank, the
 * layer and the operation, and leaves no process. Which phases there are is found out by a first, healthy run. */
#include "tests/exec/launch_case.h"
#include "tests/exec/replay_case.h"
#include "tests/support/test.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

HEC_TEST_ARENA(arena)

enum { VICTIM = 1, PHASES = HEC_N_ROLES + 2, PLANNING = HEC_N_ROLES, CHECKING };

/* Shared with the ranks: phases that were seen; where to strike, -1: nowhere. */
typedef struct {
  _Atomic int seen[2][PHASES]; /* forward, backward */
  int phase, backward;
  int signal; /* 0: cut the sockets */
} plan;
static plan *page;

static int phase_of(const hec_place *place) {
  if (place->role >= 0)
    return place->role;
  return strcmp(place->phase, "planning") == 0 ? PLANNING : CHECKING;
}

static void cut(void) {
  for (int fd = 3; fd < 1024; fd++)
    (void)shutdown(fd, SHUT_RDWR); /* only sockets can be shut down */
}

static void hook(hec_rank *rank, const hec_place *place) {
  int phase = phase_of(place);
  if (page->signal == SIGSTOP && rank->rank != VICTIM)
    hec_test_lets_time_pass(rank);
  atomic_store(&page->seen[place->backward][phase], 1);
  if (rank->rank != VICTIM || phase != page->phase || place->backward != (page->backward != 0) ||
      place->iteration == 10)
    return;
  if (page->signal == SIGSTOP)
    hec_test_stop();
  else if (page->signal)
    (void)raise(page->signal);
  else
    cut();
}

static void setup(void) {
  hec_math_open();
  page = hec_test_shared_page();
  hec_rank_place_hook = hook;
}
HEC_TEST_FIXTURE(setup, NULL)
static int32_t esp; /* experts in shards; 0: whole */

/* Four ranks on two nodes, copies, re-sharding every iteration: every kind of operation comes up. */
static hec_replay_case *make(void) {
  uint64_t seed = 4711;
  hec_replay_case *c;
  do { /* until the shape has what is wanted */
    hec_arena_free(&arena);
    c = hec_replay_random(&arena, &seed,
                          (hec_replay_wish){.ranks = 4, .steps = 3, .micro_batches = 1, .top_k = 2, .esp = esp});
  } while (c->problem.n_experts < 8 || c->problem.n_layers < 2 || c->moe.n_shared_experts == 0);
  c->problem.period = 1;
  c->problem.t = 3;
  c->problem.m = 3;
  return c;
}

static void find_phases(const char *policy) {
  *page = (plan){.phase = -1};
  hec_replay_expect(make(), (hec_replay_launch){.policy = policy});
  hec_test_no_child_is_left();
}

/* The message names the victim, and the place where it is an operation. */
static void expect_named(const char *text, int phase, int backward) {
  ck_assert_msg(strstr(text, "rank 1") != NULL, "phase %d, backward %d: %s", phase, backward, text);
  if (phase < HEC_N_ROLES) {
    ck_assert_msg(strstr(text, hec_role_name[phase]) != NULL, "phase %s: %s", hec_role_name[phase], text);
    ck_assert_msg(strstr(text, "operation") != NULL, "%s", text);
  }
}

static int strike_everywhere(const char *policy) {
  int n = 0;
  plan found;
  find_phases(policy);
  memcpy(&found, page, sizeof found);
  for (int backward = 0; backward < 2; backward++)
    for (int phase = 0; phase < PHASES; phase++) {
      if (!found.seen[backward][phase] || (phase == CHECKING && backward))
        continue;
      *page = (plan){.phase = phase, .backward = backward, .signal = SIGKILL};
      hec_status status = hec_replay_all(make(), (hec_replay_launch){.policy = policy, .limit_s = HEC_TEST_FOREVER_S});
      ck_assert_msg(status == HEC_FAILED, "phase %d, backward %d: not noticed", phase, backward);
      expect_named(hec_last_error(), phase, backward);
      hec_test_no_child_is_left();
      n++;
    }
  return n;
}

HEC_TEST(killed) {
  static const char *const policies[] = {"hecate", "hecate-rm", "flexmoe", "fsdp"};
  int n = 0;
  for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
    n += strike_everywhere(policies[p]);
  ck_assert_int_ge(n,
                   60); /* all roles but those of dense blocks, embedding and head; both directions; planning, checks */
}

HEC_TEST(killed_in_a_group) {
  esp = 2;
  find_phases("ep");
  for (int backward = 0; backward < 2; backward++) {
    ck_assert(page->seen[backward][HEC_ROLE_SHARD_GATHER]);
    ck_assert(page->seen[backward][HEC_ROLE_SHARD_SCATTER]);
  }
  ck_assert_int_ge(strike_everywhere("ep"), 15);
  esp = 0;
}

HEC_TEST(stopped) {
  static const int phases[] = {HEC_ROLE_DISPATCH, HEC_ROLE_EXPERTS, HEC_ROLE_GATHER, HEC_ROLE_OPTIMIZER};
  for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
    *page = (plan){.phase = phases[i], .backward = phases[i] == HEC_ROLE_OPTIMIZER, .signal = SIGSTOP};
    hec_test_miss(VICTIM, true, false);
    hec_status status = hec_replay_all(make(), (hec_replay_launch){.policy = "hecate", .limit_s = HEC_TEST_PASSING_S});
    ck_assert_int_eq(status, HEC_FAILED);
    expect_named(hec_last_error(), phases[i], 0);
    hec_test_no_child_is_left();
  }
}

HEC_TEST(cut_off) {
  static const int phases[] = {HEC_ROLE_DISPATCH, HEC_ROLE_GATHER, HEC_ROLE_EXPERTS};
  for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
    *page = (plan){.phase = phases[i]};
    hec_replay_launch launch = {.policy = "hecate", .limit_s = HEC_TEST_FOREVER_S, .transport = &hec_transport_paced};
    ck_assert_int_eq(hec_replay_all(make(), launch), HEC_FAILED);
    ck_assert_msg(strstr(hec_last_error(), "rank") != NULL && strstr(hec_last_error(), "operation") != NULL, "%s",
                  hec_last_error());
    hec_test_no_child_is_left();
  }
}
