/* Matrices that fit a core's own cache, so that it is the core's speed and no one else's memory traffic. The
 * fastest repeat counts: the first finds cold caches, and an interruption is counted elsewhere. */
#include "runtime/exec/launch/probe.h"

#include "runtime/exec/launch/rank.h"
#include "runtime/exec/math/math.h"

static float *filled(hec_arena *arena, int32_t step) {
  float *x = HEC_NEW(arena, float, HEC_PROBE_SIZE *HEC_PROBE_SIZE);
  for (int32_t i = 0; i < HEC_PROBE_SIZE * HEC_PROBE_SIZE; i++)
    x[i] = (float)(i * step % 17 - 8);
  return x;
}

hec_probe hec_probe_new(hec_arena *arena) {
  return (hec_probe){filled(arena, 3), filled(arena, 5), filled(arena, 1)};
}

double hec_probe_run(const hec_probe *probe) {
  hec_gemm gemm = {.m = HEC_PROBE_SIZE,
                   .n = HEC_PROBE_SIZE,
                   .k = HEC_PROBE_SIZE,
                   .a = probe->a,
                   .b = probe->b,
                   .c = probe->c,
                   .alpha = 1};
  int64_t min_ns = INT64_MAX;
  for (int32_t i = 0; i < HEC_PROBE_REPEATS; i++) {
    int64_t begin_ns = hec_clock_ns();
    hec_math_gemm(&gemm);
    int64_t ns = hec_clock_ns() - begin_ns;
    min_ns = ns < min_ns ? ns : min_ns;
  }
  return 1e-9 * (double)min_ns;
}
