/* One cell: lowering, simulation of every iteration, sums. More is read off the timeline than a summary has:
 *
 *   token_s   sum over dispatch and combine rows of (end - ready), ready = end of the row's dependencies and of its lane
 *   layer_s   forward: last end of the gate row to last end of the unpermute row; backward: last begin of unpermute' to
 *             last end of permute' (so waiting for gathers and for the gradient buffer counts); where rows travel once per
 *             node, of the rows between nodes
 *   state     peak over the program's order of the holds that are parameters, gradients, optimizer state or copies
 *
 * O(operations * ranks) per iteration beside the simulation. */
#include "validate/published/cell.h"

#include "runtime/base/arena.h"
#include "runtime/plan/problem.h"
#include "runtime/program/summary.h"
#include "runtime/program/timeline.h"
#include "sim/simulate.h"

#include <string.h>

/* ---- reading a timeline ---- */

static int64_t end_at(const hec_timeline *timeline, size_t op, int32_t rank) {
  return timeline->end_ps[op * (size_t)timeline->n_ranks + (size_t)rank];
}

/* Mean over ranks of (end - ready) of all token exchanges. */
static double token_seconds(const hec_program *program, const hec_timeline *timeline, int64_t *lane_end) {
  int64_t sum = 0;
  memset(lane_end, 0, (size_t)program->n_ranks * sizeof *lane_end);
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    if (op->lane != HEC_LANE_TOKEN)
      continue;
    for (int32_t r = 0; r < program->n_ranks; r++) {
      int64_t end = end_at(timeline, i, r), ready = lane_end[r];
      if (end < 0)
        continue;
      for (int32_t d = 0; d < op->n_deps; d++) {
        int64_t before = end_at(timeline, (size_t)program->deps[op->dep_at + d], r);
        ready = before > ready ? before : ready;
      }
      lane_end[r] = end;
      if (op->role == HEC_ROLE_DISPATCH || op->role == HEC_ROLE_COMBINE || op->by_node)
        sum += end - ready;
    }
  }
  return (double)sum * 1e-12 / program->n_ranks;
}

static double last(const int64_t *time, size_t op, int32_t n_ranks) {
  int64_t max = -1;
  for (int32_t r = 0; r < n_ranks; r++)
    max = time[op * (size_t)n_ranks + (size_t)r] > max ? time[op * (size_t)n_ranks + (size_t)r] : max;
  return (double)max * 1e-12;
}

/* Adds each MoE layer's time: two differences, of four rows. */
static void add_layers(const hec_program *program, const hec_timeline *timeline, double *layer_s, double *forward_s) {
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    if (op->layer < 0)
      continue;
    bool unpermute = op->role == (op->by_node ? HEC_ROLE_NODE_UNPERMUTE : HEC_ROLE_UNPERMUTE);
    bool permute = op->role == (op->by_node ? HEC_ROLE_NODE_PERMUTE : HEC_ROLE_PERMUTE);
    double sign = op->role == HEC_ROLE_GATE ? -1 : unpermute ? 1 : 0;
    if (sign != 0 && !op->backward) {
      double end_s = last(timeline->end_ps, i, program->n_ranks);
      layer_s[op->layer] += sign * end_s;
      forward_s[op->layer] += sign * end_s;
    }
    if (unpermute && op->backward)
      layer_s[op->layer] -= last(timeline->begin_ps, i, program->n_ranks);
    if (permute && op->backward)
      layer_s[op->layer] += last(timeline->end_ps, i, program->n_ranks);
  }
}

/* Forward rows as a profiler sees the slowest rank's kernel. */
static void add_longest(const hec_program *program, const hec_timeline *timeline, hec_setup_cell *cell) {
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    double *sum = op->role == HEC_ROLE_GATHER || op->role == HEC_ROLE_CALIBRATE         ? &cell->gather_s
                  : op->role == HEC_ROLE_PLAN                                           ? &cell->plan_s
                  : op->role == HEC_ROLE_DISPATCH || op->role == HEC_ROLE_NODE_DISPATCH ? &cell->dispatch_s
                                                                                        : NULL;
    if (!sum || op->backward)
      continue;
    int64_t max = 0;
    for (int32_t r = 0; r < program->n_ranks; r++) {
      size_t at = i * (size_t)program->n_ranks + (size_t)r;
      int64_t took = timeline->end_ps[at] - timeline->begin_ps[at]; /* 0 where the rank takes no part */
      max = took > max ? took : max;
    }
    *sum += (double)max * 1e-12;
  }
}

