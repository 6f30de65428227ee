/* Rows that travel once per node, executed by real ranks against the dense reference: in random and exact mode, on full and
 * partly used nodes, forward only, over transports that add and that do not, on devices, in virtual time; where they stand,
 * against a count of every assignment. Machines have links so slow, and nothing else that takes time, that most layers
 * choose it. */
#include "runtime/exec/rows/node_rows.h"
#include "runtime/plan/token_sets.h"
#include "tests/exec/replay_case.h"
#include "tests/support/check_main.h"
#include "tests/support/problem_case.h"
#include "tests/support/random_problem.h"

#include <string.h>

static hec_arena arena;
static void setup(void) {
  hec_math_open();
}
static void teardown(void) {
  hec_arena_free(&arena);
}

#define FREE " flops=100T mem=40G a=0s c=0s launch=0s"
static const char *const machines[] = {"2x4 nvlink=300G@0s nic=1M@0s" FREE, "4x2 nvlink=300G@0s nic=1M@0s" FREE,
                                       "3x3 nvlink=300G@0s nic=1M@0s" FREE, "8x1 nvlink=300G@0s nic=1M@0s" FREE};
enum { N_MACHINES = sizeof machines / sizeof *machines };

static const char *policy_of(int32_t i) {
  int32_t n = 0;
  while (hec_policies[n])
    n++;
  return hec_policies[i % n]->name;
}

static int32_t n_by_node, n_plain, n_weighted;
static void verify(void *context, const hec_replayed *iteration) {
  const hec_program *program = hec_lowering_program(iteration->low);
  (void)context;
  hec_program_check(program);
  hec_timeline_check(iteration->timeline, program);
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    n_by_node += op->role == HEC_ROLE_PERMUTE && op->by_node;
    n_plain += op->role == HEC_ROLE_PERMUTE && !op->by_node;
    n_weighted += op->role == HEC_ROLE_NODE_DISPATCH && op->backward;
  }
}

static void expect(hec_replay_case *c, hec_replay_launch launch, int32_t policy) {
  launch.schedule = "hiermoe";
  launch.policy = policy_of(policy);
  if (hec_replay_all(c, launch) != HEC_OK)
    ck_abort_msg("%s: %s\n%s", launch.policy, hec_last_error(), c->line);
}

START_TEST(random_mode) {
  uint64_t seed = 3031 + (uint64_t)_i;
  hec_replay_wish wish = {.machine = machines[_i % N_MACHINES], .ranks = 2 + _i % 7, .top_k = 2 + _i % 5};
  expect(hec_replay_random(&arena, &seed, wish), (hec_replay_launch){0}, _i);
}
END_TEST

START_TEST(exact_mode) {
  uint64_t seed = 3531 + (uint64_t)_i;
  hec_replay_wish wish = {
      .machine = machines[_i % N_MACHINES], .ranks = 3 + _i % 6, .exact = true, .micro_batches = 1 + _i % 3};
  expect(hec_replay_random(&arena, &seed, wish), (hec_replay_launch){.threads = _i % 2}, 3 * _i);
}
END_TEST

START_TEST(forward_only) {
  uint64_t seed = 3877 + (uint64_t)_i;
  hec_replay_wish wish = {.machine = machines[_i % N_MACHINES], .ranks = 8, .forward = true, .top_k = 4};
  expect(hec_replay_random(&arena, &seed, wish), (hec_replay_launch){0}, 5 * _i);
}
END_TEST

START_TEST(other_transports) {
  static const hec_transport *const rows[] = {&hec_transport_emulated, &hec_transport_paced};
  uint64_t seed = 3977 + (uint64_t)_i;
  hec_replay_wish wish = {
      .machine = machines[1 + _i % 3], .ranks = 3 + _i % 3, .exact = _i % 2, .steps = 2, .top_k = 3};
  hec_replay_case *c = hec_replay_random(&arena, &seed, wish);
  expect(c, (hec_replay_launch){.transport = rows[_i % 2]}, 7 * _i);
}
END_TEST

