/* Homes, copies and the split of tokens chosen together (this project). No paper.
 *
 * Problem. For each layer it decides three things. Who keeps which expert between iterations (home, resident replicas).
 * Who gets a copy for one micro-batch, before the gate from predicted loads or after it from exact ones. Which holder
 * computes which source's tokens. The layer shall end soonest on the critical path under the schedule (layer_end.h),
 * within memory.
 *
 * Relaxation. Tokens that can be cut anywhere and copies that are free: the mean load, and nothing travels (`ideal`). With copies
 * that cost their bytes: bound_time.c.
 *
 * Heuristic, layer by layer:
 *
 *   rarely        homes and residents: of the present ones and EPLB's placements with 0, 1, 2, 4 .. slots more than experts, with
 *   (period)      replicas anywhere or inside a node, the one whose layer ends soonest on past loads, copies included; if what it
 *                 saves until the next time pays for moving parameters and optimizer state. Not before two records are known
 *   before the    on the mean of past loads: the k hottest experts everywhere, k = 0, 1, 2, 4 .. all, whichever ends soonest; and
 *   gate          from there copies one by one (spill). Again where over 3 % of the expected tokens changed since
 *   after it      on the exact loads: more copies one by one, gathered in line, if that ends the layer sooner than without; and
 *                 the split, plainly local or balanced (min_max.h), whichever ends sooner
 *
 *   spill         the fullest rank's largest expert goes to a rank below the mean, one in the home's node before one whose node
 *                 has the expert before any other, as many tokens as leave neither past the mean; until no rank is above it. Of
 *                 the copies in this order those up to the soonest end are kept.
 *
 * Beside it the lowering tries other rows, and may follow one of them (program/portfolio.h, option `pairs`).
 *
 * Guarantee. Each choice has the plan without it among its candidates. So on the loads that it looks at, a layer is
 * predicted to end no later than under three plans. They are contiguous homes without copies, EPLB's placement as far
 * as moving to it pays, and all experts everywhere. After the gate, it ends no later than under what was decided
 * before it. The prediction is the cost of layer_end.h; what it leaves out is not guaranteed.
 *
 * Known: loads of past micro-batches by source, before the gate; this one's, after it. Work is counted: O(experts * ranks) for
 * each candidate, O(experts + ranks + nodes) for each copy. */
#include "runtime/plan/planners/eplb_core.h"
#include "runtime/plan/planners/guests.h"
#include "runtime/plan/planners/rank_set.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"
#include "runtime/plan/rates.h"

#include <math.h>
#include <string.h>

enum { PLACEMENTS_MAX = 16 };
enum { LANE, HOMES, EARLY, LATE }; /* of policy->own: parts that can be switched off, to see what they are worth */
#define NEAR 0.03                  /* of an end: what gains less is within the error of the prediction */
#define DRIFT 0.25                 /* before any was seen */

typedef struct {
  hec_guests guests;
  int64_t last;         /* iteration of the last placement; -1: none */
  int32_t n_placements; /* EPLB's */
  hec_eplb placement[PLACEMENTS_MAX];
  uint64_t *sum;          /* [n_ranks * n_experts] of past loads */
  uint32_t *mean, *other; /* [n_ranks * n_experts] expected; the same of other experts */
  uint64_t *expected;     /* [n_layers * n_experts] the window's mean at the last decision */
  double *drift;          /* [n_layers] share of tokens that were not expected, lately; < 0: not yet known */
  uint64_t *decided;      /* [n_layers * n_experts] expected when the early guests were chosen; 0: not yet */
  uint64_t *early;        /* [n_layers * n_experts * n_words] their ranks (rank_set.h) */
  int32_t n_words;
  uint64_t *load;                    /* [n_experts] */
  int32_t *home, *best_home;         /* [n_experts] of a candidate */
  uint8_t *resident, *best_resident; /* [n_experts * n_ranks] likewise */
} joint;

/* ---- Memory ---- */

/* Bytes that a rank has left beside what it has with even homes. */
static double bytes_left(const hec_problem *p) {
  double min = p->cluster->devices[0].memory_bytes;
  for (int32_t r = 1; r < p->n_ranks; r++)
    min = p->cluster->devices[r].memory_bytes < min ? p->cluster->devices[r].memory_bytes : min;
  return min - hec_problem_bytes_without_copies(p);
}

