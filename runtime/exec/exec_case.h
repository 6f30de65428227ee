/* The smallest problem on which an executor runs programs that were built by hand. It has one MoE layer and one expert
 * per rank, expert e at home on rank e, and no model behind it. For benchmarks and calibration. */
#pragma once
#include "runtime/exec/exec.h"
#include "runtime/plan/problem.h"

typedef struct {
  hec_moe moe;
  hec_cluster cluster;
  hec_problem problem;
  hec_plan plan;
} hec_exec_case;

hec_status hec_exec_case_make(int32_t n_ranks, hec_arena *arena, hec_exec_case *c) HEC_MUST_USE;

/* Memory that ranks and the process that launched them share, zeroed; aborts when there is none. Never given back. */
void *hec_exec_case_share(size_t bytes);

/* An operation of the only layer with no detail. */
hec_op hec_exec_case_op(hec_op_kind kind, hec_lane lane, hec_role role);
