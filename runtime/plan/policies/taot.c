/* TAOT, topology-aware clones (LoongForge ECHO, github.com/baidu-baige/LoongForge issue 28; arXiv 2608.03676; reference
 * policies.md 4.9). After the gate, tokens of overloaded ranks go to clones of their experts on ranks with room, inside
 * the node where that is as good.
 *
 *   cap = ceil(mean);  give[r] = max(0, load[r] - cap),  take[r] = max(0, cap - load[r])
 *   hint     Sinkhorn's flow from give to take, 1 inside a node and 3 across (flow_hint.c)
 *   clones   B rounds. In each every rank with room, the most room first, picks an expert of an overloaded rank. It has
 *            the largest (tokens that can move, same node, hint), ties to the lower number. Tokens that can move are
 *            the min of the expert's, its rank's give and the taker's take. They are taken off at once.
 *   tokens   a clone computes its own rank's tokens first, then its node's, then any, in whole tokens
 *
 * So every taker ends at cap at most, every giver at cap at least, and no rank above what it had or cap.
 *
 * Inferred: the order in which conflicts are arbitrated (the system's takers pick at once). Inferred too: tokens are
 * the optimum of what its auction with a fixed number of steps approximates. With distances own rank < node < anywhere,
 * filling the nearest first gives the min weighted traffic (an ultrametric: exchange any two). B = 2, the issue's
 * compromise (it saturates at 4), or what --slots leaves. Guests' buffers are shared by all layers: gathered again in
 * backward. The system gathers clones beside the home's products; schedules here gather before tokens are sent, so that
 * is charged as exposed.
 * O(50 R + B R E) and what spill.c says. */
#include "runtime/plan/planners/flow_hint.h"
#include "runtime/plan/planners/order.h"
#include "runtime/plan/planners/spill.h"
#include "runtime/plan/problem.h"

typedef struct {
  hec_flow_hint hint;
  int32_t *node; /* [ep] of the domain's ranks, from 0 */
} taot;

/* Where tokens may come from, and how good that is. */
typedef struct {
  int32_t expert;
  int64_t tokens;
  bool near;
  double hint;
} offer;

static bool better(const offer *a, const offer *b) {
  if (a->tokens != b->tokens)
    return a->tokens > b->tokens;
  if (a->near != b->near)
    return a->near;
  return a->hint > b->hint;
}

static int64_t min(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* The best expert for a rank with room; tokens 0: none. */
static offer best_offer(hec_spill *s, int32_t to) {
  const taot *own = s->own;
  offer best = {.expert = -1};
  for (int32_t from = 0; from < s->n_ranks; from++) {
    if (s->a[from] == 0)
      continue;
    int64_t max = min(s->a[from], s->b[to]);
    offer o = {.near = own->node[from] == own->node[to], .hint = hec_flow_hint_of(&own->hint, from, to)};
    for (int32_t e = s->home_at[from]; e < s->home_at[from + 1]; e++) {
      o.expert = e;
      o.tokens = min(s->left[e], max);
      best = better(&o, &best) ? o : best;
    }
    s->units += (uint64_t)(s->home_at[from + 1] - s->home_at[from]);
  }
  return best;
}

static void list_nodes(hec_spill *s) {
  taot *own = s->own;
  int32_t first = hec_problem_node(s->problem, s->first);
  for (int32_t r = 0; r < s->n_ranks; r++)
    own->node[r] = hec_problem_node(s->problem, s->first + r) - first;
}

static void plan(hec_spill *s) {
  int64_t ranks = s->n_ranks, cap = ((int64_t)s->all + ranks - 1) / ranks, given = 0;
  for (int32_t r = 0; r < s->n_ranks; r++) {
    int64_t load = (int64_t)s->load[r];
    s->a[r] = load > cap ? load - cap : 0;
    s->b[r] = load < cap ? cap - load : 0;
    s->key[r] = (double)s->b[r];
    given += s->a[r];
  }
  if (given == 0)
    return;
  for (int32_t e = s->home_at[0]; e < s->home_at[ranks]; e++)
    s->left[e] = (int64_t)s->total[e];
  hec_order_descending(s->key, s->n_ranks, s->rank_order);
  list_nodes(s);
  taot *own = s->own;
  hec_flow_hint_make(&own->hint, s->a, s->b);
  s->units += 2 * (uint64_t)own->hint.steps * (uint64_t)ranks;
  for (int32_t round = 0; round < s->options.slots; round++)
    for (int32_t i = 0; i < s->n_ranks; i++) {
      int32_t to = s->rank_order[i];
      offer best = s->b[to] > 0 ? best_offer(s, to) : (offer){0};
      if (best.tokens == 0)
        continue;
      hec_spill_add(s, best.expert, to, (uint64_t)best.tokens);
      s->a[hec_spill_home(s, best.expert)] -= best.tokens;
      s->b[to] -= best.tokens;
      s->left[best.expert] -= best.tokens;
    }
}

enum { GUESTS, STEPS };

static const hec_option options[] = {
    HEC_SPILL_GUESTS(GUESTS, "LoongForge issue 28"),
    HEC_POLICY_WHOLE("steps", STEPS, 1, 10000, .help = "of Sinkhorn's scaling, for the hint"),
    {0}};

static void init(hec_policy_run *run) {
  hec_spill_init(run, plan, (hec_spill_options){.split = HEC_SPLIT_NEAREST, .slots = hec_spill_slots(run, GUESTS)});
  run->plan.rematerialise = true;
  taot *own = HEC_NEW(run->arena, taot, 1);
  own->node = HEC_NEW(run->arena, int32_t, run->problem->ep);
  own->hint = hec_flow_hint_new(run->arena, run->problem->ep, (int32_t)run->policy->own[STEPS]);
  own->hint.node = own->node;
  hec_spill *spill = run->state;
  spill->own = own;
}

const hec_policy hec_policy_taot = {
    HEC_SPILL_POLICY,
    .name = "taot",
    .fills = {.shares = 1, .more = 2},
    .tried = true,
    .summary = "After the gate, what full ranks have too much goes to clones. They stand inside the node where that is "
               "as good.",
    .source = "LoongForge TAOT, arXiv 2608.03676",
    .options = options,
    .own = {[GUESTS] = 2, [STEPS] = 50},
};
