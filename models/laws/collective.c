/* One collective of one operation on one number of ranks of a node, as NCCL runs it: three protocols, each with its range.
 *
 *     v = bytes through the busiest port: (n-1)/n of the buffer, twice that for all-reduce
 *     t = a_1 + v / (b_1 NVLink)                                  v <= v_1      (LL)
 *         a_2 + v / (b_2 NVLink)                                  v <= v_2      (LL128)
 *         a_3 + v / (b_3 NVLink) + sqrt(v knee) / (b_3 NVLink)    beyond        (Simple; the knee: a pipeline fills)
 * and never less than at the end of the range before. NCCL picks a protocol by estimates of its own, so a measured
 * time may jump where it changes. A smooth law of three constants has twice the error, and 15 % at the 90th
 * percentile. NVLS (all-reduce in the switch, 8 GPUs) shows as a b_3 above that of the ring: it is part of its entry's
 * constants. Source: NCCL (github.com/NVIDIA/nccl, src/graph/tuning.cc) for the protocols; constants fitted to
 * published nccl-tests (models/presets/device-*.json). O(1). */
#include "models/laws/work.h"

enum { A1, B1, V1, A2, B2, V2, A3, B3, KNEE, N_CONSTANTS };

static const hec_law_constant constants[N_CONSTANTS] = {
    {"a1", "s", "latency, small messages", 1e-7, 1e-5, 1, -1},
    {"b1", "NVLink", "rate of small messages", 1e-5, 0.02, 100, -1},
    {"v1", "bytes", "largest small message", 1, 16384, 1e9, 0},
    {"a2", "s", "latency, middle messages", 1e-7, 1e-5, 1, -1},
    {"b2", "NVLink", "rate of middle messages", 1e-5, 0.2, 100, -1},
    {"v2", "bytes", "largest middle message", 1, 1e6, 1e12, 0},
    {"a3", "s", "latency, large messages", 0, 2e-5, 1, -1},
    {"b3", "NVLink", "rate of large messages", 1e-3, 0.75, 2, -1},
    {"knee", "bytes", "message at which filling the pipeline costs as much as the transfer", 0, 1e6, 1e10, 0},
};

static double seconds(const hec_gpu_sheet *sheet, const double *c, const void *item) {
  const hec_collective_work *work = item;
  double v = work->bytes, link = sheet->nvlink_bandwidth, min_s = 0;
  if (v <= c[V1])
    return c[A1] + v / (c[B1] * link);
  min_s = c[V1] > 0 ? c[A1] + c[V1] / (c[B1] * link) : 0;
  if (v <= c[V2]) {
    double middle_s = c[A2] + v / (c[B2] * link);
    return middle_s > min_s ? middle_s : min_s;
  }
  double end_s = c[V2] > 0 ? c[A2] + c[V2] / (c[B2] * link) : 0,
         large_s = c[A3] + (v + sqrt(v * c[KNEE])) / (c[B3] * link);
  min_s = end_s > min_s ? end_s : min_s;
  return large_s > min_s ? large_s : min_s;
}

const hec_cost_law hec_cost_law_collective = {
    .name = "collective",
    .summary = "collective on one node by operation, ranks and bytes",
    .formula = "three ranges of a + v / (b NVLink), the last with sqrt(v knee) / (b NVLink)",
    .source = "form: protocols of NCCL (src/graph/tuning.cc); constants: published nccl-tests",
    .range = "one node, 512 B to 1 GiB; other numbers of ranks are taken between those fitted",
    .n_constants = N_CONSTANTS,
    .constants = constants,
    .work_size = sizeof(hec_collective_work),
    .seconds = seconds,
};
