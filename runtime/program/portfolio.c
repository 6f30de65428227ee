/* See the header. O(pairs) lowerings and walks when it looks for pairs, O(PORTFOLIO_KEPT) when it compares them. */
#include "runtime/program/portfolio.h"

#include "runtime/program/durations.h"
#include "runtime/program/lowering_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORTFOLIO_KEPT = 12, OF_A_POLICY = 2, RECORDS = 2 };
#define DEAD_ZONE 0.005  /* of an iteration: what gains less is not worth a change */
#define LATE 0.01        /* of an iteration: what takes so much longer than expected is compared again */
#define MEMORY 0.6       /* what a comparison counts in the next one's mean */
#define PAYS_WITHIN 0.25 /* of a period: what it must save as much as moving costs */
#define ROOM 0.99        /* of memory that a pair may take: other loads need more */

/* A pair, and what it was found to take. */
typedef struct {
  const hec_policy *policy;
  const hec_schedule *schedule;
  bool parts; /* its copies may travel in parts */
  bool fits;
  double s, weight; /* mean over the comparisons, newer ones counting more; 0: none yet */
} hec_pair;

typedef struct {
  hec_arena arena;
  hec_lowering *low;
  hec_pair pair;
} candidate;

struct hec_portfolio {
  candidate own[PORTFOLIO_KEPT + 1]; /* 0: its own planner; those without `low` are free */
  int32_t followed, next;
  hec_link_cost cost;
  hec_walk *walk;
  hec_durations *durations;
  hec_timeline timeline;
  double *peak; /* scratch [n_ranks] */
  hec_memory_scratch memory;
  hec_transfer_list moves;   /* scratch, of one layer */
  hec_load records[RECORDS]; /* the last micro-batch of each iteration */
  int64_t iters[RECORDS], iter, last;
  int32_t n_seen, n_micro_batches;
  int32_t rest, gap; /* iterations until the next comparison; between the last two */
  double expected_s; /* of an iteration, when it was chosen */
  bool due, stopped;
};

static int32_t period_of(const hec_portfolio *p) {
  const hec_policy_run *run = &p->own[0].low->in->shared->run;
  return run->problem->period != HEC_AUTO ? run->problem->period : run->policy->period;
}

bool hec_portfolio_affordable(const hec_problem *problem) {
  return (int64_t)problem->n_layers * problem->n_ranks * problem->n_ranks <= HEC_PORTFOLIO_SIZE_MAX;
}

hec_portfolio *hec_portfolio_new(const hec_lowering *low) {
  const hec_problem *problem = low->problem;
  hec_arena *arena = low->in->arena;
  hec_portfolio *p = HEC_NEW(arena, hec_portfolio, 1);
  p->own[0].low = HEC_NEW(arena, hec_lowering, 1);
  *p->own[0].low = *low;
  p->own[0].pair =
      (hec_pair){.policy = low->in->shared->run.policy, .schedule = low->in->schedule, .parts = true, .fits = true};
  p->cost = hec_link_cost_new(problem->cluster, arena);
  p->walk = hec_walk_new(&p->cost, problem->n_ranks, arena);
  p->durations = hec_durations_new(problem, arena);
  p->peak = HEC_NEW(arena, double, problem->n_ranks);
  HEC_RESERVE(p->moves.data, p->moves.capacity, (size_t)problem->n_ranks * (size_t)problem->n_ranks);
  for (int i = 0; i < RECORDS; i++)
    p->records[i] = hec_load_new(arena, problem->n_layers, problem->n_ranks, problem->n_experts);
  return p;
}

/* All pairs but what is followed. */
static void drop_others(hec_portfolio *p) {
  for (int32_t i = 1; i <= PORTFOLIO_KEPT; i++)
    if (i != p->followed && i != p->next) {
      hec_lowering_free(p->own[i].low);
      hec_arena_free(&p->own[i].arena);
      p->own[i].low = NULL;
    }
}

