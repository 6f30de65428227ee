/* The critical path of a timeline: the chain of (operation, rank) steps that decides how long the iteration takes. */
#pragma once
#include "runtime/program/timeline.h"

typedef struct {
  int32_t op, rank;
  int64_t begin_ps, end_ps; /* from the end of the step before it, so it may begin with a latency; never empty */
} hec_critical_step;

typedef struct {
  hec_critical_step
      *steps; /* [n] in the order of time; each begins where the one before it ends, the last one ends with
                               the iteration */
  int32_t n;
  size_t capacity;
} hec_critical_path; /* zero-initialise */

/* Replaces the steps. Where the first rank of the path begins late (late_ps), the path begins with it. */
void hec_critical_path_find(hec_critical_path *path, const hec_timeline *timeline, const hec_program *program);
void hec_critical_path_free(hec_critical_path *path);
