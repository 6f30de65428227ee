/* Gates by themselves: text, cases computed by hand, choices against a second computation, every gradient against central
 * differences of an oracle in double. Whole models: test_language.c; whole runs: test_gated_train.c. */
#include "tests/exec/gate_oracle.h"
#include "tests/exec/model_oracle.h"
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

HEC_TEST_ONCE(hec_math_open)

static hec_arena arena;

static hec_model model_of(int32_t experts, int32_t top_k, const char *gate) {
  hec_moe moe;
  hec_model model;
  ck_assert_int_eq(hec_moe_load("tiny", &moe), HEC_OK);
  moe.n_experts = experts;
  moe.top_k = top_k;
  moe.d_model = 8;
  moe.n_shared_experts = 0;
  ck_assert_msg(hec_model_make(&moe, false, 7, &model) == HEC_OK, "%s", hec_last_error());
  return hec_oracle_gated(&model, gate);
}

static hec_assignments choose(const hec_model *model, const float *affinity, int32_t tokens, const float *bias,
                              int64_t first) {
  hec_assignments a = hec_assignments_new(&arena, model, tokens * model->top_k, NULL);
  const hec_gate_call call = {.step = 3, .first = first, .layer = 1, .bias = bias, .arena = &arena};
  model->gate->choose(model, &call, affinity, tokens, &a);
  hec_assign_weights(&hec_processor_cpu, model, affinity, &a);
  return a;
}

static bool has(const hec_assignments *a, int32_t token, int32_t expert) {
  for (int32_t j = a->expert_at[expert]; j < a->expert_at[expert + 1]; j++)
    if (a->token[j] == token)
      return true;
  return false;
}

static float weight_of(const hec_assignments *a, int32_t token, int32_t expert) {
  for (int32_t j = a->expert_at[expert]; j < a->expert_at[expert + 1]; j++)
    if (a->token[j] == token)
      return a->weight[j];
  ck_abort_msg("token %d has no expert %d", (int)token, (int)expert);
}

/* ---- Text ---- */

HEC_TEST(texts) {
  hec_gate_options options;
  const hec_gate *gate;
  for (int i = 0; hec_gates[i]; i++) {
    ck_assert_int_eq(hec_gate_parse(hec_gates[i]->name, &gate, &options), HEC_OK);
    ck_assert_ptr_eq(gate, hec_gates[i]);
    ck_assert(options.capacity == 0 && options.group == 0 && options.rank == 0 && options.temperature == 0);
    ck_assert(gate->summary && gate->source && gate->score && gate->choose && gate->backward);
  }
  hec_model model = model_of(6, 2, "gshard:group=16,capacity=1.25");
  HEC_SCOPED(hec_text) text = {0};
  hec_gate_describe(&model, &text);
  ck_assert_str_eq(text.data, "gshard:capacity=1.25,group=16");
  ck_assert_int_eq(hec_gate_parse("xmoe:temperature=.3,rank=4", &gate, &options), HEC_OK);
  ck_assert(options.temperature == .3 && options.rank == 4);
}

static const struct {
  const char *text, *error;
} bad_gates[] = {
    {"top", "`gate`: expected one of softmax, gshard, sigmoid, xmoe, expert-choice, found \"top\""},
    {"", "found \"\""},
    {"softma", "found \"softma\""},
    {"softmax:", "`gate` softmax: expected nothing after the name, found \"\""},
    {"softmax:capacity=1", "expected nothing after the name, found \"capacity=1\""},
    {"gshard:rank=4", "`gate` gshard: expected capacity=VALUE, group=VALUE, found \"rank=4\""},
    {"gshard:capacity", "found \"capacity\""},
    {"gshard:capacity=", "`gate` gshard: capacity: expected a number from 0.001 to 1e+06, found \"\""},
    {"gshard:capacity=-1", "found \"-1\""},
    {"gshard:capacity=nan", "found \"nan\""},
    {"gshard:capacity=1x", "found \"1x\""},
    {"gshard:capacity=1,capacity=7", "capacity is given twice"},
    {"xmoe:rank=1", "rank: expected an integer from 2"},
    {"gshard:capacity=1,", "found \"\""},
    {"gshard:capacity=1,,group=2", "found \"\""},
    {"gshard:group=2.5", "`gate` gshard: group: expected an integer from 1 to 1e+09, found \"2.5\""},
    {"xmoe:temperature=0", "from 0.01 to 1000, found \"0\""},
    {"xmoe:temperature=0x1", "from 0.01 to 1000, found \"0x1\""},
    {"xmoe:capacity=2", "expected rank=VALUE, temperature=VALUE"},
};

