/* CRAFT (arXiv 2603.28768): a budget of replicas is given to the layers that gain most by them, where EPLB gives every layer
 * the same.
 *
 *   value of a layer with n replicas = mean / fullest rank ("balancedness"), placed as EPLB places them
 *   n of each layer: the most value in sum with at most the budget's replicas in all layers (a knapsack, exactly)
 *
 * The abstract and reports of it say: layer-wise estimates of the benefit, a memory budget, a variant of the knapsack
 * problem. And Kimi-K2 on 64 GPUs gains little beyond 16 replicas a layer. What is ours, since the text at hand does
 * not say. n goes in steps of a quarter of the ranks, up to `max` a rank. The default budget is 1/4 replica a rank and
 * layer, 16 of 64. Placement is EPLB's without groups, on ranks with ceil((E + n) / R) slots each. Period and window
 * are EPLB's; the paper plans from a profile offline (--period 1000000000). Loads are split evenly over an expert's
 * slots. Ties to fewer replicas. O(layers (choices (n E + E R) + budget choices)). */
#include "runtime/plan/planners/order.h"
#include "runtime/plan/planners/slots.h"
#include "runtime/plan/problem.h"

#include <string.h>

enum { REDUNDANT, MAX };

typedef struct {
  int64_t last;
  int32_t step, n_choices; /* replicas between choices; choices of a layer: 0, step, 2 step ... */
  int32_t budget;          /* steps in all layers */
  int32_t slots_max;       /* of a rank */
  hec_slots slots;
  uint64_t *load;     /* [n_experts] */
  int32_t *count;     /* [n_experts] */
  int32_t *item;      /* [n_ranks * slots_max] expert of each replica */
  double *weight;     /* the same */
  int32_t *order;     /* the same */
  int32_t *slot;      /* the same */
  double *rank_load;  /* [n_ranks] */
  int32_t *used;      /* [n_ranks] */
  double *value;      /* [n_layers * n_choices] */
  double *best, *was; /* [budget + 1] most value of the layers so far */
  int32_t *choice; /* [n_layers * (budget + 1)] of the layer, where that many steps are left for it and those before */
} craft;

static void init(hec_policy_run *run) {
  const hec_problem *p = run->problem;
  const double *own = run->policy->own;
  hec_arena *arena = run->arena;
  int32_t step = p->n_ranks >= 4 ? p->n_ranks / 4 : 1, share = hec_problem_share(p);
  int32_t max = hec_problem_slots(p, share + (int32_t)own[MAX]) - share; /* no rank holds more than all experts */
  int32_t n_choices = max * p->n_ranks / step + 1;
  double budget = own[REDUNDANT] * p->n_ranks * p->n_layers / step, all = (double)(n_choices - 1) * p->n_layers;
  craft *c = HEC_NEW(arena, craft, 1);
  *c = (craft){.last = -1,
               .step = step,
               .n_choices = n_choices,
               .budget = (int32_t)(budget < all ? budget : all),
               .slots_max = (p->n_experts + max * p->n_ranks + p->n_ranks - 1) / p->n_ranks};
  int32_t n_slots = c->slots_max * p->n_ranks;
  c->slots = hec_slots_new(arena, p->n_experts, p->n_ranks, c->slots_max);
  c->load = HEC_NEW(arena, uint64_t, p->n_experts);
  c->count = HEC_NEW(arena, int32_t, p->n_experts);
  c->item = HEC_NEW(arena, int32_t, n_slots);
  c->weight = HEC_NEW(arena, double, n_slots);
  c->order = HEC_NEW(arena, int32_t, n_slots);
  c->slot = HEC_NEW(arena, int32_t, n_slots);
  c->rank_load = HEC_NEW(arena, double, p->n_ranks);
  c->used = HEC_NEW(arena, int32_t, p->n_ranks);
  c->value = HEC_NEW(arena, double, (size_t)p->n_layers *(size_t)n_choices);
  c->best = HEC_NEW(arena, double, c->budget + 1);
  c->was = HEC_NEW(arena, double, c->budget + 1);
  c->choice = HEC_NEW(arena, int32_t, (size_t)p->n_layers * (size_t)(c->budget + 1));
  run->state = c;
  hec_policy_keep(run, &c->last, sizeof c->last);
  hec_plan_set_contiguous(&run->plan, p);
}

/* item and weight of every expert's replicas. Returns how many. */
static int32_t replicate(craft *c, const hec_problem *p, int32_t n_replicas) {
  int32_t n = p->n_experts + n_replicas;
  for (int32_t e = 0; e < p->n_experts; e++) {
    c->item[e] = e;
    c->count[e] = 1;
  }
  for (int32_t i = p->n_experts; i < n; i++) {
    int32_t max = 0;
    for (int32_t e = 1; e < p->n_experts; e++)
      max = c->load[e] * (uint64_t)c->count[max] > c->load[max] * (uint64_t)c->count[e] ? e : max;
    c->item[i] = max;
    c->count[max]++;
  }
  for (int32_t i = 0; i < n; i++)
    c->weight[i] = (double)c->load[c->item[i]] / c->count[c->item[i]];
  return n;
}

