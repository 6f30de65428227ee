/* The walk: the timeline of a program in which every time depends only on when the ranks are ready. Exchanges, all-reduces
 * and counts take the closed form of models/link_cost.h once the ranks concerned have posted. What a rank does alone
 * (compute, local and plan operations) takes what the caller says: the compute law of a cluster, or what was measured. So
 * a prediction and a run in virtual time differ in these durations and in nothing else. */
#pragma once
#include "runtime/program/timeline.h"

/* Picoseconds (0 and more) of compute, local or plan operation `op` into ps[r] of every rank. */
typedef void hec_walk_own(const void *context, const hec_program *program, int32_t op, int64_t *ps);

/* The operation's row of a matrix of picoseconds, `context`: const int64_t [n_ops * n_ranks]; the rows of other kinds of
 * operations are not read. */
void hec_walk_own_measured(const void *context, const hec_program *program, int32_t op, int64_t *ps);

typedef struct {
  hec_walk_own *own;
  const void *context;  /* for `own` */
  bool without_one_off; /* one-off operations take no time and wait for no other rank */
  bool on_time;         /* every rank begins at 0, whatever skew the cluster's devices have */
  /* The programs of the walks before are still there as they were, back to the last one without this. Exchanges that
   * are equal to theirs are not priced again. */
  bool goes_on;
} hec_walk_options;

typedef struct hec_walk hec_walk;

/* For programs of `n_ranks`; its memory is reused from program to program, nothing is allocated once it stopped growing.
 * `cost`, of the cluster, stays the caller's and outlives the walk; between runs others may use it. */
hec_walk *hec_walk_new(hec_link_cost *cost, int32_t n_ranks, hec_arena *arena);
void hec_walk_free(hec_walk *walk); /* what is not on the arena; NULL is allowed */
HEC_OPENED_BY(hec_walk, hec_walk_free)

/* Resizes and fills the timeline. Ends are cut off at HEC_TIME_END_PS. */
void hec_walk_run(hec_walk *walk, const hec_program *program, hec_walk_options options, hec_timeline *timeline);

/* Seconds of an exchange on a rank: the closed form of the links, or what the cluster's measured curve makes of it. */
double hec_walk_exchange_s(const hec_cluster *cluster, const hec_op *op, double closed_form_s);
/* Seconds of an all-reduce or counts operation once every rank has posted, closed form. */
double hec_walk_together_s(const hec_cluster *cluster, int32_t n_ranks, const hec_op *op);
