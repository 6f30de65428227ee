/* Attention kinds: the counts against masks counted one by one, the order of the kinds, text and its errors. */
#include "models/attention.h"
#include "models/compute_cost.h"
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>

static int32_t below(uint64_t *seed, int32_t n) {
  return (int32_t)hec_test_below(seed, (uint64_t)n);
}

static hec_s2 random_s2(uint64_t *seed, int32_t n_heads) {
  hec_s2 s2 = {.shards = 1 + below(seed, n_heads), .block = 1 + below(seed, 9)};
  s2.local = s2.block * (1 + below(seed, 6));
  return s2;
}

/* A mask as the kernels of the paper make it, block by block and head by head: their rule, written down again. */
static bool *kernel_mask(hec_s2 s2, int32_t head, int32_t length) {
  bool *mask = calloc((size_t)length * (size_t)length, sizeof *mask);
  ck_assert_ptr_nonnull(mask);
  int32_t n_blocks = (length + s2.block - 1) / s2.block;
  for (int32_t i = 0; i < n_blocks; i++)
    for (int32_t j = 0; j <= i; j++) {
      if ((i - j) * s2.block >= s2.local && (j + head + 1) % s2.shards != 0)
        continue;
      for (int32_t q = i * s2.block; q < (i + 1) * s2.block && q < length; q++)
        for (int32_t k = j * s2.block; k < (j + 1) * s2.block && k <= q; k++)
          mask[(int64_t)q * length + k] = true;
    }
  return mask;
}

HEC_TEST(counts_are_those_of_the_mask) {
  uint64_t seed = 11;
  int32_t sparse = 0;
  for (int n = 0; n < 600; n++) {
    int32_t n_heads = 1 + below(&seed, 12), length = 1 + below(&seed, 90), wrong = 0;
    hec_s2 s2 = random_s2(&seed, n_heads);
    int64_t all = 0;
    for (int32_t h = 0; h < n_heads; h++) {
      int64_t pairs = 0;
      bool *mask = kernel_mask(s2, h, length);
      for (int32_t q = 0; q < length; q++)
        for (int32_t k = 0; k < length; k++) {
          pairs += mask[q * length + k];
          wrong += mask[q * length + k] != hec_attention_sees(HEC_ATTENTION_S2, s2, h, q, k);
        }
      ck_assert_int_eq(wrong, 0);
      free(mask);
      ck_assert_int_eq(pairs, hec_attention_pairs(HEC_ATTENTION_S2, s2, h, length));
      all += pairs;
    }
    double mean = (double)all / ((double)n_heads * length);
    ck_assert_double_eq_tol(hec_attention_context(HEC_ATTENTION_S2, s2, n_heads, length), mean - 0.5, 1e-12 * mean);
    sparse += 2 * all < n_heads * (int64_t)length * (length + 1);
  }
  ck_assert_int_gt(sparse, 300);
}

/* A window: as many keys as it has tokens, the query's own among them; causal where it holds the sequence. */
HEC_TEST(counts_of_a_window) {
  hec_attention kind;
  hec_s2 s2;
  HEC_SCOPED(hec_text) text = {0};
  for (int32_t window = 1; window < 12; window++) {
    hec_text_free(&text);
    hec_text_printf(&text, "window:local=%d", (int)window);
    ck_assert_ptr_null(hec_attention_read(text.data, &kind, &s2));
    ck_assert_ptr_null(hec_s2_wrong(s2, 3));
    for (int32_t length = 1; length < 40; length++) {
      int64_t pairs = 0, seen = 0;
      for (int32_t q = 0; q < length; q++) {
        pairs += q + 1 < window ? q + 1 : window;
        for (int32_t k = 0; k < length; k++)
          seen += hec_attention_sees(kind, s2, 2, q, k);
      }
      ck_assert_int_eq(seen, pairs);
      ck_assert_int_eq(hec_attention_pairs(kind, s2, 2, length), pairs);
      ck_assert_double_eq_tol(hec_attention_context(kind, s2, 3, length), (double)pairs / length - 0.5, 1e-12);
    }
  }
}

