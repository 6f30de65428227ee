/* The greedy search of the header. What makes it cheap and still equal to trying everything from nothing:
 *
 *   - the layer's time after a step is one pass over the links (layer_model.h), exact because tokens are whole numbers
 *   - a gather's price after a step is one pass over the links (spread_cost.h); an expert that only its home holds and
 *     that all ranks have room for, the usual case, has its pattern ready
 *   - an expert is skipped when its score cannot exceed the best so far: the busiest link and rank keep at least what
 *     they carry for others, and prices of collectives never fall when an expert joins
 *
 * Every bound is computed in the same order of operations as the value, and rounding is monotonic. So it is a bound in
 * floating point too. */
#include "runtime/plan/planners/calibrate.h"

#include <string.h>

/* An expert that could be added, and the step it is judged in. */
typedef struct {
  int32_t expert, n_receivers;
  bool fresh;      /* only its home holds it and everybody else would: patterns are ready */
  bool everywhere; /* every rank would hold it */
} candidate;

typedef struct {
  double time_s, gather_s, growth_s; /* T(Q) = layer + (gather_s + growth_s) */
  double return_s;                   /* T_spRS(Q -> homes) */
} objective;

hec_calibrate hec_calibrate_new(hec_arena *arena, const hec_problem *problem, const hec_rank_links *links,
                                hec_spread *gather, hec_spread *scatter, bool rematerialise) {
  size_t ranks = (size_t)problem->n_ranks, experts = (size_t)problem->n_experts;
  hec_calibrate c = {
      .problem = problem,
      .model = hec_layer_model_new(arena, problem, links),
      .gather = gather,
      .scatter = scatter,
      .rematerialise = rematerialise,
      .own_s = hec_problem_own_gradients_s(problem),
      .home = HEC_NEW(arena, int32_t, experts),
      .n_holders = HEC_NEW(arena, int32_t, experts),
      .holds = HEC_NEW(arena, uint8_t, experts * ranks),
      .n_guests = HEC_NEW(arena, int32_t, ranks),
      .receivers = HEC_NEW(arena, int32_t, ranks),
      .guests = HEC_NEW(arena, int32_t, ranks),
      .rank_order = HEC_NEW(arena, int32_t, ranks),
      .node_count = HEC_NEW(arena, int32_t, problem->n_nodes),
      .bound = HEC_NEW(arena, double, experts),
      .holders = HEC_NEW(arena, int32_t, 2 * ranks),
      .added = hec_spread_sum_new(arena, gather),
      .added_item = hec_spread_sum_new(arena, gather),
  };
  c.part = HEC_NEW(arena, double, c.model.n_cells);
  if (!scatter)
    return c;
  c.returned = hec_spread_sum_new(arena, scatter);
  c.returned_item = hec_spread_sum_new(arena, scatter);
  c.returned_rest = hec_spread_sum_new(arena, scatter);
  c.gathered = hec_spread_sum_new(arena, gather);
  c.gathered_item = hec_spread_sum_new(arena, gather);
  c.gathered_rest = hec_spread_sum_new(arena, gather);
  return c;
}

static uint8_t *holds_of(const hec_calibrate *c, int32_t expert) {
  return c->holds + (size_t)expert * (size_t)c->problem->n_ranks;
}

/* Reads who holds what; returns false when nobody has room for a guest. */
static bool read_holders(hec_calibrate *c, const hec_plan *plan, int32_t layer, int32_t m) {
  int32_t n_ranks = c->problem->n_ranks, n_experts = c->problem->n_experts;
  memset(c->n_guests, 0, (size_t)n_ranks * sizeof *c->n_guests);
  memset(c->holds, 0, (size_t)n_experts * (size_t)n_ranks);
  for (int32_t e = 0; e < n_experts; e++) {
    const int32_t *ranks;
    const uint8_t *kinds;
    int32_t n = hec_plan_copies(plan, layer, e, &ranks, &kinds);
    uint8_t *holds = holds_of(c, e);
    c->home[e] = hec_plan_home(plan, layer, e);
    c->n_holders[e] = n + 1;
    holds[c->home[e]] = 1;
    for (int32_t k = 0; k < n; k++) {
      HEC_ASSERT(kinds[k] == HEC_COPY_GUEST);
      holds[ranks[k]] = 1;
      c->n_guests[ranks[k]]++;
    }
  }
  c->n_full = 0;
  for (int32_t r = 0; r < n_ranks; r++)
    c->n_full += c->n_guests[r] >= m;
  return c->n_full < n_ranks;
}

