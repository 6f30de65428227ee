/* The CUDA plug-in: what devices there are, and the table of all that it can do.
 *
 * Probing asks the runtime only. Of NCCL and cuBLAS it asks their versions, which needs no device. ncclGetUniqueId
 * works without one too, but would open a listening socket on an outside interface. */
#include "runtime/exec/cuda/kernels.h"
#include "runtime/exec/cuda/own.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <string.h>

/* ---- Probing ---- */

/* 130001 = 13.0.1, as cuBLAS itself would number it. */
static int32_t cublas_version(void) {
  int major = 0, minor = 0, patch = 0;
  if (cublasGetProperty(MAJOR_VERSION, &major) != CUBLAS_STATUS_SUCCESS ||
      cublasGetProperty(MINOR_VERSION, &minor) != CUBLAS_STATUS_SUCCESS ||
      cublasGetProperty(PATCH_LEVEL, &patch) != CUBLAS_STATUS_SUCCESS)
    return 0;
  return major * 10000 + minor * 100 + patch;
}

/* Of what is installed, without a driver too. A version that cannot be told stays 0. */
static void probe_versions(hec_cuda_probe *probe) {
  int driver = 0, runtime = 0, nccl = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  (void)ncclGetVersion(&nccl);
  probe->driver_version = driver;
  probe->runtime_version = runtime;
  probe->nccl_version = nccl;
  probe->cublas_version = cublas_version();
}

/* The words for a failure to count devices: the runtime's say "insufficient" where no driver is there at all. */
static void say_why(hec_cuda_probe *probe, cudaError_t error) {
  int driver = probe->driver_version, runtime = probe->runtime_version;
  if (driver == 0)
    (void)snprintf(probe->why, sizeof probe->why, "no CUDA driver (libcuda.so.1) was found");
  else if (error == cudaErrorInsufficientDriver)
    (void)snprintf(probe->why, sizeof probe->why, "the driver is for CUDA %d.%d, the plug-in needs one for CUDA %d.%d",
                   driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  else if (error != cudaSuccess)
    (void)snprintf(probe->why, sizeof probe->why, "%s", cudaGetErrorString(error));
  else
    (void)snprintf(probe->why, sizeof probe->why, "the CUDA driver sees no device");
}

static cudaError_t probe_device(int device, hec_cuda_device_info *info) {
  struct cudaDeviceProp properties;
  cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess)
    return error;
  (void)snprintf(info->name, sizeof info->name, "%s", properties.name);
  info->major = properties.major;
  info->minor = properties.minor;
  info->n_processors = properties.multiProcessorCount;
  info->fits = 10 * properties.major + properties.minor >= hec_cuda_capability_min();
  info->memory_bytes = (int64_t)properties.totalGlobalMem;
  return cudaSuccess;
}

static bool probe_all(hec_cuda_probe *probe) {
  int n = 0, n_fit = 0;
  memset(probe, 0, sizeof *probe);
  probe_versions(probe);
  cudaError_t error = cudaGetDeviceCount(&n);
  if (error != cudaSuccess)
    n = 0;
  for (int i = 0; i < n && i < HEC_CUDA_DEVICES_MAX && error == cudaSuccess; i++) {
    error = probe_device(i, &probe->devices[i]);
    probe->n_devices += error == cudaSuccess;
    n_fit += error == cudaSuccess && probe->devices[i].fits;
  }
  (void)cudaGetLastError(); /* it is reported here: clear the sticky error */
  if (error != cudaSuccess || n == 0) {
    probe->n_devices = 0;
    say_why(probe, error);
    return false;
  }
  if (n_fit == 0)
    (void)snprintf(probe->why, sizeof probe->why, "%s has compute capability %d.%d, the plug-in needs %d.%d",
                   probe->devices[0].name, probe->devices[0].major, probe->devices[0].minor,
                   hec_cuda_capability_min() / 10, hec_cuda_capability_min() % 10);
  return n_fit > 0;
}

/* Devices are never reset: in a process that others share (a trainer that uses libhecate) that would end their work. */
static const hec_cuda_plugin plugin = {
    .layout = HEC_CUDA_LAYOUT,
    .probe = probe_all,
    .device = &hec_cuda_device_table,
    .messages = &hec_cuda_messages_table,
};

extern hec_cuda_plugin_entry hecate_cuda_plugin;
__attribute__((visibility("default"))) const hec_cuda_plugin *hecate_cuda_plugin(void) {
  return &plugin;
}
