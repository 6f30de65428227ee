/* See the header. O(experts * ranks) for a split and its times, O(experts + ranks + nodes) for a copy. */
#include "runtime/plan/planners/guests.h"

#include "runtime/plan/planners/order.h"
#include "runtime/plan/problem.h"

#include <string.h>

hec_guests hec_guests_new(hec_arena *arena, const hec_problem *p, hec_hiding hides) {
  size_t ranks = (size_t)p->n_ranks, experts = (size_t)p->n_experts;
  return (hec_guests){.end = hec_layer_end_new(arena, p, hides),
                      .load = HEC_NEW(arena, uint64_t, experts),
                      .key = HEC_NEW(arena, double, experts),
                      .order = HEC_NEW(arena, int32_t, experts),
                      .moves = HEC_NEW(arena, hec_guest_move, experts * ranks),
                      .full = HEC_NEW(arena, bool, ranks),
                      .none = hec_layer_kept_new(arena, p),
                      .best = hec_layer_kept_new(arena, p)};
}

static uint32_t *tokens_at(hec_guests *state, int32_t expert, int32_t rank) {
  return &state->end.tokens[(size_t)expert * (size_t)state->end.n_ranks + (size_t)rank];
}

static uint8_t held_at(const hec_guests *state, int32_t expert, int32_t rank) {
  return state->end.held[(size_t)expert * (size_t)state->end.n_ranks + (size_t)rank];
}

static int32_t fullest(const hec_guests *state, uint64_t *max) {
  int32_t best = -1;
  *max = 0;
  for (int32_t r = 0; r < state->end.n_ranks; r++) {
    uint64_t load = state->end.load[r];
    *max = load > *max ? load : *max;
    if (!state->full[r] && (best < 0 || load > state->end.load[best]))
      best = r;
  }
  return best;
}

/* The expert with most tokens on the rank, fewer than `below`. */
static int32_t largest_on(hec_guests *state, int32_t rank, uint32_t below) {
  int32_t best = -1;
  for (int32_t e = 0; e < state->end.n_experts; e++) {
    uint32_t n = *tokens_at(state, e, rank);
    if (n > 0 && n < below && (best < 0 || n > *tokens_at(state, best, rank)))
      best = e;
  }
  return best;
}

/* Where a copy of the expert costs least and takes most, -1: nowhere. */
static int32_t place_for(const hec_guests *state, int32_t expert, uint64_t mean, uint64_t wanted) {
  const hec_layer_end *end = &state->end;
  const hec_problem *p = end->problem;
  int32_t best = -1, best_class = 0, home = hec_problem_node(p, end->home[expert]);
  for (int32_t r = 0; r < end->n_ranks; r++) {
    if (end->load[r] >= mean || end->n_guests[r] >= state->room || held_at(state, expert, r) != HEC_HELD_NOT)
      continue;
    int32_t node = hec_problem_node(p, r);
    bool there = end->all.copies[expert * p->n_nodes + node] > 0, enough = 2 * (mean - end->load[r]) >= wanted;
    int32_t class = !enough ? 3 : node == home ? 0 : there ? 1 : 2;
    if (state->spread && class < 3)
      class = 2 - class;
    if (best < 0 || class < best_class || (class == best_class && end->load[r] < end->load[best])) {
      best = r;
      best_class = class;
    }
  }
  return best;
}

/* The next guest, by which neither rank passes the mean; false: there is none. */
static bool next_spill(hec_guests *state, uint64_t mean, uint64_t min, hec_guest_move *move) {
  hec_layer_end *end = &state->end;
  uint64_t max;
  for (int32_t r; (r = fullest(state, &max)) >= 0 && end->load[r] > mean; state->full[r] = true) {
    uint64_t over = end->load[r] - mean;
    for (int32_t e = -1, tried = 0; over >= min && tried < 4; tried++) {
      e = largest_on(state, r, e < 0 ? UINT32_MAX : *tokens_at(state, e, r));
      end->units += (uint64_t)(end->n_experts + end->n_ranks) / 4;
      if (e < 0)
        break;
      uint64_t wanted = over < *tokens_at(state, e, r) ? over : *tokens_at(state, e, r);
      int32_t to = place_for(state, e, mean, wanted);
      if (to < 0)
        continue;
      uint64_t room = mean - end->load[to], n = wanted < room ? wanted : room;
      if (n < min)
        continue;
      *move = (hec_guest_move){.expert = e, .from = r, .to = to, .tokens = (uint32_t)n};
      return true;
    }
  }
  return false;
}