static double role_sum(const hec_breakdown *breakdown, const hec_role *roles, int32_t n) {
  double sum = 0;
  for (int32_t i = 0; i < n; i++)
    sum += breakdown->role_s[roles[i]];
  return sum;
}

static bool is_state(hec_memory memory) {
  return memory != HEC_MEMORY_ACTIVATION && memory != HEC_MEMORY_BUFFER;
}
static bool is_param(hec_memory memory) {
  return memory == HEC_MEMORY_PARAM || memory == HEC_MEMORY_COPY_PARAM;
}

/* Peak of the fullest rank over the holds of some classes: the program again, with fewer holds. */
static double peak_of(const hec_program *program, bool (*wanted)(hec_memory), hec_arena *arena) {
  hec_arena_mark mark = hec_arena_save(arena);
  hec_program some = *program;
  some.holds = HEC_NEW(arena, hec_hold, program->n_holds + 1);
  some.n_holds = 0;
  for (size_t i = 0; i < program->n_holds; i++)
    if (!wanted || wanted(program->holds[i].memory))
      some.holds[some.n_holds++] = program->holds[i];
  double *peak = HEC_NEW(arena, double, program->n_ranks), max = 0;
  hec_program_memory_peak(&some, peak, NULL);
  for (int32_t r = 0; r < program->n_ranks; r++)
    max = peak[r] > max ? peak[r] : max;
  hec_arena_rewind(arena, mark);
  return max;
}

/* ---- one cell ---- */

typedef struct {
  hec_lowering *low;
  hec_sim *sim;
  hec_timeline timeline;
  int64_t *lane_end;
  hec_arena *arena;
  double weighted_s, ordinary_s, stride, overload;
  int64_t n_overload;
} bench;

static double larger(double a, double b) {
  return a > b ? a : b;
}

static void add_memory(bench *b, const hec_program *program, hec_setup_cell *cell) {
  cell->param_bytes = larger(cell->param_bytes, peak_of(program, is_param, b->arena));
  cell->state_bytes = larger(cell->state_bytes, peak_of(program, is_state, b->arena));
  cell->peak_bytes = larger(cell->peak_bytes, peak_of(program, NULL, b->arena));
}

static void add_iteration(bench *b, int64_t stride, hec_setup_cell *cell) {
  static const hec_role sparse[] = {HEC_ROLE_GATHER, HEC_ROLE_CALIBRATE, HEC_ROLE_REGATHER, HEC_ROLE_SCATTER,
                                    HEC_ROLE_REDUCE};
  static const hec_role rearrange[] = {HEC_ROLE_MIGRATE, HEC_ROLE_REPLICA_SCATTER, HEC_ROLE_REPLICA_GATHER};
  const hec_program *program = hec_lowering_program(b->low);
  double ordinary_s = -1;
  if (hec_lowering_one_off(b->low)) {
    hec_sim_run(b->sim, program, (hec_sim_options){.without_one_off = true}, &b->timeline);
    ordinary_s = (double)hec_timeline_end_ps(&b->timeline) * 1e-12;
  }
  cell->n_migrations += hec_lowering_migrated(b->low);
  hec_sim_run(b->sim, program, (hec_sim_options){0}, &b->timeline);
  hec_breakdown breakdown = hec_timeline_breakdown(&b->timeline, program);
  ordinary_s = ordinary_s < 0 ? breakdown.total_s : ordinary_s;
  b->weighted_s += (double)stride * ordinary_s + (breakdown.total_s - ordinary_s);
  b->ordinary_s += (double)stride * ordinary_s;
  b->stride += (double)stride;
  cell->token_s += token_seconds(program, &b->timeline, b->lane_end);
  add_layers(program, &b->timeline, cell->layer_s, cell->forward_s);
  double sparse_s = role_sum(&breakdown, sparse, (int32_t)(sizeof sparse / sizeof *sparse));
  double moving_s = role_sum(&breakdown, rearrange, (int32_t)(sizeof rearrange / sizeof *rearrange));
  add_longest(program, &b->timeline, cell);
  bool all = hec_lowering_run(b->low)->policy->rearranges; /* shadowing is rearrangement too */
  cell->sparse_s += all ? 0 : sparse_s;
  cell->rearrange_s += moving_s + (all ? sparse_s : 0);
  int32_t n;
  const double *overload = hec_lowering_overload(b->low, &n);
  for (int32_t i = 0; i < n; i++)
    b->overload += overload[i];
  b->n_overload += n;
  cell->n_reported++;
  add_memory(b, program, cell);
  const hec_policy_run *run = hec_lowering_run(b->low);
  for (int32_t l = 0; l < cell->n_layers; l++)
    cell->copies += run->plan.copy_at[(size_t)(l + 1) * (size_t)(run->plan.n_experts + 1) - 1];
  hec_summary_widen(&cell->t_min, &cell->t_max, run->t, cell->n_layers);
  hec_summary_widen(&cell->m_min, &cell->m_max, run->m, cell->n_layers);
}

