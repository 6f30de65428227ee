/* MegaFlux (arXiv 2610.00671, appendix A.1): its greedy planner by load alone. It is as the public design note and
 * reference planner for DeepGEMM's MegaMoE kernel (`DynamicEPLB`) state it. After the gate, blocks of an expert's
 * tokens go from full ranks to helper slots on others.
 *
 *   b[e] = ceil(total[e] / block);  q[e][home] = b[e];  load[r] = sum of q[.][r];  tau = ceil(sum of b / R)
 *   at most S + 2 rounds, until one moves nothing:
 *     donors by excess over tau, descending; their experts by blocks left, descending, while the donor is above tau:
 *       v = min(q[e][donor], tau - load[r]) blocks to the least loaded rank that has e already, if v > 0; else to the least
 *       loaded one below tau with a free slot, if v >= open
 *   1. replicas by size, ascending: one whose blocks fit on the home, or on another copy, is closed; nobody gets above the
 *      largest load
 *   2. single blocks from the fullest to the emptiest rank while both have some of the same expert
 *
 * Block 128 is the height of a tile of grouped GEMM here, S = 4 is what the note measures with, open 0 its default. Blocks
 * are consecutive ranges of the sources' tokens, the home's first, then copies by rank. O(S (E log E + E R) + moves (moves +
 * R)).
 *
 * What is ours: the domain is the expert-parallel group (MegaFlux's is an NVLink domain of at most 32 ranks in that note).
 * Guests are gathered for every micro-batch: an expert that stays in its slot costs a copy again, since weights change
 * in training. Slots are shared by all layers, so gathered again in backward. What cannot be said here: weights and
 * gradients move inside the persistent kernel while it computes, and a schedule must hide them. The paper's planner
 * also tries three more candidates beside this one, which the note leaves out. */
#include "runtime/plan/planners/order.h"
#include "runtime/plan/planners/spill.h"
#include "runtime/plan/problem.h"

typedef struct {
  int32_t expert, rank, blocks;
} replica;

typedef struct {
  int32_t block, open;
  int32_t *q;        /* [n_experts * ep] blocks */
  replica *replicas; /* [n_replicas] */
} megaflux;

static int32_t *blocks_of(const hec_spill *s, int32_t e) {
  return ((megaflux *)s->own)->q + (size_t)e * (size_t)s->problem->ep;
}

static bool is_replica(const hec_spill *s, int32_t e, int32_t r) {
  return r != hec_spill_home(s, e) && blocks_of(s, e)[r] > 0;
}

static void move_blocks(hec_spill *s, int32_t e, int32_t from, int32_t to, int32_t n) {
  int32_t *q = blocks_of(s, e);
  q[from] -= n;
  q[to] += n;
  s->a[from] -= n;
  s->a[to] += n;
}

/* a: load, used: replicas. Returns tau. */
static int64_t count_blocks(hec_spill *s) {
  const megaflux *own = s->own;
  int64_t all = 0;
  for (int32_t r = 0; r < s->n_ranks; r++) {
    s->a[r] = 0;
    s->used[r] = 0;
    for (int32_t e = s->home_at[r]; e < s->home_at[r + 1]; e++) {
      int32_t *q = blocks_of(s, e);
      for (int32_t other = 0; other < s->n_ranks; other++)
        q[other] = 0;
      q[r] = (int32_t)((s->total[e] + (uint64_t)own->block - 1) / (uint64_t)own->block);
      s->a[r] += q[r];
    }
    all += s->a[r];
  }
  return (all + s->n_ranks - 1) / s->n_ranks;
}

/* The least loaded rank that holds e beside the donor, or that could; -1: none. */
static int32_t receiver(const hec_spill *s, int32_t e, int32_t donor, bool fresh) {
  int32_t best = -1;
  for (int32_t r = 0; r < s->n_ranks; r++)
    if (r != donor && is_replica(s, e, r) != fresh && (!fresh || s->used[r] < s->options.slots) &&
        (best < 0 || s->a[r] < s->a[best]))
      best = r;
  return best;
}

static bool give(hec_spill *s, int32_t e, int32_t donor, int64_t tau) {
  const megaflux *own = s->own;
  for (int fresh = 0; fresh < 2; fresh++) {
    int32_t r = receiver(s, e, donor, fresh), q = blocks_of(s, e)[donor];
    s->units += (uint64_t)s->n_ranks;
    if (r < 0 || s->a[r] >= tau)
      continue;
    int32_t n = q < tau - s->a[r] ? q : (int32_t)(tau - s->a[r]);
    if (fresh && n < own->open)
      continue;
    s->used[r] += fresh;
    move_blocks(s, e, donor, r, n);
    return true;
  }
  return false;
}

static bool unload(hec_spill *s, int32_t donor, int64_t tau) {
  int32_t first = s->home_at[donor], n = s->home_at[donor + 1] - first;
  bool moved = false;
  for (int32_t i = 0; i < n; i++)
    s->key[i] = blocks_of(s, first + i)[donor];
  hec_order_descending(s->key, n, s->order);
  s->units += (uint64_t)n;
  for (int32_t i = 0; i < n && s->a[donor] > tau; i++)
    if (blocks_of(s, first + s->order[i])[donor] > 0)
      moved |= give(s, first + s->order[i], donor, tau);
  return moved;
}

static bool round_of_moves(hec_spill *s, int64_t tau) {
  bool moved = false;
  for (int32_t r = 0; r < s->n_ranks; r++)
    s->key[r] = (double)s->a[r];
  hec_order_descending(s->key, s->n_ranks, s->rank_order);
  for (int32_t k = 0; k < s->n_ranks; k++)
    if (s->a[s->rank_order[k]] > tau)
      moved |= unload(s, s->rank_order[k], tau);
  return moved;
}

