/* Which keys a query sees, as text, as a mask and as exact counts.
 *
 *     full     all keys of the sequence
 *     causal   those up to the query
 *     s2       S2-Attention: of those up to the query a local window and one shard of the context, another shard in
 *              every head; the heads' shards together are the whole context
 *     window   a sliding window: the query's own key and those right before it, so many in all. It is s2 without shards
 *
 * As text (JSON and --attention): "full", "causal", "s2" or "s2:shards=8,local=1024,block=64,dense=2" with any of the
 * four in any order, "window:local=128" or "window:local=128,dense=2". Source of s2: Lin et al., "S2-Attention: Hardware-Aware Context Sharding Among Attention Heads",
 * arXiv:2407.17678, and the kernels that came with it. */
#pragma once
#include "runtime/base/text.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum { HEC_ATTENTION_FULL, HEC_ATTENTION_CAUSAL, HEC_ATTENTION_S2 } hec_attention;

/* Parameters of s2 and of a window, whose shards are HEC_S2_NO_SHARDS and whose blocks are tokens; 0: not given. Those not given are Phi-3-small's, the published model with such heads: blocks of
 * 64, 16 local blocks, stride 8. There are never more shards than heads. */
typedef struct {
  int32_t shards; /* of the context; a head sees every shards-th block, at most one shard per head */
  int32_t local;  /* tokens, a multiple of block: the query's own block and those right before it */
  int32_t block;  /* tokens; the mask is made of such blocks */
  int32_t dense;  /* every dense-th layer, the last one first, is causal (Phi-3-small: 2); 0: none */
} hec_s2;
enum { HEC_S2_SHARDS = 8, HEC_S2_LOCAL = 1024, HEC_S2_BLOCK = 64 };
enum { HEC_S2_SHARDS_MAX = 1 << 16, HEC_S2_TOKENS_MAX = 1 << 28, HEC_S2_NO_SHARDS = 1 << 30 };

/* Tokens of a sliding window, 0: it is none. */
static inline int32_t hec_s2_window(hec_s2 s2) {
  return s2.shards == HEC_S2_NO_SHARDS ? s2.local : 0;
}

/* NULL, or what was expected where `text` is wrong. Writes only on success; s2 is zero for other kinds. */
const char *hec_attention_read(const char *text, hec_attention *kind, hec_s2 *s2);
/* The form that hec_attention_read takes, with every parameter in force. */
void hec_attention_write(hec_attention kind, hec_s2 s2, int32_t n_heads, hec_text *text);

/* What is not given filled in. */
hec_s2 hec_s2_of(hec_s2 s2, int32_t n_heads);
/* NULL, or what is wrong with the parameters in force. */
const char *hec_s2_wrong(hec_s2 s2, int32_t n_heads);
/* The shard of a head: the blocks j of keys with j % shards == hec_s2_shard. s2 as from hec_s2_of. */
static inline int32_t hec_s2_shard(hec_s2 s2, int32_t head) {
  return s2.shards - 1 - head % s2.shards;
}

/* Whether a head's query sees a key, places in their sequence: the definition. s2 as from hec_s2_of. */
static inline bool hec_attention_sees(hec_attention kind, hec_s2 s2, int32_t head, int32_t query, int32_t key) {
  if (kind == HEC_ATTENTION_FULL || key > query)
    return kind == HEC_ATTENTION_FULL;
  if (kind == HEC_ATTENTION_CAUSAL)
    return true;
  int32_t from = query / s2.block, to = key / s2.block;
  return from - to < s2.local / s2.block || to % s2.shards == hec_s2_shard(s2, head);
}

/* Pairs (query, key) that a head sees in a sequence of `length` tokens; O(1). */
int64_t hec_attention_pairs(hec_attention kind, hec_s2 s2, int32_t head, int32_t length);

/* Keys per query, mean over queries and heads. A query's own key counts half (attention.c). That is length, length /
 * 2, or for s2 (pairs of all heads) / (heads * length) - 1/2. O(shards). */
double hec_attention_context(hec_attention kind, hec_s2 s2, int32_t n_heads, int32_t length);
