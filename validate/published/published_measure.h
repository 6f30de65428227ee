/* How the rows of published_rows.c are measured: a ratio (low == high) or the range of several. Private to validate/.
 */
#ifndef HEC_VALIDATE_PUBLISHED_MEASURE_H
#define HEC_VALIDATE_PUBLISHED_MEASURE_H
#include "validate/published/published_rows.h"

/* clang-format off */
#define HEC_MEASURE_LIST(X) \
  X(ep_imbalance) X(a2a) X(layer_geo) X(layer_range) X(full_vs_sharding) X(full_vs_materialisation) \
  X(rm_slow_down) X(rm_sparse) X(rm_three) X(rm_vs_best) X(rm_most) X(rm_ahead) X(memory_hecate) \
  X(memory_params) X(memory_rm) X(memory_flexmoe) X(reshard) X(reshard_flat) X(best_a16) X(best_a32) \
  X(best_b32) X(best_b16) X(ep_a16) X(ep_a32) X(ep_b32) X(ep_b16) X(ep_most) X(growth) X(hecate_fastest) \
  X(slower_than_ep) X(sparse_below) X(smartmoe_ordinary) X(smartmoe_total) X(flexmoe_four)
/* clang-format on */
#define HEC_MEASURE_DECLARE(name) hec_span hec_measure_##name(hec_lab *lab, const hec_lab_models *models);
HEC_MEASURE_LIST(HEC_MEASURE_DECLARE)

#endif
