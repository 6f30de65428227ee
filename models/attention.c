/* Attention kinds: text, and how many keys a query sees.
 *
 * Pairs of one head in a sequence of L tokens:
 *     full     L^2
 *     causal   L (L + 1) / 2
 *     s2       blocks of b tokens, local window of w blocks, shard c of v (Lin et al., arXiv:2407.17678): query q in
 *              block i sees key k <= q in block j when i - j < w or j % v == c. A key of block j leaves the local
 *              window at queries of block j + w. It is outside for max(0, L - (j + w) b) queries. So
 *                  pairs = L (L + 1) / 2 - far(0, 1) + far(c, v)
 *                  far(c, v) = sum over j = c, c + v, .. with (j + w) b < L of b (L - (j + w) b)
 *              the sum of an arithmetic series, in whole numbers.
 * FLOPs are 4 * context * heads * d_head per token and forward (QK^T and AV, compute_cost.c), twice that backward.
 *
 * The context of causal attention is L / 2, as everybody counts it (FlashAttention: half of full), not (L + 1) / 2. So
 * a query's own key counts half. s2 is counted alike. So it is causal attention where the window or one shard covers
 * everything, and less elsewhere.
 *
 * Which shard a head has: the kernels of the paper let head h see blocks j with (j + h + 1) % v == 0. So shard
 * v - 1 - h % v. With more shards than heads some of the context would be in no head's shard: refused. Heads that share
 * keys (kv_heads) have shards of their own all the same. The block is the kernels' tile there; here it may be any number.
 *
 * A window of w tokens is s2 with blocks of one token and so many shards that no key is in one: far(c, v) = 0.
 *
 * Inferred: which layers stay dense. Phi-3-small has every second, the last included (layers 2, 4, .. 32). Here they
 * are counted from the last layer. That gives the same layers where the number divides the layers. And it does not
 * depend on how many layers without MoE come before.
 * Not modelled: a shorter context also reads fewer keys and values from memory. Here they are counted once per token,
 * as for every kind. Also not modelled: caches of keys and values in serving. */
#include "models/attention.h"

#include <stddef.h>
#include <string.h>

static const char *const kinds[] = {"full", "causal", "s2"}; /* in the order of hec_attention */

#define FORM "\"full\", \"causal\", \"s2\" (s2:shards=N,local=N,block=N,dense=N) or \"window:local=N,dense=N\""

static const struct {
  const char *key, *expected;
  size_t offset;
  int32_t max;
} parameters[] = {
    {"shards", "shards= from 1 to 65536, once", offsetof(hec_s2, shards), HEC_S2_SHARDS_MAX},
    {"local", "local= tokens from 1 to 268435456, once", offsetof(hec_s2, local), HEC_S2_TOKENS_MAX},
    {"block", "block= tokens from 1 to 268435456, once", offsetof(hec_s2, block), HEC_S2_TOKENS_MAX},
    {"dense", "dense= every how many layers, from 1 to 65536, once", offsetof(hec_s2, dense), HEC_S2_SHARDS_MAX},
};
enum { N_PARAMETERS = sizeof parameters / sizeof *parameters };

/* Digits alone, from 1 to `max`, up to a comma or the end; 0: anything else. */
static int32_t read_number(const char **at, int32_t max) {
  int64_t value = 0;
  for (; **at >= '0' && **at <= '9' && value <= max; (*at)++)
    value = 10 * value + (**at - '0');
  return (**at == 0 || **at == ',') && value <= max ? (int32_t)value : 0;
}

static const char *read_parameter(const char **at, hec_s2 *s2) {
  for (int i = 0; i < N_PARAMETERS; i++) {
    size_t length = strlen(parameters[i].key);
    int32_t *value = (int32_t *)((char *)s2 + parameters[i].offset);
    if (strncmp(*at, parameters[i].key, length) != 0 || (*at)[length] != '=')
      continue;
    *at += length + 1;
    if (*value != 0 || (*value = read_number(at, parameters[i].max)) == 0)
      return parameters[i].expected;
    return NULL;
  }
  return FORM;
}

