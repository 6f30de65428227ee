/* The CUDA plug-in: without a driver it loads and says why it cannot be used; with a device its kernels are those of the
 * CPU. Arrays lie between guards of a bit pattern that no result has, at every offset that matters for wide loads.
 *
 * Element by element the bytes must be the CPU's. norm and softmax sum in another order: the relative norm
 * |device - CPU| / |CPU| over a case stays below TOLERANCE, 8 units in the last place of float32 (either side's sum of
 * squares or exponentials is off by less than 2, s and the products by less than 2 more). */
#include "runtime/exec/backend.h"
#include "runtime/exec/cuda/plugin.h"
#include "runtime/exec/math.h"
#include "tests/support/check_main.h"

#include <dirent.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define TOLERANCE (8 * 0x1p-24)
static const uint32_t poison = 0x7FC0DEAD; /* a NaN */

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

/* Loads the plug-in; it must load, whether or not there is a device. */
static const hec_cuda_plugin *plugin_of(hec_text *why) {
  ck_assert(!hec_backend_nccl.available(why)); /* never yet */
  const hec_cuda_plugin *plugin = hec_cuda_plugin_of();
  ck_assert_msg(plugin != NULL, "the plug-in does not load: %s", why->data ? why->data : "no reason");
  return plugin;
}

START_TEST(says_why_it_cannot_be_used) {
  hec_text why = {0}, again = {0};
  hec_cuda_probe *probe = calloc(2, sizeof *probe);
  int sockets = n_sockets();
  ck_assert_ptr_nonnull(probe);
  ck_assert_ptr_null(hec_cuda_plugin_of());
  const hec_cuda_plugin *plugin = plugin_of(&why);
  (void)plugin_of(&again);
  ck_assert_ptr_nonnull(why.data);
  ck_assert_str_eq(why.data, again.data);
  printf("%s\n", why.data);
  memset(probe, 0xA5, 2 * sizeof *probe);
  bool usable = plugin->probe(&probe[0]);
  ck_assert(plugin->probe(&probe[1]) == usable);
  ck_assert(memcmp(&probe[0], &probe[1], sizeof *probe) == 0);
  ck_assert(usable == (probe->why[0] == '\0'));
  ck_assert_ptr_nonnull(strstr(why.data, usable ? "executing on GPUs is not there yet" : probe->why));
  ck_assert(!usable || probe->n_devices > 0);
  ck_assert(probe->runtime_version >= 12000 && probe->nccl_version >= 20000 && probe->cublas_version >= 120000);
  for (int32_t i = 0; i < probe->n_devices; i++)
    ck_assert(probe->devices[i].name[0] && probe->devices[i].major > 0 && probe->devices[i].memory_bytes > 0);
  ck_assert_int_eq(n_sockets(), sockets);
  plugin->close();
  hec_text_free(&why), hec_text_free(&again);
  free(probe);
}
END_TEST

START_TEST(ranks_do_not_start) {
  int32_t n_ranks = -1;
  hec_launch_options options = {.n_ranks = 1};
  ck_assert_int_eq(hec_backend_nccl.ranks(&n_ranks), HEC_FAILED);
  ck_assert_ptr_eq(strstr(hec_last_error(), "backend nccl: "), hec_last_error());
  ck_assert_int_eq(n_ranks, 0);
  ck_assert_int_eq(hec_backend_nccl.launch(&options, NULL, NULL), HEC_FAILED);
  hec_backend_nccl.close();
}
END_TEST

/* ---- With one ---- */

static struct {
  const hec_cuda_plugin *plugin;
  const hec_cuda_device *device;
  const hec_cuda_kernels *kernels;
  hec_cuda_stream stream;
  hec_cuda_probe probe;
} gpu;
static uint64_t seed = 2026;

static void done(int32_t error, const char *what) {
  ck_assert_msg(error == 0, "%s: %s", what, gpu.plugin->describe(error));
}
#define DONE(call) done(call, #call)

/* False, and said once: there is no device. */
static bool open_gpu(const char *test) {
  hec_text why = {0};
  gpu.plugin = plugin_of(&why);
  hec_text_free(&why);
  if (!gpu.plugin->probe(&gpu.probe)) {
    hec_test_skip(test, gpu.probe.why);
    return false;
  }
  gpu.device = gpu.plugin->device;
  gpu.kernels = gpu.plugin->kernels;
  int32_t chosen = 0;
  while (!gpu.probe.devices[chosen].fits)
    chosen++;
  DONE(gpu.device->use(chosen));
  DONE(gpu.device->open_stream(&gpu.stream));
  return true;
}

