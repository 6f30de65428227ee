/* Pipeline `gpipe`: all forwards, then all backwards, the last micro-batch first: its activations are the newest. */
#include "runtime/program/pipelines/pipeline_schedule.h"

static void order(hec_pipeline_order *o, int32_t device) {
  (void)device;
  for (int32_t i = 0; i < o->shape.n_micro_batches; i++)
    hec_pipeline_add(o, HEC_PIECE_FORWARD, 0, i);
  for (int32_t i = o->shape.n_micro_batches - 1; i >= 0; i--)
    hec_pipeline_add(o, HEC_PIECE_BACKWARD, 0, i);
}

const hec_pipeline_schedule hec_pipeline_gpipe = {
    .name = "gpipe",
    .summary = "all forwards, then all backwards",
    .source = "GPipe, arXiv:1811.06965",
    .bubble = "(p-1) (F+B+W)",
    .min_chunks = 1,
    .max_chunks = 1,
    .copies = 1,
    .order = order,
};
