/* Expert-sharding groups executed: policies that suit them under every schedule against the dense reference, in random and
 * exact mode, over transports that add and that do not, on devices, in virtual time. That shards put together are the expert
 * is computed here again; programs and bytes are the simulator's; rows that one member does not get are noticed. */
#include "runtime/exec/runner.h"
#include "tests/exec/replay_case.h"
#include "tests/support/check_main.h"
#include "tests/support/random_problem.h"

#include <stdatomic.h>
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

static int32_t esp_of(int32_t i) {
  return i % 3 == 2 ? 4 : 2;
}

START_TEST(random_mode) {
  uint64_t seed = 11031 + (uint64_t)_i;
  expect(hec_replay_random(&arena, &seed, (hec_replay_wish){.esp = esp_of(_i)}),
         (hec_replay_launch){.turn = 1 + _i, .threads = _i % 4 == 0});
}
END_TEST

START_TEST(exact_mode) {
  uint64_t seed = 11531 + (uint64_t)_i;
  expect(hec_replay_random(&arena, &seed, (hec_replay_wish){.esp = esp_of(_i), .exact = true}),
         (hec_replay_launch){.turn = 1 + _i, .threads = _i % 4 == 0});
}
END_TEST

/* Four micro-batches: Tutel tries every degree. */
START_TEST(pipelined) {
  uint64_t seed = 12031 + (uint64_t)_i;
  hec_replay_wish wish = {.esp = esp_of(_i), .micro_batches = 4, .exact = _i % 3 == 1, .forward = _i % 5 == 4};
  expect(hec_replay_random(&arena, &seed, wish), (hec_replay_launch){.pipelined = true});
}
END_TEST

START_TEST(forward_only) {
  uint64_t seed = 12277 + (uint64_t)_i;
  expect(hec_replay_random(&arena, &seed, (hec_replay_wish){.esp = esp_of(_i), .forward = true}),
         (hec_replay_launch){.turn = 1 + _i});
}
END_TEST

/* The second has no adding receive: parts are added from staging. */
START_TEST(other_transports) {
  static const hec_transport *const rows[] = {&hec_transport_emulated, &hec_transport_paced};
  uint64_t seed = 12477 + (uint64_t)_i;
  hec_replay_wish wish = {.ranks = 4, .esp = esp_of(_i), .exact = _i % 4 > 1, .steps = 2};
  expect(hec_replay_random(&arena, &seed, wish),
         (hec_replay_launch){.transport = rows[_i % 2], .turn = 1 + _i, .pipelined = _i % 3 == 0});
}
END_TEST

START_TEST(on_devices) {
  uint64_t seed = 12577 + (uint64_t)_i;
  hec_replay_wish wish = {
      .esp = esp_of(_i), .exact = _i % 4 == 3, .steps = 2, .micro_batches = 2, .forward = _i % 7 == 6};
  expect(hec_replay_random(&arena, &seed, wish),
         (hec_replay_launch){.device_seed = seed, .staged = _i % 2, .turn = 1 + _i, .pipelined = _i % 4 == 0});
}
END_TEST

/* ---- What the simulator would have run ---- */

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

static void with_twin(int32_t i, bool virtual_time) {
  uint64_t seed = 12677 + (uint64_t)i;
  hec_replay_case *c =
      hec_replay_random(&arena, &seed, (hec_replay_wish){.ranks = 4, .esp = esp_of(i), .steps = 3, .layers = 2});
  hec_transport counting = hec_transport_shm;
  counting.start = counting_start;
  hec_rank_place_hook = note_role;
  c->replay.measured = compare_with_twin;
  c->replay.virtual_time = virtual_time;
  int64_t n_inside = 0;
  for (int32_t s = 0; hec_schedules[s]; s++) {
    if (hec_schedules[s]->bound)
      continue;
    twin t = {.c = c};
    t.low = hec_lowering_new(&c->problem, hec_policy_find("ep"), hec_schedules[s], NULL, &arena);
    c->replay.context = &t;
    expect(c, (hec_replay_launch){
                  .threads = true, .transport = &counting, .policy = "ep", .schedule = hec_schedules[s]->name});
    n_inside += t.n_inside;
    hec_lowering_free(t.low);
  }
  ck_assert_int_gt(n_inside, 0);
}

