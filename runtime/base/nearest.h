/* For a mistyped name, the one that was probably meant. */
#ifndef HEC_BASE_NEAREST_H
#define HEC_BASE_NEAREST_H
#include <stddef.h>

/* A search among names that are offered one by one. `word`: what was typed; `nearest`: the best so far, NULL: none is near.
 * Letters' case and - for _ are no difference. Ties go to the name that was offered first. */
typedef struct {
  const char *word, *nearest;
  size_t distance;
} hec_nearest_search;
void hec_nearest_offer(hec_nearest_search *search, const char *name);

/* The same over names[n]. */
const char *hec_nearest(const char *word, const char *const *names, size_t n);

#endif