HEC_TEST(counts_of_full_and_causal) {
  for (int32_t length = 1; length < 40; length++) {
    int64_t pairs[2] = {0, 0};
    for (int32_t q = 0; q < length; q++)
      for (int32_t k = 0; k < length; k++) {
        pairs[0] += hec_attention_sees(HEC_ATTENTION_FULL, (hec_s2){0}, 3, q, k);
        pairs[1] += hec_attention_sees(HEC_ATTENTION_CAUSAL, (hec_s2){0}, 3, q, k);
      }
    ck_assert_int_eq(hec_attention_pairs(HEC_ATTENTION_FULL, (hec_s2){0}, 3, length), pairs[0]);
    ck_assert_int_eq(hec_attention_pairs(HEC_ATTENTION_CAUSAL, (hec_s2){0}, 3, length), pairs[1]);
    ck_assert(hec_attention_context(HEC_ATTENTION_FULL, (hec_s2){0}, 2, length) == length);
    ck_assert(hec_attention_context(HEC_ATTENTION_CAUSAL, (hec_s2){0}, 2, length) == 0.5 * length);
  }
}

/* The heads together see every key that causal attention sees, each head its shard and the window. No head's query is
 * without its own key. */
HEC_TEST(shards_cover_the_context) {
  uint64_t seed = 12;
  for (int n = 0; n < 300; n++) {
    int32_t n_heads = 1 + below(&seed, 9), length = 1 + below(&seed, 60), wrong = 0;
    hec_s2 s2 = random_s2(&seed, n_heads);
    for (int32_t q = 0; q < length; q++)
      for (int32_t k = 0; k <= q; k++) {
        int32_t seen = 0;
        for (int32_t h = 0; h < n_heads; h++)
          seen += hec_attention_sees(HEC_ATTENTION_S2, s2, h, q, k);
        wrong += seen < 1 || (k == q && seen < n_heads);
      }
    ck_assert_int_eq(wrong, 0);
  }
}

/* At sizes of models: causal at the limits, less with more shards and with less window, between shard and window. */
HEC_TEST(fewer_keys) {
  static const int32_t lengths[] = {1, 63, 64, 65, 2048, 131072, 1 << 28};
  for (int i = 0; i < 7; i++) {
    int32_t length = lengths[i];
    double causal = hec_attention_context(HEC_ATTENTION_CAUSAL, (hec_s2){0}, 32, length), before = causal;
    ck_assert(hec_attention_context(HEC_ATTENTION_S2, (hec_s2){.shards = 1, .local = 64, .block = 64}, 32, length) ==
              causal);
    if (length <= 1 << 17)
      ck_assert(hec_attention_context(HEC_ATTENTION_S2, (hec_s2){.shards = 32, .local = 1 << 17, .block = 64}, 32,
                                      length) == causal);
    for (int32_t shards = 2; shards <= 32; shards *= 2) {
      double now =
          hec_attention_context(HEC_ATTENTION_S2, (hec_s2){.shards = shards, .local = 64, .block = 64}, 32, length);
      double wide =
          hec_attention_context(HEC_ATTENTION_S2, (hec_s2){.shards = shards, .local = 1024, .block = 64}, 32, length);
      ck_assert(length > 1024 ? now < before && now < wide && wide < causal : now <= before && now <= wide);
      ck_assert(now >= causal / shards);
      before = now;
    }
  }
}

