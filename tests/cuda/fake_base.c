/* What all parts of the fake stand on: the environment, the log, failures on request. */
#include "tests/cuda/fake.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAILS_MAX = 8 };

typedef struct {
  char call[64];
  int64_t at, seen;
} failure;

static bool begun;
static FILE *log_file;
static failure failures[FAILS_MAX];
static int32_t n_failures, n_devices;
static uint32_t reach[FAKE_DEVICES_MAX];
static _Thread_local int32_t device_of_thread;

int64_t fake_setting(const char *name, int64_t otherwise) {
  const char *text = getenv(name);
  return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

static void read_failures(void) {
  const char *text = getenv("FAKE_CUDA_FAIL");
  while (text && *text) {
    failure *f = &failures[n_failures];
    long long at = 0;
    if (n_failures == FAILS_MAX || sscanf(text, "%63[^:,]:%lld", f->call, &at) != 2)
      hec_queue_die("FAKE_CUDA_FAIL: \"%s\" is not \"call:number\"", text);
    f->at = at;
    n_failures++;
    text = strchr(text, ',');
    text = text ? text + 1 : NULL;
  }
}

static void flush_log(void) {
  if (log_file)
    (void)fflush(log_file);
}

static void before(hec_queue_piece *work) {
  fake_check_uses(work);
  fake_memory_open(work->is_kernel ? fake_reach(work->stream->device) : UINT32_MAX);
  fake_memory_running(work->name);
}

static void after(void) {
  fake_memory_running(NULL);
}

static void close_memory(void) {
  fake_memory_open(0);
}

static void begin(void) {
  const char *file = getenv("FAKE_CUDA_LOG");
  begun = true;
  hec_queue_hook = (hec_queue_hooks){flush_log, before, after, close_memory, fake_setting("FAKE_CUDA_PATIENCE", 10)};
  hec_queue_seed((uint64_t)fake_setting("FAKE_CUDA_SEED", 1), true);
  n_devices = (int32_t)fake_setting("FAKE_CUDA_DEVICES", 1);
  if (n_devices < 0 || n_devices > FAKE_DEVICES_MAX)
    hec_queue_die("FAKE_CUDA_DEVICES=%d", n_devices);
  for (int32_t d = 0; d < n_devices; d++)
    reach[d] = 1U << d;
  read_failures();
  if (file && *file && !(log_file = fopen(file, "a")))
    hec_queue_die("FAKE_CUDA_LOG=%s cannot be written", file);
}

void fake_enter(void) {
  hec_queue_lock();
  if (!begun)
    begin();
}

void fake_leave(void) {
  close_memory();
  hec_queue_unlock();
}

bool fake_fails(const char *call) {
  bool fails = false;
  for (int32_t f = 0; f < n_failures; f++)
    if (strcmp(failures[f].call, call) == 0 && ++failures[f].seen == failures[f].at)
      fails = true;
  return fails;
}

void fake_log(cudaStream_t stream, const char *format, ...) {
  if (!log_file)
    return;
  va_list arguments;
  va_start(arguments, format);
  (void)fprintf(log_file, "%d %d ", stream->device, stream->number);
  (void)vfprintf(log_file, format, arguments);
  (void)fputc('\n', log_file);
  flush_log();
  va_end(arguments);
}

/* ---- Devices ---- */

int32_t fake_n_devices(void) {
  return n_devices;
}

int32_t fake_device(void) {
  return device_of_thread;
}

void fake_use_device(int32_t device) {
  device_of_thread = device;
}

void fake_enable_peer(int32_t device, int32_t peer) {
  reach[device] |= 1U << peer;
}

uint32_t fake_reach(int32_t device) {
  return reach[device];
}
