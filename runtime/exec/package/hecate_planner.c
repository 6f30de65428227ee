/* The planner of libhecate: a policy at work on a problem given by numbers (hecate.h), with the order of calls checked.
 *
 *   open -> [step -> refine of each layer -> end]*        as hec_lower_iteration drives the same policies
 *
 * Moves are the difference of the plans before and after a step, where homes or residents changed. Guests of a layer as
 * items: O(copies of the layer). All arrays are taken at open. */
#include "runtime/base/arena.h"
#include "runtime/base/table.h"
#include "runtime/exec/package/hecate.h"
#include "runtime/plan/collective.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"

#include <stdlib.h>
#include <string.h>

enum { CELLS_MAX = 1 << 28, MOVES_RESERVED_MAX = 1 << 20, HEAD_WIDTH = 64, SEQUENCE = 2048 };

/* The public codes are ints. */
#define TRY(expression)                                                                                                \
  do {                                                                                                                 \
    int try_code_ = (int)(expression);                                                                                 \
    if (try_code_ != HECATE_OK)                                                                                        \
      return try_code_;                                                                                                \
  } while (0)

struct hec_planner {
  hec_arena arena;
  hec_moe moe;
  hec_cluster cluster;
  hec_problem problem;
  hec_policy_run run;
  hec_plan before; /* the last step's plan, as homes and residents stood before the step */
  hec_routing routing;
  hec_load load;   /* counts of the step */
  bool *seen;      /* [n_layers] refine was called in this step */
  bool stepping;   /* between step and end */
  int32_t planned; /* by the last step or refine */
  hec_move_list moves;
  hec_planner_move *listed; /* [n_listed] the same for others */
  size_t n_listed, listed_capacity;
  /* Guests as items; gathered: which of them the step decided on. */
  uint8_t *gathered; /* [n_layers * n_experts * n_ranks] */
  int32_t *expert, *owner, *receiver_at, *receiver;
  int32_t *split_rank; /* [holders of a row, slots counted] */
  uint32_t *split_tokens;
};

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
  static const hec_table rows = {.rows = hec_policies, .offered = offered, .list = "hec_policy_name"};
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
  p->load = hec_load_new(&p->arena, problem->n_layers, problem->n_ranks, problem->n_experts);
  p->before = hec_plan_new(&p->arena, problem, p->run.plan.n_slices);
  p->seen = HEC_NEW(&p->arena, bool, layers);
  p->gathered = HEC_NEW(&p->arena, uint8_t, layers * experts * ranks);
  size_t items = experts * (ranks / (size_t)p->run.plan.width);
  p->expert = HEC_NEW(&p->arena, int32_t, items);
  p->owner = HEC_NEW(&p->arena, int32_t, items);
  p->receiver_at = HEC_NEW(&p->arena, int32_t, items + 1);
  p->receiver = HEC_NEW(&p->arena, int32_t, experts * ranks);
  p->split_rank = HEC_NEW(&p->arena, int32_t, ranks + experts * ranks);
  p->split_tokens = HEC_NEW(&p->arena, uint32_t, ranks + experts * ranks);
  size_t moves = 2 * layers * experts * (ranks + 1);
  moves = moves < MOVES_RESERVED_MAX ? moves : MOVES_RESERVED_MAX;
  HEC_RESERVE(p->moves.data, p->moves.capacity, moves);
  HEC_RESERVE(p->listed, p->listed_capacity, moves);
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

/* ---- A micro-batch ---- */

static size_t row_of(const hec_planner *p, int32_t layer, int32_t expert) {
  return (size_t)layer * (size_t)p->problem.n_experts + (size_t)expert;
}

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
static void mark_guests(hec_planner *p) {
  size_t ranks = (size_t)p->problem.n_ranks;
  memset(p->gathered, 0, row_of(p, p->problem.n_layers, 0) * ranks);
  for (int32_t l = 0; l < p->problem.n_layers; l++)
    for (int32_t e = 0; e < p->problem.n_experts; e++) {
      const int32_t *copies;
      const uint8_t *kinds;
      int32_t n = hec_plan_copies(&p->run.plan, l, e, &copies, &kinds);
      for (int32_t i = 0; i < n; i++)
        if (kinds[i] == HEC_COPY_GUEST)
          p->gathered[row_of(p, l, e) * ranks + (size_t)copies[i]] = 1;
    }
}

int hec_planner_step(hec_planner *p, int64_t iteration, int32_t micro_batch) {
  if (p->stepping)
    return (int)hec_fail(HEC_BAD_INPUT, "step: the step before was not ended (hec_planner_end)");
  if (iteration < p->run.iter || micro_batch < 0)
    return (int)hec_fail(HEC_BAD_INPUT, "step: expected iteration >= %lld and micro-batch >= 0, found %lld and %d",
                         (long long)p->run.iter, (long long)iteration, micro_batch);
  hec_plan_assign(&p->before, &p->run.plan);
  hec_policy_decide(&p->run, iteration, micro_batch);
  p->planned = p->run.planned;
  p->n_listed = 0;
  if (p->run.plan.version != p->before.version)
    list_moves(p);
  if (p->run.plan.n_slices == 1)
    mark_guests(p);
  memset(p->seen, 0, (size_t)p->problem.n_layers * sizeof *p->seen);
  p->stepping = true;
  return HECATE_OK;
}