void hec_portfolio_free(hec_lowering *low) {
  hec_portfolio *p = low->among;
  *low = *p->own[0].low;
  p->followed = p->next = 0;
  drop_others(p);
  hec_walk_free(p->walk);
  hec_timeline_free(&p->timeline);
  free(p->moves.data);
  hec_memory_scratch_free(&p->memory);
  hec_link_cost_free(&p->cost);
}

void hec_portfolio_stop(hec_lowering *low) {
  low->among->stopped = true;
}

/* ---- Prices ---- */

static bool fits(hec_portfolio *p, const hec_problem *problem, const hec_program *program) {
  hec_program_memory_peak_with(program, &p->memory, p->peak, NULL);
  for (int32_t r = 0; r < problem->n_ranks; r++)
    if (p->peak[r] > ROOM * problem->cluster->devices[r].memory_bytes)
      return false;
  return true;
}

/* What the iteration takes that was lowered last, without what moves once. */
static double price(hec_portfolio *p, const hec_program *program) {
  hec_durations_begin(p->durations);
  hec_walk_run(p->walk, program,
               (hec_walk_options){.own = hec_durations_own, .context = &p->durations, .without_one_off = true},
               &p->timeline);
  return (double)hec_timeline_end_ps(&p->timeline) * 1e-12;
}

static void add_price(hec_portfolio *p, const hec_lowering *low, hec_pair *pair) {
  double weight = MEMORY * pair->weight;
  pair->s = (weight * pair->s + price(p, &low->in->program)) / (weight + 1);
  pair->fits = (pair->weight == 0 || pair->fits) && fits(p, low->problem, &low->in->program);
  pair->weight = weight + 1;
}

static bool is_better(const hec_pair *a, const hec_pair *b) {
  return a->fits != b->fits ? a->fits : a->s < b->s;
}

/* ---- Looking for pairs ---- */

/* Those tried that the policy's paper does not exclude, and `own` last; how many. */
static int32_t schedules_of(const hec_policy *policy, const hec_schedule *own, const hec_problem *problem,
                            const hec_schedule *out[HEC_SCHEDULES_MAX + 1]) {
  const hec_schedule *all[HEC_SCHEDULES_MAX];
  int32_t n_all = hec_schedules_of(policy, problem, all), n = 0;
  for (int32_t i = 0; i < n_all; i++)
    if (all[i]->tried)
      out[n++] = all[i];
  out[n++] = own;
  return n;
}

/* The row, whose copies may travel in parts if it says so or `parts` does. */
static const hec_policy *with_parts(const hec_policy *policy, bool parts, hec_arena *arena) {
  hec_policy *own = HEC_NEW(arena, hec_policy, 1);
  *own = *policy;
  own->relays = policy->relays || parts;
  return own;
}

/* Inserts into the sorted list of `n`, of a policy its OF_A_POLICY fastest; the new number. */
static int32_t insert(hec_pair *list, int32_t n, int32_t max, const hec_pair *pair) {
  int32_t at = n, others = 0, last = -1;
  for (int32_t i = 0; i < n; i++)
    if (list[i].policy == pair->policy) {
      others++;
      last = i;
    }
  if (others == OF_A_POLICY) {
    if (!is_better(pair, &list[last]))
      return n;
    memmove(list + last, list + last + 1, (size_t)(n - 1 - last) * sizeof *list);
    at = --n;
  }
  while (at > 0 && is_better(pair, &list[at - 1]))
    at--;
  if (at == max)
    return n;
  n = n < max ? n + 1 : n;
  memmove(list + at + 1, list + at, (size_t)(n - 1 - at) * sizeof *list);
  list[at] = *pair;
  return n;
}

/* Lowers what was kept, and prices all of it but the first iteration, before which nothing is known. */
static void replay(hec_portfolio *p, hec_lowering **lows, hec_pair *pairs, int32_t n) {
  for (int i = 0; i < RECORDS; i++) {
    int32_t k = (p->n_seen + i) % RECORDS; /* oldest first */
    hec_lower_iterations(lows, n, p->iters[k], &p->records[k], 1, p->n_micro_batches);
    for (int32_t s = 0; i > 0 && s < n; s++)
      add_price(p, lows[s], &pairs[s]);
  }
}

