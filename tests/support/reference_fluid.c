/* At every instant rates start from nothing, by raising all flows that are not held. They rise until each is held by a
 * full link or by its own cap. How far they may rise is found from the flows' own rates each time, so no running
 * remainder can go wrong. */
#include "tests/support/reference_fluid.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct {
  long double left, rate;
  bool running, held, ended;
} state;

/* room[l]: how far the rising flows of link l may still rise; INFINITY when no rising flow crosses it. */
static void find_room(int32_t n, const hec_reference_flow *flows, const state *s, int32_t n_links,
                      const double *capacity, long double *room) {
  int32_t *rising = calloc((size_t)n_links + 1, sizeof *rising);
  for (int32_t l = 0; l < n_links; l++)
    room[l] = capacity[l];
  for (int32_t f = 0; f < n; f++)
    for (int32_t i = 0; s[f].running && i < flows[f].n_links; i++) {
      room[flows[f].links[i]] -= s[f].rate;
      rising[flows[f].links[i]] += !s[f].held;
    }
  for (int32_t l = 0; l < n_links; l++)
    room[l] = rising[l] ? room[l] / rising[l] : INFINITY;
  free(rising);
}

static void set_rates(int32_t n, const hec_reference_flow *flows, state *s, int32_t n_links, const double *capacity) {
  for (int32_t f = 0; f < n; f++) {
    s[f].rate = 0;
    s[f].held = !s[f].running;
  }
  long double *room = calloc((size_t)n_links + 1, sizeof *room);
  for (;;) {
    long double rise = INFINITY;
    int32_t full = -1, capped = -1;
    find_room(n, flows, s, n_links, capacity, room);
    for (int32_t l = 0; l < n_links; l++)
      if (room[l] < rise) {
        rise = room[l];
        full = l;
      }
    for (int32_t f = 0; f < n; f++)
      if (!s[f].held && (long double)flows[f].cap - s[f].rate < rise) {
        rise = (long double)flows[f].cap - s[f].rate;
        capped = f;
      }
    if (isinf(rise))
      break;
    for (int32_t f = 0; f < n; f++) {
      bool crosses = f == capped;
      for (int32_t i = 0; capped < 0 && i < flows[f].n_links; i++)
        crosses |= flows[f].links[i] == full;
      if (!s[f].held)
        s[f].rate += rise;
      s[f].held |= crosses;
    }
  }
  free(room);
}

/* Nothing left but what a rounding of the clock (long double: 1e-19 of it) moves at the rate so far. */
static bool is_finished(const hec_reference_flow *flow, const state *s, long double now) {
  bool free_of_limits = flow->n_links == 0 && isinf(flow->cap);
  return flow->amount == 0 || free_of_limits || s->left <= 1e-17L * s->rate * now;
}

static bool end_finished(int32_t n, const hec_reference_flow *flows, state *s, long double now, double *finish) {
  bool any = false;
  for (int32_t f = 0; f < n; f++)
    if (s[f].running && is_finished(&flows[f], &s[f], now)) {
      s[f].running = false;
      s[f].ended = any = true;
      finish[f] = (double)now;
    }
  return any;
}

void hec_reference_fluid(int32_t n_flows, const hec_reference_flow *flows, int32_t n_links, const double *capacity,
                         double *finish) {
  state *s = calloc((size_t)n_flows + 1, sizeof *s);
  long double now = 0;
  for (int32_t left = n_flows; left > 0;) {
    long double next = INFINITY;
    for (int32_t f = 0; f < n_flows; f++) {
      if (!s[f].running && !s[f].ended && flows[f].start <= now) {
        s[f].running = true;
        s[f].left = flows[f].amount;
      }
      if (!s[f].running && !s[f].ended && flows[f].start < next)
        next = flows[f].start;
    }
    if (!end_finished(n_flows, flows, s, now, finish)) {
      set_rates(n_flows, flows, s, n_links, capacity);
      for (int32_t f = 0; f < n_flows; f++)
        if (s[f].running && now + s[f].left / s[f].rate < next)
          next = now + s[f].left / s[f].rate;
      for (int32_t f = 0; f < n_flows; f++)
        if (s[f].running)
          s[f].left -= s[f].rate * (next - now);
      now = next;
    }
    left = 0;
    for (int32_t f = 0; f < n_flows; f++)
      left += !s[f].ended;
  }
  free(s);
}
