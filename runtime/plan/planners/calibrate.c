/* The greedy search of the header. What makes it cheap and still equal to trying everything from nothing:
 *
 *   - the layer's time after a step is one pass over the links (layer_model.h), exact because tokens are whole numbers
 *   - a gather's price after a step is one pass over the links that it touches (spread_cost.h); an expert that only its
 *     home holds and that all ranks have room for, the usual case, has its pattern ready
 *   - experts of one home that nobody else holds would have the same receivers: within a step they share prices
 *   - an expert is skipped when its score cannot exceed the best so far: the busiest links and ranks keep at least
 *     what they carry for others, and prices of collectives never fall when an expert joins. What its copies do to the layer
 *     is the dearest term, so that comes behind the prices
 *
 * Every bound is computed in the same order of operations as the value, and rounding is monotonic. So it is a bound in
 * floating point too. */
#include "runtime/plan/planners/calibrate.h"

#include "runtime/plan/planners/rank_set.h"

#include <string.h>

/* An expert that could be added, and the step it is judged in. */
typedef struct {
  int32_t expert, halved;
  int32_t n_receivers;
  bool alone;      /* only its home holds it */
  bool everywhere; /* every rank would hold it */
  bool listed;     /* c->receivers are its receivers */
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
      .n_words = hec_rank_set_words(problem->n_ranks),
      .n_guests = HEC_NEW(arena, int32_t, ranks),
      .rank_order = HEC_NEW(arena, int32_t, ranks),
      .node_count = HEC_NEW(arena, int32_t, problem->n_nodes),
      .bound = HEC_NEW(arena, double, experts),
      .hopeful = HEC_NEW(arena, int32_t, experts),
      .n_halvings = 1,
      .holders = HEC_NEW(arena, int32_t, 2 * ranks),
      .added = hec_spread_sum_new(arena, gather),
  };
  while (problem->n_ranks >> c.n_halvings > 0)
    c.n_halvings++;
  c.alone = HEC_NEW(arena, hec_calibrate_price, ranks * (size_t)c.n_halvings);
  c.node = HEC_NEW(arena, int32_t, ranks);
  c.out_s = HEC_NEW(arena, double, ranks);
  c.turn = HEC_NEW(arena, int32_t, (ranks + 1) * ranks);
  c.begun = HEC_NEW(arena, bool, ranks);
  c.turn_known = HEC_NEW(arena, bool, ranks);
  c.open = HEC_NEW(arena, int32_t, ranks);
  c.round = HEC_NEW(arena, int32_t, ranks);
  c.round_at = HEC_NEW(arena, int32_t, ranks + 1);
  c.holds = HEC_NEW(arena, uint64_t, experts * (size_t)c.n_words);
  c.room = HEC_NEW(arena, uint64_t, c.n_words);
  c.receivers = HEC_NEW(arena, uint64_t, c.n_words);
  c.guests = HEC_NEW(arena, uint64_t, c.n_words);
  for (int32_t r = 0; r < problem->n_ranks; r++) {
    c.rank_order[r] = r;
    c.node[r] = hec_problem_node(problem, r);
  }
  c.part = HEC_NEW(arena, double, c.model.n_cells);
  if (!scatter)
    return c;
  c.returned = hec_spread_sum_new(arena, scatter);
  c.returned_rest = hec_spread_sum_new(arena, scatter);
  c.gathered = hec_spread_sum_new(arena, gather);
  c.gathered_rest = hec_spread_sum_new(arena, gather);
  return c;
}

static uint64_t *holds_of(const hec_calibrate *c, int32_t expert) {
  return c->holds + (size_t)expert * (size_t)c->n_words;
}

