/* Exact max-min fairness, kept up from event to event.
 *
 *   rates x_f > 0 with  sum over flows f on link l of w_fl x_f  <=  c_l   for every link l  (w_fl: times f crosses l),
 *   such that no x_f can grow without some x_g <= x_f shrinking. There is exactly one such x (Bertsekas, Gallager, "Data
 *   Networks", 2nd ed., 6.5.2); a flow's cap is a link of its own.
 *
 * State: an order of the links. Each flow is held by the first link of its route in that order, its bottleneck b(f). The
 * flows that a link holds all have its level as their rate:
 *
 *   free_l  = c_l - sum over f on l, b(f) != l, of w_fl level_b(f)          what flows held elsewhere leave
 *   level_l = free_l / (sum over f held by l of w_fl)                       a link that holds none has no level: slack
 *
 * This is the max-min solution if and only if levels do not fall along the order and slack links have free_l >= 0. For
 * then every flow has a full link on which nobody is faster. (Progressive filling visits links in exactly such an
 * order.)
 *
 * An event changes free or weight of a few links. From the first of these on the order is walked once:
 *
 *   - a changed link gets its level anew, and tells the links beside it, which come later. It tells them the
 *     difference times how many of its flows cross them. Links before the first change keep their levels: the filling
 *     is resumed at the level where something changed.
 *   - a level lower than the predecessor's: the link goes before all that are higher, and takes over the flows that it carries
 *     from each it passes. Levels of what follows only rise by that, so it ends (a limit guards against roundings; then all
 *     is filled afresh). Most links that it passes hold no flow of its own: a bit says so.
 *   - a slack link needs no visit while it has room to spare.
 *
 * Flows are not touched by a change of level: all flows of a link end by one clock (fluid_state.c). So an event costs the links
 * behind the change plus the distinct pairs (changed link, link beside it), not flows. Flows are touched when they change
 * their holder.
 *
 * Roundings: free drifts by an ulp per subtraction. So it is summed up afresh at every SUM_UP_AFTERth change, and where a
 * difference dwarfs the min capacity. Comparisons of levels ignore a relative EVEN. Rates are within
 * about 1e-12 of exact ones, and depend on what came before in their last bits only. The same calls give the same doubles. */
#include "sim/fluid_state.h"

#include "runtime/base/arena.h"
#include "runtime/base/heap.h"
#include "runtime/base/status.h"

#include <math.h>
#include <string.h>

#define EVEN 1e-13
#define DWARFS 1e3
#define NEAR 1e-9 /* of a slack link's capacity: more than roundings add up to between two visits */

enum { SUM_UP_AFTER = 64 };

/* ---- Flows come and go ---- */

/* What follows from a new weight: a slack link with room to spare needs no visit, whatever its neighbours do. */
static void set_heed(hec_fluid *fluid, int32_t link) {
  hec_fluid_share *share = &fluid->share[link];
  share->heed = share->weight > 0 ? INFINITY : NEAR * fluid->link[link].capacity;
}

static void mark(hec_fluid *fluid, int32_t link, uint8_t why) {
  int32_t at = fluid->share[link].position;
  fluid->visit[at] |= why;
  fluid->first = at < fluid->first ? at : fluid->first;
}

static const hec_crossing *crossings_of(const hec_fluid *fluid, int32_t flow) {
  return fluid->crossing + fluid->flow[flow].first;
}

static int32_t weight_on(const hec_fluid *fluid, int32_t flow, int32_t link) {
  const hec_crossing *c = crossings_of(fluid, flow);
  for (int32_t i = 0; i < fluid->flow[flow].n; i++)
    if (c[i].link == link)
      return c[i].weight;
  return 0;
}

static int32_t first_in_order(const hec_fluid *fluid, int32_t flow) {
  const hec_crossing *c = crossings_of(fluid, flow);
  int32_t best = c[0].link;
  for (int32_t i = 1; i < fluid->flow[flow].n; i++)
    best = fluid->share[c[i].link].position < fluid->share[best].position ? c[i].link : best;
  return best;
}

/* The flow's rate as others see it goes from one value to another, and its holder from -1 or to -1. */
static void attach(hec_fluid *fluid, int32_t flow, int32_t holder, int32_t sign) {
  const hec_crossing *c = crossings_of(fluid, flow);
  for (int32_t i = 0; i < fluid->flow[flow].n; i++) {
    int32_t link = c[i].link;
    if (link == holder) {
      fluid->share[link].weight += sign * c[i].weight;
      set_heed(fluid, link);
      mark(fluid, link, HEC_VISIT_CHANGED);
    } else {
      fluid->share[link].free -= sign * c[i].weight * fluid->share[holder].level;
      hec_fluid_change_beside(fluid, holder, link, sign * c[i].weight);
      if (fluid->share[link].free < fluid->share[link].heed)
        mark(fluid, link, HEC_VISIT_CHANGED);
    }
  }
}