START_TEST(on_devices) {
  uint64_t seed = 4077 + (uint64_t)_i;
  hec_replay_wish wish = {.machine = machines[_i % N_MACHINES],
                          .ranks = 4 + _i % 5,
                          .exact = _i % 3 == 0,
                          .steps = 2,
                          .forward = _i % 7 == 6,
                          .top_k = 2 + _i % 4};
  expect(hec_replay_random(&arena, &seed, wish), (hec_replay_launch){.device_seed = seed, .staged = _i % 2}, 2 * _i);
}
END_TEST

/* Most layers are really executed that way, timelines are whole, memory as predicted (the executor asserts that). */
START_TEST(timelines) {
  n_by_node = n_plain = n_weighted = 0;
  for (int32_t is_virtual = 0; is_virtual < 2; is_virtual++)
    for (int32_t m = 0; m < N_MACHINES; m++) {
      uint64_t seed = 4177 + (uint64_t)m;
      hec_replay_wish wish = {.machine = machines[m], .ranks = 8, .steps = 3, .top_k = 4};
      hec_replay_case *c = hec_replay_random(&arena, &seed, wish);
      c->replay.virtual_time = is_virtual;
      c->replay.measured = verify;
      expect(c, (hec_replay_launch){.threads = true}, 0);
    }
  ck_assert_int_gt(n_by_node, n_plain);
  ck_assert_int_gt(n_weighted, 0);
}
END_TEST

/* ---- Where they stand ---- */

typedef struct {
  int32_t source, token, expert, rank; /* of an assignment */
} one;

/* All assignments of the layer, by source, expert, position: cells cut each expert's list at random. */
static int32_t random_cells(uint64_t *seed, const hec_problem *p, hec_cell *cells, int32_t *n_cells, one *all) {
  int32_t n = 0, first[64], order[64];
  uint32_t counts[64];
  *n_cells = 0;
  for (int32_t s = 0; s < p->n_ranks; s++) {
    bool idle = hec_test_below(seed, 6) == 0;
    for (int32_t e = 0; e < p->n_experts; e++)
      counts[e] = idle ? 0 : (uint32_t)hec_test_below(seed, 2 + hec_test_below(seed, 5) * (uint64_t)p->tokens / 8);
    hec_token_sets(&(hec_token_row){counts, p->n_experts, p->tokens, 3, s}, first, order);
    for (int32_t e = 0; e < p->n_experts; e++)
      for (int32_t r = 0, i = 0; r < p->n_ranks; r++) {
        int32_t left = (int32_t)counts[e] - i;
        int32_t rows =
            r == p->n_ranks - 1 || hec_test_below(seed, 4) == 0 ? (int32_t)hec_test_below(seed, (uint64_t)left + 1) : 0;
        rows = r == p->n_ranks - 1 ? left : rows;
        if (rows == 0)
          continue;
        cells[(*n_cells)++] = (hec_cell){s, r, e, rows};
        for (int32_t k = 0; k < rows; k++, i++)
          all[n++] = (one){s, (first[e] + i) % p->tokens, e, r};
      }
  }
  return n;
}

/* Follows every assignment: its row and its number stand at the same place of both ends' message; what the proxy permutes
 * comes in the order of folded cells. */