static candidate candidate_of(hec_calibrate *c, int32_t expert, int32_t m) {
  int32_t n_ranks = c->problem->n_ranks;
  if (c->n_full == 0 && c->n_holders[expert] == 1)
    return (candidate){expert, n_ranks - 1, true, true};
  candidate cand = {.expert = expert};
  const uint8_t *holds = holds_of(c, expert);
  if (c->n_holders[expert] < n_ranks)
    for (int32_t r = 0; r < n_ranks; r++)
      if (!holds[r] && c->n_guests[r] < m)
        c->receivers[cand.n_receivers++] = r;
  cand.everywhere = c->n_holders[expert] + cand.n_receivers == n_ranks;
  cand.fresh = cand.everywhere && c->n_holders[expert] == 1;
  return cand;
}

/* Orders the ranks by ascending tokens, ties to the lower one. */
static void order_ranks(hec_calibrate *c) {
  const double *tokens = c->model.tokens + c->model.rank_at;
  for (int32_t r = 0; r < c->problem->n_ranks; r++) {
    int32_t at = r;
    for (; at > 0 && tokens[c->rank_order[at - 1]] > tokens[r]; at--)
      c->rank_order[at] = c->rank_order[at - 1];
    c->rank_order[at] = r;
  }
}

/* At most n receivers: round by round over the nodes, those with fewest holders of the expert first, in each the rank with
 * fewest tokens. */
static candidate candidate_of_some(hec_calibrate *c, int32_t expert, int32_t m, int32_t n) {
  enum { CHOSEN = 2 };
  int32_t n_ranks = c->problem->n_ranks;
  candidate cand = {.expert = expert};
  uint8_t *holds = holds_of(c, expert);
  memset(c->node_count, 0, (size_t)c->problem->n_nodes * sizeof *c->node_count);
  for (int32_t r = 0; r < n_ranks; r++)
    c->node_count[hec_problem_node(c->problem, r)] += holds[r];
  int32_t left = n;
  for (int32_t max = 0; left > 0 && max < n_ranks; max++)
    for (int32_t i = 0; left > 0 && i < n_ranks; i++) {
      int32_t r = c->rank_order[i], *count = &c->node_count[hec_problem_node(c->problem, r)];
      if (*count > max || holds[r] || c->n_guests[r] >= m)
        continue;
      holds[r] = CHOSEN;
      ++*count;
      left--;
    }
  for (int32_t r = 0; r < n_ranks; r++)
    if (holds[r] == CHOSEN) {
      c->receivers[cand.n_receivers++] = r;
      holds[r] = 0;
    }
  return cand;
}

/* The candidate with all receivers that there can be (most 0), or with at most so many. */
static candidate candidate_with(hec_calibrate *c, int32_t expert, int32_t m, int32_t max) {
  return max == 0 ? candidate_of(c, expert, m) : candidate_of_some(c, expert, m, max);
}

/* The guests that a candidate's expert would have, ascending in c->guests: its number. */
static int32_t guests_with(hec_calibrate *c, const candidate *cand) {
  const uint8_t *holds = holds_of(c, cand->expert);
  int32_t n = 0, next = 0;
  for (int32_t r = 0; r < c->problem->n_ranks; r++) {
    bool receives = next < cand->n_receivers && c->receivers[next] == r;
    next += receives;
    if ((holds[r] && r != c->home[cand->expert]) || receives)
      c->guests[n++] = r;
  }
  return n;
}

/* The pattern of guests c->guests[0..n) of an expert; made in `item` unless it is ready. */
static hec_spread_sum pattern_of(const hec_calibrate *c, hec_spread *spread, int32_t expert, int32_t n,
                                 hec_spread_sum *item) {
  if (n == c->problem->n_ranks - 1)
    return hec_spread_everywhere(spread, c->home[expert]);
  hec_spread_item(spread, c->home[expert], c->guests, n, item);
  return *item;
}

/* sum = all present guests of all experts but `skip`. */
static void sum_guests(hec_calibrate *c, hec_spread *spread, int32_t skip, hec_spread_sum *item, hec_spread_sum *sum) {
  hec_spread_clear(spread, sum);
  for (int32_t e = 0; e < c->problem->n_experts; e++) {
    if (e == skip || c->n_holders[e] == 1)
      continue;
    candidate none = {.expert = e};
    int32_t n_guests = c->n_holders[e] - 1;
    if (n_guests < c->problem->n_ranks - 1) /* else the pattern is ready and needs no list */
      n_guests = guests_with(c, &none);
    hec_spread_sum pattern = pattern_of(c, spread, e, n_guests, item);
    hec_spread_add(spread, sum, &pattern);
  }
}

