/* Plans as flat arrays. A row's copies stand in ascending order of rank inside the layer's own CSR block. So adding one
 * moves only the rest of that block: O(copies of the layer + experts). */
#include "runtime/plan/plan.h"

#include "runtime/plan/problem.h"

#include <string.h>

static size_t n_rows(const hec_plan *plan) {
  return (size_t)plan->n_layers * (size_t)plan->n_experts;
}
static size_t n_homes(const hec_plan *plan) {
  return n_rows(plan) * (size_t)plan->n_slices;
}
static size_t n_offsets(const hec_plan *plan) {
  return (size_t)plan->n_layers * (size_t)(plan->n_experts + 1);
}

static int32_t *layer_at(const hec_plan *plan, int32_t *at, int32_t layer) {
  return at + (size_t)layer * (size_t)(plan->n_experts + 1);
}

hec_plan hec_plan_new(hec_arena *arena, const hec_problem *problem, int32_t n_slices) {
  HEC_ASSERT(n_slices >= 1);
  hec_plan plan = {
      .n_layers = problem->n_layers,
      .n_experts = problem->n_experts,
      .n_ranks = problem->n_ranks,
      .width = problem->n_ranks,
      .n_slices = n_slices,
      .copy_capacity = problem->n_experts * problem->n_ranks,
  };
  size_t copies = (size_t)plan.n_layers * (size_t)plan.copy_capacity;
  plan.home = HEC_NEW(arena, int32_t, n_homes(&plan));
  plan.opt_home = HEC_NEW(arena, int32_t, n_homes(&plan));
  plan.copy_at = HEC_NEW(arena, int32_t, n_offsets(&plan));
  plan.copy_rank = HEC_NEW(arena, int32_t, copies);
  plan.copy_kind = HEC_NEW(arena, uint8_t, copies);
  return plan;
}

static void check_shapes(const hec_plan *to, const hec_plan *from) {
  HEC_ASSERT(to->n_layers == from->n_layers && to->n_experts == from->n_experts && to->n_ranks == from->n_ranks);
  HEC_ASSERT(to->n_slices == from->n_slices && to->copy_capacity == from->copy_capacity);
  HEC_ASSERT(!from->quota_at || !to->quota_at || to->quota_capacity == from->quota_capacity);
}

static void assign_quotas(hec_plan *to, const hec_plan *from, int32_t layer) {
  size_t start = (size_t)layer * (size_t)to->quota_capacity, offsets = (size_t)(to->n_experts + 1);
  int32_t *at = layer_at(to, to->quota_at, layer);
  if (!from->quota_at) {
    memset(at, 0, offsets * sizeof *at);
    return;
  }
  memcpy(at, layer_at(from, from->quota_at, layer), offsets * sizeof *at);
  memcpy(to->quota + start, from->quota + start, (size_t)at[to->n_experts] * sizeof *to->quota);
}

void hec_plan_assign_layer(hec_plan *to, const hec_plan *from, int32_t layer) {
  check_shapes(to, from);
  size_t homes = (size_t)from->n_experts * (size_t)from->n_slices, home = (size_t)layer * homes;
  size_t block = (size_t)layer * (size_t)from->copy_capacity;
  int32_t *at = layer_at(to, to->copy_at, layer);
  memcpy(to->home + home, from->home + home, homes * sizeof *to->home);
  memcpy(to->opt_home + home, from->opt_home + home, homes * sizeof *to->opt_home);
  memcpy(at, layer_at(from, from->copy_at, layer), (size_t)(from->n_experts + 1) * sizeof *at);
  size_t used = (size_t)at[from->n_experts]; /* only what is used of the block */
  memcpy(to->copy_rank + block, from->copy_rank + block, used * sizeof *to->copy_rank);
  memcpy(to->copy_kind + block, from->copy_kind + block, used * sizeof *to->copy_kind);
  if (to->quota_at)
    assign_quotas(to, from, layer);
}

void hec_plan_assign(hec_plan *to, const hec_plan *from) {
  for (int32_t layer = 0; layer < from->n_layers; layer++)
    hec_plan_assign_layer(to, from, layer);
  to->width = from->width;
  to->slots = from->slots;
  to->rematerialise = from->rematerialise;
  to->version = from->version;
}

