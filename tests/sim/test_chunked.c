/* Schedules that cut a layer's tokens into chunks, in the simulator: on balanced loads the layer takes what the formula of
 * degree.h says. So cutting without latency never costs. Chunks of a few tokens add up. Tutel tries each degree once
 * per key and keeps the one that a simulation of all of them finds. tutel-improved and lina never let an all-reduce
 * meet tokens. */
#include "runtime/plan/planners/degree.h"
#include "runtime/program/chunked.h"
#include "runtime/program/lowering_state.h"
#include "sim/simulate.h"
#include "tests/sim/sim_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

/* ---- Schedules of a fixed degree, and nothing else ---- */

#define EACH_DEGREE(X) X(1) X(2) X(4) X(8) X(HEC_DEGREE_MAX)
#define FROM_GATE(degree)                                                                                              \
  static void at_##degree(hec_lowering *low, int32_t l) {                                                              \
    hec_chunked_from_gate(low, l, degree);                                                                             \
  }
#define FIXED(degree)                                                                                                  \
  {.name = "at " #degree,                                                                                              \
   .to_gate = hec_emit_to_gate,                                                                                        \
   .from_gate = at_##degree,                                                                                           \
   .backward = hec_chunked_backward,                                                                                   \
   .end = hec_chunked_end},
EACH_DEGREE(FROM_GATE)
static const hec_schedule fixed[] = {EACH_DEGREE(FIXED)};

static hec_lowering *lower(const hec_problem *p, const char *policy, const hec_schedule *schedule, hec_load load,
                           int32_t times) {
  hec_lowering *low = hec_lowering_new(p, hec_policy_find(policy), schedule, NULL, &arena);
  for (int32_t i = 0; i < times; i++)
    hec_lower_iteration(low, i, &load, 1, 1);
  hec_program_check(hec_lowering_program(low));
  return low;
}

static double seconds_of(const hec_problem *p, const char *policy, const hec_schedule *schedule, hec_load load) {
  HEC_OPENED(hec_lowering) *low = lower(p, policy, schedule, load, 1);
  double s = hec_test_seconds(p, hec_lowering_program(low));
  return s;
}

static int32_t degree_of(const hec_lowering *low, int32_t layer) {
  return low->layer[layer].degree;
}

/* ---- Time ---- */

/* No latency, no launch, tiles of one row; every cell's rows divide by 16, so chunks are alike. */
static hec_problem *smooth(uint64_t *seed, bool train) {
  char line[200];
  (void)snprintf(line, sizeof line,
                 "1x4 nvlink=%dM@0s flops=%dG mem=40G a=0s c=0s launch=0s tile=1 plan=0s@0s hbm=900000G",
                 1 + (int)hec_test_below(seed, 400), 1 + (int)hec_test_below(seed, 40));
  hec_problem *p = hec_test_problem(&arena, line, 4, 1 + (int32_t)hec_test_below(seed, 3), 8, 2, train);
  p->tokens = 8 * 160 / 2;
  return p;
}

HEC_TEST_LOOP(balanced_takes_what_the_formula_says, 20) {
  uint64_t seed = 11 + (uint64_t)_i;
  hec_problem *p = smooth(&seed, false);
  hec_load load = hec_test_equal_load(p, 160, &arena);
  double whole_s = seconds_of(p, "ep", &fixed[0], load), saved_before = 0;
  ck_assert_double_eq_tol(whole_s, seconds_of(p, "ep", hec_schedule_find("serial"), load), 1e-11);
  hec_chunk_time whole = hec_degree_balanced(p, 1, false, &arena);
  for (int32_t i = 0; i < HEC_N_DEGREES; i++) {
    int32_t r = hec_degrees[i];
    hec_chunk_time chunk = hec_degree_balanced(p, r, false, &arena);
    double saved = whole_s - seconds_of(p, "ep", &fixed[i], load);
    double wanted = p->n_layers * (hec_degree_s(1, whole) - hec_degree_s(r, chunk));
    ck_assert_msg(saved >= wanted - 1e-10 && saved <= wanted + 1e-10, "degree %d saves %.12g s, formula %.12g s", r,
                  saved, wanted);
    ck_assert_double_ge(saved, saved_before - 1e-10);
    saved_before = saved;
  }
  double chosen_s = seconds_of(p, "ep", hec_schedule_find("pipemoe"), load);
  ck_assert_double_le(chosen_s, whole_s + 1e-11);
  ck_assert_double_eq_tol(chosen_s, whole_s - saved_before, 1e-10); /* the most that any degree saves */
}

