/* See the header for what is computed.
 *
 * Rows once per node: of a source's T tokens with K experts each, a assignments go to a node. If they were spread at random, a
 * token would have none there with probability (1 - a / (K T))^K, so about T (1 - that) rows travel. */
#include "runtime/plan/planners/layer_end.h"

#include "runtime/plan/dispatch/dispatch.h"
#include "runtime/plan/planners/degree.h"
#include "runtime/plan/problem.h"
#include "runtime/plan/replicas.h"

#include <string.h>

static double larger(double a, double b) {
  return a > b ? a : b;
}

static double smaller(double a, double b) {
  return a < b ? a : b;
}

hec_layer_end hec_layer_end_new(hec_arena *arena, const hec_problem *p, hec_hiding hides) {
  size_t ranks = (size_t)p->n_ranks, experts = (size_t)p->n_experts;
  return (hec_layer_end){.problem = p,
                         .hides = hides,
                         .n_ranks = p->n_ranks,
                         .n_experts = p->n_experts,
                         .forward = hec_work_memo_new(arena, p, p->expert),
                         .backward = hec_work_memo_new(arena, p, hec_work_backward_of(p->moe, p->expert)),
                         .own_s = hec_problem_own_gradients_s(p),
                         .even_s = -1,
                         .counts = HEC_NEW(arena, uint32_t, experts * ranks),
                         .held = HEC_NEW(arena, uint8_t, experts * ranks),
                         .n_held = HEC_NEW(arena, int32_t, experts),
                         .home = HEC_NEW(arena, int32_t, experts),
                         .total = HEC_NEW(arena, uint32_t, experts),
                         .tokens = HEC_NEW(arena, uint32_t, experts * ranks),
                         .load = HEC_NEW(arena, uint64_t, ranks),
                         .n_guests = HEC_NEW(arena, int32_t, ranks),
                         .early = hec_part_lanes_new(arena, p),
                         .late = hec_part_lanes_new(arena, p),
                         .all = hec_part_lanes_new(arena, p),
                         .split = hec_min_max_new(arena, p->n_ranks, p->n_experts, (int32_t)(experts * ranks)),
                         .transfers = HEC_NEW(arena, hec_transfer, ranks * ranks),
                         .pair = HEC_NEW(arena, uint32_t, ranks * ranks),
                         .rows = HEC_NEW(arena, int32_t, experts * ranks),
                         .n_rows = HEC_NEW(arena, int32_t, ranks),
                         .busy = HEC_NEW(arena, double, 2 * ranks),
                         .holder = HEC_NEW(arena, int32_t, ranks),
                         .left = HEC_NEW(arena, uint64_t, ranks),
                         .part = HEC_NEW(arena, uint32_t, ranks * ranks),
                         .rest = HEC_NEW(arena, uint32_t, ranks)};
}

int32_t hec_layer_list_holders(const hec_layer_end *end, int32_t expert) {
  const uint8_t *held = hec_layer_held_of(end, expert);
  const int32_t n_held = end->n_held[expert], n_ranks = end->n_ranks;
  int32_t *holder = end->holder, n = 0;
  for (int32_t r = 0; n_held == n_ranks && r < n_ranks; r++)
    holder[r] = r;
  for (int32_t r = 0; n_held < n_ranks && n < n_held; r++) {
    holder[n] = r;
    n += held[r] != HEC_HELD_NOT;
  }
  return n_held;
}

/* ---- The layer ---- */

/* In 1/65536 of a gradient. */
static void add_piece(void *context, hec_replica_piece piece) {
  const hec_layer_end *end = context;
  end->part[piece.source * end->n_ranks + piece.destination] += 65536 / (uint32_t)piece.n_parts;
}