static const char *const bad_balances[] = {"",         "aux",      "aux=",        "bias=-1",    "bias=2",
                                           "aux=1001", "aux=1,",   "aux=1 ",      "none,aux=1", "loss=1",
                                           "aux=0x1p", "bias=inf", "aux=1;bias=1"};

HEC_TEST(bad_texts) {
  const hec_gate *gate = NULL;
  hec_gate_options options = {.rank = -5};
  for (size_t i = 0; i < sizeof bad_gates / sizeof *bad_gates; i++) {
    ck_assert_int_eq(hec_gate_parse(bad_gates[i].text, &gate, &options), HEC_BAD_INPUT);
    ck_assert_msg(strstr(hec_last_error(), bad_gates[i].error) != NULL, "%s", hec_last_error());
    ck_assert(gate == NULL && options.rank == -5);
  }
  hec_balancing balancing = {-1, -1};
  for (size_t i = 0; i < sizeof bad_balances / sizeof *bad_balances; i++) {
    ck_assert_int_eq(hec_balancing_parse(bad_balances[i], &balancing), HEC_BAD_INPUT);
    ck_assert_msg(strstr(hec_last_error(), "`balance`: expected none, aux=") != NULL, "%s", hec_last_error());
    ck_assert(balancing.aux == -1 && balancing.bias == -1);
  }
  ck_assert_int_eq(hec_balancing_parse("aux=0.5,bias=0.1,aux=0.2", &balancing), HEC_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "`balance`: aux is given twice"));
  ck_assert(balancing.aux == -1 && balancing.bias == -1);
  ck_assert_int_eq(hec_balancing_parse("bias=0.001,aux=.5", &balancing), HEC_OK);
  ck_assert(balancing.aux == .5 && balancing.bias == .001);
  ck_assert_int_eq(hec_balancing_parse("none", &balancing), HEC_OK);
  ck_assert(balancing.aux == 0 && balancing.bias == 0);
}

HEC_TEST(shapes_that_do_not_fit) {
  hec_model model = model_of(6, 3, "softmax");
  const hec_gate_options none = {0}, wide = {.rank = 9}, more = {.capacity = 2}, group = {.group = 5};
  ck_assert_int_eq(hec_gate_set(&model, &hec_gate_gshard, &none), HEC_BAD_INPUT);
  ck_assert_msg(strstr(hec_last_error(), "expected top-k 2 of at least 2 experts, found 3 of 6"), "%s",
                hec_last_error());
  ck_assert_int_eq(hec_gate_set(&model, &hec_gate_xmoe, &wide), HEC_BAD_INPUT);
  ck_assert_msg(strstr(hec_last_error(), "at most the width (8), found 9"), "%s", hec_last_error());
  ck_assert_int_eq(hec_gate_set(&model, &hec_gate_expert_choice, &more), HEC_BAD_INPUT);
  ck_assert_ptr_eq(model.gate, &hec_gate_softmax);
  ck_assert_int_eq(hec_gate_set(&model, &hec_gate_expert_choice, &group), HEC_OK);
  ck_assert_int_eq(hec_gate_check(&model, 10), HEC_OK);
  ck_assert_int_eq(hec_gate_check(&model, 12), HEC_BAD_INPUT);
  ck_assert_msg(strstr(hec_last_error(), "a divisor of the tokens of a rank (12), found 5"), "%s", hec_last_error());
  ck_assert_int_eq(hec_gate_set(&model, &hec_gate_expert_choice, &none), HEC_OK);
  ck_assert_int_eq(hec_gate_check(&model, 1), HEC_BAD_INPUT); /* 3 assignments for 6 experts */
  ck_assert_msg(strstr(hec_last_error(), "each of 6 experts gets a token"), "%s", hec_last_error());
}

