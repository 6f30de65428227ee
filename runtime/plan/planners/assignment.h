/* The linear assignment problem: every row to a column of its own, at the least sum of costs. Own code: every rank must find the
 * same one, whatever libraries it has. */
#pragma once
#include "runtime/base/arena.h"

typedef struct {
  int32_t n;                  /* at most what it was made with */
  double *cost;               /* [n * n] in: of row r and column c at r * n + c; whole numbers are exact */
  int32_t *column;            /* [n] result */
  double *u, *v, *min;        /* scratch [n + 1] */
  int32_t *row_of, *previous; /* scratch [n + 1] */
  uint8_t *used;              /* scratch [n + 1] */
} hec_assignment;

hec_assignment hec_assignment_new(hec_arena *arena, int32_t n);
double hec_assignment_make(hec_assignment *assignment); /* returns the sum; ties go to the lower column */
