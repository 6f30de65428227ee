/* The fake of CUDA's runtime keeps its promises: what a program does right works with every order, what it does wrong is
 * found with some. */
#include "tests/cuda/child.h"
#include "tests/cuda/kernels_of_tests.h"
#include "tests/support/test.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 1000, SEEDS = 20 };

/* ---- Order ---- */

/* One stream makes numbers, another one uses them; without an event where `missing`. 1: they were wrong. */
static int two_streams(const void *context) {
  bool missing = *(const bool *)context;
  float *x = child_floats(N), *y = child_floats(N), host[N];
  cudaStream_t a = child_stream(), b = child_stream();
  cudaEvent_t made;
  EXPECT(cudaEventCreateWithFlags(&made, cudaEventDisableTiming) == cudaSuccess);
  EXPECT(cudaMemsetAsync(x, 0, N * sizeof *x, a) == cudaSuccess);
  test_add(a, x, 2.5F, N);
  EXPECT(cudaEventRecord(made, a) == cudaSuccess);
  if (!missing)
    EXPECT(cudaStreamWaitEvent(b, made, 0) == cudaSuccess);
  test_copy(b, y, x, N);
  test_add(b, y, 1, N);
  child_read(host, y, N, b);
  for (int i = 0; i < N; i++)
    if (host[i] != 3.5F)
      return 1;
  return 0;
}

HEC_TEST(a_missing_event_is_noticed_and_a_present_one_always_works) {
  const bool yes = true, no = false;
  int n_noticed = 0;
  for (int seed = 1; seed <= SEEDS; seed++) {
    char setting[64], words[CHILD_WORDS];
    (void)snprintf(setting, sizeof setting, "FAKE_CUDA_SEED=%d", seed);
    const char *const environment[] = {setting, NULL};
    child_exits(environment, two_streams, &no, 0);
    int status = child_run(environment, two_streams, &yes, words);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) <= 1, "%s", words);
    n_noticed += WEXITSTATUS(status);
  }
  ck_assert_int_ge(n_noticed, SEEDS / 4);
}

