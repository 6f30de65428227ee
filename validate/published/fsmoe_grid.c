/* One bench, 1,458 studies, six schedules each. That is some nine walks of a program of at most 34 operations a layer
 * and direction. The whole grid takes about a second on one core. */
#include "validate/published/fsmoe_grid.h"

#include "runtime/base/status.h"

hec_fsmoe_grid_result hec_fsmoe_grid(const hec_fsmoe_testbed *testbed, hec_fsmoe_grid_options options) {
  HEC_ASSERT(options.layers > 0 && options.stride > 0);
  hec_fsmoe_bench *bench = hec_fsmoe_bench_new(options.layers);
  hec_fsmoe_grid_result result = {0};
  for (int32_t i = 0; i < HEC_FSMOE_GRID; i += options.stride) {
    hec_fsmoe_shape shape = hec_fsmoe_grid_shape(testbed, i);
    hec_fsmoe_case_study study = hec_fsmoe_study(testbed, &shape, options.table);
    double ms[HEC_N_FSMOE_SYSTEMS];
    for (int32_t s = 0; s < HEC_N_FSMOE_SYSTEMS; s++)
      ms[s] = hec_fsmoe_bench_ms(bench, &study, (hec_fsmoe_system)s);
    for (int32_t s = 0; s < HEC_N_FSMOE_SYSTEMS; s++) {
      double gain = ms[HEC_FSMOE_TUTEL] / ms[s];
      result.mean[s] += gain;
      result.min[s] = result.n == 0 || gain < result.min[s] ? gain : result.min[s];
      result.max[s] = gain > result.max[s] ? gain : result.max[s];
      result.slower[s] += gain < 1;
    }
    result.two_degrees += hec_fsmoe_best(&study.moe[0], 0, HEC_FSMOE_DEGREE_MAX).degree !=
                          hec_fsmoe_best(&study.moe[1], 0, HEC_FSMOE_DEGREE_MAX).degree;
    result.n++;
    if (options.each)
      options.each(i, ms, options.context);
  }
  for (int32_t s = 0; s < HEC_N_FSMOE_SYSTEMS; s++)
    result.mean[s] /= result.n;
  hec_fsmoe_bench_free(bench);
  return result;
}
