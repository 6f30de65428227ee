/* Cases executed for real, interleaved: in every round all of them run, in an order drawn anew, so that what changes on the
 * machine while it measures hits all alike. Each run starts from the case's first step: policies carry history.
 * Then come extra rounds, of the cases that are not settled yet: how many readings of them count decides that, never
 * what was read. */
#ifndef HEC_VALIDATE_LAB_H
#define HEC_VALIDATE_LAB_H
#include "runtime/exec/replay.h"

typedef struct {
  char name[96];
  const hec_model *model;
  hec_problem *problem; /* may change between runs, on all ranks alike */
  const hec_policy *policy;
  const char *schedule;
  const hec_replay_step *steps; /* [n_steps]; the first `warmup` are not handed on */
  int32_t n_steps, n_micro_batches, warmup;
} hec_lab_case;

/* An iteration counts when nothing disturbed it: no rank computed without a processor for more than HEC_INTERRUPTED_MOST
 * of it (in virtual time it may: what is measured is processor time), and no probe around it (probe.h) was more than
 * HEC_SLOWED_MOST slower than the median of the last some hundred. On devices there is no probe: every iteration counts, at
 * pace 1.
 *
 * Pace: how much slower the cores are around an iteration than at the reference, by the mean of its probes. Computing slows
 * down less than the probe, which lives in the core's own cache: by HEC_PACE_SHARE of it (measured on shared two-core
 * machines: of shares 0, 0.5, 0.8 and 1 the one that leaves the least scatter between rounds). */
#define HEC_INTERRUPTED_MOST 0.02
#define HEC_SLOWED_MOST 0.10
#define HEC_PACE_SHARE 0.8
#define HEC_PACE_TRIED 0.9 /* speed of cores that pace is interpolated with */

typedef struct {
  int32_t a_case, round;
  bool clean;        /* neither of the two */
  bool lost, slowed; /* a rank without a processor; a core slower than before */
  double pace;       /* computing took this many times what it takes at the reference */
} hec_lab_reading;

typedef struct {
  const hec_lab_case *cases; /* [n_cases] */
  int32_t n_cases, n_rounds;
  int32_t n_extra; /* more rounds at most; for none of them `settled` may be NULL */
  uint64_t seed;   /* of the orders */
  const hec_collective *collective;
  bool virtual_time;
  /* On rank 0, after every iteration that counts. */
  void (*measured)(void *context, const hec_lab_reading *reading, const hec_replayed *iteration);
  /* On rank 0, before an extra round: whether a case needs no more. */
  bool (*settled)(void *context, int32_t a_case);
  /* On rank 0, before a case runs, `of` as many as are known to; NULL: not. */
  void (*progress)(void *context, int32_t done, int32_t of);
  /* On rank 0, after a case ran: whether the rest is not worth running. NULL: it is. */
  bool (*hopeless)(void *context);
  void *context;
  double reference_s; /* that pace 1 means, hec_lab_reference of an earlier run; 0: none yet, pace is 1 */
  double *probes;     /* [n_probes] on rank 0: all that were read */
  int32_t n_probes;
  size_t probes_capacity;
  int32_t n_read, n_clean;
} hec_lab;

/* Bytes that each rank's region must have. */
size_t hec_lab_bytes(const hec_lab *lab);
/* Called by every rank of a launch. */
hec_status hec_lab_run(hec_lab *lab, hec_rank *rank) HEC_MUST_USE;
/* On rank 0, after a run: the median of its probes. */
double hec_lab_reference(const hec_lab *lab);
void hec_lab_close(hec_lab *lab);

/* Steps of synthetic loads (log-normal popularity, drawn anew for every step): the totals of a layer are ranks * tokens *
 * top_k. sigma 0: balanced. */
typedef struct {
  int32_t n_layers, n_experts, top_k, n_ranks, tokens, n_steps;
  double sigma;
  uint64_t seed;
} hec_lab_loads;
hec_status hec_lab_draw(const hec_lab_loads *wish, hec_arena *arena, const hec_replay_step **steps) HEC_MUST_USE;

#endif
