/* See the header. */
#include "runtime/program/durations.h"

#include "runtime/base/arena.h"
#include "runtime/program/duration.h"

/* What the last operation of a shape took whose ranks all have the same rows. */
enum { UNIFORM_SHAPES = 64 };
typedef struct {
  double rows; /* < 0: none yet */
  int64_t ps;
} uniform_time;

struct hec_durations {
  const hec_problem *problem;
  bool uniform;                       /* all devices in use are alike */
  bool sums;                          /* no device in use has laws, nor shares cores */
  uniform_time times[UNIFORM_SHAPES]; /* of this program */
  hec_expert_times *experts;          /* NULL with sums: a megabyte to clear that nobody reads */
};

static bool same_device(const hec_device *a, const hec_device *b) {
  return a->flops == b->flops && a->flops_efficiency == b->flops_efficiency && a->hbm_bandwidth == b->hbm_bandwidth &&
         a->gemm_a_s == b->gemm_a_s && a->gemm_c_s == b->gemm_c_s && a->gemm_tile == b->gemm_tile &&
         a->launch_s == b->launch_s && a->speed == b->speed && a->gpu == b->gpu && a->in_step == b->in_step;
}

hec_durations *hec_durations_new(const hec_problem *problem, hec_arena *arena) {
  hec_durations *d = HEC_NEW(arena, hec_durations, 1);
  d->problem = problem;
  d->uniform = true;
  d->sums = !hec_duration_shares(problem);
  for (int32_t r = 0; r < problem->n_ranks; r++) {
    d->uniform = d->uniform && same_device(&problem->cluster->devices[r], &problem->cluster->devices[0]);
    d->sums = d->sums && !problem->cluster->devices[r].gpu;
  }
  d->experts = d->sums ? NULL : hec_expert_times_new(d->uniform, arena);
  hec_durations_begin(d);
  return d;
}

void hec_durations_begin(hec_durations *d) {
  for (int32_t i = 0; i < UNIFORM_SHAPES; i++)
    d->times[i].rows = -1;
}

static int64_t uniform_ps(hec_durations *d, const hec_program *program, const hec_op *op) {
  uniform_time *time =
      op->kind == HEC_OP_COMPUTE && op->compute.shape < UNIFORM_SHAPES ? &d->times[op->compute.shape] : NULL;
  if (time && time->rows == (double)op->compute.rows)
    return time->ps;
  int64_t ps = hec_seconds_to_ps(hec_duration_s(d->problem, program, op, 0));
  if (time)
    *time = (uniform_time){(double)op->compute.rows, ps};
  return ps;
}

/* Experts without laws: a sum over products, quicker than any table of answers. */
static void sums_ps(const hec_durations *d, const hec_program *program, const hec_op *op, int64_t *ps) {
  const hec_work_shape *shape = &program->shapes[op->compute.shape];
  const int32_t *at = program->work_index + op->compute.work_at;
  hec_work_rate rate = hec_work_rate_of(&d->problem->cluster->devices[0], shape);
  for (int32_t r = 0; r < program->n_ranks; r++) {
    double s = 0;
    if (!d->uniform)
      rate = hec_work_rate_of(&d->problem->cluster->devices[r], shape);
    for (int32_t i = at[r]; i < at[r + 1]; i++)
      s += hec_work_rate_s(&rate, (double)program->work[i].rows);
    ps[r] = hec_seconds_to_ps(s);
  }
}

void hec_durations_own(const void *context, const hec_program *program, int32_t id, int64_t *ps) {
  hec_durations *d = *(hec_durations *const *)context;
  const hec_op *op = &program->ops[id];
  bool differs =
      op->kind == HEC_OP_COMPUTE ? op->compute.work_at >= 0 : op->kind == HEC_OP_LOCAL && op->local.bytes_at >= 0;
  if (op->kind == HEC_OP_COMPUTE && differs && d->sums) {
    sums_ps(d, program, op, ps);
    return;
  }
  bool same = d->uniform && !differs;
  int64_t all_ps = same ? uniform_ps(d, program, op) : 0;
  for (int32_t r = 0; r < program->n_ranks; r++)
    ps[r] = same                                    ? all_ps
            : op->kind == HEC_OP_COMPUTE && differs ? hec_expert_times_ps(d->experts, d->problem, program, op, r)
                                                    : hec_seconds_to_ps(hec_duration_s(d->problem, program, op, r));
}
