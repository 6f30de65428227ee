/* Small problems for replays. A random model, cluster, loads and options, and a run of every policy under its own schedule
 * or another, checked against the dense reference. */
#pragma once
#include "runtime/exec/backend.h"
#include "runtime/exec/replay.h"
#include "runtime/plan/problem.h"

typedef struct {
  hec_moe moe;
  hec_cluster cluster;
  hec_problem problem;
  hec_model model;
  hec_replay replay;
  char line[256]; /* for messages */
} hec_replay_case;

typedef struct {
  int32_t ranks;                /* 0: random 1..8 */
  int32_t exact;                /* one layer, one step */
  int32_t forward;              /* forward phase only */
  int32_t steps, micro_batches; /* 0: random */
  int32_t top_k, layers;        /* 0: random */
  int32_t d_model;              /* 0: random; one head of attention */
  int32_t esp;                  /* ranks of an expert-sharding group, 2 or 4; 0: none. `ranks` a multiple of it */
  int32_t mp;                   /* ranks of a tensor-parallel group, likewise; with both: as many */
  const char *machine;          /* NULL: random */
} hec_replay_wish;

hec_replay_case *hec_replay_random(hec_arena *arena, uint64_t *seed, hec_replay_wish wish);

typedef struct {
  const hec_backend *backend;     /* NULL: cpu */
  const hec_transport *transport; /* NULL: the backend's, or shm */
  int32_t threads;
  /* 0: every policy under its own schedule. Else a third of the policies, each under another schedule of those that are
   * systems: turn by turn all policies, then all pairs. */
  int32_t turn;
  bool chunked;         /* every schedule that is, instead */
  const char *schedule; /* this one instead; NULL */
  const char *policy;   /* NULL: all */
  double limit_s;
  /* Not 0: ranks are threads that compute on devices with streams (queued_cpu.h) of this seed, linked by `local`. */
  uint64_t device_seed;
  int32_t staged; /* on devices: over a link that does not add */
  /* Of the last run, filled in on rank 0; for threads. NULL: not wanted. */
  hec_replay_check *result;
  /* Called on each rank with its device before it computes; NULL: not. */
  void (*device)(hec_rank *rank, hec_processor *on);
} hec_replay_launch;

/* Launches the case; HEC_OK when every run passed its check. Policies that do not suit its problem are left out. */
hec_status hec_replay_all(hec_replay_case *c, hec_replay_launch launch);
void hec_replay_expect(hec_replay_case *c, hec_replay_launch launch); /* or the test fails */
