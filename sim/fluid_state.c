/* The fluid solver's flows: when they end. Levels are fluid_levels.c's.
 *
 * All flows that a link holds have one rate, its level. So one clock does for all of them: what each has moved since the link
 * began to hold any. A flow ends when the clock shows its key = clock when it came + what it then had left. Keys stay
 * as they are while levels change. Each link has its flows in a heap by (key, order of adding), and next = since +
 * (least key - clock) / level. The earliest end of all is the min `next`: O(links); an end costs O(log flows of the
 * link) and what fluid_levels.c does.
 *
 * Several ends of one instant are popped together, in the order of adding. */
#include "sim/fluid_state.h"
#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAME_INSTANT 1e-14 /* relative to the clock: a few roundings of `finish`; far below the picosecond */

/* ---- The flows of a link ---- */

static bool ends_before(const hec_fluid *fluid, const hec_held *a, const hec_held *b) {
  return a->key != b->key ? a->key < b->key : fluid->flow[a->flow].order < fluid->flow[b->flow].order;
}

static void put(hec_fluid *fluid, hec_fluid_link *l, int32_t at, hec_held held) {
  l->held[at] = held;
  l->first_key = at == 0 ? held.key : l->first_key;
  fluid->flow[held.flow].held_at = at;
}

/* Whoever stands at `at` goes where it belongs. */
static void settle(hec_fluid *fluid, hec_fluid_link *l, int32_t at) {
  hec_held held = l->held[at];
  for (; at > 0 && ends_before(fluid, &held, &l->held[(at - 1) / 2]); at = (at - 1) / 2)
    put(fluid, l, at, l->held[(at - 1) / 2]);
  for (int32_t child; (child = 2 * at + 1) < l->n_held; at = child) {
    if (child + 1 < l->n_held && ends_before(fluid, &l->held[child + 1], &l->held[child]))
      child++;
    if (!ends_before(fluid, &l->held[child], &held))
      break;
    put(fluid, l, at, l->held[child]);
  }
  put(fluid, l, at, held);
}

void hec_fluid_hold(hec_fluid *fluid, int32_t link, int32_t flow) {
  hec_fluid_link *l = &fluid->link[link];
  if (l->n_held == 0) {
    l->clock = 0;
    l->since = fluid->now;
  }
  fluid->flow[flow].bottleneck = link;
  HEC_RESERVE(l->held, l->held_capacity, l->n_held + 1);
  l->held[l->n_held++] = (hec_held){hec_fluid_clock(fluid, link) + fluid->flow[flow].left, flow};
  settle(fluid, l, l->n_held - 1);
}

static double left_of(const hec_fluid *fluid, int32_t flow) {
  const hec_fluid_state *f = &fluid->flow[flow];
  double left = fluid->link[f->bottleneck].held[f->held_at].key - hec_fluid_clock(fluid, f->bottleneck);
  return left > 0 ? left : 0;
}

void hec_fluid_let_go(hec_fluid *fluid, int32_t flow) {
  hec_fluid_link *l = &fluid->link[fluid->flow[flow].bottleneck];
  fluid->flow[flow].left = left_of(fluid, flow);
  int32_t at = fluid->flow[flow].held_at;
  hec_held last = l->held[--l->n_held];
  if (at < l->n_held) {
    put(fluid, l, at, last);
    settle(fluid, l, at);
  }
}

void hec_fluid_set_next(hec_fluid *fluid, int32_t link) {
  const hec_fluid_link *l = &fluid->link[link];
  if (l->n_held == 0) {
    hec_fluid_put_next(fluid, link, INFINITY);
    return;
  }
  double left = l->first_key - l->clock;
  hec_fluid_put_next(fluid, link, left > 0 ? l->since + left / fluid->share[link].level : l->since);
}

/* ---- Links and flows ---- */

