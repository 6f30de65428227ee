/* The planner of libhecate: a policy at work on a problem given by numbers (hecate.h). Here are open, close, save and
 * restore. Here are also the calls for one micro-batch at a time, each on the planner's current step (hecate_step.c).
 * */
#include "runtime/base/arena.h"
#include "runtime/base/table.h"
#include "runtime/exec/package/planner_state.h"

#include <stdlib.h>
#include <string.h>

enum { CELLS_MAX = 1 << 28, MOVES_RESERVED_MAX = 1 << 20, HEAD_WIDTH = 64, SEQUENCE = 2048 };

_Static_assert((int)HECATE_OK == (int)HEC_OK && (int)HECATE_FAILED == (int)HEC_FAILED &&
                   (int)HECATE_BAD_INPUT == (int)HEC_BAD_INPUT,
               "one set of codes");
_Static_assert((int)HECATE_AUTO == (int)HEC_AUTO && (int)HECATE_T_PAPER == (int)HEC_T_PAPER, "one set of wishes");
_Static_assert((int)HECATE_RESIDENT == (int)HEC_COPY_RESIDENT && (int)HECATE_GUEST == (int)HEC_COPY_GUEST,
               "one set of kinds");
_Static_assert((int)HECATE_PARAM == (int)HEC_STATE_PARAM && (int)HECATE_GRAD == (int)HEC_STATE_GRAD &&
                   (int)HECATE_OPTIMIZER == (int)HEC_STATE_OPTIMIZER,
               "one set of states");

#define TEXT(x) #x
#define NUMBER(x) TEXT(x)
const char *hec_version(void) {
  return NUMBER(HECATE_VERSION_MAJOR) "." NUMBER(HECATE_VERSION_MINOR) "." NUMBER(HECATE_VERSION_PATCH);
}

const char *hec_error(void) {
  return hec_last_error();
}

/* ---- Options ---- */

hec_planner_options hec_planner_defaults(void) {
  return (hec_planner_options){.policy = "hecate",
                               .n_matrices = 2,
                               .param_bytes = 2,
                               .grad_bytes = 2,
                               .optimizer_bytes = 12,
                               .seq_len = SEQUENCE,
                               .t = HECATE_AUTO,
                               .m = HECATE_AUTO,
                               .period = HECATE_AUTO,
                               .slots = HECATE_AUTO};
}

/* Rows that compute something else than what the gate chose, or stand as the user's file says, belong in comparisons, not
 * in a trainer. */
static bool offered(const void *row) {
  const hec_policy *policy = row;
  return !policy->reference && !policy->placed;
}

const char *hec_policy_name(int32_t i, const char **summary, const char **source) {
  for (int32_t row = 0; i >= 0 && hec_policies[row]; row++) {
    const hec_policy *policy = hec_policies[row];
    if (!offered(policy) || i-- > 0)
      continue;
    if (summary)
      *summary = policy->summary;
    if (source)
      *source = policy->source;
    return policy->name;
  }
  return NULL;
}

static hec_status find_policy(const char *name, hec_arena *arena, const hec_policy **policy) {
  static const hec_table rows = {.rows = hec_policies, .offered = offered, .list = "hec_policy_name (Python: hecate.policies)"};
  HEC_TRY(hec_policy_read(name ? name : "NULL", &rows, "policy", arena, policy));
  if (!offered(*policy))
    return hec_fail(HEC_BAD_INPUT, "policy: expected a row that a trainer can run, found %s, %s", name,
                    (*policy)->reference ? "a reference row for comparisons"
                                         : "which stands as a file says, and no file is given here");
  return HEC_OK;
}

static hec_status make_model(const hec_planner_options *o, hec_moe *moe) {
  int32_t heads = o->n_heads > 0 ? o->n_heads : o->d_model / HEAD_WIDTH;
  heads = heads > 0 ? heads : 1;
  *moe = (hec_moe){.name = "planner options",
                   .n_layers = o->n_layers,
                   .n_moe_layers = o->n_layers,
                   .d_model = o->d_model,
                   .d_ffn = o->d_ffn,
                   .n_ffn_matrices = o->n_matrices,
                   .n_experts = o->n_experts,
                   .top_k = o->top_k,
                   .n_heads = heads,
                   .n_kv_heads = heads,
                   .d_head = o->d_model / heads > 0 ? o->d_model / heads : 1,
                   .seq_len = o->seq_len,
                   .tokens_per_rank = o->tokens,
                   .micro_batches = 1,
                   .dtype_bytes = o->param_bytes,
                   .grad_bytes = o->grad_bytes,
                   .optimizer_bytes = o->optimizer_bytes,
                   .attention = HEC_ATTENTION_CAUSAL,
                   .fused_attention = true,
                   .nonmoe_scale = 1};
  return hec_moe_check(moe, moe->name);
}

