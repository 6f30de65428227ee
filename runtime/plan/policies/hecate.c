/* Hecate (FSSDP). One decision before the gates of a micro-batch, for all layers (reference hecate.md 4, 7, 8):
 *
 *   loads = sums over the window, experts in order of them
 *   every `period` iterations: Algorithm 2; homes move only if the plan changed. Training starts with even shards, so the
 *   first check comes one period after the first record. t per layer from the homes and the order, m from memory, then
 *   Algorithm 1
 *
 * and one after the gate of each layer: calibration. Before any record all loads are zero, so the hot set is the lowest ids.
 * t is searched anew only when the homes, the t hottest experts or the next one changed. Its rows:
 *
 *   hecate-published          the whole system as published: what the paper's numbers are compared with
 *   hecate                    with a planner that looks at where the layer ends:
 *       before the gate       of the t hottest experts only so many are copied as end the layer soonest, perhaps none (weigh.h)
 *       after it              calibration may copy to some ranks instead of all, and only what ends the layer sooner
 *       sharding              experts that are not copied are placed by load; published: those that cannot be copied
 *   hecate-rm                 copies are dropped after the forward pass of their layer and gathered again in backward. So
 *                             memory for one layer's copies is enough, and m is larger
 *   hecate-nosharding         without heterogeneous sharding
 *   hecate-nomaterialisation  sharding alone: no copies, before the gate or after it */
#include "runtime/plan/planners/calibrate.h"
#include "runtime/plan/planners/fssdp.h"
#include "runtime/plan/planners/weigh.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"

#include <string.h>

enum { REFINE };

/* How the rows differ. */
typedef struct {
  bool shard;         /* heterogeneous sharding every `period` iterations; else even shards for ever */
  bool materialise;   /* copies: before the gate from the window, after it by calibration */
  bool rematerialise; /* copies live in one pass only and are gathered again in backward */
  bool weigh;         /* not in the paper: only the copies that are predicted to end the layer sooner */
} hecate_form;

typedef struct {
  const hecate_form *form;
  hec_rank_links links;
  hec_spread gather, scatter;
  hec_spread_sum sum;
  hec_fssdp fssdp;
  hec_calibrate calibrate;
  hec_weigh weigh;
  int32_t *k;          /* [n_layers] with weigh: experts copied by the last decision, at most t */
  uint64_t *load;      /* [n_layers * n_experts] window sums */
  int32_t *order;      /* [n_layers * n_experts] experts by descending load */
  int32_t *last_place; /* [n_layers * n_experts] places of the experts in the order for which t was searched */
  bool *t_known;       /* [n_layers] */
  int32_t *owner;      /* [n_layers * n_experts] scratch */
  int64_t last;        /* iteration of the last check of the shards; -1: not started */
  bool reshard_now;
} hecate_state;

static void set_even_shards(hec_policy_run *run) {
  for (int32_t l = 0; l < run->plan.n_layers; l++)
    for (int32_t e = 0; e < run->plan.n_experts; e++)
      hec_plan_set_home(&run->plan, l, e, hec_fssdp_even_owner(run->problem, l, e));
}

static void init(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  const hecate_form *form = run->policy->form;
  hec_arena *arena = run->arena;
  size_t rows = (size_t)problem->n_layers * (size_t)problem->n_experts;
  hecate_state *state = HEC_NEW(arena, hecate_state, 1);
  state->form = form;
  state->links = hec_rank_links_new(arena, problem);
  state->gather = hec_spread_new(arena, problem, &state->links, problem->bytes.expert_param, false);
  state->sum = hec_spread_sum_new(arena, &state->gather);
  state->fssdp = hec_fssdp_new(arena, problem);
  if (form->materialise) {
    if (problem->train)
      state->scatter = hec_spread_new(arena, problem, &state->links, problem->bytes.expert_grad, true);
    state->calibrate = hec_calibrate_new(arena, problem, &state->links, &state->gather,
                                         problem->train ? &state->scatter : NULL, form->rematerialise);
    state->calibrate.some = form->weigh;
    if (form->weigh)
      state->weigh = hec_weigh_new(arena, &state->calibrate, &state->fssdp);
  }
  state->k = HEC_NEW(arena, int32_t, problem->n_layers);
  state->load = HEC_NEW(arena, uint64_t, rows);
  state->order = HEC_NEW(arena, int32_t, rows);
  state->last_place = HEC_NEW(arena, int32_t, rows);
  state->owner = HEC_NEW(arena, int32_t, rows);
  state->t_known = HEC_NEW(arena, bool, problem->n_layers);
  state->last = -1;
  for (size_t row = 0; row < rows; row++)
    state->order[row] = (int32_t)(row % (size_t)problem->n_experts);
  run->state = state;
  hec_policy_keep(run, &state->last, sizeof state->last);
  hec_policy_keep(run, &state->reshard_now, sizeof state->reshard_now);
  hec_policy_keep(run, state->order, rows * sizeof *state->order);
  hec_policy_keep(run, state->last_place, rows * sizeof *state->last_place);
  hec_policy_keep(run, state->k, (size_t)problem->n_layers * sizeof *state->k);
  hec_policy_keep(run, state->t_known, (size_t)problem->n_layers * sizeof *state->t_known);
  run->plan.rematerialise = form->rematerialise;
  set_even_shards(run);
  int32_t m = form->materialise ? hec_fssdp_memory_capacity(problem, form->rematerialise) : 0;
  for (int32_t l = 0; l < problem->n_layers; l++) {
    run->t[l] = 0;
    run->m[l] = m;
  }
}