static void finish(const bench *b, const hec_problem *problem, hec_setup_cell *cell) {
  double n = cell->n_reported;
  HEC_ASSERT(n > 0);
  cell->iteration_s = b->weighted_s / b->stride;
  cell->ordinary_s = b->ordinary_s / b->stride;
  cell->overload = b->overload / (double)b->n_overload;
  cell->token_s /= n;
  cell->sparse_s /= n;
  cell->rearrange_s /= n;
  cell->gather_s /= n;
  cell->plan_s /= n;
  cell->dispatch_s /= n;
  cell->copies /= n * cell->n_layers;
  const hec_policy_run *run = hec_lowering_run(b->low);
  cell->dropped = run->n_offered > 0 ? (double)run->n_dropped / (double)run->n_offered : 0;
  for (int32_t l = 0; l < cell->n_layers; l++) {
    cell->layer_s[l] /= n;
    cell->forward_s[l] /= n;
  }
  cell->fits = cell->peak_bytes <= problem->cluster->devices[0].memory_bytes;
}

void hec_setup_cell_simulate(const hec_setup_cell_run *run, hec_arena *arena, hec_setup_cell *cell) {
  const hec_problem *problem = run->problem;
  const hec_loads *loads = run->loads;
  const hec_schedule *schedule = run->schedule;
  HEC_ASSERT(problem->n_layers <= HEC_CELL_LAYERS_MAX);
  if (!schedule)
    HEC_ASSERT(hec_schedule_of(run->policy, "published", &schedule) == HEC_OK);
  bench b = {.low = hec_lowering_new(problem, run->policy, schedule, NULL, arena),
             .sim = hec_sim_new(problem, hec_law_find("alpha_beta"), arena),
             .lane_end = HEC_NEW(arena, int64_t, problem->n_ranks),
             .arena = arena};
  *cell = (hec_setup_cell){.n_layers = problem->n_layers, .t_min = -1, .t_max = -1, .m_min = -1, .m_max = -1};
  int32_t warmup = run->warmup, n_micro_batches = run->n_micro_batches > 0 ? run->n_micro_batches : 1;
  if (warmup > loads->n / 2) /* a recorded trace may have fewer records than were asked for */
    warmup = loads->n / 3;
  /* Without decisions there is nothing to warm up. */
  for (int32_t i = run->policy->decide ? 0 : warmup; i < loads->n; i++) {
    hec_lower_iteration(b.low, loads->iter[i], &loads->load[i], 1, n_micro_batches);
    if (i >= warmup)
      add_iteration(&b, loads->stride[i], cell);
  }
  finish(&b, problem, cell);
  hec_lowering_free(b.low);
  hec_sim_free(b.sim);
  hec_timeline_free(&b.timeline);
}
