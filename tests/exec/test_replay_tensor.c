/* Tensor parallelism executed: every policy under every schedule against the dense reference, in random and exact mode, with
 * and without shards of experts, over transports that add and that do not, on devices. That parts put together are the block
 * is computed here again; rows that one member does not get are noticed. */
#include "runtime/exec/model/dense_part.h"
#include "runtime/exec/runner.h"
#include "tests/exec/replay_case.h"
#include "tests/support/check_main.h"
#include "tests/support/random_problem.h"

#include <string.h>

static hec_arena arena;
static void setup(void) {
  hec_math_open();
}
static void teardown(void) {
  hec_rank_place_hook = NULL;
  hec_arena_free(&arena);
}

static void expect(hec_replay_case *c, hec_replay_launch launch) {
  if (hec_replay_all(c, launch) != HEC_OK)
    ck_abort_msg("%s\n%s", hec_last_error(), c->line);
}

static int32_t mp_of(int32_t i) {
  return i % 3 == 2 ? 4 : 2;
}

START_TEST(random_mode) {
  uint64_t seed = 21031 + (uint64_t)_i;
  expect(hec_replay_random(&arena, &seed, (hec_replay_wish){.mp = mp_of(_i)}),
         (hec_replay_launch){.turn = 1 + _i, .threads = _i % 4 == 0});
}
END_TEST

START_TEST(exact_mode) {
  uint64_t seed = 21531 + (uint64_t)_i;
  expect(hec_replay_random(&arena, &seed, (hec_replay_wish){.mp = mp_of(_i), .exact = true}),
         (hec_replay_launch){.turn = 1 + _i, .threads = _i % 4 == 0});
}
END_TEST

START_TEST(pipelined) {
  uint64_t seed = 22031 + (uint64_t)_i;
  hec_replay_wish wish = {.mp = mp_of(_i), .micro_batches = 2, .exact = _i % 3 == 1, .forward = _i % 5 == 4};
  expect(hec_replay_random(&arena, &seed, wish), (hec_replay_launch){.pipelined = true, .policy = "ep"});
}
END_TEST

/* FSMoE's groups: the same ranks share the dense part and the experts. */
START_TEST(with_shards) {
  uint64_t seed = 22231 + (uint64_t)_i;
  hec_replay_wish wish = {.mp = mp_of(_i), .esp = mp_of(_i), .exact = _i % 3 == 1};
  expect(hec_replay_random(&arena, &seed, wish), (hec_replay_launch){.turn = 1 + _i});
  expect(hec_replay_random(&arena, &seed, wish), (hec_replay_launch){.schedule = "fsmoe"});
}
END_TEST

START_TEST(forward_only) {
  uint64_t seed = 22277 + (uint64_t)_i;
  expect(hec_replay_random(&arena, &seed, (hec_replay_wish){.mp = mp_of(_i), .forward = true}),
         (hec_replay_launch){.turn = 1 + _i});
}
END_TEST

/* The second has no adding receive: parts are added from staging. */
START_TEST(other_transports) {
  static const hec_transport *const rows[] = {&hec_transport_emulated, &hec_transport_paced};
  uint64_t seed = 22477 + (uint64_t)_i;
  hec_replay_wish wish = {.ranks = 4, .mp = mp_of(_i), .exact = _i % 4 > 1, .steps = 2};
  expect(hec_replay_random(&arena, &seed, wish),
         (hec_replay_launch){.transport = rows[_i % 2], .turn = 1 + _i, .policy = _i % 3 ? "ep" : "hecate"});
}
END_TEST

START_TEST(on_devices) {
  uint64_t seed = 22577 + (uint64_t)_i;
  hec_replay_wish wish = {
      .mp = mp_of(_i), .exact = _i % 4 == 3, .steps = 2, .micro_batches = 2, .forward = _i % 7 == 6};
  expect(hec_replay_random(&arena, &seed, wish),
         (hec_replay_launch){.device_seed = seed, .staged = _i % 2, .turn = 1 + _i, .policy = _i % 2 ? "ep" : NULL});
}
END_TEST

