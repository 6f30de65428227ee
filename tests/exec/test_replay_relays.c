/* Rows over relays, executed by real ranks against the dense reference: Tutel tries 2DH with every degree, so with eight
 * micro-batches all of its programs run, forward and backward, under policies without copies and with: on whole nodes and
 * partly used ones, in random and exact mode, over every transport, on devices, in virtual time. */
#include "runtime/plan/planners/degree.h"
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

static const struct {
  const char *line;
  int32_t ranks;
} clusters[] = {{"3x3 nvlink=100G@1us nic=12G@5us flops=100T mem=32G", 8}, /* of two sources for two destinations */
                {"2x2 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 4},
                {"2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 8},
                {"2x4 nvlink=10G@2us nic=1G@5us flops=100T mem=40G", 6}, /* the last node partly used */
                {"3x2 nvlink=100G@1us nic=12G@5us flops=100T mem=32G", 6},
                {"4x2 nvlink=100G@1us nic=12G@5us flops=100T mem=32G", 7},
                {"2x3 nvlink=100G@1us nic=12G@5us flops=100T mem=32G", 4}};
enum { CLUSTERS = sizeof clusters / sizeof *clusters };
static const char *const policies[] = {"ep", "hecate", "eplb", "fastermoe", "llep", "laer", "ultraep", "flexmoe"};
enum { POLICIES = sizeof policies / sizeof *policies };

static hec_replay_case *random_case(uint64_t *seed, int32_t i, hec_replay_wish wish) {
  wish.ranks = clusters[i % CLUSTERS].ranks;
  wish.micro_batches = 2 * HEC_N_DEGREES;
  hec_replay_case *c = hec_replay_random(&arena, seed, wish);
  hec_problem old = c->problem;
  if (hec_cluster_load(clusters[i % CLUSTERS].line, &arena, &c->cluster) != HEC_OK ||
      hec_problem_make(&c->moe, &c->cluster, old.train, old.n_ranks, old.tokens, &c->problem) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  hec_problem_choose_as(&c->problem, &old);
  (void)snprintf(c->line + strlen(c->line), sizeof c->line - strlen(c->line), "; on %s", clusters[i % CLUSTERS].line);
  return c;
}

/* Alignments of programs that were executed: rows rested. */
static int32_t n_aligned;
static void verify(void *context, const hec_replayed *iteration) {
  const hec_program *program = hec_lowering_program(iteration->low);
  (void)context;
  hec_program_check(program);
  hec_timeline_check(iteration->timeline, program);
  for (size_t i = 0; i < program->n_ops; i++)
    n_aligned += program->ops[i].role == HEC_ROLE_ALIGN && program->ops[i].bytes_at >= 0;
}

/* Threads tell this process what they did. */
static void expect(hec_replay_case *c, hec_replay_launch launch, int32_t policy, const char *schedule) {
  launch.policy = policies[policy % POLICIES];
  launch.schedule = schedule;
  c->replay.measured = launch.threads || launch.device_seed ? verify : NULL;
  if (hec_replay_all(c, launch) != HEC_OK)
    ck_abort_msg("%s: %s\n%s", launch.policy, hec_last_error(), c->line);
}

/* Of further problems (HECATE_TEST_CASES) not each needs one. */
static void expect_relays(int32_t policy) {
  ck_assert_msg(n_aligned > 0 || policy >= POLICIES, "%s: no row had a relay", policies[policy % POLICIES]);
}

START_TEST(random_mode) {
  for (int32_t k = 0; k < CLUSTERS; k++) {
    uint64_t seed = 12031 + (uint64_t)(_i * CLUSTERS + k);
    expect(random_case(&seed, k, (hec_replay_wish){.steps = 1}), (hec_replay_launch){.threads = k % 3 < 2}, _i,
           "tutel");
  }
  expect_relays(_i);
}
END_TEST

START_TEST(exact_mode) {
  for (int32_t k = 0; k < CLUSTERS; k++) {
    uint64_t seed = 12531 + (uint64_t)(_i * CLUSTERS + k);
    expect(random_case(&seed, k, (hec_replay_wish){.exact = true}), (hec_replay_launch){.threads = k % 3 > 0}, _i,
           "tutel");
  }
  expect_relays(_i);
}
END_TEST

START_TEST(improved_and_forward_only) {
  uint64_t seed = 12877 + (uint64_t)_i;
  expect(random_case(&seed, _i, (hec_replay_wish){.steps = 1, .forward = _i % 2}), (hec_replay_launch){.threads = true},
         _i, "tutel-improved");
}
END_TEST

START_TEST(other_transports) {
  static const hec_transport *const rows[] = {&hec_transport_emulated, &hec_transport_paced};
  uint64_t seed = 12977 + (uint64_t)_i;
  hec_replay_wish wish = {.exact = _i % 2, .steps = 1};
  expect(random_case(&seed, _i, wish), (hec_replay_launch){.transport = rows[_i % 2]}, 3 * _i, "tutel");
}
END_TEST

START_TEST(on_devices) {
  for (int32_t k = 0; k < 4; k++) {
    uint64_t seed = 13077 + (uint64_t)(4 * _i + k);
    hec_replay_wish wish = {.exact = k % 2, .steps = 1, .forward = k == 2};
    expect(random_case(&seed, _i + k, wish), (hec_replay_launch){.device_seed = seed, .staged = k == 3}, _i, "tutel");
  }
  expect_relays(_i);
}
END_TEST

START_TEST(virtual_time) {
  uint64_t seed = 13177 + (uint64_t)_i;
  hec_replay_case *c = random_case(&seed, _i, (hec_replay_wish){.steps = 1});
  c->replay.virtual_time = true;
  expect(c, (hec_replay_launch){.threads = true}, _i, "tutel");
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("replay over relays");
  TCase *c = tcase_create("replay");
  tcase_set_timeout(c, 120);
  tcase_add_unchecked_fixture(c, setup, NULL);
  tcase_add_checked_fixture(c, NULL, teardown);
  tcase_add_loop_test(c, random_mode, 0, hec_test_cases(POLICIES));
  tcase_add_loop_test(c, exact_mode, 0, hec_test_cases(POLICIES));
  tcase_add_loop_test(c, improved_and_forward_only, 0, hec_test_cases(12));
  tcase_add_loop_test(c, other_transports, 0, hec_test_cases(12));
  tcase_add_loop_test(c, on_devices, 0, hec_test_cases(POLICIES));
  tcase_add_loop_test(c, virtual_time, 0, hec_test_cases(6));
  suite_add_tcase(s, c);
  return s;
}

HEC_TEST_MAIN(suite)
