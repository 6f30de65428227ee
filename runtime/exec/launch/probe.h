/* A speed probe: a fixed piece of arithmetic whose time says how fast a rank's core is at this moment. Cores of rented and
 * shared machines change their speed (frequency, neighbours) without any trace in CPU time. What is measured beside a probe
 * can be compared with what was measured at another time. */
#pragma once
#include "runtime/base/arena.h"

typedef struct {
  float *a, *b, *c; /* HEC_PROBE_SIZE squared */
} hec_probe;
enum { HEC_PROBE_SIZE = 256, HEC_PROBE_REPEATS = 4 };

hec_probe hec_probe_new(hec_arena *arena);
/* Seconds of a multiplication of square matrices, the fastest of HEC_PROBE_REPEATS (about a millisecond in all). */
double hec_probe_run(const hec_probe *probe);