static void apply(hec_guests *state, const hec_guest_move *move, hec_held held) {
  bool back = held == HEC_HELD_NOT;
  uint32_t n = back ? (uint32_t) - (int32_t)move->tokens : move->tokens; /* unsigned arithmetic wraps */
  hec_layer_end_hold(&state->end, move->expert, move->to, held);
  *tokens_at(state, move->expert, move->from) -= n;
  *tokens_at(state, move->expert, move->to) += n;
  state->end.load[move->from] += back ? move->tokens : -(uint64_t)move->tokens;
  state->end.load[move->to] += back ? -(uint64_t)move->tokens : move->tokens;
}

/* Guests of `held` one by one, at most `room` on a rank, from the split as it is, whose times are `times`. Those up to the soonest
 * end stay, if it is sooner. Returns it. */
double hec_guests_spill(hec_guests *state, const hec_layer_times *times, int32_t room, hec_held held) {
  hec_layer_end *end = &state->end;
  uint64_t all = 0, before, max;
  memset(state->full, 0, (size_t)end->n_ranks * sizeof *state->full);
  for (int32_t r = 0; r < end->n_ranks; r++)
    all += end->load[r];
  uint64_t mean = (all + (uint64_t)end->n_ranks - 1) / (uint64_t)end->n_ranks, min = mean / 32 + 1;
  (void)fullest(state, &before);
  state->room = room;
  state->spread = 2 * times->travel_s > times->forward_s;
  double best_s = times->end_s;
  int32_t n = 0, kept = 0;
  for (hec_guest_move move; n < end->n_experts * end->n_ranks && next_spill(state, mean, min, &move);) {
    apply(state, &move, held);
    state->moves[n++] = move;
    (void)fullest(state, &max);
    double s = hec_layer_end_with(end, times, before, max);
    end->units += (uint64_t)(end->n_ranks + end->problem->n_nodes);
    if (s < best_s) {
      best_s = s;
      kept = n;
    }
  }
  while (n > kept)
    apply(state, &state->moves[--n], HEC_HELD_NOT);
  if (kept == 0)
    return times->end_s;
  best_s = hec_layer_end_times(end).end_s;
  while (best_s >= times->end_s && n > 0)
    apply(state, &state->moves[--n], HEC_HELD_NOT);
  return best_s < times->end_s ? best_s : times->end_s;
}

/* Experts by descending load. */
static void sum_totals(hec_guests *state) {
  int32_t n = state->end.n_experts;
  for (int32_t e = 0; e < n; e++)
    state->load[e] = state->end.total[e];
  hec_order_loads(state->load, n, state->key, state->order);
  state->end.units += (uint64_t)n;
}

/* The k hottest everywhere. */
static void hold_everywhere(hec_guests *state, int32_t from, int32_t k, hec_held held) {
  state->everywhere = held == HEC_HELD_NOT ? state->everywhere : held;
  for (int32_t i = from; i < k; i++)
    hec_layer_end_hold_all(&state->end, state->order[i], held == HEC_HELD_NOT ? state->everywhere : HEC_HELD_NOT, held);
}

static hec_layer_times split_evenly(hec_guests *state) {
  hec_layer_end_split(&state->end);
  if (!state->plain)
    hec_layer_end_balance(&state->end);
  return hec_layer_end_times(&state->end);
}

static bool is_everywhere(const hec_guests *state, int32_t expert) {
  return state->end.n_held[expert] == state->end.n_ranks;
}