/* Copies of `copy` bytes that half of it holds: residents have one half, guests the other. */
static int32_t room_for(const hec_problem *p, double copy) {
  double room = bytes_left(p) / 2 / copy;
  return room < 0 ? 0 : room > p->n_experts ? p->n_experts : (int32_t)room;
}

/* Residents of a rank and layer. */
static int32_t resident_room(const hec_problem *p) {
  double copy = p->bytes.expert_param + (p->train ? p->bytes.expert_grad + p->bytes.expert_optimizer : 0);
  return room_for(p, copy * p->n_layers);
}

/* Guests likewise: of all layers at once, as backward needs them, or, where these would be few, of two layers at a time. */
static int32_t guest_room(const hec_problem *p, bool *rematerialise) {
  enum { FEW = 4 };
  double two = p->n_layers < 2 ? p->n_layers : 2, grads = p->train ? two * p->bytes.expert_grad : 0;
  int32_t all = room_for(p, p->n_layers * p->bytes.expert_param + grads);
  int32_t few = room_for(p, two * p->bytes.expert_param + grads);
  *rematerialise = p->train && all < FEW && all < few;
  int32_t m = p->train && !*rematerialise ? all : few;
  return p->m != HEC_AUTO && p->m < m ? p->m : m;
}

/* ---- Placements ---- */

/* How much of the last record was not expected, by expert, half of it old: a share of tokens. */
static void learn_drift(hec_policy_run *run, joint *state, int32_t layer) {
  int32_t n_experts = run->plan.n_experts;
  uint64_t *expected = state->expected + (size_t)layer * (size_t)n_experts, off = 0, all = 0, was = 0;
  const uint64_t *last = hec_history_row(&run->history, 0, layer);
  for (int32_t e = 0; e < n_experts; e++) {
    off += last[e] > expected[e] ? last[e] - expected[e] : expected[e] - last[e];
    all += last[e];
    was += expected[e];
  }
  if (was == 0 || all == 0)
    return;
  double drift = (double)off / (double)(all + was);
  state->drift[layer] = state->drift[layer] < 0 ? drift : (state->drift[layer] + drift) / 2;
}

static double drift_of(const joint *state, int32_t layer) {
  return state->drift[layer] < 0 ? DRIFT : state->drift[layer];
}

/* Records of the window. */
static int32_t records(const hec_policy_run *run) {
  int32_t n = hec_history_length(&run->history);
  return n < run->policy->window ? n : run->policy->window;
}

/* Of each expert: the mean of the window. */
static void expect(hec_policy_run *run, joint *state, int32_t layer) {
  int32_t n = records(run), n_experts = run->plan.n_experts;
  uint64_t *expected = state->expected + (size_t)layer * (size_t)n_experts;
  learn_drift(run, state, layer);
  hec_history_sum(&run->history, layer, run->policy->window, expected);
  for (int32_t e = 0; e < n_experts; e++)
    expected[e] /= (uint64_t)n;
}

/* The same by source; of the share that drifts, all experts alike. */
static void expect_sources(hec_policy_run *run, joint *state, int32_t layer) {
  int32_t n = records(run), n_experts = run->plan.n_experts;
  hec_history_sum_sources(&run->history, layer, run->policy->window, state->sum);
  for (int32_t r = 0; r < run->plan.n_ranks; r++) {
    const uint64_t *sum = state->sum + (size_t)r * (size_t)n_experts;
    uint32_t *mean = state->mean + (size_t)r * (size_t)n_experts;
    int64_t row = 0;
    for (int32_t e = 0; e < n_experts; e++)
      row += (int64_t)sum[e];
    double drift = drift_of(state, layer), even = drift * (double)row / n_experts;
    for (int32_t e = 0; e < n_experts; e++)
      mean[e] = (uint32_t)(int64_t)(((1 - drift) * (double)(int64_t)sum[e] + even) / n);
  }
  run->units += (uint64_t)run->plan.n_ranks * (uint64_t)n_experts / 2;
}

