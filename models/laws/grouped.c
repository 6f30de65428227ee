/* The expert layer of a rank, forward: two grouped GEMMs over the loads of its experts, and what is around them.
 *
 *     gemm(N, K) = min over tiles (bm in 16 .. 256, bn in 64, 128, 256) of overlap(math, memory)
 *       blocks   = sum over experts of ceil(n_e / bm) * ceil(N / bn)
 *       block    = max(2 bm bn K / (P/SMs e),  element (bm + bn) K / (l2 B/SMs))
 *       math     = (q ceil(u) + (1 - q) u) block (1 + uneven (1 - mean/busiest)),  u = blocks / SMs
 *       memory   = element (A N K + R (K + N)) / (h B)        A: experts with rows, R: all rows
 *     t = t0 + gemm(g inter, hidden) + gemm(hidden, inter) + 2 (R (3 hidden + (g+1) inter)) / (h_el B)
 *          + route T top_k + row R                            g: 2 gated, 1 not
 *
 * A small tile is slow because it loads more per multiplication. One constant, `l2`, says so for all tiles. An
 * efficiency for each tile (five constants) has the same error. Only experts with rows stream their weights. Uneven
 * loads cost tiles (in the sum) and a little more (`uneven`; 0 for equal loads). T: tokens of the whole
 * expert-parallel group, whose routing every rank works out. `row`: the kernels around the products look up where a row
 * goes and take it up by itself, however narrow it is. Without it narrow rows come out too fast. Source: form after
 * CUTLASS grouped GEMM; constants fitted (models/presets/device-*.json). O(tiles) per call, after O(experts) for the
 * load. */
#include "models/laws/work.h"

enum { T0, QUANTISED, HBM, EXPOSED, ELEMENTWISE, UNEVEN, EFFICIENCY, L2, ROUTE, ROW, N_CONSTANTS };

static const hec_law_constant constants[N_CONSTANTS] = {
    {"t0", "s", "launches, top-k and alignment", 1e-6, 2.6e-5, 2e-4, -1},
    {"quantised", "share", "of the blocks that wait for a whole wave", 1e-3, 0.6, 1, 0},
    {"hbm", "share", "of the data-sheet HBM rate, weights", 0.3, 0.9, 1, -1},
    {"exposed", "share", "of math and memory that does not overlap", 1e-3, 0.1, 1, 0},
    {"elementwise", "share", "of the data-sheet HBM rate, permutation and activation", 0.05, 0.7, 1, -1},
    {"uneven", "share", "more math time where the busiest expert has far more than the mean", 1e-4, 0.1, 3, 0},
    {"efficiency", "share", "of peak inside a block that does not wait for loads", 0.1, 0.9, 1, -1},
    {"l2", "HBM rates", "rate at which all SMs load tiles", 0.3, 2.5, 50, 50},
    {"route", "s", "per token of the group and choice", 1e-13, 1e-10, 1e-8, 0},
    {"row", "s", "per row to permute, activate and sum it, beside its bytes", 1e-12, 1e-9, 1e-7, 0},
};

const int64_t hec_grouped_tile[HEC_GROUPED_TILES] = {16, 32, 64, 128, 256};
enum { N_COLUMNS = 3, COLUMNS_MIN = 64 }; /* 64, 128, 256 */

hec_grouped_load hec_grouped_load_of(const int64_t *rows, int32_t n_experts) {
  hec_grouped_load load = {0};
  for (int32_t e = 0; e < n_experts; e++)
    hec_grouped_load_add(&load, rows[e]);
  return load;
}

/* Memory is the same for all tiles, so the fastest math decides. */
static double gemm_s(const hec_gpu_sheet *sheet, const double *c, const hec_grouped_work *work, int64_t n, int64_t k) {
  const hec_grouped_load *load = &work->load;
  double sms = (double)sheet->sms, rate = sheet->flops[work->precision] / sms * c[EFFICIENCY];
  double element = work->precision == HEC_LAW_FP8 ? 1 : 2, width = (double)n, depth = (double)k, best_s = 0;
  double memory_s =
      element * (load->active * width * depth + load->rows * (depth + width)) / (c[HBM] * sheet->hbm_bandwidth);
  double uneven = 1 + c[UNEVEN] * (1 - load->rows / (load->active * load->busiest));
  double math_s = 2 * depth / rate,
         load_s = element * depth / (c[L2] * sheet->hbm_bandwidth / sms); /* per bm bn; bm + bn */
  for (int32_t j = 0; j < N_COLUMNS; j++) {
    double bn = (double)(COLUMNS_MIN << j), strips = (double)((n + (COLUMNS_MIN << j) - 1) >> (6 + j));
    for (int32_t i = 0; i < HEC_GROUPED_TILES; i++) {
      double bm = (double)hec_grouped_tile[i], u = load->tiles[i] * strips / sms, whole = (double)(int64_t)u;
      whole += whole < u ? 1 : 0;
      double block_s = bm * bn * math_s, block_load_s = (bm + bn) * load_s;
      double waves = c[QUANTISED] * whole + (1 - c[QUANTISED]) * u;
      double total_s = waves * (block_s > block_load_s ? block_s : block_load_s);
      best_s = best_s == 0 || total_s < best_s ? total_s : best_s;
    }
  }
  return hec_overlap(best_s * uneven, memory_s, c[EXPOSED]);
}

static double seconds(const hec_gpu_sheet *sheet, const double *c, const void *item) {
  const hec_grouped_work *work = item;
  if (work->load.rows <= 0)
    return c[T0];
  int64_t up = work->gated ? 2 * work->inter : work->inter;
  double hidden = (double)work->hidden, inter = (double)work->inter, tokens = (double)work->tokens;
  double elements = work->load.rows * (3 * hidden + (double)up + inter);
  return c[T0] + gemm_s(sheet, c, work, up, work->hidden) + gemm_s(sheet, c, work, work->hidden, work->inter) +
         2 * elements / (c[ELEMENTWISE] * sheet->hbm_bandwidth) + c[ROUTE] * tokens * (double)work->top_k +
         c[ROW] * work->load.rows;
}

const hec_cost_law hec_cost_law_grouped = {
    .name = "grouped",
    .summary = "expert layer of a rank: grouped GEMMs over the load of each expert",
    .formula =
        "t0 + two of min over tiles of overlap(waves block, active weights / hbm) + element-wise + routing + row",
    .source = "form: CUTLASS grouped GEMM; constants: published MoE layer times",
    .range = "CUTLASS-like kernels from 64 tokens on; Triton kernels without a tuned tile are not covered",
    .n_constants = N_CONSTANTS,
    .constants = constants,
    .of_sm = UINT32_C(1) << L2,
    .work_size = sizeof(hec_grouped_work),
    .seconds = seconds,
};