const char *hec_attention_read(const char *text, hec_attention *kind, hec_s2 *s2) {
  hec_s2 read = {0};
  for (int i = 0; i < 3; i++)
    if (strcmp(text, kinds[i]) == 0) {
      *kind = (hec_attention)i;
      *s2 = read;
      return NULL;
    }
  bool window = strncmp(text, "window:", 7) == 0;
  if (!window && strncmp(text, "s2:", 3) != 0)
    return FORM;
  for (const char *at = strchr(text, ':'); *at != 0;) {
    at++; /* ':' or ',' */
    const char *expected = read_parameter(&at, &read);
    if (expected)
      return expected;
  }
  if (window && (read.local == 0 || read.shards > 0 || read.block > 0))
    return "a window of local= tokens, without shards= and block=";
  if (window) {
    read.shards = HEC_S2_NO_SHARDS;
    read.block = 1;
  }
  *kind = HEC_ATTENTION_S2;
  *s2 = read;
  return NULL;
}

void hec_attention_write(hec_attention kind, hec_s2 s2, int32_t n_heads, hec_text *text) {
  int32_t window = kind == HEC_ATTENTION_S2 ? hec_s2_window(s2) : 0;
  hec_text_add(text, window > 0 ? "window" : kinds[kind]);
  if (kind != HEC_ATTENTION_S2)
    return;
  s2 = hec_s2_of(s2, n_heads);
  if (window > 0)
    hec_text_printf(text, ":local=%d", (int)window);
  else
    hec_text_printf(text, ":shards=%d,local=%d,block=%d", (int)s2.shards, (int)s2.local, (int)s2.block);
  if (s2.dense > 0)
    hec_text_printf(text, ",dense=%d", (int)s2.dense);
}

hec_s2 hec_s2_of(hec_s2 s2, int32_t n_heads) {
  if (s2.shards == 0)
    s2.shards = n_heads < HEC_S2_SHARDS ? n_heads : HEC_S2_SHARDS;
  if (s2.block == 0)
    s2.block = HEC_S2_BLOCK;
  if (s2.local == 0) /* as many tokens; whole blocks, one at least */
    s2.local = s2.block < HEC_S2_LOCAL ? HEC_S2_LOCAL / s2.block * s2.block : s2.block;
  return s2;
}

const char *hec_s2_wrong(hec_s2 s2, int32_t n_heads) {
  s2 = hec_s2_of(s2, n_heads);
  if (s2.shards < 1 || (s2.shards > n_heads && s2.shards != HEC_S2_NO_SHARDS))
    return "shards: expected at most the heads, so that they cover the context";
  if (s2.block < 1 || s2.local < s2.block || s2.local % s2.block != 0)
    return "local: expected a multiple of block, at least one";
  return s2.dense < 0 ? "dense: expected a number of layers" : NULL;
}

/* far(c, v) of the header. Every product is at most L^2 <= 2^56. */
static int64_t far_pairs(hec_s2 s2, int64_t first, int64_t step, int64_t length) {
  int64_t block = s2.block, window = s2.local / s2.block, max = length - (first + window) * block;
  if (max <= 0)
    return 0;
  int64_t n = (max - 1) / (step * block) + 1;
  return block * (n * max - n * (n - 1) / 2 * step * block);
}

int64_t hec_attention_pairs(hec_attention kind, hec_s2 s2, int32_t head, int32_t length) {
  int64_t n = length, all = n * (n + 1) / 2;
  if (kind == HEC_ATTENTION_FULL)
    return n * n;
  if (kind == HEC_ATTENTION_CAUSAL)
    return all;
  return all - far_pairs(s2, 0, 1, n) + far_pairs(s2, hec_s2_shard(s2, head), s2.shards, n);
}

double hec_attention_context(hec_attention kind, hec_s2 s2, int32_t n_heads, int32_t length) {
  if (kind != HEC_ATTENTION_S2)
    return kind == HEC_ATTENTION_FULL ? (double)length : (double)length / 2;
  s2 = hec_s2_of(s2, n_heads);
  double sum = 0;
  for (int32_t h = 0; h < s2.shards && h < n_heads; h++) { /* heads with the same shard at once */
    int32_t alike = (n_heads - h + s2.shards - 1) / s2.shards;
    sum += (double)alike * (double)hec_attention_pairs(kind, s2, h, length);
  }
  return sum / ((double)n_heads * (double)length) - 0.5;
}