static void close_gpu(void) {
  DONE(gpu.device->close_stream(gpu.stream));
  gpu.plugin->close();
}

/* n floats on the device, `shift` floats behind an aligned address, and the same on the host, between guards. */
typedef struct {
  int64_t n, shift;
  float *whole, *x;  /* host: all, and what is computed with */
  float *there, *dx; /* the same on the device */
} array;
enum { GUARD = 64 };

static int64_t whole_of(const array *a) {
  return a->n + a->shift + 2 * GUARD;
}

/* Random in [-1, 1), or poison. */
static array new_array(int64_t n, int64_t shift, bool random) {
  array a = {.n = n, .shift = shift};
  size_t bytes = (size_t)whole_of(&a) * sizeof(float);
  void *there;
  a.whole = malloc(bytes);
  ck_assert_ptr_nonnull(a.whole);
  DONE(gpu.device->allocate(bytes, &there));
  a.there = there;
  a.x = a.whole + GUARD + shift;
  a.dx = a.there + GUARD + shift;
  for (int64_t i = 0; i < whole_of(&a); i++)
    memcpy(a.whole + i, &poison, sizeof poison);
  for (int64_t i = 0; random && i < n; i++)
    a.x[i] = (float)(2 * hec_test_uniform(&seed) - 1);
  DONE(gpu.device->move(gpu.stream, a.there, a.whole, bytes));
  DONE(gpu.device->wait(gpu.stream));
  return a;
}

static void free_array(array *a) {
  DONE(gpu.device->release(a->there));
  free(a->whole);
}

/* Where two arrays first differ in a byte, in [begin, end); end: nowhere. One assertion for all: each of Check's writes a
 * file. */
static int64_t first_difference(const float *a, const float *b, int64_t begin, int64_t end) {
  while (begin < end && memcmp(a + begin, b + begin, sizeof *a) == 0)
    begin++;
  return begin;
}

/* What the device has now, guards and all, [whole_of]; the caller frees. The guards must be whole. */
static float *fetch(const array *a) {
  size_t bytes = (size_t)whole_of(a) * sizeof(float);
  float *now = malloc(bytes);
  ck_assert_ptr_nonnull(now);
  DONE(gpu.device->move(gpu.stream, now, a->there, bytes));
  DONE(gpu.device->wait(gpu.stream));
  int64_t begin = a->x - a->whole, end = begin + a->n;
  int64_t before = first_difference(now, a->whole, 0, begin),
          behind = first_difference(now, a->whole, end, whole_of(a));
  ck_assert_msg(before == begin && behind == whole_of(a), "something written at %lld, outside of %lld floats",
                (long long)((before < begin ? before : behind) - begin), (long long)a->n);
  return now;
}

static void expect_bytes(const array *a, const char *what) {
  float *now = fetch(a);
  int64_t i = first_difference(now, a->whole, 0, whole_of(a));
  ck_assert_msg(i == whole_of(a), "%s: %lld floats, shift %lld: [%lld] is %.9g, not %.9g", what, (long long)a->n,
                (long long)a->shift, (long long)(i - (a->x - a->whole)), i < whole_of(a) ? (double)now[i] : 0.0,
                i < whole_of(a) ? (double)a->whole[i] : 0.0);
  free(now);
}

/* |device - CPU| / |CPU|; `worst` keeps the largest. */
static void expect_near(const array *a, const char *what, double *worst) {
  float *now = fetch(a), *x = now + (a->x - a->whole);
  double difference = 0, size = 0;
  for (int64_t i = 0; i < a->n; i++) {
    difference += ((double)x[i] - (double)a->x[i]) * ((double)x[i] - (double)a->x[i]);
    size += (double)a->x[i] * (double)a->x[i];
  }
  double error = size > 0 ? sqrt(difference / size) : sqrt(difference);
  ck_assert_msg(error <= TOLERANCE, "%s: %lld floats, shift %lld: relative norm %.3g, limit %.3g", what,
                (long long)a->n, (long long)a->shift, error, TOLERANCE); /* also when one is not finite */
  *worst = error > *worst ? error : *worst;
  free(now);
}

static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 31, 127, 128, 129, 1000, 4095, 4097, 65537, 3000001};
static const int64_t shifts[][2] = {{0, 0}, {1, 1}, {1, 0}, {0, 3}, {2, 1}, {3, 3}};
enum { N_SIZES = sizeof sizes / sizeof *sizes, N_SHIFTS = sizeof shifts / sizeof *shifts };