START_TEST(programs_and_bytes_are_the_simulators) {
  with_twin(_i, _i % 2);
}
END_TEST

/* ---- Shards put together ---- */

enum { N_ARRAYS = 4 };
static float *together[N_ARRAYS]; /* [layer][expert][expert size] */

/* By the definition: member m has columns m w .. of the matrices [d, f], and those rows of the last one [f, d]. */
static void put_together(const hec_moe *moe, int32_t esp, int32_t member, const float *shard, float *whole) {
  int32_t d = moe->d_model, f = moe->d_ffn, w = f / esp, last = moe->n_ffn_matrices - 1;
  for (int32_t k = 0; k < last; k++)
    for (int32_t i = 0; i < d; i++)
      for (int32_t j = 0; j < w; j++)
        whole[(k * d + i) * f + member * w + j] = shard[(k * d + i) * w + j];
  for (int32_t j = 0; j < w; j++)
    for (int32_t i = 0; i < d; i++)
      whole[last * d * f + (member * w + j) * d + i] = shard[last * d * w + j * d + i];
}

static void put_rank(hec_exec *exec, const hec_plan *plan, const hec_moe *moe, int64_t size) {
  const hec_problem *p = hec_exec_problem(exec);
  int32_t rank = hec_exec_rank(exec), member = rank % p->esp;
  for (int32_t l = 0; l < p->n_layers; l++)
    for (int32_t e = 0; e < p->n_experts; e++) {
      int32_t row = l * p->n_experts + e;
      ck_assert(hec_store_has(hec_exec_store(exec), row, 0) == (hec_plan_home(plan, l, e) == rank - member));
      if (!hec_store_has(hec_exec_store(exec), row, 0))
        continue;
      hec_store_part at = hec_store_at(hec_exec_store(exec), row, 0);
      ck_assert_int_eq(at.n * p->esp, size);
      const float *const of[N_ARRAYS] = {at.params, at.grads, at.first, at.second};
      for (int32_t a = 0; a < N_ARRAYS; a++)
        put_together(moe, p->esp, member, of[a], together[a] + row * size);
    }
}

typedef struct {
  hec_replay_case *c;
  int32_t n_steps;
} stepping;

static hec_status load_of(hec_runner *r, int32_t micro_batch, int32_t layer, const hec_load **load) {
  (void)layer;
  *load = &r->loads[micro_batch];
  return HEC_OK;
}

/* A replay as its driver runs it, but what is kept can be looked at. */
static hec_status steps(hec_rank *rank, void *context) {
  const stepping *s = context;
  hec_replay_case *c = s->c;
  hec_runner r = {.options = {.problem = &c->problem,
                              .model = &c->model,
                              .n_micro_batches = c->replay.n_micro_batches,
                              .assigned = c->problem.tokens * c->problem.top_k,
                              .schedule = "fsmoe",
                              .keep_grads = true},
                  .rank = rank,
                  .load_of = load_of};
  HEC_TRY(hec_runner_open(&r, hec_policy_find("ep")));
  for (int32_t i = 0; i < s->n_steps; i++) {
    for (int32_t mb = 0; mb < c->replay.n_micro_batches; mb++) {
      hec_load_copy(&c->replay.steps[i].loads[mb], &r.loads[mb]);
      hec_model_input(&c->model, i + 1, mb, rank->rank, c->problem.tokens, hec_work_stream(&r.work, r.work.x, mb));
      hec_model_output_gradient(&c->model, i + 1, mb, rank->rank, c->problem.tokens,
                                hec_work_stream(&r.work, r.work.dx, mb));
    }
    r.work.loads = r.loads;
    r.work.step = i + 1;
    hec_work_zero_grads(&r.work, r.exec);
    HEC_TRY(hec_runner_iterate(&r, i));
  }
  put_rank(r.exec, &hec_lowering_run(r.low)->plan, &c->moe, hec_model_expert_size(&c->model));
  hec_runner_close(&r);
  return HEC_OK;
}

