/* Pipeline `dualpipev`: dualpipe cut in half. Device d of p holds parts d and 2p-1-d. So the model goes down the
 * devices and comes back, and each part is on one device. The order: fold.c, with a fold of p ranks. */
#include "runtime/program/pipelines/fold.h"

static int32_t part(const hec_pipeline_shape *shape, int32_t device, int32_t chunk) {
  return chunk == 0 ? device : 2 * shape->n_stages - 1 - device;
}

static void order(hec_pipeline_order *o, int32_t device) {
  hec_pipeline_fold fold = {
      .n_ranks = o->shape.n_stages, .rank = device, .n_each_way = o->shape.n_micro_batches, .chunk = {0, 1}};
  hec_pipeline_folded(o, &fold);
}

static hec_status fits(const hec_pipeline_shape *s) {
  if (s->n_micro_batches < 2 * s->n_stages)
    return hec_pipeline_refuse("dualpipev", "at least 2 micro-batches per stage", s->n_micro_batches, "%d or more",
                               (int)(2 * s->n_stages));
  return HEC_OK;
}

const hec_pipeline_schedule hec_pipeline_dualpipev = {
    .name = "dualpipev",
    .summary = "down the stages and back, each forward beside a backward; one device holds each virtual stage",
    .source = "DualPipeV, github.com/deepseek-ai/DualPipe",
    .bubble = "(p-1) (F&B + B - 2W) / 2",
    .min_chunks = 2,
    .max_chunks = 2,
    .copies = 1,
    .splits = true,
    .pairs = true,
    .fits = fits,
    .part = part,
    .order = order,
};