static void check_vectors(int64_t n, const int64_t *shift) {
  array to = new_array(n, shift[0], true), from = new_array(n, shift[1], true);
  hec_math_axpy(to.x, -1.37F, from.x, n);
  DONE(gpu.kernels->axpy(gpu.stream, to.dx, -1.37F, from.dx, n));
  expect_bytes(&to, "axpy");
  hec_math_scale(to.x, 0.731F, n);
  DONE(gpu.kernels->scale(gpu.stream, to.dx, 0.731F, n));
  expect_bytes(&to, "scale");
  expect_bytes(&from, "from");
  if (n > 0)
    memcpy(to.x, from.x, (size_t)n * sizeof *to.x);
  DONE(gpu.kernels->copy(gpu.stream, to.dx, from.dx, n));
  expect_bytes(&to, "copy");
  if (n > 0)
    memset(to.x, 0, (size_t)n * sizeof *to.x);
  DONE(gpu.kernels->zero(gpu.stream, to.dx, n));
  expect_bytes(&to, "zero");
  free_array(&to), free_array(&from);
}

START_TEST(vectors_are_the_cpus) {
  if (!open_gpu("exec.cuda/vectors"))
    return;
  for (int i = 0; i < N_SIZES; i++)
    for (int j = 0; j < N_SHIFTS; j++)
      check_vectors(sizes[i], shifts[j]);
  DONE(gpu.kernels->zero(gpu.stream, NULL, 0));
  DONE(gpu.kernels->copy(gpu.stream, NULL, NULL, 0));
  DONE(gpu.kernels->axpy(gpu.stream, NULL, 1, NULL, 0));
  DONE(gpu.kernels->scale(gpu.stream, NULL, 1, 0));
  close_gpu();
}
END_TEST

START_TEST(adam_is_the_cpus) {
  static const hec_adam adam = {.rate = 0.01F, .beta1 = 0.9F, .beta2 = 0.999F, .epsilon = 1e-5F};
  if (!open_gpu("exec.cuda/adam"))
    return;
  for (int i = 0; i < N_SIZES; i++)
    for (int j = 0; j < N_SHIFTS; j++) {
      int64_t n = sizes[i];
      array params = new_array(n, shifts[j][0], true), grads = new_array(n, shifts[j][1], true);
      array first = new_array(n, shifts[j][0], false), second = new_array(n, shifts[j][0], false);
      for (int64_t k = 0; k < n; k++)
        first.x[k] = second.x[k] = 0;
      DONE(gpu.kernels->zero(gpu.stream, first.dx, n));
      DONE(gpu.kernels->zero(gpu.stream, second.dx, n));
      for (int64_t step = 1; step <= 3; step++) {
        hec_adam_step by = hec_math_adam_step(&adam, step);
        hec_math_adam(&adam, step, params.x, grads.x, first.x, second.x, n);
        DONE(gpu.kernels->adam(gpu.stream, &(hec_cuda_adam){.rate = by.rate,
                                                            .correct = by.correct,
                                                            .beta1 = adam.beta1,
                                                            .beta2 = adam.beta2,
                                                            .epsilon = adam.epsilon,
                                                            .params = params.dx,
                                                            .first = first.dx,
                                                            .second = second.dx,
                                                            .grads = grads.dx,
                                                            .n = n}));
      }
      expect_bytes(&params, "adam, params");
      expect_bytes(&first, "adam, first");
      expect_bytes(&second, "adam, second");
      expect_bytes(&grads, "adam, grads");
      free_array(&params), free_array(&grads), free_array(&first), free_array(&second);
    }
  close_gpu();
}
END_TEST

/* A list of n additions into `to`, terms from anywhere in `from`. How: 0 random pieces, which share numbers and bounds in
 * every way; 1 the same pieces of as many sources, source by source, as an exchange leaves them; 2 one piece n times. */
static void check_additions(int how, int32_t n, int64_t most, const int64_t *shift) {
  enum { PIECES = 90 };
  int64_t room = most * PIECES;
  array to = new_array(room, shift[0], true), from = new_array(room, shift[1], true);
  hec_cuda_addition *list = calloc((size_t)n + 1, sizeof *list);
  ck_assert_ptr_nonnull(list);
  for (int32_t i = 0; i < n; i++) {
    int64_t size =
        how == 0 ? (int64_t)hec_test_below(&seed, (uint64_t)most + 1) : most - (how == 1 ? i % PIECES % 5 : 0);
    int64_t at = how == 0 ? (int64_t)hec_test_below(&seed, (uint64_t)(room - size)) : i % PIECES * most * (how == 1);
    int64_t term = (int64_t)hec_test_below(&seed, (uint64_t)(room - size) + 1);
    hec_math_add(to.x + at, from.x + term, size);
    list[i] = (hec_cuda_addition){to.dx + at, from.dx + term, size};
  }
  DONE(gpu.kernels->add(gpu.stream, list, n));
  memset(list, 0xFF, (size_t)n * sizeof *list); /* it may go when the call returns */
  expect_bytes(&to, "add");
  expect_bytes(&from, "add, from");
  free(list);
  free_array(&to), free_array(&from);
}

