/* Exact max-min fairness by progressive filling (Bertsekas, Gallager, "Data Networks", 2nd ed., section 6.5.2).
 *
 *   rates x_f >= 0 with     sum over flows f on link l of x_f  <=  c_l    for every link l
 *                           x_f <= cap_f                                  for every flow f
 *   such that no x_f can grow without some x_g <= x_f shrinking. There is exactly one such x, and its certificate is:
 *   every flow is at its cap, or has a full link on which no flow is faster (its bottleneck).
 *
 * Filling: all unfixed flows rise together; the link with the least share = free_l / unfixed_l (lower id on ties) fills
 * first; its unfixed flows are fixed at that share, which frees nothing and takes share from their other links; repeat.
 * A cap that is reached before the least share fixes its flows instead.
 *
 * Invariants during a filling, and why rounding is harmless:
 *   - shares never fall: mathematically free_l >= unfixed_l * level; rounding may break it by an ulp, so the level is
 *     kept by a maximum. Hence rates are > 0 and every flow finishes.
 *   - each link loses (number of flows fixed in the step) * share in one multiplication and one subtraction, so a rate
 *     depends on counts only, never on the order of flows, and a link sees one rounding per step and not per flow.
 * Invariants over time:
 *   - flow f has left_f at time since_f, rate_f constant from there: finish_f = since_f + left_f / rate_f. All three
 * are touched only when the rate really changes, so a flow that nobody disturbs never drifts.
 *   - finish_f >= now for all f inside; the clock only moves forward.
 *
 * A change can only reach flows connected to it through shared links, so only that component is filled again (devices
 * and networks that share no flow do not disturb each other). Flows are kept in an indexed binary heap by (finish,
 * order of adding). Per event: O(sum of route lengths in the component + steps * links in the component + changed * log
 * flows). */
#include "sim/fluid.h"

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SAME_INSTANT 1e-14 /* relative to the clock: a few roundings of `finish`; far below the picosecond */

typedef struct {
  double free;     /* capacity that fixed flows leave */
  double share;    /* free / unfixed */
  int32_t unfixed; /* crossings by flows that still rise */
  int32_t fixing;  /* crossings by flows fixed in this step */
  int32_t first;   /* crossing; -1: none */
  int32_t n_active;
  bool changed; /* a flow came or went since the last filling */
  bool inside;  /* in the component being filled */
} link_state;

typedef struct { /* one flow on one link; the flows of a link are a doubly linked list */
  int32_t flow, link, next, previous;
  int32_t sibling; /* the flow's next crossing; next free one when unused; -1: none */
} crossing;

typedef struct {
  double amount, cap, start;
  double left, since, rate, finish;
  double new_rate; /* 0: not fixed yet */
  int64_t tag, order;
  int32_t first;   /* crossing; -1: on no link */
  int32_t heap_at; /* -1: slot unused; then `first` is the next unused slot */
  bool inside;
} flow_state;

struct hec_fluid {
  double now;
  double *capacity;  /* [n_links] */
  link_state *links; /* [n_links] */
  flow_state *flows;
  crossing *crossings;
  int32_t *heap;            /* [n_active] slots, least (finish, order) first */
  int32_t *component_flows; /* [n_component_flows] slots */
  int32_t *capped;          /* [n_capped] of them with a cap, by (cap, slot) */
  int32_t *component_links; /* [n_links] */
  int32_t *touched;         /* [n_links] links with fixing > 0 */
  int32_t *changed;         /* [n_changed] */
  hec_fluid_done *done;     /* the last pop */
  int64_t *done_order;      /* scratch of pop: same length */
  size_t flows_capacity, crossings_capacity, heap_capacity, component_capacity, capped_capacity, done_capacity;
  int64_t next_order;
  int32_t n_links, n_flows, n_crossings, n_active; /* slots and crossings ever used; flows inside */
  int32_t free_flow, free_crossing;                /* heads of the lists of unused ones; -1: none */
  int32_t n_component_flows, n_component_links, n_capped, n_touched, n_changed;
};

/* ---- heap of finishes ---- */