static double replica_step_s(hec_layer_end *end, hec_replica_step step) {
  const hec_problem *p = end->problem;
  int32_t n_ranks = end->n_ranks, n_transfers = 0;
  memset(end->part, 0, (size_t)n_ranks * (size_t)n_ranks * sizeof *end->part);
  for (int32_t e = 0; e < end->n_experts; e++)
    hec_replica_pieces(p, e, end->holder, hec_layer_holders(end, e), step, add_piece, end);
  for (int32_t s = 0; s < n_ranks; s++)
    for (int32_t d = 0; d < n_ranks; d++)
      if (end->part[s * n_ranks + d] > 0)
        end->transfers[n_transfers++] =
            (hec_transfer){.bytes = (int64_t)(end->part[s * n_ranks + d] * p->bytes.expert_grad / 65536) + 1,
                           .source = s,
                           .destination = d,
                           .item = -1,
                           .after = -1};
  return n_transfers > 0 ? hec_link_cost_exchange(end->link, end->transfers, n_transfers, false, 1) : 0;
}

/* There and back. */
static double replicas_s(hec_layer_end *end) {
  return 2 * (replica_step_s(end, HEC_REPLICA_INSIDE) + replica_step_s(end, HEC_REPLICA_BETWEEN));
}

/* The optimizer of what the fullest rank keeps of the layer: emit_optimizer of program/lowering.c. */
static double optimizer_s(hec_layer_end *end) {
  const hec_memory_cost *bytes = &end->problem->bytes;
  double expert = bytes->expert_grad + 2 * bytes->expert_optimizer + bytes->expert_param, max = 0;
  int32_t *kept = end->n_rows;
  memset(kept, 0, (size_t)end->n_ranks * sizeof *kept);
  for (int32_t e = 0; e < end->n_experts; e++)
    for (int32_t i = 0, n = hec_layer_holders(end, e); i < n; i++)
      kept[end->holder[i]]++;
  for (int32_t r = 0; r < end->n_ranks; r++)
    max = larger(max, hec_local_s(&end->problem->cluster->devices[r], HEC_CURVE_NONE, true, kept[r] * expert));
  return max;
}

/* `n` sources from `first` on: a cache line of counts at a time. */
enum { SOURCES = 8 };
static inline void transpose(hec_layer_end *end, const uint32_t *counts, size_t first, size_t n) {
  const size_t n_experts = (size_t)end->n_experts, n_ranks = (size_t)end->n_ranks;
  const uint32_t *restrict row = counts + first * n_experts;
  for (size_t e = 0; e < n_experts; e++) {
    uint32_t *restrict to = end->counts + e * n_ranks + first, sum = 0;
    for (size_t s = 0; s < n; s++) {
      to[s] = row[s * n_experts + e];
      sum += to[s];
    }
    end->total[e] += sum;
  }
}

static void begin(hec_layer_end *end, int32_t layer, const uint32_t *counts) {
  end->layer = layer;
  end->units = (uint64_t)end->n_experts * (uint64_t)end->n_ranks / 4;
  memset(end->held, HEC_HELD_NOT, (size_t)end->n_experts * (size_t)end->n_ranks);
  memset(end->total, 0, (size_t)end->n_experts * sizeof *end->total);
  memset(end->n_guests, 0, (size_t)end->n_ranks * sizeof *end->n_guests);
  hec_part_lanes_clear(&end->early);
  hec_part_lanes_clear(&end->late);
  hec_part_lanes_clear(&end->all);
  int32_t first = 0;
  for (; first + SOURCES <= end->n_ranks; first += SOURCES)
    transpose(end, counts, (size_t)first, SOURCES);
  transpose(end, counts, (size_t)first, (size_t)(end->n_ranks - first));
}

/* Of homes and residents. */
static void count_holders(hec_layer_end *end) {
  for (int32_t e = 0; e < end->n_experts; e++) {
    const uint8_t *held = hec_layer_held_of(end, e);
    int32_t n = 0;
    for (int32_t r = 0; r < end->n_ranks; r++)
      n += held[r] != HEC_HELD_NOT;
    end->n_held[e] = n;
  }
}