void hec_fluid_put_in(hec_fluid *fluid, int32_t flow) {
  hec_fluid_state *f = &fluid->flow[flow];
  for (int32_t i = f->first; i < f->first + f->n; i++) {
    int32_t link = fluid->crossing[i].link;
    hec_fluid_link *l = &fluid->link[link];
    HEC_RESERVE(l->member, l->members_capacity, l->n_members + 1);
    fluid->crossing[i].at = l->n_members;
    l->member[l->n_members++] = i;
    if (fluid->share[link].position < 0) {
      HEC_RESERVE(fluid->order, fluid->order_capacity, fluid->n_order + 1);
      fluid->share[link].position = fluid->n_order;
      fluid->order[fluid->n_order++] = link;
    }
  }
  int32_t holder = first_in_order(fluid, flow);
  hec_fluid_hold(fluid, holder, flow);
  attach(fluid, flow, holder, 1);
}

void hec_fluid_take_out(hec_fluid *fluid, int32_t flow) {
  hec_fluid_state *f = &fluid->flow[flow];
  int32_t holder = f->bottleneck;
  hec_fluid_let_go(fluid, flow);
  attach(fluid, flow, holder, -1);
  for (int32_t i = f->first; i < f->first + f->n; i++) {
    hec_fluid_link *l = &fluid->link[fluid->crossing[i].link];
    int32_t last = l->member[--l->n_members], at = fluid->crossing[i].at;
    l->member[at] = last;
    fluid->crossing[last].at = at;
    if (l->n_members == 0) { /* nothing is left of roundings */
      fluid->share[fluid->crossing[i].link].free = l->capacity;
      l->n_changes = 0;
    }
  }
}

/* ---- Levels ---- */

static void sum_up(hec_fluid *fluid, int32_t link) {
  hec_fluid_link *l = &fluid->link[link];
  double used = 0;
  for (int32_t i = 0; i < l->n_members; i++) {
    const hec_crossing *c = &fluid->crossing[l->member[i]];
    int32_t holder = fluid->flow[c->flow].bottleneck;
    if (holder != link)
      used += c->weight * fluid->share[holder].level;
  }
  fluid->share[link].free = l->capacity - used;
  l->n_changes = 0;
}

/* What the order is sorted by: the level, once computed. */
static double height(const hec_fluid *fluid, int32_t link) {
  return fluid->share[link].weight > 0 ? fluid->share[link].level : INFINITY;
}

/* The level that follows from free and weight; below all others where the link is over capacity and holds nothing. */
static double computed(hec_fluid *fluid, int32_t link, uint8_t why) {
  hec_fluid_link *l = &fluid->link[link];
  const hec_fluid_share *share = &fluid->share[link];
  if (why & HEC_VISIT_STALE || ++l->n_changes == SUM_UP_AFTER || share->weight == 0)
    sum_up(fluid, link);
  if (share->weight > 0)
    return share->free / (double)share->weight;
  return share->free < -EVEN * l->capacity ? -INFINITY : INFINITY;
}

static void set_level(hec_fluid *fluid, int32_t link, double level) {
  hec_fluid_link *l = &fluid->link[link];
  double change = level - fluid->share[link].level;
  if (change != 0) {
    uint8_t why = HEC_VISIT_CHANGED | (fabs(change) > DWARFS * fluid->min_capacity ? HEC_VISIT_STALE : 0);
    hec_fluid_share *share = fluid->share;
    uint8_t *visit = fluid->visit;
    l->clock = hec_fluid_clock(fluid, link);
    l->since = fluid->now;
    share[link].level = level;
    const hec_beside *b = l->beside;
    for (int32_t i = 0; i < l->n_beside; i++, b++) {
      hec_fluid_share *other = &share[b->link];
      other->free -= b->weight * change;
      visit[other->position] |= (uint8_t)(why & -(int)(other->free < other->heed));
    }
  }
  hec_fluid_set_next(fluid, link);
}