static hec_status check_layer(const hec_planner *p, const char *what, int32_t layer) {
  if (layer >= 0 && layer < p->problem.n_layers)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "%s: expected a layer from 0 to %d, found %d", what, p->problem.n_layers - 1, layer);
}

static hec_status check_step(const hec_planner *p, const char *what) {
  return p->stepping ? HEC_OK : hec_fail(HEC_BAD_INPUT, "%s: no step is in progress (hec_planner_step)", what);
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

static size_t cells(const hec_planner *p) {
  return (size_t)p->problem.n_ranks * (size_t)p->problem.n_experts;
}

int hec_planner_refine(hec_planner *p, int32_t layer, const uint32_t *counts) {
  TRY(check_step(p, "refine"));
  TRY(check_layer(p, "refine", layer));
  if (p->seen[layer])
    return (int)hec_fail(HEC_BAD_INPUT, "refine: layer %d was refined before in this step", layer);
  TRY(check_counts("refine", counts, cells(p)));
  memcpy(hec_load_row(&p->load, layer, 0), counts, cells(p) * sizeof *counts);
  hec_policy_refine(&p->run, layer, &p->load);
  p->planned = p->run.planned;
  p->seen[layer] = true;
  return HECATE_OK;
}

int hec_planner_end(hec_planner *p, const uint32_t *counts) {
  TRY(check_step(p, "end"));
  for (int32_t l = 0; l < p->problem.n_layers; l++) {
    if (counts)
      TRY(check_counts("end", counts + (size_t)l * cells(p), cells(p)));
    else if (!p->seen[l])
      return (int)hec_fail(HEC_BAD_INPUT, "end: the counts of layer %d were neither given to refine nor now", l);
  }
  if (counts)
    memcpy(p->load.counts, counts, (size_t)p->problem.n_layers * cells(p) * sizeof *counts);
  hec_policy_observe(&p->run, &p->load);
  p->stepping = false;
  return HECATE_OK;
}

/* ---- Looking at the plan ---- */

void hec_planner_view(const hec_planner *p, hec_plan_view *view) {
  const hec_plan *plan = &p->run.plan;
  *view = (hec_plan_view){.n_layers = plan->n_layers,
                          .n_experts = plan->n_experts,
                          .n_ranks = plan->n_ranks,
                          .n_slices = plan->n_slices,
                          .home = plan->home,
                          .copy_at = plan->copy_at,
                          .copy_rank = plan->copy_rank,
                          .copy_kind = plan->copy_kind,
                          .copy_capacity = plan->copy_capacity,
                          .t = p->run.t,
                          .m = p->run.m,
                          .rematerialise = plan->rematerialise,
                          .planned = p->planned,
                          .window_s = p->problem.window_s,
                          .expert_bytes = p->problem.bytes.expert_param};
}

uint64_t hec_planner_digest(const hec_planner *p) {
  return hec_plan_digest(&p->run.plan);
}

int hec_planner_split(hec_planner *p, int32_t layer, int32_t source, int32_t expert, int32_t *ranks, uint32_t *tokens,
                      int32_t *n) {
  TRY(check_layer(p, "split", layer));
  if (source < 0 || source >= p->problem.n_ranks || expert < 0 || expert >= p->problem.n_experts)
    return (int)hec_fail(HEC_BAD_INPUT, "split: expected a source below %d and an expert below %d, found %d and %d",
                         p->problem.n_ranks, p->problem.n_experts, source, expert);
  if (!p->seen[layer])
    return (int)hec_fail(HEC_BAD_INPUT, "split: layer %d was not refined in this step", layer);
  *n = hec_routing_split(&p->routing, p->run.policy->dispatch, &p->problem, &p->run.plan, &p->load, layer, source,
                         expert, p->split_rank, p->split_tokens);
  memcpy(ranks, p->split_rank, (size_t)*n * sizeof *ranks); /* slots of a rank are one part: at most n_ranks */
  memcpy(tokens, p->split_tokens, (size_t)*n * sizeof *tokens);
  return HECATE_OK;
}

const hec_planner_move *hec_planner_moves(const hec_planner *p, size_t *n) {
  *n = p->n_listed;
  return p->listed;
}

int hec_planner_guests(hec_planner *p, int32_t layer, int32_t which, hec_sparse_items *items) {
  TRY(check_layer(p, "guests", layer));
  if (which < HECATE_BEFORE || which > HECATE_ALL)
    return (int)hec_fail(HEC_BAD_INPUT, "guests: expected HECATE_BEFORE, _ADDED or _ALL, found %d", which);
  if (p->run.plan.n_slices > 1)
    return (int)hec_fail(HEC_BAD_INPUT, "guests: policy %s keeps slices, not experts", p->run.policy->name);
  static const hec_guest_choice choices[] = {
      [HECATE_BEFORE] = HEC_GUESTS_MARKED, [HECATE_ADDED] = HEC_GUESTS_UNMARKED, [HECATE_ALL] = HEC_GUESTS_ANY};
  hec_sparse sparse = {.expert = p->expert, .owner = p->owner, .receiver_at = p->receiver_at, .receiver = p->receiver};
  hec_sparse_guests(&sparse, &p->run.plan, layer, choices[which],
                    p->gathered + row_of(p, layer, 0) * (size_t)p->problem.n_ranks);
  *items = (hec_sparse_items){sparse.n_items, p->expert, p->owner, p->receiver_at, p->receiver};
  return HECATE_OK;
}
