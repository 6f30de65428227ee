/* Sets of ranks as bits, 64 to a word: joined, compared and counted a word at a time. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

static inline int32_t hec_rank_set_words(int32_t n_ranks) {
  return (n_ranks + 63) / 64;
}

static inline void hec_rank_set_add(uint64_t *set, int32_t rank) {
  set[rank / 64] |= (uint64_t)1 << rank % 64;
}

static inline void hec_rank_set_remove(uint64_t *set, int32_t rank) {
  set[rank / 64] &= ~((uint64_t)1 << rank % 64);
}

static inline bool hec_rank_set_has(const uint64_t *set, int32_t rank) {
  return set[rank / 64] >> rank % 64 & 1;
}

static inline int32_t hec_rank_set_size(const uint64_t *set, int32_t n_words) {
  int32_t n = 0;
  for (int32_t w = 0; w < n_words; w++)
    n += __builtin_popcountll(set[w]);
  return n;
}

/* The ranks, ascending: their number. */
static inline int32_t hec_rank_set_list(const uint64_t *set, int32_t n_words, int32_t *ranks) {
  int32_t n = 0;
  for (int32_t w = 0; w < n_words; w++)
    for (uint64_t left = set[w]; left != 0; left &= left - 1)
      ranks[n++] = 64 * w + __builtin_ctzll(left);
  return n;
}