static void reshard(hec_policy_run *run) {
  ((hecate_state *)run->state)->reshard_now = true;
}

static void read_history(hec_policy_run *run, hecate_state *state) {
  int32_t n_experts = run->plan.n_experts;
  for (int32_t l = 0; l < run->plan.n_layers; l++) {
    size_t row = (size_t)l * (size_t)n_experts;
    hec_history_sum(&run->history, l, run->policy->window, state->load + row);
    run->units += (uint64_t)n_experts + hec_fssdp_order(state->load + row, n_experts, state->order + row);
  }
}

/* True when the t hottest experts (in any order) and the next one are those for which t was found. */
static bool overlap_is_known(const hecate_state *state, size_t row, int32_t t, int32_t n_experts) {
  const int32_t *order = state->order + row, *place = state->last_place + row;
  for (int32_t i = 0; i < t; i++)
    if (place[order[i]] >= t)
      return false;
  return t == n_experts || place[order[t]] == t;
}

/* run->t of every layer. */
static void find_overlap(hec_policy_run *run, hecate_state *state) {
  int32_t n_experts = run->plan.n_experts;
  uint64_t steps = 0;
  for (int32_t l = 0; l < run->plan.n_layers; l++) {
    size_t row = (size_t)l * (size_t)n_experts;
    run->units += (uint64_t)run->t[l];
    if (state->t_known[l] && overlap_is_known(state, row, run->t[l], n_experts))
      continue;
    hec_overlap_case of = {state->order + row, run->plan.home + row, l, run->t[l]};
    run->t[l] = hec_fssdp_overlap_degree(&state->gather, &state->sum, &of, &steps);
    for (int32_t i = 0; i < n_experts; i++)
      state->last_place[row + (size_t)state->order[row + (size_t)i]] = i;
    state->t_known[l] = true;
  }
  run->units += steps * (uint64_t)(state->gather.n_stages * state->gather.links->n_padded) / 2;
}

static bool shards_are_due(hec_policy_run *run, hecate_state *state) {
  if (!state->form->shard)
    return false;
  bool forced = state->reshard_now;
  state->reshard_now = false;
  if (state->last < 0) { /* even shards hold for one period */
    state->last = run->iter;
    return forced;
  }
  return hec_policy_due(run, &state->last) || forced;
}

static void move_shards(hec_policy_run *run, hecate_state *state) {
  find_overlap(run, state);
  run->units +=
      hec_fssdp_shard(&state->fssdp, state->load, state->order, state->form->weigh ? state->k : run->t, state->owner);
  size_t rows = (size_t)run->plan.n_layers * (size_t)run->plan.n_experts;
  if (memcmp(state->owner, run->plan.home, rows * sizeof *state->owner) == 0)
    return;
  memcpy(run->plan.home, state->owner, rows * sizeof *state->owner);
  memcpy(run->plan.opt_home, state->owner, rows * sizeof *state->owner);
  memset(state->t_known, 0, (size_t)run->plan.n_layers * sizeof *state->t_known);
  run->plan.version++;
}

/* Algorithm 1 for one layer, with all t experts or with those that pay. */
static void materialise(hec_policy_run *run, hecate_state *state, int32_t layer) {
  size_t row = (size_t)layer * (size_t)run->plan.n_experts;
  const uint64_t *load = state->load + row;
  const int32_t *order = state->order + row;
  int32_t length = hec_history_length(&run->history);
  if (!state->form->weigh) {
    run->units += hec_fssdp_materialise(&state->fssdp, &run->plan, layer, load, order, run->t[layer], run->m[layer]);
    return;
  }
  hec_weigh_case of = {load, order, layer, length > 0 ? length : 1, run->t[layer], run->m[layer]};
  state->k[layer] = hec_weigh_layer(&state->weigh, &run->plan, &of, &run->units);
}