/* Latency: every further chunk costs, and pipemoe takes what is best of both passes together. */
HEC_TEST_LOOP(pipemoe_is_the_best_degree_on_balanced_loads, 20) {
  uint64_t seed = 211 + (uint64_t)_i;
  char line[200];
  (void)snprintf(
      line, sizeof line, "1x4 nvlink=%dM@%dus flops=%dG mem=40G a=0s c=0s launch=0s tile=1 plan=0s@0s hbm=900000G",
      1 + (int)hec_test_below(&seed, 400), (int)hec_test_below(&seed, 3000), 1 + (int)hec_test_below(&seed, 40));
  hec_problem *p = hec_test_problem(&arena, line, 4, 2, 8, 2, true);
  p->tokens = 8 * 160 / 2;
  hec_load load = hec_test_equal_load(p, 160, &arena);
  double best_s = 1e9;
  for (int32_t i = 0; i < HEC_N_DEGREES; i++) {
    double s = seconds_of(p, "ep", &fixed[i], load);
    best_s = s < best_s ? s : best_s;
  }
  ck_assert_double_eq_tol(seconds_of(p, "ep", hec_schedule_find("pipemoe"), load), best_s, 1e-10);
}

/* ---- Chunks ---- */

/* Three tokens in many chunks: each is in one of them, and nothing else is. */
HEC_TEST(three_tokens) {
  hec_problem *p = hec_test_problem(&arena, "2x2 nvlink=10G@2us nic=1G@5us flops=10T mem=40G", 4, 2, 4, 1, true);
  hec_load load = hec_test_equal_load(p, 0, &arena);
  for (int32_t l = 0; l < 2; l++)
    for (int32_t s = 0; s < 3; s++)
      hec_load_row(&load, l, s)[(s + 1) % 4] = 1;
  for (size_t i = 1; i < sizeof fixed / sizeof *fixed; i++) {
    HEC_OPENED(hec_lowering) *low = lower(p, "ep", &fixed[i], load, 1);
    const hec_program *program = hec_lowering_program(low);
    int64_t rows = 0, bytes = 0;
    int32_t n_experts = 0;
    for (size_t k = 0; k < program->n_ops; k++) {
      const hec_op *op = &program->ops[k];
      n_experts += op->role == HEC_ROLE_EXPERTS && !op->backward;
      for (int32_t r = 0; op->role == HEC_ROLE_EXPERTS && r < 4; r++)
        for (int32_t e = 0; e < 4; e++) {
          int32_t w = program->work_index[op->compute.work_at + r],
                  last = program->work_index[op->compute.work_at + r + 1];
          for (; w < last; w++)
            rows += program->work[w].item == e ? program->work[w].rows : 0;
        }
      bytes += op->role == HEC_ROLE_DISPATCH || op->role == HEC_ROLE_COMBINE ? (int64_t)op->bytes : 0;
    }
    ck_assert_int_eq(n_experts, 2 * degree_of(low, 0));
    ck_assert_int_eq(rows, 2 * 2 * 3);
    ck_assert_int_eq(bytes, 2 * 4 * 3 * (int64_t)p->bytes.token);
    (void)hec_test_end_ps(p, program, &hec_law_max_min, (hec_sim_options){0}); /* checks the timeline */
  }
}

/* Chunks of a cell differ by one row, and those of many small cells are about equally full, whichever comes first. */
HEC_TEST(small_cells_spread_over_the_chunks) {
  hec_problem *p = hec_test_problem(&arena, "1x8 nvlink=10G@2us flops=10T mem=40G", 8, 1, 32, 2, false);
  hec_load load = hec_test_equal_load(p, 3, &arena);
  HEC_OPENED(hec_lowering) *low = hec_lowering_new(p, hec_policy_find("ep"), &fixed[3], NULL, &arena);
  hec_lowering_detail(low); /* with cells */
  hec_lower_iteration(low, 0, &load, 1, 1);
  const hec_program *program = hec_lowering_program(low);
  const hec_layer_ops *ops = &low->layer[0];
  int32_t n = ops->in->n_cells / 8, all = 3 * 8 * 32;
  for (int32_t c = 0; c < 8; c++) {
    int32_t sum = 0;
    for (int32_t i = 0; i < n; i++) {
      int32_t rows = program->cells[ops->in->cell_at + c * n + i].rows;
      ck_assert(rows == 0 || rows == 1);
      sum += rows;
    }
    ck_assert_int_le(sum, all / 8 * 11 / 10);
    ck_assert_int_ge(sum, all / 8 * 9 / 10);
  }
}

/* ---- Tutel ---- */

