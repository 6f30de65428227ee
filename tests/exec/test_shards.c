/* What executing expert-sharding groups stands on, piece by piece: the rows of a group stand at the same places on all its
 * members, those of a member together; shards of all members are the expert, each number once; and what they make of rows
 * adds up to what the expert makes of them, forward and backward. */
#include "runtime/exec/model/expert_shard.h"
#include "runtime/exec/rows/rows.h"
#include "tests/support/check_main.h"

#include <math.h>
#include <string.h>

static hec_arena arena;
static void setup(void) {
  hec_math_open();
}
static void teardown(void) {
  hec_arena_free(&arena);
}

/* ---- Rows ---- */

enum { RANKS = 8, EXPERTS = 5, DEGREE = 3, ROWS_MOST = 4 };

/* Of each source to each expert, in the expert's group; those of each chunk any part, now and then nothing. */
static int32_t group_cells(uint64_t *seed, int32_t esp, int32_t degree, hec_cell *cells) {
  int32_t n = 0;
  for (int32_t s = 0; s < RANKS; s++)
    for (int32_t e = 0; e < EXPERTS; e++)
      if (hec_test_below(seed, 4) > 0)
        cells[n++] = (hec_cell){s, e % (RANKS / esp) * esp + s % esp, e, (int32_t)hec_test_below(seed, ROWS_MOST)};
  for (int32_t i = n; i < n * degree; i++) {
    cells[i] = cells[i - n];
    cells[i].rows = (int32_t)hec_test_below(seed, ROWS_MOST);
  }
  return n;
}

/* A number for every row that is computed: chunk, expert, member, source, place in the cell. */
static int32_t number_of(int32_t chunk, const hec_cell *c, int32_t esp, int32_t k) {
  return ((((chunk * EXPERTS + c->expert) * esp + c->rank % esp) * RANKS + c->source) * ROWS_MOST) + k + 1;
}

START_TEST(rows_of_a_group_stand_alike) {
  uint64_t seed = 300 + (uint64_t)_i;
  int32_t esp = 1 << _i % 4, degree = 1 + _i % DEGREE;
  hec_cell cells[RANKS * EXPERTS * DEGREE];
  int32_t n = group_cells(&seed, esp, degree, cells);
  hec_rows_cells of = {cells, n * degree, degree, EXPERTS, RANKS, esp};
  for (int32_t r = 0; r < RANKS; r++) {
    hec_rows rows = hec_rows_make(&arena, &of, r), first = hec_rows_make(&arena, &of, r - r % esp);
    int32_t *at = HEC_NEW(&arena, int32_t, rows.n_computed + 1), before = 0;
    ck_assert_int_eq(rows.n_computed, first.n_computed);
    ck_assert_int_eq(rows.n_computed, rows.shelf_at[degree * EXPERTS * esp]);
    ck_assert(memcmp(rows.shelf_at, first.shelf_at, (size_t)(degree * EXPERTS * esp + 1) * sizeof *rows.shelf_at) == 0);
    /* The group's cells shelf by shelf, by the definition of the shelf. */
    for (int32_t i = 0; i < n * degree; i++)
      for (int32_t k = 0; cells[i].rank / esp == r / esp && k < cells[i].rows; k++) {
        int32_t shelf = (i / n * EXPERTS + cells[i].expert) * esp + cells[i].rank % esp, place = rows.shelf_at[shelf];
        while (place < rows.shelf_at[shelf + 1] && at[place] != 0)
          place++;
        ck_assert_int_lt(place, rows.shelf_at[shelf + 1]);
        at[place] = number_of(i / n, &cells[i], esp, k);
      }
    for (int32_t i = 0; i < rows.n_computed; i++) { /* ascending: by (chunk, expert, member, source) */
      ck_assert_int_gt(at[i], before);
      before = at[i];
    }
    /* Runs that arrive are on the shelves of this member, each source's where its numbers are. */
    int32_t n_arrived = 0;
    for (int32_t slot = 0; slot < degree * RANKS; slot++)
      for (int32_t i = rows.arrive.at[slot]; i < rows.arrive.at[slot + 1]; i++)
        for (int32_t k = 0; k < rows.arrive.run[i].rows; k++, n_arrived++) {
          hec_cell c = {slot % RANKS, r, rows.arrive.run[i].expert, 0};
          ck_assert_int_eq(at[rows.arrive.run[i].first + k], number_of(slot / RANKS, &c, esp, k));
        }
    int32_t n_stay = 0, n_expected = 0;
    for (int32_t j = 0; j < rows.n_assigned; j++)
      n_stay += rows.stays[j] >= 0;
    for (int32_t i = 0; i < n * degree; i++)
      n_expected += cells[i].rank == r ? cells[i].rows : 0;
    ck_assert_int_eq(n_arrived + n_stay, n_expected);
  }
}
END_TEST

/* ---- Shards ---- */

