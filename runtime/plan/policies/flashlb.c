/* FlashLB (vllm-ascend PR 3042 and 6477; vllm_ascend/eplb/core/policy/policy_flashlb.py): EPLB's slots, but how many replicas
 * an expert gets and where they go are chosen together. R ranks, P = R S slots, E experts:
 *
 *   replicate  as EPLB: each further slot to the largest load per replica
 *   place      experts by load per replica w, descending; each replica on the first free rank without the expert that makes
 *              max(load + w, fullest rank) least: a rank that stays below the fullest is as good as any
 *   joint      experts by load, descending, in S groups, each of which fills one slot of every rank. A group of R - x
 *              experts has x replicas more; the fullest rank gets the smallest. x is the least, by bisection, that keeps the
 *              ranks' loads after the group as close together as `replicate`'s replicas from there on:
 *              max - min <= max over i of r[i] - r[i + R - 1], r = its replicas' loads, descending
 *   of `replicate` and `joint`, both with `place`, the one with the lower fullest rank
 *
 *   layers     only those whose fullest rank gets less than it has; the best `layers` of them. Of these only those
 *              whose fullest rank over mean is at least `threshold` times what the layer reached when it was last
 *              placed
 *
 * One stage of load (the code's default; PR 6477 can keep several apart). S is eplb's: one redundant slot a rank. Period and
 * window are eplb.c's. What is ours: where `place` finds no rank without the expert the slot stays empty (there a
 * random expert gets it). Where the groups run out of experts `joint` is dropped. The loads are whole numbers here, in
 * single precision there: ties may fall otherwise. O(P E + P R) for each of S log R tries. */
#include "runtime/plan/planners/order.h"
#include "runtime/plan/planners/slots.h"
#include "runtime/plan/problem.h"

#include <string.h>

enum { REDUNDANT, LAYERS, THRESHOLD };

typedef struct {
  int64_t last;
  int32_t n_experts, n_ranks, per_rank, n_slots;
  hec_slots slots;
  uint64_t *load;            /* [n_experts] */
  double *sorted;            /* [n_experts] loads, descending */
  int32_t *order;            /* [n_experts] the experts in that order */
  int32_t *simple, *joint;   /* [n_experts] replicas, of sorted ones */
  int32_t *trial;            /* [n_experts] of a group */
  double *replica;           /* [n_slots] loads of `simple`'s replicas, descending */
  double *part;              /* [n_slots] scratch: replicas of a group */
  double *rank_load, *after; /* [n_ranks] scratch */
  double *key;               /* [max(n_experts, n_slots)] */
  int32_t *by_key;           /* the same */
  int32_t *slot;             /* [n_layers * n_slots] of the decision */
  int32_t *other;            /* [n_slots] */
  int32_t *used;             /* [n_ranks] */
  double *gain;              /* [n_layers] fullest rank's load, new over old */
  double *ratio, *reached;   /* [n_layers] fullest over mean: now, when last placed */
  uint64_t units;
} flashlb;