/* What `from` holds and `to` carries too goes over to `to`, which has come to stand before it. */
static void take_over(hec_fluid *fluid, int32_t from, int32_t to) {
  if (hec_fluid_weight_beside(fluid, from, to) == 0)
    return;
  const hec_fluid_link *l = &fluid->link[from];
  int32_t n = 0;
  HEC_RESERVE(fluid->scratch, fluid->scratch_capacity, l->n_held);
  for (int32_t i = 0; i < l->n_held; i++)
    if (weight_on(fluid, l->held[i].flow, to) > 0)
      fluid->scratch[n++] = l->held[i].flow;
  double before = fabs(fluid->share[to].free);
  for (int32_t i = 0; i < n; i++) {
    int32_t flow = fluid->scratch[i];
    hec_fluid_let_go(fluid, flow);
    attach(fluid, flow, from, -1);
    hec_fluid_hold(fluid, to, flow);
    attach(fluid, flow, to, 1);
  }
  if (before > DWARFS * fabs(fluid->share[to].free))
    mark(fluid, to, HEC_VISIT_STALE);
}

/* The link behind position i may have become lower than the one there. */
static void check_next(hec_fluid *fluid, int32_t i) {
  if (i + 1 < fluid->n_order && height(fluid, fluid->order[i + 1]) < height(fluid, fluid->order[i]) * (1 - EVEN))
    fluid->visit[i + 1] |= HEC_VISIT_ORDER;
}

/* The link at position i, whose level is `*level`, goes to before all that are higher; returns where to. Nothing before i is
 * to be visited, and what a take-over changes stands behind. */
static int32_t move_up(hec_fluid *fluid, int32_t i, double *level, uint8_t *why) {
  int32_t link = fluid->order[i], at = i;
  for (int32_t down; at > 0 && *level < height(fluid, down = fluid->order[at - 1]) * (1 - EVEN);) {
    fluid->order[at] = down;
    fluid->share[down].position = at--;
    if (!hec_fluid_may_share(fluid, down, link))
      continue;
    fluid->order[at] = link;
    fluid->share[link].position = at;
    take_over(fluid, down, link);
    *why |= fluid->visit[at] | HEC_VISIT_CHANGED;
    *level = computed(fluid, link, fluid->visit[at]);
    fluid->visit[at] = 0;
  }
  fluid->order[at] = link;
  fluid->share[link].position = at;
  check_next(fluid, i);
  return at;
}

/* ---- Filling from nothing ---- */

/* Every flow is let go. */
static void empty_links(hec_fluid *fluid) {
  for (int32_t k = 0; k < fluid->n_order; k++) {
    int32_t link = fluid->order[k];
    hec_fluid_link *l = &fluid->link[link];
    double clock = hec_fluid_clock(fluid, link);
    for (int32_t i = 0; i < l->n_held; i++) {
      hec_fluid_state *f = &fluid->flow[l->held[i].flow];
      f->left = l->held[i].key > clock ? l->held[i].key - clock : 0;
      f->bottleneck = -1;
    }
    hec_fluid_clear_beside(fluid, link);
    l->n_held = 0;
    l->clock = 0;
    l->n_changes = 0;
    fluid->share[link] = (hec_fluid_share){.free = l->capacity, .position = -1};
    set_heed(fluid, link);
    hec_fluid_put_next(fluid, link, INFINITY);
  }
  hec_fluid_clear_map(fluid);
  memset(fluid->visit, 0, (size_t)fluid->n_links);
}

/* Holds what is not held yet of the link's flows, at `level`; the links beside it lose what they use, in one subtraction
 * each. */
static void fill_link(hec_fluid *fluid, int32_t link, double level) {
  hec_fluid_link *l = &fluid->link[link];
  fluid->share[link].level = level;
  for (int32_t i = 0; i < l->n_members; i++) {
    const hec_crossing *c = &fluid->crossing[l->member[i]];
    if (fluid->flow[c->flow].bottleneck >= 0)
      continue;
    hec_fluid_hold(fluid, link, c->flow);
    fluid->share[link].weight += c->weight;
    const hec_crossing *all = crossings_of(fluid, c->flow);
    for (int32_t k = 0; k < fluid->flow[c->flow].n; k++)
      if (all[k].link != link)
        hec_fluid_change_beside(fluid, link, all[k].link, all[k].weight);
  }
  set_heed(fluid, link);
  for (int32_t i = 0; i < l->n_beside; i++) {
    int32_t other = l->beside[i].link;
    fluid->share[other].free -= level * l->beside[i].weight;
    fluid->unfixed[other] -= l->beside[i].weight;
  }
  hec_fluid_set_next(fluid, link);
}

