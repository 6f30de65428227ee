/* For a mistyped name, the one that was probably meant. */
#ifndef HEC_BASE_NEAREST_H
#define HEC_BASE_NEAREST_H
#include <stddef.h>

/* The name of names[n] that a few slips of the keyboard make of `word` (letters' case and - for _ are none), NULL: no name is
 * that near. Ties to the first. */
const char *hec_nearest(const char *word, const char *const *names, size_t n);

#endif