static bool finishes_before(const hec_fluid *fluid, int32_t a, int32_t b) {
  const flow_state *x = &fluid->flows[a], *y = &fluid->flows[b];
  return x->finish != y->finish ? x->finish < y->finish : x->order < y->order;
}

static void heap_put(hec_fluid *fluid, int32_t at, int32_t slot) {
  fluid->heap[at] = slot;
  fluid->flows[slot].heap_at = at;
}

/* The slot at `at` has a new key: moves it where it belongs. */
static void heap_update(hec_fluid *fluid, int32_t at) {
  int32_t slot = fluid->heap[at];
  while (at > 0 && finishes_before(fluid, slot, fluid->heap[(at - 1) / 2])) {
    heap_put(fluid, at, fluid->heap[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
  for (;;) {
    int32_t child = 2 * at + 1;
    if (child >= fluid->n_active)
      break;
    if (child + 1 < fluid->n_active && finishes_before(fluid, fluid->heap[child + 1], fluid->heap[child]))
      child++;
    if (!finishes_before(fluid, fluid->heap[child], slot))
      break;
    heap_put(fluid, at, fluid->heap[child]);
    at = child;
  }
  heap_put(fluid, at, slot);
}

static void heap_add(hec_fluid *fluid, int32_t slot) {
  HEC_RESERVE(fluid->heap, fluid->heap_capacity, fluid->n_active + 1);
  heap_put(fluid, fluid->n_active++, slot);
  heap_update(fluid, fluid->n_active - 1);
}

static void heap_remove_first(hec_fluid *fluid) {
  int32_t last = fluid->heap[--fluid->n_active];
  if (fluid->n_active > 0) {
    heap_put(fluid, 0, last);
    heap_update(fluid, 0);
  }
}

/* ---- flows on links ---- */

static void mark_changed(hec_fluid *fluid, int32_t link) {
  if (!fluid->links[link].changed) {
    fluid->links[link].changed = true;
    fluid->changed[fluid->n_changed++] = link;
  }
}

static int32_t new_crossing(hec_fluid *fluid) {
  int32_t c = fluid->free_crossing;
  if (c >= 0) {
    fluid->free_crossing = fluid->crossings[c].sibling;
    return c;
  }
  HEC_ASSERT(fluid->n_crossings < INT32_MAX);
  HEC_RESERVE(fluid->crossings, fluid->crossings_capacity, fluid->n_crossings + 1);
  return fluid->n_crossings++;
}

static void enter_link(hec_fluid *fluid, int32_t slot, int32_t link) {
  HEC_ASSERT(link >= 0 && link < fluid->n_links);
  int32_t c = new_crossing(fluid);
  link_state *l = &fluid->links[link];
  fluid->crossings[c] = (crossing){.flow = slot, .link = link, .next = l->first, .previous = -1};
  if (l->first >= 0)
    fluid->crossings[l->first].previous = c;
  l->first = c;
  l->n_active++;
  fluid->crossings[c].sibling = fluid->flows[slot].first;
  fluid->flows[slot].first = c;
  mark_changed(fluid, link);
}

static void leave_links(hec_fluid *fluid, int32_t slot) {
  for (int32_t c = fluid->flows[slot].first, sibling; c >= 0; c = sibling) {
    crossing *x = &fluid->crossings[c];
    sibling = x->sibling;
    if (x->previous >= 0)
      fluid->crossings[x->previous].next = x->next;
    else
      fluid->links[x->link].first = x->next;
    if (x->next >= 0)
      fluid->crossings[x->next].previous = x->previous;
    fluid->links[x->link].n_active--;
    mark_changed(fluid, x->link);
    x->sibling = fluid->free_crossing;
    fluid->free_crossing = c;
  }
}

static int32_t new_slot(hec_fluid *fluid) {
  int32_t slot = fluid->free_flow;
  if (slot >= 0) {
    fluid->free_flow = fluid->flows[slot].first;
    return slot;
  }
  HEC_ASSERT(fluid->n_flows < INT32_MAX);
  HEC_RESERVE(fluid->flows, fluid->flows_capacity, fluid->n_flows + 1);
  return fluid->n_flows++;
}

/* ---- progressive filling ---- */

static void take_link(hec_fluid *fluid, int32_t link) {
  link_state *l = &fluid->links[link];
  if (l->inside || l->n_active == 0)
    return;
  l->inside = true;
  l->free = fluid->capacity[link];
  l->unfixed = l->n_active;
  l->share = l->free / l->unfixed;
  fluid->component_links[fluid->n_component_links++] = link;
}

static void take_flow(hec_fluid *fluid, int32_t slot) {
  flow_state *f = &fluid->flows[slot];
  if (f->inside)
    return;
  f->inside = true;
  f->new_rate = 0;
  fluid->component_flows[fluid->n_component_flows++] = slot;
  if (f->cap < INFINITY)
    fluid->capped[fluid->n_capped++] = slot;
  for (int32_t c = f->first; c >= 0; c = fluid->crossings[c].sibling)
    take_link(fluid, fluid->crossings[c].link);
}

/* All links and flows connected to a changed link; the list of links serves as the queue of the search. */
static void collect_component(hec_fluid *fluid) {
  HEC_RESERVE(fluid->component_flows, fluid->component_capacity, fluid->n_active);
  HEC_RESERVE(fluid->capped, fluid->capped_capacity, fluid->n_active);
  fluid->n_component_flows = fluid->n_component_links = fluid->n_capped = 0;
  for (int32_t i = 0; i < fluid->n_changed; i++) {
    fluid->links[fluid->changed[i]].changed = false;
    take_link(fluid, fluid->changed[i]);
  }
  fluid->n_changed = 0;
  for (int32_t i = 0; i < fluid->n_component_links; i++)
    for (int32_t c = fluid->links[fluid->component_links[i]].first; c >= 0; c = fluid->crossings[c].next)
      take_flow(fluid, fluid->crossings[c].flow);
}

/* Heap sort of the capped flows by (cap, slot): no allocation, no context pointer, the same everywhere. */
static bool cap_before(const hec_fluid *fluid, int32_t a, int32_t b) {
  double x = fluid->flows[a].cap, y = fluid->flows[b].cap;
  return x != y ? x < y : a < b;
}

static void sink_cap(hec_fluid *fluid, int32_t at, int32_t n) {
  int32_t *order = fluid->capped, slot = order[at];
  for (int32_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && cap_before(fluid, order[child], order[child + 1]))
      child++;
    if (!cap_before(fluid, slot, order[child]))
      break;
    order[at] = order[child];
  }
  order[at] = slot;
}

static void sort_caps(hec_fluid *fluid) {
  for (int32_t i = fluid->n_capped / 2; i-- > 0;)
    sink_cap(fluid, i, fluid->n_capped);
  for (int32_t n = fluid->n_capped; n-- > 1;) {
    int32_t greatest = fluid->capped[0];
    fluid->capped[0] = fluid->capped[n];
    fluid->capped[n] = greatest;
    sink_cap(fluid, 0, n);
  }
}

static void fix(hec_fluid *fluid, int32_t slot, double rate) {
  fluid->flows[slot].new_rate = rate;
  for (int32_t c = fluid->flows[slot].first; c >= 0; c = fluid->crossings[c].sibling) {
    int32_t link = fluid->crossings[c].link;
    if (fluid->links[link].fixing++ == 0)
      fluid->touched[fluid->n_touched++] = link;
  }
}

/* The links give the flows fixed in this step what they use. */
static void charge_touched(hec_fluid *fluid, double rate) {
  for (int32_t i = 0; i < fluid->n_touched; i++) {
    link_state *l = &fluid->links[fluid->touched[i]];
    l->free -= rate * l->fixing;
    l->unfixed -= l->fixing;
    l->fixing = 0;
    l->share = l->unfixed > 0 ? l->free / l->unfixed : INFINITY;
    HEC_ASSERT(l->unfixed >= 0);
  }
  fluid->n_touched = 0;
}

/* The unfull link with the least share, the lower id on ties; -1: none. Full links leave the list. */
static int32_t least_share(hec_fluid *fluid) {
  int32_t best = -1, kept = 0;
  double share = INFINITY;
  for (int32_t i = 0; i < fluid->n_component_links; i++) {
    int32_t link = fluid->component_links[i];
    const link_state *l = &fluid->links[link];
    if (l->unfixed == 0)
      continue;
    fluid->component_links[kept++] = link;
    if (best < 0 || l->share < share || (l->share == share && link < best)) {
      best = link;
      share = l->share;
    }
  }
  fluid->n_component_links = kept;
  return best;
}

static void fill(hec_fluid *fluid) {
  double level = 0;
  int32_t at = 0; /* in `capped` */
  for (int32_t link; (link = least_share(fluid)) >= 0;) {
    double share = fluid->links[link].share;
    while (at < fluid->n_capped && fluid->flows[fluid->capped[at]].new_rate > 0)
      at++;
    if (at < fluid->n_capped && fluid->flows[fluid->capped[at]].cap <= share) {
      level = fluid->flows[fluid->capped[at]].cap;
      for (; at < fluid->n_capped && fluid->flows[fluid->capped[at]].cap == level; at++)
        if (fluid->flows[fluid->capped[at]].new_rate == 0)
          fix(fluid, fluid->capped[at], level);
    } else {
      level = share > level ? share : level;
      for (int32_t c = fluid->links[link].first; c >= 0; c = fluid->crossings[c].next)
        if (fluid->flows[fluid->crossings[c].flow].new_rate == 0)
          fix(fluid, fluid->crossings[c].flow, level);
    }
    HEC_ASSERT(level > 0 && fluid->n_touched > 0);
    charge_touched(fluid, level);
  }
}

static double left_at(const flow_state *f, double now) {
  double left = f->left - f->rate * (now - f->since);
  return left > 0 ? left : 0;
}

static void change_rate(hec_fluid *fluid, flow_state *f, double rate) {
  f->left = left_at(f, fluid->now);
  f->since = fluid->now;
  f->rate = rate;
  f->finish = fluid->now + f->left / rate;
  heap_update(fluid, f->heap_at);
}

static void solve(hec_fluid *fluid) {
  if (fluid->n_changed == 0)
    return;
  collect_component(fluid);
  int32_t n_links = fluid->n_component_links;
  for (int32_t i = 0; i < n_links; i++)
    fluid->links[fluid->component_links[i]].inside = false;
  sort_caps(fluid);
  fill(fluid);
  for (int32_t i = 0; i < fluid->n_component_flows; i++) {
    flow_state *f = &fluid->flows[fluid->component_flows[i]];
    f->inside = false;
    HEC_ASSERT(f->new_rate > 0);
    if (f->new_rate != f->rate)
      change_rate(fluid, f, f->new_rate);
  }
}

/* ---- interface ---- */

hec_fluid *hec_fluid_new(int32_t n_links, const double *capacity) {
  HEC_ASSERT(n_links >= 0);
  size_t n = (size_t)n_links + 1; /* never an allocation of nothing */
  hec_fluid *fluid = hec_malloc(1, sizeof *fluid);
  *fluid = (hec_fluid){.n_links = n_links, .free_flow = -1, .free_crossing = -1};
  fluid->capacity = hec_malloc(n, sizeof *fluid->capacity);
  fluid->links = hec_malloc(n, sizeof *fluid->links);
  fluid->component_links = hec_malloc(n, sizeof *fluid->component_links);
  fluid->touched = hec_malloc(n, sizeof *fluid->touched);
  fluid->changed = hec_malloc(n, sizeof *fluid->changed);
  for (int32_t l = 0; l < n_links; l++) {
    HEC_ASSERT(capacity[l] > 0 && capacity[l] < INFINITY);
    fluid->capacity[l] = capacity[l];
    fluid->links[l] = (link_state){.first = -1};
  }
  return fluid;
}

void hec_fluid_free(hec_fluid *fluid) {
  if (!fluid)
    return;
  free(fluid->capacity);
  free(fluid->links);
  free(fluid->flows);
  free(fluid->crossings);
  free(fluid->heap);
  free(fluid->component_flows);
  free(fluid->capped);
  free(fluid->component_links);
  free(fluid->touched);
  free(fluid->changed);
  free(fluid->done);
  free(fluid->done_order);
  free(fluid);
}

int32_t hec_fluid_add(hec_fluid *fluid, const hec_fluid_flow *flow) {
  HEC_ASSERT(flow->amount >= 0 && flow->amount < INFINITY && flow->cap > 0 && flow->n_links >= 0);
  int32_t slot = new_slot(fluid);
  flow_state *f = &fluid->flows[slot];
  *f = (flow_state){.amount = flow->amount,
                    .cap = flow->cap,
                    .start = fluid->now,
                    .left = flow->amount,
                    .since = fluid->now,
                    .finish = INFINITY,
                    .tag = flow->tag,
                    .order = fluid->next_order++,
                    .first = -1};
  if (flow->amount == 0 || (flow->n_links == 0 && flow->cap == INFINITY))
    f->finish = fluid->now; /* takes nothing from anybody */
  else if (flow->n_links == 0) {
    f->rate = flow->cap;
    f->finish = fluid->now + flow->amount / flow->cap;
  } else
    for (int32_t i = flow->n_links; i-- > 0;)
      enter_link(fluid, slot, flow->links[i]);
  heap_add(fluid, slot);
  return slot;
}

double hec_fluid_next(hec_fluid *fluid) {
  solve(fluid);
  return fluid->n_active > 0 ? fluid->flows[fluid->heap[0]].finish : INFINITY;
}

void hec_fluid_advance(hec_fluid *fluid, double time) {
  if (time == fluid->now)
    return; /* many flows of one instant: filled once, not after each */
  HEC_ASSERT(time > fluid->now && time < INFINITY && time <= hec_fluid_next(fluid));
  fluid->now = time;
}

/* Insertion by order of adding; the heap already yields flows of one finish in that order, so this moves little. */
static void add_done(hec_fluid *fluid, int32_t n, const flow_state *f) {
  int32_t at = n;
  for (; at > 0 && fluid->done_order[at - 1] > f->order; at--) {
    fluid->done[at] = fluid->done[at - 1];
    fluid->done_order[at] = fluid->done_order[at - 1];
  }
  fluid->done[at] = (hec_fluid_done){.tag = f->tag, .start = f->start, .finish = fluid->now};
  fluid->done_order[at] = f->order;
}

const hec_fluid_done *hec_fluid_pop(hec_fluid *fluid, int32_t *n) {
  *n = 0;
  double limit = fluid->now + fluid->now * SAME_INSTANT;
  solve(fluid);
  while (fluid->n_active > 0 && fluid->flows[fluid->heap[0]].finish <= limit) {
    int32_t slot = fluid->heap[0];
    size_t capacity = fluid->done_capacity;
    HEC_RESERVE(fluid->done_order, capacity, *n + 1);
    HEC_RESERVE(fluid->done, fluid->done_capacity, *n + 1);
    add_done(fluid, (*n)++, &fluid->flows[slot]);
    heap_remove_first(fluid);
    leave_links(fluid, slot);
    fluid->flows[slot].heap_at = -1;
    fluid->flows[slot].first = fluid->free_flow;
    fluid->free_flow = slot;
  }
  return fluid->done;
}

double hec_fluid_now(const hec_fluid *fluid) {
  return fluid->now;
}

int32_t hec_fluid_count(const hec_fluid *fluid) {
  return fluid->n_active;
}

static const flow_state *flow_inside(const hec_fluid *fluid, int32_t slot) {
  HEC_ASSERT(slot >= 0 && slot < fluid->n_flows && fluid->flows[slot].heap_at >= 0);
  return &fluid->flows[slot];
}

double hec_fluid_rate(hec_fluid *fluid, int32_t slot) {
  solve(fluid);
  return flow_inside(fluid, slot)->rate;
}

double hec_fluid_left(const hec_fluid *fluid, int32_t slot) {
  return left_at(flow_inside(fluid, slot), fluid->now);
}

void hec_fluid_rebase(hec_fluid *fluid) {
  HEC_ASSERT(fluid->n_active == 0);
  fluid->now = 0;
  fluid->next_order = 0;
}
