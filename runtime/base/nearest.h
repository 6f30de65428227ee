/* For a mistyped name, the one that was probably meant. */
#pragma once
#include "runtime/base/text.h"

/* A search among names that are offered one by one. `word`: what was typed; `nearest`: the best so far, NULL: none is near.
 * Letters' case and - for _ are no difference. Ties go to the name that was offered first. `longer`: those that begin with
 * the word, such as mixtral-8x7b with "mixtral". */
enum { HEC_NEAREST_LONGER = 4 };
typedef struct {
  const char *word, *nearest, *longer[HEC_NEAREST_LONGER];
  size_t distance;
  int n_longer;
} hec_nearest_search;
void hec_nearest_offer(hec_nearest_search *search, const char *name);
/* Adds ` (did you mean "X"?)`, else ` (did you mean "X1" or "X2"?)` of the longer ones, or nothing: the one form of it in every
 * message. */
void hec_nearest_hint(const hec_nearest_search *search, hec_text *words);

/* The same over names[n]. */
const char *hec_nearest(const char *word, const char *const *names, size_t n);