static void init(hec_policy_run *run) {
  const hec_problem *p = run->problem;
  hec_arena *arena = run->arena;
  run->plan.slots = hec_slots_per_rank(run, REDUNDANT);
  int32_t n_slots = run->plan.slots * p->n_ranks, experts = p->n_experts, max = experts > n_slots ? experts : n_slots;
  flashlb *f = HEC_NEW(arena, flashlb, 1);
  *f = (flashlb){
      .last = -1,
      .n_experts = experts,
      .n_ranks = p->n_ranks,
      .per_rank = run->plan.slots,
      .n_slots = n_slots,
      .slots = hec_slots_new(arena, experts, p->n_ranks, run->plan.slots),
      .load = HEC_NEW(arena, uint64_t, experts),
      .sorted = HEC_NEW(arena, double, experts),
      .order = HEC_NEW(arena, int32_t, experts),
      .simple = HEC_NEW(arena, int32_t, experts),
      .joint = HEC_NEW(arena, int32_t, experts),
      .trial = HEC_NEW(arena, int32_t, experts),
      .replica = HEC_NEW(arena, double, n_slots),
      .part = HEC_NEW(arena, double, n_slots),
      .rank_load = HEC_NEW(arena, double, p->n_ranks),
      .after = HEC_NEW(arena, double, p->n_ranks),
      .key = HEC_NEW(arena, double, max),
      .by_key = HEC_NEW(arena, int32_t, max),
      .slot = HEC_NEW(arena, int32_t, (size_t)p->n_layers * (size_t)n_slots),
      .other = HEC_NEW(arena, int32_t, n_slots),
      .used = HEC_NEW(arena, int32_t, p->n_ranks),
      .gain = HEC_NEW(arena, double, p->n_layers),
      .ratio = HEC_NEW(arena, double, p->n_layers),
      .reached = HEC_NEW(arena, double, p->n_layers),
  };
  run->state = f;
  hec_policy_keep(run, &f->last, sizeof f->last);
  hec_policy_keep(run, f->reached, (size_t)p->n_layers * sizeof *f->reached);
  hec_plan_set_contiguous(&run->plan, p);
}

/* ---- Replicas ---- */

/* count[n] of n_slots for experts with these loads. */
static void replicate(flashlb *f, const double *load, int32_t n, int32_t n_slots, int32_t *count) {
  for (int32_t i = 0; i < n; i++)
    count[i] = 1;
  for (int32_t s = n; s < n_slots; s++) {
    int32_t max = 0;
    for (int32_t i = 1; i < n; i++)
      max = load[i] * count[max] > load[max] * count[i] ? i : max;
    count[max]++;
    f->units += (uint64_t)n;
  }
}

/* Loads of the replicas, descending. Returns how many. */
static int32_t list_parts(flashlb *f, const double *load, const int32_t *count, int32_t n, double *part) {
  int32_t n_parts = 0;
  for (int32_t i = 0; i < n; i++)
    for (int32_t k = 0; k < count[i]; k++)
      f->key[n_parts++] = load[i] / count[i];
  hec_order_descending(f->key, n_parts, f->by_key);
  for (int32_t i = 0; i < n_parts; i++)
    part[i] = f->key[f->by_key[i]];
  f->units += (uint64_t)n_parts;
  return n_parts;
}

/* f->after = rank_load after a group of `keep` experts from `first` on has filled a slot of every rank. */
static void add_group(flashlb *f, int32_t first, int32_t keep) {
  int32_t n = f->n_ranks;
  replicate(f, f->sorted + first, keep, n, f->trial);
  list_parts(f, f->sorted + first, f->trial, keep, f->part);
  for (int32_t r = 0; r < n; r++)
    f->after[r] = f->rank_load[r] + f->part[n - 1 - r];
}

static double widest_from(const flashlb *f, int32_t first) {
  double max = 0;
  for (int32_t i = first; i + f->n_ranks <= f->n_slots; i++) {
    double width = f->replica[i] - f->replica[i + f->n_ranks - 1];
    max = width > max ? width : max;
  }
  return max;
}

/* How many experts the group from `first` on has; `spare` slots are left beyond one for each expert. */
static int32_t group_size(flashlb *f, int32_t first, int32_t spare) {
  int32_t n = f->n_ranks, low = first + n - f->n_experts, high = spare < n - 1 ? spare : n - 1;
  low = low > 0 ? low : 0;
  while (high - low > 1) {
    int32_t mid = (low + high) / 2;
    add_group(f, first, n - mid);
    double max = f->after[0], min = f->after[0];
    for (int32_t r = 1; r < n; r++) {
      max = f->after[r] > max ? f->after[r] : max;
      min = f->after[r] < min ? f->after[r] : min;
    }
    if (max - min > widest_from(f, first + n - mid))
      low = mid;
    else
      high = mid;
  }
  return n - high;
}

