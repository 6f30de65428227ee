/* The walk over an iteration: what is common to all schedules. Cost per iteration: O(layers * (ranks^2 + ranks *
 * experts)). */
#include "runtime/program/lower.h"

#include "runtime/base/arena.h"
#include "runtime/base/table.h"
#include "runtime/base/text.h"
#include "runtime/plan/replicas.h"
#include "runtime/program/dispatched.h"
#include "runtime/program/lowering_state.h"
#include "runtime/program/portfolio.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Up to here patterns of whole experts are kept for pricing collectives: ranks^2 * links * 64 bytes. */
enum { SPREAD_RANKS_MAX = 256 };

#define SCHEDULE_ROW(name) &hec_schedule_##name,
const hec_schedule *const hec_schedules[] = {HEC_SCHEDULE_LIST(SCHEDULE_ROW) NULL};

#define TOKEN_ROUTE_ROW(name) &hec_token_route_##name,
const hec_token_route *const hec_token_routes[HEC_N_TOKEN_ROUTES] = {HEC_TOKEN_ROUTE_LIST(TOKEN_ROUTE_ROW)};

HEC_TABLE_OF(hec_schedule);
const hec_schedule *hec_schedule_find(const char *name) {
  return hec_table_find(hec_schedules, name);
}

/* All but those that belong to one policy. */
static bool may_be_asked_for(const void *schedule) {
  return !((const hec_schedule *)schedule)->bound;
}
const hec_table hec_schedule_table = {
    .rows = hec_schedules, .offered = may_be_asked_for, .also = "published", .list = "hecate-sim `list`"};
const hec_table hec_schedule_best_table = {
    .rows = hec_schedules, .offered = may_be_asked_for, .also = "best, published", .list = "hecate-sim `list`"};

hec_status hec_schedule_of(const hec_policy *policy, const char *name, const hec_schedule **schedule) {
  bool published = strcmp(name, "published") == 0;
  *schedule = hec_schedule_find(published ? policy->schedule : name);
  if (strcmp(name, "best") == 0)
    return hec_fail(HEC_BAD_INPUT, "`schedule`: best is for predictions; name the schedule that hecate-sim found best");
  if (!published && (!*schedule || (*schedule)->bound))
    return hec_table_unknown(&hec_schedule_table, "`schedule`", name);
  if (policy->only_schedule) /* whatever is asked for: such a row stands beside the others in every comparison */
    *schedule = hec_schedule_find(policy->only_schedule);
  HEC_ASSERT(*schedule != NULL);
  return HEC_OK;
}

/* Whether a word of the list, separated by blanks, is the name. */
static bool lists(const char *list, const char *name) {
  size_t length = strlen(name);
  for (const char *at = list; at && *at; at += strcspn(at, " "), at += strspn(at, " "))
    if (strncmp(at, name, length) == 0 && (at[length] == ' ' || at[length] == 0))
      return true;
  return false;
}

int32_t hec_schedules_of(const hec_policy *policy, const hec_problem *problem,
                         const hec_schedule *schedules[HEC_SCHEDULES_MAX]) {
  int32_t n = 0;
  HEC_ASSERT(hec_schedule_of(policy, "published", &schedules[n++]) == HEC_OK);
  for (int32_t s = 0; hec_schedules[s] && !policy->only_schedule && !policy->by_schedule; s++) {
    const hec_schedule *one = hec_schedules[s];
    bool twin = one->unsharded && problem->esp == 1;
    if (one != schedules[0] && !one->bound && !one->own && !twin && !lists(policy->excludes, one->name))
      schedules[n++] = one;
  }
  return n;
}

static hec_layer_ops *layers_new(hec_lowering *low) {
  hec_layer_ops *layer = HEC_NEW(low->in->arena, hec_layer_ops, low->problem->n_layers);
  for (int32_t l = 0; l < low->problem->n_layers; l++)
    layer[l].in = HEC_NEW(low->in->arena, struct hec_layer_inside, 1);
  return layer;
}