void hec_plan_set_home(hec_plan *plan, int32_t layer, int32_t expert, int32_t rank) {
  HEC_ASSERT(plan->n_slices == 1 && rank >= 0 && rank < plan->n_ranks);
  HEC_ASSERT(layer >= 0 && layer < plan->n_layers && expert >= 0 && expert < plan->n_experts);
  size_t row = (size_t)layer * (size_t)plan->n_experts + (size_t)expert;
  plan->home[row] = plan->opt_home[row] = rank;
}

void hec_plan_clear_copies(hec_plan *plan, int32_t layer) {
  memset(layer_at(plan, plan->copy_at, layer), 0, (size_t)(plan->n_experts + 1) * sizeof *plan->copy_at);
}

void hec_plan_add_copy(hec_plan *plan, int32_t layer, int32_t expert, int32_t rank, hec_copy_kind kind) {
  HEC_ASSERT(rank >= 0 && rank < plan->n_ranks && expert >= 0 && expert < plan->n_experts);
  int32_t *at = layer_at(plan, plan->copy_at, layer);
  int32_t used = at[plan->n_experts];
  HEC_ASSERT(used < plan->copy_capacity);
  int32_t *ranks = plan->copy_rank + (size_t)layer * (size_t)plan->copy_capacity;
  uint8_t *kinds = plan->copy_kind + (size_t)layer * (size_t)plan->copy_capacity;
  int32_t place = at[expert + 1];
  while (place > at[expert] && ranks[place - 1] > rank)
    place--;
  memmove(ranks + place + 1, ranks + place, (size_t)(used - place) * sizeof *ranks);
  memmove(kinds + place + 1, kinds + place, (size_t)(used - place) * sizeof *kinds);
  ranks[place] = rank;
  kinds[place] = (uint8_t)kind;
  for (int32_t e = expert + 1; e <= plan->n_experts; e++)
    at[e]++;
}

void hec_plan_add_everywhere(hec_plan *plan, int32_t layer, int32_t expert) {
  for (int32_t rank = 0; rank < plan->n_ranks; rank++)
    if (!hec_plan_holds(plan, layer, expert, rank))
      hec_plan_add_copy(plan, layer, expert, rank, HEC_COPY_GUEST);
}

void hec_plan_set_contiguous(hec_plan *plan, const hec_problem *problem) {
  for (int32_t layer = 0; layer < plan->n_layers; layer++) {
    hec_plan_clear_copies(plan, layer);
    for (int32_t e = 0; e < plan->n_experts; e++) {
      int32_t rank = problem->esp * (int32_t)((int64_t)e * problem->ep / plan->n_experts);
      hec_plan_set_home(plan, layer, e, rank);
      for (int32_t group = 1; group < problem->dp; group++)
        hec_plan_add_copy(plan, layer, e, group * problem->ep + rank, HEC_COPY_RESIDENT);
    }
  }
}

bool hec_plan_holds(const hec_plan *plan, int32_t layer, int32_t expert, int32_t rank) {
  if (plan->n_slices == 1 && hec_plan_home(plan, layer, expert) == rank)
    return true;
  hec_copies copies = hec_plan_copies(plan, layer, expert);
  for (int32_t i = 0; i < copies.n; i++)
    if (copies.rank[i] == rank)
      return true;
  return false;
}

int32_t hec_plan_keeper(const hec_plan *plan, int32_t layer, int32_t expert, int32_t rank) {
  int32_t home = hec_plan_home(plan, layer, expert), group = rank / plan->width;
  HEC_ASSERT(plan->n_slices == 1);
  if (home / plan->width == group)
    return home;
  hec_copies copies = hec_plan_copies(plan, layer, expert);
  int32_t begin = 0, end = copies.n;
  while (begin < end) {
    int32_t middle = (begin + end) / 2;
    if (copies.rank[middle] < group * plan->width)
      begin = middle + 1;
    else
      end = middle;
  }
  for (int32_t i = begin; i < copies.n && copies.rank[i] / plan->width == group; i++)
    if (copies.kind[i] == HEC_COPY_RESIDENT)
      return copies.rank[i];
  return home;
}

