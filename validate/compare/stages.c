/* A piece takes on a rank the time from when the piece before it has ended there, in the simulation of the stage alone.
 * There no rank waits for another stage: inside a stage the schedule is serial. */
#include "validate/compare/stages.h"

#include "runtime/program/pipelines/pipeline_stage.h"
#include "runtime/program/pipelines/step_program.h"
#include "runtime/program/walk.h"

#include <string.h>

typedef struct {
  hec_pipeline_stage planned, priced; /* the same for the cluster of plans, and for that of times */
  hec_lowering *low;
  hec_sim *sim;
  hec_load *loads; /* [n_micro_batches] */
  int32_t *op_at;  /* [pieces + 1] */
} stage;

struct hec_predicted_stages {
  const hec_experiment_case *of;
  int32_t n_ranks; /* of a stage */
  stage *stage;    /* [n_stages] */
  uint64_t *digest;
  hec_timeline inside;
  hec_program program;
  hec_step_ops ops;
  hec_link_cost cost;
  hec_walk *walk;
  int64_t *own_ps; /* [n_ops * all ranks] */
};

static hec_status make_stage(hec_predicted_stages *p, int32_t device, const hec_problem *priced, const hec_law *law,
                             const hec_collective *collective, hec_arena *arena) {
  const hec_experiment_case *of = p->of;
  const hec_pipeline_parts parts = {of->order, of->layer_at};
  stage *s = &p->stage[device];
  HEC_TRY(hec_pipeline_stage_make(parts, device, of->problem, arena, &s->planned));
  HEC_TRY(hec_pipeline_stage_make(parts, device, priced, arena, &s->priced));
  s->low = hec_lowering_new(&s->planned.problem, of->policy, &hec_schedule_serial, collective, arena);
  hec_lowering_interleave(s->low, of->n_micro_batches, s->planned.last);
  s->sim = hec_sim_new(&s->priced.problem, law, arena);
  s->op_at = HEC_NEW(arena, int32_t, hec_step_own_max(of->order));
  s->loads = HEC_NEW(arena, hec_load, of->n_micro_batches);
  for (int32_t mb = 0; mb < of->n_micro_batches; mb++)
    s->loads[mb] = hec_load_new(arena, s->planned.n_layers, p->n_ranks, priced->n_experts);
  return HEC_OK;
}

hec_status hec_predicted_stages_new(const hec_experiment_case *of, const hec_problem *priced, const hec_law *law,
                                    const hec_collective *collective, hec_arena *arena, hec_predicted_stages **to) {
  int32_t n_stages = of->order->shape.n_stages, all = n_stages * priced->n_ranks;
  hec_predicted_stages *p = *to = HEC_NEW(arena, hec_predicted_stages, 1);
  p->of = of;
  p->n_ranks = priced->n_ranks;
  p->stage = HEC_NEW(arena, stage, n_stages);
  p->digest = HEC_NEW(arena, uint64_t, n_stages);
  for (int32_t d = 0; d < n_stages; d++)
    HEC_TRY(make_stage(p, d, priced, law, collective, arena));
  int64_t bytes = (int64_t)priced->tokens * priced->moe->d_model * (int64_t)sizeof(float);
  hec_step_program_make(of->order, p->n_ranks, bytes, priced->train, arena, &p->program, &p->ops);
  p->cost = hec_link_cost_new(priced->cluster, arena);
  p->walk = hec_walk_new(&p->cost, all, arena);
  p->own_ps = HEC_NEW(arena, int64_t, p->program.n_ops * (size_t)all);
  return HEC_OK;
}

/* The latest end of a rank's operations first .. end - 1, at least `from`. */
static int64_t end_of(const hec_timeline *timeline, int32_t first, int32_t end, int32_t rank, int64_t from) {
  for (int32_t i = first; i < end; i++) {
    int64_t ended = timeline->end_ps[(size_t)i * (size_t)timeline->n_ranks + (size_t)rank];
    from = ended > from ? ended : from;
  }
  return from;
}

static void take_pieces(hec_predicted_stages *p, int32_t device) {
  const hec_pipeline_order *o = p->of->order;
  const stage *s = &p->stage[device];
  int32_t first = o->piece_at[device], n = o->piece_at[device + 1] - first, all = o->shape.n_stages * p->n_ranks;
  for (int32_t r = 0; r < p->n_ranks; r++) {
    int64_t ended = 0;
    for (int32_t i = 0; i <= n; i++) {
      int64_t end = end_of(&p->inside, i > 0 ? s->op_at[i - 1] : 0, s->op_at[i], r, ended);
      int32_t op = i < n ? p->ops.piece[first + i] : p->ops.end[device];
      p->own_ps[(size_t)op * (size_t)all + (size_t)(device * p->n_ranks + r)] = end - ended;
      ended = end;
    }
  }
}

uint64_t hec_predicted_stages_step(hec_predicted_stages *p, const hec_replay_step *step, const hec_program **program,
                                   hec_timeline *timeline) {
  const hec_pipeline_order *o = p->of->order;
  for (int32_t d = 0; d < o->shape.n_stages; d++) {
    stage *s = &p->stage[d];
    for (int32_t mb = 0; mb < p->of->n_micro_batches; mb++)
      hec_pipeline_stage_load(&s->planned, &step->loads[step->n_loads == 1 ? 0 : mb], &s->loads[mb]);
    hec_pipeline_stage_lower(&s->planned, o, s->low, step->iter, s->loads, s->op_at);
    p->digest[d] = hec_program_digest(hec_lowering_program(s->low));
    hec_sim_run(s->sim, hec_lowering_program(s->low), (hec_sim_options){0}, &p->inside);
    take_pieces(p, d);
  }
  hec_walk_run(p->walk, &p->program, (hec_walk_options){.own = hec_walk_own_measured, .context = p->own_ps}, timeline);
  *program = &p->program;
  return hec_stages_digest(p->digest, o->shape.n_stages);
}

void hec_predicted_stages_free(hec_predicted_stages *p) {
  if (!p)
    return;
  for (int32_t d = 0; d < p->of->order->shape.n_stages; d++) {
    if (p->stage[d].sim)
      hec_sim_free(p->stage[d].sim);
    hec_lowering_free(p->stage[d].low);
  }
  hec_walk_free(p->walk);
  hec_link_cost_free(&p->cost);
  hec_program_free(&p->program);
  hec_timeline_free(&p->inside);
}