static double exposed(const hec_calibrate *c, double return_s, double gather_s) {
  double over = return_s + (c->rematerialise ? gather_s : 0) - 2 * c->window_s;
  return over > 0 ? over : 0;
}

static void make_base(hec_calibrate *c) {
  if (c->has_base)
    return;
  sum_guests(c, c->scatter, -1, &c->returned_item, &c->returned);
  if (c->rematerialise)
    sum_guests(c, c->gather, -1, &c->gathered_item, &c->gathered);
  c->base_return_s = hec_spread_cost(c->scatter, &c->returned);
  c->base_s = exposed(c, c->base_return_s, c->rematerialise ? hec_spread_cost(c->gather, &c->gathered) : 0);
  c->has_base = true;
}

/* Price of all guests with the candidate's, through one of the two collectives. */
static double total_with(hec_calibrate *c, hec_spread *spread, const candidate *cand, const hec_spread_sum *all,
                         hec_spread_sum *item, hec_spread_sum *rest) {
  if (cand->fresh) {
    hec_spread_sum pattern = hec_spread_everywhere(spread, c->home[cand->expert]);
    return hec_spread_cost_with(spread, all, &pattern);
  }
  if (c->n_holders[cand->expert] > 1) { /* its present guests leave the sum, which a maximum cannot take back */
    sum_guests(c, spread, cand->expert, item, rest);
    all = rest;
  }
  hec_spread_sum pattern = pattern_of(c, spread, cand->expert, guests_with(c, cand), item);
  return hec_spread_cost_with(spread, all, &pattern);
}

/* exposed(Q) - exposed(P') with the candidate, and what returns. */
static void price_return(hec_calibrate *c, const candidate *cand, objective *of) {
  of->growth_s = of->return_s = 0;
  if (!c->scatter)
    return;
  make_base(c);
  double return_s = total_with(c, c->scatter, cand, &c->returned, &c->returned_item, &c->returned_rest), gather_s = 0;
  if (c->rematerialise)
    gather_s = total_with(c, c->gather, cand, &c->gathered, &c->gathered_item, &c->gathered_rest);
  of->growth_s = exposed(c, return_s, gather_s) - c->base_s;
  of->return_s = return_s;
}

/* What the candidate's gather adds to `added`; made in added_item unless it is ready. */
static hec_spread_sum added_pattern(hec_calibrate *c, const candidate *cand) {
  if (cand->fresh)
    return hec_spread_everywhere(c->gather, c->home[cand->expert]);
  hec_spread_item(c->gather, c->home[cand->expert], c->receivers, cand->n_receivers, &c->added_item);
  return c->added_item;
}

/* The candidate's part of the layer model: NULL when nothing of it travels any more. */
static const double *part_with(hec_calibrate *c, const candidate *cand) {
  if (cand->everywhere)
    return NULL;
  const uint8_t *holds = holds_of(c, cand->expert);
  int32_t n = 0, next = 0;
  for (int32_t r = 0; r < c->problem->n_ranks; r++) {
    bool receives = next < cand->n_receivers && c->receivers[next] == r;
    next += receives;
    if (holds[r] || receives)
      c->holders[n++] = r;
  }
  hec_layer_model_part(&c->model, cand->expert, c->holders, n, c->part);
  return c->part;
}

static double larger(double a, double b) {
  return a > b ? a : b;
}

/* One step: the cells that bound what can be gained, the best expert so far. */
typedef struct {
  objective now;
  int32_t link_cell, rank_cell, best; /* best: -1 none */
  int32_t max;                        /* receivers of the best; 0: all */
  double score;
  objective after; /* with the best */
} search;

/* (T - T_new) / bytes; with `some` T - T_new. */
static double score_of(const hec_calibrate *c, const search *s, double time_s, int32_t n_receivers) {
  if (c->some)
    return s->now.time_s - time_s;
  double bytes = (double)n_receivers * larger((double)c->gather->bytes, 1);
  return (s->now.time_s - time_s) / bytes;
}

/* True when an expert of this score, or bound, would replace the best so far: ties go to the lower id. */
static bool beats(const search *s, int32_t expert, double score) {
  return score > s->score || (score == s->score && expert < s->best);
}

/* T of a plan whose layer takes so long, with what is added in `of`. */
static double time_of(const hec_calibrate *c, hec_layer_time layer, const objective *of) {
  if (!c->some)
    return hec_layer_model_total(&c->model, layer) + (of->gather_s + of->growth_s);
  hec_layer_end end = {layer.a2a_s,  layer.compute_s, 2 * layer.compute_s,
                       of->gather_s, of->return_s,    c->scatter ? c->base_s + of->growth_s : 0};
  return hec_calibrate_end_s(c, &end);
}

