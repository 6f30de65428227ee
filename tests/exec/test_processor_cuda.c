/* The CUDA plug-in: without a driver it loads and says why it cannot be used. With a device that is a processor like the
 * others (processor_case.h), in every mode. HECATE_PLUGINS chooses another plug-in, such as the one over a fake of CUDA.
 *
 * One process for all tests: a driver that was started before a fork is of no use after it. */
#include "runtime/exec/backend.h"
#include "tests/exec/processor_case.h"
#include "tests/support/checks.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

static const hec_cuda_plugin *plugin;
static hec_cuda_probe probe;
static int32_t chosen; /* the first device that fits */

/* ---- Without a device ---- */

static int n_sockets(void) {
  DIR *folder = opendir("/proc/self/fd");
  ck_assert_ptr_nonnull(folder);
  int n = 0;
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    char path[300], target[64] = "";
    (void)snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
    if (readlink(path, target, sizeof target - 1) > 0)
      n += strncmp(target, "socket:", 7) == 0;
  }
  (void)closedir(folder);
  return n;
}

START_TEST(says_why_it_cannot_be_used) {
  hec_text why = {0}, again = {0};
  hec_cuda_probe *two = calloc(2, sizeof *two);
  int sockets = n_sockets();
  ck_assert_ptr_nonnull(two);
  bool available = hec_backend_nccl.available(&why);
  ck_assert(hec_backend_nccl.available(&again) == available);
  ck_assert(available || why.length > 0);
  ck_assert(why.length == again.length && (!why.length || strcmp(why.data, again.data) == 0));
  memset(two, 0xA5, 2 * sizeof *two);
  bool usable = plugin->probe(&two[0]);
  ck_assert(plugin->probe(&two[1]) == usable);
  ck_assert(memcmp(&two[0], &two[1], sizeof *two) == 0);
  ck_assert(usable == (two->why[0] == '\0'));
  ck_assert(usable || (!available && strstr(why.data, two->why)));
  ck_assert(!usable || two->n_devices > 0);
  ck_assert(two->runtime_version >= 12000 && two->nccl_version >= 20000 && two->cublas_version >= 120000);
  for (int32_t i = 0; i < two->n_devices; i++)
    ck_assert(two->devices[i].name[0] && two->devices[i].major > 0 && two->devices[i].memory_bytes > 0);
  ck_assert_int_eq(n_sockets(), sockets);
  hec_text_free(&why), hec_text_free(&again);
  free(two);
}
END_TEST

static Suite *without_device(void) {
  Suite *suite = suite_create("exec.processor_cuda, without a device");
  TCase *c = tcase_create("plug-in");
  tcase_add_test(c, says_why_it_cannot_be_used);
  suite_add_tcase(suite, c);
  return suite;
}

/* ---- Devices ---- */

static hec_processor *opened(hec_cuda_options with) {
  hec_processor *on = NULL;
  with.device = chosen;
  with.clock_ns = hec_clock_ns;
  const char *words = plugin->device->open(&with, &on);
  ck_assert_msg(!words && on, "%s", words);
  return on;
}

static void *allocated(hec_processor *on, size_t bytes) {
  void *at;
  const char *words = plugin->device->allocate(on, bytes, &at);
  ck_assert_msg(!words, "%s", words);
  return at;
}

static int64_t free_bytes(hec_processor *on) {
  int64_t bytes = -1;
  ck_assert_ptr_null(plugin->device->free_bytes(on, &bytes));
  return bytes;
}

static void close_well(hec_processor *on) {
  const char *error = on->streams->error(on);
  ck_assert_msg(!error, "%s", error);
  plugin->device->close(on);
}

START_TEST(devices_that_are_not_there) {
  hec_processor *on = (hec_processor *)&probe;
  const char *words = plugin->device->open(&(hec_cuda_options){.device = 1000, .clock_ns = hec_clock_ns}, &on);
  ck_assert(words && words[0] && !on);
  close_well(opened((hec_cuda_options){0}));
}
END_TEST