/* Reads who holds what; returns false when nobody has room for a guest. */
static bool read_holders(hec_calibrate *c, const hec_plan *plan, int32_t layer) {
  int32_t n_ranks = c->problem->n_ranks, n_experts = c->problem->n_experts, n_room = 0;
  memset(c->n_guests, 0, (size_t)n_ranks * sizeof *c->n_guests);
  memset(c->holds, 0, (size_t)n_experts * (size_t)c->n_words * sizeof *c->holds);
  memset(c->room, 0, (size_t)c->n_words * sizeof *c->room);
  for (int32_t e = 0; e < n_experts; e++) {
    hec_copies copies = hec_plan_copies(plan, layer, e);
    uint64_t *holds = holds_of(c, e);
    c->home[e] = hec_plan_home(plan, layer, e);
    c->n_holders[e] = copies.n + 1;
    hec_rank_set_add(holds, c->home[e]);
    for (int32_t k = 0; k < copies.n; k++) {
      HEC_ASSERT(copies.kind[k] == HEC_COPY_GUEST);
      hec_rank_set_add(holds, copies.rank[k]);
      c->n_guests[copies.rank[k]]++;
    }
  }
  for (int32_t r = 0; r < n_ranks; r++)
    if (c->n_guests[r] < c->m) {
      hec_rank_set_add(c->room, r);
      n_room++;
    }
  c->all_have_room = n_room == n_ranks;
  return n_room > 0;
}

/* The ranks that could still get the expert, into `to`: their number. */
static inline int32_t open_to(const hec_calibrate *c, int32_t expert, uint64_t *to) {
  const uint64_t *holds = holds_of(c, expert);
  for (int32_t w = 0; w < c->n_words; w++)
    to[w] = c->room[w] & ~holds[w];
  return hec_rank_set_size(to, c->n_words);
}

static inline candidate candidate_of(const hec_calibrate *c, int32_t expert, int32_t n_all, int32_t halved) {
  return (candidate){.expert = expert,
                     .halved = halved,
                     .n_receivers = n_all >> halved,
                     .alone = c->n_holders[expert] == 1,
                     .everywhere = halved == 0 && c->n_holders[expert] + n_all == c->problem->n_ranks};
}

/* Orders the ranks by ascending tokens, ties to the lower one. They stand nearly so from the step before. */
static void order_ranks(hec_calibrate *c) {
  const double *tokens = c->model.tokens + c->model.rank_at;
  int32_t *order = c->rank_order;
  for (int32_t i = 1; i < c->problem->n_ranks; i++) {
    int32_t r = order[i], at = i;
    for (; at > 0 && (tokens[order[at - 1]] > tokens[r] || (tokens[order[at - 1]] == tokens[r] && order[at - 1] > r));
         at--)
      order[at] = order[at - 1];
    order[at] = r;
  }
}

/* The order in which ranks get an expert that fewer than all get: round by round over the nodes, those with fewest holders
 * first, in each the rank with fewest tokens. So a rank's round is the number of its node's holders and of ranks there with
 * fewer tokens that may get it. The same for all experts of a home that nobody else holds. */
static const int32_t *receivers_in_turn(hec_calibrate *c, const candidate *cand) {
  int32_t n_ranks = c->problem->n_ranks, n = 0, n_rounds = 0;
  int32_t *turn = c->turn + (size_t)(cand->alone ? c->home[cand->expert] : n_ranks) * (size_t)n_ranks;
  int32_t *round = c->round, *open = c->open, *begin = c->round_at;
  if (cand->alone ? c->turn_known[c->home[cand->expert]] : c->turn_of == cand->expert)
    return turn;
  memset(c->node_count, 0, (size_t)c->problem->n_nodes * sizeof *c->node_count);
  memset(begin, 0, ((size_t)n_ranks + 1) * sizeof *begin);
  int32_t n_holders = hec_rank_set_list(holds_of(c, cand->expert), c->n_words, c->holders);
  for (int32_t i = 0; i < n_holders; i++)
    c->node_count[c->node[c->holders[i]]]++;
  (void)open_to(c, cand->expert, c->receivers);
  for (int32_t i = 0; i < n_ranks; i++) {
    int32_t r = c->rank_order[i];
    if (!hec_rank_set_has(c->receivers, r))
      continue;
    open[n] = r;
    round[n] = c->node_count[c->node[r]]++;
    begin[round[n] + 1]++;
    n_rounds = round[n] >= n_rounds ? round[n] + 1 : n_rounds;
    n++;
  }
  for (int32_t k = 0; k < n_rounds; k++)
    begin[k + 1] += begin[k];
  for (int32_t i = 0; i < n; i++)
    turn[begin[round[i]]++] = open[i];
  if (cand->alone)
    c->turn_known[c->home[cand->expert]] = true;
  else
    c->turn_of = cand->expert;
  return turn;
}