int32_t hec_plan_holders(const hec_plan *plan, int32_t layer, int32_t expert, int32_t *out) {
  hec_copies copies = hec_plan_copies(plan, layer, expert);
  if (plan->n_slices > 1) {
    memcpy(out, copies.rank, (size_t)copies.n * sizeof *out);
    return copies.n;
  }
  int32_t home = hec_plan_home(plan, layer, expert), place = copies.n;
  memcpy(out, copies.rank, (size_t)copies.n * sizeof *out);
  for (; place > 0 && out[place - 1] >= home; place--)
    out[place] = out[place - 1];
  out[place] = home;
  return copies.n + 1;
}

/* Appends a group's holders of an expert, its keeper among them unless that is the plan's home. */
static void join_copies(hec_plan *plan, int32_t layer, int32_t expert, const hec_plan *part, int32_t group,
                        int32_t *at) {
  hec_copies copies = hec_plan_copies(part, layer, expert);
  int32_t keeper = hec_plan_home(part, layer, expert);
  size_t block = (size_t)layer * (size_t)plan->copy_capacity;
  bool pending = group > 0;
  for (int32_t i = 0; i < copies.n || pending; i++) {
    bool now = pending && (i == copies.n || keeper <= copies.rank[i]);
    HEC_ASSERT(*at < plan->copy_capacity);
    plan->copy_rank[block + (size_t)*at] = group * plan->width + (now ? keeper : copies.rank[i]);
    plan->copy_kind[block + (size_t)(*at)++] = now ? HEC_COPY_RESIDENT : copies.kind[i];
    pending = pending && !now;
    i -= now;
  }
}

static void join_quotas(hec_plan *plan, int32_t layer, int32_t expert, const hec_plan *part, int32_t group,
                        int32_t *at) {
  const int32_t *from = layer_at(part, part->quota_at, layer) + expert;
  const hec_quota *quota = part->quota + (size_t)layer * (size_t)part->quota_capacity;
  hec_quota *out = plan->quota + (size_t)layer * (size_t)plan->quota_capacity;
  for (int32_t i = from[0]; i < from[1]; i++) {
    HEC_ASSERT(*at < plan->quota_capacity);
    out[(*at)++] =
        (hec_quota){group * plan->width + quota[i].source, group * plan->width + quota[i].rank, quota[i].tokens};
  }
}

void hec_plan_join(hec_plan *plan, int32_t layer, const hec_plan *const *parts) {
  int32_t n_groups = plan->n_ranks / plan->width, copies = 0, quotas = 0;
  HEC_ASSERT(plan->n_slices == 1 && n_groups * plan->width == plan->n_ranks);
  for (int32_t e = 0; e < plan->n_experts; e++) {
    hec_plan_set_home(plan, layer, e, hec_plan_home(parts[0], layer, e));
    for (int32_t g = 0; g < n_groups; g++) {
      join_copies(plan, layer, e, parts[g], g, &copies);
      if (plan->quota_at)
        join_quotas(plan, layer, e, parts[g], g, &quotas);
    }
    layer_at(plan, plan->copy_at, layer)[e + 1] = copies;
    if (plan->quota_at)
      layer_at(plan, plan->quota_at, layer)[e + 1] = quotas;
  }
}

static void check_row(const hec_plan *plan, int32_t layer, int32_t expert) {
  const int32_t *at = layer_at(plan, plan->copy_at, layer) + expert;
  HEC_ASSERT(at[0] >= 0 && at[1] >= at[0] && at[1] <= plan->copy_capacity);
  hec_copies copies = hec_plan_copies(plan, layer, expert);
  for (int32_t i = 0; i < copies.n; i++) {
    HEC_ASSERT(copies.rank[i] >= 0 && copies.rank[i] < plan->n_ranks);
    HEC_ASSERT(i == 0 || copies.rank[i - 1] <= copies.rank[i]);
    HEC_ASSERT(copies.kind[i] == HEC_COPY_RESIDENT || copies.kind[i] == HEC_COPY_GUEST);
  }
  HEC_ASSERT(copies.n > 0 || plan->n_slices == 1); /* slices alone compute nothing */
  for (int32_t first = 0; plan->width < plan->n_ranks && first < plan->n_ranks; first += plan->width)
    HEC_ASSERT(hec_plan_keeper(plan, layer, expert, first) / plan->width == first / plan->width);
}