static hec_sparse sparse_new(const hec_lowering *low) {
  hec_arena *arena = low->in->arena;
  const hec_plan *plan = &low->in->shared->run.plan;
  size_t ranks = (size_t)low->problem->n_ranks, experts = (size_t)low->problem->n_experts;
  size_t slices = (size_t)plan->n_slices, items = experts * (ranks / (size_t)plan->width);
  return (hec_sparse){.expert = HEC_NEW(arena, int32_t, items),
                      .owner = HEC_NEW(arena, int32_t, items * slices),
                      .receiver_at = HEC_NEW(arena, int32_t, items + 1),
                      .receiver = HEC_NEW(arena, int32_t, experts * ranks)};
}

/* What every lowering has for itself; `shared` is there. */
static void make_own(hec_lowering *low) {
  const hec_problem *problem = low->problem;
  const hec_plan *plan = &low->in->shared->run.plan;
  hec_arena *arena = low->in->arena;
  size_t ranks = (size_t)problem->n_ranks, experts = (size_t)problem->n_experts;
  low->in->before = hec_plan_new(arena, problem, plan->n_slices);
  hec_plan_assign(&low->in->before, plan);
  low->layer = layers_new(low);
  low->in->scattered = HEC_NEW(arena, int32_t, problem->n_layers);
  low->in->sparse = sparse_new(low);
  low->in->gathered = HEC_NEW(arena, uint8_t, experts * ranks);
  low->in->holders = HEC_NEW(arena, int32_t, ranks + experts * ranks);
  low->in->dispatched = hec_dispatched_new(problem, arena);
  low->in->pair_bytes = HEC_NEW(arena, int64_t, ranks * ranks);
  low->in->pair_set = HEC_NEW(arena, uint64_t, (ranks * ranks + 63) / 64);
  low->in->arrived = HEC_NEW(arena, int64_t, ranks);
  low->in->inside_bytes = HEC_NEW(arena, int64_t, ranks);
  low->own = low->in->schedule->start ? low->in->schedule->start(problem, arena) : NULL;
}

static void make_shared(hec_lowering *low, const hec_policy *policy) {
  const hec_problem *problem = low->problem;
  hec_arena *arena = low->in->arena;
  hec_lowering_shared *shared = HEC_NEW(arena, hec_lowering_shared, 1);
  low->in->shared = shared;
  shared->run = hec_policy_start_under(policy, problem, low->in->schedule->hides, arena);
  shared->routing = hec_routing_new(arena, problem);
  shared->cells = hec_layer_cells_new(problem, &shared->run.plan, arena);
  shared->answer[0].sparse = sparse_new(low);
  shared->answer[1].sparse = sparse_new(low);
  if (!low->in->collective && !policy->relays && problem->n_ranks <= SPREAD_RANKS_MAX) {
    hec_rank_links *links = HEC_NEW(arena, hec_rank_links, 1);
    *links = hec_rank_links_new(arena, problem);
    for (int32_t scatter = 0; scatter < (problem->train ? 2 : 1); scatter++) {
      double bytes = scatter ? problem->bytes.expert_grad : problem->bytes.expert_param;
      shared->spread[scatter] = HEC_NEW(arena, hec_spread, 1);
      *shared->spread[scatter] = hec_spread_new(arena, problem, links, bytes, scatter == 1);
      shared->spread_sum[scatter] = hec_spread_sum_new(arena, shared->spread[scatter]);
    }
  }
  if (policy->rewrite)
    shared->rewritten = hec_load_new(arena, problem->n_layers, problem->n_ranks, problem->n_experts);
}

static hec_lowering *lowering_new(const hec_problem *problem, const hec_schedule *schedule,
                                  const hec_collective *collective, hec_arena *arena) {
  hec_lowering *low = HEC_NEW(arena, hec_lowering, 1);
  low->in = HEC_NEW(arena, struct hec_lowering_inside, 1);
  low->problem = problem;
  low->in->schedule = schedule;
  low->in->collective = collective;
  low->in->arena = arena;
  return low;
}

