/* A GPU as data: its data sheet, and the constants of the cost laws that were fitted to measurements of it.
 *
 *     {"name": "h200", "title": "NVIDIA H200 SXM 141 GB", "sister": "h100",
 *      "sheet": {"bf16": 989e12, "fp8": 1979e12, "mx": false, "sms": 132, "hbm_bandwidth": 4.8e12, "memory_bytes": 141e9,
 *                "nvlink_bandwidth": 450e9, "nvlink_ranks": 8, "nic_bandwidth": 50e9, "launch_s": 2.5e-6},
 *      "fits": [{"law": "gemm", "variant": "bf16 trtllm", "rows": 6326, "median": 0.038, "p90": 0.12,
 *                "noise_median": 0.016, "noise_p90": 0.075, "constants": {"t0": 2.5e-6, ...}, "assumed": ["quantise"],
 *                "source": "where the rows are from"}],
 *      "sources": {"sheet": "..."}}
 *
 * `median`, `p90`: error of rows that the fit did not see (cross-validated by whole shapes); `noise_*`: how much repeats of the
 * same row differ. `assumed`: constants that no row depends on; they have the law's start value. A constant that a law can do
 * without (hec_law_constant.off) may be left out: files stay readable when a law gets another one. Where a device has no fit of
 * its own it takes its sister's, whose constants are shares of data-sheet rates; hec_law_fit.scaled says so.
 * `hecate-validate calibrate --from` writes the fits. */
#pragma once
#include "models/laws/work.h"
#include "runtime/base/arena.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"

typedef struct {
  const hec_cost_law *law;
  const char *variant; /* "bf16 trtllm", "all_reduce 8" */
  const char *source;
  const char *device; /* that it was fitted on */
  bool scaled;        /* another device's constants */
  int32_t rows;
  double median, p90;                      /* of rows not seen, |predicted / measured - 1| */
  double noise_median, noise_p90;          /* of repeats; < 0: the tables have none */
  double constants[HEC_LAW_CONSTANTS_MAX]; /* [law->n_constants] */
  uint32_t assumed;                        /* bit i: constant i */
} hec_law_fit;

enum { HEC_GPU_FITS_MAX = 128, HEC_GPU_SOURCES_MAX = 32 };

typedef struct hec_gpu {
  const char *name, *title, *sister; /* sister: NULL without */
  const char *spec;                  /* what it was loaded by; NULL: parsed */
  const char *absent; /* constants that its own fits lack, "attention latent": their terms do nothing; NULL: none */
  hec_gpu_sheet sheet;
  int32_t n_fits, n_own; /* own ones first */
  hec_law_fit *fits;     /* [n_fits] */
  int32_t n_sources;
  const char **source_of, **sources; /* [n_sources] fields, and where they are from */
} hec_gpu;

#define HEC_GPU_ABSENT "GPU %s: its file has no %s; terms of these constants do nothing" /* name, absent */

/* `spec`: a preset's name (models/presets/device-NAME.json) or the path of a file. */
hec_status hec_gpu_load(const char *spec, hec_arena *arena, hec_gpu *gpu) HEC_MUST_USE;
hec_status hec_gpu_parse(const char *text, size_t length, const char *origin, hec_arena *arena,
                         hec_gpu *gpu) HEC_MUST_USE;
/* The same data sheet with the constants of another preset alone, as if the device had not been measured. */
hec_status hec_gpu_scale(const char *sister, hec_arena *arena, hec_gpu *gpu) HEC_MUST_USE;
bool hec_gpu_known(const char *name); /* is there a preset of that name? */

/* The fit of exactly that law and variant, or NULL. */
const hec_law_fit *hec_gpu_fit(const hec_gpu *gpu, const char *law, const char *variant);
/* The first fit of that law whose variant begins with `prefix`: what a user gets who names no kernel. */
const hec_law_fit *hec_gpu_default_fit(const hec_gpu *gpu, const char *law, const char *prefix);

static inline double hec_law_fit_s(const hec_gpu *gpu, const hec_law_fit *fit, const void *work) {
  return fit->law->seconds(&gpu->sheet, fit->constants, work);
}

/* ---- What needs several fits of a device (gpu_collective.c) ---- */

typedef enum {
  HEC_ALL_GATHER,
  HEC_ALL_REDUCE,
  HEC_ALL_TO_ALL,
  HEC_REDUCE_SCATTER,
  HEC_N_COLLECTIVE_OPS
} hec_collective_op;
extern const char *const hec_collective_op_name[HEC_N_COLLECTIVE_OPS]; /* as nccl-tests call them: "all_gather" */
typedef enum { HEC_COLLECTIVE_FITTED, HEC_COLLECTIVE_BETWEEN, HEC_COLLECTIVE_NONE } hec_collective_how;

/* Bytes through the busiest port for a buffer of `bytes` (nccl-tests' size). */
double hec_collective_port_bytes(hec_collective_op op, int32_t ranks, double bytes);
/* A collective of one node. Without a fit of (operation, ranks), that of the twin operation is taken: all-gather and
 * reduce-scatter move the same bytes the same way. Without that, it is between the nearest numbers of ranks of this
 * operation, or of its twin, linear in log2 of the ranks. Outside them it is the nearest. NONE: the device has nothing
 * alike, and the result is 0. */
double hec_gpu_collective_s(const hec_gpu *gpu, hec_collective_op op, int32_t ranks, double bytes,
                            hec_collective_how *how);

/* One line per device: what is measured, what scaled, and the error. */
hec_status hec_gpu_list(hec_text *text) HEC_MUST_USE;
