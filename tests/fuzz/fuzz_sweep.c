/* Any bytes as the spec of a sweep: an error, or a product whose every configuration can be asked for. */
#include "tools/front/sweep/sweep.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  HEC_SCOPED(hec_sweep) sweep = {0};
  if (hec_sweep_parse((const char *)data, size, "fuzz", &sweep) == HEC_OK) {
    if (sweep.n < 1 || sweep.n > HEC_SWEEP_ROWS_MAX || sweep.n % sweep.per_job != 0)
      abort();
    for (int64_t i = 0; i < sweep.n; i += 1 + sweep.n / 64) {
      hec_job_options options = HEC_JOB_OPTIONS;
      hec_training_args training = HEC_TRAINING_ARGS;
      hec_sweep_options(&sweep, i, &options, &training);
      int32_t owners = 0;
      for (int32_t shard = 0; shard < 3; shard++)
        owners += hec_sweep_mine(&sweep, i, shard, 3);
      if (owners != 1 || !hec_sweep_at(&sweep, i, HEC_AXIS_policy)->text[0])
        abort();
    }
  }
  return 0;
}
