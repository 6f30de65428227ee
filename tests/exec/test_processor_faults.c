/* The CUDA plug-in while CUDA fails, over the fake of tests/cuda. Every call that it makes, one after the other, until none
 * is left to fail. The first failure is kept and said, everything after it does nothing, every event is reached.
 * Memory that is refused is told to who asked, and closing ends it all. Nothing crashes or hangs. */
#include "runtime/exec/backend.h"
#include "runtime/exec/cuda/plugin.h"
#include "runtime/exec/model/model.h"
#include "tests/support/test.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

HEC_TEST_NEEDS(access(HEC_BINARY_DIR "/fake/hecate-cuda.so", F_OK) == 0,
               "the fake of CUDA is not built: no CUDA was found, or an instrumented build")

enum { N = 64, FAILED = 3 };

/* ---- What is done with a device ----
 *
 * Codes: 0 nothing failed and the numbers are right; FAILED: a failure was said, on stderr; 1 anything else. */

static int wrong(const char *what) {
  printf("%s\n", what);
  return EXIT_FAILURE;
}

static int said(const char *words) {
  (void)fprintf(stderr, "%s\n", words);
  return words[0] ? FAILED : EXIT_FAILURE;
}

/* Products alike, products of different sizes, and lists that are sent: y becomes 3 * x on another stream. */
static const hec_event *work(hec_processor *on, float *x, float *y, const float *here) {
  static int32_t expert_at[] = {0, N}, token[N];
  static float *row[N];
  hec_assignments a = {.n = N, .n_tokens = N, .expert_at = expert_at, .token = token};
  hec_gemm list[3];
  on->math->to_device(on, x, here, N * N);
  for (int i = 0; i < 3; i++)
    list[i] = (hec_gemm){.m = 4, .n = 4, .k = 4, .a = x, .b = x, .c = y + 64 * i, .alpha = 1};
  on->math->gemm(on, list, 3);
  list[1].k = 3;
  on->math->gemm(on, list, 3);
  on->math->gemm(on, list, 1);
  const hec_event *event = on->streams->mark(on);
  on->streams->select(on, 3);
  on->streams->after(on, event);
  for (int32_t j = 0; j < N; j++) {
    token[j] = j;
    row[j] = y + (size_t)j * N;
  }
  on->math->permute(on, &a, x, N, row);
  on->math->scale(on, y, 3, N * N);
  return on->streams->mark(on);
}

static int check(hec_processor *on, const hec_event *event, const float *y, const float *here) {
  float now[N * N] = {0};
  bool failed = on->streams->error(on) != NULL;
  while (!on->streams->reached(on, event))
    continue;
  (void)on->streams->when(on, event);
  on->math->to_host(on, now, y, N * N);
  on->streams->restart(on);
  const char *error = on->streams->error(on);
  if (failed && !error)
    return wrong("an error was forgotten");
  for (int i = 0; !error && i < N * N; i++)
    if (now[i] != 3 * here[i])
      return wrong("a wrong number, and no error");
  return EXIT_SUCCESS;
}

static int work_on(const hec_cuda_plugin *plugin, hec_processor *on) {
  static float here[N * N];
  void *x, *y;
  const char *words = plugin->device->allocate(on, sizeof here, &x);
  words = words ? words : plugin->device->allocate(on, sizeof here, &y);
  if (words)
    return said(words);
  if (!on->streams->host_memory(on, 1000) && !on->streams->error(on))
    return said("no memory of the host");
  for (int i = 0; i < N * N; i++)
    here[i] = (float)(i % 97);
  for (int round = 0; round < 3; round++) {
    int code = check(on, work(on, x, y, here), y, here);
    if (code != EXIT_SUCCESS)
      return code;
  }
  words = on->streams->error(on);
  return words ? said(words) : EXIT_SUCCESS;
}

static int open_and_work(hec_precision precision) {
  HEC_SCOPED(hec_text) why = {0};
  hec_processor *on = NULL;
  hec_cuda_options options = {.grouped = true, .clock_ns = hec_clock_ns, .precision = precision};
  (void)hec_backend_nccl.available(&why);
  const hec_cuda_plugin *plugin = hec_cuda_plugin_of();
  if (!plugin)
    return wrong("the plug-in does not load");
  const char *words = plugin->device->open(&options, &on);
  if (words)
    return on ? wrong("a processor that was not opened") : said(words);
  int code = work_on(plugin, on);
  plugin->device->close(on);
  return code;
}

