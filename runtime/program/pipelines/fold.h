/* The order of DeepSeek's DualPipe, which the rows `dualpipe` and `dualpipev` share (fold.c). */
#pragma once
#include "runtime/program/pipelines/pipeline_schedule.h"

typedef struct {
  int32_t n_ranks, rank;  /* of the fold: rank 0 is its open end, the last one has the fold */
  int32_t n_each_way;     /* micro-batches that a chunk of the device sees */
  int32_t chunk[2];       /* of the device: the one that a micro-batch meets first ("way 0"), and the other */
  int32_t micro_batch[2]; /* the first micro-batch of way 0 and of way 1 */
} hec_pipeline_fold;

void hec_pipeline_folded(hec_pipeline_order *order, const hec_pipeline_fold *fold);
