/* For a mistyped name, the one that was probably meant. */
#pragma once
#include "runtime/base/text.h"

/* A search among names that are offered one by one. `word`: what was typed; `nearest`: the best so far, NULL: none is near.
 * Letters' case, - for _ and the dashes before an option are no difference. Ties go to the name that was offered first.
 * `longer`: the shortest ones that begin with the word, such as mixtral-8x7b with "mixtral", the shortest first. */
enum { HEC_NEAREST_LONGER = 4 };
typedef struct {
  const char *word, *nearest, *longer[HEC_NEAREST_LONGER];
  size_t distance;
  int n_longer;
} hec_nearest_search;
void hec_nearest_offer(hec_nearest_search *search, const char *name);
/* Adds ` (did you mean "X"?)`, or ` (did you mean "X1" or "X2"?)`, or nothing: the one form of it in every message. Names that
 * begin with the word go before the nearest one. */
void hec_nearest_hint(const hec_nearest_search *search, hec_text *words);

/* The nearest of names[n]; that it begins with the word is not enough. */
const char *hec_nearest(const char *word, const char *const *names, size_t n);
