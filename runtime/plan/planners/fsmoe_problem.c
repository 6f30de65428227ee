/* On balanced loads a rank sends k T assignments, 1/ep of them to each expert-sharding group of its expert-parallel group. As
 * many arrive. Each of the esp ranks of a group gathers what arrived at all of them. It computes its shard of ceil(E / ep)
 * experts over that. Of one chunk of r:
 *
 *   a2a      closed form of an exchange of k T token / (ep r) bytes from every rank to its like in every group
 *   gather   closed form of an exchange of k T token / r bytes between all pairs of each expert-sharding group
 *   scatter  the same, and the addition of esp parts of k T token / r bytes
 *   experts  max over ranks of ceil(E/ep) * gemm(k T esp / (ceil(E/ep) r))
 *
 * FSMoE fits lines to measured times. Here the line is the law's secant between degrees 1 and 8: volume = (t(1) - t(8))
 * 8/7, start = t(1) - volume, neither below 0. Tiles and weight streaming bend it; the simulator has the law itself.
 * The all-reduce likewise, between a block's gradients and an eighth of them. With tensor parallelism (problem.mp) a
 * block's gradients are both parts of a rank, in proportion. Its dense part takes an AllGather and a ReduceScatter
 * more. Gradients travel beside those, too, unless they wait in line behind them (folded). O(R (ep + mp)).
 *
 * FSMoE chooses the degrees of forward and backward apart. Here they are one, because what forward keeps for backward lies
 * chunk by chunk. It is the degree with the smallest sum, the gradients divided for it. runtime/program/fsmoe.c says what two
 * degrees would take and save. */
#include "runtime/plan/planners/fsmoe_problem.h"

#include "models/link_cost.h"
#include "runtime/plan/problem.h"

#include <string.h>

#define ENDS HEC_FSMOE_DEGREE_MAX

static hec_fsmoe_op line_of(double whole_s, double eighth_s) {
  double volume = (whole_s - eighth_s) * ENDS / (ENDS - 1);
  volume = volume < 0 ? 0 : volume > whole_s ? whole_s : volume;
  return (hec_fsmoe_op){whole_s - volume, volume};
}

typedef struct {
  const hec_problem *problem;
  hec_link_cost *cost;
  hec_transfer *transfers;
} wires;

/* `bytes` from every rank to each of `n` others: from.first, from.first + from.step ... */
static double exchange_s(const wires *w, double bytes, bool inside) {
  const hec_problem *p = w->problem;
  int32_t n = 0, step = inside ? 1 : p->esp, count = inside ? p->esp : p->ep;
  for (int32_t s = 0; s < p->n_ranks; s++) {
    int32_t width = step * count, first = s / width * width + (inside ? 0 : s % p->esp);
    for (int32_t i = 0; i < count; i++)
      if (first + i * step != s && bytes >= 1)
        w->transfers[n++] = (hec_transfer){
            .bytes = (int64_t)bytes, .source = s, .destination = first + i * step, .item = -1, .after = -1};
  }
  return n > 0 ? hec_link_cost_exchange(w->cost, w->transfers, n, false, 1) : 0;
}

/* The slowest rank's time of `times` products of `rows` rows. */
static double compute_s(const hec_problem *p, hec_work_shape shape, double rows, int32_t times) {
  double max = 0;
  for (int32_t r = 0; r < p->n_ranks; r++) {
    double s = times * hec_work_s(&p->cluster->devices[r], &shape, rows);
    max = s > max ? s : max;
  }
  return max;
}

static double local_s(const hec_problem *p, double bytes) {
  double max = 0;
  for (int32_t r = 0; r < p->n_ranks; r++) {
    double s = hec_local_s(&p->cluster->devices[r], HEC_CURVE_NONE, false, bytes);
    max = s > max ? s : max;
  }
  return max;
}

/* What tensor parallelism adds to the backward of a block's dense part: AllGather, ReduceScatter and its addition, twice with
 * recomputation. */
static double tensor_s(const wires *w) {
  const hec_problem *p = w->problem;
  double rows = (double)p->tokens * p->bytes.token;
  int32_t n = 0;
  for (int32_t s = 0; s < p->n_ranks; s++)
    for (int32_t d = s / p->mp * p->mp, end = d + p->mp; d < end; d++)
      if (d != s && rows >= 1)
        w->transfers[n++] =
            (hec_transfer){.bytes = (int64_t)rows, .source = s, .destination = d, .item = -1, .after = -1};
  double once = n > 0 ? 2 * hec_link_cost_exchange(w->cost, w->transfers, n, false, 1) : 0;
  once += n > 0 ? local_s(p, (p->mp + 1) * rows) : 0;
  return p->moe->recompute ? 2 * once : once;
}

