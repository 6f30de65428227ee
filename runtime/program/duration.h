/* How long an operation takes on a device that does nothing else: the compute law of models/ applied to a program's
 * rows. Devices that are processes on fewer cores take turns. All begin an operation together. While n of them still
 * compute on c < n cores, each runs at c / n of its speed, so that work w alone takes
 *     F(w) = integral over v from 0 to w of max(1, n(v) / c),   n(v): devices with more work than v.
 * O(ranks^2) of alone_s for an operation's rank: meant for a few ranks on one machine. */
#pragma once
#include "runtime/plan/problem.h"
#include "runtime/program/program.h"

/* Seconds of a compute, local or plan operation on `rank`. */
static inline double hec_duration_alone_s(const hec_problem *problem, const hec_program *program, const hec_op *op,
                                          int32_t rank) {
  const hec_device *device = &problem->cluster->devices[rank];
  switch (op->kind) {
  case HEC_OP_COMPUTE: {
    const hec_work_shape *shape = &program->shapes[op->compute.shape];
    return op->compute.work_at < 0 ? hec_work_s(device, shape, op->compute.rows)
                                   : hec_program_experts_s(program, device, shape, op->compute.work_at, rank);
  }
  case HEC_OP_LOCAL:
    return hec_local_s(device, hec_op_curve(op), op->backward,
                       op->local.bytes_at < 0 ? op->bytes
                                              : op->bytes * program->local_bytes[op->local.bytes_at + rank]);
  case HEC_OP_PLAN:
    return problem->cluster->plan_a_s + problem->cluster->plan_b_s * (double)op->plan.units;
  default:
    return 0;
  }
}

static inline bool hec_duration_shares(const hec_problem *problem) {
  return problem->cluster->cores > 0 && problem->cluster->cores < (double)problem->n_ranks;
}

static inline double hec_duration_s(const hec_problem *problem, const hec_program *program, const hec_op *op,
                                    int32_t rank) {
  double own = hec_duration_alone_s(problem, program, op, rank), done = 0, s = 0;
  if (!hec_duration_shares(problem))
    return own;
  while (done < own) {
    double next = own;
    int32_t n = 0;
    for (int32_t r = 0; r < problem->n_ranks; r++) {
      double work = hec_program_takes_part(program, op, r) ? hec_duration_alone_s(problem, program, op, r) : 0;
      if (work > done) {
        n++;
        next = work < next ? work : next;
      }
    }
    double share = (double)n / problem->cluster->cores;
    s += (next - done) * (share > 1 ? share : 1);
    done = next;
  }
  return s;
}
