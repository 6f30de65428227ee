/* A timeline written by hand, empty before each test of a file: `program` with local operations, and the times of each. */
#pragma once
#include "runtime/base/arena.h"
#include "runtime/program/timeline.h"
#include "tests/support/test.h"

static hec_program program;
static hec_timeline timeline;

static void stop(void) {
  hec_program_free(&program);
  hec_timeline_free(&timeline);
  program = (hec_program){0};
  timeline = (hec_timeline){0};
}
HEC_TEST_FIXTURE(NULL, stop)

static void set(int32_t op, int32_t rank, int64_t begin, int64_t end) {
  timeline.begin_ps[op * timeline.n_ranks + rank] = begin;
  timeline.end_ps[op * timeline.n_ranks + rank] = end;
}