/* The same loads, of other experts. */
static void expect_others(const hec_policy_run *run, joint *state) {
  int32_t n_experts = run->plan.n_experts;
  for (int32_t r = 0; r < run->plan.n_ranks; r++) {
    const uint32_t *mean = state->mean + (size_t)r * (size_t)n_experts;
    uint32_t *other = state->other + (size_t)r * (size_t)n_experts;
    for (int32_t e = 0, to = 3 % n_experts; e < n_experts; e++) {
      other[to] = mean[e];
      for (to += 7; to >= n_experts;)
        to -= n_experts;
    }
  }
}

static void read_placement(const hec_policy_run *run, joint *state, int32_t layer) {
  const hec_plan *plan = &run->plan;
  memset(state->resident, 0, (size_t)plan->n_experts * (size_t)plan->n_ranks);
  for (int32_t e = 0; e < plan->n_experts; e++) {
    hec_copies copies = hec_plan_copies(plan, layer, e);
    state->home[e] = hec_plan_home(plan, layer, e);
    for (int32_t i = 0; i < copies.n; i++)
      state->resident[e * plan->n_ranks + copies.rank[i]] = copies.kind[i] == HEC_COPY_RESIDENT;
  }
}

/* `copies` of each expert inside units of `unit` ranks, where that divides them. Copy k of the j-th expert of place p in the
 * k-th part of its unit, at place p + k o(j) with shifts o = 0, 1, 2, 4 .. (MicroMoE's placement), so that ranks share
 * experts with many others. */
static void spread_evenly(const hec_policy_run *run, joint *state, int32_t copies, int32_t unit) {
  int32_t n_ranks = run->plan.n_ranks, n_experts = run->plan.n_experts, size = unit / copies, before = 0;
  memset(state->resident, 0, (size_t)n_experts * (size_t)n_ranks);
  for (int32_t e = 0, last = -1; e < n_experts; e++) {
    int32_t all = (int32_t)((int64_t)e * (n_ranks / copies) / n_experts), first = all / size * unit, place = all % size;
    before = all == last ? before + 1 : 0;
    last = all;
    int64_t shift = before == 0 ? 0 : before < 30 ? INT64_C(1) << (before - 1) : before;
    state->home[e] = first + place;
    for (int32_t k = 1; k < copies; k++)
      state->resident[e * n_ranks + first + k * size + (int32_t)((place + k * shift) % size)] = 1;
  }
}

/* EPLB's slots: the present home stays one where it is a holder. */
static void place(const hec_policy_run *run, joint *state, hec_eplb *eplb, int32_t layer) {
  int32_t n_ranks = run->plan.n_ranks, per_rank = eplb->n_slots / n_ranks;
  memset(state->resident, 0, (size_t)run->plan.n_experts * (size_t)n_ranks);
  hec_eplb_place(eplb, state->load);
  for (int32_t i = 0; i < eplb->n_slots; i++)
    state->resident[eplb->slot[i] * n_ranks + i / per_rank] = 1;
  for (int32_t e = 0; e < run->plan.n_experts; e++) {
    uint8_t *holds = state->resident + (size_t)e * (size_t)n_ranks;
    int32_t home = hec_plan_home(&run->plan, layer, e);
    for (int32_t r = 0; !holds[home] && r < n_ranks; r++)
      home = holds[r] ? r : home;
    state->home[e] = home;
    holds[home] = 0;
  }
}

/* Seconds to bring about a placement: what comes to the fullest rank, over its share of the network. */
static double moving_s(const hec_policy_run *run, const joint *state, int32_t layer) {
  const hec_problem *p = run->problem;
  double bytes = p->bytes.expert_param + (p->train ? p->bytes.expert_optimizer : 0), max = 0;
  for (int32_t r = 0; r < p->n_ranks; r++) {
    double come = 0;
    for (int32_t e = 0; e < p->n_experts; e++) {
      bool holds = state->home[e] == r || state->resident[e * p->n_ranks + r];
      bool held = hec_plan_home(&run->plan, layer, e) == r;
      hec_copies copies = hec_plan_copies(&run->plan, layer, e);
      for (int32_t i = 0; holds && !held && i < copies.n; i++)
        held = copies.kind[i] == HEC_COPY_RESIDENT && copies.rank[i] == r;
      come += holds && !held;
    }
    max = come > max ? come : max;
  }
  return max * bytes / hec_rates_of(p).rank;
}

