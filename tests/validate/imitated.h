/* A machine that is a cluster. Iterations of cases get timelines from known durations instead of being executed, in the
 * form in which an executor hands them on. The interpreter here is a second one, written from the definition in
 * runtime/program/walk.h, so that it can be held against both. */
#pragma once
#include "sim/simulate.h"
#include "validate/experiment.h"

/* Durations of all operations by the laws of the problem's cluster (closed form of exchanges) into
 * ps[n_ops * n_ranks]; 0 where a rank takes no part. */
void hec_imitated_durations(const hec_problem *problem, const hec_program *program, hec_link_cost *cost, int64_t *ps);

/* The timeline of any durations: an operation starts when its rank, its partners and what it depends on are done. */
void hec_imitated_timeline(const hec_program *program, const int64_t *ps, hec_timeline *timeline);

typedef struct {
  const hec_cluster *cluster; /* whose laws hold */
  const hec_law *law;         /* of its links; NULL: the closed form. With one there is no noise */
  double noise;               /* every duration times 1 + noise * u, u uniform in [-1, 1] */
  double stalls;              /* share of durations that take 2 to 10 times as long */
  double factor;              /* on every duration; 0: 1 */
  uint64_t seed;
} hec_imitated;

/* Every iteration of the case, in order, the warm-up too (index: which step). */
typedef void hec_imitated_visit(void *context, int32_t index, const hec_replayed *iteration);
void hec_imitated_run(const hec_imitated *machine, const hec_experiment_case *one, hec_imitated_visit *visit,
                      void *context);

/* A model of few parameters: `layers` blocks of d_model 64. On the arena. */
const hec_model *hec_imitated_model(hec_arena *arena, int32_t layers, int32_t experts, int32_t top_k);