static void add_link(hec_fluid *fluid, double capacity) {
  int32_t n = fluid->n_links++;
  HEC_ASSERT(capacity > 0 && capacity < INFINITY);
  HEC_RESERVE(fluid->share, fluid->share_capacity, n + 1);
  HEC_RESERVE(fluid->next, fluid->next_capacity, n + 1);
  int32_t blocks = (n >> HEC_FLUID_BLOCK_BITS) + 1;
  HEC_RESERVE(fluid->block_next, fluid->block_capacity, blocks);
  HEC_RESERVE(fluid->block_stale, fluid->stale_capacity, blocks);
  HEC_RESERVE(fluid->visit, fluid->visit_capacity, n + 1 + (int32_t)sizeof(uint64_t));
  HEC_RESERVE(fluid->link, fluid->link_capacity, n + 1);
  fluid->share[n] = (hec_fluid_share){.free = capacity, .position = -1};
  hec_fluid_put_next(fluid, n, INFINITY);
  memset(fluid->visit + n, 0, 1 + sizeof(uint64_t)); /* scanned by words */
  fluid->link[n] = (hec_fluid_link){.capacity = capacity};
  fluid->min_capacity = capacity < fluid->min_capacity ? capacity : fluid->min_capacity;
}

/* A link for a flow's own limit; those of flows that ended are taken again once they have left the order. */
static int32_t cap_link(hec_fluid *fluid, double cap) {
  int32_t link = fluid->unused_link;
  if (link < 0) {
    add_link(fluid, cap);
    return fluid->n_links - 1;
  }
  fluid->unused_link = fluid->link[link].next_unused;
  fluid->link[link].capacity = fluid->share[link].free = cap;
  fluid->min_capacity = cap < fluid->min_capacity ? cap : fluid->min_capacity;
  return link;
}

static int32_t new_flow(hec_fluid *fluid) {
  int32_t flow = fluid->unused_flow;
  if (flow >= 0) {
    fluid->unused_flow = fluid->flow[flow].held_at;
    return flow;
  }
  HEC_ASSERT(fluid->n_flows < INT32_MAX);
  HEC_RESERVE(fluid->flow, fluid->flow_capacity, fluid->n_flows + 1);
  fluid->flow[fluid->n_flows] = (hec_fluid_state){.room = 0};
  return fluid->n_flows++;
}

static void cross(hec_fluid *fluid, int32_t flow, int32_t link) {
  hec_fluid_state *f = &fluid->flow[flow];
  for (int32_t i = f->first; i < f->first + f->n; i++)
    if (fluid->crossing[i].link == link) {
      fluid->crossing[i].weight++;
      return;
    }
  fluid->crossing[f->first + f->n++] = (hec_crossing){.flow = flow, .link = link, .weight = 1};
}

/* The flow's crossings, in the place of those of the flow that had its slot before where there is room. */
static void make_route(hec_fluid *fluid, int32_t flow, const hec_fluid_flow *of) {
  hec_fluid_state *f = &fluid->flow[flow];
  int32_t n = of->n_links + (of->cap < INFINITY);
  if (n > f->room) {
    HEC_ASSERT(fluid->n_crossings <= INT32_MAX - n);
    HEC_RESERVE(fluid->crossing, fluid->crossing_capacity, fluid->n_crossings + n);
    f->first = fluid->n_crossings;
    f->room = n;
    fluid->n_crossings += n;
  }
  f->n = 0;
  for (int32_t i = 0; i < of->n_links; i++) {
    HEC_ASSERT(of->links[i] >= 0 && of->links[i] < fluid->n_given);
    cross(fluid, flow, of->links[i]);
  }
  f->own = of->cap < INFINITY ? cap_link(fluid, of->cap) : -1;
  if (f->own >= 0)
    cross(fluid, flow, f->own);
}

/* ---- Interface ---- */

hec_fluid *hec_fluid_new(int32_t n_links, const double *capacity) {
  HEC_ASSERT(n_links >= 0);
  hec_fluid *fluid = hec_malloc(1, sizeof *fluid);
  *fluid = (hec_fluid){.n_given = n_links,
                       .unused_link = -1,
                       .unused_flow = -1,
                       .first = INT32_MAX,
                       .min_capacity = INFINITY,
                       .earliest = -1};
  for (int32_t l = 0; l < n_links; l++)
    add_link(fluid, capacity[l]);
  hec_fluid_make_shares(fluid);
  return fluid;
}