/* f->joint; false: the groups ran out of experts. */
static bool replicate_jointly(flashlb *f) {
  int32_t first = 0, spare = f->n_slots - f->n_experts;
  list_parts(f, f->sorted, f->simple, f->n_experts, f->replica);
  memset(f->rank_load, 0, (size_t)f->n_ranks * sizeof *f->rank_load);
  for (int32_t group = 0; group < f->per_rank; group++) {
    if (first == f->n_experts)
      return false;
    int32_t keep = group_size(f, first, spare);
    add_group(f, first, keep);
    memcpy(f->joint + first, f->trial, (size_t)keep * sizeof *f->joint);
    hec_order_descending(f->after, f->n_ranks, f->by_key);
    for (int32_t r = 0; r < f->n_ranks; r++)
      f->rank_load[r] = f->after[f->by_key[r]];
    first += keep;
    spare -= f->n_ranks - keep;
  }
  return first == f->n_experts;
}

/* ---- Places ---- */

static bool holds(const flashlb *f, const int32_t *slot, int32_t rank, int32_t e) {
  for (int32_t i = 0; i < f->used[rank]; i++)
    if (slot[rank * f->per_rank + i] == e)
      return true;
  return false;
}

static int32_t place_of(const flashlb *f, const int32_t *slot, int32_t e, double w, double fullest) {
  int32_t best = -1;
  double min = 0;
  for (int32_t r = 0; r < f->n_ranks; r++) {
    double would = f->rank_load[r] + w > fullest ? f->rank_load[r] + w : fullest;
    if (f->used[r] < f->per_rank && (best < 0 || would < min) && !holds(f, slot, r, e)) {
      best = r;
      min = would;
    }
  }
  return best;
}

/* Slots for these replicas of the sorted experts. */
static void place(flashlb *f, const int32_t *count, int32_t *slot) {
  double fullest = 0;
  for (int32_t i = 0; i < f->n_slots; i++)
    slot[i] = -1;
  for (int32_t r = 0; r < f->n_ranks; r++)
    f->rank_load[r] = f->used[r] = 0;
  for (int32_t i = 0; i < f->n_experts; i++)
    f->key[i] = f->sorted[i] / count[i];
  hec_order_descending(f->key, f->n_experts, f->by_key);
  for (int32_t k = 0; k < f->n_experts; k++) {
    int32_t i = f->by_key[k];
    for (int32_t copy = 0; copy < count[i]; copy++) {
      int32_t r = place_of(f, slot, f->order[i], f->key[i], fullest);
      f->units += (uint64_t)f->n_ranks;
      if (r < 0)
        break; /* every free rank has it */
      slot[r * f->per_rank + f->used[r]++] = f->order[i];
      f->rank_load[r] += f->key[i];
      fullest = f->rank_load[r] > fullest ? f->rank_load[r] : fullest;
    }
  }
}

static double fullest(const flashlb *f) {
  double max = 0;
  for (int32_t r = 0; r < f->n_ranks; r++)
    max = f->rank_load[r] > max ? f->rank_load[r] : max;
  return max;
}

/* The fullest rank's load if every slot of an expert gets the same. */
static double fullest_of(flashlb *f, const int32_t *slot) {
  for (int32_t e = 0; e < f->n_experts; e++)
    f->trial[e] = 0;
  for (int32_t i = 0; i < f->n_slots; i++)
    if (slot[i] >= 0)
      f->trial[slot[i]]++;
  for (int32_t r = 0; r < f->n_ranks; r++)
    f->rank_load[r] = 0;
  for (int32_t i = 0; i < f->n_slots; i++)
    if (slot[i] >= 0)
      f->rank_load[i / f->per_rank] += (double)f->load[slot[i]] / f->trial[slot[i]];
  return fullest(f);
}

static double fullest_now(flashlb *f, const hec_plan *plan, int32_t layer) {
  for (int32_t r = 0; r < f->n_ranks; r++)
    f->rank_load[r] = 0;
  for (int32_t e = 0; e < f->n_experts; e++) {
    hec_copies copies = hec_plan_copies(plan, layer, e);
    double each = (double)f->load[e] / (copies.n + 1);
    f->rank_load[hec_plan_home(plan, layer, e)] += each;
    for (int32_t i = 0; i < copies.n; i++)
      f->rank_load[copies.rank[i]] += each;
  }
  return fullest(f);
}