/* Progressive filling: the link whose share of what is free is least fills next, ties to the lower id. Shares only grow, so a
 * heap with old shares shows the min once it is brought up to date. */
static void fill(hec_fluid *fluid) {
  int32_t n = fluid->n_order, n_order = 0;
  empty_links(fluid);
  HEC_RESERVE(fluid->filling, fluid->filling_capacity, fluid->n_links);
  HEC_RESERVE(fluid->unfixed, fluid->unfixed_capacity, fluid->n_links);
  HEC_RESERVE(fluid->scratch, fluid->scratch_capacity, n);
  int32_t *heap = fluid->scratch, n_heap = 0;
  for (int32_t i = 0; i < n; i++) {
    int32_t link = fluid->order[i];
    const hec_fluid_link *l = &fluid->link[link];
    fluid->unfixed[link] = 0;
    for (int32_t k = 0; k < l->n_members; k++)
      fluid->unfixed[link] += fluid->crossing[l->member[k]].weight;
    if (l->n_members == 0)
      continue;
    fluid->filling[link] = l->capacity / (double)fluid->unfixed[link];
    heap[n_heap++] = link;
  }
  hec_heap_make(heap, n_heap, hec_heap_min, fluid->filling);
  double level = 0;
  while (n_heap > 0) {
    int32_t link = heap[0];
    int64_t unfixed = fluid->unfixed[link];
    double share = unfixed > 0 ? fluid->share[link].free / (double)unfixed : INFINITY;
    if (unfixed > 0 && share > fluid->filling[link]) {
      fluid->filling[link] = share;
      hec_heap_sink(heap, n_heap, 0, hec_heap_min, fluid->filling);
      continue;
    }
    (void)hec_heap_pop(heap, n_heap--, hec_heap_min, fluid->filling);
    if (unfixed == 0)
      continue;
    level = share > level ? share : level;
    fluid->share[link].position = n_order++;
    fill_link(fluid, link, level);
  }
  /* The order: those that fill, as they did; then slack ones by id. */
  HEC_RESERVE(fluid->scratch, fluid->scratch_capacity, fluid->n_links);
  int32_t at = n_order;
  for (int32_t link = 0; link < fluid->n_links; link++) {
    bool crossed = fluid->link[link].n_members > 0;
    if (crossed && fluid->share[link].position < 0)
      fluid->share[link].position = at++;
    if (crossed)
      fluid->order[fluid->share[link].position] = link;
  }
  fluid->n_order = at;
}

/* ---- Walking the order ---- */

/* The first position from `at` on that is to be visited; n_order: none. Near by byte by byte: a word that holds a byte just
 * written has to wait for it. */
static int32_t next_visit(const hec_fluid *fluid, int32_t at) {
  const uint8_t *visit = fluid->visit;
  int32_t n = fluid->n_order, near = at + 24 < n ? at + 24 : n;
  for (; at < near; at++)
    if (visit[at])
      return at;
  for (; at < n; at += (int32_t)sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, visit + at, sizeof word);
    if (word == 0)
      continue;
    while (visit[at] == 0)
      at++;
    return at;
  }
  return n;
}

/* Returns false when it does not come to an end soon. */
static bool walk(hec_fluid *fluid) {
  int64_t moved = 0, max = 64 + 8 * (int64_t)fluid->n_order;
  for (int32_t i = next_visit(fluid, fluid->first); i < fluid->n_order; i = next_visit(fluid, i)) {
    int32_t link = fluid->order[i];
    uint8_t why = fluid->visit[i];
    bool changed = why & (HEC_VISIT_CHANGED | HEC_VISIT_STALE);
    double level = changed ? computed(fluid, link, why) : height(fluid, link);
    fluid->visit[i] = 0;
    if (i > 0 && level < height(fluid, fluid->order[i - 1]) * (1 - EVEN)) {
      int32_t at = move_up(fluid, i, &level, &why);
      moved += i - at;
      if (moved > max)
        return false;
      i = at;
    } else if (!changed) {
      continue;
    }
    HEC_ASSERT(level > 0);
    set_level(fluid, link, level < INFINITY ? level : 0);
    check_next(fluid, i);
  }
  return true;
}

void hec_fluid_solve(hec_fluid *fluid) {
  if (fluid->first == INT32_MAX)
    return;
  if (fluid->n_added > fluid->n_active / 4 || !walk(fluid))
    fill(fluid);
  fluid->n_added = 0;
  fluid->first = INT32_MAX;
}