static const struct {
  const char *text, *written; /* written NULL: an error that says what was expected */
} forms[] = {
    {"full", "full"},
    {"causal", "causal"},
    {"s2", "s2:shards=8,local=1024,block=64"},
    {"s2:shards=4", "s2:shards=4,local=1024,block=64"},
    {"s2:dense=2,local=256,shards=16", "s2:shards=16,local=256,block=64,dense=2"},
    {"s2:block=2048", "s2:shards=8,local=2048,block=2048"},
    {"s2:block=48", "s2:shards=8,local=1008,block=48"},
    {"", NULL},
    {"half", NULL},
    {"s2:", NULL},
    {"s2:shards", NULL},
    {"s2:shards=", NULL},
    {"s2:shards=0", NULL},
    {"s2:shards=-1", NULL},
    {"s2:shards=2x", NULL},
    {"s2:shards=2,", NULL},
    {"s2:shards=2,shards=2", NULL},
    {"s2:shards=65537", NULL},
    {"s2:local=99999999999999999999999", NULL},
    {"s2:stride=2", NULL},
    {"s2 :shards=2", NULL},
    {"causal:local=2", NULL},
    {"window:local=128", "window:local=128"},
    {"window:dense=2,local=7", "window:local=7,dense=2"},
    {"window", NULL},
    {"window:", NULL},
    {"window:dense=2", NULL},
    {"window:local=4,shards=2", NULL},
    {"window:local=4,block=2", NULL},
};
HEC_TEST_ROWS(text, forms) {
  hec_attention kind = HEC_ATTENTION_FULL;
  hec_s2 s2 = {.dense = 77};
  const char *expected = hec_attention_read(forms[_i].text, &kind, &s2);
  ck_assert_msg((expected == NULL) == (forms[_i].written != NULL), "%s: %s", forms[_i].text, expected);
  if (expected) {
    ck_assert(kind == HEC_ATTENTION_FULL && s2.dense == 77);
    return;
  }
  HEC_SCOPED(hec_text) out = {0};
  hec_attention_write(kind, s2, 32, &out);
  ck_assert_str_eq(out.data, forms[_i].written);
  hec_attention again;
  hec_s2 same;
  ck_assert_ptr_null(hec_attention_read(out.data, &again, &same));
  hec_s2 filled = hec_s2_of(s2, 32);
  ck_assert(again == kind && (kind != HEC_ATTENTION_S2 || memcmp(&same, &filled, sizeof same) == 0));
}

HEC_TEST(wrong_parameters) {
  ck_assert_ptr_null(hec_s2_wrong((hec_s2){0}, 1));
  ck_assert_int_eq(hec_s2_of((hec_s2){0}, 3).shards, 3);
  ck_assert_ptr_null(hec_s2_wrong((hec_s2){.shards = 8}, 8));
  ck_assert_ptr_nonnull(strstr(hec_s2_wrong((hec_s2){.shards = 9}, 8), "shards"));
  ck_assert_ptr_nonnull(strstr(hec_s2_wrong((hec_s2){.local = 96}, 8), "local"));
  ck_assert_ptr_nonnull(strstr(hec_s2_wrong((hec_s2){.local = 4, .block = 8}, 8), "local"));
  hec_moe moe;
  ck_ok(hec_moe_load("gpt-moe-s", &moe));
  moe.attention = HEC_ATTENTION_S2;
  moe.s2.shards = moe.n_heads + 1;
  ck_refused(hec_moe_check(&moe, "x.json"), "x.json: attention: shards: expected at most the heads");
}

/* Which layers stay dense, one by one, and their numbers; blocks without MoE come first. */
HEC_TEST(dense_layers) {
  hec_moe moe;
  ck_ok(hec_moe_load("gpt-moe-s", &moe));
  for (int32_t n_layers = 1; n_layers < 9; n_layers++)
    for (int32_t n_moe = 1; n_moe <= n_layers; n_moe++)
      for (int32_t every = 0; every < 10; every++) {
        moe.attention = HEC_ATTENTION_S2;
        moe.s2 = (hec_s2){.dense = every};
        moe.n_layers = n_layers;
        moe.n_moe_layers = n_moe;
        int32_t there[2] = {0, 0};
        for (int32_t from_last = 0; every > 0 && from_last < n_layers; from_last += every) {
          there[0]++;
          there[1] += from_last < n_moe;
          if (from_last < n_moe)
            ck_assert(hec_moe_dense_attention(&moe, n_moe - 1 - from_last));
        }
        int32_t found = 0;
        for (int32_t l = 0; l < n_moe; l++)
          found += hec_moe_dense_attention(&moe, l);
        ck_assert(found == there[1] && hec_moe_n_dense_attention(&moe, true) == there[1] &&
                  hec_moe_n_dense_attention(&moe, false) == there[0]);
        moe.attention = HEC_ATTENTION_CAUSAL;
        ck_assert(!hec_moe_dense_attention(&moe, n_moe - 1) && hec_moe_n_dense_attention(&moe, false) == 0);
      }
}