hec_lowering *hec_lowering_new(const hec_problem *problem, const hec_policy *policy, const hec_schedule *schedule,
                               const hec_collective *collective, hec_arena *arena) {
  hec_lowering *low = lowering_new(problem, schedule, collective, arena);
  make_shared(low, policy);
  make_own(low);
  bool among = policy->portfolio > 0 && schedule->own && problem->pricer;
  int64_t size = hec_portfolio_size(problem);
  if (among && size > HEC_PORTFOLIO_STATIC_MAX)
    hec_policy_note(&low->in->shared->run, "no pairs tried, its own planner only: layers x ranks^2 is above %d",
                    HEC_PORTFOLIO_STATIC_MAX);
  else if (among && size > HEC_PORTFOLIO_SIZE_MAX)
    hec_policy_note(&low->in->shared->run, "only pairs of rows that use no load: layers x ranks^2 is above %d",
                    HEC_PORTFOLIO_SIZE_MAX);
  if (among && size <= HEC_PORTFOLIO_STATIC_MAX)
    hec_portfolio_start(low);
  return low;
}

hec_lowering *hec_lowering_beside(const hec_lowering *first, const hec_schedule *schedule) {
  HEC_ASSERT(!first->among);
  hec_lowering *low = lowering_new(first->problem, schedule, first->in->collective, first->in->arena);
  low->in->shared = first->in->shared;
  low->in->beside = true;
  make_own(low);
  return low;
}

void hec_lowering_help(hec_lowering *low, const hec_helper *helper) {
  if (low->among)
    hec_portfolio_help(low, helper);
}

void hec_lowering_detail(hec_lowering *low) {
  low->in->detail = low->in->each.per_item = true;
}

void hec_lowering_gated(hec_lowering *low) {
  low->in->gated = true;
}

void hec_lowering_rewrite(hec_lowering *low, hec_load *load) {
  hec_policy_rewrite(&low->in->shared->run, load);
}

void hec_lowering_free(hec_lowering *low) {
  if (!low)
    return;
  if (low->among)
    hec_portfolio_free(low);
  if (!low->in->beside) {
    hec_policy_stop(&low->in->shared->run);
    hec_collective_plan_free(&low->in->shared->answer[0].plan);
    hec_collective_plan_free(&low->in->shared->answer[1].plan);
    hec_collective_plan_free(&low->in->shared->other);
    hec_layer_cells_free(&low->in->shared->cells);
  }
  hec_program_free(&low->in->program);
  hec_collective_plan_free(&low->in->each);
  free(low->in->moves.data);
  free(low->in->migration.data);
  free(low->in->inside.data);
  free(low->in->overload);
  low->in->overload = NULL;
}

void hec_lowering_swap_program(hec_lowering *low, hec_program *program) {
  hec_program own = low->in->program;
  low->in->program = *program;
  *program = own;
}

bool hec_rematerialises(const hec_lowering *low) {
  return low->in->shared->run.plan.rematerialise;
}

const hec_program *hec_lowering_program(const hec_lowering *low) {
  return &low->in->program;
}
const hec_policy_run *hec_lowering_run(const hec_lowering *low) {
  return &low->in->shared->run;
}

const char *hec_lowering_note(const hec_lowering *low) {
  const char *policy = low->in->shared->run.note, *own = low->in->own_note;
  bool room = own && strlen(policy) + strlen(own) + 3 < sizeof low->in->note;
  (void)snprintf(low->in->note, sizeof low->in->note, "%s%s%s", policy, room && policy[0] ? "; " : "", room ? own : "");
  return low->in->note;
}
int32_t hec_lowering_counts(const hec_lowering *low, int32_t layer) {
  return low->layer[layer].counts;
}
const hec_token_choice *hec_lowering_choice(const hec_lowering *low) {
  return &low->in->choice;
}
bool hec_lowering_migrated(const hec_lowering *low) {
  return low->in->migrated;
}
bool hec_lowering_one_off(const hec_lowering *low) {
  return low->in->one_off;
}

const double *hec_lowering_overload(const hec_lowering *low, int32_t *n) {
  *n = (int32_t)low->in->n_overload;
  return low->in->overload;
}

static void add_shape(hec_lowering *low, hec_work_shape forward) {
  hec_program *program = &low->in->program;
  HEC_RESERVE(program->shapes, program->shapes_capacity, program->n_shapes + 2);
  program->shapes[program->n_shapes++] = forward;
  program->shapes[program->n_shapes++] = hec_work_backward_of(low->problem->moe, forward);
}

