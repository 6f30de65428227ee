/* What the files of the fluid solver share. fluid_state.c has flows, clocks and ends. fluid_levels.c has who is held
 * by which link, and how high links are. fluid_beside.c has which links a change of level touches. The mathematics
 * stands in fluid_levels.c. */
#pragma once
#include "sim/fluid.h"

#include <stdbool.h>
#include <stddef.h>

/* A flow on a link, `weight` times. */
typedef struct {
  int32_t flow, link, weight;
  int32_t at; /* in the link's list of members */
} hec_crossing;

/* Flows held by one link cross `link`, `weight` times in all (> 0). */
typedef struct {
  int32_t link;
  int32_t weight;
} hec_beside;

/* A flow that a link holds. */
typedef struct {
  double key; /* clock of the link at which it ends */
  int32_t flow;
} hec_held;

/* What changes of other links touch, together in memory. */
typedef struct {
  double free;      /* capacity that flows held elsewhere leave */
  double level;     /* rate of the flows it holds, as last told to the others; 0 when it holds none */
  double heed;      /* the walk has to come by when free falls below: always where it holds flows, else only near 0 */
  int32_t weight;   /* crossings of this link by the flows it holds */
  int32_t position; /* in the order; -1: not in it */
} hec_fluid_share;

typedef struct {
  double capacity;
  double clock; /* what each of the flows it holds has moved since the link began to hold any, at `since` */
  double since;
  double first_key;  /* of held[0], where there is one */
  int32_t n_changes; /* of free or weight, since free was last summed up */
  int32_t n_members, n_held, n_beside;
  int32_t next_unused; /* of a cap without flow */
  size_t members_capacity, held_capacity, beside_capacity;
  int32_t *member;    /* [n_members] crossings of all flows on the link */
  hec_held *held;     /* [n_held] flows it holds: binary heap, least (key, order) first */
  hec_beside *beside; /* [n_beside] in no order: what comes of it depends on none */
} hec_fluid_link;

typedef struct {
  double amount, start;
  double left; /* to move, while nobody holds it */
  int64_t tag, order;
  int32_t first, n, room; /* crossings */
  int32_t bottleneck;     /* link that holds it; -1: slot unused; -2: ends at its start */
  int32_t held_at;        /* in the bottleneck's heap; unused slots: the next unused one */
  int32_t own;            /* link that is its cap; -1 */
} hec_fluid_state;

enum { HEC_FLUID_UNUSED = -1, HEC_FLUID_INSTANT = -2 };

/* free or weight changed; sum free up again; may be lower than its predecessor. */
enum { HEC_VISIT_CHANGED = 1, HEC_VISIT_STALE = 2, HEC_VISIT_ORDER = 4 };

enum { HEC_FLUID_BLOCK_BITS = 4, HEC_FLUID_BLOCK = 1 << HEC_FLUID_BLOCK_BITS };

struct hec_fluid {
  double now;
  /* Links, apart what the innermost loops touch. */
  hec_fluid_share *share;
  double *next;       /* when the first of the flows it holds ends; INFINITY when it holds none */
  double *block_next; /* least `next` of HEC_FLUID_BLOCK links, where nothing is stale */
  uint8_t *block_stale;
  hec_fluid_link *link;
  size_t share_capacity, next_capacity, link_capacity, block_capacity, stale_capacity;
  int32_t n_links, n_given; /* with caps; of the caller */
  int32_t unused_link;      /* head of the unused caps; -1 */
  double min_capacity;
  int32_t *order; /* [n_order] */
  uint8_t *visit; /* [n_order, then zeros] why the walk has to come to a position: HEC_VISIT_* */
  size_t order_capacity, visit_capacity;
  int32_t n_order, first; /* none before it; INT32_MAX: none at all */
  uint64_t *shares; /* [n_given][n_words] bit: the row's link holds flows that cross the column's; NULL: too many */
  int32_t n_words;
  int16_t *place; /* [n_given][n_given] index + 1 of the column's link in the row's `beside`, 0: none; NULL: too many */
  /* (holder, crossed link) -> index in the holder's `beside`, open addressing: of caps, and where there is no `place`. */
  uint64_t *map_key; /* holder << 32 | link, plus 1; 0: empty */
  int32_t *map_value;
  size_t map_size, map_used;
  /* Flows. */
  hec_fluid_state *flow;
  hec_crossing *crossing;
  size_t flow_capacity, crossing_capacity;
  int32_t n_flows, n_crossings, n_active, unused_flow;
  int32_t n_added;    /* since levels were last computed */
  double earliest;    /* end; negative: to be found */
  double none_before; /* end: while `earliest` is to be found because flows came, a bound below it; else no meaning */
  int64_t next_order;
  int32_t *instant; /* [n_instant] flows that end at their start */
  size_t instant_capacity;
  int32_t n_instant;
  int32_t *scratch; /* flows or links */
  size_t scratch_capacity;
  double *filling; /* [n_links] while filling: share of each flow not held yet */
  int64_t *unfixed;
  size_t filling_capacity, unfixed_capacity;
  hec_fluid_done *done; /* the last pop */
  int64_t *done_order;
  size_t done_capacity, done_order_capacity;
};

/* fluid_state.c */
static inline double hec_fluid_clock(const hec_fluid *fluid, int32_t link) {
  const hec_fluid_link *l = &fluid->link[link];
  return l->clock + fluid->share[link].level * (fluid->now - l->since);
}
/* The flow is held by the link from now on; by nobody, with what it has left. */
void hec_fluid_hold(hec_fluid *fluid, int32_t link, int32_t flow);
void hec_fluid_let_go(hec_fluid *fluid, int32_t flow);
static inline void hec_fluid_put_next(hec_fluid *fluid, int32_t link, double next) {
  fluid->next[link] = next;
  fluid->block_stale[link >> HEC_FLUID_BLOCK_BITS] = 1;
}
/* When the link's first flow ends, after a change of level or of what it holds. */
void hec_fluid_set_next(hec_fluid *fluid, int32_t link);

/* fluid_beside.c */
/* [zeroed] the links' bits of `shares`, once all given links are there. */
void hec_fluid_make_shares(hec_fluid *fluid);
/* By so much changes how often flows of the holder cross the link. */
void hec_fluid_change_beside(hec_fluid *fluid, int32_t holder, int32_t link, int32_t change);
int32_t hec_fluid_weight_beside(const hec_fluid *fluid, int32_t holder, int32_t link);
void hec_fluid_clear_beside(hec_fluid *fluid, int32_t holder); /* but for the map: */
void hec_fluid_clear_map(hec_fluid *fluid);                    /* of all holders */
static inline uint64_t *hec_fluid_shares_word(const hec_fluid *fluid, int32_t holder, int32_t link) {
  return &fluid->shares[(size_t)holder * (size_t)fluid->n_words + (size_t)(link / 64)];
}

/* False only if the holder holds no flow that crosses the link. Two links that change places mostly have nothing to do
 * with each other, and the table of `beside` is large. */
static inline bool hec_fluid_may_share(const hec_fluid *fluid, int32_t holder, int32_t link) {
  if (!fluid->shares || holder >= fluid->n_given || link >= fluid->n_given)
    return true;
  return *hec_fluid_shares_word(fluid, holder, link) >> link % 64 & 1;
}

/* fluid_levels.c */
void hec_fluid_put_in(hec_fluid *fluid, int32_t flow);   /* its crossings are made; not yet held */
void hec_fluid_take_out(hec_fluid *fluid, int32_t flow); /* held; its crossings go */
void hec_fluid_solve(hec_fluid *fluid);