/* Refused memory is told and changes nothing; what is given is aligned; closing gives everything back. */
START_TEST(memory_is_given_and_taken_back) {
  hec_processor *on = opened((hec_cuda_options){0});
  void *at = on;
  close_well(on);
  on = opened((hec_cuda_options){0}); /* the first one loads code, which stays */
  int64_t before = free_bytes(on);
  ck_assert_ptr_null(plugin->device->allocate(on, 0, &at));
  ck_assert_ptr_null(at);
  const char *words = plugin->device->allocate(on, (size_t)1 << 50, &at);
  ck_assert(words && words[0] && !at);
  ck_assert((uintptr_t)allocated(on, 100) % 256 == 0 && (uintptr_t)allocated(on, 7 << 20) % 256 == 0);
  ck_assert(free_bytes(on) <= before - (7 << 20));
  close_well(on);
  on = opened((hec_cuda_options){0});
  ck_assert(free_bytes(on) >= before - (4 << 20));
  close_well(on);
}
END_TEST

/* Two processors of one device: their streams and events are theirs, but either waits for the other's. */
START_TEST(two_on_one_device) {
  enum { N = 4096 };
  hec_processor *two[2] = {opened((hec_cuda_options){0}), opened((hec_cuda_options){.serial = true})};
  float *x = allocated(two[0], N * sizeof *x), start[N], now[N];
  for (int i = 0; i < N; i++)
    start[i] = (float)i;
  two[0]->math->to_device(two[0], x, start, N);
  const hec_event *event = two[0]->streams->mark(two[0]);
  for (int i = 1; i < 20; i++) {
    hec_processor *on = two[i % 2];
    on->streams->select(on, i % HEC_STREAMS);
    on->streams->after(on, event);
    on->math->scale(on, x, i % 2 ? 3 : 0.5F, N);
    event = on->streams->mark(on);
    for (int j = 0; j < N; j++)
      start[j] *= i % 2 ? 3 : 0.5F;
  }
  two[0]->streams->after(two[0], event);
  two[0]->math->to_host(two[0], now, x, N);
  ck_assert(memcmp(now, start, sizeof now) == 0);
  close_well(two[1]);
  close_well(two[0]);
}
END_TEST

/* Lists, scratch, events and products of a step, on two streams; the numbers do not matter. */
static void some_step(hec_processor *on, float *x) {
  hec_gemm list[40];
  hec_piece pieces[200];
  for (int i = 0; i < 40; i++)
    list[i] = (hec_gemm){.m = 8, .n = 8, .k = 8 - i % 3, .a = x, .b = x + 64, .c = x + 128 + 64 * i, .alpha = 1};
  for (int i = 0; i < 200; i++)
    pieces[i] = (hec_piece){x + 4000 + i, x + i, 1};
  for (int32_t s = 0; s < 2; s++) {
    on->streams->select(on, s);
    for (int i = 0; i < 500; i++) {
      on->math->gemm(on, list + 20 * s, 20);
      (void)on->streams->mark(on);
    }
    on->math->copy(on, pieces, 200);
  }
  on->streams->restart(on);
}

START_TEST(later_rounds_allocate_nothing) {
  static const hec_cuda_options modes[] = {{.grouped = true}, {.precision = HEC_BF16}};
  for (int i = 0; i < 2; i++) {
    hec_processor *on = opened(modes[i]);
    float *x = allocated(on, 8192 * sizeof *x);
    on->math->zero(on, x, 8192);
    const hec_event *event = on->streams->mark(on);
    on->streams->restart(on);
    ck_assert_ptr_eq(on->streams->mark(on), event); /* which was ended */
    some_step(on, x);
    some_step(on, x);
    int64_t left = free_bytes(on);
    some_step(on, x);
    some_step(on, x);
    ck_assert_int_eq(free_bytes(on), left);
    close_well(on);
  }
}
END_TEST

/* More tiles than the largest grid has blocks, at an odd place. */
START_TEST(more_tiles_than_blocks) {
  const int64_t n = 9000001;
  hec_processor *on = opened((hec_cuda_options){0});
  float *x = allocated(on, (size_t)(2 * n + 8) * sizeof *x), *here = malloc((size_t)n * sizeof *here);
  ck_assert_ptr_nonnull(here);
  for (int64_t i = 0; i < n; i++)
    here[i] = (float)(i % 8191);
  on->math->to_device(on, x + 1, here, n);
  on->math->to_device(on, x + n + 4, here, n); /* n is odd: both have the same offset */
  on->math->add(on, &(hec_piece){x + 1, x + n + 4, n}, 1);
  on->math->to_host(on, here, x + 1, n);
  for (int64_t i = 0; i < n; i++)
    if (here[i] != (float)(2 * (i % 8191)))
      ck_abort_msg("[%lld] is %g", (long long)i, (double)here[i]);
  free(here);
  close_well(on);
}
END_TEST