static void add_shapes(hec_lowering *low) {
  const hec_moe *moe = low->problem->moe;
  add_shape(low, hec_work_embedding(moe)); /* order: the enum in emit.h */
  add_shape(low, hec_work_dense_blocks(moe));
  add_shape(low, hec_problem_attention(low->problem, false));
  add_shape(low, hec_work_gate(moe));
  add_shape(low, hec_work_shared(moe));
  add_shape(low, low->problem->expert);
  hec_work_shape exact = low->problem->expert;
  exact.exact = true;
  add_shape(low, exact);
  add_shape(low, hec_work_head(moe));
  add_shape(low, hec_problem_attention(low->problem, true));
  add_shape(low, hec_work_cut(hec_work_dense_ffn(moe), low->problem->mp));
}

void hec_lower_begin(hec_lowering *low, int64_t iter, int32_t n_micro_batches) {
  if (low->among)
    hec_portfolio_begin(low, iter, n_micro_batches);
  hec_program_clear(&low->in->program, low->problem->n_ranks);
  add_shapes(low);
  low->in->shared->run.iter = iter;
  low->in->n_micro_batches = n_micro_batches;
  low->in->n_overload = 0;
  low->in->choice = (hec_token_choice){0};
  low->in->migrated = low->in->one_off = false;
  low->tail = low->in->grad_tail = low->moved = -1;
  low->in->head_bytes = 0;
  low->in->tensor = (hec_transfer_span){.part_at = -1};
}

static void emit_head(hec_lowering *low, bool backward) {
  if (low->problem->moe->vocabulary > 0)
    low->tail =
        hec_emit_uniform(low, HEC_ROLE_HEAD, HEC_SHAPE_HEAD, -1, backward, low->problem->tokens, HEC_DEPS(low->tail));
}

/* Its gradients, before those of any layer. They are the last ones of what comes before and after the layers. */
static void reduce_head(hec_lowering *low) {
  bool beside = !low->in->schedule->cuts && !low->in->schedule->alone;
  double bytes = beside ? hec_problem_head_gradients(low->problem) : 0;
  hec_dense_span head = {-1, (int64_t)(hec_problem_gradients(low->problem, -1) - bytes), bytes};
  int32_t reduced = hec_emit_dense_span(low, HEC_LANE_GRAD, head, HEC_DEPS(low->tail));
  low->in->head_bytes = reduced >= 0 ? bytes : 0;
}

/* Embedding and the blocks without MoE, which come before the MoE blocks. */
static void emit_before_layers(hec_lowering *low, bool backward) {
  const hec_moe *moe = low->problem->moe;
  hec_role role[2] = {HEC_ROLE_EMBEDDING, HEC_ROLE_DENSE_BLOCKS};
  int32_t shape[2] = {HEC_SHAPE_EMBEDDING, HEC_SHAPE_DENSE_BLOCKS};
  bool there[2] = {moe->vocabulary > 0, moe->n_layers > moe->n_moe_layers};
  for (int32_t i = 0; i < 2; i++) {
    int32_t k = backward ? 1 - i : i;
    if (there[k] && k == 1 && low->problem->mp > 1)
      hec_emit_tensor_blocks(low, backward);
    else if (there[k])
      low->tail =
          hec_emit_uniform(low, role[k], shape[k], -1, backward, low->problem->tokens, HEC_DEPS(low->tail, low->moved));
  }
}

void hec_lowering_interleave(hec_lowering *low, int32_t n_micro_batches, int32_t last) {
  if (low->among) /* micro-batches under way would have to change sides */
    hec_portfolio_stop(low);
  low->in->last_backward = last;
  low->in->layers_of = HEC_NEW(low->in->arena, hec_layer_ops *, n_micro_batches);
  for (int32_t mb = 0; mb < n_micro_batches; mb++)
    low->in->layers_of[mb] = mb == 0 ? low->layer : layers_new(low);
}

void hec_lower_resume(hec_lowering *low, int32_t micro_batch) {
  low->in->micro_batch = micro_batch;
  if (low->in->layers_of)
    low->layer = low->in->layers_of[micro_batch];
}