static double try_on(hec_policy_run *run, joint *state, int32_t layer, const uint32_t *counts) {
  hec_layer_end_place(&state->guests.end, layer, counts, state->home, state->resident);
  double s = hec_guests_choose(&state->guests);
  run->units += state->guests.end.units;
  return s;
}

/* On what is expected, and on the same loads of other experts: a placement lasts, and loads change. Loads that have nothing to
 * do with each other differ by about half of the tokens. Above `max` at least that: then the rest is not tried. */
static double try_placement(hec_policy_run *run, joint *state, int32_t layer, double max) {
  double other = 2 * drift_of(state, layer);
  other = other > 1 ? 1 : other;
  hec_layer_end_place(&state->guests.end, layer, state->mean, state->home, state->resident);
  run->units += state->guests.end.units;
  double least = hec_layer_end_min(&state->guests.end);
  if (least > max)
    return least;
  double mean_s = try_on(run, state, layer, state->mean), s = (1 - other) * mean_s + other * least;
  return s > max ? s : (1 - other) * mean_s + other * try_on(run, state, layer, state->other);
}

static void write_placement(hec_policy_run *run, const joint *state, int32_t layer) {
  hec_plan *plan = &run->plan;
  hec_plan_clear_copies(plan, layer);
  for (int32_t e = 0; e < plan->n_experts; e++) {
    hec_plan_set_home(plan, layer, e, state->home[e]);
    for (int32_t r = 0; r < plan->n_ranks; r++)
      if (state->resident[e * plan->n_ranks + r] && r != state->home[e])
        hec_plan_add_copy(plan, layer, e, r, HEC_COPY_RESIDENT);
  }
}

static void sum_loads(const hec_policy_run *run, joint *state) {
  int32_t n_experts = run->plan.n_experts;
  memset(state->load, 0, (size_t)n_experts * sizeof *state->load);
  for (int32_t r = 0; r < run->plan.n_ranks; r++)
    for (int32_t e = 0; e < n_experts; e++)
      state->load[e] += state->mean[r * n_experts + e];
}

/* Whether the layer is placed anew. A placement that could not pay however the layer is split is not tried. */
static bool replace(hec_policy_run *run, joint *state, int32_t layer) {
  size_t n_experts = (size_t)run->plan.n_experts, cells = n_experts * (size_t)run->plan.n_ranks;
  expect_others(run, state);
  read_placement(run, state, layer);
  double now_s = try_placement(run, state, layer, INFINITY), best = 0, period = hec_policy_period(run);
  bool found = false;
  sum_loads(run, state);
  for (int32_t i = 0; i < state->n_placements; i++) {
    place(run, state, &state->placement[i], layer);
    run->units += state->placement[i].units;
    double move_s = moving_s(run, state, layer);
    double s = try_placement(run, state, layer, now_s - (best + move_s) / period);
    double gain = (now_s - s) * period - move_s;
    if (gain <= best)
      continue;
    best = gain;
    found = true;
    memcpy(state->best_home, state->home, n_experts * sizeof *state->home);
    memcpy(state->best_resident, state->resident, cells);
  }
  if (!found)
    return false;
  memcpy(state->home, state->best_home, n_experts * sizeof *state->home);
  memcpy(state->resident, state->best_resident, cells);
  write_placement(run, state, layer);
  return true;
}

/* ---- Decisions ---- */

/* Late guests beside what the plan has. */
static void write_late(hec_policy_run *run, const joint *state, int32_t layer) {
  const hec_layer_end *end = &state->guests.end;
  for (int32_t e = 0; e < run->plan.n_experts; e++)
    for (int32_t r = 0; end->late.all[e] > 0 && r < run->plan.n_ranks; r++)
      if (end->held[e * run->plan.n_ranks + r] == HEC_HELD_LATE)
        hec_plan_add_copy(&run->plan, layer, e, r, HEC_COPY_GUEST);
}

static uint64_t *early_of(const joint *state, int32_t layer, int32_t expert) {
  return state->early + ((size_t)layer * (size_t)state->guests.end.n_experts + (size_t)expert) * (size_t)state->n_words;
}

