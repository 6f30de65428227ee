/* Parts of a model. Shards of all members are the expert, each number once and where the definition has it. What they
 * make of rows adds up to what the expert makes of them, forward and backward. Parts of tensor parallelism are the
 * block. */
#include "runtime/exec/model/dense_part.h"
#include "runtime/exec/model/expert_shard.h"
#include "tests/exec/replay_case.h"
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

HEC_TEST_ONCE(hec_math_open)
HEC_TEST_ARENA(arena)

static hec_model model_of(uint64_t *seed, int32_t of, bool exact) {
  hec_moe moe;
  hec_model model;
  ck_assert_int_eq(hec_moe_load("tiny", &moe), HEC_OK);
  moe.d_model = 4 + (int32_t)hec_test_below(seed, 9);
  moe.d_ffn = of * (1 + (int32_t)hec_test_below(seed, 6));
  moe.n_ffn_matrices = exact ? 2 : 2 + (int32_t)hec_test_below(seed, 2);
  moe.n_layers = moe.n_moe_layers = 1;
  ck_assert_msg(hec_model_make(&moe, exact, *seed, &model) == HEC_OK, "%s", hec_last_error());
  return model;
}

/* By the definition: member m has columns m w .. of the matrices [d, f], and those rows of the last one [f, d]. */
static float defined(const hec_moe *moe, int32_t of, int32_t member, int64_t at, const float *whole) {
  int32_t d = moe->d_model, f = moe->d_ffn, w = f / of;
  int64_t k = at / (d * w), i = at % (d * w);
  if (k < moe->n_ffn_matrices - 1)
    return whole[(k * d + i / w) * f + member * w + i % w];
  return whole[k * d * f + (member * w + i / d) * d + i % d];
}

HEC_TEST_LOOP(shards_are_the_expert, 30) {
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
    for (int64_t i = 0; i < n; i++)
      ck_assert(shard[i] == defined(&model.moe, of, member, i, whole));
  }
  for (int64_t i = 0; i < size; i++)
    ck_assert_int_eq(seen[i], 1);
}

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
HEC_TEST_LOOP(shards_add_up, 60) {
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

/* By the definition: head h of all has columns h dh .. of Wq, those of its keys in Wk and Wv, rows h dh .. of Wo. */
HEC_TEST_LOOP(parts_are_the_block, 6) {
  uint64_t seed = 22777 + (uint64_t)_i;
  int32_t mp = _i % 3 == 2 ? 4 : 2;
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
