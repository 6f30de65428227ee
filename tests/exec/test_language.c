/* Gradients of the whole language model, balance loss included, against central differences of an oracle in double. Of
 * embedding, head, attention, gate, shared and routed experts. The experts chosen and the shares f_e of the balance loss
 * are constants of the derivative, so they are given. */
#include "runtime/exec/model/reference.h"
#include "tests/exec/gate_oracle.h"
#include "tests/exec/model_oracle.h"
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

HEC_TEST_ONCE(hec_math_open)

enum { RANKS = 2, MICRO_BATCHES = 2, SYMBOLS = 11 };

typedef struct {
  hec_model model;
  hec_load loads[MICRO_BATCHES];
  hec_reference_text text;
  hec_reference *reference;
  hec_arena arena;
  int32_t tokens;
  double *ends, *blocks, *experts; /* parameters */
} language_case;

/* k different experts for every token; the list of their tokens by expert. */
static void choose(language_case *c, uint64_t *random, const hec_load *load, int32_t layer, int32_t rank,
                   int32_t *list) {
  int32_t n_experts = c->model.n_experts, n = 0;
  uint32_t *counts = hec_load_row(load, layer, rank);
  bool *chosen = HEC_NEW(&c->arena, bool, c->tokens *n_experts);
  for (int32_t t = 0; t < c->tokens; t++)
    for (int32_t k = 0; k < c->model.top_k;) {
      bool *one = &chosen[t * n_experts + (int32_t)hec_test_below(random, (uint64_t)n_experts)];
      k += !*one;
      *one = true;
    }
  for (int32_t e = 0; e < n_experts; e++)
    for (int32_t t = 0; t < c->tokens; t++)
      if (chosen[t * n_experts + e]) {
        list[n++] = t;
        counts[e]++;
      }
}

static double *doubles(hec_arena *arena, const float *from, int64_t n) {
  double *to = HEC_NEW(arena, double, n);
  for (int64_t i = 0; i < n; i++)
    to[i] = (double)from[i];
  return to;
}

static void make(language_case *c, uint64_t seed, const char *gate) {
  uint64_t random = seed;
  hec_moe moe = hec_oracle_random_model(&random, false).moe;
  *c = (language_case){.tokens = 7};
  ck_assert_int_eq(hec_language_make(&moe, SYMBOLS, 1e-3F, seed, &c->model), HEC_OK);
  c->model = hec_oracle_gated(&c->model, gate);
  int32_t n = c->tokens * c->model.top_k, lists = RANKS * MICRO_BATCHES * c->model.n_blocks;
  int32_t *choices = HEC_NEW(&c->arena, int32_t, n * lists);
  uint8_t *ids = HEC_NEW(&c->arena, uint8_t, 2 * RANKS * MICRO_BATCHES * c->tokens);
  for (int32_t i = 0; i < 2 * RANKS * MICRO_BATCHES * c->tokens; i++)
    ids[i] = (uint8_t)hec_test_below(&random, SYMBOLS);
  for (int32_t mb = 0; mb < MICRO_BATCHES; mb++)
    c->loads[mb] = hec_load_new(&c->arena, c->model.n_blocks, RANKS, c->model.n_experts);
  for (int32_t r = 0; r < RANKS; r++)
    for (int32_t mb = 0; mb < MICRO_BATCHES; mb++)
      for (int32_t l = 0; l < c->model.n_blocks; l++)
        choose(c, &random, &c->loads[mb], l, r, choices + ((r * MICRO_BATCHES + mb) * c->model.n_blocks + l) * n);
  c->text = (hec_reference_text){
      .ids = ids, .next = ids + RANKS * MICRO_BATCHES * c->tokens, .choices = choices, .balance = 0.7F};
  c->reference = hec_reference_new(&c->model, RANKS, c->tokens, true);
  hec_reference_state block = hec_reference_block(c->reference, 0), expert = hec_reference_expert(c->reference, 0, 0);
  hec_reference_state ends = hec_reference_block(c->reference, -1);
  c->ends = doubles(&c->arena, ends.params, ends.n);
  c->blocks = doubles(&c->arena, block.params, block.n * c->model.n_blocks);
  c->experts = doubles(&c->arena, expert.params, expert.n * c->model.n_blocks * c->model.n_experts);
}