/* Early guests stay as they are while what is expected has hardly changed since they were chosen. */
static bool is_as_decided(const joint *state, int32_t layer) {
  size_t n = (size_t)state->guests.end.n_experts;
  const uint64_t *now = state->expected + (size_t)layer * n, *then = state->decided + (size_t)layer * n;
  uint64_t off = 0, all = 0;
  for (size_t e = 0; e < n; e++) {
    off += now[e] > then[e] ? now[e] - then[e] : then[e] - now[e];
    all += now[e];
  }
  return (double)off < NEAR * (double)all;
}

static void choose_early(hec_policy_run *run, joint *state, int32_t layer) {
  const hec_layer_end *end = &state->guests.end;
  size_t n = (size_t)run->plan.n_experts;
  (void)try_on(run, state, layer, state->mean);
  memcpy(state->decided + (size_t)layer * n, state->expected + (size_t)layer * n, n * sizeof *state->decided);
  memset(early_of(state, layer, 0), 0, n * (size_t)state->n_words * sizeof *state->early);
  for (int32_t e = 0; run->policy->own[EARLY] > 0 && e < run->plan.n_experts; e++)
    for (int32_t r = 0; end->n_held[e] > 1 && r < run->plan.n_ranks; r++)
      if (end->held[(size_t)e * (size_t)run->plan.n_ranks + (size_t)r] == HEC_HELD_EARLY)
        hec_rank_set_add(early_of(state, layer, e), r);
}

/* The layer's copies: residents and early guests. */
static void write_copies(hec_policy_run *run, const joint *state, int32_t layer) {
  hec_plan *plan = &run->plan;
  int32_t *copy_at = plan->copy_at + (size_t)layer * (size_t)(plan->n_experts + 1), at = 0;
  int32_t *ranks = plan->copy_rank + (size_t)layer * (size_t)plan->copy_capacity;
  uint8_t *kinds = plan->copy_kind + (size_t)layer * (size_t)plan->copy_capacity;
  for (int32_t e = 0; e < plan->n_experts; e++) {
    const uint8_t *resident = state->resident + (size_t)e * (size_t)plan->n_ranks;
    const uint64_t *early = early_of(state, layer, e);
    bool any = hec_rank_set_size(early, state->n_words) > 0 || memchr(resident, 1, (size_t)plan->n_ranks);
    for (int32_t r = 0; any && r < plan->n_ranks; r++) {
      if (!resident[r] && !hec_rank_set_has(early, r))
        continue;
      HEC_ASSERT(at < plan->copy_capacity);
      ranks[at] = r;
      kinds[at++] = resident[r] ? HEC_COPY_RESIDENT : HEC_COPY_GUEST;
    }
    copy_at[e + 1] = at;
  }
}

static void decide(hec_policy_run *run) {
  joint *state = run->state;
  state->guests.end.link = &run->link;
  hec_quota_clear(&run->plan);
  if (hec_history_length(&run->history) == 0 || run->problem->n_ranks == 1)
    return;
  bool moved = false,
       due = hec_history_length(&run->history) > 1 && hec_policy_due(run, &state->last); /* drift is known */
  for (int32_t layer = 0; layer < run->plan.n_layers; layer++) {
    expect(run, state, layer);
    bool anew = due && run->policy->own[HOMES] > 0, early = !is_as_decided(state, layer);
    if (anew || early)
      expect_sources(run, state, layer);
    uint64_t before = run->units;
    anew = anew && replace(run, state, layer);
    moved = moved || anew;
    run->units_once += run->units - before;
    read_placement(run, state, layer);
    if (anew || early)
      choose_early(run, state, layer);
    write_copies(run, state, layer);
  }
  run->plan.version += moved;
  run->planned = true;
}

