/* The comparison: every policy over every iteration of a trace, simulated. */
#pragma once
#include "runtime/program/lower.h"
#include "runtime/program/summary.h"
#include "sim/simulate.h"

typedef struct {
  const hec_policy *const *policies; /* [n_policies] */
  int32_t n_policies;
  const char *schedule; /* of all of them: "best", "published" or a row's name */
  /* [n_policies] of each, not "best"; a policy then stands more than once, its rows together. NULL: `schedule` */
  const char *const *schedules;
  const hec_collective *collective; /* NULL: cheapest */
  const hec_law *law;
  const hec_law *expected; /* what policies plan by that price iterations; NULL: law */
  bool check;              /* verify every program and timeline (slow) */
  int32_t n_threads;       /* 0, 1: none but the caller's */
  int64_t n_iterations;    /* of the trace, or more: for the progress, and to drop rows early; 0: not known */
  bool silent;             /* one of many: says nothing of its progress */
  int64_t every;           /* reports one iteration in so many; all are planned. 0: 1 */
} hec_compare_options;

/* "best": of the schedules that a policy allows (hec_schedules_of) the fastest by median of those that fit the memory; where
 * none does, the fastest. Of equal ones the published. There is one row a policy, which names its schedule. Under a law of
 * flows, which takes long, only schedules within HEC_SUMMARY_NEAR of the best under alpha_beta are tried.
 *
 * One pass over the trace; all policies advance together, so memory does not grow with its length (but for 8 bytes per
 * iteration and policy). Results do not depend on the number of threads, nor does which failure is reported: the first
 * iteration's, and of it the first row's. Rows are on the arena; free their series with hec_summary_free. */
hec_status hec_compare(const hec_job *job, hec_trace_reader *reader, const hec_compare_options *options,
                       hec_arena *arena, hec_summary *summary) HEC_MUST_USE;

/* Which iteration of every row is looked at: the one whose `iter` is given, or (-1) the one whose time is nearest the row's
 * median. `look` has it while it is lowered and timed; with several threads it is called by each of them, at once for
 * different rows. `looked` is called once for each of these rows, one call at a time: rows of one iteration in their order. */
typedef struct {
  int64_t iter;
  hec_status (*look)(void *context, int32_t row, int64_t iter, const hec_lowering *low, const hec_timeline *timeline);
  void (*looked)(void *context, int32_t row); /* NULL: nobody */
  void *context;
} hec_compare_view;

/* Goes through the trace again, each policy under the schedule of its row. Nobody is called where it has no such iteration. */
hec_status hec_compare_look(const hec_job *job, hec_trace_reader *reader, const hec_compare_options *options,
                            hec_summary *summary, const hec_compare_view *view) HEC_MUST_USE;