/* Share of tokens whose experts are not everywhere. */
static double moving_share(const hec_guests *state) {
  double all = 0, moves = 0;
  for (int32_t e = 0; e < state->end.n_experts; e++) {
    all += state->end.total[e];
    moves += is_everywhere(state, e) ? 0 : state->end.total[e];
  }
  return all > 0 ? moves / all : 0;
}

/* Of the experts that are not, the hottest everywhere after the gate: 1, 3, 7 .. as long as the layer ends sooner; its times. */
hec_layer_times hec_guests_hold_late(hec_guests *state, hec_layer_times times) {
  hec_layer_end *end = &state->end;
  const hec_layer_times none = times;
  const double moving = moving_share(state);
  int32_t room = state->m, at = 0;
  for (int32_t r = 0; r < end->n_ranks; r++)
    room = state->m - end->n_guests[r] < room ? state->m - end->n_guests[r] : room;
  sum_totals(state);
  for (int32_t step = 1; at < end->n_experts && room > 0 && moving > 0; step *= 2) {
    int32_t first = at, n = 0;
    for (; at < end->n_experts && n < step && room > 0; at++)
      if (!is_everywhere(state, state->order[at])) {
        hold_everywhere(state, at, at + 1, HEC_HELD_LATE);
        n++;
        room--;
      }
    if (hec_layer_end_hope(end, &none, moving_share(state) / moving) < times.end_s) {
      hec_layer_end_keep_split(end, &state->best);
      hec_layer_times with = split_evenly(state);
      if (with.end_s < times.end_s) {
        times = with;
        continue;
      }
      hec_layer_end_take_back_split(end, &state->best);
    }
    hold_everywhere(state, first, at, HEC_HELD_NOT);
    break;
  }
  return times;
}

/* Early guests for the loads at hand; returns the end that is expected with them. */
double hec_guests_choose(hec_guests *state) {
  hec_layer_end *end = &state->end;
  hec_layer_times times = split_evenly(state), none = times;
  const double moving = moving_share(state);
  int32_t best_k = 0, k = 0,
          m = state->m < end->n_experts ? (state->m + 1) / 2 : state->m; /* the rest: after the gate */
  if (m == 0)
    return times.end_s;
  sum_totals(state);
  hec_layer_end_keep(end, &state->none);
  for (int32_t next = 1; next <= m && k < end->n_experts; next *= 4) {
    int32_t from = k;
    k = 4 * next > m ? m : next;
    hold_everywhere(state, from, k, HEC_HELD_EARLY);
    end->units += (uint64_t)((k - from) * end->n_ranks);
    if (hec_layer_end_hope(end, &none, moving > 0 ? moving_share(state) / moving : 0) >= times.end_s)
      continue;
    hec_layer_times with = split_evenly(state);
    if (with.end_s >= times.end_s)
      continue;
    times = with;
    best_k = k;
    hec_layer_end_keep(end, &state->best);
  }
  double everywhere_s = none.end_s;
  if (best_k > 0) {
    hec_layer_end_take_back(end, &state->best);
    everywhere_s = hec_guests_spill(state, &times, m, HEC_HELD_EARLY);
    hec_layer_end_keep(end, &state->best);
  }
  hec_layer_end_take_back(end, &state->none);
  double some_s = hec_guests_spill(state, &none, m, HEC_HELD_EARLY);
  if (best_k == 0 || some_s <= everywhere_s)
    return some_s;
  hec_layer_end_take_back(end, &state->best);
  return everywhere_s;
}

/* Plain or balanced, whichever ends sooner; later splits are likewise. */
hec_layer_times hec_guests_split(hec_guests *state) {
  hec_layer_end_split(&state->end);
  hec_layer_times plain = hec_layer_end_times(&state->end);
  hec_layer_end_balance(&state->end);
  hec_layer_times balanced = hec_layer_end_times(&state->end);
  state->plain = plain.end_s <= balanced.end_s;
  if (state->plain)
    hec_layer_end_split(&state->end);
  return state->plain ? plain : balanced;
}
