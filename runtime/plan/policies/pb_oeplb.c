/* PB-OEPLB (github.com/sjqsjq/EPLB, OEPLB/src): experts change places pair by pair, only where a layer is out of balance; no
 * replicas. Written for prefill in serving; here a moved expert takes its optimizer state along in training.
 *
 *   load[e] = decay * load[e] + the records since the last decision;
 *   ratio of a layer = load of its fullest rank / mean;
 *   at most `swaps` times, the layer with the largest ratio, if that is at least `threshold` (the dead
 *     zone ends there). Its fullest rank's hottest expert changes places with its emptiest rank's coldest, both not
 *     swapped before in this decision. If the ratio does not fall by more than 0.001, that is undone and the layer is done
 *   fewer than `min` swaps in all layers: none
 *
 *   reset    the mean ratio of all layers was within 0.015 of the least it has been, and now is more than 0.03 above: the
 *            domain has changed, past loads are forgotten, and the decision waits for the next window
 *   window   between decisions: halved, down to the period, where the mean ratio has changed by more than 0.03; doubled, up to
 *            `longest`, after three decisions where it has not
 *
 * Ties to the lower layer, rank and expert. Constants, period 8, decay 0.5 and threshold 1.02 are the code's defaults.
 * It measured that time is flat up to 1.03 (4 GPUs) or 1.10 (8 GPUs), so a larger threshold may serve. What is ours:
 * their minimum of 8 swaps is of the 94 layers of Qwen3-235B, 1 here. The decision after a reset cannot reset again;
 * their flag for that has no effect. A window has at most the last 8 records of those between two decisions.
 * Corrections of the ratio for small samples are left out; they are off by default there. O(layers E) a decision and
 * O(layers + E) a swap. */
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"

#include <stddef.h>

enum { THRESHOLD, SWAPS, MIN, DECAY, LONGEST };
enum { STEADY = 3 };
static const double jump = 0.03, settled = 0.015, gain_min = 0.001;

typedef struct {
  int32_t expert[2]; /* of the fullest rank, of the emptiest */
  int32_t layer;
} swap;

typedef struct {
  int64_t last, n_seen;   /* iteration of the last decision; records counted */
  int32_t period, steady; /* in force; decisions without a change since the last */
  double best, previous;  /* mean ratios: the least, the last; < 0: none */
  double *load;           /* [n_layers * n_experts] */
  double *ratio;          /* [n_layers]; < 0: done */
  int32_t *rank;          /* [n_layers * n_experts] */
  bool *swapped;          /* [n_layers * n_experts] */
  double *rank_load;      /* [ep] of the layer at work */
  swap *swaps;            /* [n_layers * n_experts / 2] */
  uint64_t *sum;          /* [n_experts] */
} pb_oeplb;

static void init(hec_policy_run *run) {
  const hec_problem *p = run->problem;
  size_t rows = (size_t)p->n_layers * (size_t)p->n_experts;
  pb_oeplb *state = HEC_NEW(run->arena, pb_oeplb, 1);
  *state = (pb_oeplb){
      .last = -1,
      .period = hec_policy_period(run),
      .best = -1,
      .previous = -1,
      .load = HEC_NEW(run->arena, double, rows),
      .ratio = HEC_NEW(run->arena, double, p->n_layers),
      .rank = HEC_NEW(run->arena, int32_t, rows),
      .swapped = HEC_NEW(run->arena, bool, rows),
      .rank_load = HEC_NEW(run->arena, double, p->ep),
      .swaps = HEC_NEW(run->arena, swap, rows / 2 + 1),
      .sum = HEC_NEW(run->arena, uint64_t, p->n_experts),
  };
  run->state = state;
  hec_policy_keep(run, state, offsetof(pb_oeplb, load));
  hec_policy_keep(run, state->load, rows * sizeof *state->load);
  hec_plan_set_contiguous(&run->plan, p);
}

static void scale(pb_oeplb *state, const hec_problem *p, double factor) {
  for (size_t i = 0; i < (size_t)p->n_layers * (size_t)p->n_experts; i++)
    state->load[i] *= factor;
}