static hec_fsmoe_op experts_of(const hec_problem *p, bool backward) {
  int32_t experts = hec_problem_share(p);
  double rows = (double)p->tokens * p->top_k * p->esp / experts;
  hec_work_shape shape = backward ? hec_work_backward_of(p->moe, p->expert) : p->expert;
  return line_of(compute_s(p, shape, rows, experts), compute_s(p, shape, rows / ENDS, experts));
}

/* unpermute', permute', shared', gate', attention' of a block. */
static double dense_s(const hec_problem *p) {
  double assigned = (double)p->tokens * p->top_k * p->bytes.token, s = 2 * local_s(p, 2 * assigned);
  s += compute_s(p, hec_work_backward_of(p->moe, hec_work_gate(p->moe)), p->tokens, 1);
  s += compute_s(p, hec_work_backward_of(p->moe, hec_problem_attention(p, false)), (double)p->mp * p->tokens, 1);
  if (p->moe->n_shared_experts > 0)
    s += compute_s(p, hec_work_backward_of(p->moe, hec_work_shared(p->moe)), p->tokens, 1);
  return s;
}

hec_fsmoe_view hec_fsmoe_view_of(const hec_problem *p, hec_arena *arena) {
  hec_arena_mark mark = hec_arena_save(arena);
  int32_t widest = p->ep > p->esp ? p->ep : p->esp;
  size_t pairs = (size_t)p->n_ranks * (size_t)(widest > p->mp ? widest : p->mp);
  hec_link_cost cost = hec_link_cost_new(p->cluster, arena);
  wires w = {p, &cost, HEC_NEW(arena, hec_transfer, pairs)};
  double rows = (double)p->tokens * p->top_k * p->bytes.token, sent = rows / p->ep;
  hec_fsmoe_view view = {.gradient = hec_problem_gradients(p, 0)};
  view.forward.a2a = line_of(exchange_s(&w, sent, false), exchange_s(&w, sent / ENDS, false));
  if (p->esp > 1) {
    double whole = exchange_s(&w, rows, true), eighth = exchange_s(&w, rows / ENDS, true);
    view.forward.gather = line_of(whole, eighth);
    view.forward.scatter =
        line_of(whole + local_s(p, rows * (p->esp + 1)), eighth + local_s(p, rows / ENDS * (p->esp + 1)));
  }
  view.forward.experts = experts_of(p, false);
  view.backward = view.forward;
  view.backward.experts = experts_of(p, true);
  view.dense_s = dense_s(p);
  view.tensor_s = tensor_s(&w);
  hec_fsmoe_op reduce = line_of(hec_problem_reduce_s(p, view.gradient), hec_problem_reduce_s(p, view.gradient / ENDS));
  if (p->n_ranks == 1 || !(reduce.volume > 0))
    view.gradient = 0;
  view.reduce = (hec_fsmoe_reduce){reduce.start, view.gradient > 0 ? reduce.volume / view.gradient : 1};
  hec_link_cost_free(&cost);
  hec_arena_rewind(arena, mark);
  return view;
}

hec_fsmoe_decision hec_fsmoe_decide(const hec_problem *problem, bool folded, hec_arena *arena) {
  int32_t n = problem->n_layers;
  hec_fsmoe_slot *kept = problem->train ? HEC_NEW(arena, hec_fsmoe_slot, n) : NULL;
  hec_fsmoe_view view = hec_fsmoe_view_of(problem, arena);
  hec_fsmoe_layer forward = folded ? hec_fsmoe_folded(&view.forward) : view.forward;
  hec_fsmoe_layer backward = folded ? hec_fsmoe_folded(&view.backward) : view.backward;
  hec_arena_mark mark = hec_arena_save(arena);
  hec_fsmoe_slot *slots = HEC_NEW(arena, hec_fsmoe_slot, n);
  hec_fsmoe_part *parts = HEC_NEW(arena, hec_fsmoe_part, n);
  for (int32_t v = 0; v < n; v++)
    parts[v] = (hec_fsmoe_part){backward, view.dense_s + (folded ? 0 : view.tensor_s), view.gradient};
  hec_fsmoe_decision best = {.slots = kept};
  for (int32_t r = 1; r <= HEC_FSMOE_DEGREE_MAX; r *= 2) {
    double time_s = n * hec_fsmoe_case_time(&forward, r, 0, hec_fsmoe_case_of(&forward, r, 0));
    hec_fsmoe_options only = {.degree_min = r, .degree_max = r};
    if (problem->train)
      time_s += hec_fsmoe_divide(parts, n, view.reduce, only, arena, slots).time;
    if (r > 1 && time_s >= best.time_s)
      continue;
    best.degree = r;
    best.time_s = time_s;
    if (kept)
      memcpy(kept, slots, (size_t)n * sizeof *kept);
  }
  hec_arena_rewind(arena, mark);
  return best;
}
