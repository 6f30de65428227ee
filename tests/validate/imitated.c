/* One pass in id order; see walk.h for the definition. O(operations * ranks + dependencies + transfers). */
#include "tests/validate/imitated.h"

#include "runtime/program/duration.h"
#include "runtime/program/walk.h"
#include "tests/support/check_main.h"

#include <string.h>

static bool together(const hec_op *op) {
  return op->kind == HEC_OP_ALLREDUCE || op->kind == HEC_OP_COUNTS;
}

void hec_imitated_durations(const hec_problem *problem, const hec_program *program, hec_link_cost *cost, int64_t *ps) {
  int32_t n = program->n_ranks;
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    if (op->kind == HEC_OP_EXCHANGE)
      (void)hec_link_cost_exchange(cost, program->transfers + op->exchange.transfer_at, op->exchange.n_transfers,
                                   op->reverse, op->exchange.n_chunks);
    for (int32_t r = 0; r < n; r++) {
      double seconds = op->kind == HEC_OP_EXCHANGE ? hec_walk_exchange_s(problem->cluster, op, cost->done_s[r])
                       : together(op)              ? hec_walk_together_s(problem->cluster, n, op)
                                                   : hec_duration_s(problem, program, op, r);
      ps[i * (size_t)n + (size_t)r] = hec_program_takes_part(program, op, r) ? hec_seconds_to_ps(seconds) : 0;
    }
  }
}

/* Must rank r of the operation wait for rank q? */
static bool waits_for(const hec_program *program, const hec_op *op, int32_t r, int32_t q) {
  if (r == q || together(op))
    return true;
  for (int32_t k = 0; op->kind == HEC_OP_EXCHANGE && k < op->exchange.n_transfers; k++) {
    const hec_transfer *t = &program->transfers[op->exchange.transfer_at + k];
    if ((t->source == r && t->destination == q) || (t->source == q && t->destination == r))
      return true;
  }
  return false;
}

static int64_t ready_at(const hec_program *program, const hec_timeline *timeline, int32_t id, int32_t rank) {
  const hec_op *op = &program->ops[id];
  int64_t ready = 0, n = program->n_ranks;
  for (int32_t d = 0; d < op->n_deps; d++) {
    int64_t end = timeline->end_ps[program->deps[op->dep_at + d] * n + rank];
    ready = end > ready ? end : ready;
  }
  for (int32_t i = id - 1; i >= 0; i--) { /* lanes end in order: the last one is the latest */
    int64_t end = timeline->end_ps[i * n + rank];
    if (program->ops[i].lane == op->lane && end >= 0)
      return end > ready ? end : ready;
  }
  return ready;
}

void hec_imitated_timeline(const hec_program *program, const int64_t *ps, hec_timeline *timeline) {
  int32_t n = program->n_ranks;
  int64_t *ready = calloc((size_t)n, sizeof *ready);
  hec_timeline_resize(timeline, (int32_t)program->n_ops, n);
  for (int32_t i = 0; i < (int32_t)program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    for (int32_t r = 0; r < n; r++)
      ready[r] = ready_at(program, timeline, i, r);
    for (int32_t r = 0; r < n; r++) {
      ptrdiff_t at = (ptrdiff_t)i * n + r;
      int64_t start = 0;
      if (!hec_program_takes_part(program, op, r))
        continue;
      for (int32_t q = 0; q < n; q++)
        if (waits_for(program, op, r, q))
          start = ready[q] > start ? ready[q] : start;
      timeline->begin_ps[at] = start;
      timeline->end_ps[at] = start + ps[at];
    }
  }
  free(ready);
}

static void disturb(const hec_imitated *machine, uint64_t *seed, int64_t *ps, size_t n) {
  for (size_t i = 0; i < n; i++) {
    double factor = machine->factor > 0 ? machine->factor : 1;
    factor *= 1 + machine->noise * (2 * hec_test_uniform(seed) - 1);
    if (hec_test_uniform(seed) < machine->stalls)
      factor *= 2 + 8 * hec_test_uniform(seed);
    ps[i] = (int64_t)((double)ps[i] * factor + 0.5);
  }
}

void hec_imitated_run(const hec_imitated *machine, const hec_experiment_case *one, hec_imitated_visit *visit,
                      void *context) {
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_SCOPED(hec_timeline) timeline = {0};
  hec_problem priced;
  const hec_problem *p = one->problem;
  const hec_schedule *schedule;
  if (hec_problem_make(p->moe, machine->cluster, p->train, p->n_ranks, p->tokens, &priced) != HEC_OK ||
      hec_schedule_of(one->policy, one->schedule, &schedule) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  hec_sim *sim = machine->law ? hec_sim_new(&priced, machine->law, &arena) : NULL;
  HEC_OPENED(hec_lowering) *low = hec_lowering_new(p, one->policy, schedule, NULL, &arena);
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(machine->cluster, &arena);
  double *probe_s = HEC_NEW(&arena, double, 2 * p->n_ranks);
  uint64_t seed = machine->seed;
  for (int32_t i = 0; i < 2 * p->n_ranks; i++)
    probe_s[i] = 1e-3;
  for (int32_t i = 0; i < one->n_steps; i++) {
    const hec_replay_step *step = &one->steps[i];
    hec_lower_iteration(low, step->iter, step->loads, step->n_loads, one->n_micro_batches);
    const hec_program *program = hec_lowering_program(low);
    size_t n = program->n_ops * (size_t)program->n_ranks;
    int64_t *ps = calloc(n, sizeof *ps);
    hec_imitated_durations(&priced, program, &cost, ps);
    disturb(machine, &seed, ps, n);
    hec_imitated_timeline(program, ps, &timeline);
    free(ps);
    if (sim)
      hec_sim_run(sim, program, (hec_sim_options){0}, &timeline);
    visit(context, i,
          &(hec_replayed){.step = step,
                          .low = low,
                          .program = hec_lowering_program(low),
                          .digest = hec_program_digest(hec_lowering_program(low)),
                          .timeline = &timeline,
                          .probe_s = probe_s});
  }
  if (sim)
    hec_sim_free(sim);
}

const hec_model *hec_imitated_model(hec_arena *arena, int32_t layers, int32_t experts, int32_t top_k) {
  hec_model *model = HEC_NEW(arena, hec_model, 1);
  hec_moe moe = {.name = "imitated",
                 .n_layers = layers,
                 .n_moe_layers = layers,
                 .d_model = 64,
                 .d_ffn = 96,
                 .d_ffn_dense = 96,
                 .n_ffn_matrices = 2,
                 .n_experts = experts,
                 .top_k = top_k,
                 .n_heads = 4,
                 .n_kv_heads = 4,
                 .d_head = 16,
                 .seq_len = 32,
                 .tokens_per_rank = 256,
                 .micro_batches = 1,
                 .dtype_bytes = 4,
                 .grad_bytes = 4,
                 .optimizer_bytes = 8,
                 .fused_attention = true,
                 .nonmoe_scale = 1};
  if (hec_model_make(&moe, false, 1, model) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  return model;
}