/* X-MoE's parameters are in the model's shape, so in memory, traffic and time too. */
HEC_TEST(parameters_are_counted) {
  hec_model plain = model_of(6, 2, "softmax"), low = model_of(6, 2, "xmoe:rank=2"), fixed;
  ck_assert(hec_moe_gate_params(&plain.moe) == 48);
  ck_assert(hec_moe_gate_params(&low.moe) == 8 * 2 + 6 * 2 + 1);
  ck_assert_int_eq(hec_model_block(&plain).size - hec_model_block(&low).size, 48 - 29);
  fixed = model_of(6, 2, "xmoe:temperature=0.3"); /* rank 3 of itself, nothing learned of the temperature */
  ck_assert(hec_moe_gate_params(&fixed.moe) == 8 * 3 + 6 * 3);
  low = model_of(6, 2, "gshard");
  ck_assert(hec_moe_gate_params(&low.moe) == 48);
}

/* ---- By hand ---- */

/* Four tokens, three experts, room for ceil(0.7 * 2 * 4 / 3) = 2 each. First choices 0 0 0 1: the third finds expert 0
 * full. Second ones: 1 of token 0 (as probable as the first: always sent) takes expert 1's last room. Token 1's has no
 * weight; token 2's expert 2 as probable as its first; token 3's, expert 0, is full. */
static const float by_hand[] = {0.5F, 0.5F, 0, 1, 0, 0, 0.4F, 0.2F, 0.4F, 0.45F, 0.55F, 0};

HEC_TEST(gshard_by_hand) {
  int64_t first = 0;
  hec_model model = model_of(3, 2, "gshard:capacity=0.7");
  while (hec_gate_random(&model, 3, 1, first + 3) >= 0.9F) /* a place where chance sends token 3's second */
    first++;
  hec_assignments a = choose(&model, by_hand, 4, NULL, first);
  static const int32_t expert_at[] = {0, 2, 4, 5}, token[] = {0, 1, 0, 3, 2};
  ck_assert(memcmp(a.expert_at, expert_at, sizeof expert_at) == 0);
  ck_assert(memcmp(a.token, token, sizeof token) == 0);
  ck_assert_int_eq(a.n, 5);
  ck_assert_int_eq(a.n_dropped, 2);
  static const float weight[] = {0.5F, 1, 0.5F, 0.55F, 0.5F};
  for (int j = 0; j < 5; j++)
    ck_assert_float_eq_tol(a.weight[j], weight[j], 1e-6F);
  model = model_of(3, 2, "gshard:capacity=10"); /* room for all */
  a = choose(&model, by_hand, 4, NULL, first);
  ck_assert(a.n == 7 && a.n_dropped == 0 && has(&a, 2, 0) && has(&a, 3, 0) && !has(&a, 1, 1));
}

