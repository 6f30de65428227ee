/* Works on the CUDA plug-in's device while calls of CUDA and cuBLAS fail (started by test_processor_faults.sh, which chooses
 * the call): the first failure is kept and said, everything after it does nothing, every event is reached, memory that is
 * refused is told to who asked, and closing ends it all.
 *
 * Exit codes: 0 nothing failed and the numbers are right; 3 a failure was said, on stderr; 1 anything else. */
#include "runtime/exec/backend.h"
#include "runtime/exec/cuda/plugin.h"
#include "runtime/exec/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 64, FAILED = 3 };

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

int main(int argc, char **argv) {
  hec_text why = {0};
  hec_processor *on = NULL;
  hec_cuda_options options = {.grouped = true, .clock_ns = hec_clock_ns};
  options.precision = argc > 1 && strcmp(argv[1], "bf16") == 0 ? HEC_BF16 : HEC_FP32;
  (void)hec_backend_nccl.available(&why);
  hec_text_free(&why);
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