void hec_layer_end_place(hec_layer_end *end, int32_t layer, const uint32_t *counts, const int32_t *home,
                         const uint8_t *resident) {
  begin(end, layer, counts);
  for (int32_t e = 0; e < end->n_experts; e++) {
    uint8_t *restrict held = hec_layer_held_of(end, e);
    const uint8_t *restrict keeps = resident ? resident + (size_t)e * (size_t)end->n_ranks : NULL;
    for (int32_t r = 0, n = keeps ? end->n_ranks : 0; r < n; r++)
      held[r] = keeps[r] ? HEC_HELD_RESIDENT : HEC_HELD_NOT;
    held[home[e]] = HEC_HELD_HOME;
    end->home[e] = home[e];
  }
  count_holders(end);
  end->replicas_s = resident && end->problem->train ? replicas_s(end) : 0;
  end->optimizer_s = end->problem->train ? optimizer_s(end) : 0;
}

/* The expert's early guests, which are marked. */
static void count_early(hec_layer_end *end, int32_t expert) {
  const uint8_t *held = hec_layer_held_of(end, expert);
  hec_part_lanes_add_all(&end->early, expert, end->home[expert], held, HEC_HELD_EARLY, 1);
  for (int32_t r = 0; r < end->n_ranks; r++)
    end->n_guests[r] += held[r] == HEC_HELD_EARLY;
}

void hec_layer_end_set(hec_layer_end *end, const hec_plan *plan, int32_t layer, const uint32_t *counts) {
  begin(end, layer, counts);
  for (int32_t e = 0; e < end->n_experts; e++) {
    hec_copies copies = hec_plan_copies(plan, layer, e);
    end->home[e] = hec_plan_home(plan, layer, e);
    hec_layer_held_of(end, e)[end->home[e]] = HEC_HELD_HOME;
    for (int32_t i = 0; i < copies.n; i++)
      if (copies.rank[i] != end->home[e])
        hec_layer_held_of(end, e)[copies.rank[i]] =
            copies.kind[i] == HEC_COPY_GUEST ? HEC_HELD_EARLY : HEC_HELD_RESIDENT;
    if (copies.n > 0)
      count_early(end, e);
  }
  hec_part_lanes_copy(&end->early, &end->all);
  count_holders(end);
  end->replicas_s = end->optimizer_s = 0; /* the same whatever is decided now */
}

void hec_layer_end_hold(hec_layer_end *end, int32_t expert, int32_t rank, hec_held held) {
  uint8_t *at = hec_layer_held_of(end, expert) + rank;
  int sign = held == HEC_HELD_NOT ? -1 : 1;
  hec_held guest = sign > 0 ? held : (hec_held)*at;
  if (sign > 0 && *at != HEC_HELD_NOT)
    return;
  HEC_ASSERT(guest == HEC_HELD_EARLY || guest == HEC_HELD_LATE);
  hec_part_lanes_add(guest == HEC_HELD_EARLY ? &end->early : &end->late, expert, end->home[expert], rank, sign);
  hec_part_lanes_add(&end->all, expert, end->home[expert], rank, sign);
  end->n_guests[rank] += sign;
  end->n_held[expert] += sign;
  *at = (uint8_t)held;
}

void hec_layer_end_hold_all(hec_layer_end *end, int32_t expert, hec_held from, hec_held to) {
  uint8_t *held = hec_layer_held_of(end, expert);
  int sign = to == HEC_HELD_NOT ? -1 : 1;
  hec_held guest = sign > 0 ? to : from;
  HEC_ASSERT(guest == HEC_HELD_EARLY || guest == HEC_HELD_LATE);
  hec_part_lanes *lanes = guest == HEC_HELD_EARLY ? &end->early : &end->late;
  hec_part_lanes_add_all(lanes, expert, end->home[expert], held, (uint8_t)from, sign);
  hec_part_lanes_add_all(&end->all, expert, end->home[expert], held, (uint8_t)from, sign);
  for (int32_t r = 0; r < end->n_ranks; r++) {
    bool is = held[r] == (uint8_t)from;
    end->n_guests[r] += is ? sign : 0;
    end->n_held[expert] += is ? sign : 0;
    held[r] = is ? (uint8_t)to : held[r];
  }
}

