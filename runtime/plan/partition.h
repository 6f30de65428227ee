/* Experts in as many groups as there are ranks, sums as equal as can be: the first problem of MoETuner. */
#ifndef HEC_PLAN_PARTITION_H
#define HEC_PLAN_PARTITION_H
#include "runtime/base/arena.h"

typedef struct {
  int32_t n_items, n_parts;
  int32_t *part;  /* [n_items] result */
  uint64_t *sum;  /* [n_parts] result */
  int32_t *count; /* [n_parts] result: at most ceil(n_items / n_parts), at least 1 where there are items enough */
  double *key;    /* scratch [n_items] */
  int32_t *order; /* scratch [n_items] */
  uint64_t units; /* inner steps of the last one */
} hec_partition;

hec_partition hec_partition_new(hec_arena *arena, int32_t n_items, int32_t n_parts);
/* A heuristic; an exact solver would stand beside it and write the same results. */
void hec_partition_make(hec_partition *partition, const uint64_t *weight);
/* n_parts times the sum over parts of |sum - mean|. */
uint64_t hec_partition_deviation(const hec_partition *partition);

#endif
