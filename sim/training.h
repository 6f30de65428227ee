/* A training step under a parallel layout: micro-batches through pipeline stages, data-parallel traffic, optimizer. Costs of
 * layers are those of models/training/step.h. */
#ifndef HEC_SIM_TRAINING_H
#define HEC_SIM_TRAINING_H
#include "models/training/step.h"

typedef struct {
  double step_s;
  double stage_s;    /* one micro-batch on the slowest device, forward and backward */
  double bubble_s;   /* of the slowest device */
  double dispatch_s; /* exposed dispatch and combine of that device, all micro-batches */
  double tensor_s;   /* exposed tensor-parallel traffic, the same */
  double data_s;     /* exposed data-parallel traffic */
  double optimizer_s;
  double tokens_per_s_per_gpu, model_tflops_per_gpu;
  double mfu; /* of the dense bf16 peak on the data sheet */
  double gpu_hours_per_1e12_tokens;
} hec_training_result;

void hec_training_run(const hec_training *training, hec_training_result *result);

#endif