/* Into c->receivers. */
static void list_receivers(hec_calibrate *c, candidate *cand) {
  if (cand->listed)
    return;
  cand->listed = true;
  if (cand->halved == 0) {
    (void)open_to(c, cand->expert, c->receivers);
    return;
  }
  const int32_t *turn = receivers_in_turn(c, cand);
  memset(c->receivers, 0, (size_t)c->n_words * sizeof *c->receivers);
  for (int32_t i = 0; i < cand->n_receivers; i++)
    hec_rank_set_add(c->receivers, turn[i]);
}

/* The pattern of all guests of an expert: those that are, with `cand` those that it would have. */
static hec_spread_pattern pattern_of(hec_calibrate *c, hec_spread *spread, int32_t expert, candidate *cand) {
  const uint64_t *holds = holds_of(c, expert);
  if (c->n_holders[expert] + (cand ? cand->n_receivers : 0) == c->problem->n_ranks)
    return spread->everywhere[c->home[expert]];
  if (cand)
    list_receivers(c, cand);
  for (int32_t w = 0; w < c->n_words; w++)
    c->guests[w] = holds[w] | (cand ? c->receivers[w] : 0);
  hec_rank_set_remove(c->guests, c->home[expert]);
  return hec_spread_item(spread, c->home[expert], c->guests);
}