HEC_TEST_LOOP(tutel_tries_each_degree_once_and_keeps_the_best, 10) {
  uint64_t seed = 411 + (uint64_t)_i;
  hec_problem *p = smooth(&seed, _i % 2 == 1);
  hec_load load = hec_test_equal_load(p, 160, &arena), other = hec_test_equal_load(p, 16 * 40, &arena);
  HEC_OPENED(hec_lowering) *low = hec_lowering_new(p, hec_policy_find("ep"), hec_schedule_find("tutel"), NULL, &arena);
  for (int32_t round = 0; round < 2; round++) { /* another capacity is another key, and is tried afresh */
    const hec_load *now = round ? &other : &load;
    double best_s = 1e9;
    int32_t tried = 0;
    for (int32_t i = 0; i < HEC_N_DEGREES; i++) {
      hec_lower_iteration(low, i, now, 1, 1);
      for (int32_t l = 0; l < p->n_layers; l++)
        ck_assert_int_eq(degree_of(low, l), degree_of(low, 0));
      ck_assert_int_eq(tried & degree_of(low, 0), 0);
      tried |= degree_of(low, 0);
      double s = seconds_of(p, "ep", &fixed[i], *now);
      best_s = s < best_s ? s : best_s;
    }
    ck_assert_int_eq(tried, 1 | 2 | 4 | 8);
    hec_lower_iteration(low, 9, now, 1, 1);
    ck_assert_double_eq_tol(hec_test_seconds(p, hec_lowering_program(low)), best_s, 1e-10);
  }
  hec_lower_iteration(low, 10, &load, 1, 1); /* remembered */
  HEC_OPENED(hec_lowering) *again = lower(p, "ep", hec_schedule_find("tutel"), load, HEC_N_DEGREES + 1);
  ck_assert_int_eq(degree_of(low, 0), degree_of(again, 0));
}

/* ---- All-reduce where no tokens travel ---- */

static bool of_tokens(hec_role role) {
  return role == HEC_ROLE_DISPATCH || role == HEC_ROLE_COMBINE || role == HEC_ROLE_EXPERTS ||
         role == HEC_ROLE_DISPATCH_INSIDE || role == HEC_ROLE_COMBINE_INSIDE;
}

/* No dense all-reduce meets tokens or their experts on any rank; returns how many there are. */
static int32_t check_apart(const hec_program *program, const hec_timeline *t) {
  size_t n_ranks = (size_t)program->n_ranks;
  int32_t n = 0;
  for (size_t a = 0; a < program->n_ops; a++) {
    if (program->ops[a].role != HEC_ROLE_DENSE_REDUCE)
      continue;
    n++;
    for (size_t k = 0; k < program->n_ops; k++)
      for (size_t r = 0; of_tokens(program->ops[k].role) && r < n_ranks; r++)
        ck_assert(t->begin_ps[k * n_ranks + r] < 0 || t->end_ps[k * n_ranks + r] <= t->begin_ps[a * n_ranks + r] ||
                  t->begin_ps[k * n_ranks + r] >= t->end_ps[a * n_ranks + r]);
  }
  return n;
}

static bool has_rest(const hec_problem *p) {
  return p->bytes.dense_grad > p->n_layers * hec_moe_block_params(p->moe) * p->moe->grad_bytes;
}

HEC_TEST_LOOP(improved_reduces_beside_the_dense_part_only, 10) {
  uint64_t seed = 611 + (uint64_t)_i;
  const hec_law *law = _i % 2 ? &hec_law_alpha_beta : &hec_law_max_min;
  hec_problem *p = hec_test_problem(&arena, "2x2 nvlink=10G@2us nic=1G@5us flops=10T mem=40G", 4, 4, 8, 2, true);
  hec_load load = hec_test_random_load(&arena, p, &seed);
  HEC_OPENED(hec_lowering) *low = lower(p, "ep", hec_schedule_find("tutel-improved"), load, 1 + _i % 5);
  HEC_SCOPED(hec_timeline) t = hec_test_simulate(p, hec_lowering_program(low), law, (hec_sim_options){0});
  ck_assert_int_eq(check_apart(hec_lowering_program(low), &t), p->n_layers + has_rest(p));
  HEC_OPENED(hec_lowering) *plain = lower(p, "ep", hec_schedule_find("tutel"), load, 1 + _i % 5);
  HEC_SCOPED(hec_timeline) later = hec_test_simulate(p, hec_lowering_program(plain), law, (hec_sim_options){0});
  ck_assert_int_lt(hec_timeline_end_ps(&t), hec_timeline_end_ps(&later));
}

/* ---- Lina ---- */