/* c->slot with n_replicas replicas; returns mean / fullest rank. */
static double place(craft *c, const hec_problem *p, int32_t n_replicas, uint64_t *units) {
  int32_t n = replicate(c, p, n_replicas), room = (n + p->n_ranks - 1) / p->n_ranks;
  double all = 0, max = 0;
  for (int32_t i = 0; i < c->slots_max * p->n_ranks; i++)
    c->slot[i] = -1;
  for (int32_t r = 0; r < p->n_ranks; r++)
    c->rank_load[r] = c->used[r] = 0;
  hec_order_descending(c->weight, n, c->order);
  for (int32_t k = 0; k < n; k++) {
    int32_t i = c->order[k], best = -1;
    for (int32_t r = 0; r < p->n_ranks; r++)
      if (c->used[r] < room && (best < 0 || c->rank_load[r] < c->rank_load[best]))
        best = r;
    c->slot[best * c->slots_max + c->used[best]++] = c->item[i];
    c->rank_load[best] += c->weight[i];
    max = c->rank_load[best] > max ? c->rank_load[best] : max;
    all += c->weight[i];
  }
  *units += (uint64_t)n_replicas * (uint64_t)p->n_experts + (uint64_t)n * (uint64_t)p->n_ranks;
  return max > 0 ? all / p->n_ranks / max : 1;
}

/* The knapsack: best[b] is the most value that layers 0 .. layer have with at most b steps. */
static void share_out(craft *c, int32_t n_layers) {
  int32_t width = c->budget + 1;
  memset(c->best, 0, (size_t)width * sizeof *c->best);
  for (int32_t layer = 0; layer < n_layers; layer++) {
    const double *value = c->value + (size_t)layer * (size_t)c->n_choices;
    memcpy(c->was, c->best, (size_t)width * sizeof *c->best);
    for (int32_t b = 0; b < width; b++) {
      int32_t chosen = 0;
      for (int32_t j = 1; j < c->n_choices && j <= b; j++)
        chosen = c->was[b - j] + value[j] > c->was[b - chosen] + value[chosen] ? j : chosen;
      c->best[b] = c->was[b - chosen] + value[chosen];
      c->choice[(size_t)layer * (size_t)width + (size_t)b] = chosen;
    }
  }
}

static void decide(hec_policy_run *run) {
  craft *c = run->state;
  const hec_problem *p = run->problem;
  if (!hec_policy_due(run, &c->last))
    return;
  run->planned = true;
  for (int32_t layer = 0; layer < p->n_layers; layer++) {
    hec_history_sum(&run->history, layer, run->policy->window, c->load);
    for (int32_t j = 0; j < c->n_choices; j++)
      c->value[layer * c->n_choices + j] = place(c, p, j * c->step, &run->units);
  }
  share_out(c, p->n_layers);
  run->units += (uint64_t)p->n_layers * (uint64_t)(c->budget + 1) * (uint64_t)c->n_choices;
  uint64_t before = hec_plan_digest(&run->plan);
  for (int32_t layer = p->n_layers - 1, left = c->budget; layer >= 0; layer--) {
    int32_t j = c->choice[(size_t)layer * (size_t)(c->budget + 1) + (size_t)left];
    hec_history_sum(&run->history, layer, run->policy->window, c->load);
    (void)place(c, p, j * c->step, &run->units);
    hec_slots_write(&c->slots, &run->plan, layer, c->slot, c->slots_max);
    left -= j;
  }
  run->plan.version += hec_plan_digest(&run->plan) != before;
}

static const hec_option options[] = {HEC_POLICY_PERIOD(.source = "as eplb"),
                                     HEC_POLICY_WINDOW(.source = "as eplb"),
                                     HEC_POLICY_REAL("redundant", REDUNDANT, 0, 65536,
                                                     .help = "replicas of a rank and layer, on average over layers",
                                                     .source = "16 of 64 GPUs, beyond which Kimi-K2 gains little"),
                                     HEC_POLICY_WHOLE("max", MAX, 0, 65536, .help = "replicas of a rank in one layer",
                                                      .source = "this project; EPLB's 1"),
                                     {0}};

const hec_policy hec_policy_craft = {
    .name = "craft",
    .fills = {.shares = 1, .more = 1},
    .tried = true,
    .summary = "A budget of copies goes to the layers that gain most by them. Other layers get none.",
    .source = "CRAFT, arXiv 2603.28768",
    .known = HEC_KNOWN_PERIODIC,
    .schedule = "serial",
    .dispatch = &hec_dispatch_round_robin,
    .all_ranks = true,
    .window = 10,
    .period = 100,
    .rearranges = true,
    .init = init,
    .decide = decide,
    .options = options,
    .own = {[REDUNDANT] = 0.25, [MAX] = 1},
};