/* A lowering of the policy for itself. */
static hec_lowering *lower_alone(const hec_portfolio *p, const hec_pair *pair, hec_arena *arena) {
  const hec_lowering *own = p->own[0].low;
  const hec_policy *policy = with_parts(pair->policy, pair->parts, arena);
  return hec_lowering_new(own->problem, policy, pair->schedule, own->in->collective, arena);
}

/* The policy under all its schedules. Parts rest on other ranks on their way: where some do not fit in memory so, all
 * are tried without parts, too. */
static int32_t try_policy(hec_portfolio *p, const hec_policy *policy, bool parts, hec_pair *list, int32_t n_list) {
  const hec_lowering *own = p->own[0].low;
  const hec_schedule *schedules[HEC_SCHEDULES_MAX + 1];
  hec_lowering *lows[HEC_SCHEDULES_MAX + 1];
  hec_pair pairs[HEC_SCHEDULES_MAX + 1];
  int32_t n = schedules_of(policy, own->in->schedule, own->problem, schedules);
  hec_arena arena = {0};
  int32_t max = own->in->shared->run.policy->portfolio;
  bool fit = true;
  HEC_ASSERT(max <= PORTFOLIO_KEPT);
  for (int32_t s = 0; s < n; s++) {
    pairs[s] = (hec_pair){.policy = policy, .schedule = schedules[s], .parts = parts};
    lows[s] = s > 0 ? hec_lowering_beside(lows[0], schedules[s]) : lower_alone(p, &pairs[0], &arena);
  }
  replay(p, lows, pairs, n);
  for (int32_t s = 0; s < n; s++) {
    n_list = insert(list, n_list, max, &pairs[s]);
    fit = fit && pairs[s].fits;
  }
  for (int32_t s = n - 1; s >= 0; s--)
    hec_lowering_free(lows[s]);
  hec_arena_free(&arena);
  return fit || !parts || policy->relays ? n_list : try_policy(p, policy, false, list, n_list);
}

static void keep(hec_portfolio *p, const hec_pair *pair) {
  const hec_lowering *own = p->own[0].low;
  candidate *c = NULL;
  for (int32_t i = PORTFOLIO_KEPT; i >= 1; i--) {
    const hec_pair *other = &p->own[i].pair;
    if (!p->own[i].low)
      c = &p->own[i];
    else if (other->policy == pair->policy && other->schedule == pair->schedule && other->parts == pair->parts)
      return;
  }
  if (!c)
    return;
  *c = (candidate){.pair = {.policy = pair->policy, .schedule = pair->schedule, .parts = pair->parts}};
  c->low = lower_alone(p, &c->pair, &c->arena);
  c->low->in->own_note = hec_arena_printf(&c->arena, "as %s under %s", pair->policy->name, pair->schedule->name);
  c->low->in->gated = own->in->gated;
  replay(p, &c->low, &c->pair, 1);
}

static void look_for_pairs(hec_portfolio *p) {
  const hec_problem *problem = p->own[0].low->problem;
  hec_pair list[PORTFOLIO_KEPT + 1];
  int32_t n = 0;
  for (int32_t i = 0; hec_policies[i]; i++)
    if (hec_policies[i]->tried && hec_policy_suits(hec_policies[i], problem) == HEC_OK)
      n = try_policy(p, hec_policies[i], true, list, n);
  for (int32_t i = 0; i < n; i++)
    keep(p, &list[i]);
}

/* ---- Following ---- */

/* Seconds to bring about the other's homes and residents. */
static double moving_s(hec_portfolio *p, hec_lowering *from, const hec_lowering *to) {
  const hec_plan *before = &from->in->shared->run.plan, *after = &to->in->shared->run.plan;
  hec_transfer_list *list = &p->moves;
  double s = 0;
  for (int32_t l = 0; l < from->problem->n_layers; l++) {
    list->n = 0;
    hec_plan_migration(before, after, from->problem, l, from->in->pair_bytes, list);
    s += list->n > 0 ? hec_link_cost_exchange(&p->cost, list->data, (int32_t)list->n, false, 1) : 0;
  }
  return s;
}

