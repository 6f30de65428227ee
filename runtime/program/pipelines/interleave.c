/* Interleaved 1f1b of Megatron-LM (arXiv:2104.04473; megatron/core/pipeline_parallel/schedules.py).
 *
 * Micro-batches go in groups of g (as a rule g = p). A device runs a group in its first chunk, then in its second and so on,
 * then the next group. Backwards come in the same order with the last chunk first. Before the first backward device d runs
 *
 *     2 (p - 1 - d) + (v - 1) g     forwards, and one more with pairs: a forward and a backward of a pair may not wait for
 *                                   each other
 *
 * Then a forward and a backward in turn, then the rest of the backwards. The last group may be larger or smaller than
 * g, but not smaller than p. Else a micro-batch would be asked for before it can be there. */
#include "runtime/program/pipelines/interleave.h"

/* Which micro-batch and chunk the i-th of all forwards is. */
static int32_t micro_batch_of(const hec_pipeline_shape *s, int32_t i, int32_t *chunk) {
  int32_t first = i / (s->group * s->n_chunks) * s->group, left = s->n_micro_batches - first;
  int32_t size = left < s->group ? left : s->group, inside = i - first * s->n_chunks;
  *chunk = inside / size;
  return first + inside % size;
}

void hec_pipeline_interleave(hec_pipeline_order *o, int32_t device, bool pairs) {
  const hec_pipeline_shape *s = &o->shape;
  int32_t all = s->n_micro_batches * s->n_chunks;
  int32_t ahead = 2 * (s->n_stages - 1 - device) + (s->n_chunks - 1) * s->group + (pairs ? 1 : 0);
  if (ahead > all)
    ahead = all;
  for (int32_t i = 0; i < all + ahead; i++) {
    int32_t forward = 0, backward = 0;
    int32_t forward_of = i < all ? micro_batch_of(s, i, &forward) : -1;
    int32_t backward_of = i >= ahead ? micro_batch_of(s, i - ahead, &backward) : -1;
    backward = s->n_chunks - 1 - backward;
    if (pairs && forward_of >= 0 && backward_of >= 0) {
      hec_pipeline_add_pair(o, forward, forward_of, backward, backward_of);
      continue;
    }
    if (forward_of >= 0)
      hec_pipeline_add(o, HEC_PIECE_FORWARD, forward, forward_of);
    if (backward_of >= 0)
      hec_pipeline_add(o, HEC_PIECE_BACKWARD, backward, backward_of);
  }
}

hec_status hec_pipeline_interleave_fits(const char *name, const hec_pipeline_shape *s) {
  int32_t p = s->n_stages, n = s->n_micro_batches, below = n / p * p;
  if (s->group < p || s->group > (1 << 20))
    return hec_pipeline_refuse(name, "groups of at least as many micro-batches as stages", s->group, "%d or more",
                               (int)p);
  if (n < p)
    return hec_pipeline_refuse(name, "at least as many micro-batches as stages", n, "%d or more", (int)p);
  if (n % s->group == 0 || n % s->group >= p)
    return HEC_OK;
  if (s->group > p)
    return hec_pipeline_refuse(name, "a last group of no fewer micro-batches than stages", n % s->group,
                               "groups of %d, or %d micro-batches", (int)n, (int)(n + p - n % s->group));
  return hec_pipeline_refuse(name, "a multiple of the stages as micro-batches", n,
                             "%d or %d, or groups of %d micro-batches", (int)below, (int)(below + p), (int)n);
}