/* The second expert comes in proportion to its weight: 2 g2 of 20,000 tokens. */
HEC_TEST_LOOP(gshard_by_chance, 4) {
  enum { T = 20000 };
  static float p[2 * T];
  hec_model model = model_of(2, 2, "gshard:capacity=2");
  float second = 0.05F + 0.1F * (float)_i;
  for (int t = 0; t < T; t++) {
    p[2 * t] = 1 - second;
    p[2 * t + 1] = second;
  }
  hec_assignments a = choose(&model, p, T, NULL, 0);
  int32_t sent = a.expert_at[2] - a.expert_at[1];
  double share = 2 * (double)second, deviation = sqrt(share * (1 - share) / T);
  ck_assert_double_eq_tol((double)sent / T, share, 5 * deviation);
  hec_model other = model;
  other.seed++;
  hec_assignments b = choose(&other, p, T, NULL, 0);
  int32_t same = 0;
  for (int32_t j = b.expert_at[1]; j < b.expert_at[2]; j++)
    same += has(&a, b.token[j], 1);
  ck_assert_double_eq_tol((double)same / T, share * share, 5 * deviation); /* another seed is another chance */
}

/* Seed, step, layer and token all count; the numbers are uniform; one of them, forever. */
HEC_TEST(chance) {
  hec_model model = model_of(4, 2, "gshard"), other = model;
  other.seed++;
  int32_t same[4] = {0}, below = 0;
  for (int32_t t = 0; t < 1000; t++) {
    float u = hec_gate_random(&model, 5, 1, t);
    ck_assert(u >= 0 && u < 1);
    below += u < 0.25F;
    same[0] += u == hec_gate_random(&other, 5, 1, t);
    same[1] += u == hec_gate_random(&model, 6, 1, t);
    same[2] += u == hec_gate_random(&model, 5, 2, t);
    same[3] += u == hec_gate_random(&model, 5, 1, t + 1);
    ck_assert(u == hec_gate_random(&model, 5, 1, t));
  }
  for (int i = 0; i < 4; i++)
    ck_assert_int_le(same[i], 2);
  ck_assert_int_ge(below, 200);
  ck_assert_int_le(below, 300);
  ck_assert_msg(hec_gate_random(&model, 5, 1, 0) == 0x1.5c44b20000000p-1F, "found %a",
                (double)hec_gate_random(&model, 5, 1, 0));
}

/* Groups stand alone: any split of the tokens at their borders makes the same choice, dropping the same. */
HEC_TEST_LOOP(pieces_choose_alike, 5) {
  static const char *const gates[] = {"softmax", "sigmoid", "xmoe", "gshard:group=16,capacity=0.75",
                                      "expert-choice:group=16"};
  enum { T = 64, E = 6 };
  uint64_t random = 1;
  float p[T * E];
  for (int i = 0; i < T * E; i++)
    p[i] = (float)hec_test_uniform(&random);
  hec_model model = model_of(E, 2, gates[_i]);
  hec_assignments all = choose(&model, p, T, NULL, 1000);
  for (int32_t pieces = 2; pieces <= 4; pieces *= 2) {
    int32_t size = T / pieces, n = 0, dropped = 0;
    for (int32_t i = 0; i < pieces; i++) {
      hec_assignments part = choose(&model, p + (ptrdiff_t)i * size * E, size, NULL, 1000 + i * size);
      n += part.n;
      dropped += part.n_dropped;
      for (int32_t e = 0; e < E; e++)
        for (int32_t t = 0; t < size; t++)
          ck_assert(has(&part, t, e) == has(&all, i * size + t, e));
    }
    ck_assert(n == all.n && dropped == all.n_dropped);
  }
  ck_assert(model.gate != &hec_gate_gshard || all.n_dropped > 0);
}