/* At least this is added to the layer's time: the gather so far, or this expert's alone. */
static objective min_added(hec_calibrate *c, const search *s, const candidate *cand) {
  objective min = {.gather_s = s->now.gather_s, .growth_s = s->now.growth_s, .return_s = s->now.return_s};
  if (cand->fresh && !c->some) /* some of the ranks cost less */
    min.gather_s = larger(min.gather_s, c->gather->everywhere_s[c->home[cand->expert]]);
  if (c->scatter &&
      c->n_holders[cand->expert] > 1) { /* more holders may return over another entry: no bound but zero */
    make_base(c);
    min.growth_s = -c->base_s;
    min.return_s = 0;
  }
  return min;
}

/* An upper bound of the expert's score; at most 0 if it cannot be added. */
static double bound_of(hec_calibrate *c, const search *s, int32_t expert, int32_t m) {
  candidate cand = candidate_of(c, expert, m);
  if (cand.n_receivers == 0)
    return 0;
  objective min = min_added(c, s, &cand);
  hec_layer_time layer = hec_layer_model_min(&c->model, expert, s->link_cell, s->rank_cell);
  return score_of(c, s, time_of(c, layer, &min), cand.n_receivers);
}

/* Computes the score of the expert on at most `max` more ranks (0: all), dearest terms last. Keeps it if it is the
 * best so far. Returns the receivers. */
static int32_t judge_with(hec_calibrate *c, search *s, int32_t expert, int32_t m, int32_t max, uint64_t *units) {
  candidate cand = candidate_with(c, expert, m, max);
  objective of = min_added(c, s, &cand);
  hec_layer_time layer = hec_layer_model_time_with(&c->model, expert, part_with(c, &cand));
  *units += (uint64_t)c->model.n_cells / 2;
  if (!beats(s, expert, score_of(c, s, time_of(c, layer, &of), cand.n_receivers)))
    return cand.n_receivers;
  hec_spread_sum pattern = added_pattern(c, &cand);
  of.gather_s = hec_spread_cost_with(c->gather, &c->added, &pattern);
  *units += (uint64_t)(c->gather->n_stages * c->gather->links->n_padded);
  if (!beats(s, expert, score_of(c, s, time_of(c, layer, &of), cand.n_receivers)))
    return cand.n_receivers;
  price_return(c, &cand, &of);
  *units += c->scatter ? (uint64_t)(c->scatter->n_stages * c->scatter->links->n_padded) : 0;
  of.time_s = time_of(c, layer, &of);
  double score = score_of(c, s, of.time_s, cand.n_receivers);
  if (score <= 0 || !beats(s, expert, score))
    return cand.n_receivers;
  s->score = score;
  s->best = expert;
  s->max = max;
  s->after = of;
  return cand.n_receivers;
}

static void judge(hec_calibrate *c, search *s, int32_t expert, int32_t m, uint64_t *units) {
  int32_t n = judge_with(c, s, expert, m, 0, units);
  for (int32_t max = n / 2; c->some && max > 0; max /= 2)
    (void)judge_with(c, s, expert, m, max, units);
}

/* Finds the best expert of a step; s->best < 0 if none improves. The one with the largest bound is judged first, so
 * that most others need not be. */
static void find_best(hec_calibrate *c, search *s, int32_t m, uint64_t *units) {
  int32_t n_experts = c->problem->n_experts, first = 0;
  s->best = -1;
  s->score = 0;
  if (c->some)
    order_ranks(c);
  hec_layer_model_busiest(&c->model, &s->link_cell, &s->rank_cell);
  for (int32_t e = 0; e < n_experts; e++) {
    c->bound[e] = bound_of(c, s, e, m);
    first = c->bound[e] > c->bound[first] ? e : first;
  }
  *units += (uint64_t)c->model.n_cells + (uint64_t)n_experts;
  if (c->bound[first] > 0)
    judge(c, s, first, m, units);
  for (int32_t e = 0; e < n_experts; e++)
    if (e != first && c->bound[e] > 0 && beats(s, e, c->bound[e]))
      judge(c, s, e, m, units);
}