static void refine(hec_policy_run *run, int32_t layer, const hec_load *load) {
  joint *state = run->state;
  hec_layer_end *end = &state->guests.end;
  end->link = &run->link;
  if (run->problem->n_ranks == 1)
    return;
  hec_layer_end_set(end, &run->plan, layer, hec_load_row(load, layer, 0));
  hec_layer_times times = hec_guests_split(&state->guests);
  if (run->policy->own[LATE] > 0 && state->guests.m > 0 &&
      hec_layer_end_hope(end, &times, 0) < (1 - NEAR) * times.end_s) {
    times = hec_guests_hold_late(&state->guests, times);
    (void)hec_guests_spill(&state->guests, &times, state->guests.m, HEC_HELD_LATE);
  }
  state->guests.plain = false;
  write_late(run, state, layer);
  hec_quota_writer writer = hec_quota_begin(&run->plan, layer);
  hec_layer_end_quotas(end, &writer);
  run->units = end->units;
  run->planned = true;
}

/* ---- Start ---- */

/* Before any load is known: loads that fall with the square root of an expert's place, places in no order. */
static void expect_skew(const hec_policy_run *run, joint *state) {
  const hec_problem *p = run->problem;
  double sum = 0, assignments = (double)p->tokens * p->top_k;
  for (int32_t i = 0; i < p->n_experts; i++)
    sum += 1 / sqrt(1 + i);
  for (int32_t r = 0; r < p->n_ranks; r++)
    for (int32_t e = 0; e < p->n_experts; e++)
      state->mean[r * p->n_experts + e] = (uint32_t)(assignments / sum / sqrt(1 + (7 * e + 3) % p->n_experts));
}

/* 1, 2, 4 .. copies of everything as memory allows, anywhere or on one node, whichever ends the layer soonest then: writes that. */
static void place_first(hec_policy_run *run, joint *state, int32_t room, int32_t layer) {
  const hec_problem *p = run->problem;
  int32_t node = p->n_ranks % p->n_nodes == 0 ? p->n_ranks / p->n_nodes : p->n_ranks, best = 1, best_unit = p->n_ranks;
  double best_s = 0;
  for (int32_t copies = 1; p->n_ranks % copies == 0 && copies <= p->n_ranks; copies *= 2) {
    int32_t slots = (p->n_experts + p->n_ranks / copies - 1) / (p->n_ranks / copies);
    if (copies > 1 && slots > room)
      break;
    for (int32_t unit = p->n_ranks; unit > 0; unit = unit > node && copies > 1 && node % copies == 0 ? node : 0) {
      spread_evenly(run, state, copies, unit);
      double s = try_on(run, state, layer, state->mean);
      if (copies > 1 && s >= (1 - NEAR) * best_s)
        continue;
      best = copies;
      best_unit = unit;
      best_s = s;
    }
  }
  spread_evenly(run, state, best, best_unit);
}

/* It costs nothing: nobody had to move. The first layer hides less than the others, which are alike. */
static void first_placement(hec_policy_run *run, joint *state, int32_t room) {
  int32_t last = run->plan.n_layers - 1;
  expect_skew(run, state);
  for (int32_t l = 0; l <= last; l++) {
    if (l <= 1)
      place_first(run, state, room, l);
    write_placement(run, state, l);
  }
}

/* EPLB's groups of experts, four or more of which make a node's, where it keeps replicas inside nodes; 0: it cannot. */
static int32_t groups_of(const hec_problem *p) {
  int32_t groups = p->n_nodes;
  if (p->n_nodes == 1 || p->n_ranks % p->n_nodes != 0 || p->n_experts % p->n_nodes != 0 ||
      p->n_ranks != p->n_nodes * p->cluster->devices_per_node)
    return 0;
  while (groups < 4 * p->n_nodes && p->n_experts % (2 * groups) == 0)
    groups *= 2;
  return groups;
}