static hec_status check_wish(const char *name, int32_t value, int32_t min, int32_t max) {
  if (value == HECATE_AUTO || (value >= min && value <= max))
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "%s: expected HECATE_AUTO or a number from %d to %d, found %d", name, min, max, value);
}

static hec_status make_problem(const hec_planner_options *o, hec_planner *p) {
  if (o->n_heads < 0)
    return hec_fail(HEC_BAD_INPUT, "n_heads: expected a number of heads or 0 (d_model / 64), found %d", o->n_heads);
  if (!o->cluster)
    return hec_fail(HEC_BAD_INPUT, "cluster: expected a preset, a line or a file, found NULL");
  HEC_TRY(make_model(o, &p->moe));
  HEC_TRY(hec_cluster_load(o->cluster, &p->arena, &p->cluster));
  int32_t ranks = o->n_ranks != 0 ? o->n_ranks : p->cluster.n_devices;
  HEC_TRY(hec_problem_make(&p->moe, &p->cluster, o->forward_only == 0, ranks, o->tokens, &p->problem));
  if ((int64_t)o->n_layers * o->n_experts > CELLS_MAX / ranks)
    return hec_fail(HEC_BAD_INPUT, "layers * experts * ranks: expected at most %d, found %d * %d * %d", CELLS_MAX,
                    o->n_layers, o->n_experts, ranks);
  HEC_TRY(hec_problem_group(&p->problem, o->ep));
  if (o->t != HECATE_T_PAPER)
    HEC_TRY(check_wish("t", o->t, 0, o->n_experts));
  HEC_TRY(check_wish("m", o->m, 0, o->n_experts));
  HEC_TRY(check_wish("period", o->period, 1, INT32_MAX));
  HEC_TRY(
      check_wish("slots", o->slots, (o->n_experts + ranks - 1) / ranks, o->n_experts)); /* all experts have a place */
  if (!(o->window_s >= 0 && o->window_s < 1e6))
    return hec_fail(HEC_BAD_INPUT, "window_s: expected seconds from 0 (modelled) to 1e6, found %g", o->window_s);
  p->problem.t = o->t;
  p->problem.m = o->m;
  p->problem.period = o->period;
  p->problem.slots = o->slots;
  if (o->window_s > 0)
    p->problem.window_s = o->window_s;
  return HEC_OK;
}

/* ---- Open, close ---- */

static void allocate(hec_planner *p) {
  const hec_problem *problem = &p->problem;
  size_t ranks = (size_t)problem->n_ranks, experts = (size_t)problem->n_experts, layers = (size_t)problem->n_layers;
  p->routing = hec_routing_new(&p->arena, problem);
  p->before = hec_plan_new(&p->arena, problem, p->run.plan.n_slices);
  p->split_rank = HEC_NEW(&p->arena, int32_t, ranks + experts * ranks);
  p->split_tokens = HEC_NEW(&p->arena, uint32_t, ranks + experts * ranks);
  size_t moves = 2 * layers * experts * (ranks + 1);
  moves = moves < MOVES_RESERVED_MAX ? moves : MOVES_RESERVED_MAX;
  HEC_RESERVE(p->moves.data, p->moves.capacity, moves);
  HEC_RESERVE(p->listed, p->listed_capacity, moves);
  p->current = hec_step_new(p);
  p->current->open = true;
}

int hec_planner_open(const hec_planner_options *options, hec_planner **planner) {
  const hec_policy *policy;
  if (!options || !planner)
    return (int)hec_fail(HEC_BAD_INPUT, "%s: expected a pointer, found NULL", options ? "planner" : "options");
  hec_planner *p = hec_malloc(1, sizeof *p);
  *p = (hec_planner){0};
  hec_status status = find_policy(options->policy, &p->arena, &policy);
  if (status == HEC_OK)
    status = make_problem(options, p);
  if (status == HEC_OK)
    status = hec_policy_suits(policy, &p->problem);
  if (status != HEC_OK) {
    hec_arena_free(&p->arena);
    free(p);
    return (int)status;
  }
  p->run = hec_policy_start(policy, &p->problem, &p->arena);
  allocate(p);
  *planner = p;
  return HECATE_OK;
}

void hec_planner_close(hec_planner *planner) {
  if (!planner)
    return;
  hec_policy_stop(&planner->run);
  free(planner->moves.data);
  free(planner->listed);
  hec_arena_free(&planner->arena);
  free(planner);
}

/* ---- Saved ---- */

static bool in_flight(const hec_planner *p) {
  for (const hec_step *step = p->steps; step; step = step->next)
    if (step->open && !step->ended)
      return true;
  return false;
}

