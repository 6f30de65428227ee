/* A small training job in pipeline stages, made of a layout: what tests that execute or predict stages begin with. */
#pragma once
#include "models/training/layout.h"
#include "runtime/exec/model/model.h"
#include "runtime/plan/problem.h"
#include "runtime/program/pipelines/pipeline_schedule.h"

typedef struct {
  const char *cluster, *layout, *pipeline;
  int32_t gpus, layers, experts, micro_batches;
  bool forward, zero;
} hec_test_stages_wish;

typedef struct {
  hec_moe moe;
  hec_cluster cluster;
  hec_problem problem; /* of the ranks of a stage, placed anew in every iteration */
  hec_model model;
  hec_layout layout;
  hec_pipeline_order order;
  int32_t *layer_at; /* [order.n_parts + 1] */
} hec_test_stages;

void hec_test_stages_make(hec_test_stages *s, hec_test_stages_wish w, hec_arena *arena);