static void decide(hec_policy_run *run) {
  hecate_state *state = run->state;
  bool due = shards_are_due(run, state);
  if (!due && !state->form->materialise)
    return;
  run->planned = true;
  read_history(run, state);
  if (due)
    move_shards(run, state);
  find_overlap(run, state);
  for (int32_t l = 0; state->form->materialise && l < run->plan.n_layers; l++)
    materialise(run, state, l);
}

static void refine(hec_policy_run *run, int32_t layer, const hec_load *load) {
  hecate_state *state = run->state;
  if (run->policy->own[REFINE] == 0)
    return;
  run->planned = true;
  (void)hec_calibrate_layer(&state->calibrate, &run->plan, layer, load, run->m[layer], &run->units);
}

/* ---- Rows ---- */

#define OPTIONS                                                                                                        \
  HEC_POLICY_INT("t", t, 0, 1000000, .help = "hottest experts copied per layer before the gate", .word = "paper",      \
                 .word_value = HEC_T_PAPER, .initial = "what hides"),                                                  \
      HEC_POLICY_WINDOW()

#define OPTIONS_OF_COPIES                                                                                              \
  OPTIONS, HEC_POLICY_M(),                                                                                             \
      HEC_POLICY_WHOLE("refine", REFINE, 0, 1, .help = "copy more after the gate where it pays (0: never)",            \
                       .source = "the paper: an optional stage")

static const hec_option options[] = {OPTIONS_OF_COPIES, HEC_POLICY_PERIOD(), {0}},
                        options_nosharding[] = {OPTIONS_OF_COPIES, {0}},
                        options_nomaterialisation[] = {OPTIONS, HEC_POLICY_PERIOD(), {0}};

#define HECATE                                                                                                         \
  .source = "Hecate, arXiv 2502.02581", .schedule = "hecate", .dispatch = &hec_dispatch_local_first, .window = 5,      \
  .init = init, .decide = decide, .reshard = reshard

const hec_policy hec_policy_hecate = {
    HECATE,
    .name = "hecate",
    .fills = {.any = true},
    .tried = true,
    .summary = "FSSDP: homes follow the loads, and hot experts are copied before and after the gate. It copies only if "
               "the layer then ends sooner.",
    .known = HEC_KNOWN_LAST,
    .period = 100,
    .refine = refine,
    .options = options,
    .own = {[REFINE] = 1},
    .form = &(const hecate_form){.shard = true, .materialise = true, .weigh = true},
};

const hec_policy hec_policy_hecate_published = {
    HECATE,
    .name = "hecate-published",
    .fills = {.any = true},
    .summary = "FSSDP as in the paper: homes follow the loads. Before the gate it copies all that attention hides.",
    .known = HEC_KNOWN_LAST,
    .period = 100,
    .refine = refine,
    .options = options,
    .own = {[REFINE] = 1},
    .form = &(const hecate_form){.shard = true, .materialise = true},
};

const hec_policy hec_policy_hecate_rm = {
    HECATE,
    .name = "hecate-rm",
    .fills = {.any = true},
    .tried = true,
    .summary =
        "As hecate-published, with less memory. Copies are dropped after forward and gathered again in backward.",
    .known = HEC_KNOWN_LAST,
    .period = 100,
    .refine = refine,
    .options = options,
    .own = {[REFINE] = 1},
    .form = &(const hecate_form){.shard = true, .materialise = true, .rematerialise = true},
};

const hec_policy hec_policy_hecate_nosharding = {
    HECATE,
    .name = "hecate-nosharding",
    .fills = {.any = true},
    .summary = "As hecate-published, but homes never move. They stand as in ep.",
    .known = HEC_KNOWN_LAST,
    .refine = refine,
    .options = options_nosharding,
    .own = {[REFINE] = 1},
    .form = &(const hecate_form){.materialise = true},
};

const hec_policy hec_policy_hecate_nomaterialisation = {
    HECATE,
    .name = "hecate-nomaterialisation",
    .fills = {.any = true},
    .summary = "Homes follow the loads, as in hecate. There are no copies.",
    .known = HEC_KNOWN_PERIODIC,
    .whole = true,
    .period = 100,
    .options = options_nomaterialisation,
    .form = &(const hecate_form){.shard = true},
};