/* ---- Decisions ---- */

/* The layer's slots for f->load; returns the fullest rank's load. */
static double plan_layer(flashlb *f, int32_t *slot) {
  hec_order_loads(f->load, f->n_experts, f->key, f->order);
  for (int32_t i = 0; i < f->n_experts; i++)
    f->sorted[i] = (double)f->load[f->order[i]];
  replicate(f, f->sorted, f->n_experts, f->n_slots, f->simple);
  place(f, f->simple, slot);
  double best = fullest_of(f, slot);
  if (!replicate_jointly(f))
    return best;
  place(f, f->joint, f->other);
  double joint = fullest_of(f, f->other);
  if (joint > best)
    return best;
  memcpy(slot, f->other, (size_t)f->n_slots * sizeof *slot);
  return joint;
}

static void decide(hec_policy_run *run) {
  flashlb *f = run->state;
  const double *own = run->policy->own;
  int32_t n_layers = run->problem->n_layers;
  if (!hec_policy_due(run, &f->last))
    return;
  run->planned = true;
  f->units = 0;
  for (int32_t layer = 0; layer < n_layers; layer++) {
    hec_history_sum(&run->history, layer, run->policy->window, f->load);
    double all = 0, now = fullest_now(f, &run->plan, layer);
    for (int32_t e = 0; e < f->n_experts; e++)
      all += (double)f->load[e];
    f->gain[layer] = 1;
    f->ratio[layer] = all > 0 ? now * f->n_ranks / all : 0;
    if (all == 0 || f->ratio[layer] < own[THRESHOLD] * f->reached[layer])
      continue;
    f->gain[layer] = plan_layer(f, f->slot + (size_t)layer * (size_t)f->n_slots) / now;
  }
  uint64_t before = hec_plan_digest(&run->plan);
  for (int32_t n = 0; n < (int32_t)own[LAYERS]; n++) {
    int32_t best = 0;
    for (int32_t layer = 1; layer < n_layers; layer++)
      best = f->gain[layer] < f->gain[best] ? layer : best;
    if (f->gain[best] >= 1)
      break;
    hec_slots_write(&f->slots, &run->plan, best, f->slot + (size_t)best * (size_t)f->n_slots, f->per_rank);
    f->reached[best] = f->gain[best] * f->ratio[best];
    f->gain[best] = 1;
  }
  run->plan.version += hec_plan_digest(&run->plan) != before;
  run->units += f->units;
}

static const hec_option options[] = {
    HEC_POLICY_PERIOD(.source = "as eplb"),
    HEC_POLICY_WINDOW(.source = "as eplb"),
    HEC_POLICY_SLOTS(.initial = "ceil(experts / ep) + redundant"),
    HEC_POLICY_WHOLE("redundant", REDUNDANT, 0, 65536, .help = "slots of a rank for replicas", .source = "as eplb"),
    HEC_POLICY_WHOLE("layers", LAYERS, 0, 65536, .help = "placed afresh by a decision, at most", .source = "its code"),
    HEC_POLICY_REAL("threshold", THRESHOLD, 0, 1000,
                    .help = "multiple of a layer's last fullest rank over mean from which it is looked at",
                    .source = "its code"),
    {0}};

const hec_policy hec_policy_flashlb = {
    .name = "flashlb",
    .fills = {.shares = 1, .more = 1},
    .tried = true,
    .summary = "As eplb-global, but copies and their ranks are chosen together. Only layers that gain are changed.",
    .source = "FlashLB, vllm-ascend PR 3042 and 6477",
    .known = HEC_KNOWN_PERIODIC,
    .schedule = "serial",
    .dispatch = &hec_dispatch_round_robin,
    .all_ranks = true,
    .window = 10,
    .period = 100,
    .rearranges = true,
    .init = init,
    .decide = decide,
    .options = options,
    .own = {[REDUNDANT] = 1, [LAYERS] = 58},
};