/* ---- Refinement ---- */

static bool before(replica x, replica y) {
  if (x.blocks != y.blocks)
    return x.blocks < y.blocks;
  return x.expert != y.expert ? x.expert < y.expert : x.rank < y.rank;
}

static int32_t list_replicas(hec_spill *s) {
  replica *list = ((megaflux *)s->own)->replicas;
  int32_t n = 0;
  for (int32_t e = s->home_at[0]; e < s->home_at[s->n_ranks]; e++)
    for (int32_t r = 0; r < s->n_ranks; r++) {
      if (!is_replica(s, e, r))
        continue;
      replica new = {e, r, blocks_of(s, e)[r]};
      int32_t at = n++;
      for (; at > 0 && before(new, list[at - 1]); at--)
        list[at] = list[at - 1];
      list[at] = new;
    }
  return n;
}

/* The home if it has room for n more, else the least loaded copy that has; -1: none. */
static int32_t room_for(const hec_spill *s, replica x, int64_t max) {
  int32_t home = hec_spill_home(s, x.expert), best = -1;
  if (s->a[home] + x.blocks <= max)
    return home;
  for (int32_t r = 0; r < s->n_ranks; r++)
    if (r != x.rank && is_replica(s, x.expert, r) && (best < 0 || s->a[r] < s->a[best]))
      best = r;
  return best >= 0 && s->a[best] + x.blocks <= max ? best : -1;
}

static void close_small(hec_spill *s) {
  const replica *list = ((megaflux *)s->own)->replicas;
  int32_t n = list_replicas(s);
  int64_t max = 0;
  for (int32_t r = 0; r < s->n_ranks; r++)
    max = s->a[r] > max ? s->a[r] : max;
  for (int32_t i = 0; i < n; i++) {
    int32_t to = blocks_of(s, list[i].expert)[list[i].rank] == list[i].blocks ? room_for(s, list[i], max) : -1;
    if (to >= 0)
      move_blocks(s, list[i].expert, list[i].rank, to, list[i].blocks);
    s->units += (uint64_t)s->n_ranks;
  }
}

static void level(hec_spill *s) {
  int32_t first = s->home_at[0], end = s->home_at[s->n_ranks];
  for (int64_t step = 0; step < (int64_t)(end - first) * s->n_ranks; step++) {
    int32_t high = 0, low = 0, e = first;
    for (int32_t r = 1; r < s->n_ranks; r++) {
      high = s->a[r] > s->a[high] ? r : high;
      low = s->a[r] < s->a[low] ? r : low;
    }
    while (e < end && (blocks_of(s, e)[high] == 0 || blocks_of(s, e)[low] == 0))
      e++;
    s->units += (uint64_t)(s->n_ranks + e - first);
    if (s->a[high] - s->a[low] <= 1 || e == end)
      return;
    move_blocks(s, e, high, low, 1);
  }
}

/* ---- Moves ---- */

static void add_moves(hec_spill *s) {
  int64_t block = ((const megaflux *)s->own)->block;
  for (int32_t e = s->home_at[0]; e < s->home_at[s->n_ranks]; e++) {
    const int32_t *q = blocks_of(s, e);
    int64_t left = (int64_t)s->total[e] - q[hec_spill_home(s, e)] * block; /* the last block may not be full */
    for (int32_t r = 0; r < s->n_ranks; r++) {
      if (!is_replica(s, e, r))
        continue;
      int64_t tokens = q[r] * block < left ? q[r] * block : left;
      hec_spill_add(s, e, r, (uint64_t)tokens);
      left -= tokens;
    }
  }
}

static void plan(hec_spill *s) {
  int64_t tau = count_blocks(s);
  for (int32_t round = 0; round < s->options.slots + 2 && round_of_moves(s, tau); round++)
    ;
  close_small(s);
  level(s);
  add_moves(s);
}

enum { GUESTS, BLOCK, OPEN };

static const hec_option options[] = {
    HEC_SPILL_GUESTS(GUESTS, "DeepGEMM's note measures with 4"),
    HEC_POLICY_WHOLE("block", BLOCK, 1, 1e6, .help = "tokens that move together", .source = "a tile of grouped GEMM"),
    HEC_POLICY_WHOLE("open", OPEN, 0, 1e6, .help = "blocks that are worth a new guest", .source = "DeepGEMM's note"),
    {0}};

static void init(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  const double *own = run->policy->own;
  hec_spill_init(run, plan, (hec_spill_options){.split = HEC_SPLIT_IN_ORDER, .slots = hec_spill_slots(run, GUESTS)});
  hec_spill *spill = run->state;
  megaflux *state = HEC_NEW(run->arena, megaflux, 1);
  *state = (megaflux){
      .block = (int32_t)own[BLOCK],
      .open = (int32_t)own[OPEN],
      .q = HEC_NEW(run->arena, int32_t, (size_t)problem->n_experts * (size_t)problem->ep),
      .replicas = HEC_NEW(run->arena, replica, spill->move_capacity),
  };
  spill->own = state;
  run->plan.rematerialise = true;
}

const hec_policy hec_policy_megaflux = {
    HEC_SPILL_POLICY,
    .name = "megaflux",
    .fills = {.shares = 1, .more = 4},
    .tried = true,
    .summary =
        "After the gate, blocks of tokens go from full ranks to 4 guest slots a rank. Published inside one kernel.",
    .source = "MegaFlux, arXiv 2610.00671; DynamicEPLB for DeepGEMM's MegaMoE",
    .options = options,
    .own = {[GUESTS] = 4, [BLOCK] = 128},
};
