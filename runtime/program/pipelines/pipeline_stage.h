/* A pipeline stage: the layers of one device's parts as a problem of their own, on the ranks of a stage. Policies plan for it, it
 * has a program of its own. What the executor and whoever predicts it do alike. */
#pragma once
#include "runtime/plan/problem.h"
#include "runtime/program/lower.h"
#include "runtime/program/pipelines/pipeline_schedule.h"

typedef struct {
  const hec_pipeline_order *order; /* schedules whose parts have one device each */
  const int32_t *layer_at;         /* [n_parts + 1] layers of each part */
} hec_pipeline_parts;

typedef struct {
  int32_t device, n_layers;
  int32_t *layer;  /* [n_layers] in the model */
  int32_t *own_at; /* [n_chunks + 1] its layers by chunk */
  int32_t last;    /* micro-batch with whose backward gradients are complete */
  hec_moe moe;
  hec_problem problem;
} hec_pipeline_stage; /* must not move; of an arena */

/* `whole`: of all layers, on the ranks of a stage. */
hec_status hec_pipeline_stage_make(hec_pipeline_parts parts, int32_t device, const hec_problem *whole, hec_arena *arena,
                                   hec_pipeline_stage *stage) HEC_MUST_USE;
/* The rows of its layers. */
void hec_pipeline_stage_load(const hec_pipeline_stage *stage, const hec_load *whole, hec_load *own);
/* After hec_lowering_interleave: an iteration, piece after piece. `loads`: [n_micro_batches] its own. op_at: [pieces of the device + 1]
 * operations of the program behind each piece; the last one: at the end. */
void hec_pipeline_stage_lower(const hec_pipeline_stage *stage, const hec_pipeline_order *order, hec_lowering *low,
                              int64_t iter, const hec_load *loads, int32_t *op_at);

static inline int32_t hec_pipeline_part_of(const hec_pipeline_order *order, int32_t device, int32_t chunk) {
  return order->part[device * order->shape.n_chunks + chunk];
}
static inline int32_t hec_pipeline_device_of(const hec_pipeline_order *order, int32_t part) {
  return order->device[part * order->shape.n_micro_batches];
}
int32_t hec_pipeline_layers_of(hec_pipeline_parts parts, int32_t device);