/* Cross entropy of one token's output. */
static double token_loss(const language_case *c, const double *x, int32_t next) {
  int32_t d = c->model.moe.d_model;
  const double *head = c->ends + (int64_t)SYMBOLS * d;
  double square = 0, sum = 0, z[SYMBOLS] = {0};
  for (int32_t i = 0; i < d; i++)
    square += x[i] * x[i];
  for (int32_t v = 0; v < SYMBOLS; v++) {
    for (int32_t i = 0; i < d; i++)
      z[v] += x[i] / sqrt(square / d + 1e-6) * head[(int64_t)i * SYMBOLS + v];
    sum += exp(z[v]);
  }
  return log(sum) - z[next];
}

static double pass_loss(const language_case *c, int32_t mb, int32_t rank, double *sums) {
  int32_t d = c->model.moe.d_model, n = c->tokens * c->model.top_k, at = (mb * RANKS + rank) * c->tokens;
  hec_oracle oracle = {.model = &c->model,
                       .blocks = c->blocks,
                       .experts = c->experts,
                       .load = &c->loads[mb],
                       .rank = rank,
                       .tokens = c->tokens,
                       .choices = c->text.choices + (rank * MICRO_BATCHES + mb) * c->model.n_blocks * n,
                       .probability_sums = sums};
  double loss = 0, x[7 * 32];
  ck_assert_int_le(d, 32);
  for (int32_t t = 0; t < c->tokens; t++)
    memcpy(x + t * d, c->ends + c->text.ids[at + t] * d, (size_t)d * sizeof *x);
  hec_oracle_forward(&oracle, x);
  for (int32_t t = 0; t < c->tokens; t++)
    loss += token_loss(c, x + t * d, c->text.next[at + t]);
  return loss;
}

/* coefficient E sum_e f_e p_e, f and p over the tokens of all ranks. */
static double balance_loss(const language_case *c, int32_t mb, const double *sums) {
  double loss = 0, all = (double)RANKS * c->tokens;
  for (int32_t l = 0; l < c->model.n_blocks; l++)
    for (int32_t e = 0; e < c->model.n_experts; e++) {
      double count = 0;
      for (int32_t r = 0; r < RANKS; r++)
        count += hec_load_row(&c->loads[mb], l, r)[e];
      loss += count / (all * c->model.top_k) * (sums[l * c->model.n_experts + e] / all);
    }
  return loss * c->model.n_experts * (double)c->text.balance;
}

static hec_reference_loss loss_of(const language_case *c) {
  hec_reference_loss loss = {0};
  for (int32_t mb = 0; mb < MICRO_BATCHES; mb++) {
    double sums[64] = {0};
    ck_assert_int_le(c->model.n_blocks * c->model.n_experts, 64);
    for (int32_t r = 0; r < RANKS; r++)
      loss.loss += pass_loss(c, mb, r, sums) / (RANKS * MICRO_BATCHES * c->tokens);
    loss.balance += balance_loss(c, mb, sums) / MICRO_BATCHES;
  }
  return loss;
}

/* Elements of a gradient [n] against differences by values [n]. */
static void differ(language_case *c, uint64_t *random, double *values, const float *grads, int64_t n,
                   const char *what) {
  double scale = 0;
  for (int64_t i = 0; i < n; i++)
    scale = fmax(scale, fabs((double)grads[i]));
  for (int32_t k = 0; k < 12; k++) {
    int64_t i = (int64_t)hec_test_below(random, (uint64_t)n);
    double kept = values[i], step = 1e-5;
    values[i] = kept + step;
    hec_reference_loss up = loss_of(c);
    values[i] = kept - step;
    hec_reference_loss down = loss_of(c);
    values[i] = kept;
    double slope = (up.loss + up.balance - down.loss - down.balance) / (2 * step);
    ck_assert_msg(fabs(slope - (double)grads[i]) <= 2e-5 * scale + 1e-9, "%s[%d]: %.9g, differences %.9g (scale %g)",
                  what, (int)i, (double)grads[i], slope, scale);
  }
}

static const char *const gates[] = {"softmax",      "sigmoid", "gshard", "xmoe", "xmoe:rank=3,temperature=0.2",
                                    "expert-choice"};
enum { N_GATES = sizeof gates / sizeof *gates, N_SEEDS = 4 };