/* ---- Times ---- */

static void fill_pairs(hec_layer_end *end) {
  int32_t n_ranks = end->n_ranks;
  memset(end->pair, 0, (size_t)n_ranks * (size_t)n_ranks * sizeof *end->pair);
  for (int32_t e = 0; e < end->n_experts; e++) {
    int32_t n = hec_layer_holders(end, e);
    if (n == 1) {
      uint32_t *restrict pair = end->pair + (size_t)end->holder[0] * (size_t)n_ranks;
      const uint32_t *restrict counts = hec_layer_counts_of(end, e);
      for (int32_t s = 0; s < n_ranks; s++)
        pair[s] += counts[s];
    } else if (!hec_layer_all_stay(end, e)) {
      hec_layer_trace(end, e, n, end->pair);
    }
  }
  end->units += (uint64_t)end->n_experts * (uint64_t)n_ranks;
}

static double exchange_s(hec_layer_end *end, int32_t n) {
  return n > 0 ? hec_link_cost_exchange(end->link, end->transfers, n, false, 1) : 0;
}

static void add_rows(hec_layer_end *end, int32_t *n, int32_t source, int32_t destination, double rows) {
  int64_t bytes = (int64_t)(rows * end->problem->bytes.token);
  if (source != destination && bytes > 0)
    end->transfers[(*n)++] =
        (hec_transfer){.bytes = bytes, .source = source, .destination = destination, .item = -1, .after = -1};
}

static double plain_s(hec_layer_end *end) {
  int32_t n = 0;
  if (hec_link_cost_sums(end->link, end->problem->bytes.token))
    return hec_link_cost_rows(end->link, end->pair, end->n_ranks, end->problem->bytes.token);
  for (int32_t s = 0; s < end->n_ranks; s++)
    for (int32_t d = 0; d < end->n_ranks; d++)
      add_rows(end, &n, s, d, end->pair[d * end->n_ranks + s]);
  return exchange_s(end, n);
}

/* Tokens of a source with at least one of `a` assignments. */
static double tokens_with(const hec_problem *p, double a) {
  double none = 1, share = 1 - a / ((double)p->top_k * p->tokens);
  for (int32_t k = 0; k < p->top_k; k++)
    none *= share > 0 ? share : 0;
  return p->tokens * (1 - none);
}

/* Rows between nodes, and then, inside, from the rank of the source's place. */
static double by_node_s(hec_layer_end *end) {
  const hec_problem *p = end->problem;
  int32_t per_node = p->cluster->devices_per_node, n = 0, n_ranks = end->n_ranks;
  for (int32_t s = 0; s < n_ranks; s++)
    for (int32_t v = 0; v < p->n_nodes; v++) {
      double a = 0;
      for (int32_t d = v * per_node; d < hec_problem_node_end(p, v); d++)
        a += end->pair[d * n_ranks + s];
      int32_t places = hec_problem_node_end(p, v) - v * per_node;
      if (v != hec_problem_node(p, s) && a > 0)
        add_rows(end, &n, s, v * per_node + s % per_node % places, tokens_with(p, a));
    }
  double between_s = exchange_s(end, n);
  n = 0;
  for (int32_t q = 0; q < n_ranks; q++)
    for (int32_t d = q / per_node * per_node; d < hec_problem_node_end(p, q / per_node); d++) {
      double a = 0;
      for (int32_t s = q % per_node; s < n_ranks; s += per_node)
        a += end->pair[d * n_ranks + s];
      add_rows(end, &n, q, d, a);
    }
  return between_s + exchange_s(end, n);
}