HEC_TEST(sigmoid_by_hand) {
  static const float s[] = {0.8F, 0.2F, 0.5F, 0.1F, 0.1F, 0.1F}, bias[] = {-0.4F, 0, 0.25F};
  hec_model model = model_of(3, 2, "sigmoid");
  hec_assignments a = choose(&model, s, 2, NULL, 0);
  ck_assert(has(&a, 0, 0) && has(&a, 0, 2) && has(&a, 1, 0) && has(&a, 1, 1)); /* token 1: ties to the lower */
  ck_assert_float_eq_tol(weight_of(&a, 0, 0), 0.8F / 1.3F, 1e-6F);
  ck_assert_float_eq_tol(weight_of(&a, 0, 2), 0.5F / 1.3F, 1e-6F);
  ck_assert_float_eq_tol(weight_of(&a, 1, 1), 0.5F, 1e-6F);
  for (int j = 0; j < a.n; j++)
    ck_assert(a.weight_grad[j] == 0);
  a = choose(&model, s, 2, bias, 0); /* 0.4 0.2 0.75 | -0.3 0.1 0.35: the choice moves, the weights have no bias */
  ck_assert(has(&a, 0, 0) && has(&a, 0, 2) && has(&a, 1, 1) && has(&a, 1, 2));
  ck_assert_float_eq_tol(weight_of(&a, 0, 2), 0.5F / 1.3F, 1e-6F);
}

/* Six tokens, three experts, k = 1: two tokens each. */
static const float columns[] = {0.9F, 0.1F, 0.3F, 0.8F, 0.2F, 0.3F, 0.9F, 0.3F, 0.3F,
                                0.7F, 0.4F, 0.3F, 0.1F, 0.5F, 0.1F, 0.9F, 0.5F, 0.2F};

HEC_TEST(expert_choice_by_hand) {
  hec_model model = model_of(3, 1, "expert-choice");
  hec_assignments a = choose(&model, columns, 6, NULL, 0);
  static const int32_t token[] = {0, 2, 4, 5, 0, 1}; /* of equal ones the lower: 5 has 0.9 too, 2 and 3 0.3 */
  ck_assert_int_eq(a.n, 6);
  ck_assert(memcmp(a.token, token, sizeof token) == 0);
  ck_assert(weight_of(&a, 4, 1) == 0.5F && weight_of(&a, 0, 2) == 0.3F);
  float p[18];
  memcpy(p, columns, sizeof p);
  p[0] = NAN; /* less than anything */
  a = choose(&model, p, 6, NULL, 0);
  ck_assert(a.expert_at[1] == 2 && a.token[0] == 2 && a.token[1] == 5);
  p[0] = nextafterf(0.9F, 0); /* alike but for rounding: the lower token still */
  a = choose(&model, p, 6, NULL, 0);
  ck_assert(a.token[0] == 0 && a.token[1] == 2);
}

HEC_TEST(bias_by_hand) {
  hec_model model = model_of(4, 2, "sigmoid");
  model.n_blocks = 2;
  hec_load loads[2] = {hec_load_new(&arena, 2, 2, 4), hec_load_new(&arena, 2, 2, 4)};
  static const uint32_t counts[2][2][4] = {{{9, 1, 0, 2}, {3, 3, 3, 3}}, {{0, 0, 2, 2}, {4, 3, 3, 3}}}; /* [l][r][e] */
  for (int l = 0; l < 2; l++)
    for (int r = 0; r < 2; r++)
      memcpy(hec_load_row(&loads[0], l, r), counts[l][r], sizeof counts[l][r]);
  hec_load_row(&loads[1], 1, 0)[0] = 1;
  hec_load_row(&loads[1], 0, 1)[2] = 3;
  /* block 0: 12 4 6 5 of 27, mean 6.75; block 1: 5 3 5 5 of 18, mean 4.5 */
  float bias[8] = {0, 0, 0, 0, 1, 1, 1, 1};
  hec_bias_update(&model, 0.25F, loads, 2, bias);
  static const float expected[] = {-0.25F, 0.25F, 0.25F, 0.25F, 0.75F, 1.25F, 0.75F, 0.75F};
  ck_assert(memcmp(bias, expected, sizeof bias) == 0);
  for (int e = 0; e < 4; e++) /* at the mean nothing moves */
    hec_load_row(&loads[0], 0, 0)[e] = hec_load_row(&loads[0], 0, 1)[e] = hec_load_row(&loads[1], 0, 1)[e] = 2;
  hec_bias_update(&model, 0.25F, loads, 2, bias);
  ck_assert(memcmp(bias, expected, 4 * sizeof *bias) == 0);
}