/* Blocks of about 4 * 1600^2 * 4 bytes = 41 MB and more; 4-byte gradients. */
static hec_problem *heavy(uint64_t *seed, int32_t d) {
  hec_moe *moe = HEC_NEW(&arena, hec_moe, 1);
  hec_cluster *cluster = HEC_NEW(&arena, hec_cluster, 1);
  hec_problem *p = HEC_NEW(&arena, hec_problem, 1);
  char line[160];
  *moe = *hec_test_problem(&arena, "2x2 nvlink=10G nic=1G flops=10T mem=40G", 4, 5, 8, 2, true)->moe;
  moe->d_model = d;
  moe->n_heads = moe->n_kv_heads = d / 64;
  moe->d_head = 64;
  moe->grad_bytes = 4;
  (void)snprintf(line, sizeof line, "2x2 nvlink=%dG@2us nic=%dG@5us flops=%dT mem=40G",
                 20 + (int)hec_test_below(seed, 200), 1 + (int)hec_test_below(seed, 40),
                 1 + (int)hec_test_below(seed, 20));
  ck_ok(hec_cluster_parse_line(line, &arena, cluster));
  ck_ok(hec_problem_make(moe, cluster, true, 4, 4096, p));
  return p;
}

/* Pieces of one layer's gradients follow each other, are at most 30 MB and add up. Beside gate' and attention' of a layer
 * stand as many as begin there while some are left, counted again from the cost laws. */
HEC_TEST_LOOP(lina_sends_pieces_where_no_tokens_are_pending, 20) {
  uint64_t seed = 811 + (uint64_t)_i;
  hec_problem *p = heavy(&seed, 1024 + 64 * (int32_t)hec_test_below(&seed, 32));
  HEC_OPENED(hec_lowering) *low = lower(p, "ep", hec_schedule_find("lina"), hec_test_random_load(&arena, p, &seed), 2);
  const hec_program *program = hec_lowering_program(low);
  HEC_SCOPED(hec_timeline) t =
      hec_test_simulate(p, program, _i % 2 ? &hec_law_alpha_beta : &hec_law_max_min, (hec_sim_options){0});
  double block = hec_moe_block_params(p->moe) * 4, sum = 0, window_s = 0;
  int32_t n_pieces = (int32_t)((block + 30e6 - 1) / 30e6), here = 0, left = 0, next = 0;
  int64_t first_byte = 0;
  ck_assert_int_eq(check_apart(program, &t), p->n_layers * n_pieces + has_rest(p));
  double piece_s = hec_link_cost_allreduce(p->cluster, 4, block / n_pieces);
  for (int i = 0; i < 2; i++) {
    hec_work_shape shape = hec_work_backward_of(p->moe, i ? hec_work_gate(p->moe) : hec_work_attention(p->moe));
    window_s += hec_work_s(&p->cluster->devices[0], &shape, p->tokens);
  }
  for (size_t k = 0; k < program->n_ops; k++) {
    const hec_op *op = &program->ops[k];
    if (op->role == HEC_ROLE_DENSE_REDUCE && op->layer >= 0) {
      ck_assert_int_eq(op->layer, p->n_layers - 1 - next / n_pieces);
      first_byte = next % n_pieces == 0 ? 0 : first_byte;
      ck_assert_int_eq(op->allreduce.first_byte, first_byte);
      first_byte += (int64_t)op->bytes;
      ck_assert(op->bytes <= 30e6 && op->bytes > 0);
      sum += op->bytes;
      here++, next++;
    }
    if (op->role != HEC_ROLE_ATTENTION || !op->backward)
      continue;
    int32_t begin = 0;
    for (double used_s = 0; begin < left && used_s < window_s; used_s += piece_s)
      begin++;
    ck_assert_int_eq(here, begin);
    left += n_pieces - here; /* this layer's own are ready now */
    here = 0;
  }
  ck_assert_double_eq_tol(sum, p->n_layers * block, 1);
}

/* Chunks: as many as the busiest source has 30 MB, at most 16. */
HEC_TEST(lina_cuts_tokens_into_micro_operations) {
  uint64_t seed = 911;
  hec_problem *p = heavy(&seed, 1024); /* rows of 2 KB */
  ck_assert(p->bytes.token == 2048);
  static const struct {
    uint32_t rows;
    int32_t degree;
  } cases[] = {{0, 1}, {1, 1}, {14648, 1}, {14649, 2}, {29296, 2}, {29297, 3}, {146484, 10}, {400000, 16}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hec_load load = hec_test_equal_load(p, 0, &arena);
    for (int32_t l = 0; l < p->n_layers; l++)
      hec_load_row(&load, l, 2)[l] = cases[i].rows;
    HEC_OPENED(hec_lowering) *low = lower(p, "ep", hec_schedule_find("lina"), load, 1);
    ck_assert_int_eq(degree_of(low, 1), cases[i].degree);
  }
}
