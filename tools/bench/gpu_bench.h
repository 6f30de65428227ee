/* How fast a device is for what the executor asks of it. Only the contract of the CUDA plug-in is used
 * (hec_arithmetic, hec_streams with its events as the clock). Rates that are judged are shares of another rate of the
 * same repeat. So clocks, power limits and other users of the machine are in both. */
#pragma once
#include "runtime/exec/cuda/plugin.h"
#include "tools/bench/collective_bench.h"

enum { HEC_GPU_RATES_MAX = 96, HEC_GPU_LAUNCHES_MAX = 16 };
#define HEC_GPU_REQUIRED 0.85 /* least share where one is asked for */

typedef struct {
  const hec_cuda_device *device;
  int32_t index;   /* which one */
  int32_t repeats; /* of everything, by turns; at least 1 */
  bool small;      /* sizes that a CPU emulates in seconds; the numbers mean nothing */
} hec_gpu_bench;

typedef struct {
  char section[32];       /* "memory", "bf16, grouped" */
  const char *name;       /* "permute" */
  bool flops;             /* counts FLOP, else bytes read and written */
  double amount;          /* of one call */
  hec_bench_spread rate;  /* per second */
  const char *base;       /* whose rate `share` is of; NULL: none */
  hec_bench_spread share; /* repeat by repeat */
  double required;        /* least median of it; 0: none */
} hec_gpu_rate;

typedef struct {
  const char *name;
  hec_bench_spread host_s;   /* of one call: until it returns */
  hec_bench_spread device_s; /* of one call of many: until the device is done */
} hec_gpu_launch;

typedef struct {
  hec_gpu_rate rates[HEC_GPU_RATES_MAX];
  hec_gpu_launch launches[HEC_GPU_LAUNCHES_MAX];
  int32_t n_rates, n_launches;
  double events_per_s; /* marked on one stream and waited for by another: median */
} hec_gpu_results;

/* Opens the device as often as it needs and closes it. HEC_FAILED with the device's own words when it fails or is not done
 * within a minute; a limit because a device that hangs never reports. */
hec_status hec_gpu_bench_run(const hec_gpu_bench *bench, hec_gpu_results *results) HEC_MUST_USE;
