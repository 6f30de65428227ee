/* See the header. O(pairs) lowerings and walks when it looks for pairs, O(PORTFOLIO_KEPT) when it compares them. */
#include "runtime/program/portfolio.h"

#include "runtime/plan/planners/fssdp.h"
#include "runtime/program/lowering_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORTFOLIO_KEPT = 12, OF_A_POLICY = 2 };
enum { RECORDS = 2, RECORDS_KEPT = 5 }; /* of a comparison; that those not followed may still learn from */
/* Units of planning to lower and price a transfer, or an operation of a rank: nanoseconds on one core of an EPYC, medians of
 * eight settings of tools/joint-grid. A look took 26 to 289, as a policy plans once for all schedules, a comparison 50 to 583. */
enum { LOOK_UNITS = 110, COMPARISON_UNITS = 215 };
#define DEAD_ZONE 0.005 /* of an iteration: what gains less is not worth a change */
#define LATE 0.01       /* of an iteration: what takes so much longer than expected is compared again */
#define FAILS 0.1 /* of an iteration: it counts before others were compared on the same loads, which may be at fault */
#define PAYS_WITHIN 0.5 /* of a period: what it must save as much as moving costs; later another may be followed */
#define DOUBT 0.5       /* of how far prices rose: about the error of a mean of so few */
#define LEARNT 0.15     /* likewise what it counts where the price of a row that learns has fallen */
#define MEMORY 0.45     /* what a comparison counts in the next one's mean */
#define ROOM 0.99       /* of memory that a pair may take whose peak depends on the loads: other ones need more */
#define SHARDS 0.05     /* of an iteration: what slices must gain on loads that are only expected */

/* A pair, and what it was found to take. */
typedef struct {
  const hec_policy *policy;
  const hec_schedule *schedule;
  bool parts; /* its copies may travel in parts */
  bool fits;
  int32_t n_peaks;
  double peak_min, peak_max; /* share of the fullest rank's memory, over n_peaks iterations */
  double s, weight;          /* mean of its prices, newer ones counting more; 0: none yet */
  double off;                /* how far prices were above it, likewise: those of rows that learn fall */
} hec_pair;

typedef struct {
  hec_arena arena;
  hec_lowering *low;
  hec_pair pair;
  int32_t n_seen; /* iterations that its policy knows of, or has missed for ever */
} candidate;

/* What prices a program. */
typedef struct {
  void *pricing; /* the problem's pricer's */
  double *peak;  /* scratch [n_ranks] */
  hec_memory_scratch memory;
} scales;

/* A comparison, or a look for pairs, that a host makes beside the iterations. Meanwhile it alone has what is not followed. */
typedef struct {
  bool running, looks;
  void *begun;    /* by the helper; NULL: the work is done when its time is over */
  int32_t n_seen; /* iterations before it */
  int32_t n_micro_batches;
  int64_t iter;              /* the last of them */
  double takes_s, now_s;     /* it; that last iteration, of what is followed */
  double back_s;             /* the first record after it, of what is followed */
  hec_load records[RECORDS]; /* the last iterations, oldest first */
  int64_t iters[RECORDS];
  scales scales;
} comparison;

struct hec_portfolio {
  candidate own[PORTFOLIO_KEPT + 1]; /* 0: its own planner; those without `low` are free */
  hec_policy varied;                 /* its own row with one part the other way */
  bool sliced; /* experts are in slices, from the start: its own planner, which has none, stands by */
  int32_t followed, next;
  hec_link_cost cost;
  scales scales;                  /* of what is followed */
  hec_transfer_list moves;        /* scratch, of one layer */
  hec_load records[RECORDS_KEPT]; /* the last micro-batch of each iteration, iteration i at i % RECORDS_KEPT */
  int64_t iters[RECORDS_KEPT], iter, last;
  int32_t n_seen, n_micro_batches;
  int32_t next_look; /* after so many iterations */
  int32_t rest, gap; /* iterations until the next comparison; between the last two */
  double expected_s; /* of an iteration, when it was chosen; 0: nothing was */
  comparison work;
  const hec_helper *helper; /* NULL: none */
  bool stopped;
};

static int32_t period_of(const hec_portfolio *p) {
  const hec_policy_run *run = &p->own[0].low->in->shared->run;
  return run->problem->period != HEC_AUTO ? run->problem->period : run->policy->period;
}

