/* See job_case.h. */
#include "tests/support/job_case.h"

#include "tests/support/check_main.h"

#include <string.h>

const hec_test_trace hec_test_small_trace = {
    .layers = 2, .experts = 8, .top_k = 2, .sources = 4, .records = 3, .first_iter = 7};

hec_status hec_test_job_make(hec_test_job *job, hec_test_trace trace, hec_job_options options) {
  job->reader = hec_test_trace_open(&trace, 1, &job->text);
  if (!options.cluster)
    options.cluster = "4x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G";
  return hec_job_make(&options, job->reader, &job->arena, &job->job);
}

void hec_test_job_free(hec_test_job *job) {
  hec_trace_close(job->reader);
  hec_text_free(&job->text);
  hec_arena_free(&job->arena);
  *job = (hec_test_job){0};
}

void hec_test_must(hec_status status) {
  if (status != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
}

bool hec_test_job_said(const hec_test_job *job, const char *part) {
  for (int32_t i = 0; i < job->job.n_defaults; i++)
    if (strstr(job->job.defaults[i], part))
      return true;
  return false;
}
