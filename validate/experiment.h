/* Cases executed for real, interleaved. In every round all of them run, in an order drawn anew. So what changes on the
 * machine while it measures hits all alike. Some may take turns, as many in a round as there are others. Then the two
 * kinds alternate, each case beside one of the other kind. Each run starts from the case's first step: policies carry
 * history.
 *
 * What a machine does to a reading is taken out of it where that can be measured, and told where not:
 *   a rank lost its processor   the executor knows of each operation how long; that time is taken out (spans.h, mending)
 *   a core changed its speed    a probe (probe.h) runs on every rank before and after each iteration. What the rank
 *                               computed is put at the pace of the reference
 * Every reading counts towards how disturbed the machine was; none is refused. */
#pragma once
#include "runtime/exec/pipeline.h"
#include "validate/spans.h"

typedef struct {
  char name[96];
  const hec_model *model;
  hec_problem *problem; /* may change between runs, on all ranks alike */
  const hec_policy *policy;
  const char *schedule;
  const hec_replay_step *steps; /* [n_steps]; the first `warmup` are not handed on */
  int32_t n_steps, n_micro_batches, warmup;
  /* Pipeline stages, of which the problem is that of one; order NULL: there are none. */
  const hec_pipeline_order *order;
  const int32_t *layer_at;
} hec_experiment_case;

/* Pace: how much slower a rank's core is around an iteration than at the reference, by its two probes. Computing slows
 * down less than the probe, which lives in the core's own cache: by HEC_PACE_SHARE of it. That was measured on shared
 * two-core machines. Of the shares 0, 0.5, 0.8 and 1 it leaves the least scatter between rounds. On devices there is no
 * probe:
 * pace 1, and nothing is known to be lost.
 *
 * A reading is undisturbed under two conditions. No rank computed without a processor for more than HEC_INTERRUPTED_MAX
 * of it; in virtual time it may, since processor time is measured there. No probe around it was more than
 * HEC_SLOWED_MAX slower than the median of the last hundreds. */
#define HEC_INTERRUPTED_MAX 0.02
#define HEC_SLOWED_MAX 0.10
#define HEC_PACE_SHARE 0.8
#define HEC_PACE_TRIED 0.9 /* speed of cores that a calibration's own pace is interpolated with (calibrate.h) */

typedef struct {
  int32_t a_case, round;
  double total_s;     /* as it was, neither mended nor put at a pace */
  double disturbance; /* in units of what is allowed: at most 1, undisturbed; the larger of the two */
} hec_experiment_reading;
static inline bool hec_experiment_undisturbed(const hec_experiment_reading *reading) {
  return reading->disturbance <= 1;
}

typedef struct {
  const hec_experiment_case *cases; /* [n_cases] */
  int32_t n_cases, n_rounds;        /* at most so many rounds */
  int32_t n_in_turn;                /* the first so many take turns; 0: none */
  uint64_t seed;                    /* of the orders */
  const hec_collective *collective;
  bool virtual_time;
  /* On rank 0, after every iteration past the warm-up; its timeline is mended, at the reference's pace. */
  void (*measured)(void *context, const hec_experiment_reading *reading, const hec_replayed *iteration);
  /* On rank 0, before a case runs, the `done`-th of its round: whether it shall. False ends the run. NULL: it shall. */
  bool (*go_on)(void *context, int32_t round, int32_t done);
  void *context;
  double
      reference_s; /* probe that pace 1 means, hec_experiment_reference of an earlier run; 0: the median of the probes so far */
  double *probes; /* [n_probes] on rank 0: all that were read */
  int32_t n_probes;
  size_t probes_capacity;
  hec_spans spans; /* scratch */
  hec_timeline mended;
} hec_experiment;

/* Bytes that each rank's region must have. */
size_t hec_experiment_bytes(const hec_experiment *experiment);
/* Called by every rank of a launch. */
hec_status hec_experiment_run(hec_experiment *experiment, hec_rank *rank) HEC_MUST_USE;
/* On rank 0, after a run: the median of its probes. */
double hec_experiment_reference(const hec_experiment *experiment);
void hec_experiment_close(hec_experiment *experiment);

/* Steps of synthetic loads (log-normal popularity, drawn anew for every step): the totals of a layer are ranks * tokens *
 * top_k. sigma 0: balanced. */
typedef struct {
  int32_t n_layers, n_experts, top_k, n_ranks, tokens, n_steps;
  double sigma;
  uint64_t seed;
} hec_experiment_loads;
hec_status hec_experiment_draw(const hec_experiment_loads *wish, hec_arena *arena,
                               const hec_replay_step **steps) HEC_MUST_USE;
