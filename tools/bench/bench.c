/* See bench.h. Loads are drawn by traces/synth.h. */
#include "tools/bench/bench.h"

#include "runtime/base/quantile.h"
#include "tools/front/args.h"
#include "tools/front/output.h"
#include "traces/synth.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

hec_status hec_bench_loads(hec_load *loads, int32_t n, double sigma, int32_t tokens, int32_t top_k) {
  hec_synth_options options = hec_synth_defaults();
  static const int32_t lag[4] = {1, 5, 9, 20};
  static const double correlation[4] = {0.96, 0.89, 0.76, 0.33};
  options.workload = "lognormal";
  options.n_layers = loads[0].n_layers;
  options.n_experts = loads[0].n_experts;
  options.n_sources = loads[0].n_sources;
  options.top_k = top_k;
  options.tokens = tokens;
  options.n_iterations = n;
  options.sigma = sigma;
  options.n_knots = 4;
  memcpy(options.lag, lag, sizeof lag);
  memcpy(options.correlation, correlation, sizeof correlation);
  HEC_OPENED(hec_synth) *synth = NULL;
  hec_status status = hec_synth_check(&options);
  if (status == HEC_OK)
    status = hec_synth_new(&options, &synth);
  if (status != HEC_OK && strncmp(hec_last_error(), "--drift", 7) == 0) /* not the user's to choose */
    return hec_fail(status, "--tokens: expected enough for loads that drift as in training, found %" PRId32, tokens);
  HEC_TRY(status);
  for (int32_t i = 0; i < n; i++)
    hec_synth_next(synth, &loads[i]);
  return HEC_OK;
}

double hec_bench_now_s(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double hec_bench_quantile(double *values, int32_t n, double share) {
  hec_values_sort(values, n);
  return hec_values_quantile(values, n, share);
}

int hec_bench_report(hec_status status, bool done, hec_doc_report *report, const void *of, bool json) {
  hec_text out = {0};
  if (status == HEC_OK && !done)
    hec_doc_write(report, of, json ? HEC_DOC_JSON : HEC_DOC_TEXT, 1, &out);
  return hec_bench_exit(status, &out);
}

int hec_bench_exit(hec_status status, hec_text *out) {
  if (status == HEC_OK && out->length > 0)
    status = hec_output_print(out);
  hec_text_free(out);
  return hec_tool_exit("hecate-bench", status);
}