void hec_fluid_free(hec_fluid *fluid) {
  if (!fluid)
    return;
  for (int32_t l = 0; l < fluid->n_links; l++) {
    free(fluid->link[l].member);
    free(fluid->link[l].held);
    free(fluid->link[l].beside);
  }
  free(fluid->share);
  free(fluid->next);
  free(fluid->block_next);
  free(fluid->block_stale);
  free(fluid->place);
  free(fluid->shares);
  free(fluid->link);
  free(fluid->order);
  free(fluid->visit);
  free(fluid->map_key);
  free(fluid->map_value);
  free(fluid->flow);
  free(fluid->crossing);
  free(fluid->instant);
  free(fluid->scratch);
  free(fluid->filling);
  free(fluid->unfixed);
  free(fluid->done);
  free(fluid->done_order);
  free(fluid);
}

/* A link's level is at least its capacity over its crossings, and no flow is ever faster than the link. So whatever is
 * added, it runs at most so many times as fast as before. The one that comes needs at least its amount over the
 * capacity. Half of each, for roundings. */
static double no_end_before(const hec_fluid *fluid, const hec_fluid_flow *flow) {
  enum { CROSSINGS_MAX = 64 }; /* of a link by one flow */
  double now = fluid->now, before = fluid->none_before, capacity = flow->cap;
  if (fluid->earliest >= 0)
    before = now + 0.5 * (fluid->earliest - now) / ((double)fluid->n_active * CROSSINGS_MAX + 1);
  for (int32_t i = 0; i < flow->n_links; i++) {
    double of_link = fluid->link[flow->links[i]].capacity;
    capacity = of_link < capacity ? of_link : capacity;
  }
  double own = now + (capacity < INFINITY && flow->n_links <= CROSSINGS_MAX ? 0.5 * flow->amount / capacity : 0);
  return own < before ? own : before;
}

bool hec_fluid_none_ends_by(const hec_fluid *fluid, double time) {
  return (fluid->earliest >= 0 ? fluid->earliest : fluid->none_before) > time;
}

int32_t hec_fluid_add(hec_fluid *fluid, const hec_fluid_flow *flow) {
  HEC_ASSERT(flow->amount >= 0 && flow->amount < INFINITY && flow->cap > 0 && flow->n_links >= 0);
  int32_t slot = new_flow(fluid);
  hec_fluid_state *f = &fluid->flow[slot];
  f->amount = f->left = flow->amount;
  f->start = fluid->now;
  f->tag = flow->tag;
  f->order = fluid->next_order++;
  f->own = -1;
  fluid->none_before = no_end_before(fluid, flow);
  fluid->n_active++;
  fluid->earliest = -1;
  if (flow->amount == 0 || (flow->n_links == 0 && flow->cap == INFINITY)) { /* takes nothing from anybody */
    f->bottleneck = HEC_FLUID_INSTANT;
    HEC_RESERVE(fluid->instant, fluid->instant_capacity, fluid->n_instant + 1);
    fluid->instant[fluid->n_instant++] = slot;
    return slot;
  }
  make_route(fluid, slot, flow);
  hec_fluid_put_in(fluid, slot);
  fluid->n_added++;
  return slot;
}

static void find_block_next(hec_fluid *fluid, int32_t block) {
  int32_t first = block << HEC_FLUID_BLOCK_BITS, n = fluid->n_links - first;
  const double *next = fluid->next + first;
  double min[2] = {INFINITY, INFINITY}; /* two chains at once: a minimum has to wait for the one before it */
  n = n < HEC_FLUID_BLOCK ? n : HEC_FLUID_BLOCK;
  for (int32_t i = 0; i < n; i++)
    min[i & 1] = next[i] < min[i & 1] ? next[i] : min[i & 1];
  fluid->block_next[block] = min[1] < min[0] ? min[1] : min[0];
  fluid->block_stale[block] = 0;
}

double hec_fluid_next(hec_fluid *fluid) {
  if (fluid->earliest >= 0)
    return fluid->earliest;
  hec_fluid_solve(fluid);
  double min = fluid->n_instant > 0 ? fluid->now : INFINITY;
  int32_t n_blocks = (fluid->n_links + HEC_FLUID_BLOCK - 1) >> HEC_FLUID_BLOCK_BITS;
  for (int32_t b = 0; b < n_blocks; b++) {
    if (fluid->block_stale[b])
      find_block_next(fluid, b);
    min = fluid->block_next[b] < min ? fluid->block_next[b] : min;
  }
  return fluid->earliest = min > fluid->now ? min : fluid->now;
}

void hec_fluid_advance(hec_fluid *fluid, double time) {
  if (time == fluid->now)
    return; /* many flows of one instant: levels are computed once, not after each */
  HEC_ASSERT(time > fluid->now && time < INFINITY && time <= hec_fluid_next(fluid));
  fluid->now = time;
}