HEC_TEST_LOOP(gradients, N_GATES *N_SEEDS) {
  language_case c;
  make(&c, 77 + (uint64_t)_i, gates[_i % N_GATES]);
  uint64_t random = (uint64_t)_i;
  hec_reference_loss expected = loss_of(&c);
  hec_reference_loss found = hec_reference_train(c.reference, 1, c.loads, MICRO_BATCHES, &c.text);
  ck_assert_double_eq_tol(found.loss, expected.loss, 1e-5);
  ck_assert_double_eq_tol(found.balance, expected.balance, 1e-5);
  hec_reference_state ends = hec_reference_block(c.reference, -1);
  differ(&c, &random, c.ends, ends.grads, ends.n / 2, "embedding");
  differ(&c, &random, c.ends + ends.n / 2, ends.grads + ends.n / 2, ends.n / 2, "head");
  for (int32_t l = 0; l < c.model.n_blocks; l++) {
    hec_reference_state block = hec_reference_block(c.reference, l);
    hec_block_layout at = hec_model_block(&c.model);
    differ(&c, &random, c.blocks + l * block.n, block.grads, at.gate, "attention and norms");
    differ(&c, &random, c.blocks + l * block.n + at.gate, block.grads + at.gate, at.shared - at.gate, "gate");
    if (at.size > at.shared)
      differ(&c, &random, c.blocks + l * block.n + at.shared, block.grads + at.shared, at.size - at.shared, "shared");
    int32_t e = (int32_t)hec_test_below(&random, (uint64_t)c.model.n_experts);
    hec_reference_state expert = hec_reference_expert(c.reference, l, e);
    differ(&c, &random, c.experts + (l * c.model.n_experts + e) * expert.n, expert.grads, expert.n, "expert");
  }
  hec_reference_free(c.reference);
  hec_arena_free(&c.arena);
}

/* Choices that the gate does not make are noticed; so is a token with one expert twice. */
HEC_TEST(choices_are_verified) {
  language_case c;
  uint64_t seed = 500;
  for (make(&c, seed, "softmax"); c.model.top_k == c.model.n_experts;
       make(&c, ++seed, "softmax")) { /* there must be something to choose */
    hec_reference_free(c.reference);
    hec_arena_free(&c.arena);
  }
  hec_reference_loss found = hec_reference_train(c.reference, 1, c.loads, MICRO_BATCHES, &c.text);
  ck_assert_int_gt(found.flips, 0);
  ck_assert_int_eq(found.wrong, RANKS * MICRO_BATCHES * c.model.n_blocks);
  hec_reference_free(c.reference);
  c.reference = hec_reference_new(&c.model, RANKS, c.tokens, true);
  int32_t *choices = HEC_NEW(&c.arena, int32_t, c.tokens * c.model.top_k * RANKS * MICRO_BATCHES * c.model.n_blocks);
  c.text.choices = choices; /* every assignment is of token 0 */
  found = hec_reference_train(c.reference, 1, c.loads, MICRO_BATCHES, &c.text);
  ck_assert_int_gt(found.wrong, 0);
  hec_reference_free(c.reference);
  hec_arena_free(&c.arena);
}

/* Choices that follow from affinities which are not the gate's: the affinities are noticed. */
HEC_TEST(affinities_are_verified) {
  language_case c;
  make(&c, 501, "softmax");
  const hec_model *m = &c.model;
  uint64_t random = 9;
  int32_t n = c.tokens * m->top_k, cells = c.tokens * m->n_experts, lists = RANKS * MICRO_BATCHES * m->n_blocks;
  int32_t *choices = HEC_NEW(&c.arena, int32_t, n * lists);
  float *affinities = HEC_NEW(&c.arena, float, cells *lists);
  for (int32_t i = 0; i < cells * lists; i++)
    affinities[i] = (float)hec_test_uniform(&random);
  for (int32_t i = 0; i < lists; i++) {
    int32_t rank = i / (MICRO_BATCHES * m->n_blocks), mb = i / m->n_blocks % MICRO_BATCHES;
    hec_assignments a = hec_assignments_new(&c.arena, m, n, NULL);
    hec_assign_top_k(m, affinities + (ptrdiff_t)i * cells, NULL, c.tokens, &a);
    memcpy(choices + (ptrdiff_t)i * n, a.token, (size_t)n * sizeof *choices);
    for (int32_t e = 0; e < m->n_experts; e++)
      hec_load_row(&c.loads[mb], i % m->n_blocks, rank)[e] = (uint32_t)(a.expert_at[e + 1] - a.expert_at[e]);
  }
  c.text.choices = choices;
  c.text.affinities = affinities;
  hec_reference_loss found = hec_reference_train(c.reference, 1, c.loads, MICRO_BATCHES, &c.text);
  ck_assert_int_eq(found.wrong, 0);
  ck_assert_double_gt(found.affined, 0.1);
  hec_reference_free(c.reference);
  hec_arena_free(&c.arena);
}