START_TEST(every_assignment_followed) {
  uint64_t seed = 4500 + (uint64_t)_i;
  char line[80];
  int32_t nodes = 2 + (int32_t)hec_test_below(&seed, 3), devices = 1 + (int32_t)hec_test_below(&seed, 4);
  (void)snprintf(line, sizeof line, "%dx%d nvlink=300G@0s nic=1G@0s flops=1T mem=40G", nodes, devices);
  int32_t ranks = (nodes - 1) * devices + 1 + (int32_t)hec_test_below(&seed, (uint64_t)devices);
  hec_problem *p = hec_test_problem(&arena, line, ranks, 1, 1 + (int32_t)hec_test_below(&seed, 9), 1, true);
  p->tokens = 1 + (int32_t)hec_test_below(&seed, 24);
  hec_cell *cells = HEC_NEW(&arena, hec_cell, 16 * 16 * 16);
  one *all = HEC_NEW(&arena, one, 16 * 16 * 64);
  int32_t n_cells, n = random_cells(&seed, p, cells, &n_cells, all);
  hec_node_rows rows[16];
  int32_t place[16] = {0}, number[16][16] = {{0}}, own[16] = {0}, others[16] = {0};
  for (int32_t r = 0; r < ranks; r++)
    rows[r] = hec_node_rows_make(&arena, &(hec_node_cells){p, cells, n_cells, 3}, r);
  for (int32_t q = 0; q < ranks; q++)
    for (int32_t s = 0; s < ranks; s++) {
      int32_t sent = rows[s].to.row_at[q + 1] - rows[s].to.row_at[q], with = rows[s].to.number_at[q];
      ck_assert_int_eq(sent, rows[q].from.row_at[s + 1] - rows[q].from.row_at[s]);
      ck_assert_int_eq(rows[s].to.number_at[q + 1] - with, rows[q].from.number_at[s + 1] - rows[q].from.number_at[s]);
      for (int32_t i = rows[s].to.row_at[q] + 1; i < rows[s].to.row_at[q + 1]; i++)
        ck_assert_int_lt(rows[s].token[i - 1], rows[s].token[i]); /* each once */
    }
  for (int32_t e = 0; e < p->n_experts; e++)
    for (int32_t d = 0; d < ranks; d++)
      for (int32_t i = 0, list = 0; i < n; i++) {
        const one *a = &all[i];
        list = i > 0 && all[i - 1].source == a->source ? list + 1 : 0;
        if (a->expert != e || a->rank != d)
          continue;
        int32_t q = hec_proxy_of(p, a->source, hec_problem_node(p, d)), s = a->source;
        const hec_node_list *l = q == s ? &rows[q].own : &rows[q].others;
        int32_t at = q == s ? own[q]++ : others[q]++;
        ck_assert_int_eq(l->place[at], place[q]++);
        if (q == s) {
          ck_assert(l->token[at] == a->token && l->number[at] == list);
          continue;
        }
        int32_t row = l->token[at] - rows[q].from.row_at[s], k = l->number[at] - rows[q].from.number_at[s];
        ck_assert_int_eq(rows[s].token[rows[s].to.row_at[q] + row], a->token);
        ck_assert_int_eq(k, number[s][q]++);
        ck_assert_int_eq(rows[s].number[rows[s].to.number_at[q] + k], list);
      }
  for (int32_t r = 0; r < ranks; r++) {
    ck_assert(rows[r].own.n == own[r] && rows[r].others.n == others[r]);
    ck_assert(rows[r].from.n_rows <= rows[r].from.n_numbers && rows[r].to.n_rows <= rows[r].to.n_numbers);
  }
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("replay by node");
  TCase *c = tcase_create("replay");
  tcase_set_timeout(c, 120);
  tcase_add_unchecked_fixture(c, setup, NULL);
  tcase_add_checked_fixture(c, NULL, teardown);
  tcase_add_loop_test(c, every_assignment_followed, 0, 300);
  tcase_add_loop_test(c, random_mode, 0, hec_test_cases(48));
  tcase_add_loop_test(c, exact_mode, 0, hec_test_cases(32));
  tcase_add_loop_test(c, forward_only, 0, hec_test_cases(8));
  tcase_add_loop_test(c, other_transports, 0, hec_test_cases(8));
  tcase_add_loop_test(c, on_devices, 0, hec_test_cases(24));
  tcase_add_test(c, timelines);
  suite_add_tcase(s, c);
  return s;
}

HEC_TEST_MAIN(suite)