static void run_steps(hec_replay_case *c, int32_t n_steps, const hec_transport *transport) {
  stepping s = {c, n_steps};
  int64_t n = (int64_t)c->problem.n_layers * c->problem.n_experts * hec_model_expert_size(&c->model);
  for (int32_t a = 0; a < N_ARRAYS; a++) {
    together[a] = HEC_NEW(&arena, float, n);
    for (int64_t i = 0; i < n; i++)
      together[a][i] = -7777; /* nobody's */
  }
  hec_launch_options options = {.n_ranks = c->problem.n_ranks,
                                .threads = true,
                                .transport = transport,
                                .cluster = &c->cluster,
                                .memory_bytes = hec_replay_bytes(&c->replay, hec_policy_find("ep")),
                                .limit_s = 30};
  if (hec_launch(&options, steps, &s) != HEC_OK)
    ck_abort_msg("%s\n%s", hec_last_error(), c->line);
}

START_TEST(shards_are_the_expert) {
  uint64_t seed = 12777 + (uint64_t)_i;
  hec_replay_case *c = hec_replay_random(
      &arena, &seed, (hec_replay_wish){.ranks = 4, .esp = esp_of(_i), .exact = _i % 2, .steps = 2, .micro_batches = 2});
  int64_t size = hec_model_expert_size(&c->model);
  float *initial = HEC_NEW(&arena, float, size);
  run_steps(c, 0, &hec_transport_shm);
  for (int32_t row = 0; row < c->problem.n_layers * c->problem.n_experts; row++) {
    hec_model_init_expert(&c->model, row / c->problem.n_experts, row % c->problem.n_experts, initial);
    ck_assert(memcmp(initial, together[0] + row * size, (size_t)size * sizeof *initial) == 0);
  }
  run_steps(c, c->replay.n_steps, &hec_transport_shm);
  hec_reference *reference = hec_reference_new(&c->model, 4, c->problem.tokens, true);
  for (int32_t i = 0; i < c->replay.n_steps; i++)
    hec_reference_step(reference, i + 1, c->replay.steps[i].loads, c->replay.n_micro_batches);
  ck_assert_int_le(hec_reference_bits(reference), 24); /* partial sums over shards are exact, too */
  double tolerance = c->model.exact ? 0 : hec_reference_tolerance(reference, c->replay.n_steps);
  for (int32_t row = 0; row < c->problem.n_layers * c->problem.n_experts; row++) {
    hec_reference_state state = hec_reference_expert(reference, row / c->problem.n_experts, row % c->problem.n_experts);
    const float *const of[N_ARRAYS] = {state.params, state.grads, state.first, state.second};
    for (int32_t a = 0; a < N_ARRAYS; a++) {
      double error = hec_relative_error(together[a] + row * size, of[a], size);
      ck_assert_msg(error <= tolerance, "array %d of row %d: %g, not %g: %s", a, row, error, tolerance, c->line);
    }
  }
  hec_reference_free(reference);
}
END_TEST

/* Parts are added in the order of ranks, on arrival or from staging: the same bits. */
START_TEST(sums_are_the_same_over_all_transports) {
  uint64_t seed = 12977 + (uint64_t)_i;
  hec_replay_case *c =
      hec_replay_random(&arena, &seed, (hec_replay_wish){.ranks = 4, .esp = 4, .steps = 2, .micro_batches = 1});
  int64_t n = (int64_t)c->problem.n_layers * c->problem.n_experts * hec_model_expert_size(&c->model);
  float *first[N_ARRAYS];
  run_steps(c, c->replay.n_steps, &hec_transport_shm);
  memcpy(first, together, sizeof first);
  run_steps(c, c->replay.n_steps, &hec_transport_paced);
  for (int32_t a = 0; a < N_ARRAYS; a++)
    ck_assert(memcmp(first[a], together[a], (size_t)n * sizeof(float)) == 0);
}
END_TEST

/* ---- Faults ---- */

/* One member does not get what another one sent in an operation: what stood there before stands there after. */
typedef struct {
  hec_role role;
  bool backward;
} fault;
static fault wanted;
static bool striking; /* of the process: the rank's last published operation is the wanted one, on the victim */
static hec_post *struck;
static float kept[1 << 16];

static void aim(hec_rank *rank, const hec_place *place) {
  striking = rank->rank == 1 && place->role == (int32_t)wanted.role && place->backward == wanted.backward;
}

static hec_status striking_start(const hec_transport *on, hec_rank *rank, hec_post *post) {
  if (striking && !struck && post->n_receives > 0) {
    char *to = (char *)kept;
    struck = post;
    for (int32_t i = 0; i < post->receives[0].n_segments; i++) {
      const hec_segment *segment = &post->receives[0].segments[i];
      ck_assert(to + segment->bytes <= (char *)kept + sizeof kept);
      memcpy(to, segment->at, (size_t)segment->bytes);
      to += segment->bytes;
    }
  }
  striking = false;
  return on->start(rank, post);
}

