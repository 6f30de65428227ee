/* A step of the planner: what one micro-batch is planned by.
 *
 *   begin -> [refine of a layer, again where it is recomputed]* -> end -> release
 *
 * A step keeps two copies of the plan: `decided`, as the policy made it before the gates, and `plans`. refine makes a
 * layer of `plans` from `decided` afresh each time. That has three uses. The run inside the planner never sees a
 * refined layer. Several steps are alive at once. A second refine of a layer with the same counts gives the same plan.
 * Moves are the difference of the plans before and after a step, where homes or residents changed. Guests of a layer
 * as items: O(copies of the layer). */
#include "runtime/exec/package/planner_state.h"
#include "runtime/plan/collective.h"

#include <string.h>

static size_t row_of(const hec_planner *p, int32_t layer, int32_t expert) {
  return (size_t)layer * (size_t)p->problem.n_experts + (size_t)expert;
}

static size_t cells(const hec_planner *p) {
  return (size_t)p->problem.n_ranks * (size_t)p->problem.n_experts;
}

hec_step *hec_step_new(hec_planner *p) {
  size_t ranks = (size_t)p->problem.n_ranks, experts = (size_t)p->problem.n_experts;
  size_t layers = (size_t)p->problem.n_layers, items = experts * (ranks / (size_t)p->run.plan.width);
  hec_step *step = HEC_NEW(&p->arena, hec_step, 1);
  *step = (hec_step){.planner = p, .next = p->steps};
  step->decided = hec_policy_plans_new(&p->run, &p->arena);
  step->plans = hec_policy_plans_new(&p->run, &p->arena);
  step->load = hec_load_new(&p->arena, p->problem.n_layers, p->problem.n_ranks, p->problem.n_experts);
  step->seen = HEC_NEW(&p->arena, bool, layers);
  step->gathered = HEC_NEW(&p->arena, uint8_t, layers * experts * ranks);
  step->expert = HEC_NEW(&p->arena, int32_t, items);
  step->owner = HEC_NEW(&p->arena, int32_t, items);
  step->receiver_at = HEC_NEW(&p->arena, int32_t, items + 1);
  step->receiver = HEC_NEW(&p->arena, int32_t, experts * ranks);
  hec_policy_plans_read(&step->plans, &p->run);
  step->ended = true;
  p->steps = step;
  return step;
}

static hec_step *unused_step(hec_planner *p) {
  for (hec_step *step = p->steps; step; step = step->next)
    if (!step->open)
      return step;
  return hec_step_new(p);
}

/* ---- Begin, end ---- */

static void list_moves(hec_planner *p) {
  p->moves.n = 0;
  for (int32_t l = 0; l < p->problem.n_layers; l++)
    hec_plan_moves(&p->before, &p->run.plan, &p->problem, l, &p->moves);
  hec_move_list_sort(&p->moves);
  HEC_RESERVE(p->listed, p->listed_capacity, p->moves.n);
  for (size_t i = 0; i < p->moves.n; i++) {
    const hec_move *move = &p->moves.data[i];
    const hec_parcel *parcel = &move->parcel;
    p->listed[i] = (hec_planner_move){move->source, move->destination, parcel->layer,         parcel->expert,
                                      parcel->part, parcel->n_parts,   (int32_t)parcel->state};
  }
  p->n_listed = p->moves.n;
}

/* Which guests the step decided on: what refine adds is told from them. */
static void mark_guests(hec_step *step) {
  const hec_planner *p = step->planner;
  size_t ranks = (size_t)p->problem.n_ranks;
  memset(step->gathered, 0, row_of(p, p->problem.n_layers, 0) * ranks);
  for (int32_t l = 0; l < p->problem.n_layers; l++)
    for (int32_t e = 0; e < p->problem.n_experts; e++) {
      hec_copies copies = hec_plan_copies(hec_step_plan(step), l, e);
      for (int32_t i = 0; i < copies.n; i++)
        if (copies.kind[i] == HEC_COPY_GUEST)
          step->gathered[row_of(p, l, e) * ranks + (size_t)copies.rank[i]] = 1;
    }
}