static hec_model model_of(uint64_t *seed, int32_t of, bool exact) {
  hec_moe moe = {.name = "case",
                 .n_layers = 1,
                 .n_moe_layers = 1,
                 .d_model = 4 + (int32_t)hec_test_below(seed, 9),
                 .d_ffn = of * (1 + (int32_t)hec_test_below(seed, 6)),
                 .n_ffn_matrices = exact ? 2 : 2 + (int32_t)hec_test_below(seed, 2),
                 .n_experts = 2,
                 .top_k = 1,
                 .n_heads = 1,
                 .n_kv_heads = 1,
                 .d_head = 4,
                 .seq_len = 4,
                 .tokens_per_rank = 4,
                 .micro_batches = 1,
                 .dtype_bytes = 4,
                 .grad_bytes = 4,
                 .optimizer_bytes = 8,
                 .nonmoe_scale = 1};
  hec_model model;
  if (hec_model_make(&moe, exact, *seed, &model) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  return model;
}

START_TEST(shards_are_the_expert) {
  uint64_t seed = 400 + (uint64_t)_i;
  int32_t of = 1 + _i % 5;
  hec_model model = model_of(&seed, of, false), shards = hec_model_of_shards(&model, of);
  int64_t size = hec_model_expert_size(&model), n = hec_model_expert_size(&shards);
  ck_assert_int_eq(n * of, size);
  float *whole = HEC_NEW(&arena, float, size), *shard = HEC_NEW(&arena, float, n);
  uint8_t *seen = HEC_NEW(&arena, uint8_t, size);
  for (int64_t i = 0; i < size; i++)
    whole[i] = (float)(i + 1);
  for (int32_t member = 0; member < of; member++) {
    const hec_expert_shard s = {&model, member, of};
    int64_t next = 0;
    memset(shard, 0, (size_t)n * sizeof *shard);
    hec_expert_shard_take(&s, whole, shard);
    for (int32_t i = 0; i < hec_expert_shard_runs(&s); i++) { /* one after the other, the whole shard */
      hec_shard_run run = hec_expert_shard_run(&s, i);
      ck_assert_int_eq(run.shard, next);
      next += run.n;
      for (int64_t k = 0; k < run.n; k++) {
        ck_assert(shard[run.shard + k] == whole[run.whole + k]);
        ck_assert_int_eq(seen[run.whole + k]++, 0);
      }
    }
    ck_assert_int_eq(next, n);
  }
  for (int64_t i = 0; i < size; i++)
    ck_assert_int_eq(seen[i], 1);
}
END_TEST

typedef struct {
  float *out, *din, *grads;
} made;

static made make(const hec_model *model, const float *params, int32_t n, const float *in, const float *dout) {
  int32_t d = model->moe.d_model;
  float *inner = HEC_NEW(&arena, float, n * model->moe.n_ffn_matrices * model->moe.d_ffn);
  made m = {.out = HEC_NEW(&arena, float, n *d),
            .din = HEC_NEW(&arena, float, n *d),
            .grads = HEC_NEW(&arena, float, hec_model_expert_size(model))};
  hec_expert_rows rows = {params, m.grads, false, n, in, inner, m.out, m.din};
  hec_experts_forward(&hec_processor_cpu, model, &rows, 1);
  rows.out = HEC_NEW(&arena, float, n *d);
  memcpy(rows.out, dout, (size_t)(n * d) * sizeof *dout);
  hec_experts_backward(&hec_processor_cpu, model, &rows, 1);
  return m;
}

static void same(const float *found, const float *expected, int64_t n, bool exact) {
  for (int64_t i = 0; i < n; i++)
    ck_assert_msg(exact ? found[i] == expected[i] : fabsf(found[i] - expected[i]) <= 1e-5F * (1 + fabsf(expected[i])),
                  "%g, not %g", (double)found[i], (double)expected[i]);
}

/* In exact mode to the last bit: partial sums are exact. */
START_TEST(shards_add_up) {
  uint64_t seed = 500 + (uint64_t)_i;
  bool exact = _i % 2;
  int32_t of = 1 + _i % 5, n = (int32_t)hec_test_below(&seed, 9);
  hec_model model = model_of(&seed, of, exact), shards = hec_model_of_shards(&model, of);
  int32_t d = model.moe.d_model;
  int64_t size = hec_model_expert_size(&shards);
  float *whole = HEC_NEW(&arena, float, size *of), *params = HEC_NEW(&arena, float, size);
  float *grads = HEC_NEW(&arena, float, size), *in = HEC_NEW(&arena, float, n *d), *dout = HEC_NEW(&arena, float, n *d);
  float *out = HEC_NEW(&arena, float, n *d), *din = HEC_NEW(&arena, float, n *d);
  hec_model_init_expert(&model, 0, 1, whole);
  hec_model_input(&model, 1, 0, 0, n, in);
  hec_model_output_gradient(&model, 1, 0, 0, n, dout);
  made expected = make(&model, whole, n, in, dout);
  for (int32_t member = 0; member < of; member++) {
    const hec_expert_shard s = {&model, member, of};
    hec_expert_shard_take(&s, whole, params);
    made found = make(&shards, params, n, in, dout);
    hec_expert_shard_take(&s, expected.grads, grads);
    same(found.grads, grads, size, exact);
    for (int32_t i = 0; i < n * d; i++) {
      out[i] += found.out[i];
      din[i] += found.din[i];
    }
  }
  same(out, expected.out, n * d, exact);
  same(din, expected.din, n * d, exact);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("shards");
  TCase *c = tcase_create("all");
  tcase_set_timeout(c, 60);
  tcase_add_unchecked_fixture(c, setup, NULL);
  tcase_add_checked_fixture(c, NULL, teardown);
  tcase_add_loop_test(c, rows_of_a_group_stand_alike, 0, 60);
  tcase_add_loop_test(c, shards_are_the_expert, 0, 30);
  tcase_add_loop_test(c, shards_add_up, 0, 60);
  suite_add_tcase(s, c);
  return s;
}

HEC_TEST_MAIN(suite)