static void choose(hec_portfolio *p) {
  hec_pair *now = &p->own[p->followed].pair;
  int32_t best = p->followed;
  for (int32_t i = 0; i <= PORTFOLIO_KEPT; i++)
    best = !p->own[i].low ? best : is_better(&p->own[i].pair, &p->own[best].pair) ? i : best;
  double gain_s = now->s - p->own[best].pair.s;
  if (best == p->followed)
    return;
  bool pays = gain_s > DEAD_ZONE * now->s &&
              gain_s * PAYS_WITHIN * period_of(p) > moving_s(p, p->own[p->followed].low, p->own[best].low);
  if (pays || now->fits != p->own[best].pair.fits)
    p->next = best;
}

/* The lowering becomes the other's, with homes and residents where they are. */
static void follow(hec_lowering *low, int32_t next) {
  hec_portfolio *p = low->among;
  hec_lowering *from = p->own[p->followed].low, *to = p->own[next].low;
  to->in->detail = to->in->each.per_item = from->in->detail;
  from->in->detail = from->in->each.per_item = false;
  hec_plan_assign(&to->in->before, &from->in->shared->run.plan);
  to->in->before.version = UINT64_MAX; /* something may have to move */
  *low = *to;
  low->among = p;
  p->followed = next;
}

void hec_portfolio_begin(hec_lowering *low, int64_t iter, int32_t n_micro_batches) {
  hec_portfolio *p = low->among;
  if (p->stopped)
    return;
  if (p->next != p->followed)
    follow(low, p->next);
  p->iter = iter;
  p->n_micro_batches = n_micro_batches;
  p->due = p->n_seen >= RECORDS && (p->rest == 0 || iter - p->last >= period_of(p));
}

void hec_portfolio_observe(hec_lowering *low, const hec_load *load) {
  hec_portfolio *p = low->among;
  if (p->stopped)
    return;
  p->iters[p->n_seen % RECORDS] = p->iter;
  hec_load_copy(load, &p->records[p->n_seen % RECORDS]);
  for (int32_t i = 0; !p->due && i <= PORTFOLIO_KEPT; i++)
    if (i != p->followed && p->own[i].low)
      hec_policy_observe(&p->own[i].low->in->shared->run, load);
}

/* Of what is followed alone: where it takes longer than expected, all are compared after the next iteration. */
static void watch(hec_portfolio *p) {
  if (p->n_seen < RECORDS)
    return;
  const hec_lowering *low = p->own[p->followed].low;
  bool late = price(p, &low->in->program) > (1 + LATE) * p->expected_s || !fits(p, low->problem, &low->in->program);
  p->rest = late ? 0 : p->rest - 1;
}

/* All on the iteration that has just been. */
static void compare(hec_portfolio *p, int32_t newest) {
  for (int32_t i = 0; i <= PORTFOLIO_KEPT; i++) {
    hec_lowering *low = p->own[i].low;
    if (!low)
      continue;
    if (i != p->followed)
      hec_lower_iterations(&low, 1, p->iter, &p->records[newest], 1, p->n_micro_batches);
    add_price(p, low, &p->own[i].pair);
  }
}

/* After RECORDS iterations, and 4, 16, 64 .. */
static bool looks_after(int32_t n) {
  int32_t power = 4;
  while (power < n && power <= INT32_MAX / 4)
    power *= 4;
  return n == RECORDS || n == power;
}

void hec_portfolio_end(hec_lowering *low) {
  hec_portfolio *p = low->among;
  if (p->stopped)
    return;
  int32_t newest = p->n_seen % RECORDS;
  p->n_seen++;
  bool looks = looks_after(p->n_seen);
  if (p->due)
    compare(p, newest);
  else if (looks)
    add_price(p, p->own[p->followed].low, &p->own[p->followed].pair);
  if (looks) {
    drop_others(p);
    look_for_pairs(p);
  } else if (!p->due) {
    watch(p);
    return;
  }
  choose(p);
  p->last = p->iter;
  p->gap = looks || p->n_seen <= RECORDS + 1 ? 0 : 2 * p->gap + 1;
  p->rest = p->gap;
  p->expected_s = p->own[p->next].pair.s;
}
