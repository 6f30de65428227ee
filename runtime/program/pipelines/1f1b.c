/* Pipeline `1f1b`: stage s of p begins with p - 1 - s forwards. Then a forward and a backward in turn, so that it holds p - s
 * micro-batches at most; then the rest of the backwards. */
#include "runtime/program/pipelines/pipeline_schedule.h"

static void order(hec_pipeline_order *o, int32_t device) {
  int32_t n = o->shape.n_micro_batches, ahead = o->shape.n_stages - 1 - device;
  for (int32_t i = 0; i < n + ahead; i++) {
    if (i < n)
      hec_pipeline_add(o, HEC_PIECE_FORWARD, 0, i);
    if (i >= ahead)
      hec_pipeline_add(o, HEC_PIECE_BACKWARD, 0, i - ahead);
  }
}

const hec_pipeline_schedule hec_pipeline_1f1b = {
    .name = "1f1b",
    .summary = "one forward, one backward; holds at most as many micro-batches as there are stages",
    .source = "PipeDream-Flush, arXiv:2006.09503; Megatron-LM, arXiv:2104.04473",
    .bubble = "(p-1) (F+B+W)",
    .min_chunks = 1,
    .max_chunks = 1,
    .copies = 1,
    .order = order,
};