/* Of each rank the tokens of its experts, ascending: rows [n_ranks * n_experts], n_rows of each. */
static void list_rows(hec_layer_end *end) {
  memset(end->n_rows, 0, (size_t)end->n_ranks * sizeof *end->n_rows);
  for (int32_t e = 0; e < end->n_experts; e++) {
    const uint32_t *tokens = hec_layer_tokens_of(end, e);
    for (int32_t i = 0, n = hec_layer_holders(end, e); i < n; i++) {
      int32_t r = end->holder[i];
      end->rows[r * end->n_experts + end->n_rows[r]] = (int32_t)tokens[r];
      end->n_rows[r] += tokens[r] > 0;
    }
  }
}

static double experts_s(hec_layer_end *end, hec_work_memo *work) {
  double max = 0;
  for (int32_t r = 0; r < end->n_ranks; r++)
    if (end->n_rows[r] > 0)
      max = larger(max, hec_work_memo_s(work, r, end->rows + r * end->n_experts, end->n_rows[r]));
  return max;
}

/* The same where times are sums, of both at once. */
static void sum_experts(hec_layer_end *end, hec_layer_times *t) {
  const size_t n_ranks = (size_t)end->n_ranks;
  const bool train = end->problem->train;
  double *restrict forward = end->busy, *restrict backward = end->busy + n_ranks;
  memset(end->busy, 0, 2 * n_ranks * sizeof *end->busy);
  for (int32_t e = 0; e < end->n_experts; e++) {
    const uint32_t *tokens = hec_layer_tokens_of(end, e);
    for (int32_t i = 0, n = hec_layer_holders(end, e); i < n; i++) {
      int32_t r = end->holder[i], rows = (int32_t)tokens[r];
      if (rows == 0)
        continue;
      forward[r] += hec_work_memo_expert_s(&end->forward, rows);
      if (train)
        backward[r] += hec_work_memo_expert_s(&end->backward, rows);
    }
  }
  t->forward_s = t->backward_s = 0;
  for (size_t r = 0; r < n_ranks; r++) {
    t->forward_s = larger(t->forward_s, forward[r]);
    t->backward_s = larger(t->backward_s, backward[r]);
  }
}

static void time_experts(hec_layer_end *end, hec_layer_times *t) {
  if (hec_work_memo_sums(&end->forward, end->n_ranks) && hec_work_memo_sums(&end->backward, end->n_ranks)) {
    sum_experts(end, t);
    return;
  }
  list_rows(end);
  t->forward_s = experts_s(end, &end->forward);
  t->backward_s = end->problem->train ? experts_s(end, &end->backward) : 0;
}

static double tokens_s(const hec_hiding *hides, double travel_s, double experts) {
  double best = 2 * travel_s + experts;
  for (int32_t i = 1; hides->chunked && i < HEC_N_DEGREES; i++)
    best = smaller(best,
                   hec_degree_s(hec_degrees[i], (hec_chunk_time){travel_s / hec_degrees[i], experts / hec_degrees[i]}));
  return best;
}

static double end_s(const hec_layer_end *end, const hec_layer_times *t) {
  const hec_problem *p = end->problem;
  double a = hec_problem_window_s(p, end->layer);
  double forward = a + tokens_s(&end->hides, t->travel_s, t->forward_s) + t->late_s;
  double window = end->hides.gathers == HEC_HIDES_NOTHING ? 0
                  : end->hides.gathers == HEC_HIDES_DENSE ? a
                  : end->layer == 0                       ? a + t->travel_s
                                                          : forward;
  forward += larger(t->early_s - window, 0);
  if (!p->train)
    return forward;
  double backward = 2 * a + tokens_s(&end->hides, t->travel_s, t->backward_s);
  double again = end->regathers ? t->early_s + t->late_s : 0;
  backward += larger(again - (end->hides.gathers == HEC_HIDES_NOTHING ? 0 : backward), 0);
  double lane = t->return_s + t->replicas_s + end->own_s + end->head_s;
  double hidden = end->hides.returns == HEC_HIDES_NOTHING ? 0
                  : end->hides.returns == HEC_HIDES_DENSE ? 2 * a
                                                          : backward;
  if (end->hides.returns == HEC_HIDES_LAYER && end->layer == 0)
    hidden = larger(backward - lane, 0); /* the layer's before has the lane first, and takes about as long */
  return forward + backward + larger(lane - hidden, 0) + end->optimizer_s;
}