START_TEST(additions_are_the_cpus) {
  static const int32_t lengths[] = {1, 2, 63, 64, 65, 240, 241, 700};
  static const int64_t most[] = {5, 64, 4099, 20000};
  if (!open_gpu("exec.cuda/additions"))
    return;
  DONE(gpu.kernels->add(gpu.stream, NULL, 0));
  array to = new_array(9000001, 1, true), from = new_array(9000001, 1, true); /* more tiles than blocks */
  hec_math_add(to.x, from.x, to.n);
  DONE(gpu.kernels->add(gpu.stream, &(hec_cuda_addition){to.dx, from.dx, to.n}, 1));
  expect_bytes(&to, "one large addition");
  free_array(&to), free_array(&from);
  for (int how = 0; how < 3; how++)
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
      for (size_t j = 0; j < sizeof most / sizeof *most; j++)
        check_additions(how, lengths[i], most[j], shifts[(i + j) % N_SHIFTS]);
  close_gpu();
}
END_TEST

/* The bytes of n floats on the device; the caller frees. */
static float *bytes_of(const array *a) {
  float *now = fetch(a), *x = malloc((size_t)a->n * sizeof *x + 1);
  ck_assert_ptr_nonnull(x);
  memcpy(x, now + (a->x - a->whole), (size_t)a->n * sizeof *x);
  free(now);
  return x;
}

/* The same numbers at every shift: near the CPU's, and the same bytes as at shift 0. */
static void check_norm(int32_t rows, int32_t d, double *worst) {
  float *at_zero = NULL;
  uint64_t before = seed;
  for (int64_t shift = 0; shift < 3; shift++) {
    seed = before;
    array x = new_array((int64_t)rows * d, shift, true), gain = new_array(d, shift == 2 ? 0 : shift, true);
    array y = new_array((int64_t)rows * d, shift, false), scale = new_array(rows, shift, false);
    hec_math_norm(x.x, gain.x, y.x, scale.x, rows, d);
    DONE(gpu.kernels->norm(
        gpu.stream, &(hec_cuda_norm){.x = x.dx, .gain = gain.dx, .y = y.dx, .scale = scale.dx, .rows = rows, .d = d}));
    expect_near(&y, "norm", worst);
    expect_near(&scale, "norm, scale", worst);
    expect_bytes(&x, "norm, x");
    float *now = bytes_of(&y);
    ck_assert(!at_zero || memcmp(now, at_zero, (size_t)y.n * sizeof *now) == 0);
    free(at_zero);
    at_zero = now;
    free_array(&x), free_array(&gain), free_array(&y), free_array(&scale);
  }
  free(at_zero);
}

START_TEST(norm_is_near_the_cpus) {
  static const int32_t rows[] = {0, 1, 3, 8, 17, 300}, d[] = {1, 3, 4, 5, 127, 128, 129, 768, 4099};
  double worst = 0;
  if (!open_gpu("exec.cuda/norm"))
    return;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (size_t j = 0; j < sizeof d / sizeof *d; j++)
      check_norm(rows[i], d[j], &worst);
  check_norm(20000, 64, &worst); /* more rows than warps */
  printf("norm: relative norm %.3g, limit %.3g\n", worst, TOLERANCE);
  close_gpu();
}
END_TEST

static void check_softmax(hec_cuda_softmax softmax, double *worst) {
  float *at_zero = NULL;
  uint64_t before = seed;
  for (int64_t shift = 0; shift < 3; shift++) {
    seed = before;
    array x = new_array(softmax.rows * softmax.n, shift, true);
    hec_math_scale(x.x, 20, x.n);
    DONE(gpu.kernels->scale(gpu.stream, x.dx, 20, x.n));
    for (int64_t r = 0; r < softmax.rows; r++) {
      int64_t sees = softmax.visible + r % softmax.period * softmax.stride;
      sees = sees < 0 ? 0 : sees < softmax.n ? sees : softmax.n;
      if (!softmax.linear)
        hec_math_softmax(x.x + r * softmax.n, (int32_t)sees);
      for (int64_t i = sees; i < softmax.n; i++)
        x.x[r * softmax.n + i] = 0;
    }
    softmax.x = x.dx;
    DONE(gpu.kernels->softmax(gpu.stream, &softmax));
    float *now = bytes_of(&x);
    int64_t same = first_difference(now, x.x, 0, x.n);
    while (same < x.n && !softmax.linear && x.x[same] > 0) /* bytes where nothing is seen (zero), and of linear rows */
      same = first_difference(now, x.x, same + 1, x.n);
    ck_assert_int_eq(same, x.n);
    expect_near(&x, "softmax", worst);
    ck_assert(!at_zero || memcmp(now, at_zero, (size_t)x.n * sizeof *now) == 0);
    free(at_zero);
    at_zero = now;
    free_array(&x);
  }
  free(at_zero);
}