/* sum = all present guests of all experts but `skip`. */
static void sum_guests(hec_calibrate *c, hec_spread *spread, int32_t skip, hec_spread_sum *sum) {
  hec_spread_clear(spread, sum);
  for (int32_t e = 0; e < c->problem->n_experts; e++) {
    if (e == skip || c->n_holders[e] == 1)
      continue;
    hec_spread_pattern pattern = pattern_of(c, spread, e, NULL);
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
  sum_guests(c, c->scatter, -1, &c->returned);
  if (c->rematerialise)
    sum_guests(c, c->gather, -1, &c->gathered);
  c->base_return_s = hec_spread_cost(c->scatter, &c->returned);
  c->base_s = exposed(c, c->base_return_s, c->rematerialise ? hec_spread_cost(c->gather, &c->gathered) : 0);
  c->has_base = true;
}

/* Price of all guests with the candidate's, through one of the two collectives. `rest`: of those of other experts, where
 * the candidate's has some already, which a maximum cannot take back. */
static double total_with(hec_calibrate *c, hec_spread *spread, candidate *cand, const hec_spread_sum *all,
                         const hec_spread_sum *rest) {
  hec_spread_pattern pattern = pattern_of(c, spread, cand->expert, cand);
  c->units += (uint64_t)pattern.n;
  return hec_spread_cost_with(spread, cand->alone ? all : rest, &pattern);
}

/* The guests of all other experts. */
static void make_rest(hec_calibrate *c, int32_t expert) {
  if (c->rest_of == expert)
    return;
  sum_guests(c, c->scatter, expert, &c->returned_rest);
  if (c->rematerialise)
    sum_guests(c, c->gather, expert, &c->gathered_rest);
  c->rest_of = expert;
}

/* exposed(Q) - exposed(P') with the candidate, and what returns. */
static void price_return(hec_calibrate *c, candidate *cand, hec_calibrate_price *price) {
  price->growth_s = price->return_s = 0;
  if (!c->scatter)
    return;
  make_base(c);
  if (!cand->alone)
    make_rest(c, cand->expert);
  double gather_s = 0;
  price->return_s = total_with(c, c->scatter, cand, &c->returned, &c->returned_rest);
  if (c->rematerialise)
    gather_s = total_with(c, c->gather, cand, &c->gathered, &c->gathered_rest);
  price->growth_s = exposed(c, price->return_s, gather_s) - c->base_s;
}

/* What the candidate's gather adds to `added`. */
static hec_spread_pattern added_pattern(hec_calibrate *c, candidate *cand) {
  if (cand->alone && cand->everywhere)
    return c->gather->everywhere[c->home[cand->expert]];
  list_receivers(c, cand);
  return hec_spread_item(c->gather, c->home[cand->expert], c->receivers);
}

static void price_gather(hec_calibrate *c, candidate *cand, hec_calibrate_price *price) {
  hec_spread_pattern pattern = added_pattern(c, cand);
  c->units += (uint64_t)pattern.n;
  price->gather_s = hec_spread_cost_with(c->gather, &c->added, &pattern);
}

/* The candidate's part of the layer model: NULL when nothing of it travels any more. */
static const double *part_with(hec_calibrate *c, candidate *cand) {
  if (cand->everywhere)
    return NULL;
  list_receivers(c, cand);
  for (int32_t w = 0; w < c->n_words; w++)
    c->guests[w] = c->receivers[w] | holds_of(c, cand->expert)[w];
  int32_t n = hec_rank_set_list(c->guests, c->n_words, c->holders);
  hec_layer_model_part(&c->model, cand->expert, c->holders, n, c->part);
  return c->part;
}

static inline double larger(double a, double b) {
  return a > b ? a : b;
}

/* One step: the best expert so far. */
typedef struct {
  objective now;
  int32_t best, halved; /* best: -1 none */
  double score;
  objective after; /* with the best */
} search;

/* (T - T_new) / bytes; with `some` T - T_new. */
static inline double score_of(const hec_calibrate *c, const search *s, double time_s, int32_t n_receivers) {
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
static inline double time_of(const hec_calibrate *c, hec_layer_time layer, const objective *of) {
  if (!c->some)
    return hec_layer_model_total(&c->model, layer) + (of->gather_s + of->growth_s);
  hec_layer_end end = {layer.a2a_s,  layer.compute_s, 2 * layer.compute_s,
                       of->gather_s, of->return_s,    c->scatter ? c->base_s + of->growth_s : 0};
  return hec_calibrate_end_s(c, &end);
}

/* At least this is added to the layer's time: the gather so far, or this expert's alone. */
static inline objective min_added(hec_calibrate *c, const search *s, const candidate *cand) {
  objective min = {.gather_s = s->now.gather_s, .growth_s = s->now.growth_s, .return_s = s->now.return_s};
  if (cand->alone && cand->everywhere && !c->some) /* some of the ranks cost less */
    min.gather_s = larger(min.gather_s, c->gather->everywhere_s[c->home[cand->expert]]);
  if (cand->alone && c->some) /* its first copy is on another node, unless that is full */
    min.gather_s = larger(min.gather_s, c->out_s[c->home[cand->expert]]);
  if (c->scatter &&
      c->n_holders[cand->expert] > 1) { /* more holders may return over another entry: no bound but zero */
    make_base(c);
    min.growth_s = -c->base_s;
    min.return_s = 0;
  }
  return min;
}

/* True when the candidate would be the best so far in a layer that takes so long, or at least so long. */
static bool may_win(const hec_calibrate *c, const search *s, const candidate *cand, hec_layer_time layer,
                    const objective *of) {
  return beats(s, cand->expert, score_of(c, s, time_of(c, layer, of), cand->n_receivers));
}

/* What is kept for a step and a home begins when an expert of it is first looked at. */
static void begin_home(hec_calibrate *c, int32_t home) {
  if (c->begun[home])
    return;
  c->begun[home] = true;
  c->turn_known[home] = false;
  c->out_s[home] = c->all_have_room && c->problem->n_nodes > 1 ? hec_spread_cost_out(c->gather, &c->added, home) : 0;
  for (int32_t i = 0; i < c->n_halvings; i++)
    c->alone[home * c->n_halvings + i] = (hec_calibrate_price){.gather_s = -1, .return_s = -1};
}

/* An upper bound of the expert's score; at most 0 if it cannot be added. */
static double bound_of(hec_calibrate *c, const search *s, int32_t expert) {
  int32_t n = open_to(c, expert, c->receivers);
  if (n == 0)
    return 0;
  begin_home(c, c->home[expert]);
  candidate cand = candidate_of(c, expert, n, 0);
  objective min = min_added(c, s, &cand);
  return score_of(c, s, time_of(c, hec_layer_model_min(&c->model, expert, 1), &min), n);
}

static void set_return(objective *of, const hec_calibrate_price *price) {
  of->growth_s = price->growth_s;
  of->return_s = price->return_s;
}

/* Prices into `of` as long as the candidate may win in a layer that takes `least`. The return of an expert with guests
 * is dear and comes last. */
static bool price(hec_calibrate *c, const search *s, candidate *cand, hec_layer_time least, objective *of) {
  hec_calibrate_price own = {.gather_s = -1, .return_s = -1};
  hec_calibrate_price *price = cand->alone ? &c->alone[c->home[cand->expert] * c->n_halvings + cand->halved] : &own;
  if (price->gather_s < 0)
    price_gather(c, cand, price);
  of->gather_s = price->gather_s;
  if (!cand->alone || !may_win(c, s, cand, least, of))
    return !cand->alone && may_win(c, s, cand, least, of);
  if (price->return_s < 0)
    price_return(c, cand, price);
  set_return(of, price);
  return may_win(c, s, cand, least, of);
}

/* Computes the candidate's score, dearest terms last, and keeps it if it is the best so far. `of` is what it costs at
 * least. */
static void judge_one(hec_calibrate *c, search *s, candidate *cand, hec_layer_time least, objective of) {
  if (!price(c, s, cand, least, &of))
    return;
  hec_layer_time layer = hec_layer_model_time_with(&c->model, cand->expert, part_with(c, cand));
  c->units += (uint64_t)c->model.n_cells / 2;
  if (!may_win(c, s, cand, layer, &of))
    return;
  if (!cand->alone) {
    hec_calibrate_price price;
    price_return(c, cand, &price);
    set_return(&of, &price);
  }
  of.time_s = time_of(c, layer, &of);
  double score = score_of(c, s, of.time_s, cand->n_receivers);
  if (score <= 0 || !beats(s, cand->expert, score))
    return;
  s->score = score;
  s->best = cand->expert;
  s->halved = cand->halved;
  s->after = of;
}

static void judge(hec_calibrate *c, search *s, int32_t expert) {
  int32_t n = open_to(c, expert, c->receivers);
  hec_layer_time least = hec_layer_model_min(&c->model, expert, HEC_LAYER_BUSIEST);
  candidate all = candidate_of(c, expert, n, 0);
  objective min = min_added(c, s, &all);
  double most = score_of(c, s, time_of(c, least, &min), n); /* whoever of them gets it */
  for (int32_t halved = 0; n >> halved > 0 && (halved == 0 || c->some); halved++) {
    candidate cand = candidate_of(c, expert, n, halved);
    c->units++;
    if (beats(s, expert, most))
      judge_one(c, s, &cand, least, min);
  }
}

/* Of the experts that may still win, the one with the largest bound, the lower of equals; -1: none. The others are
 * dropped: the best score only grows. */
static int32_t most_promising(hec_calibrate *c, const search *s, int32_t *n) {
  int32_t kept = 0, best = -1;
  double most = 0;
  for (int32_t i = 0; i < *n; i++) {
    int32_t e = c->hopeful[i];
    double bound = c->bound[e];
    if (bound < s->score || bound <= 0)
      continue;
    c->hopeful[kept++] = e;
    best = bound > most ? e : best;
    most = bound > most ? bound : most;
  }
  *n = kept;
  return best >= 0 && beats(s, best, most) ? best : -1;
}

/* Finds the best expert of a step, with `some` the first that gains; s->best < 0 if none does. By descending bounds, so that
 * most need not be judged. */
static void find_best(hec_calibrate *c, search *s) {
  int32_t n_experts = c->problem->n_experts;
  s->best = -1;
  s->score = 0;
  if (c->some)
    order_ranks(c);
  memset(c->begun, 0, (size_t)c->problem->n_ranks * sizeof *c->begun);
  c->turn_of = -1;
  hec_layer_model_busiest(&c->model);
  int32_t n = hec_layer_model_movers(&c->model, c->hopeful); /* the others change nothing but the prices */
  for (int32_t i = 0; i < n; i++)
    c->bound[c->hopeful[i]] = bound_of(c, s, c->hopeful[i]);
  c->units += (uint64_t)c->model.n_cells + (uint64_t)n_experts;
  int32_t failed = 0;
  for (int32_t e = most_promising(c, s, &n); e >= 0; e = most_promising(c, s, &n)) {
    judge(c, s, e);
    c->bound[e] = 0;
    c->units += (uint64_t)n_experts / 8;
    if (c->some && (s->best >= 0 || ++failed == HEC_CALIBRATE_TRIES))
      break;
  }
}

/* Adds the best expert to everything that is kept. */
static void accept(hec_calibrate *c, search *s) {
  candidate cand = candidate_of(c, s->best, open_to(c, s->best, c->receivers), s->halved);
  list_receivers(c, &cand);
  hec_spread_pattern pattern = added_pattern(c, &cand);
  hec_spread_add(c->gather, &c->added, &pattern);
  hec_layer_model_replace(&c->model, cand.expert, part_with(c, &cand));
  uint64_t *holds = holds_of(c, cand.expert);
  bool had_guests = c->n_holders[cand.expert] > 1;
  int32_t n = hec_rank_set_list(c->receivers, c->n_words, c->holders);
  for (int32_t k = 0; k < n; k++) {
    int32_t r = c->holders[k];
    hec_rank_set_add(holds, r);
    if (++c->n_guests[r] == c->m) {
      hec_rank_set_remove(c->room, r);
      c->all_have_room = false;
    }
  }
  c->n_holders[cand.expert] += n;
  s->now = s->after;
  c->rest_of = -1;
  if (!c->scatter)
    return;
  HEC_ASSERT(c->has_base); /* of P', before this step */
  if (had_guests) {
    sum_guests(c, c->scatter, cand.expert, &c->returned);
    if (c->rematerialise)
      sum_guests(c, c->gather, cand.expert, &c->gathered);
  }
  pattern = pattern_of(c, c->scatter, cand.expert, NULL); /* all its guests are present now */
  hec_spread_add(c->scatter, &c->returned, &pattern);
  if (c->rematerialise) {
    pattern = pattern_of(c, c->gather, cand.expert, NULL);
    hec_spread_add(c->gather, &c->gathered, &pattern);
  }
}

/* Afterwards holds are those of guests. */
static void write_plan(hec_calibrate *c, hec_plan *plan, int32_t layer) {
  int32_t *copy_at = plan->copy_at + (size_t)layer * (size_t)(plan->n_experts + 1), at = 0;
  size_t block = (size_t)layer * (size_t)plan->copy_capacity;
  for (int32_t e = 0; e < plan->n_experts; e++) {
    uint64_t *holds = holds_of(c, e);
    hec_rank_set_remove(holds, c->home[e]);
    at += hec_rank_set_list(holds, c->n_words, plan->copy_rank + block + (size_t)at);
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
  double work_s[2];
  hec_layer_model_work_s(&c->model, work_s);
  hec_layer_end end = {hec_layer_model_time(&c->model).a2a_s,    work_s[0], work_s[1], of->gather_s, of->return_s,
                       c->scatter ? c->base_s + of->growth_s : 0};
  return hec_calibrate_end_s(c, &end);
}

int32_t hec_calibrate_layer(hec_calibrate *c, hec_plan *plan, int32_t layer, const hec_load *load, int32_t m,
                            uint64_t *units) {
  int32_t n_experts = c->problem->n_experts, added = 0;
  c->m = m;
  *units += (uint64_t)n_experts;
  if (!read_holders(c, plan, layer))
    return 0;
  hec_layer_model_set(&c->model, plan, layer, hec_load_row(load, layer, 0), c->holders);
  c->units = (uint64_t)n_experts * (uint64_t)(c->problem->n_ranks + c->model.n_cells);
  hec_spread_clear(c->gather, &c->added);
  c->has_base = false;
  c->rest_of = -1;
  c->window_s = hec_problem_window_s(c->problem, layer);
  if (c->some && c->scatter)
    make_base(c);
  search s = {.now = {.return_s = c->some && c->scatter ? c->base_return_s : 0}};
  s.now.time_s = time_of(c, hec_layer_model_time(&c->model), &s.now);
  double before_s = 0;
  for (; added < n_experts; added++) {
    find_best(c, &s);
    if (s.best < 0)
      break;
    if (c->some && added == 0)
      before_s = whole_s(c, &s.now);
    accept(c, &s);
  }
  *units += c->units;
  if (c->some && added > 0 && !(whole_s(c, &s.now) < before_s))
    return 0;
  if (added > 0)
    write_plan(c, plan, layer);
  return added;
}