hec_layer_times hec_layer_end_times(hec_layer_end *end) {
  const hec_problem *p = end->problem;
  if (end->even_s < 0) {
    for (int32_t i = 0; i < end->n_ranks * end->n_ranks; i++)
      end->pair[i] = (uint32_t)((int64_t)p->tokens * p->top_k / end->n_ranks);
    end->even_s = plain_s(end);
    if (end->hides.by_node && p->n_nodes > 1)
      end->even_s = smaller(end->even_s, by_node_s(end));
  }
  fill_pairs(end);
  hec_layer_times t = {.travel_s = plain_s(end),
                       .early_s = hec_part_lanes_s(&end->early, p->bytes.expert_param),
                       .late_s = hec_part_lanes_s(&end->late, p->bytes.expert_param),
                       .return_s = p->train ? hec_part_lanes_s(&end->all, p->bytes.expert_grad) : 0,
                       .replicas_s = end->replicas_s};
  time_experts(end, &t);
  if (end->hides.by_node && p->n_nodes > 1)
    t.travel_s = smaller(t.travel_s, by_node_s(end));
  t.end_s = end_s(end, &t);
  end->units += (uint64_t)end->n_ranks * (uint64_t)(end->n_ranks + end->n_experts / 4);
  return t;
}

/* With the guests as they are, and experts that take `share` of what they do in `times`. */
static double with_s(const hec_layer_end *end, const hec_layer_times *times, double share, double travel_s) {
  const hec_problem *p = end->problem;
  hec_layer_times t = *times;
  t.travel_s = travel_s;
  t.forward_s *= share;
  t.backward_s *= share;
  t.early_s = hec_part_lanes_s(&end->early, p->bytes.expert_param);
  t.late_s = hec_part_lanes_s(&end->late, p->bytes.expert_param);
  t.return_s = p->train ? hec_part_lanes_s(&end->all, p->bytes.expert_grad) : 0;
  return end_s(end, &t);
}

/* Of the fastest device. */
static double mean_s(const hec_layer_end *end, hec_work_memo *work, int32_t rows) {
  double min = 0;
  for (int32_t r = 0; r < end->n_ranks; r++) {
    double s = hec_work_memo_s(work, r, &rows, 1);
    min = r == 0 || s < min ? s : min;
  }
  return min;
}

double hec_layer_end_min(hec_layer_end *end) {
  uint64_t all = 0;
  for (int32_t e = 0; e < end->n_experts; e++)
    all += end->total[e];
  int32_t mean = (int32_t)(all / (uint64_t)end->n_ranks);
  hec_layer_times t = {.forward_s = mean_s(end, &end->forward, mean), .replicas_s = end->replicas_s};
  t.backward_s = end->problem->train ? mean_s(end, &end->backward, mean) : 0;
  return end_s(end, &t);
}

double hec_layer_end_hope(const hec_layer_end *end, const hec_layer_times *times, double share) {
  uint64_t all = 0, max = 0;
  for (int32_t r = 0; r < end->n_ranks; r++) {
    all += end->load[r];
    max = end->load[r] > max ? end->load[r] : max;
  }
  double mean = max > 0 ? (double)all / end->n_ranks / (double)max : 1;
  return with_s(end, times, mean, times->travel_s * share);
}

double hec_layer_end_with(const hec_layer_end *end, const hec_layer_times *times, uint64_t before, uint64_t max) {
  double share = before > 0 ? (double)max / (double)before : 1;
  return with_s(end, times, share, smaller(times->travel_s, larger(times->travel_s * share, end->even_s)));
}