static bool is_large(const hec_problem *problem) {
  return hec_portfolio_size(problem) > HEC_PORTFOLIO_SIZE_MAX;
}

static bool is_tried(const hec_policy *policy, bool sliced, const hec_problem *problem) {
  return policy->tried && policy->sliced == sliced && (policy->known == HEC_KNOWN_STATIC || !is_large(problem));
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

static scales scales_new(const hec_problem *problem, hec_arena *arena) {
  return (scales){.pricing = problem->pricer->start(problem->pricer, problem, arena),
                  .peak = HEC_NEW(arena, double, problem->n_ranks)};
}

static void scales_free(const hec_problem *problem, scales *on) {
  problem->pricer->stop(on->pricing);
  hec_memory_scratch_free(&on->memory);
}

void hec_portfolio_free(hec_lowering *low) {
  hec_portfolio *p = low->among;
  if (p->work.running && p->work.begun)
    p->helper->end(p->work.begun);
  *low = *p->own[0].low;
  p->followed = p->next = 0;
  drop_others(p);
  scales_free(low->problem, &p->scales);
  scales_free(low->problem, &p->work.scales);
  free(p->moves.data);
  hec_link_cost_free(&p->cost);
}

void hec_portfolio_help(hec_lowering *low, const hec_helper *helper) {
  low->among->helper = helper;
}

void hec_portfolio_stop(hec_lowering *low) {
  low->among->stopped = true;
}

/* ---- Prices ---- */

/* What the iteration that was lowered last takes of memory. */
static void add_peak(scales *on, const hec_lowering *low, hec_pair *pair) {
  double max = 0;
  hec_program_memory_peak_with(&low->in->program, &on->memory, on->peak, NULL);
  for (int32_t r = 0; r < low->problem->n_ranks; r++) {
    double share = on->peak[r] / low->problem->cluster->devices[r].memory_bytes;
    max = share > max ? share : max;
  }
  pair->peak_min = pair->n_peaks == 0 || max < pair->peak_min ? max : pair->peak_min;
  pair->peak_max = max > pair->peak_max ? max : pair->peak_max;
  pair->n_peaks++;
  bool steady = pair->n_peaks > 1 && pair->peak_min == pair->peak_max;
  pair->fits = pair->peak_max <= (steady ? 1 : ROOM);
}

/* What the iteration takes that was lowered last, without what moves once. goes_on: as in lower.h. */
static double price(scales *on, const hec_lowering *low, bool goes_on) {
  return low->problem->pricer->iteration_s(on->pricing, &low->in->program, goes_on);
}

static void add_price(hec_pair *pair, double s) {
  bool learns = pair->policy->known == HEC_KNOWN_PERIODIC && s < pair->s;
  double weight = (learns ? LEARNT : MEMORY) * pair->weight, off = s - pair->s;
  off = pair->weight <= 0 ? 0 : pair->weight <= 1 ? fabs(off) : off > 0 ? off : 0;
  pair->off = (weight * pair->off + off) / (weight + 1);
  pair->s = (weight * pair->s + s) / (weight + 1);
  pair->weight = weight + 1;
}

/* What it is expected to take. Of many pairs the one that seems fastest was lucky with the records, the more so the farther
 * its prices rise. */
static double likely_s(const hec_pair *pair) {
  return pair->s + DOUBT * pair->off;
}

static bool is_better(const hec_pair *a, const hec_pair *b) {
  return a->fits != b->fits ? a->fits : likely_s(a) < likely_s(b);
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

/* Inserts into the sorted list of `n`, of a policy its OF_A_POLICY fastest, with parts or without; the new number. */
static int32_t insert(hec_pair *list, int32_t n, int32_t max, const hec_pair *pair) {
  int32_t at, others = 0, last = -1;
  for (int32_t i = 0; i < n; i++)
    if (list[i].policy == pair->policy) {
      bool same = list[i].schedule == pair->schedule;
      others += same ? OF_A_POLICY : 1;
      last = i;
      if (same)
        break;
    }
  if (others >= OF_A_POLICY) {
    if (!is_better(pair, &list[last]))
      return n;
    memmove(list + last, list + last + 1, (size_t)(n - 1 - last) * sizeof *list);
    n--;
  }
  for (at = n; at > 0 && is_better(pair, &list[at - 1]);)
    at--;
  if (at == max)
    return n;
  n = n < max ? n + 1 : n;
  memmove(list + at + 1, list + at, (size_t)(n - 1 - at) * sizeof *list);
  list[at] = *pair;
  return n;
}

/* Lowers the records, in the other order with `back`, and prices all but the first, before which nothing is known. */
static void replay(hec_portfolio *p, hec_lowering **lows, hec_pair *pairs, int32_t n, bool back) {
  for (int i = 0; i < RECORDS; i++) {
    const hec_load *record = &p->work.records[back ? RECORDS - 1 - i : i];
    hec_lower_iterations(lows, n, p->work.iters[i], record, 1, p->work.n_micro_batches);
    for (int32_t s = 0; s < n; s++) {
      add_peak(&p->work.scales, lows[s], &pairs[s]);
      if (i > 0)
        add_price(&pairs[s], price(&p->work.scales, lows[s], s > 0));
    }
  }
}

/* A lowering of the row for itself: copies may travel in parts if it says so or the pair does. */
static hec_lowering *lower_alone(const hec_portfolio *p, const hec_pair *pair, hec_arena *arena) {
  const hec_lowering *own = p->own[0].low;
  hec_policy *policy = HEC_NEW(arena, hec_policy, 1);
  *policy = *pair->policy;
  policy->relays = pair->policy->relays || pair->parts;
  return hec_lowering_new(own->problem, policy, pair->schedule, own->in->collective, arena);
}

/* The policy under all its schedules. Where copies have travelled in parts, they are tried as the row has them, too: parts
 * are what the closed form of one collective prefers, and rest on other ranks on their way. */
static int32_t try_policy(hec_portfolio *p, const hec_policy *policy, bool parts, hec_pair *list, int32_t n_list) {
  const hec_lowering *own = p->own[0].low;
  const hec_schedule *schedules[HEC_SCHEDULES_MAX + 1];
  hec_lowering *lows[HEC_SCHEDULES_MAX + 1];
  hec_pair pairs[HEC_SCHEDULES_MAX + 1];
  int32_t n = schedules_of(policy, own->in->schedule, own->problem, schedules);
  HEC_SCOPED(hec_arena) arena = {0};
  int32_t max = own->in->shared->run.policy->portfolio;
  bool in_parts = false;
  HEC_ASSERT(max <= PORTFOLIO_KEPT);
  for (int32_t s = 0; s < n; s++) {
    pairs[s] = (hec_pair){.policy = policy, .schedule = schedules[s], .parts = parts};
    lows[s] = s > 0 ? hec_lowering_beside(lows[0], schedules[s]) : lower_alone(p, &pairs[0], &arena);
  }
  replay(p, lows, pairs, n, false);
  for (int32_t s = 0; s < n; s++) {
    n_list = insert(list, n_list, max, &pairs[s]);
    in_parts = in_parts || lows[s]->in->in_parts;
  }
  for (int32_t s = n - 1; s >= 0; s--)
    hec_lowering_free(lows[s]);
  return in_parts && parts && !policy->relays ? try_policy(p, policy, false, list, n_list) : n_list;
}

/* NULL: it is there, or there is no room. */
static candidate *keep(hec_portfolio *p, const hec_pair *pair) {
  candidate *c = NULL;
  for (int32_t i = PORTFOLIO_KEPT; i >= 1; i--) {
    const hec_pair *other = &p->own[i].pair;
    if (!p->own[i].low)
      c = &p->own[i];
    else if (other->policy == pair->policy && other->schedule == pair->schedule && other->parts == pair->parts)
      return NULL;
  }
  if (!c)
    return NULL;
  *c = (candidate){.pair = {.policy = pair->policy, .schedule = pair->schedule, .parts = pair->parts}};
  c->low = lower_alone(p, &c->pair, &c->arena);
  c->low->in->own_note = hec_arena_printf(&c->arena, "as %s under %s", pair->policy->name, pair->schedule->name);
  c->low->in->gated = p->own[p->followed].low->in->gated;
  return c;
}

/* The fastest pairs of rows in slices, or of the others, on the last iterations; how many. */
static int32_t find_pairs(hec_portfolio *p, bool sliced, hec_pair list[PORTFOLIO_KEPT + 1]) {
  const hec_problem *problem = p->own[0].low->problem;
  int32_t n = 0;
  for (int32_t i = 0; hec_policies[i]; i++)
    if (is_tried(hec_policies[i], sliced, problem) && hec_policy_suits(hec_policies[i], problem) == HEC_OK)
      n = try_policy(p, hec_policies[i], !sliced, list, n);
  return p->varied.varies && !sliced ? try_policy(p, &p->varied, true, list, n) : n;
}

/* The price of the first record where only the others are known: one price more from the same records. */
static double price_back(hec_portfolio *p, const hec_pair *pair) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_policy alone = *pair->policy;
  alone.portfolio = 0;
  hec_pair same = {.policy = &alone, .schedule = pair->schedule, .parts = pair->parts};
  HEC_OPENED(hec_lowering) *low = lower_alone(p, &same, &arena);
  replay(p, &low, &same, 1, true);
  return same.s;
}

static void look_for_pairs(hec_portfolio *p) {
  hec_pair list[PORTFOLIO_KEPT + 1];
  int32_t n = find_pairs(p, p->sliced, list);
  p->work.back_s = price_back(p, &p->own[p->followed].pair);
  if (p->followed > 0 && !p->sliced)
    add_price(&p->own[0].pair, price_back(p, &p->own[0].pair));
  for (int32_t i = 0; i < n; i++) {
    candidate *c = keep(p, &list[i]);
    if (!c)
      continue;
    replay(p, &c->low, &c->pair, 1, false);
    add_price(&c->pair, price_back(p, &c->pair));
    c->n_seen = p->work.n_seen;
  }
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

/* `exact`: among those that plan with the loads of the iteration alone. */
static void choose(hec_portfolio *p, bool exact) {
  hec_pair *now = &p->own[p->followed].pair;
  int32_t best = p->followed;
  for (int32_t i = p->sliced; i <= PORTFOLIO_KEPT; i++)
    if (p->own[i].low && (!exact || p->own[i].pair.policy->known == HEC_KNOWN_EXACT) &&
        is_better(&p->own[i].pair, &p->own[best].pair))
      best = i;
  double gain_s = likely_s(now) - likely_s(&p->own[best].pair);
  if (best == p->followed)
    return;
  bool pays = gain_s > DEAD_ZONE * now->s &&
              gain_s * PAYS_WITHIN * period_of(p) > moving_s(p, p->own[p->followed].low, p->own[best].low);
  if (pays || now->fits != p->own[best].pair.fits)
    p->next = best;
}

/* What the policy has missed until the iteration, as far as it was kept; where placements last, its decisions, too. */
static void catch_up(hec_portfolio *p, candidate *c, int32_t until) {
  hec_policy_run *run = &c->low->in->shared->run;
  int32_t first = p->n_seen - RECORDS_KEPT;
  for (int32_t i = c->n_seen > first ? c->n_seen : first; i < until; i++) {
    if (run->policy->known == HEC_KNOWN_PERIODIC)
      hec_policy_decide(run, p->iters[i % RECORDS_KEPT], 0);
    hec_policy_observe(run, &p->records[i % RECORDS_KEPT]);
  }
  c->n_seen = until;
}

/* The lowering becomes the other's, with homes and residents where they are. */
static void follow(hec_lowering *low, int32_t next) {
  hec_portfolio *p = low->among;
  hec_lowering *from = p->own[p->followed].low, *to = p->own[next].low;
  p->own[p->followed].n_seen = p->n_seen;
  catch_up(p, &p->own[next], p->n_seen);
  to->in->detail = to->in->each.per_item = from->in->detail;
  from->in->detail = from->in->each.per_item = false;
  hec_plan_assign(&to->in->before, &from->in->shared->run.plan);
  to->in->before.version = UINT64_MAX; /* something may have to move */
  *low = *to;
  low->among = p;
  p->followed = next;
}

/* ---- Comparing ---- */

/* Seconds of lowering and pricing `n` programs like the last one. */
static double lowering_s(const hec_lowering *low, int64_t n, int32_t units) {
  const hec_program *program = &low->in->program;
  double size = (double)program->n_transfers + (double)program->n_ops * program->n_ranks;
  return low->problem->cluster->plan_a_s + low->problem->cluster->plan_b_s * units * size * (double)n;
}

/* Programs that it lowers. */
static int64_t programs_of(const hec_portfolio *p, bool looks) {
  const hec_lowering *own = p->own[0].low;
  const hec_schedule *schedules[HEC_SCHEDULES_MAX + 1];
  int64_t n = looks ? RECORDS * (2 * own->in->shared->run.policy->portfolio + 2) : 0;
  for (int32_t i = 0; looks && hec_policies[i]; i++)
    if (is_tried(hec_policies[i], p->sliced, own->problem))
      n += RECORDS * schedules_of(hec_policies[i], own->in->schedule, own->problem, schedules);
  n += looks && !p->sliced && p->varied.varies ? RECORDS : 0;
  for (int32_t i = p->sliced; i <= PORTFOLIO_KEPT; i++)
    n += p->own[i].low && i != p->followed && (i == 0 || !looks);
  return n;
}

/* The others on the last iteration of the records. */
static void compare(hec_portfolio *p) {
  comparison *w = &p->work;
  bool goes_on = false;
  for (int32_t i = p->sliced; i <= PORTFOLIO_KEPT; i++) {
    candidate *c = &p->own[i];
    if (i == p->followed || !c->low)
      continue;
    hec_lower_iterations(&c->low, 1, w->iter, &w->records[RECORDS - 1], 1, w->n_micro_batches);
    c->n_seen = w->n_seen;
    add_peak(&w->scales, c->low, &c->pair);
    add_price(&c->pair, price(&w->scales, c->low, goes_on));
    goes_on = true;
  }
}

static void do_work(void *context) {
  hec_portfolio *p = context;
  if (p->work.looks)
    drop_others(p);
  compare(p);
  if (p->work.looks)
    look_for_pairs(p);
}

static void begin_work(hec_portfolio *p, bool looks) {
  comparison *w = &p->work;
  const hec_lowering *now = p->own[p->followed].low;
  w->running = true;
  w->looks = looks;
  w->n_seen = p->n_seen;
  w->n_micro_batches = p->n_micro_batches;
  w->iter = p->iter;
  w->takes_s = lowering_s(now, programs_of(p, looks), looks ? LOOK_UNITS : COMPARISON_UNITS);
  for (int32_t i = 0; i < RECORDS; i++) {
    int32_t k = (p->n_seen - RECORDS + i) % RECORDS_KEPT;
    w->iters[i] = p->iters[k];
    hec_load_copy(&p->records[k], &w->records[i]);
  }
  for (int32_t i = p->sliced; i <= PORTFOLIO_KEPT; i++)
    if (i != p->followed && p->own[i].low)
      catch_up(p, &p->own[i], p->n_seen - 1);
  w->begun = p->helper ? p->helper->begin(do_work, p) : NULL;
}

static void end_work(hec_portfolio *p) {
  comparison *w = &p->work;
  w->running = false;
  if (w->begun)
    p->helper->end(w->begun);
  else
    do_work(p);
  if (w->looks)
    add_price(&p->own[p->followed].pair, w->back_s);
  add_price(&p->own[p->followed].pair, w->now_s);
  choose(p, false);
  p->last = w->iter;
  p->gap = w->looks || w->n_seen <= RECORDS + 1 ? 0 : 2 * p->gap + 1;
  p->rest = p->gap;
  p->expected_s = p->own[p->next].pair.s;
}

/* ---- The start ---- */

/* Before any load is known: loads that fall with the square root of an expert's place, places in no order and other ones in
 * every layer and record. */
static void expect(hec_load *load, const hec_problem *p, int32_t record) {
  double sum = 0, assignments = (double)p->tokens * p->top_k;
  for (int32_t i = 0; i < p->n_experts; i++)
    sum += 1 / sqrt(1 + i);
  for (int32_t l = 0; l < p->n_layers; l++)
    for (int32_t r = 0; r < p->n_ranks; r++)
      for (int32_t e = 0; e < p->n_experts; e++)
        hec_load_row(load, l, r)[e] = (uint32_t)(assignments / sum / sqrt(1 + (7 * e + 3 * l + record) % p->n_experts));
}

/* Where memory is short. Elsewhere whole experts, copied where they are wanted, take no longer. */
static bool may_slice(const hec_problem *p) {
  int32_t at_once = p->n_layers < 2 ? p->n_layers : 2;
  return p->n_ranks > 1 && hec_fssdp_room(p, at_once, at_once) < p->n_experts;
}

/* Executors keep experts as they began with them, so this is decided once: slices where nothing with whole experts fits, or
 * where they are faster by far on the loads that are expected. What it follows first, as row of a pair; false: its own. */
static bool choose_shards(hec_portfolio *p, hec_pair *first) {
  hec_pair whole[PORTFOLIO_KEPT + 1], sliced[PORTFOLIO_KEPT + 1];
  hec_policy alone = *p->own[0].pair.policy;
  alone.portfolio = 0;
  p->work.n_micro_batches = 1;
  for (int i = 0; i < RECORDS; i++) {
    p->work.iters[i] = i;
    expect(&p->work.records[i], p->own[0].low->problem, i);
  }
  if (find_pairs(p, true, sliced) == 0 || !sliced[0].fits)
    return false;
  int32_t n = find_pairs(p, false, whole);
  n = try_policy(p, &alone, true, whole, n);
  *first = sliced[0];
  return !whole[0].fits || whole[0].s > (1 + SHARDS) * sliced[0].s;
}

void hec_portfolio_start(hec_lowering *low) {
  const hec_problem *problem = low->problem;
  hec_arena *arena = low->in->arena;
  hec_portfolio *p = HEC_NEW(arena, hec_portfolio, 1);
  p->own[0].low = HEC_NEW(arena, hec_lowering, 1);
  *p->own[0].low = *low;
  p->own[0].pair =
      (hec_pair){.policy = low->in->shared->run.policy, .schedule = low->in->schedule, .parts = true, .fits = true};
  p->varied = *p->own[0].pair.policy;
  p->varied.portfolio = 0;
  p->varied.varies = p->varied.varies && !is_large(problem);
  p->varied.own[0] = 1 - p->varied.own[0];
  p->cost = hec_link_cost_new(problem->cluster, arena);
  p->scales = scales_new(problem, arena);
  p->work.scales = scales_new(problem, arena);
  HEC_RESERVE(p->moves.data, p->moves.capacity, (size_t)problem->n_ranks * (size_t)problem->n_ranks);
  for (int i = 0; i < RECORDS_KEPT + RECORDS; i++)
    *(i < RECORDS_KEPT ? &p->records[i] : &p->work.records[i - RECORDS_KEPT]) =
        hec_load_new(arena, problem->n_layers, problem->n_ranks, problem->n_experts);
  p->next_look = RECORDS;
  low->among = p;
  hec_pair first;
  p->sliced = may_slice(problem) && choose_shards(p, &first);
  if (!p->sliced)
    return;
  *low = *keep(p, &first)->low;
  low->among = p;
  p->followed = p->next = 1;
}

/* ---- The iterations ---- */

void hec_portfolio_begin(hec_lowering *low, int64_t iter, int32_t n_micro_batches) {
  hec_portfolio *p = low->among;
  if (p->stopped)
    return;
  if (p->work.running && (double)(iter - p->work.iter - 1) * p->work.now_s >= p->work.takes_s)
    end_work(p);
  if (p->next != p->followed)
    follow(low, p->next);
  p->iter = iter;
  p->n_micro_batches = n_micro_batches;
}

void hec_portfolio_observe(hec_lowering *low, const hec_load *load) {
  hec_portfolio *p = low->among;
  if (p->stopped)
    return;
  p->iters[p->n_seen % RECORDS_KEPT] = p->iter;
  hec_load_copy(load, &p->records[p->n_seen % RECORDS_KEPT]);
}

/* After RECORDS iterations, and 8, 32, 128 ..; not while it compares. */
static bool looks(hec_portfolio *p) {
  if (p->n_seen < p->next_look)
    return false;
  p->next_look = 8;
  while (p->next_look <= p->n_seen && p->next_look <= INT32_MAX / 4)
    p->next_look *= 4;
  return true;
}

void hec_portfolio_end(hec_lowering *low) {
  hec_portfolio *p = low->among;
  if (p->stopped)
    return;
  candidate *now = &p->own[p->followed];
  p->n_seen++;
  double s = price(&p->scales, now->low, false);
  add_peak(&p->scales, now->low, &now->pair);
  bool fails = p->expected_s > 0 && s > (1 + FAILS) * p->expected_s;
  if (fails)
    add_price(&now->pair, s);
  if (p->work.running)
    return;
  p->work.now_s = s;
  bool late = s > (1 + LATE) * p->expected_s || !now->pair.fits;
  if (fails)
    choose(p, true);
  if (p->next != p->followed) { /* another seems faster already; compared once it has run */
    p->expected_s = p->own[p->next].pair.s;
    p->rest = 0;
    return;
  }
  bool due = p->n_seen > RECORDS && (late || p->rest <= 0 || p->iter - p->last >= period_of(p));
  if (looks(p))
    begin_work(p, true);
  else if (due)
    begin_work(p, false);
  else
    p->rest--;
}