/* Adds what came since the last decision. */
static void count(hec_policy_run *run, pb_oeplb *state) {
  int64_t n = run->history.n_seen - state->n_seen;
  const hec_problem *p = run->problem;
  for (int32_t layer = 0; layer < p->n_layers; layer++) {
    hec_history_sum(&run->history, layer, n < run->policy->window ? (int32_t)n : run->policy->window, state->sum);
    for (int32_t e = 0; e < p->n_experts; e++)
      state->load[(size_t)layer * (size_t)p->n_experts + (size_t)e] += (double)state->sum[e];
  }
  state->n_seen = run->history.n_seen;
}

/* rank_load of the layer, and fullest over mean; 1 without load. */
static double measure(pb_oeplb *state, const hec_problem *p, int32_t layer) {
  const double *load = state->load + (size_t)layer * (size_t)p->n_experts;
  const int32_t *rank = state->rank + (size_t)layer * (size_t)p->n_experts;
  double all = 0, max = 0;
  for (int32_t r = 0; r < p->ep; r++)
    state->rank_load[r] = 0;
  for (int32_t e = 0; e < p->n_experts; e++) {
    state->rank_load[rank[e]] += load[e];
    all += load[e];
  }
  for (int32_t r = 0; r < p->ep; r++)
    max = state->rank_load[r] > max ? state->rank_load[r] : max;
  return all > 0 ? max * p->ep / all : 1;
}

/* The rank's hottest or coldest expert that was not swapped; -1: none. */
static int32_t pick(const pb_oeplb *state, const hec_problem *p, int32_t layer, int32_t rank, bool hottest) {
  size_t row = (size_t)layer * (size_t)p->n_experts;
  int32_t best = -1;
  for (int32_t e = 0; e < p->n_experts; e++) {
    if (state->rank[row + (size_t)e] != rank || state->swapped[row + (size_t)e])
      continue;
    double gain = best < 0 ? 1 : state->load[row + (size_t)e] - state->load[row + (size_t)best];
    if (best < 0 || (hottest ? gain > 0 : gain < 0))
      best = e;
  }
  return best;
}

static void exchange(pb_oeplb *state, const hec_problem *p, swap s) {
  int32_t *rank = state->rank + (size_t)s.layer * (size_t)p->n_experts, first = rank[s.expert[0]];
  bool *swapped = state->swapped + (size_t)s.layer * (size_t)p->n_experts;
  rank[s.expert[0]] = rank[s.expert[1]];
  rank[s.expert[1]] = first;
  for (int k = 0; k < 2; k++)
    swapped[s.expert[k]] = !swapped[s.expert[k]];
}

/* Tries one swap in the layer; false: it is done. */
static bool improve(pb_oeplb *state, const hec_problem *p, int32_t layer, swap *s) {
  double before = measure(state, p, layer);
  int32_t full = 0, empty = 0;
  for (int32_t r = 1; r < p->ep; r++) {
    full = state->rank_load[r] > state->rank_load[full] ? r : full;
    empty = state->rank_load[r] < state->rank_load[empty] ? r : empty;
  }
  *s = (swap){{pick(state, p, layer, full, true), pick(state, p, layer, empty, false)}, layer};
  if (full == empty || s->expert[0] < 0 || s->expert[1] < 0)
    return false;
  exchange(state, p, *s);
  state->ratio[layer] = measure(state, p, layer);
  if (state->ratio[layer] < before - gain_min)
    return true;
  exchange(state, p, *s);
  return false;
}

/* Returns how many swaps are in state->swaps. */
static int32_t find_swaps(hec_policy_run *run, pb_oeplb *state) {
  const hec_problem *p = run->problem;
  const double *own = run->policy->own;
  int32_t n = 0;
  while (n < (int32_t)own[SWAPS]) {
    int32_t worst = 0;
    for (int32_t layer = 1; layer < p->n_layers; layer++)
      worst = state->ratio[layer] > state->ratio[worst] ? layer : worst;
    run->units += (uint64_t)(p->n_layers + 4 * p->n_experts);
    if (state->ratio[worst] < own[THRESHOLD])
      break;
    if (improve(state, p, worst, &state->swaps[n]))
      n++;
    else
      state->ratio[worst] = -1;
  }
  return n >= (int32_t)own[MIN] ? n : 0;
}

