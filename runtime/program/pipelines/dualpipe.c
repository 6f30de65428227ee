/* Pipeline `dualpipe`: micro-batches enter at both ends. Device d of p holds part d and part p-1-d, so each part is on two
 * devices. The first half of the micro-batches goes from device 0 on, the other half from device p-1 on. The order: fold.c,
 * where devices d and p-1-d are the same rank of a fold of p/2 ranks. */
#include "runtime/program/pipelines/fold.h"

static int32_t part(const hec_pipeline_shape *shape, int32_t device, int32_t chunk) {
  return chunk == 0 ? device : shape->n_stages - 1 - device;
}

static void order(hec_pipeline_order *o, int32_t device) {
  int32_t p = o->shape.n_stages, half = o->shape.n_micro_batches / 2, far = device >= p / 2;
  hec_pipeline_fold fold = {.n_ranks = p / 2,
                            .rank = far ? p - 1 - device : device,
                            .n_each_way = half,
                            .chunk = {far, 1 - far},
                            .micro_batch = {far * half, (1 - far) * half}};
  hec_pipeline_folded(o, &fold);
}

static hec_status fits(const hec_pipeline_shape *s) {
  int32_t p = s->n_stages, n = s->n_micro_batches;
  if (p % 2 == 1)
    return p == 1
               ? hec_pipeline_refuse("dualpipe", "an even number of stages", p, "2, or dualpipev")
               : hec_pipeline_refuse("dualpipe", "an even number of stages", p, "%d or %d", (int)(p - 1), (int)(p + 1));
  if (n < 2 * p)
    return hec_pipeline_refuse("dualpipe", "at least 2 micro-batches per stage", n, "%d or more", (int)(2 * p));
  if (n % 2 == 1)
    return hec_pipeline_refuse("dualpipe", "an even number of micro-batches", n, "%d or %d", (int)(n - 1),
                               (int)(n + 1));
  return HEC_OK;
}

const hec_pipeline_schedule hec_pipeline_dualpipe = {
    .name = "dualpipe",
    .summary = "from both ends, each forward beside a backward; two devices hold each virtual stage",
    .source = "DeepSeek-V3, arXiv:2412.19437",
    .bubble = "(p/2-1) (F&B + B - 2W)",
    .min_chunks = 2,
    .max_chunks = 2,
    .copies = 2,
    .splits = true,
    .pairs = true,
    .fits = fits,
    .part = part,
    .order = order,
};
