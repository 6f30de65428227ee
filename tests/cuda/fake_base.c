/* What all parts of the fake stand on: its lock, the environment, the log, failures on request. */
#define _GNU_SOURCE /* pthread_condattr_setclock */
#include "tests/cuda/fake.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FAILS_MOST = 8 };
static const int64_t SECOND = 1000000000;

typedef struct {
  char call[64];
  int64_t at, seen;
} failure;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t something_new;
static uint64_t n_news; /* how often something was new */
static bool begun;
static uint64_t random_state;
static FILE *log_file;
static failure failures[FAILS_MOST];
static int32_t n_failures, n_devices;
static uint32_t reach[FAKE_DEVICES_MOST];
static _Thread_local int32_t device_of_thread;

/* ---- Words, settings, the lock ---- */

void fake_die(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)fputs("fake CUDA: ", stderr);
  (void)vfprintf(stderr, format, arguments);
  (void)fputc('\n', stderr);
  va_end(arguments);
  if (log_file)
    (void)fflush(log_file);
  abort();
}

int64_t fake_setting(const char *name, int64_t otherwise) {
  const char *text = getenv(name);
  return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

int64_t fake_clock_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * SECOND + now.tv_nsec;
}

static void read_failures(void) {
  const char *text = getenv("FAKE_CUDA_FAIL");
  while (text && *text) {
    failure *f = &failures[n_failures];
    long long at = 0;
    if (n_failures == FAILS_MOST || sscanf(text, "%63[^:,]:%lld", f->call, &at) != 2)
      fake_die("FAKE_CUDA_FAIL: \"%s\" is not \"call:number\"", text);
    f->at = at;
    n_failures++;
    text = strchr(text, ',');
    text = text ? text + 1 : NULL;
  }
}

static void begin(void) {
  pthread_condattr_t monotonic;
  const char *file = getenv("FAKE_CUDA_LOG");
  begun = true;
  (void)pthread_condattr_init(&monotonic);
  (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  (void)pthread_cond_init(&something_new, &monotonic);
  random_state = 0x9E3779B97F4A7C15U * (uint64_t)(1 + fake_setting("FAKE_CUDA_SEED", 1)) | 1;
  n_devices = (int32_t)fake_setting("FAKE_CUDA_DEVICES", 1);
  if (n_devices < 0 || n_devices > FAKE_DEVICES_MOST)
    fake_die("FAKE_CUDA_DEVICES=%d", n_devices);
  for (int32_t d = 0; d < n_devices; d++)
    reach[d] = 1U << d;
  read_failures();
  if (file && *file && !(log_file = fopen(file, "a")))
    fake_die("FAKE_CUDA_LOG=%s cannot be written", file);
}

void fake_enter(void) {
  (void)pthread_mutex_lock(&lock);
  if (!begun)
    begin();
}

void fake_leave(void) {
  fake_memory_open(0);
  (void)pthread_mutex_unlock(&lock);
}

bool fake_fails(const char *call) {
  bool fails = false;
  for (int32_t f = 0; f < n_failures; f++)
    if (strcmp(failures[f].call, call) == 0 && ++failures[f].seen == failures[f].at)
      fails = true;
  return fails;
}

/* xorshift64* (Vigna, 2016). */
uint32_t fake_random(uint32_t below) {
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return (uint32_t)((random_state * 0x2545F4914F6CDD1DU) >> 32) % below;
}

void fake_log(cudaStream_t stream, const char *format, ...) {
  if (!log_file)
    return;
  va_list arguments;
  va_start(arguments, format);
  (void)fprintf(log_file, "%d %d ", stream->device, stream->number);
  (void)vfprintf(log_file, format, arguments);
  (void)fputc('\n', log_file);
  (void)fflush(log_file);
  va_end(arguments);
}

void fake_something_new(void) {
  n_news++;
  (void)pthread_cond_broadcast(&something_new);
}

bool fake_wait_for_news(void) {
  int64_t until = fake_clock_ns() + SECOND * fake_setting("FAKE_CUDA_PATIENCE", 10);
  struct timespec limit = {until / SECOND, until % SECOND};
  uint64_t before = n_news;
  fake_memory_open(0);
  while (n_news == before)
    if (pthread_cond_timedwait(&something_new, &lock, &limit) == ETIMEDOUT)
      return n_news != before;
  return true;
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