/* Insertion by order of adding; flows of one end mostly come in that order, so this moves little. */
static void add_done(hec_fluid *fluid, int32_t n, const hec_fluid_state *f) {
  HEC_RESERVE(fluid->done, fluid->done_capacity, n + 1);
  HEC_RESERVE(fluid->done_order, fluid->done_order_capacity, n + 1);
  int32_t at = n;
  for (; at > 0 && fluid->done_order[at - 1] > f->order; at--) {
    fluid->done[at] = fluid->done[at - 1];
    fluid->done_order[at] = fluid->done_order[at - 1];
  }
  fluid->done[at] = (hec_fluid_done){.tag = f->tag, .start = f->start, .finish = fluid->now};
  fluid->done_order[at] = f->order;
}

static void end_flow(hec_fluid *fluid, int32_t slot) {
  hec_fluid_state *f = &fluid->flow[slot];
  if (f->bottleneck >= 0)
    hec_fluid_take_out(fluid, slot);
  if (f->own >= 0) {
    fluid->link[f->own].next_unused = fluid->unused_link;
    fluid->unused_link = f->own;
  }
  f->bottleneck = HEC_FLUID_UNUSED;
  f->held_at = fluid->unused_flow;
  fluid->unused_flow = slot;
  fluid->n_active--;
}

/* The first link from `link` on with a flow that ends by `limit`; n_links: none. Blocks first: most have none. What a pop
 * changes of `next` only makes ends later, so a stale block's old least is a bound. */
static int32_t next_ending(const hec_fluid *fluid, int32_t link, double limit) {
  for (; link < fluid->n_links; link++) {
    if (fluid->block_next[link >> HEC_FLUID_BLOCK_BITS] > limit)
      link |= HEC_FLUID_BLOCK - 1;
    else if (fluid->next[link] <= limit)
      return link;
  }
  return fluid->n_links;
}

const hec_fluid_done *hec_fluid_pop(hec_fluid *fluid, int32_t *n) {
  *n = 0;
  double limit = fluid->now + fluid->now * SAME_INSTANT;
  if (hec_fluid_next(fluid) > limit)
    return fluid->done;
  fluid->earliest = -1;
  fluid->none_before = fluid->now;
  for (int32_t i = 0; i < fluid->n_instant; i++) {
    add_done(fluid, (*n)++, &fluid->flow[fluid->instant[i]]);
    end_flow(fluid, fluid->instant[i]);
  }
  fluid->n_instant = 0;
  for (int32_t link = next_ending(fluid, 0, limit); link < fluid->n_links; link = next_ending(fluid, link, limit)) {
    int32_t slot = fluid->link[link].held[0].flow;
    add_done(fluid, (*n)++, &fluid->flow[slot]);
    end_flow(fluid, slot);
    hec_fluid_set_next(fluid, link);
  }
  return fluid->done;
}

double hec_fluid_now(const hec_fluid *fluid) {
  return fluid->now;
}

int32_t hec_fluid_count(const hec_fluid *fluid) {
  return fluid->n_active;
}

static const hec_fluid_state *flow_inside(const hec_fluid *fluid, int32_t slot) {
  HEC_ASSERT(slot >= 0 && slot < fluid->n_flows && fluid->flow[slot].bottleneck != HEC_FLUID_UNUSED);
  return &fluid->flow[slot];
}

double hec_fluid_rate(hec_fluid *fluid, int32_t slot) {
  hec_fluid_solve(fluid);
  const hec_fluid_state *f = flow_inside(fluid, slot);
  return f->bottleneck >= 0 ? fluid->share[f->bottleneck].level : 0;
}

double hec_fluid_left(const hec_fluid *fluid, int32_t slot) {
  const hec_fluid_state *f = flow_inside(fluid, slot);
  return f->bottleneck < 0 ? f->amount : left_of(fluid, slot);
}

void hec_fluid_rebase(hec_fluid *fluid) {
  HEC_ASSERT(fluid->n_active == 0);
  fluid->now = 0;
  fluid->next_order = 0;
  for (int32_t i = 0; i < fluid->n_order; i++) /* that hold nothing: no more than a place in time */
    fluid->link[fluid->order[i]].since = 0;
}