void hec_lower_micro_batch(hec_lowering *low, int32_t micro_batch) {
  hec_lower_resume(low, micro_batch);
  for (int32_t l = 0; l < low->problem->n_layers; l++) {
    low->in->scattered[l] = micro_batch > 0 ? low->layer[l].scatter : -1;
    struct hec_layer_inside *in = low->layer[l].in;
    low->layer[l] = (hec_layer_ops){
        .counts = -1, .gather = -1, .regather = -1, .scatter = -1, .migrate = -1, .degree = 1, .in = in};
    *in = (struct hec_layer_inside){.experts_backward = -1, .added = -1, .guest_hold = {-1, -1, -1}};
    for (int32_t c = 0; c < HEC_DEGREE_MAX; c++)
      in->chunk[c] = (hec_layer_chunk){.work_at = -1,
                                       .dispatch = {-1, 0, -1, 0},
                                       .there.part_at = -1,
                                       .seconds_at = -1,
                                       .gather.part_at = -1,
                                       .inside.part_at = -1};
    for (int32_t t = 0; t < HEC_N_TENSORS; t++)
      in->hold[t] = -1;
  }
  if (!low->in->beside)
    hec_policy_decide(&low->in->shared->run, low->in->shared->run.iter, micro_batch);
  bool beside = low->in->schedule->plans_beside && low->in->shared->run.policy->known != HEC_KNOWN_PERIODIC;
  int32_t plan = hec_emit_plan(low, -1, beside ? HEC_LANE_PARAM : HEC_LANE_COMPUTE, HEC_DEPS(low->tail));
  if (low->in->shared->run.plan.version != low->in->before.version) {
    int32_t moved = hec_emit_migration(low, plan);
    low->moved = moved >= 0 ? moved : low->moved;
  }
  emit_before_layers(low, false);
}

void hec_lower_to_gate(hec_lowering *low, int32_t layer) {
  low->in->schedule->to_gate(low, layer);
}

/* The policy's last word on the layer, and where its tokens go then. */
static void refine(hec_lowering_shared *shared, const hec_problem *problem, int32_t layer, const hec_load *load) {
  hec_policy_refine(&shared->run, layer, load);
  hec_routing_make(&shared->routing, shared->run.policy->dispatch, problem, &shared->run.plan, load, layer);
  if (problem->esp > 1)
    hec_routing_shard(&shared->routing, problem);
  hec_layer_cells_clear(&shared->cells);
}

void hec_lower_from_gate(hec_lowering *low, int32_t layer, const hec_load *load) {
  if (!low->in->beside)
    refine(low->in->shared, low->problem, layer, load);
  low->in->routing = low->in->shared->routing;
  HEC_RESERVE(low->in->overload, low->in->overload_capacity, low->in->n_overload + 1);
  low->in->overload[low->in->n_overload++] = hec_routing_overload(&low->in->routing);
  low->load = load;
  low->in->schedule->from_gate(low, layer);
  low->in->choice.n_layers++;
  low->in->choice.degree[low->layer[layer].degree]++;
  low->in->choice.route[low->layer[layer].route]++;
  low->in->choice.by_node += low->layer[layer].in->nodes.on;
  if (!low->problem->train) /* nothing is kept for a backward */
    hec_close_buffer(low, layer, HEC_TENSOR_BLOCK, low->tail);
}

void hec_lower_backward(hec_lowering *low, int32_t layer) {
  low->in->schedule->backward(low, layer);
}

void hec_lower_micro_batch_done(hec_lowering *low, const hec_load *load) {
  if (low->problem->train && low->in->schedule->end)
    low->in->schedule->end(low);
  if (!low->in->beside)
    hec_policy_observe(&low->in->shared->run, load);
  if (low->among)
    hec_portfolio_observe(low, load);
}

static void backward_of(hec_lowering *const *lows, int32_t n) {
  for (int32_t i = 0; i < n; i++) {
    emit_head(lows[i], false);
    if (lows[i]->problem->train) {
      emit_head(lows[i], true);
      reduce_head(lows[i]);
    }
  }
  for (int32_t l = lows[0]->problem->n_layers - 1; lows[0]->problem->train && l >= 0; l--)
    for (int32_t i = 0; i < n; i++)
      hec_lower_backward(lows[i], l);
  for (int32_t i = 0; i < n; i++)
    if (lows[i]->problem->train)
      emit_before_layers(lows[i], true);
}

