/* Which way a program goes: the walk (runtime/program/walk.h) with durations by the compute law, or the event engine. */
#include "sim/simulate.h"

#include "runtime/base/arena.h"
#include "runtime/base/table.h"
#include "runtime/program/walk.h"
#include "sim/duration.h"
#include "sim/expert_times.h"
#include "sim/law.h"
#include "sim/memo.h"

#define LAW_ROW(name) &hec_law_##name,
const hec_law *const hec_laws[] = {HEC_LAW_LIST(LAW_ROW) NULL};

HEC_TABLE_OF(hec_law);
const hec_law *hec_law_find(const char *name) {
  return hec_table_find(hec_laws, name);
}
const char *hec_law_name(const hec_law *law) {
  return law->name;
}
const char *hec_law_summary(const hec_law *law) {
  return law->summary;
}
const char *hec_law_limits(const hec_law *law) {
  return law->limits;
}

/* What the last operation of a shape took whose ranks all have the same rows: layers repeat it, and a GPU's laws cost more than
 * a look. */
enum { UNIFORM_SHAPES = 64 };
typedef struct {
  double rows; /* < 0: none yet */
  int64_t ps;
} uniform_time;

struct hec_sim {
  const hec_problem *problem;
  const hec_law *law;
  hec_link_cost cost;
  bool uniform; /* all devices in use are alike */
  bool walks;   /* the law is closed and nothing shares a device */
  hec_walk *walk;
  hec_sim_memo *memo;                 /* NULL: none */
  uniform_time times[UNIFORM_SHAPES]; /* of this run */
  hec_expert_times *experts;
};

static bool same_device(const hec_device *a, const hec_device *b) {
  return a->flops == b->flops && a->flops_efficiency == b->flops_efficiency && a->hbm_bandwidth == b->hbm_bandwidth &&
         a->gemm_a_s == b->gemm_a_s && a->gemm_c_s == b->gemm_c_s && a->gemm_tile == b->gemm_tile &&
         a->launch_s == b->launch_s && a->speed == b->speed && a->gpu == b->gpu && a->in_step == b->in_step;
}

hec_sim *hec_sim_new(const hec_problem *problem, const hec_law *law, hec_arena *arena) {
  hec_sim *sim = HEC_NEW(arena, hec_sim, 1);
  sim->problem = problem;
  sim->law = law;
  sim->cost = hec_link_cost_new(problem->cluster, arena);
  sim->uniform = true;
  sim->walks = law->closed_form;
  const hec_device *devices = problem->cluster->devices;
  for (int32_t r = 0; r < problem->n_ranks; r++) {
    sim->uniform = sim->uniform && same_device(&devices[r], &devices[0]);
    sim->walks = sim->walks && devices[r].comm_share == 0;
  }
  sim->experts = hec_expert_times_new(sim->uniform, arena);
  sim->walk = hec_walk_new(&sim->cost, problem->n_ranks, arena);
  return sim;
}

void hec_sim_free(hec_sim *sim) {
  if (!sim)
    return;
  hec_walk_free(sim->walk);
  hec_link_cost_free(&sim->cost);
}

static int64_t uniform_ps(hec_sim *sim, const hec_program *program, const hec_op *op) {
  uniform_time *time =
      op->kind == HEC_OP_COMPUTE && op->compute.shape < UNIFORM_SHAPES ? &sim->times[op->compute.shape] : NULL;
  if (time && time->rows == (double)op->compute.rows)
    return time->ps;
  int64_t ps = hec_seconds_to_ps(hec_duration_s(sim->problem, program, op, 0));
  if (time)
    *time = (uniform_time){(double)op->compute.rows, ps};
  return ps;
}

/* Durations by the compute law. */
static void predict(const void *context, const hec_program *program, int32_t id, int64_t *ps) {
  hec_sim *sim = *(hec_sim *const *)context;
  const hec_op *op = &program->ops[id];
  bool differs =
      op->kind == HEC_OP_COMPUTE ? op->compute.work_at >= 0 : op->kind == HEC_OP_LOCAL && op->local.bytes_at >= 0;
  bool same = sim->uniform && !differs;
  int64_t all_ps = same ? uniform_ps(sim, program, op) : 0;
  for (int32_t r = 0; r < program->n_ranks; r++)
    ps[r] = same ? all_ps
            : op->kind == HEC_OP_COMPUTE && differs
                ? hec_expert_times_ps(sim->experts, sim->problem, program, op, r)
                : hec_seconds_to_ps(hec_duration_s(sim->problem, program, op, r));
}

void hec_sim_run(hec_sim *sim, const hec_program *program, hec_sim_options options, hec_timeline *timeline) {
  if (sim->walks && !options.force_engine) {
    for (int32_t i = 0; i < UNIFORM_SHAPES; i++)
      sim->times[i].rows = -1;
    hec_walk_options walk = {
        .own = predict, .context = &sim, .without_one_off = options.without_one_off, .on_time = options.on_time,
        .goes_on = options.goes_on};
    hec_walk_run(sim->walk, program, walk, timeline);
    return;
  }
  hec_sim_memo_key key = {0};
  if (sim->memo) {
    key = hec_sim_memo_key_of(program, options);
    if (hec_sim_memo_take(sim->memo, &key, timeline))
      return;
  }
  hec_timeline_resize(timeline, (int32_t)program->n_ops, program->n_ranks);
  hec_engine_run(sim->problem, sim->law, &sim->cost, program, options, timeline);
  if (sim->memo)
    hec_sim_memo_put(sim->memo, &key, timeline);
}

void hec_sim_share(hec_sim *sim, hec_sim_memo *memo) {
  sim->memo = memo;
}