/* Adds the best expert to everything that is kept. */
static void accept(hec_calibrate *c, search *s, int32_t m) {
  candidate cand = candidate_with(c, s->best, m, s->max);
  if (cand.fresh) { /* the list is not made for ready patterns */
    cand.n_receivers = 0;
    for (int32_t r = 0; r < c->problem->n_ranks; r++)
      if (r != c->home[cand.expert])
        c->receivers[cand.n_receivers++] = r;
  }
  hec_spread_sum pattern = added_pattern(c, &cand);
  hec_spread_add(c->gather, &c->added, &pattern);
  hec_layer_model_replace(&c->model, cand.expert, part_with(c, &cand));
  uint8_t *holds = holds_of(c, cand.expert);
  bool had_guests = c->n_holders[cand.expert] > 1;
  for (int32_t k = 0; k < cand.n_receivers; k++) {
    holds[c->receivers[k]] = 1;
    c->n_full += ++c->n_guests[c->receivers[k]] == m;
  }
  c->n_holders[cand.expert] += cand.n_receivers;
  s->now = s->after;
  if (!c->scatter)
    return;
  HEC_ASSERT(c->has_base); /* of P', before this step */
  if (had_guests) {
    sum_guests(c, c->scatter, cand.expert, &c->returned_item, &c->returned);
    if (c->rematerialise)
      sum_guests(c, c->gather, cand.expert, &c->gathered_item, &c->gathered);
  }
  candidate none = {.expert = cand.expert}; /* all its guests are present now */
  pattern = pattern_of(c, c->scatter, cand.expert, guests_with(c, &none), &c->returned_item);
  hec_spread_add(c->scatter, &c->returned, &pattern);
  if (c->rematerialise) {
    pattern = pattern_of(c, c->gather, cand.expert, guests_with(c, &none), &c->gathered_item);
    hec_spread_add(c->gather, &c->gathered, &pattern);
  }
}

static void write_plan(const hec_calibrate *c, hec_plan *plan, int32_t layer) {
  int32_t *copy_at = plan->copy_at + (size_t)layer * (size_t)(plan->n_experts + 1), at = 0;
  size_t block = (size_t)layer * (size_t)plan->copy_capacity;
  for (int32_t e = 0; e < plan->n_experts; e++) {
    const uint8_t *holds = holds_of(c, e);
    for (int32_t r = 0; r < plan->n_ranks && c->n_holders[e] > 1; r++)
      if (holds[r] && r != c->home[e])
        plan->copy_rank[block + (size_t)at++] = r;
    copy_at[e + 1] = at;
  }
  memset(plan->copy_kind + block, HEC_COPY_GUEST, (size_t)at);
}

double hec_calibrate_end_s(const hec_calibrate *c, const hec_layer_end *of) {
  double forward_s = 2 * of->a2a_s + of->forward_s + of->gather_s;
  if (!c->problem->train)
    return forward_s;
  double backward_s = 2 * of->a2a_s + of->backward_s + 2 * c->window_s + of->exposed_s;
  return forward_s + larger(backward_s, c->own_s + of->return_s);
}

/* The end of the layer with its work by the whole law of computing. */
static double whole_s(const hec_calibrate *c, const objective *of) {
  hec_layer_end end = {hec_layer_model_time(&c->model).a2a_s,
                       hec_layer_model_work_s(&c->model, false),
                       hec_layer_model_work_s(&c->model, true),
                       of->gather_s,
                       of->return_s,
                       c->scatter ? c->base_s + of->growth_s : 0};
  return hec_calibrate_end_s(c, &end);
}

int32_t hec_calibrate_layer(hec_calibrate *c, hec_plan *plan, int32_t layer, const hec_load *load, int32_t m,
                            uint64_t *units) {
  int32_t n_experts = c->problem->n_experts, added = 0;
  *units += (uint64_t)n_experts;
  if (!read_holders(c, plan, layer, m))
    return 0;
  hec_layer_model_set(&c->model, plan, layer, hec_load_row(load, layer, 0), c->holders);
  *units += (uint64_t)n_experts * (uint64_t)(c->problem->n_ranks + c->model.n_cells);
  hec_spread_clear(c->gather, &c->added);
  c->has_base = false;
  c->window_s = hec_problem_window_s(c->problem, layer);
  if (c->some && c->scatter)
    make_base(c);
  search s = {.now = {.return_s = c->some && c->scatter ? c->base_return_s : 0}};
  s.now.time_s = time_of(c, hec_layer_model_time(&c->model), &s.now);
  double before_s = c->some ? whole_s(c, &s.now) : 0;
  for (; added < n_experts; added++) {
    find_best(c, &s, m, units);
    if (s.best < 0)
      break;
    accept(c, &s, m);
  }
  if (c->some && added > 0 && !(whole_s(c, &s.now) < before_s))
    return 0;
  if (added > 0)
    write_plan(c, plan, layer);
  return added;
}
