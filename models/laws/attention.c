/* Fused attention, forward and backward: blocks of 128 queries and one head.
 *
 *     pairs     128 x 128 tiles that a head computes: q^2 full, q (q+1 + masked (q-1)) / 2 causal, q = ceil(seq / 128);
 *               of a window of w keys at most 1 + ceil((w - 1) / 128) for each block of queries: kernels skip the others
 *     block     = its pairs (2 (d + d_v) + softmax) / (P/SMs e) + tau       mean over the blocks
 *     math      = (quantised ceil(u) + (1 - quantised) u) block, u = batch heads q / SMs; at least the longest block if u < 1
 *     memory    = 2 batch seq (heads + kv_heads) (d + d_v) / (h B)
 *     t = t0 + batch seq latent / B + pass overlap(math, memory)         pass: 1 forward, `backward` backward
 *
 * `softmax`: exponentials and rescaling, in FLOP per score; it is why small heads are slow. Backward has 5 GEMMs to the
 * forward's 2 and recomputes the scores: published kernels take 2.9 to 3.75 times the forward. So 2 would be too fast by a
 * third. MLA after its up-projection is the same with d 192, d_v 128.
 *
 * `masked`: 1 for a kernel that computes the tiles above the diagonal and throws them away. In tables of causal rows alone it
 * is nearly the same as a lower efficiency. Small grids tell them apart: there the longest block decides, and it has no tile
 * above the diagonal to skip. `latent`: MLA in inference handles each token's latent once for all heads. Source: Dao, FlashAttention-2 (arXiv 2307.08691) for the
 * blocks; constants fitted (models/presets/device-*.json). O(1) per call. */
#include "models/laws/work.h"

enum { T0, TAU, EFFICIENCY, SOFTMAX, QUANTISED, HBM, EXPOSED, BACKWARD, MASKED, LATENT, N_CONSTANTS };

static const hec_law_constant constants[N_CONSTANTS] = {
    {"t0", "s", "launches around the kernel", 1e-7, 1.2e-5, 1e-4, -1},
    {"tau", "s", "start of a block", 1e-9, 1e-6, 1e-5, 0},
    {"efficiency", "share", "of peak inside a block", 0.1, 0.65, 1, -1},
    {"softmax", "FLOP", "per score, beside the GEMMs", 0.1, 60, 2000, 0},
    {"quantised", "share", "of the blocks that wait for a whole wave", 1e-3, 0.5, 1, 0},
    {"hbm", "share", "of the data-sheet HBM rate", 0.02, 0.5, 1, -1},
    {"exposed", "share", "of math and memory that does not overlap", 1e-3, 0.4, 1, 0},
    {"backward", "forwards", "that a backward pass takes", 1, 3, 6, -1},
    {"masked", "switch", "1: tiles above the diagonal are computed too", 0, 0, 1, 0},
    {"latent", "bytes", "per token of MLA, once for all heads", 1, 3500, 50000, 0},
};
enum { BLOCK = 128 };

static double seconds(const hec_gpu_sheet *sheet, const double *c, const void *item) {
  const hec_attention_work *work = item;
  double batch = (double)work->batch, seq = (double)work->seq, heads = (double)work->heads;
  double width = (double)(work->head_dim + work->head_dim_v), sms = (double)sheet->sms;
  double q = hec_pieces(work->seq, BLOCK), tiles = work->causal ? (q + 1 + c[MASKED] * (q - 1)) / 2 : q;
  double most = work->window > 0 ? 1 + hec_pieces(work->window - 1, BLOCK) : q; /* of a block of queries */
  tiles = tiles < most ? tiles : most;
  double tile_s = BLOCK * BLOCK * (2 * width + c[SOFTMAX]) / (sheet->flops[HEC_LAW_BF16] / sms * c[EFFICIENCY]);
  double block_s = tiles * tile_s + c[TAU], longest_s = (most < q ? most : q) * tile_s + c[TAU];
  double u = batch * heads * q / sms, whole = (double)(int64_t)u;
  whole += whole < u ? 1 : 0;
  double math_s = (c[QUANTISED] * whole + (1 - c[QUANTISED]) * u) * block_s;
  math_s = math_s < longest_s ? longest_s : math_s;
  double memory_s = 2 * batch * seq * (heads + (double)work->kv_heads) * width / (c[HBM] * sheet->hbm_bandwidth);
  double latent = work->latent ? c[LATENT] : 0;
  return c[T0] + batch * seq * latent / sheet->hbm_bandwidth +
         (work->backward ? c[BACKWARD] : 1) * hec_overlap(math_s, memory_s, c[EXPOSED]);
}

const hec_cost_law hec_cost_law_attention = {
    .name = "attention",
    .summary = "fused attention, forward and backward, full, causal, GQA, MLA",
    .formula = "t0 + latent + pass overlap(waves (tiles (2 (d + d_v) + softmax) / rate + tau), bytes / hbm)",
    .source = "form: FlashAttention-2 (arXiv 2307.08691); constants: published attention times",
    .range = "sequences 512 to 16384, heads of 64 to 256; head_dim 512 is not covered",
    .n_constants = N_CONSTANTS,
    .constants = constants,
    .work_size = sizeof(hec_attention_work),
    .seconds = seconds,
};