static void init(hec_policy_run *run) {
  const hec_problem *p = run->problem;
  hec_arena *arena = run->arena;
  size_t ranks = (size_t)p->n_ranks, experts = (size_t)p->n_experts;
  joint *state = HEC_NEW(arena, joint, 1);
  *state = (joint){.guests = hec_guests_new(arena, p, run->hides),
                   .last = -1,
                   .sum = HEC_NEW(arena, uint64_t, ranks * experts),
                   .mean = HEC_NEW(arena, uint32_t, ranks * experts),
                   .expected = HEC_NEW(arena, uint64_t, (size_t)p->n_layers * experts),
                   .drift = HEC_NEW(arena, double, p->n_layers),
                   .decided = HEC_NEW(arena, uint64_t, (size_t)p->n_layers * experts),
                   .n_words = hec_rank_set_words(p->n_ranks),
                   .other = HEC_NEW(arena, uint32_t, ranks * experts),
                   .load = HEC_NEW(arena, uint64_t, experts),
                   .home = HEC_NEW(arena, int32_t, experts),
                   .best_home = HEC_NEW(arena, int32_t, experts),
                   .resident = HEC_NEW(arena, uint8_t, experts * ranks),
                   .best_resident = HEC_NEW(arena, uint8_t, experts * ranks)};
  size_t words = (size_t)p->n_layers * experts * (size_t)state->n_words;
  state->early = HEC_NEW(arena, uint64_t, words);
  state->guests.m = guest_room(p, &run->plan.rematerialise);
  state->guests.end.regathers = run->plan.rematerialise;
  if (run->policy->own[LANE] > 0)
    state->guests.end.head_s =
        hec_link_cost_allreduce(p->cluster, p->n_ranks, hec_problem_head_gradients(p)) / p->n_layers;
  int32_t share = hec_problem_share(p), room = resident_room(p);
  int32_t groups = groups_of(p);
  for (int32_t extra = 0; extra <= room && share + extra <= p->n_experts && state->n_placements + 2 <= PLACEMENTS_MAX;
       extra = extra == 0 ? 1 : 2 * extra) {
    int32_t n_slots = (share + extra) * p->n_ranks;
    state->placement[state->n_placements++] = hec_eplb_new(arena, p->n_experts, n_slots, 1, 1, p->n_ranks);
    if (groups > 0)
      state->placement[state->n_placements++] =
          hec_eplb_new(arena, p->n_experts, n_slots, groups, p->n_nodes, p->n_ranks);
  }
  run->state = state;
  hec_policy_keep(run, &state->last, sizeof state->last);
  hec_policy_keep(run, state->expected, (size_t)p->n_layers * experts * sizeof *state->expected);
  hec_policy_keep(run, state->drift, (size_t)p->n_layers * sizeof *state->drift);
  hec_policy_keep(run, state->decided, (size_t)p->n_layers * experts * sizeof *state->decided);
  hec_policy_keep(run, state->early, words * sizeof *state->early);
  state->guests.end.link = &run->link;
  first_placement(run, state, room);
  hec_quota_reserve(&run->plan, arena, p->n_experts * 4 * p->n_ranks);
  for (int32_t l = 0; l < p->n_layers; l++) {
    run->m[l] = state->guests.m;
    state->drift[l] = -1;
  }
}

static const hec_option options[] = {
    HEC_POLICY_WINDOW(),
    HEC_POLICY_PERIOD(),
    HEC_POLICY_M(),
    HEC_POLICY_INT("pairs", portfolio, 0, 12,
                   .help = "pairs of another row and a schedule that it keeps to follow; 0: none"),
    HEC_POLICY_WHOLE("lane", LANE, 0, 1,
                     .help = "1: expects the head's gradients before those of copies; 0: expects none"),
    HEC_POLICY_WHOLE("homes", HOMES, 0, 1, .help = "1: homes and residents are placed by past loads; 0: they stay"),
    HEC_POLICY_WHOLE("early", EARLY, 0, 1, .help = "1: copies before the gate, too; 0: none"),
    HEC_POLICY_WHOLE("late", LATE, 0, 1, .help = "1: copies after the gate, too; 0: none"),
    {0}};

const hec_policy hec_policy_joint = {
    .name = "joint",
    .fills = {.any = true},
    .summary = "Homes, copies before and after the gate, and the split of tokens are chosen together. The aim is that "
               "the layer ends soonest.",
    .source = "this project",
    .known = HEC_KNOWN_EXACT,
    .schedule = "joint",
    .dispatch = &hec_dispatch_quota,
    .relays = true,
    .by_schedule = true,
    .portfolio = 12,
    .window = 2,
    .by_source = true,
    .all_ranks = true,
    .period = 100,
    .rearranges = true,
    .options = options,
    .varies = true,
    .own = {[LANE] = 1, [HOMES] = 1, [EARLY] = 1, [LATE] = 1},
    .init = init,
    .decide = decide,
    .refine = refine,
};