/* ---- A second computation ---- */

static int32_t rank_in_row(const float *row, int32_t n, int32_t e) {
  int32_t before = 0;
  for (int32_t i = 0; i < n; i++)
    before += row[i] > row[e] || (row[i] == row[e] && i < e);
  return before;
}

/* Whether e is which (0, 1) of token t and is sent there, room aside. */
static bool wants(const hec_model *m, const float *p, int32_t t, int32_t e, int which, int64_t place) {
  const float *row = p + (ptrdiff_t)t * m->n_experts;
  if (rank_in_row(row, m->n_experts, e) != which)
    return false;
  float best = 0;
  for (int32_t i = 0; i < m->n_experts; i++)
    best = rank_in_row(row, m->n_experts, i) == 0 ? row[i] : best;
  return which == 0 || 2 * (row[e] / (best + row[e])) > hec_gate_random(m, 3, 1, place + t);
}

/* GShard's assignments, each decided on its own from who came before. */
static bool gshard_takes(const hec_model *m, const float *p, int32_t first, int32_t size, int32_t t, int32_t e,
                         int which, int64_t place) {
  int32_t before = 0, max = (int32_t)ceil(m->gate_options.capacity * 2 * size / m->n_experts);
  for (int pass = 0; pass <= which; pass++)
    for (int32_t i = first; i < (pass == which ? t : first + size); i++)
      before += wants(m, p, i, e, pass, place);
  return wants(m, p, t, e, which, place) && before < max;
}

HEC_TEST_LOOP(gshard_again, 30) {
  uint64_t random = 40 + (uint64_t)_i;
  enum { T = 24, E = 5 };
  float p[T * E];
  for (int i = 0; i < T * E; i++)
    p[i] = (float)(1 + hec_test_below(&random, 6)) / 8; /* ties */
  static const char *const gates[] = {"gshard:capacity=0.5", "gshard:capacity=1", "gshard:capacity=0.8,group=8"};
  hec_model model = model_of(E, 2, gates[_i % 3]);
  hec_assignments a = choose(&model, p, T, NULL, 500);
  int32_t size = model.gate_options.group > 0 ? 8 : T, n = 0, wanted = 0;
  for (int32_t t = 0; t < T; t++)
    for (int32_t e = 0; e < E; e++) {
      int32_t first = t / size * size;
      bool taken =
          gshard_takes(&model, p, first, size, t, e, 0, 500) || gshard_takes(&model, p, first, size, t, e, 1, 500);
      wanted += wants(&model, p, t, e, 0, 500) || wants(&model, p, t, e, 1, 500);
      ck_assert(taken == has(&a, t, e));
      n += taken;
    }
  ck_assert_int_eq(a.n, n);
  ck_assert_int_eq(a.n_dropped, wanted - n);
}

/* Every expert has exactly its number of every group, and none that it left out was better. */
HEC_TEST_LOOP(expert_choice_again, 24) {
  uint64_t random = 60 + (uint64_t)_i;
  enum { T = 40, E = 7 };
  float p[T * E];
  for (int i = 0; i < T * E; i++)
    p[i] = (float)hec_test_below(&random, _i % 2 ? 4096 : 4) / 4096; /* twelve bits: all told apart; or ties */
  hec_model model = model_of(E, 1 + _i % 4, _i % 3 ? "expert-choice:group=20" : "expert-choice:capacity=0.7");
  hec_assignments a = choose(&model, p, T, NULL, 0);
  int32_t size = _i % 3 ? 20 : T, max = (int32_t)((_i % 3 ? 1 : 0.7) * model.top_k * size / E);
  ck_assert_int_eq(a.n, max * E * (T / size));
  for (int32_t first = 0; first < T; first += size)
    for (int32_t e = 0; e < E; e++)
      for (int32_t t = first; t < first + size; t++) {
        int32_t better = 0;
        for (int32_t i = first; i < first + size; i++)
          better += p[i * E + e] > p[t * E + e] || (p[i * E + e] == p[t * E + e] && i < t);
        ck_assert(has(&a, t, e) == (better < max));
      }
}

