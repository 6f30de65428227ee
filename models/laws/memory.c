/* Memory-bound kernels: a launch, then bytes at a share of the HBM rate.
 *
 *     t = t0 + bytes / (h B)
 *
 * `bytes` is what must be read and written once. The share is the kernel's, not the memory's: residual additions reach 0.9,
 * norms 0.6 to 0.8, gated activations 0.5. Source: roofline (Williams et al. 2009); constants fitted per kind of kernel
 * (models/presets/device-*.json). */
#include "models/laws/work.h"

enum { T0, HBM, N_CONSTANTS };

static const hec_law_constant constants[N_CONSTANTS] = {
    {"t0", "s", "launch", 1e-7, 3e-6, 5e-5, -1},
    {"hbm", "share", "of the data-sheet HBM rate; above 1 where data stays in the L2 cache", 0.02, 0.8, 1.3, -1},
};

static double seconds(const hec_gpu_sheet *sheet, const double *c, const void *item) {
  const hec_memory_work *work = item;
  return c[T0] + work->bytes / (c[HBM] * sheet->hbm_bandwidth);
}

const hec_cost_law hec_cost_law_memory = {
    .name = "memory",
    .summary = "memory-bound kernels: norms, residuals, activations",
    .formula = "t0 + bytes / (h B)",
    .source = "form: roofline; constants: published kernel times",
    .range = "one kernel that reads and writes each byte once",
    .n_constants = N_CONSTANTS,
    .constants = constants,
    .work_size = sizeof(hec_memory_work),
    .seconds = seconds,
};
