/* The three controls:
 *   mean_compute   every rank computes as long as the mean of all (stragglers do not exist)
 *   mean_bytes     the busiest port of an exchange carries what the mean port does (hot experts do not exist)
 *   flat_rate      a GEMM's time is proportional to its rows, at the rate of the largest measured
 * Cost: one walk of the program each. */
#include "validate/compare/control.h"

#include "runtime/base/arena.h"
#include "runtime/program/duration.h"

#include <stdlib.h>
#include <string.h>

static void own_of_law(const void *context, const hec_program *program, int32_t op, int64_t *ps) {
  const hec_problem *problem = context;
  for (int32_t r = 0; r < program->n_ranks; r++)
    ps[r] = hec_seconds_to_ps(hec_duration_s(problem, program, &program->ops[op], r));
}

static void own_mean(const void *context, const hec_program *program, int32_t op, int64_t *ps) {
  own_of_law(context, program, op, ps);
  int64_t sum = 0;
  for (int32_t r = 0; r < program->n_ranks; r++)
    sum += ps[r];
  for (int32_t r = 0; r < program->n_ranks; r++)
    ps[r] = sum / program->n_ranks;
}

/* Time per row of the largest GEMM that the law was measured for, or of a very large one. */
static double flat_s(const hec_device *device, const hec_work_shape *shape, double rows) {
  hec_work_rate rate = hec_work_rate_of(device, shape);
  double max = rate.curve ? rate.curve->x[rate.curve->n - 1] : 1 << 20;
  return rows * (hec_work_rate_s(&rate, max) / max);
}

static void own_flat(const void *context, const hec_program *program, int32_t id, int64_t *ps) {
  const hec_problem *problem = context;
  const hec_op *op = &program->ops[id];
  if (op->kind != HEC_OP_COMPUTE) {
    own_of_law(context, program, id, ps);
    return;
  }
  const hec_work_shape *shape = &program->shapes[op->compute.shape];
  for (int32_t r = 0; r < program->n_ranks; r++) {
    double rows = op->compute.work_at < 0 ? op->compute.rows : 0;
    for (int32_t i = op->compute.work_at < 0 ? 0 : program->work_index[op->compute.work_at + r];
         op->compute.work_at >= 0 && i < program->work_index[op->compute.work_at + r + 1]; i++)
      rows += (double)program->work[i].rows;
    ps[r] = hec_seconds_to_ps(flat_s(&problem->cluster->devices[r], shape, rows));
  }
}

/* Mean over max of what the ranks that take part send and receive. */
static double mean_over_max(const hec_program *program, const hec_op *op) {
  int64_t *port = hec_malloc(2 * (size_t)program->n_ranks, sizeof *port), max = 0, sum = 0;
  int32_t used = 0;
  memset(port, 0, 2 * (size_t)program->n_ranks * sizeof *port);
  for (int32_t k = 0; k < op->exchange.n_transfers; k++) {
    const hec_transfer *t = &program->transfers[op->exchange.transfer_at + k];
    port[2 * t->source] += t->bytes;
    port[2 * t->destination + 1] += t->bytes;
  }
  for (int32_t i = 0; i < 2 * program->n_ranks; i++) {
    max = port[i] > max ? port[i] : max;
    sum += port[i];
    used += program->parts[op->exchange.part_at + i / 2] != 0;
  }
  free(port);
  return max > 0 ? (double)sum / used / (double)max : 1;
}

const hec_control hec_controls[] = {
    {"mean_compute", "every rank computes the mean of all, not its own", own_mean, NULL},
    {"mean_bytes", "an exchange takes what its mean port carries, not its busiest", NULL, mean_over_max},
    {"flat_rate", "GEMM time proportional to rows", own_flat, NULL},
    {NULL, NULL, NULL, NULL},
};

/* The program with other bytes: a shallow copy but for the transfers. Exchanges that share transfers share the factor. */
static hec_program with_bytes(const hec_control *control, const hec_program *program, hec_program *broken) {
  hec_program copy = *program;
  HEC_RESERVE(broken->transfers, broken->transfers_capacity, program->n_transfers);
  if (program->n_transfers > 0)
    memcpy(broken->transfers, program->transfers, program->n_transfers * sizeof *program->transfers);
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    double factor = op->kind == HEC_OP_EXCHANGE ? control->bytes(program, op) : 1;
    for (int32_t k = 0; op->kind == HEC_OP_EXCHANGE && k < op->exchange.n_transfers; k++) {
      int64_t *bytes = &broken->transfers[op->exchange.transfer_at + k].bytes;
      *bytes = (int64_t)((double)program->transfers[op->exchange.transfer_at + k].bytes * factor + 0.5);
    }
  }
  copy.transfers = broken->transfers;
  return copy;
}

double hec_control_predict(const hec_control *control, const hec_problem *problem, const hec_program *program,
                           hec_link_cost *cost, hec_program *broken) {
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_SCOPED(hec_timeline) timeline = {0};
  hec_program walked = control && control->bytes ? with_bytes(control, program, broken) : *program;
  HEC_OPENED(hec_walk) *walk = hec_walk_new(cost, program->n_ranks, &arena);
  hec_walk_run(walk, &walked,
               (hec_walk_options){.own = control && control->own ? control->own : own_of_law, .context = problem},
               &timeline);
  double seconds = 1e-12 * (double)hec_timeline_end_ps(&timeline);
  return seconds;
}
