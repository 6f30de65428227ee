/* Jobs of traces in memory, for tests of what is made of them and said about it. One at a time, on a box of 16 devices. */
#pragma once
#include "runtime/program/job.h"
#include "tests/support/trace_text.h"
#include "tools/front/job_make.h"

typedef struct {
  hec_arena arena;
  hec_text text;
  hec_trace_reader *reader;
  hec_job job;
} hec_test_job; /* zero-initialise */

/* 3 records of 2 layers, 4 sources and 8 experts, top-2; the first is iteration 7. */
extern const hec_test_trace hec_test_small_trace;

/* Random counts of seed 1; the cluster is the box unless the options name one. */
hec_status hec_test_job_make(hec_test_job *job, hec_test_trace trace, hec_job_options options);
void hec_test_job_free(hec_test_job *job);
/* In a file of tests: one that is empty again after each. */
#define HEC_TEST_JOB(job)                                                                                              \
  static hec_test_job job;                                                                                             \
  static void free_job(void) {                                                                                         \
    hec_test_job_free(&(job));                                                                                         \
    (job) = (hec_test_job){0};                                                                                         \
  }                                                                                                                    \
  HEC_TEST_FIXTURE(NULL, free_job)

void hec_test_must(hec_status status);                             /* or the test fails with the last error */
bool hec_test_job_said(const hec_test_job *job, const char *part); /* whether one of its defaults has it */