/* ---- Gradients ---- */

enum { T = 9 };

typedef struct {
  hec_model model;
  int64_t n_params;
  double *params, *h2; /* [n_params], [T, d] */
  bool *chosen;        /* [T, E] */
  double *by_weight;   /* [T, E] the loss: sum over the chosen of by_weight * weight */
  float *balance;      /* [E] + sum over tokens and experts of balance * probability */
} gate_case;

static double loss_of(const gate_case *c) {
  const hec_model *m = &c->model;
  double loss = 0, affinity[8];
  for (int32_t t = 0; t < T; t++) {
    hec_oracle_affinities(m, c->params, c->h2 + (ptrdiff_t)t * m->moe.d_model, affinity);
    for (int32_t e = 0; e < m->n_experts; e++) {
      loss += (double)c->balance[e] * hec_oracle_probability(m, affinity, e);
      if (c->chosen[t * m->n_experts + e])
        loss += c->by_weight[t * m->n_experts + e] *
                hec_oracle_weight(m, affinity, c->chosen + (ptrdiff_t)t * m->n_experts, e);
    }
  }
  return loss;
}

static void differ(gate_case *c, double *values, const float *grads, int64_t n, const char *what) {
  double scale = 0;
  for (int64_t i = 0; i < n; i++)
    scale = fmax(scale, fabs((double)grads[i]));
  ck_assert_double_gt(scale, 1e-4); /* there is something to compare */
  for (int64_t i = 0; i < n; i++) {
    double kept = values[i], step = 1e-6;
    values[i] = kept + step;
    double up = loss_of(c);
    values[i] = kept - step;
    double down = loss_of(c);
    values[i] = kept;
    ck_assert_msg(fabs((up - down) / (2 * step) - (double)grads[i]) <= 1e-5 * scale + 1e-7,
                  "%s %s[%d]: %.9g, differences %.9g", c->model.gate->name, what, (int)i, (double)grads[i],
                  (up - down) / (2 * step));
  }
}

static double *doubles(const float *from, int64_t n) {
  double *to = HEC_NEW(&arena, double, n);
  for (int64_t i = 0; i < n; i++)
    to[i] = (double)from[i];
  return to;
}

static const char *const rows[] = {
    "softmax", "sigmoid", "gshard:capacity=0.8", "xmoe", "xmoe:rank=5,temperature=0.25", "expert-choice"};

