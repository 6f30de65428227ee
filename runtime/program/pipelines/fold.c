/* DualPipe (arXiv:2412.19437; github.com/deepseek-ai/DualPipe). A device meets micro-batches on two ways, 0 and 1. Way
 * 1 leads back from the fold. There are n ranks and m micro-batches on each way. B is a backward of both gradients, I
 * and W one each, F&B a pair. Rank r runs
 *
 *     1   2 (n-1-r)       F0
 *     2   r + 1           F0 F1
 *     3   n - 1 - r       I1 W F1
 *     4   m - 2n + r + 1  F0&B1 F1&B0     (at the fold the first F0 and B1 are no pair: it would only wait)
 *     5   n - 1 - r       B1 F1&B0
 *     6   r + 1           B1 B0, the second half of them I1 I0
 *     7   n - 1 - r       W I0
 *     8   the rest        W
 *
 * Weight gradients run in the order in which their input gradients did.
 *
 * If all parts and micro-batches cost the same, F and I at least W, the rank at the fold idles for
 *
 *     (n-1) (F&B - 2W) + max((n-1) F, (n-1) I - F)
 *
 * and no rank for longer. With I = F this is the published (n-1) (F&B + B - 3W). The first term is where the ramps are not
 * filled, the second what the first backward at the fold waits for. The others have fewer pairs, so more work. */
#include "runtime/program/pipelines/fold.h"

typedef struct {
  hec_pipeline_order *order;
  const hec_pipeline_fold *fold;
  int32_t n_forward[2], n_backward[2]; /* by way, so far */
  int32_t next_weight;                 /* the first piece whose weight gradient may be put off still */
} writer;

static int32_t micro_batch(const writer *w, int32_t way, const int32_t *n) {
  return w->fold->micro_batch[way] + n[way];
}

static void forward(writer *w, int32_t way) {
  hec_pipeline_add(w->order, HEC_PIECE_FORWARD, w->fold->chunk[way], micro_batch(w, way, w->n_forward));
  w->n_forward[way]++;
}

static void backward(writer *w, int32_t way, bool whole) {
  hec_pipeline_add(w->order, whole ? HEC_PIECE_BACKWARD : HEC_PIECE_INPUT_GRADIENT, w->fold->chunk[way],
                   micro_batch(w, way, w->n_backward));
  w->n_backward[way]++;
}

static void pair(writer *w, int32_t way) {
  hec_pipeline_add_pair(w->order, w->fold->chunk[way], micro_batch(w, way, w->n_forward), w->fold->chunk[1 - way],
                        micro_batch(w, 1 - way, w->n_backward));
  w->n_forward[way]++;
  w->n_backward[1 - way]++;
}

/* Of the oldest input gradient that has none yet; false: there is none. */
static bool weight(writer *w) {
  while (w->next_weight < w->order->n_pieces) {
    hec_pipeline_piece piece = w->order->piece[w->next_weight++];
    if (piece.kind == HEC_PIECE_INPUT_GRADIENT) {
      hec_pipeline_add(w->order, HEC_PIECE_WEIGHT_GRADIENT, piece.chunk, piece.micro_batch);
      return true;
    }
  }
  return false;
}

void hec_pipeline_folded(hec_pipeline_order *order, const hec_pipeline_fold *fold) {
  writer w = {.order = order, .fold = fold, .next_weight = order->n_pieces};
  int32_t r = fold->rank, ahead = fold->n_ranks - 1 - r;
  for (int32_t i = 0; i < 2 * ahead; i++)
    forward(&w, 0);
  for (int32_t i = 0; i < r + 1; i++) {
    forward(&w, 0);
    forward(&w, 1);
  }
  for (int32_t i = 0; i < ahead; i++) {
    backward(&w, 1, false);
    (void)weight(&w);
    forward(&w, 1);
  }
  for (int32_t i = 0; i < fold->n_each_way - 2 * fold->n_ranks + r + 1; i++) {
    if (i == 0 && ahead == 0) {
      forward(&w, 0);
      backward(&w, 1, true);
    } else {
      pair(&w, 0);
    }
    pair(&w, 1);
  }
  for (int32_t i = 0; i < ahead; i++) {
    backward(&w, 1, true);
    pair(&w, 1);
  }
  for (int32_t i = 0; i < 2 * (r + 1); i++) /* the first half of them whole */
    backward(&w, 1 - i % 2, i < r + 1);
  for (int32_t i = 0; i < ahead; i++) {
    (void)weight(&w);
    backward(&w, 0, false);
  }
  while (weight(&w))
    ;
}