static hec_status striking_test(const hec_transport *on, hec_rank *rank, hec_post *post, bool *done) {
  HEC_TRY(on->test(rank, post, done));
  const char *from = (const char *)kept;
  for (int32_t i = 0; *done && post == struck && i < post->receives[0].n_segments; i++) {
    const hec_segment *segment = &post->receives[0].segments[i];
    memcpy(segment->at, from, (size_t)segment->bytes);
    from += segment->bytes;
  }
  return HEC_OK;
}

static hec_status shm_start(hec_rank *rank, hec_post *post) {
  return striking_start(&hec_transport_shm, rank, post);
}
static hec_status shm_test(hec_rank *rank, hec_post *post, bool *done) {
  return striking_test(&hec_transport_shm, rank, post, done);
}
static hec_status paced_start(hec_rank *rank, hec_post *post) {
  return striking_start(&hec_transport_paced, rank, post);
}
static hec_status paced_test(hec_rank *rank, hec_post *post, bool *done) {
  return striking_test(&hec_transport_paced, rank, post, done);
}

START_TEST(rows_left_out_are_noticed) {
  static const fault faults[] = {{HEC_ROLE_SHARD_GATHER, false},
                                 {HEC_ROLE_SHARD_GATHER, true},
                                 {HEC_ROLE_SHARD_SCATTER, false},
                                 {HEC_ROLE_SHARD_SCATTER, true}};
  uint64_t seed = 12901 + (uint64_t)(_i / 4); /* with which no row left out is one of zeros, as exact ones may be */
  hec_replay_wish wish = {.ranks = 4, .esp = _i / 4 % 2 ? 4 : 2, .steps = 1, .micro_batches = 1, .exact = _i / 8 % 2};
  hec_replay_case *c = hec_replay_random(&arena, &seed, wish);
  hec_transport leaky = _i / 16 ? hec_transport_paced : hec_transport_shm;
  for (int32_t l = 0; l < c->problem.n_layers; l++) /* every rank has tokens for every expert */
    for (int32_t s = 0; s < 4; s++)
      for (int32_t e = 0; e < c->problem.n_experts; e++)
        hec_load_row(&c->replay.steps[0].loads[0], l, s)[e] = 2;
  wanted = faults[_i % 4];
  hec_rank_place_hook = aim;
  expect(c, (hec_replay_launch){.transport = _i / 16 ? &hec_transport_paced : &hec_transport_shm, .policy = "ep"});
  leaky.start = _i / 16 ? paced_start : shm_start;
  leaky.test = _i / 16 ? paced_test : shm_test;
  ck_assert_int_eq(hec_replay_all(c, (hec_replay_launch){.transport = &leaky, .policy = "ep"}), HEC_FAILED);
  ck_assert_msg(strstr(hec_last_error(), "tolerance") != NULL, "%s", hec_last_error());
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("replay of shards");
  TCase *c = tcase_create("replay");
  tcase_set_timeout(c, 120);
  tcase_add_unchecked_fixture(c, setup, NULL);
  tcase_add_checked_fixture(c, NULL, teardown);
  tcase_add_loop_test(c, random_mode, 0, hec_test_cases(32));
  tcase_add_loop_test(c, exact_mode, 0, hec_test_cases(32));
  tcase_add_loop_test(c, pipelined, 0, hec_test_cases(16));
  tcase_add_loop_test(c, forward_only, 0, hec_test_cases(8));
  tcase_add_loop_test(c, other_transports, 0, hec_test_cases(8));
  tcase_add_loop_test(c, on_devices, 0, hec_test_cases(16));
  tcase_add_loop_test(c, programs_and_bytes_are_the_simulators, 0, 6);
  tcase_add_loop_test(c, shards_are_the_expert, 0, hec_test_cases(8));
  tcase_add_loop_test(c, sums_are_the_same_over_all_transports, 0, hec_test_cases(8));
  tcase_add_loop_test(c, rows_left_out_are_noticed, 0, 32);
  suite_add_tcase(s, c);
  return s;
}

HEC_TEST_MAIN(suite)
