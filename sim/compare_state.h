/* What the files of the comparison share: compare_run.c (all of a trace), compare_bounds.c (the bounds beside it) and
 * compare_look.c (one iteration, looked at). */
#pragma once
#include "sim/compare.h"

#include "runtime/base/pool.h"
#include "runtime/program/job.h"

#include <pthread.h>
#include <stdatomic.h>

/* One row at work. */
typedef struct {
  const hec_policy *policy;
  const hec_schedule *schedule;
  hec_lowering *low;
  hec_status status;
  char message[1024];
  bool wanted, done;
  hec_breakdown all, ordinary; /* of the iteration at hand; ordinary: without one-off operations */
  bool dropped;                /* another row of the policy is better: compare_drop.c */
  bool must_fit;               /* else a row was dropped for it wrongly */
  bool kept; /* never dropped: what people run today (compare_run.c) */
} hec_compare_row;

/* Rows of one policy that are lowered together. */
typedef struct {
  hec_arena arena;
  int32_t first, n; /* rows */
  int64_t took_ns;  /* its last iteration */
} hec_compare_group;

/* What a thread simulates with. */
typedef struct {
  hec_arena arena;
  hec_sim *sim;
  hec_program *programs; /* [most rows of a group] */
  hec_timeline timeline;
} hec_compare_worker;

typedef struct {
  const hec_job *job;
  hec_problem problem; /* the job's, planned by the law of this comparison */
  const hec_compare_options *options;
  hec_summary *summary; /* a row of each run */
  hec_arena arena;
  hec_pool *pool;
  hec_sim_memo *memo;             /* of the iteration at hand */
  hec_compare_worker *workspaces; /* [workers of the pool] */
  hec_compare_row *runs;          /* [n_rows] */
  int32_t n_rows, n_candidates;
  hec_compare_group *groups;      /* [n_groups] */
  int32_t n_groups, rows_max;     /* rows of the largest group */
  int32_t *order;                 /* [n_groups] those that took longest first */
  const hec_iteration *iteration; /* at hand */
  int64_t n_reported;             /* iterations that will be reported, if rows may be dropped; 0: they may not */
  bool report;                    /* it is past the warm-up, and one of those to report */
  atomic_int n_ended;             /* groups, of the iteration at hand */
  /* of looking: */
  const hec_compare_view *view;
  pthread_mutex_t mutex; /* guards how far it has come */
  int32_t n_done;        /* rows of the iteration at hand that nobody waits for any more */
} hec_comparison;

/* The rows are listed in runs. */
void hec_comparison_begin(hec_comparison *c);
void hec_comparison_end(hec_comparison *c);
/* `work` on every group, shared by the threads. */
void hec_comparison_run(hec_comparison *c, void (*work)(void *comparison, int32_t worker, int64_t group));
/* Lowers the iteration at hand for the group; until it is given back the programs are the rows'. */
void hec_comparison_lower(const hec_comparison *c, hec_compare_worker *w, const hec_compare_group *g);
void hec_comparison_give_back(const hec_comparison *c, hec_compare_worker *w, const hec_compare_group *g);
hec_status hec_comparison_failure(const hec_comparison *c) HEC_MUST_USE; /* the first row's */

/* After an iteration was reported: drops rows that cannot be their policy's best any more. */
void hec_compare_drop(hec_comparison *c);
/* After the last: what was dropped might have been the best after all. */
bool hec_compare_dropped_wrongly(const hec_comparison *c);

/* Lower bounds of the iteration at hand, once for all rows of one class. On the comparison's arena. */
typedef struct hec_compare_bounds hec_compare_bounds;
hec_compare_bounds *hec_compare_bounds_new(hec_comparison *c);
void hec_compare_bounds_add(hec_compare_bounds *b, const hec_comparison *c); /* to every row of the summary */