/* More floats than 31 bits count: the last ones are reached. Where there is so much memory. */
START_TEST(sizes_have_64_bits) {
  const int64_t n = ((int64_t)1 << 31) + 1003;
  const float last[] = {1, 2, 3, 4, 5, 6, 7, 8};
  float now[16];
  hec_processor *on = opened((hec_cuda_options){0});
  if (free_bytes(on) < (int64_t)40 << 30) {
    hec_test_skip("exec.processor_cuda/sizes", "the device has less than 40 GiB free");
  } else {
    float *x = allocated(on, ((size_t)n + 8) * sizeof *x);
    on->math->zero(on, x, n + 8);
    on->math->to_device(on, x + n - 8, last, 8);
    on->math->to_device(on, x + n, last, 8);
    on->math->scale(on, x, 2, n);
    on->math->add(on, &(hec_piece){x + n - 4, x, 4}, 1); /* zeros */
    on->math->to_host(on, now, x + n - 8, 16);
    for (int i = 0; i < 8; i++)
      ck_assert(now[i] == 2 * last[i] && now[8 + i] == last[i]);
  }
  close_well(on);
}
END_TEST

static Suite *devices(void) {
  Suite *suite = suite_create("exec.processor_cuda, devices");
  TCase *c = tcase_create("devices");
  tcase_add_test(c, devices_that_are_not_there);
  tcase_add_test(c, memory_is_given_and_taken_back);
  tcase_add_test(c, two_on_one_device);
  tcase_add_test(c, later_rounds_allocate_nothing);
  tcase_add_test(c, more_tiles_than_blocks);
  tcase_add_test(c, sizes_have_64_bits);
  suite_add_tcase(suite, c);
  return suite;
}

/* ---- All of it ---- */

static int run(Suite *suite) {
  return hec_test_run_suite(suite, CK_NOFORK);
}

static int run_cases(const char *name, hec_cuda_options with, bool in_part) {
  enum { FLOATS = 2 << 20 };
  with.device = chosen;
  with.clock_ns = hec_clock_ns;
  void *memory = NULL;
  const char *words = plugin->device->open(&with, &hec_case.on);
  if (!words)
    words = plugin->device->allocate(hec_case.on, FLOATS * sizeof(float), &memory);
  if (words) {
    printf("%s: %s\n", name, words);
    return 1;
  }
  hec_case = (hec_case_place){hec_case.on, with.precision, memory, FLOATS};
  int failed = run(hec_case_suite(name, in_part));
  plugin->device->close(hec_case.on);
  return failed;
}

static int skip(const char *why) {
  hec_test_skip("exec.processor_cuda", why);
  return 77;
}

int main(void) {
  HEC_SCOPED(hec_text) why = {0};
  if (access(HEC_BINARY_DIR "/hecate-cuda.so", F_OK) != 0 && !getenv("HECATE_PLUGINS"))
    return skip("the plug-in is not built: no CUDA or NCCL was found, or an instrumented build");
  (void)hec_backend_nccl.available(&why);
  plugin = hec_cuda_plugin_of();
  if (!plugin)
    printf("the plug-in does not load: %s\n", why.data ? why.data : "no reason");
  if (!plugin || run(without_device()) != 0)
    return EXIT_FAILURE;
  if (!plugin->probe(&probe))
    return skip(probe.why);
  while (!probe.devices[chosen].fits)
    chosen++;
  int failed = run(devices());
  failed += run_cases("float32, grouped", (hec_cuda_options){.grouped = true}, false);
  failed += run_cases("float32, one by one", (hec_cuda_options){0}, true);
  failed += run_cases("float32, serial", (hec_cuda_options){.grouped = true, .serial = true}, true);
  failed += run_cases("TF32", (hec_cuda_options){.precision = HEC_TF32, .grouped = true}, true);
  failed += run_cases("bfloat16", (hec_cuda_options){.precision = HEC_BF16, .grouped = true}, true);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
