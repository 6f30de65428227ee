/* What a language model has around its MoE blocks: the embedding in front; a norm without gains, the head and the
 * cross entropy behind. Like model.h it is mathematics on memory that the caller brings, and both the executor and the
 * reference call it. `model.moe.vocabulary` is the number of symbols V, at most 256. Parameters, as one array of
 * 2 V d floats (hec_moe_embedding_params): embedding [V, d], head [d, V].
 *
 *     x = embedding[id]   ...blocks...   h = x / sqrt(mean(x^2) + 1e-6)   z = h head   loss = sum over tokens of
 *     ln(sum_v exp z_v) - z_next */
#pragma once
#include "runtime/exec/model/model.h"

enum { HEC_SYMBOLS_MAX = 256 };

/* hec_model_make with a vocabulary, for training: `rate` of Adam, epsilon 1e-8 (gradients are of a mean loss: small). */
hec_status hec_language_make(const hec_moe *moe, int32_t vocabulary, float rate, uint64_t seed,
                             hec_model *model) HEC_MUST_USE;
int64_t hec_language_size(const hec_model *model); /* parameters of embedding and head */
void hec_language_init(const hec_model *model, float *params);
/* Where sequence `sequence` of step `step` begins among n places: a function of the model's seed and both. */
int64_t hec_language_window(const hec_model *model, int64_t step, int64_t sequence, int64_t n);

typedef struct {
  const hec_model *model;
  int32_t tokens;
  const float *params; /* [size] */
  float *grads;        /* [size], += */
  float *kept;         /* [hec_language_kept] from the head's forward to its backward */
} hec_language;
int64_t hec_language_kept(const hec_model *model, int32_t tokens); /* floats */

void hec_language_embed(const hec_language *language, const uint8_t *ids, float *x);
void hec_language_embed_backward(const hec_language *language, const uint8_t *ids, const float *dx);
/* The sum of the tokens' losses; x [T, d] is kept. */
double hec_language_head(const hec_language *language, const uint8_t *next, const float *x);
/* dx [T, d] = gradient of factor * sum of losses. */
void hec_language_head_backward(const hec_language *language, const uint8_t *next, float factor, float *dx);

/* ---- Text ---- */

/* A text as symbols: the distinct bytes of it in ascending order. */
typedef struct {
  uint8_t *ids; /* [n] */
  int64_t n;
  int32_t vocabulary;
  uint8_t byte_of[HEC_SYMBOLS_MAX];
} hec_corpus;
/* A file of at most 1 GiB; fewer than two distinct bytes: HEC_BAD_INPUT. */
hec_status hec_corpus_load(const char *path, hec_corpus *corpus) HEC_MUST_USE;
hec_status hec_corpus_make(const char *bytes, size_t n, const char *origin, hec_corpus *corpus) HEC_MUST_USE;
void hec_corpus_free(hec_corpus *corpus);

/* The tokens of rank r in a micro-batch: tokens / seq_len windows of seq_len + 1 bytes at random places of the text.
 * Windows are numbered through micro-batches and ranks, so that any split of the same number of them is the same batch. */
typedef struct {
  int64_t step;
  int32_t micro_batch, rank, n_ranks, tokens;
} hec_corpus_place;
/* HEC_BAD_INPUT when seq_len does not divide tokens or the text is shorter than a window. */
hec_status hec_corpus_check(const hec_corpus *corpus, const hec_model *model, int32_t tokens) HEC_MUST_USE;
void hec_corpus_batch(const hec_corpus *corpus, const hec_model *model, hec_corpus_place place, uint8_t *ids,
                      uint8_t *next);