/* ---- Failures ---- */

static char words[4096]; /* what the last child said */

/* The code of a child in which call:k fails; with one line of words exactly when that is FAILED. */
static int outcome(const char *call, int k, hec_precision precision) {
  char setting[64];
  int ends[2], status = 0;
  (void)snprintf(setting, sizeof setting, "%s:%d", call, k);
  ck_assert_int_eq(pipe(ends), 0);
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    (void)dup2(ends[1], STDERR_FILENO);
    (void)setenv("HECATE_PLUGINS", HEC_BINARY_DIR "/fake", 1);
    (void)setenv("FAKE_CUDA_FAIL", setting, 1);
    (void)alarm(300);
    _exit(open_and_work(precision));
  }
  (void)close(ends[1]);
  size_t n = 0;
  for (ssize_t got; (got = read(ends[0], words + n, sizeof words - 1 - n)) > 0;)
    n += (size_t)got;
  words[n] = '\0';
  (void)close(ends[0]);
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_msg(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == FAILED),
                "%s: wait status %#x: %s", setting, (unsigned)status, words);
  const char *line = strchr(words, '\n');
  ck_assert_msg(WEXITSTATUS(status) == 0 ? n == 0 : line && line[1] == '\0', "%s: said: %s", setting, words);
  return WEXITSTATUS(status);
}

static const struct {
  const char *call;
  int at_least; /* so often it is made */
  hec_precision precision;
} calls[] = {{"cudaMalloc", 4, HEC_FP32},
             {"cudaMalloc", 5, HEC_BF16},
             {"cudaHostAlloc", 2, HEC_FP32},
             {"cudaStreamCreate", 6, HEC_FP32},
             {"cudaStreamSynchronize", 10, HEC_FP32},
             {"cudaStreamWaitEvent", 3, HEC_FP32},
             {"cudaEventCreate", 4, HEC_FP32},
             {"cudaEventRecord", 10, HEC_FP32},
             {"cudaEventSynchronize", 8, HEC_FP32},
             {"cudaEventQuery", 3, HEC_FP32},
             {"cudaEventElapsedTime", 3, HEC_FP32},
             {"cudaMemcpyAsync", 6, HEC_FP32},
             {"cudaLaunchKernel", 6, HEC_FP32},
             {"cudaLaunchKernel", 9, HEC_BF16},
             {"launch", 6, HEC_FP32},
             {"launch", 9, HEC_BF16},
             {"cudaSetDevice", 10, HEC_FP32},
             {"cublasCreate", 1, HEC_FP32},
             {"cublasGemmEx", 3, HEC_FP32},
             {"cublasGemmBatchedEx", 3, HEC_FP32},
             {"cublasGemmGroupedBatchedEx", 3, HEC_FP32}};
enum { N_CALLS = sizeof calls / sizeof *calls, TIMES_MAX = 400 };

HEC_TEST_LOOP(each_call_fails, N_CALLS) {
  int k = 1;
  while (k <= TIMES_MAX && outcome(calls[_i].call, k, calls[_i].precision) == FAILED)
    k++;
  ck_assert_msg(k > calls[_i].at_least, "%s: only %d failures were said", calls[_i].call, k - 1);
  ck_assert_msg(k <= TIMES_MAX, "%s: there is no end to it", calls[_i].call);
}

/* What only ends things: its failure is nobody's. */
HEC_TEST_LOOP(ends_that_fail, 5) {
  static const char *const ends[] = {"none", "cudaFree", "cudaFreeHost", "cudaEventDestroy", "cudaStreamDestroy"};
  ck_assert_msg(outcome(ends[_i], 1, HEC_FP32) == 0, "%s: %s", ends[_i], words);
}

/* Before messages wait for other ranks: see hec_cuda_gemm_open. */
HEC_TEST(products_are_opened_with_the_device) {
  ck_assert_int_eq(outcome("cublasCreate", 1, HEC_FP32), FAILED);
  ck_assert_msg(strncmp(words, "the device cannot be used: ", 27) == 0, "%s", words);
}
