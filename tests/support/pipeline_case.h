/* Shapes, costs and texts for tests of pipelines. */
#pragma once
#include "runtime/program/pipelines/pipeline_schedule.h"

/* Sizes that the schedule can have: 1 to 6 stages (or 2, 4, 6, 8), up to 4 chunks, up to 30 micro-batches. */
hec_pipeline_shape hec_test_pipeline_shape(const hec_pipeline_schedule *schedule, uint64_t *seed);
/* The order, made and checked. */
hec_pipeline_order hec_test_pipeline_order(const char *name, hec_pipeline_shape shape, hec_arena *arena);
/* "F0 F1 B0 ...": F, I, W, B of a micro-batch, F1&B0 a pair; the second chunk has ', the third ''. In the arena. */
const char *hec_test_pipeline_text(const hec_pipeline_order *order, int32_t device, hec_arena *arena);