hec_status hec_step_check(const hec_planner *p, int64_t iteration, int32_t micro_batch) {
  if (iteration >= p->run.iter && micro_batch >= 0)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "step: expected iteration >= %lld and micro-batch >= 0, found %lld and %d",
                  (long long)p->run.iter, (long long)iteration, micro_batch);
}

void hec_step_decide(hec_step *step, int64_t iteration, int32_t micro_batch) {
  hec_planner *p = step->planner;
  hec_plan_assign(&p->before, &p->run.plan);
  hec_policy_decide(&p->run, iteration, micro_batch);
  hec_policy_plans_read(&step->decided, &p->run);
  hec_policy_plans_read(&step->plans, &p->run);
  step->planned = p->run.planned;
  step->open = true;
  step->ended = false;
  p->n_listed = 0;
  if (p->run.plan.version != p->before.version)
    list_moves(p);
  if (p->run.plan.n_slices == 1)
    mark_guests(step);
  memset(step->seen, 0, (size_t)p->problem.n_layers * sizeof *step->seen);
}

int hec_planner_begin(hec_planner *p, int64_t iteration, int32_t micro_batch, hec_step **step) {
  TRY(hec_step_check(p, iteration, micro_batch));
  *step = unused_step(p);
  hec_step_decide(*step, iteration, micro_batch);
  return HECATE_OK;
}

void hec_step_release(hec_step *step) {
  if (step)
    step->open = false;
}

static hec_status check_layer(const hec_step *step, const char *what, int32_t layer) {
  if (!step->open)
    return hec_fail(HEC_BAD_INPUT, "%s: the step was released", what);
  if (layer >= 0 && layer < step->planner->problem.n_layers)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "%s: expected a layer from 0 to %d, found %d", what,
                  step->planner->problem.n_layers - 1, layer);
}

/* Rows of work are 31 bits wide. */
static hec_status check_counts(const char *what, const uint32_t *counts, size_t n) {
  uint64_t total = 0;
  for (size_t i = 0; i < n; i++)
    total += counts[i];
  if (total <= INT32_MAX)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "%s: expected at most %d assignments in a layer, found %llu", what, INT32_MAX,
                  (unsigned long long)total);
}

int hec_step_count(hec_step *step, int32_t layer, const uint32_t *counts) {
  const hec_planner *p = step->planner;
  TRY(check_layer(step, "refine", layer));
  TRY(check_counts("refine", counts, cells(p)));
  memcpy(hec_load_row(&step->load, layer, 0), counts, cells(p) * sizeof *counts);
  for (int32_t i = 0; step->seen[layer] && i < step->plans.n; i++)
    hec_plan_assign_layer(&step->plans.plan[i], &step->decided.plan[i], layer);
  step->seen[layer] = true;
  return HECATE_OK;
}

int hec_step_refine(hec_step *step, int32_t layer, const uint32_t *counts) {
  hec_planner *p = step->planner;
  TRY(hec_step_count(step, layer, counts));
  hec_policy_plans_refine(&step->plans, &p->run, layer, &step->load);
  step->planned = p->run.planned;
  return HECATE_OK;
}

int hec_step_end(hec_step *step, const uint32_t *counts) {
  hec_planner *p = step->planner;
  if (!step->open || step->ended)
    return (int)hec_fail(HEC_BAD_INPUT, "end: the step was %s before", step->open ? "ended" : "released");
  for (int32_t l = 0; l < p->problem.n_layers; l++) {
    if (counts)
      TRY(check_counts("end", counts + (size_t)l * cells(p), cells(p)));
    else if (!step->seen[l])
      return (int)hec_fail(HEC_BAD_INPUT, "end: the counts of layer %d were neither given to refine nor now", l);
  }
  if (counts)
    memcpy(step->load.counts, counts, (size_t)p->problem.n_layers * cells(p) * sizeof *counts);
  hec_policy_observe(&p->run, &step->load);
  step->ended = true;
  return HECATE_OK;
}