/* By the definition: head h of all has columns h dh .. of Wq, those of its keys in Wk and Wv, rows h dh .. of Wo. */
START_TEST(parts_are_the_block) {
  uint64_t seed = 22777 + (uint64_t)_i;
  int32_t mp = mp_of(_i);
  hec_replay_case *c = hec_replay_random(&arena, &seed, (hec_replay_wish){.mp = mp});
  const hec_moe *moe = &c->moe;
  hec_model cut = hec_model_of_parts(&c->model, mp);
  hec_block_layout at = hec_model_block(&c->model), of = hec_model_block(&cut);
  int32_t d = moe->d_model, q = moe->n_heads * moe->d_head, kv = moe->n_kv_heads * moe->d_head;
  float *whole = HEC_NEW(&arena, float, at.size), *part = HEC_NEW(&arena, float, of.size);
  uint8_t *seen = HEC_NEW(&arena, uint8_t, at.size);
  for (int64_t i = 0; i < at.size; i++)
    whole[i] = (float)i;
  for (int32_t m = 0; m < mp; m++) {
    hec_dense_part own = {&c->model, m, mp};
    hec_dense_part_take(&own, whole, part);
    for (int32_t i = 0; i < d; i++) {
      for (int32_t j = 0; j < q / mp; j++) {
        ck_assert(part[of.q + i * (q / mp) + j] == whole[at.q + i * q + m * (q / mp) + j]);
        ck_assert(part[of.o + j * d + i] == whole[at.o + (m * (q / mp) + j) * d + i]);
      }
      for (int32_t j = 0; j < kv / mp; j++) {
        ck_assert(part[of.k + i * (kv / mp) + j] == whole[at.k + i * kv + m * (kv / mp) + j]);
        ck_assert(part[of.v + i * (kv / mp) + j] == whole[at.v + i * kv + m * (kv / mp) + j]);
      }
    }
    for (int64_t i = of.norm1; i < of.size; i++)
      ck_assert(part[i] == whole[at.norm1 + i - of.norm1]);
    ck_assert(of.norm1 * 4 == (int64_t)hec_problem_cut_gradients(&c->problem, 0)); /* what is cut comes first */
    for (int32_t i = 0; i < hec_dense_part_runs(&own); i++)
      for (int64_t k = 0; k < hec_dense_part_run(&own, i).n; k++)
        seen[hec_dense_part_run(&own, i).whole + k]++;
  }
  for (int64_t i = 0; i < at.size; i++)
    ck_assert_int_eq(seen[i], i < at.norm1 ? 1 : mp);
}
END_TEST

/* ---- Faults ---- */

/* Rank 1 does not get what another one sent in an operation: what stood there before stands there after. */
typedef struct {
  hec_role role;
  bool backward;
} fault;
static fault wanted;
static bool striking;
static hec_post *struck;
static float kept[1 << 16];

static void aim(hec_rank *rank, const hec_place *place) {
  striking = rank->rank == 1 && place->role == (int32_t)wanted.role && place->backward == wanted.backward;
}

static hec_status leaky_start(hec_rank *rank, hec_post *post) {
  if (striking && !struck && post->n_receives > 0) {
    const hec_segment *segment = &post->receives[0].segments[0];
    struck = post;
    ck_assert(segment->bytes <= (int64_t)sizeof kept && post->receives[0].n_segments == 1);
    memcpy(kept, segment->at, (size_t)segment->bytes);
  }
  striking = false;
  return hec_transport_shm.start(rank, post);
}

static hec_status leaky_test(hec_rank *rank, hec_post *post, bool *done) {
  HEC_TRY(hec_transport_shm.test(rank, post, done));
  if (*done && post == struck)
    memcpy(post->receives[0].segments[0].at, kept, (size_t)post->receives[0].segments[0].bytes);
  return HEC_OK;
}

START_TEST(rows_left_out_are_noticed) {
  static const fault faults[] = {{HEC_ROLE_TENSOR_GATHER, false},
                                 {HEC_ROLE_TENSOR_GATHER, true},
                                 {HEC_ROLE_TENSOR_SCATTER, false},
                                 {HEC_ROLE_TENSOR_SCATTER, true}};
  uint64_t seed = 22877 + (uint64_t)(_i / 4);
  bool exact = _i / 8 % 2 && _i % 4 < 2; /* the few nonzeros of exact mode may leave a partial sum 0 */
  hec_replay_wish wish = {.ranks = 4, .mp = _i / 4 % 2 ? 4 : 2, .steps = 1, .micro_batches = 1, .exact = exact};
  hec_replay_case *c = hec_replay_random(&arena, &seed, wish);
  hec_transport leaky = hec_transport_shm;
  wanted = faults[_i % 4];
  hec_rank_place_hook = aim;
  expect(c, (hec_replay_launch){.policy = "ep"});
  leaky.start = leaky_start;
  leaky.test = leaky_test;
  ck_assert_int_eq(hec_replay_all(c, (hec_replay_launch){.transport = &leaky, .policy = "ep"}), HEC_FAILED);
  ck_assert_msg(strstr(hec_last_error(), "tolerance") != NULL, "%s", hec_last_error());
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("replay of tensor parallelism");
  TCase *c = tcase_create("replay");
  tcase_set_timeout(c, 120);
  tcase_add_unchecked_fixture(c, setup, NULL);
  tcase_add_checked_fixture(c, NULL, teardown);
  tcase_add_loop_test(c, random_mode, 0, hec_test_cases(20));
  tcase_add_loop_test(c, exact_mode, 0, hec_test_cases(20));
  tcase_add_loop_test(c, pipelined, 0, hec_test_cases(8));
  tcase_add_loop_test(c, with_shards, 0, hec_test_cases(8));
  tcase_add_loop_test(c, forward_only, 0, hec_test_cases(8));
  tcase_add_loop_test(c, other_transports, 0, hec_test_cases(8));
  tcase_add_loop_test(c, on_devices, 0, hec_test_cases(8));
  tcase_add_loop_test(c, parts_are_the_block, 0, 6);
  tcase_add_loop_test(c, rows_left_out_are_noticed, 0, 16);
  suite_add_tcase(s, c);
  return s;
}

HEC_TEST_MAIN(suite)