/* Nothing happens at the call; memory that is pinned is read when the copy is done, other memory at the call. */
static int late(const void *context) {
  (void)context;
  float *x = child_floats(2), pageable = 1, *pinned = NULL, host[2];
  cudaStream_t stream = child_stream();
  EXPECT(cudaHostAlloc((void **)&pinned, sizeof *pinned, cudaHostAllocDefault) == cudaSuccess);
  *pinned = 1;
  EXPECT(cudaMemcpyAsync(x, &pageable, sizeof *x, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  EXPECT(cudaMemcpyAsync(x + 1, pinned, sizeof *x, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  pageable = *pinned = 2;
  child_read(host, x, 2, stream);
  EXPECT(host[0] == 1);
  EXPECT(host[1] == 2);
  *pinned = 7;
  EXPECT(cudaMemcpyAsync(pinned, x, sizeof *x, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  EXPECT(*pinned == 7);
  EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
  EXPECT(*pinned == 1);
  EXPECT(cudaMemcpyAsync(x, host, sizeof *x, cudaMemcpyDeviceToDevice, stream) == cudaErrorInvalidValue);
  return 0;
}

/* Events: never recorded ones are no obstacle, a record counts from the call on, times grow along what waits. */
static int events(const void *context) {
  (void)context;
  float *x = child_floats(N), ms = -1;
  cudaStream_t a = child_stream(), b = child_stream();
  cudaEvent_t first = NULL, second = NULL, never, untimed;
  EXPECT(cudaEventCreate(&first) == cudaSuccess && cudaEventCreate(&second) == cudaSuccess);
  EXPECT(cudaEventCreate(&never) == cudaSuccess);
  EXPECT(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming) == cudaSuccess);
  EXPECT(cudaStreamWaitEvent(a, never, 0) == cudaSuccess && cudaEventQuery(never) == cudaSuccess);
  test_add(a, x, 1, N);
  EXPECT(cudaEventRecord(first, a) == cudaSuccess && cudaEventRecord(untimed, a) == cudaSuccess);
  EXPECT(cudaEventElapsedTime(&ms, first, second) == cudaErrorInvalidResourceHandle);
  EXPECT(cudaStreamWaitEvent(b, first, 0) == cudaSuccess);
  test_add(b, x, 1, N);
  EXPECT(cudaEventRecord(second, b) == cudaSuccess);
  int n_asked = 0;
  for (cudaError_t is; (is = cudaEventQuery(second)) != cudaSuccess; n_asked++)
    EXPECT(is == cudaErrorNotReady && n_asked < 1000);
  EXPECT(cudaGetLastError() == (n_asked > 0 ? cudaErrorNotReady : cudaErrorInvalidResourceHandle));
  EXPECT(cudaGetLastError() == cudaSuccess);
  EXPECT(cudaEventElapsedTime(&ms, first, second) == cudaSuccess && ms > 0);
  EXPECT(cudaEventElapsedTime(&ms, first, untimed) == cudaErrorInvalidResourceHandle);
  EXPECT(cudaStreamDestroy(a) == cudaSuccess && cudaStreamDestroy(b) == cudaSuccess);
  EXPECT(cudaEventDestroy(first) == cudaSuccess && cudaFree(x) == cudaSuccess);
  return 0;
}

HEC_TEST(work_is_late_and_events_order_it) {
  child_exits(NULL, late, NULL, 0);
  child_exits(NULL, events, NULL, 0);
}

/* ---- Memory ---- */

static int touch(const void *context) {
  (void)context;
  volatile float *x = child_floats(1);
  return (int)*x;
}

static int touch_after_work(const void *context) {
  (void)context;
  volatile float *x = child_floats(1);
  cudaStream_t stream = child_stream();
  test_add(stream, (float *)(uintptr_t)x, 1, 1);
  EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
  return (int)*x;
}

static int copy_freed(const void *context) {
  (void)context;
  float *x = child_floats(64), *y = child_floats(64);
  cudaStream_t stream = child_stream();
  EXPECT(cudaFree(x) == cudaSuccess);
  test_copy(stream, y, x, 64);
  return (int)cudaStreamSynchronize(stream);
}

static int overrun(const void *context) {
  (void)context;
  float *x = child_floats(64);
  cudaStream_t stream = child_stream();
  test_add(stream, x, 1, 65);
  return (int)cudaStreamSynchronize(stream);
}

static int free_too_early(const void *context) {
  (void)context;
  float *x = child_floats(64);
  test_add(child_stream(), x, 1, 64);
  return (int)cudaFree(x);
}

static int free_twice(const void *context) {
  (void)context;
  float *x = child_floats(64);
  EXPECT(cudaFree(x) == cudaSuccess);
  return (int)cudaFree(x);
}

static int fill_too_much(const void *context) {
  (void)context;
  return (int)cudaMemsetAsync(child_floats(64), 0, 65 * sizeof(float), child_stream());
}

static int peer(const void *context) {
  float *x = child_floats(4);
  EXPECT(cudaSetDevice(1) == cudaSuccess);
  if (*(const bool *)context)
    EXPECT(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess);
  cudaStream_t stream = child_stream();
  test_add(stream, x, 1, 4);
  return (int)cudaStreamSynchronize(stream);
}

static int fresh(const void *context) {
  (void)context;
  size_t free_bytes = 0, total = 0, n = (size_t)20 << 20;
  float *x = child_floats((int64_t)n), host[2];
  child_read(host, x, 1, child_stream());
  child_read(host + 1, x + n - 1, 1, child_stream());
  EXPECT(isnan(host[0]) && isnan(host[1]));
  EXPECT((uintptr_t)x % 256 == 0);
  EXPECT(cudaMemGetInfo(&free_bytes, &total) == cudaSuccess && total - free_bytes == n * sizeof(float));
  EXPECT(total == (size_t)100 << 20);
  void *more = &free_bytes;
  EXPECT(cudaMalloc(&more, total - n) == cudaErrorMemoryAllocation && more == NULL);
  EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
  return 0;
}

HEC_TEST(memory_of_devices_is_out_of_reach) {
  static const char *const devices[] = {"FAKE_CUDA_DEVICES=2", NULL};
  static const char *const small[] = {"FAKE_CUDA_MEMORY=104857600", NULL};
  const bool yes = true, no = false;
  child_dies(NULL, touch, NULL, SIGSEGV, "the host touches memory of device 0");
  child_dies(NULL, touch_after_work, NULL, SIGSEGV, "the host touches memory of device 0");
  child_dies(NULL, copy_freed, NULL, SIGSEGV, "copy touches");
  child_dies(NULL, overrun, NULL, SIGSEGV, "add touches");
  child_dies(NULL, free_too_early, NULL, SIGABRT, "is freed while add");
  child_dies(NULL, free_twice, NULL, SIGABRT, "freed twice");
  child_dies(NULL, fill_too_much, NULL, SIGABRT, "not all of the 260 bytes");
  child_dies(devices, peer, &no, SIGSEGV, "add touches");
  child_exits(devices, peer, &yes, 0);
  child_exits(small, fresh, NULL, 0);
}

/* ---- Kernels ---- */

static int shuffles(const void *context) {
  (void)context;
  enum { ROWS = 77, COLUMNS = 45 };
  float host[ROWS * COLUMNS], sums[ROWS];
  float *x = child_floats(ROWS * COLUMNS), *y = child_floats(ROWS);
  cudaStream_t stream = child_stream();
  for (int i = 0; i < ROWS * COLUMNS; i++)
    host[i] = (float)(i * 7919 % 1024);
  EXPECT(cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  test_row_sums(stream, x, y, ROWS, COLUMNS);
  child_read(sums, y, ROWS, stream);
  for (int r = 0; r < ROWS; r++) {
    float sum = 0; /* integers: exact */
    for (int i = 0; i < COLUMNS; i++)
      sum += host[r * COLUMNS + i];
    EXPECT(sums[r] == sum);
  }
  for (int n = 1; n <= 1024; n = 3 * n + 1) {
    test_reverse(stream, x, n);
    child_read(sums, x, n < ROWS ? n : ROWS, stream);
    for (int i = 0; i < n && i < ROWS; i++)
      EXPECT(sums[i] == host[n - 1 - i]);
    test_reverse(stream, x, n);
  }
  return 0;
}

static int run_bad(const void *context) {
  static void (*const kernels[])(cudaStream_t, float *) = {test_lost_lane, test_small_warp, test_wide};
  int which = *(const int *)context;
  cudaStream_t stream = child_stream();
  float *x = child_floats(8);
  if (which < 3)
    kernels[which](stream, which == 2 ? x + 1 : x);
  else
    test_lost_barrier(stream);
  return (int)cudaStreamSynchronize(stream);
}

static int grids(const void *context) {
  (void)context;
  cudaStream_t stream = child_stream();
  float *x = child_floats(8);
  test_grid(stream, 0, 32);
  EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration && cudaGetLastError() == cudaSuccess);
  test_grid(stream, 1, 1025);
  EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
  test_grid(stream, 100000, 1);
  test_wide(stream, x);
  EXPECT(cudaGetLastError() == cudaSuccess && cudaStreamSynchronize(stream) == cudaSuccess);
  EXPECT(cudaStreamDestroy(stream) == cudaSuccess);
  return (int)cudaStreamSynchronize(stream); /* destroyed */
}

HEC_TEST(kernels_run_and_bad_ones_are_told) {
  const int which[] = {0, 1, 2, 3};
  child_exits(NULL, shuffles, NULL, 0);
  child_dies(NULL, run_bad, &which[0], SIGABRT, "16 lanes of warp 0 wait in a shuffle");
  child_dies(NULL, run_bad, &which[1], SIGABRT, "a shuffle in a warp of 16 threads");
  child_dies(NULL, run_bad, &which[2], SIGILL, "load_wide");
  child_dies(NULL, run_bad, &which[3], SIGABRT, "32 threads of 64 wait at a barrier");
  child_dies(NULL, grids, NULL, SIGABRT, "not a stream, or one that was destroyed");
}

/* ---- Failures on request, the log ---- */

static int third_fails(const void *context) {
  (void)context;
  void *at = NULL;
  for (int i = 1; i <= 5; i++) {
    EXPECT(cudaMalloc(&at, 64) == (i == 3 ? cudaErrorMemoryAllocation : cudaSuccess));
    EXPECT((at == NULL) == (i == 3));
  }
  return 0;
}

static int launch_fails(const void *context) {
  (void)context;
  float *x = child_floats(N), host;
  cudaStream_t stream = child_stream(), other = child_stream();
  for (int i = 0; i < 4; i++)
    test_add(stream, x, 1, N);
  EXPECT(cudaGetLastError() == cudaSuccess); /* nothing has run yet */
  EXPECT(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
  EXPECT(cudaStreamSynchronize(other) == cudaErrorLaunchFailure);
  EXPECT(cudaGetLastError() == cudaErrorLaunchFailure && cudaGetLastError() == cudaErrorLaunchFailure);
  EXPECT(cudaMemcpyAsync(&host, x, sizeof host, cudaMemcpyDefault, stream) == cudaErrorLaunchFailure);
  EXPECT(cudaFree(x) == cudaErrorLaunchFailure);
  EXPECT(cudaSetDevice(1) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess); /* the other device is well */
  return 0;
}

HEC_TEST(failures_come_when_asked_for) {
  static const char *const third[] = {"FAKE_CUDA_FAIL=cudaMalloc:3", NULL};
  static const char *const launch[] = {"FAKE_CUDA_FAIL=cudaHostAlloc:1,launch:3", "FAKE_CUDA_DEVICES=2", NULL};
  child_exits(third, third_fails, NULL, 0);
  child_exits(launch, launch_fails, NULL, 0);
}

static int logged(const void *context) {
  const char *file = context;
  float *x = child_floats(N), host[N];
  cudaStream_t a = child_stream(), b = child_stream();
  cudaEvent_t event;
  char text[1024] = "";
  EXPECT(cudaEventCreate(&event) == cudaSuccess);
  EXPECT(cudaMemsetAsync(x, 0, 8, a) == cudaSuccess);
  EXPECT(cudaEventRecord(event, a) == cudaSuccess && cudaStreamWaitEvent(b, event, 0) == cudaSuccess);
  test_add(b, x, 1, 2);
  child_read(host, x, 2, b);
  FILE *log = fopen(file, "r");
  EXPECT(log != NULL && fread(text, 1, sizeof text - 1, log) > 0);
  EXPECT(strcmp(text, "0 1 cudaMemsetAsync 8\n0 1 cudaEventRecord 1\n0 2 cudaStreamWaitEvent 1\n0 2 launch add 3x64\n"
                      "0 2 cudaMemcpyAsync fetch 8\n") == 0);
  return fclose(log);
}

HEC_TEST(calls_are_logged) {
  char file[] = "/tmp/hecate-fake-XXXXXX", setting[64];
  int fd = mkstemp(file);
  ck_assert_int_ge(fd, 0);
  (void)close(fd);
  (void)snprintf(setting, sizeof setting, "FAKE_CUDA_LOG=%s", file);
  const char *const environment[] = {setting, NULL};
  child_exits(environment, logged, file, 0);
  (void)unlink(file);
}