int hec_planner_save(const hec_planner *p, void *state, size_t capacity, size_t *bytes) {
  if (in_flight(p))
    return (int)hec_fail(HEC_BAD_INPUT, "save: a step is in progress; end it first");
  size_t need = hec_policy_save(&p->run, NULL);
  if (state && capacity < need)
    return (int)hec_fail(HEC_BAD_INPUT, "save: expected room for %zu bytes, found %zu", need, capacity);
  *bytes = state ? hec_policy_save(&p->run, state) : need;
  return HECATE_OK;
}

int hec_planner_restore(hec_planner *p, const void *state, size_t bytes, int32_t *same) {
  if (p->run.history.n_seen > 0 || in_flight(p))
    return (int)hec_fail(HEC_BAD_INPUT, "restore: expected a planner that made no step yet");
  bool all;
  TRY(hec_policy_restore(&p->run, state, bytes, &all));
  hec_policy_plans_read(&p->current->plans, &p->run);
  if (same)
    *same = all;
  return HECATE_OK;
}

/* ---- One micro-batch at a time ---- */

static hec_status check_step(const hec_planner *p, const char *what) {
  return p->current->ended ? hec_fail(HEC_BAD_INPUT, "%s: no step is in progress (hec_planner_step)", what) : HEC_OK;
}

int hec_planner_step(hec_planner *p, int64_t iteration, int32_t micro_batch) {
  if (!p->current->ended)
    return (int)hec_fail(HEC_BAD_INPUT, "step: the step before was not ended (hec_planner_end)");
  TRY(hec_step_check(p, iteration, micro_batch));
  hec_step_decide(p->current, iteration, micro_batch);
  return HECATE_OK;
}

int hec_planner_refine(hec_planner *p, int32_t layer, const uint32_t *counts) {
  TRY(check_step(p, "refine"));
  return hec_step_refine(p->current, layer, counts);
}

int hec_planner_end(hec_planner *p, const uint32_t *counts) {
  TRY(check_step(p, "end"));
  return hec_step_end(p->current, counts);
}

void hec_planner_view(const hec_planner *p, hec_plan_view *view) {
  const hec_policy_run *run = &p->run;
  const hec_plan *plan = hec_step_plan(p->current);
  *view = (hec_plan_view){.n_layers = plan->n_layers,
                          .n_experts = plan->n_experts,
                          .n_ranks = plan->n_ranks,
                          .n_slices = plan->n_slices,
                          .home = plan->home,
                          .copy_at = plan->copy_at,
                          .copy_rank = plan->copy_rank,
                          .copy_kind = plan->copy_kind,
                          .copy_capacity = plan->copy_capacity,
                          .t = run->t,
                          .m = run->m,
                          .rematerialise = plan->rematerialise,
                          .planned = p->current->planned,
                          .window_s = p->problem.window_s,
                          .expert_bytes = p->problem.bytes.expert_param,
                          .refines = run->policy->refine != NULL};
}

uint64_t hec_planner_digest(const hec_planner *p) {
  return hec_step_digest(p->current);
}

int hec_planner_split(hec_planner *p, int32_t layer, int32_t source, int32_t expert, int32_t *ranks, uint32_t *tokens,
                      int32_t *n) {
  if (layer < 0 || layer >= p->problem.n_layers)
    return (int)hec_fail(HEC_BAD_INPUT, "split: expected a layer from 0 to %d, found %d", p->problem.n_layers - 1,
                         layer);
  if (source < 0 || source >= p->problem.n_ranks || expert < 0 || expert >= p->problem.n_experts)
    return (int)hec_fail(HEC_BAD_INPUT, "split: expected a source below %d and an expert below %d, found %d and %d",
                         p->problem.n_ranks, p->problem.n_experts, source, expert);
  if (!p->current->seen[layer])
    return (int)hec_fail(HEC_BAD_INPUT, "split: layer %d was not refined in this step", layer);
  *n = hec_routing_split(&p->routing, p->run.policy->dispatch, &p->problem, hec_step_plan(p->current),
                         &p->current->load, layer, source, expert, p->split_rank, p->split_tokens);
  memcpy(ranks, p->split_rank, (size_t)*n * sizeof *ranks); /* slots of a rank are one part: at most n_ranks */
  memcpy(tokens, p->split_tokens, (size_t)*n * sizeof *tokens);
  return HECATE_OK;
}

const hec_planner_move *hec_planner_moves(const hec_planner *p, size_t *n) {
  *n = p->n_listed;
  return p->listed;
}

int hec_planner_guests(hec_planner *p, int32_t layer, int32_t which, hec_sparse_items *items) {
  return hec_step_guests(p->current, layer, which, items);
}