START_TEST(softmax_is_near_the_cpus) {
  static const int64_t rows[] = {0, 1, 7, 130}, n[] = {0, 1, 3, 4, 127, 128, 129, 515, 4099};
  double worst = 0;
  if (!open_gpu("exec.cuda/softmax"))
    return;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (size_t j = 0; j < sizeof n / sizeof *n; j++)
      for (int linear = 0; linear < 2; linear++) {
        hec_cuda_softmax all = {.rows = rows[i], .n = n[j], .visible = n[j], .period = 1, .linear = linear != 0};
        hec_cuda_softmax causal = all, off = all;
        causal.visible = 1, causal.stride = 1, causal.period = 64; /* also past the end of the row */
        off.visible = -3, off.stride = 2, off.period = 5;          /* also before its beginning */
        check_softmax(all, &worst);
        check_softmax(causal, &worst);
        check_softmax(off, &worst);
      }
  check_softmax((hec_cuda_softmax){.rows = 20000, .n = 6, .visible = 1, .stride = 1, .period = 6}, &worst);
  printf("softmax: relative norm %.3g, limit %.3g\n", worst, TOLERANCE);
  close_gpu();
}
END_TEST

/* More floats than 31 bits count: the last ones are reached. */
START_TEST(sizes_have_64_bits) {
  const int64_t n = ((int64_t)1 << 31) + 1003;
  const float last[] = {1, 2, 3, 4, 5, 6, 7, 8}; /* at the end; as many behind it stay */
  float now[16];
  void *at;
  if (!open_gpu("exec.cuda/sizes"))
    return;
  size_t bytes = ((size_t)n + 8) * sizeof(float);
  int32_t error = gpu.device->allocate(bytes, &at);
  if (error != 0) {
    hec_test_skip("exec.cuda/sizes", gpu.plugin->describe(error));
    close_gpu();
    return;
  }
  float *x = at;
  DONE(gpu.kernels->zero(gpu.stream, x, n + 8));
  DONE(gpu.device->move(gpu.stream, x + n - 8, last, sizeof last));
  DONE(gpu.device->move(gpu.stream, x + n, last, sizeof last));
  DONE(gpu.kernels->scale(gpu.stream, x, 2, n));
  hec_cuda_addition twice = {x + n - 4, x, 4};
  DONE(gpu.kernels->add(gpu.stream, &twice, 1)); /* zeros */
  DONE(gpu.device->move(gpu.stream, now, x + n - 8, sizeof now));
  DONE(gpu.device->wait(gpu.stream));
  for (int i = 0; i < 8; i++)
    ck_assert(now[i] == 2 * last[i] && now[8 + i] == last[i]);
  DONE(gpu.device->release(at));
  close_gpu();
}
END_TEST

static Suite *make_suite(void) {
  Suite *suite = suite_create("cuda");
  TCase *tests = tcase_create("cuda");
  tcase_set_timeout(tests, 240);
  tcase_add_test(tests, says_why_it_cannot_be_used);
  tcase_add_test(tests, ranks_do_not_start);
  tcase_add_test(tests, vectors_are_the_cpus);
  tcase_add_test(tests, adam_is_the_cpus);
  tcase_add_test(tests, additions_are_the_cpus);
  tcase_add_test(tests, norm_is_near_the_cpus);
  tcase_add_test(tests, softmax_is_near_the_cpus);
  tcase_add_test(tests, sizes_have_64_bits);
  suite_add_tcase(suite, tests);
  return suite;
}

/* Nothing is loaded here: each test is a forked process, and a driver that was started before a fork is of no use. */
int main(void) {
  if (access(HEC_BINARY_DIR "/hecate-cuda.so", F_OK) != 0 && !getenv("HECATE_PLUGINS")) {
    hec_test_skip("exec.cuda", "the plug-in is not built: no CUDA or NCCL was found, or an instrumented build");
    return 77;
  }
  SRunner *runner = srunner_create(make_suite());
  srunner_run_all(runner, CK_NORMAL);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
