/* One simulated cell: a policy on one problem over a series of loads in memory, and what a published number is made of.
 * The program is what hecate-sim would run. */
#pragma once
#include "runtime/program/lower.h"
#include "validate/published/loads.h"

enum { HEC_CELL_LAYERS_MAX = 64 };

typedef struct {
  const hec_problem *problem; /* at most HEC_CELL_LAYERS_MAX MoE layers */
  const hec_policy *policy;
  const hec_schedule *schedule; /* NULL: the one the policy was published with */
  const hec_loads *loads;
  int32_t warmup;          /* iterations that run but are not reported; a third where there are not twice as many */
  int32_t n_micro_batches; /* each with the iteration's load; 0: one */
} hec_setup_cell_run;

/* Means over the reported iterations; seconds. */
typedef struct {
  double iteration_s; /* one-off costs included, weighted by the stride of the records */
  double ordinary_s;  /* without one-off costs */
  double token_s;  /* token exchanges, per rank, from the moment the rank could begin to its end: includes waiting for
                      slower ranks, as a profiler of NCCL kernels sees it */
  double sparse_s; /* exposed SparseAllGather and SparseReduceScatter; 0 for rearrangement systems */
  double rearrange_s; /* exposed migration; of rearrangement systems also their copies' parameters and gradients */
  double gather_s, plan_s, dispatch_s;   /* in forward, sum over rows of the longest that a rank is in it: gathers of
                                          experts, planning, dispatch */
  double overload;                       /* busiest rank over mean */
  double layer_s[HEC_CELL_LAYERS_MAX];   /* [n_layers] MoE layer, forward and backward: from the gate's end to the last
                                            row back */
  double forward_s[HEC_CELL_LAYERS_MAX]; /* [n_layers] of it forward */
  double copies;                         /* per layer, at the end of an iteration: beside one home of each expert */
  double dropped;                        /* share of the assignments that a policy leaves out */
  int32_t n_layers, n_reported, n_migrations;
  double param_bytes, state_bytes; /* fullest rank: parameters with copies; with gradients and optimizer state */
  double peak_bytes;               /* everything */
  bool fits;
  int32_t t_min, t_max, m_min, m_max; /* Hecate; -1: none */
} hec_setup_cell;

/* Never fails: what is wrong with a run is our bug. Scratch on `arena`, which the caller frees. */
void hec_setup_cell_simulate(const hec_setup_cell_run *run, hec_arena *arena, hec_setup_cell *cell);