static void check_quotas(const hec_plan *plan, int32_t layer, int32_t expert) {
  const int32_t *at = layer_at(plan, plan->quota_at, layer) + expert;
  HEC_ASSERT(at[0] >= 0 && at[1] >= at[0] && at[1] <= plan->quota_capacity);
  const hec_quota *quota = plan->quota + (size_t)layer * (size_t)plan->quota_capacity;
  for (int32_t i = at[0]; i < at[1]; i++) {
    const hec_quota *q = &quota[i];
    HEC_ASSERT(q->source >= 0 && q->source < plan->n_ranks && hec_plan_holds(plan, layer, expert, q->rank));
    if (i > at[0])
      HEC_ASSERT(q[-1].source < q->source || (q[-1].source == q->source && q[-1].rank < q->rank));
  }
}

void hec_plan_check(const hec_plan *plan) {
  HEC_ASSERT(plan->n_layers >= 1 && plan->n_experts >= 1 && plan->n_ranks >= 1 && plan->n_slices >= 1);
  HEC_ASSERT(plan->width >= 1 && plan->n_ranks % plan->width == 0 &&
             (plan->width == plan->n_ranks || plan->n_slices == 1));
  for (size_t i = 0; i < n_homes(plan); i++) {
    HEC_ASSERT(plan->home[i] >= 0 && plan->home[i] < plan->n_ranks);
    HEC_ASSERT(plan->opt_home[i] >= 0 && plan->opt_home[i] < plan->n_ranks);
  }
  for (int32_t layer = 0; layer < plan->n_layers; layer++) {
    HEC_ASSERT(layer_at(plan, plan->copy_at, layer)[0] == 0);
    for (int32_t e = 0; e < plan->n_experts; e++)
      check_row(plan, layer, e);
    for (int32_t e = 0; plan->quota_at && e < plan->n_experts; e++)
      check_quotas(plan, layer, e);
  }
}

/* Numbers enter as four little-endian bytes each, so that the digest is the same on every machine. */
static uint64_t fnv(uint64_t hash, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8)
    hash = (hash ^ ((value >> shift) & 0xff)) * 0x100000001b3u;
  return hash;
}

static uint64_t fnv_all(uint64_t hash, const int32_t *values, size_t n) {
  for (size_t i = 0; i < n; i++)
    hash = fnv(hash, (uint32_t)values[i]);
  return hash;
}

/* `version` stays out: it counts changes, it is no part of what the plan says. */
uint64_t hec_plan_digest(const hec_plan *plan) {
  const int32_t shape[] = {plan->n_layers, plan->n_experts, plan->n_ranks,
                           plan->n_slices, plan->slots,     plan->rematerialise};
  uint64_t hash = fnv_all(0xcbf29ce484222325u, shape, sizeof shape / sizeof *shape);
  hash = fnv_all(hash, plan->home, n_homes(plan));
  hash = fnv_all(hash, plan->opt_home, n_homes(plan));
  hash = fnv_all(hash, plan->copy_at, n_offsets(plan));
  for (int32_t layer = 0; layer < plan->n_layers; layer++) {
    size_t block = (size_t)layer * (size_t)plan->copy_capacity;
    size_t used = (size_t)layer_at(plan, plan->copy_at, layer)[plan->n_experts];
    hash = fnv_all(hash, plan->copy_rank + block, used);
    for (size_t i = 0; i < used; i++)
      hash = fnv(hash, plan->copy_kind[block + i]);
  }
  if (plan->width < plan->n_ranks)
    hash = fnv(hash, (uint32_t)plan->width);
  if (!plan->quota_at)
    return hash;
  hash = fnv_all(hash, plan->quota_at, n_offsets(plan));
  for (int32_t layer = 0; layer < plan->n_layers; layer++) {
    const hec_quota *quota = plan->quota + (size_t)layer * (size_t)plan->quota_capacity;
    int32_t used = layer_at(plan, plan->quota_at, layer)[plan->n_experts];
    for (int32_t i = 0; i < used; i++)
      hash = fnv(fnv(fnv(hash, (uint32_t)quota[i].source), (uint32_t)quota[i].rank), quota[i].tokens);
  }
  return hash;
}