/* The mean ratio of the layers as they stand. */
static double begin(hec_policy_run *run, pb_oeplb *state) {
  const hec_problem *p = run->problem;
  double sum = 0;
  for (int32_t layer = 0; layer < p->n_layers; layer++) {
    for (int32_t e = 0; e < p->n_experts; e++) {
      size_t at = (size_t)layer * (size_t)p->n_experts + (size_t)e;
      state->rank[at] = hec_plan_home(&run->plan, layer, e);
      state->swapped[at] = false;
    }
    state->ratio[layer] = measure(state, p, layer);
    sum += state->ratio[layer];
  }
  run->units += 2 * (uint64_t)p->n_layers * (uint64_t)p->n_experts;
  return sum / p->n_layers;
}

/* Whether the load's domain has changed: then everything before is forgotten. */
static bool reset(pb_oeplb *state, const hec_problem *p, double mean) {
  double previous = state->previous;
  state->previous = mean;
  if (previous < 0)
    return false;
  state->best = state->best < 0 || previous < state->best ? previous : state->best;
  if (mean <= state->best + jump || previous >= state->best + settled)
    return false;
  scale(state, p, 0);
  state->best = state->previous = -1;
  return true;
}

static void adapt(hec_policy_run *run, pb_oeplb *state, double mean) {
  double change = state->previous < 0 ? 0 : mean - state->previous;
  int32_t min = hec_policy_period(run), longest = (int32_t)run->policy->own[LONGEST];
  state->steady = change > jump || change < -jump ? 0 : state->steady + 1;
  if (state->steady == 0)
    state->period = state->period / 2 > min ? state->period / 2 : min;
  if (state->steady < STEADY)
    return;
  state->steady = 0;
  if (state->period <= longest / 2)
    state->period *= 2;
}

static bool due(const hec_policy_run *run, pb_oeplb *state) {
  if (state->period <= 0 || run->micro_batch != 0 || run->history.n_seen == state->n_seen)
    return false;
  if (state->last >= 0 && run->iter - state->last < state->period)
    return false;
  state->last = run->iter;
  return true;
}

static void decide(hec_policy_run *run) {
  pb_oeplb *state = run->state;
  const hec_problem *p = run->problem;
  if (!due(run, state))
    return;
  run->planned = true;
  count(run, state);
  double mean = begin(run, state);
  adapt(run, state, mean);
  if (reset(state, p, mean))
    return;
  int32_t n = find_swaps(run, state);
  for (int32_t i = 0; i < n; i++)
    for (int k = 0; k < 2; k++) {
      int32_t e = state->swaps[i].expert[k], layer = state->swaps[i].layer;
      hec_plan_set_home(&run->plan, layer, e, state->rank[(size_t)layer * (size_t)p->n_experts + (size_t)e]);
    }
  run->plan.version += n > 0;
  scale(state, p, run->policy->own[DECAY]);
}

static const hec_option options[] = {
    HEC_POLICY_PERIOD(.source = "sync_window of its code, in forward passes"),
    HEC_POLICY_REAL("threshold", THRESHOLD, 1, 1000, .help = "fullest rank over mean below which nothing moves",
                    .source = "its code; its dead zone is 1.03 to 1.10"),
    HEC_POLICY_WHOLE("swaps", SWAPS, 0, 1e6, .help = "of a decision at most, in all layers", .source = "its code"),
    HEC_POLICY_WHOLE("min", MIN, 0, 1e6, .help = "swaps of a decision that are worth it",
                     .source = "this project; its code 8, of 94 layers"),
    HEC_POLICY_REAL("decay", DECAY, 0, 1, .help = "what past loads count in the next decision", .source = "its code"),
    HEC_POLICY_WHOLE("longest", LONGEST, 1, 1e9, .help = "iterations between decisions while nothing changes",
                     .source = "its report on adaptive windows"),
    {0}};

const hec_policy hec_policy_pb_oeplb = {
    .name = "pb-oeplb",
    .fills = {.shares = 1},
    .summary = "Pairs of experts change places where a layer is out of balance. Small imbalance is left alone.",
    .source = "PB-OEPLB, github.com/sjqsjq/EPLB",
    .known = HEC_KNOWN_PERIODIC,
    .schedule = "serial",
    .dispatch = &hec_dispatch_group,
    .whole = true,
    .window = 8,
    .period = 8,
    .init = init,
    .decide = decide,
    .rearranges = true,
    .options = options,
    .own = {[THRESHOLD] = 1.02, [SWAPS] = 300, [MIN] = 1, [DECAY] = 0.5, [LONGEST] = 128},
};