void hec_lower_micro_batch_end(hec_lowering *low, const hec_load *load) {
  backward_of(&low, 1);
  hec_lower_micro_batch_done(low, load);
}

/* The share of an expert's optimizer state that a rank has which keeps the expert. */
static double updated(const hec_lowering *low, int32_t expert, int32_t rank) {
  hec_replica_own own = hec_replica_own_of(low->problem, expert, rank);
  return (double)own.n / own.n_parts;
}

/* Experts (in slices) that each rank keeps: parameters in [r], optimizer state in [n_ranks + r]. */
static int32_t count_kept(hec_lowering *low) {
  const hec_plan *plan = &low->in->shared->run.plan;
  int32_t n_ranks = low->problem->n_ranks, at = hec_program_local_bytes(&low->in->program, 2 * n_ranks);
  double *kept = low->in->program.local_bytes + at, slice = 1.0 / plan->n_slices;
  size_t n = (size_t)plan->n_layers * (size_t)plan->n_experts * (size_t)plan->n_slices;
  for (size_t i = 0; i < n; i++) {
    kept[plan->home[i]] += slice;
    int32_t expert = (int32_t)(i / (size_t)plan->n_slices % (size_t)plan->n_experts);
    kept[n_ranks + plan->opt_home[i]] += slice * updated(low, expert, plan->opt_home[i]);
  }
  for (int32_t l = 0; l < plan->n_layers; l++)
    for (int32_t e = 0; e < plan->n_experts; e++) {
      hec_copies copies = hec_plan_copies(plan, l, e);
      for (int32_t i = 0; i < copies.n; i++)
        if (copies.kind[i] == HEC_COPY_RESIDENT) {
          kept[copies.rank[i]] += 1;
          kept[n_ranks + copies.rank[i]] += updated(low, e, copies.rank[i]);
        }
    }
  int32_t esp = low->problem->esp;
  for (int32_t i = 0; esp > 1 && i < 2 * n_ranks;
       i++) /* a home stands for its group, which has a shard on every rank */
    kept[i] = i % esp == 0 ? kept[i] / esp : kept[i - i % esp];
  return at;
}

/* Memory holds reserved slots whether in use or not (FlexMoE, EPLB): as count_kept, but at least the slots of all
 * layers. */
static int32_t count_reserved(hec_lowering *low, int32_t kept) {
  int32_t n = 2 * low->problem->n_ranks, at = hec_program_local_bytes(&low->in->program, n);
  double reserved = (double)low->in->shared->run.plan.slots * low->problem->n_layers;
  for (int32_t i = 0; i < n; i++) {
    double in_use = low->in->program.local_bytes[kept + i];
    low->in->program.local_bytes[at + i] = in_use > reserved ? in_use : reserved;
  }
  return at;
}

/* `bytes` on every rank (at -1), or that many per unit of local_bytes[at + r], all the time. */
static void hold_state(hec_lowering *low, hec_memory memory, int32_t at, double bytes) {
  hec_program_hold(&low->in->program, (hec_hold){.memory = memory,
                                                 .layer = -1,
                                                 .first = -1,
                                                 .last = -1,
                                                 .bytes_at = at,
                                                 .bytes = bytes,
                                                 .tensor = HEC_TENSOR_STATE,
                                                 .micro_batch = -1,
                                                 .items_at = -1});
}

static void hold_kept(hec_lowering *low, int32_t kept) {
  const hec_memory_cost *bytes = &low->problem->bytes;
  hold_state(low, HEC_MEMORY_PARAM, -1, bytes->dense_param);
  hold_state(low, HEC_MEMORY_PARAM, kept, bytes->expert_param);
  if (!low->problem->train)
    return;
  hold_state(low, HEC_MEMORY_GRAD, -1, bytes->dense_grad);
  hold_state(low, HEC_MEMORY_GRAD, kept, bytes->expert_grad);
  hold_state(low, HEC_MEMORY_OPTIMIZER, -1, bytes->dense_optimizer);
  hold_state(low, HEC_MEMORY_OPTIMIZER, kept + low->problem->n_ranks, bytes->expert_optimizer);
  hold_state(low, HEC_MEMORY_ACTIVATION, -1, bytes->activation_rest);
}