/* ---- Looking at the plan ---- */

void hec_step_view(const hec_step *step, hec_plan_view *view) {
  const hec_plan *plan = hec_step_plan(step);
  hec_planner_view(step->planner, view);
  view->home = plan->home;
  view->copy_at = plan->copy_at;
  view->copy_rank = plan->copy_rank;
  view->copy_kind = plan->copy_kind;
  view->rematerialise = plan->rematerialise;
  view->planned = step->planned;
}

uint64_t hec_step_digest(const hec_step *step) {
  return hec_plan_digest(hec_step_plan(step));
}

static hec_status begin_routing(hec_step *step, const char *what, int32_t layer) {
  HEC_TRY(check_layer(step, what, layer));
  if (!step->seen[layer])
    return hec_fail(HEC_BAD_INPUT, "%s: layer %d was not refined in this step", what, layer);
  hec_routing_hold(&step->planner->routing, hec_step_plan(step), layer);
  return HEC_OK;
}

int hec_step_dispatch(hec_step *step, int32_t layer, uint32_t *tokens) {
  hec_planner *p = step->planner;
  TRY(begin_routing(step, "dispatch", layer));
  size_t of_source = cells(p);
  memset(tokens, 0, (size_t)p->problem.n_ranks * of_source * sizeof *tokens);
  for (int32_t s = 0; s < p->problem.n_ranks; s++)
    hec_routing_send(&p->routing, p->run.policy->dispatch, &p->problem, hec_step_plan(step), layer,
                     hec_load_row(&step->load, layer, 0), s, tokens + (size_t)s * of_source);
  return HECATE_OK;
}

int hec_step_routes(hec_step *step, int32_t layer, int32_t rank, uint32_t *send, uint32_t *receive) {
  hec_planner *p = step->planner;
  const hec_dispatch *rule = p->run.policy->dispatch;
  TRY(begin_routing(step, "routes", layer));
  if (rank < 0 || rank >= p->problem.n_ranks)
    return (int)hec_fail(HEC_BAD_INPUT, "routes: expected a rank below %d, found %d", p->problem.n_ranks, rank);
  const uint32_t *counts = hec_load_row(&step->load, layer, 0);
  memset(send, 0, cells(p) * sizeof *send);
  memset(receive, 0, cells(p) * sizeof *receive);
  hec_routing_send(&p->routing, rule, &p->problem, hec_step_plan(step), layer, counts, rank, send);
  hec_routing_receive(&p->routing, rule, &p->problem, hec_step_plan(step), layer, counts, rank, receive);
  return HECATE_OK;
}

int hec_step_guests(hec_step *step, int32_t layer, int32_t which, hec_sparse_items *items) {
  const hec_planner *p = step->planner;
  TRY(check_layer(step, "guests", layer));
  if (which < HECATE_BEFORE || which > HECATE_ALL)
    return (int)hec_fail(HEC_BAD_INPUT, "guests: expected HECATE_BEFORE, _ADDED or _ALL, found %d", which);
  if (p->run.plan.n_slices > 1)
    return (int)hec_fail(HEC_BAD_INPUT, "guests: policy %s keeps slices, not experts", p->run.policy->name);
  static const hec_guest_choice choices[] = {
      [HECATE_BEFORE] = HEC_GUESTS_MARKED, [HECATE_ADDED] = HEC_GUESTS_UNMARKED, [HECATE_ALL] = HEC_GUESTS_ANY};
  hec_sparse sparse = {
      .expert = step->expert, .owner = step->owner, .receiver_at = step->receiver_at, .receiver = step->receiver};
  hec_sparse_guests(&sparse, hec_step_plan(step), layer, choices[which],
                    step->gathered + row_of(p, layer, 0) * (size_t)p->problem.n_ranks);
  *items = (hec_sparse_items){sparse.n_items, step->expert, step->owner, step->receiver_at, step->receiver};
  return HECATE_OK;
}
