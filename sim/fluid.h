/* Fluid max-min fair sharing. Flows have an amount (bytes, or seconds of work) and use resources with a rate ("links").
 * A link is a port, a NIC, or a device whose capacity is 1 second of work a second. Every flow runs at one rate on all
 * its links at once; the rates are the max-min fair ones at every instant. Used by bare flow sets (sim/flows) and by
 * the event engine.
 *
 * Time is double seconds since the busy period's origin. Call hec_fluid_rebase when the solver is empty and add the
 * origin outside. So precision does not depend on how long the simulation has run. The loop of a caller:
 *
 *     double next = hec_fluid_next(fluid);        // INFINITY when empty
 *     if (my own next event <= next) { hec_fluid_advance(fluid, event); hec_fluid_add(fluid, ...); }
 *     else                           { hec_fluid_advance(fluid, next);  done = hec_fluid_pop(fluid, &n); }
 *
 * A caller that keeps integer times must not hand back a time before hec_fluid_now because of its rounding: use the
 * later of the two. Several flows may be added or popped at one instant; the rates are computed once, when next asked
 * for.
 *
 * Same calls, same doubles. In another order of adding, or beside flows elsewhere, the same within a relative 1e-12. */
#pragma once
#include "runtime/base/scoped.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct hec_fluid hec_fluid;

typedef struct {
  const int32_t *links; /* [n_links] ids, copied; a link named twice carries the flow twice */
  int32_t n_links;
  double amount; /* bytes or seconds of work, >= 0 and finite */
  double cap;    /* own rate limit, > 0; INFINITY: none */
  int64_t tag;   /* the caller's name for it */
} hec_fluid_flow;

typedef struct {
  int64_t tag;
  double start, finish; /* seconds */
} hec_fluid_done;

/* `capacity`: [n_links] units of amount per second, > 0 and finite, copied. Free with hec_fluid_free (NULL is fine). */
hec_fluid *hec_fluid_new(int32_t n_links, const double *capacity);
void hec_fluid_free(hec_fluid *fluid);
HEC_OPENED_BY(hec_fluid, hec_fluid_free)

/* Starts a flow now. Returns its slot, valid until it is popped (slots are reused). A flow of amount 0, or on no link
 * and without cap, finishes at its start. On no link with a cap it runs at its cap. */
int32_t hec_fluid_add(hec_fluid *fluid, const hec_fluid_flow *flow);

/* The earliest finish of the flows inside, given that nothing is added before; INFINITY when there is none. */
double hec_fluid_next(hec_fluid *fluid);
/* Whether surely no flow inside ends by `time`, told without computing rates; false: ask hec_fluid_next. So that a caller may
 * add all flows of an instant first. O(1). */
bool hec_fluid_none_ends_by(const hec_fluid *fluid, double time);
/* Moves the clock: now <= time <= hec_fluid_next, else an assertion fails. Finishes nothing by itself. */
void hec_fluid_advance(hec_fluid *fluid, double time);
/* Removes every flow that is finished now, in the order they were added; [*n] valid until the next pop, *n may be 0.
 * Finishes closer than a relative 1e-14 of the clock are one instant. */
const hec_fluid_done *hec_fluid_pop(hec_fluid *fluid, int32_t *n);

double hec_fluid_now(const hec_fluid *fluid);
int32_t hec_fluid_count(const hec_fluid *fluid); /* flows inside */
/* Of a flow inside: its rate now, and what is left of its amount now (>= 0). */
double hec_fluid_rate(hec_fluid *fluid, int32_t slot);
double hec_fluid_left(const hec_fluid *fluid, int32_t slot);
/* The clock is 0 again; only when no flow is inside. */
void hec_fluid_rebase(hec_fluid *fluid);