/* Adam reads gradient and state, writes state and parameters. */
static void emit_optimizer(hec_lowering *low, int32_t kept) {
  const hec_memory_cost *bytes = &low->problem->bytes;
  double dense = (bytes->dense_grad + bytes->dense_param) / hec_problem_dense_part(low->problem, 0).of +
                 2 * bytes->dense_optimizer;
  double expert = bytes->expert_grad + 2 * bytes->expert_optimizer + bytes->expert_param;
  int32_t n_ranks = low->problem->n_ranks, at = hec_program_local_bytes(&low->in->program, n_ranks);
  double share = (double)low->problem->n_layers * (double)low->problem->n_experts / (double)n_ranks;
  for (int32_t r = 0; r < n_ranks; r++) {
    double own = low->in->schedule->bound ? share : low->in->program.local_bytes[kept + n_ranks + r];
    low->in->program.local_bytes[at + r] = dense + expert * own;
  }
  hec_op op = hec_op_of(low, HEC_OP_LOCAL, HEC_LANE_COMPUTE, HEC_ROLE_OPTIMIZER, -1, true);
  op.local.bytes_at = at;
  op.bytes = 1;
  low->tail = hec_program_add(&low->in->program, op, HEC_DEPS(low->tail, low->in->grad_tail, low->moved));
}

void hec_lower_end(hec_lowering *low) {
  int32_t kept = count_kept(low);
  hold_kept(low, count_reserved(low, kept));
  if (low->problem->train) {
    double head = low->in->head_bytes; /* reduced already */
    hec_dense_span rest = {-1, 0, hec_problem_gradients(low->problem, -1) - head};
    (void)hec_emit_dense_span(low, HEC_LANE_GRAD, rest, HEC_DEPS(low->tail));
    emit_optimizer(low, kept);
    if (low->problem->zero)
      hec_emit_updated(low, low->tail);
  }
  if (low->among)
    hec_portfolio_end(low);
}

static const hec_load *rewrite(hec_lowering *low, const hec_load *load) {
  if (!low->in->shared->run.policy->rewrite)
    return load;
  hec_load_copy(load, &low->in->shared->rewritten);
  hec_lowering_rewrite(low, &low->in->shared->rewritten);
  return &low->in->shared->rewritten;
}

/* Step by step together: what the first decides is there when the others emit. It observes last, so that all have what
 * they ask of the policy's history. */
void hec_lower_iterations(hec_lowering *const *lows, int32_t n_lows, int64_t iter, const hec_load *loads, int32_t n,
                          int32_t n_micro_batches) {
  HEC_ASSERT(n == 1 || n == n_micro_batches);
  for (int32_t i = 0; i < n_lows; i++)
    hec_lower_begin(lows[i], iter, n_micro_batches);
  for (int32_t mb = 0; mb < n_micro_batches; mb++) {
    const hec_load *load = rewrite(lows[0], &loads[n == 1 ? 0 : mb]);
    for (int32_t i = 0; i < n_lows; i++)
      hec_lower_micro_batch(lows[i], mb);
    for (int32_t l = 0; l < lows[0]->problem->n_layers; l++) {
      for (int32_t i = 0; i < n_lows; i++)
        hec_lower_to_gate(lows[i], l);
      for (int32_t i = 0; i < n_lows; i++)
        hec_lower_from_gate(lows[i], l, load);
    }
    backward_of(lows, n_lows);
    for (int32_t i = n_lows - 1; i >= 0; i--)
      hec_lower_micro_batch_done(lows[i], load);
  }
  for (int32_t i = 0; i < n_lows; i++)
    hec_lower_end(lows[i]);
}

void hec_lower_iteration(hec_lowering *low, int64_t iter, const hec_load *loads, int32_t n, int32_t n_micro_batches) {
  hec_lower_iterations(&low, 1, iter, loads, n, n_micro_batches);
}
