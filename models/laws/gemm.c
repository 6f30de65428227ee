/* Dense GEMM: the fastest of eight tiles and five splits of k, as a tuned library would choose.
 *
 *     for tile (bm, bn), split s in 1, 2, 4, 8, 16; a part of k counts as 256 at least:
 *       blocks  = ceil(m/bm) ceil(n/bn) s
 *       math    = waves(blocks / SMs) (2 bm bn max(k/s, 256) / (P/SMs e_tile) + tau)
 *       memory  = (x + W + y bytes) / (h B)  (+ 8 s m n / (h_split B) for s > 1: partial sums written and read)
 *     t = t0 + min over (tile, s) of overlap(math, memory)  (+ 1 us for s > 1)  + quantise m k / B
 *
 * P, B: data-sheet FLOP/s and HBM bytes/s. Small grids need small tiles and split k. With one 128x128 tile and no
 * split the 90th percentile of the error is above 100 %. Source: the form follows how CUTLASS and cuBLAS tile
 * (stream-k aside); its constants are fitted to measured GEMMs (models/presets/device-*.json). fp8 is the same form
 * with one byte per element and the fp8 peak. `quantise`: bytes per element of x for the kernel that quantises it
 * first. MXFP8 has the same form too; no table has it yet. O(tiles * splits) per call. */
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
  int32_t m, n; /* rows, columns: 64 << m, 64 << n */
  int32_t efficiency;
} tiles[] = {{2, 1, E_LARGE},  {1, 2, E_LARGE},  {1, 1, E_128},    {0, 2, E_64_256},
             {2, 0, E_64_256}, {0, 1, E_64_128}, {1, 0, E_64_128}, {0, 0, E_64}};
enum { N_TILES = sizeof tiles / sizeof *tiles, SPLITS_MAX = 16, SPLIT_K_MIN = 256, TILE_MIN = 64 };
static const double split_launch_s = 1e-6; /* one more small kernel that adds the partial sums */

static inline double strips(int64_t whole, int32_t tile) {
  return (double)((whole + ((int64_t)TILE_MIN << tile) - 1) >> (6 + tile));
}

/* Memory depends on the split alone, so in each split the fastest math decides. A split that could not pay if its waves were
 * full is not looked at, nor are those after it, which move more. */
static double fastest_s(const hec_gpu_sheet *sheet, const double *c, const hec_gemm_work *g) {
  double m = (double)g->m, n = (double)g->n, k = (double)g->k, groups = (double)g->groups, sms = (double)sheet->sms;
  double element = g->precision == HEC_LAW_FP8 ? 1 : 2, rate = sheet->flops[g->precision] / sms;
  double memory_s = groups * (element * k * (m + n) + 2 * m * n) / (c[HBM] * sheet->hbm_bandwidth);
  double partial_s = groups * 8 * m * n / (c[SPLIT] * sheet->hbm_bandwidth);
  double grid[N_TILES], block_s[N_TILES], full_s = 0, best_s = 0;
  for (int32_t t = 0; t < N_TILES; t++) {
    double side = (double)((int64_t)TILE_MIN << tiles[t].m) * (double)((int64_t)TILE_MIN << tiles[t].n);
    grid[t] = groups * strips(g->m, tiles[t].m) * strips(g->n, tiles[t].n) / sms;
    block_s[t] = 2 * side * k / (rate * c[tiles[t].efficiency]);
    full_s = t == 0 || grid[t] * block_s[t] < full_s ? grid[t] * block_s[t] : full_s;
  }
  for (int32_t split = 1; split <= SPLITS_MAX && (split == 1 || 2 * k > SPLIT_K_MIN * (double)split); split *= 2) {
    double s = (double)split, deep = k > SPLIT_K_MIN * s || split == 1 ? 1 / s : SPLIT_K_MIN / k, moved_s = split > 1 ? memory_s + s * partial_s : memory_s, math_s = 0;
    double extra_s = split > 1 ? split_launch_s : 0;
    if (split > 1 && hec_overlap(full_s, moved_s, c[EXPOSED]) + extra_s >= best_s)
      break;
    for (int32_t t = 0; t < N_TILES; t++) {
      double waves_s = hec_waves(grid[t] * s, c[QUANTISED]) * (block_s[t] * deep + c[TAU]);
      math_s = t == 0 || waves_s < math_s ? waves_s : math_s;
    }
    double total_s = hec_overlap(math_s, moved_s, c[EXPOSED]) + extra_s;
    best_s = split == 1 || total_s < best_s ? total_s : best_s;
  }
  return best_s;
}

static double seconds(const hec_gpu_sheet *sheet, const double *c, const void *work) {
  const hec_gemm_work *g = work;
  double launch_s = c[T0]; /* of both kernels where x is quantised: with fp8 that comes as such one launch less */
  if (g->precision == HEC_LAW_FP8 && !g->quantise)
    launch_s = launch_s > sheet->launch_s ? launch_s - sheet->launch_s : 0;
  double quantise_s =
      g->quantise ? c[QUANTISE] * (double)g->groups * (double)g->m * (double)g->k / sheet->hbm_bandwidth : 0;
  return launch_s + fastest_s(sheet, c, g) + quantise_s;
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