HEC_TEST_LOOP(gradients, 18) {
  uint64_t random = 80 + (uint64_t)_i;
  int32_t which = _i % 6, experts = 4 + _i % 3;
  gate_case c = {.model = model_of(experts, 2, rows[which])};
  const hec_model *m = &c.model;
  hec_block_layout at = hec_model_block(m);
  int32_t d = m->moe.d_model, n = T * experts;
  float *block = HEC_NEW(&arena, float, at.size), *params = block + at.gate, *grads = HEC_NEW(&arena, float, at.size);
  float *h2 = HEC_NEW(&arena, float, T *d), *dh2 = HEC_NEW(&arena, float, T *d), *affinity = HEC_NEW(&arena, float, n);
  float *scratch = malloc((size_t)hec_model_scratch_size(m, T) * sizeof *scratch); /* a step beyond is seen */
  hec_model_init_block(m, 0, block);
  hec_model_input(m, 1, 0, 0, T, h2);
  c.n_params = at.shared - at.gate;
  c.params = doubles(params, c.n_params);
  c.h2 = doubles(h2, (int64_t)T * d);
  const hec_gate_pass pass = {&hec_processor_cpu, m, params, T, h2, affinity, scratch};
  m->gate->score(&pass);
  for (int32_t t = 0; t < T; t++) {
    double expected[8];
    hec_oracle_affinities(m, c.params, c.h2 + (ptrdiff_t)t * d, expected);
    for (int32_t e = 0; e < experts; e++)
      ck_assert_double_eq_tol((double)affinity[t * experts + e], expected[e], 3e-6);
  }
  hec_assignments a = choose(m, affinity, T, NULL, 0);
  c.chosen = HEC_NEW(&arena, bool, n);
  c.by_weight = HEC_NEW(&arena, double, n);
  c.balance = a.balance = HEC_NEW(&arena, float, experts);
  for (int32_t e = 0; e < experts; e++) {
    a.balance[e] = _i < 6 ? 0 : (float)hec_test_uniform(&random);
    for (int32_t j = a.expert_at[e]; j < a.expert_at[e + 1]; j++) {
      a.weight_grad[j] = (float)hec_test_uniform(&random) - 0.5F;
      c.chosen[a.token[j] * experts + e] = true;
      c.by_weight[a.token[j] * experts + e] = (double)a.weight_grad[j];
    }
  }
  for (int32_t e = 0; e < experts; e++)
    for (int32_t j = a.expert_at[e]; j < a.expert_at[e + 1]; j++) {
      double affine[8];
      hec_oracle_affinities(m, c.params, c.h2 + (ptrdiff_t)a.token[j] * d, affine);
      ck_assert_double_eq_tol((double)a.weight[j],
                              hec_oracle_weight(m, affine, c.chosen + (ptrdiff_t)a.token[j] * experts, e), 3e-6);
    }
  m->gate->backward(&pass, &a, grads, dh2);
  differ(&c, c.params, grads, c.n_params, "parameters");
  differ(&c, c.h2, dh2, (int64_t)T * d, "h2");
  free(scratch);
}

/* Cosines do not see lengths; at the end of its range the temperature stands still. */
HEC_TEST(xmoe_sphere) {
  hec_model m = model_of(6, 2, "xmoe");
  hec_block_layout at = hec_model_block(&m);
  float *block = HEC_NEW(&arena, float, at.size), *params = block + at.gate, *grads = HEC_NEW(&arena, float, at.size);
  float h2[T * 8], p[T * 6], longer[T * 6], dh2[T * 8] = {0};
  float *scratch = HEC_NEW(&arena, float, hec_model_scratch_size(&m, T));
  hec_model_init_block(&m, 0, block);
  int64_t theta = at.shared - at.gate - 1;
  ck_assert_float_eq_tol(expf(params[theta]), 2, 1e-6F); /* temperature 0.5 */
  hec_model_input(&m, 1, 0, 0, T, h2);
  hec_gate_pass pass = {&hec_processor_cpu, &m, params, T, h2, p, scratch};
  m.gate->score(&pass);
  for (int i = 0; i < T * 8; i++)
    h2[i] *= 8;
  for (int i = 0; i < 6 * 3; i++)
    params[8 * 3 + i] *= 0.125F;
  pass.affinity = longer;
  m.gate->score(&pass);
  for (int i = 0; i < T * 6; i++)
    ck_assert_float_eq_tol(longer[i], p[i], 1e-6F);
  params[theta] = 9; /* beyond 1 / 0.01 */
  m.gate->score(&pass);
  hec_assignments a = choose(&m, longer, T, NULL, 0);
  for (int32_t j = 0; j < a.n; j++)
    a.weight_grad[j] = (float)(j % 3);
  m.gate->backward(&pass, &a, grads, dh2);
  ck_assert(grads[theta] == 0);
  params[theta] = logf(100);
  pass.affinity = p;
  m.gate->score(&pass);
  for (int i = 0; i < T * 6; i++)
    ck_assert_float_eq_tol(longer[i], p[i], 1e-4F);
}
