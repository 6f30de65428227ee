/* The whole path: the first byte chooses ranks, law, schedule and collective, the rest is a trace. Whatever the reader
 * and the job accept must run under every policy, pass the checks of program and timeline, and print. */
#include "runtime/program/job.h"
#include "sim/compare.h"
#include "tools/front/job_make.h"
#include "tools/front/summary/summary_write.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { POLICIES_MAX = 64, CELLS_MAX = 512 };

static void compare(const hec_job *job, hec_trace_reader *reader, uint8_t choice, hec_arena *arena) {
  const hec_policy *policies[POLICIES_MAX];
  hec_compare_options options = {.policies = policies,
                                 .schedule = choice & 8    ? "published"
                                             : choice & 16 ? "hecate"
                                                           : "serial",
                                 .collective = choice & 32 ? NULL : hec_collectives[(choice >> 6) % 3],
                                 .law = hec_laws[choice & 1],
                                 .check = true};
  for (int32_t i = 0; hec_policies[i]; i++)
    if (!hec_policies[i]->placed)
      policies[options.n_policies++] = hec_policies[i];
  hec_summary summary;
  hec_status status = hec_compare(job, reader, &options, arena, &summary);
  summary.tool = "fuzz";
  summary.trace = "fuzz";
  if (status == HEC_OK) {
    HEC_SCOPED(hec_text) text = {0};
    hec_summary_json(&summary, &text);
    hec_summary_csv(&summary, &text);
    hec_summary_table(&summary, &text);
  }
  hec_summary_free(&summary);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  if (size == 0 || hec_trace_open_memory((const char *)data + 1, size - 1, "fuzz", &reader) != HEC_OK)
    return 0;
  const hec_trace_header *header = hec_trace_header_of(reader);
  static const int32_t ranks[4] = {0, 1, 3, 6};
  hec_job_options wanted = {.cluster = "2x3 nvlink=300G@2us nic=50G@5us flops=312T mem=40G",
                            .ranks = ranks[data[0] >> 1 & 3],
                            .warmup = -1,
                            .t = HEC_AUTO,
                            .m = HEC_AUTO,
                            .period = HEC_AUTO,
                            .slots = HEC_AUTO};
  HEC_SCOPED(hec_arena) arena = {0};
  hec_job job;
  if ((int64_t)header->n_layers * header->n_experts <= CELLS_MAX && header->n_sources <= CELLS_MAX && !header->shape &&
      hec_job_make(&wanted, reader, &arena, &job) == HEC_OK)
    compare(&job, reader, data[0], &arena);
  return 0;
}
