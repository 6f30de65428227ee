/* When a candidate for a policy's best schedule is dropped: by hand, of five iterations to report. */
#include "sim/compare_state.h"
#include "tests/support/test.h"

enum { ROWS = 2, REPORTED = 5 };

typedef struct {
  hec_job job;
  hec_device device;
  hec_summary_row rows[ROWS];
  hec_compare_row runs[ROWS];
  hec_summary summary;
  hec_comparison c;
} comparison;

/* Two schedules of one policy, the seconds of `known` iterations each, and their peaks; 10 bytes are there. */
static void compare(comparison *of, int32_t known, const double *first_s, const double *second_s, double first_peak,
                    double second_peak) {
  *of = (comparison){.device = {.memory_bytes = 10}};
  of->job.problem.n_ranks = 1;
  of->job.cluster.devices = &of->device;
  of->summary = (hec_summary){.job = &of->job, .rows = of->rows, .n_rows = ROWS, .n_iterations = known};
  of->c = (hec_comparison){
      .job = &of->job, .summary = &of->summary, .runs = of->runs, .n_rows = ROWS, .n_reported = REPORTED};
  of->rows[0].peak_bytes = first_peak;
  of->rows[1].peak_bytes = second_peak;
  for (int32_t i = 0; i < known; i++) {
    hec_series_add(&of->rows[0].iteration_s, first_s[i]);
    hec_series_add(&of->rows[1].iteration_s, second_s[i]);
  }
  hec_compare_drop(&of->c);
}

static void finish(comparison *of) {
  for (int32_t i = 0; i < ROWS; i++)
    hec_summary_row_free(&of->rows[i]);
}

static const double ones[] = {1, 1, 1, 1}, twos[] = {2, 2, 2, 2}, mixed[] = {3, 0.5, 3, 3};

HEC_TEST(cases) {
  static const struct {
    int32_t known;
    const double *s[ROWS];
    double peak[ROWS];
    bool dropped[ROWS], must_fit[ROWS];
  } cases[] = {
      {2, {ones, twos}, {5, 5}, {false, false}, {false, false}}, /* three are open: either may have any median */
      {3, {ones, twos}, {5, 5}, {false, true}, {true, false}},
      {3, {twos, ones}, {5, 5}, {true, false}, {false, true}},
      {3, {ones, ones}, {5, 5}, {false, true}, {true, false}},   /* of equal ones the first */
      {3, {ones, mixed}, {5, 5}, {false, false}, {false, false}}, /* 0.5 and two that take no time: a median of 0.5 */
      {4, {ones, mixed}, {5, 5}, {false, true}, {true, false}},  /* one that takes no time: 3 */
      {3, {ones, twos}, {5, 15}, {false, true}, {false, false}}, /* it does not fit, so it may go */
      {3, {ones, twos}, {15, 5}, {false, false}, {false, false}}, /* it fits, and the faster one does not */
      {3, {ones, twos}, {15, 15}, {false, true}, {false, false}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    comparison of;
    compare(&of, cases[i].known, cases[i].s[0], cases[i].s[1], cases[i].peak[0], cases[i].peak[1]);
    for (int32_t r = 0; r < ROWS; r++) {
      ck_assert_msg(of.runs[r].dropped == cases[i].dropped[r], "case %zu, row %d", i, r);
      ck_assert_msg(of.runs[r].must_fit == cases[i].must_fit[r], "case %zu, row %d must fit", i, r);
    }
    ck_assert(!hec_compare_dropped_wrongly(&of.c));
    finish(&of);
  }
}

/* The one that stayed grew, and does not fit any more; or there were more iterations than were counted. */
HEC_TEST(dropped_wrongly) {
  comparison of;
  compare(&of, 3, ones, twos, 5, 5);
  of.rows[0].peak_bytes = 11;
  ck_assert(hec_compare_dropped_wrongly(&of.c));
  of.rows[0].peak_bytes = 10;
  ck_assert(!hec_compare_dropped_wrongly(&of.c));
  of.summary.n_iterations = REPORTED + 1;
  ck_assert(hec_compare_dropped_wrongly(&of.c));
  finish(&of);
}
