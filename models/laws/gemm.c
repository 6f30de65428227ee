/* Dense GEMM: the fastest of eight tiles and five splits of k, as a tuned library would choose.
 *
 *     for tile (bm, bn), split s in 1, 2, 4, 8, 16 with k / s >= 256:
 *       blocks  = ceil(m/bm) ceil(n/bn) s
 *       math    = waves(blocks / SMs) (2 bm bn (k/s) / (P/SMs e_tile) + tau)
 *       memory  = (x + W + y bytes) / (h B)  (+ 8 s m n / (h_split B) for s > 1: partial sums written and read)
 *     t = t0 + min over (tile, s) of overlap(math, memory)  (+ 1 us for s > 1)  + quantise m k / B
 *
 * P, B: data-sheet FLOP/s and HBM bytes/s. Small grids need small tiles and split k: with one 128x128 tile and no split the
 * 90th percentile of the error is above 100 %. Source: the form follows how CUTLASS and cuBLAS tile (stream-k aside); its
 * constants are fitted to measured GEMMs (models/presets/device-*.json). fp8 is the same form with one byte per element and
 * the fp8 peak, and `quantise`: bytes per element of x for the kernel that quantises it first. MXFP8 has the same form too;
 * no table has it yet. O(tiles * splits) per call. */
#include "models/laws/work.h"

enum { T0, TAU, QUANTISED, HBM, EXPOSED, SPLIT, E_LARGE, E_128, E_64_256, E_64_128, E_64, QUANTISE, N_CONSTANTS };

static const hec_law_constant constants[N_CONSTANTS] = {
    {"t0", "s", "launch and epilogue", 1e-7, 2.5e-6, 4e-5, -1},
    {"tau", "s", "start of a block in each wave", 1e-9, 6e-7, 5e-6, 0},
    {"quantised", "share", "of the blocks that wait for a whole wave", 1e-3, 0.2, 1, 0},
    {"hbm", "share", "of the data-sheet HBM rate", 0.3, 0.8, 1, -1},
    {"exposed", "share", "of math and memory that does not overlap", 1e-3, 0.05, 1, 0},
    {"split", "share of HBM", "rate of the partial sums of a split k", 0.1, 0.6, 20, -1},
    {"e_256x128", "share", "of peak inside such a block", 0.05, 0.7, 1, -1},
    {"e_128x128", "share", "of peak inside such a block", 0.05, 0.65, 1, -1},
    {"e_64x256", "share", "of peak inside such a block", 0.05, 0.7, 1, -1},
    {"e_64x128", "share", "of peak inside such a block", 0.05, 0.75, 1, -1},
    {"e_64x64", "share", "of peak inside such a block", 0.05, 0.6, 1, -1},
    {"quantise", "bytes", "per element of x to quantise it, at the HBM rate", 1e-2, 3, 40, 0},
};

static const struct {
  int32_t m, n, efficiency;
} tiles[] = {{256, 128, E_LARGE}, {128, 256, E_LARGE}, {128, 128, E_128},   {64, 256, E_64_256},
             {256, 64, E_64_256}, {64, 128, E_64_128}, {128, 64, E_64_128}, {64, 64, E_64}};
enum { N_TILES = sizeof tiles / sizeof *tiles, SPLITS_MAX = 16, SPLIT_K_LEAST = 256 };
static const double split_launch_s = 1e-6; /* one more small kernel that adds the partial sums */

static double seconds(const hec_gpu_sheet *sheet, const double *c, const void *work) {
  const hec_gemm_work *g = work;
  double m = (double)g->m, n = (double)g->n, k = (double)g->k, groups = (double)g->groups, sms = (double)sheet->sms;
  double element = g->precision == HEC_FP8 ? 1 : 2, rate = sheet->flops[g->precision] / sms;
  double memory_s = groups * (element * k * (m + n) + 2 * m * n) / (c[HBM] * sheet->hbm_bandwidth);
  double partial_s = groups * 8 * m * n / (c[SPLIT] * sheet->hbm_bandwidth), best_s = 0;
  for (int32_t t = 0; t < N_TILES; t++) {
    double grid = groups * hec_pieces(g->m, tiles[t].m) * hec_pieces(g->n, tiles[t].n);
    double block_s = 2 * (double)tiles[t].m * (double)tiles[t].n * k / (rate * c[tiles[t].efficiency]);
    for (int32_t split = 1; split <= SPLITS_MAX; split *= 2) {
      double s = (double)split;
      if (split > 1 && k < SPLIT_K_LEAST * s)
        break;
      double math_s = hec_waves(grid * s / sms, c[QUANTISED]) * (block_s / s + c[TAU]);
      double moved_s = split > 1 ? memory_s + s * partial_s : memory_s;
      double total_s = hec_overlap(math_s, moved_s, c[EXPOSED]) + (split > 1 ? split_launch_s : 0);
      best_s = best_s == 0 || total_s < best_s ? total_s : best_s;
    }
  }
  double launch_s = c[T0]; /* of both kernels where x is quantised: with fp8 that comes as such one launch less */
  if (g->precision == HEC_FP8 && !g->quantise)
    launch_s = launch_s > sheet->launch_s ? launch_s - sheet->launch_s : 0;
  double quantise_s = g->quantise ? c[QUANTISE] * groups * m * k / sheet->hbm_bandwidth : 0;
  return launch_s + best_s + quantise_s;
}

const hec_cost_law hec_cost_law_gemm = {
    .name = "gemm",
    .summary = "dense GEMM, the fastest of eight tiles and five splits",
    .formula = "t0 + min over tiles and splits of overlap(waves (block + tau), bytes / hbm)",
    .source = "form: tiling of CUTLASS and cuBLAS; constants: published GEMM times",
    .range = "m 1 to 32768, n and k from 128 to 65536; B200 at m below 64 is the weakest part",
    .n_constants = N_CONSTANTS,
    .constants = constants,
    .work_size = sizeof(hec_gemm_work),
    .seconds = seconds,
};
