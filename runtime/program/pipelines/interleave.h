/* The order of Megatron's interleaved schedule, which the rows `interleaved` and `1f1b-overlap` share (interleave.c). */
#pragma once
#include "runtime/program/pipelines/pipeline_schedule.h"

/* `pairs`: a forward and the backward that follows it become a pair; one more forward before the first. */
void hec_pipeline_interleave(hec_pipeline_order *order, int32_t device, bool pairs);
/* Whether micro-batches and groups fit, as Megatron asks it. */
hec_status hec_pipeline_interleave_fits(const char *name, const hec_pipeline_shape *shape);
