/* Which links lie beside which: link h holds flows that cross link l, w times in all. A change of h's level has to be told to
 * those links, and only to them.
 *
 * Each holder has a list of (l, w). Where in it l stands says a table of all pairs, as long as it is small, else a map with
 * open addressing. A bit for each pair says whether l is there at all: most questions end there. */
#include "sim/fluid_state.h"

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stdlib.h>
#include <string.h>

enum { SHARES_MAX = 1 << 14 /* links; 32 MiB of bits */, PLACES_MAX = 1 << 12 /* 32 MiB */ };

static size_t map_place(const hec_fluid *fluid, uint64_t key) {
  uint64_t h = key * 0x9e3779b97f4a7c15u;
  size_t at = (size_t)(h >> 20) & (fluid->map_size - 1);
  while (fluid->map_key[at] != 0 && fluid->map_key[at] != key)
    at = (at + 1) & (fluid->map_size - 1);
  return at;
}

static void grow_map(hec_fluid *fluid) {
  hec_fluid old = *fluid;
  fluid->map_size = old.map_size ? 2 * old.map_size : 256;
  fluid->map_key = hec_malloc(fluid->map_size, sizeof *fluid->map_key);
  fluid->map_value = hec_malloc(fluid->map_size, sizeof *fluid->map_value);
  if (fluid->map_size > 0)
    memset(fluid->map_key, 0, fluid->map_size * sizeof *fluid->map_key);
  fluid->map_used = 0;
  for (size_t i = 0; i < old.map_size; i++)
    if (old.map_key[i] != 0 && old.map_value[i] >= 0) {
      size_t at = map_place(fluid, old.map_key[i]);
      fluid->map_key[at] = old.map_key[i];
      fluid->map_value[at] = old.map_value[i];
      fluid->map_used++;
    }
  free(old.map_key);
  free(old.map_value);
}

void hec_fluid_make_shares(hec_fluid *fluid) {
  fluid->n_words = (fluid->n_given + 63) / 64;
  if (fluid->n_given > SHARES_MAX || fluid->n_given == 0)
    return;
  size_t n = (size_t)fluid->n_given * (size_t)fluid->n_given;
  if (fluid->n_given <= PLACES_MAX) {
    fluid->place = hec_malloc(n, sizeof *fluid->place);
    memset(fluid->place, 0, n * sizeof *fluid->place);
  }
  n = (size_t)fluid->n_given * (size_t)fluid->n_words;
  fluid->shares = hec_malloc(n, sizeof *fluid->shares);
  memset(fluid->shares, 0, n * sizeof *fluid->shares);
}

static bool has_place(const hec_fluid *fluid, int32_t holder, int32_t link) {
  return fluid->place && holder < fluid->n_given && link < fluid->n_given;
}

static int16_t *place_of(const hec_fluid *fluid, int32_t holder, int32_t link) {
  return &fluid->place[(size_t)holder * (size_t)fluid->n_given + (size_t)link];
}

static uint64_t map_key_of(int32_t holder, int32_t link) {
  return ((uint64_t)holder << 32 | (uint32_t)link) + 1;
}

/* The index of `link` in the holder's list; -1: it is not there. */
static int32_t index_of(const hec_fluid *fluid, int32_t holder, int32_t link) {
  if (has_place(fluid, holder, link))
    return *place_of(fluid, holder, link) - 1;
  if (fluid->map_size == 0)
    return -1;
  size_t at = map_place(fluid, map_key_of(holder, link));
  return fluid->map_key[at] != 0 ? fluid->map_value[at] : -1;
}

static void set_index(hec_fluid *fluid, int32_t holder, int32_t link, int32_t index) {
  if (has_place(fluid, holder, link)) {
    *place_of(fluid, holder, link) = (int16_t)(index + 1);
    return;
  }
  if (fluid->map_used * 2 >= fluid->map_size)
    grow_map(fluid);
  size_t at = map_place(fluid, map_key_of(holder, link));
  fluid->map_used += fluid->map_key[at] == 0;
  fluid->map_key[at] = map_key_of(holder, link);
  fluid->map_value[at] = index;
}

static void set_shares(const hec_fluid *fluid, int32_t holder, int32_t link, bool on) {
  if (!fluid->shares || holder >= fluid->n_given || link >= fluid->n_given)
    return;
  uint64_t bit = (uint64_t)1 << link % 64, *word = hec_fluid_shares_word(fluid, holder, link);
  *word = on ? *word | bit : *word & ~bit;
}

void hec_fluid_change_beside(hec_fluid *fluid, int32_t holder, int32_t link, int32_t change) {
  hec_fluid_link *l = &fluid->link[holder];
  int32_t at = index_of(fluid, holder, link);
  if (at < 0) {
    at = l->n_beside;
    HEC_RESERVE(l->beside, l->beside_capacity, l->n_beside + 1);
    l->beside[l->n_beside++] = (hec_beside){link, 0};
    set_index(fluid, holder, link, at);
    set_shares(fluid, holder, link, true);
  }
  l->beside[at].weight += change;
  HEC_ASSERT(l->beside[at].weight >= 0);
  if (l->beside[at].weight > 0)
    return;
  set_index(fluid, holder, link, -1);
  set_shares(fluid, holder, link, false);
  hec_beside last = l->beside[--l->n_beside];
  if (at < l->n_beside) {
    l->beside[at] = last;
    set_index(fluid, holder, last.link, at);
  }
}

int32_t hec_fluid_weight_beside(const hec_fluid *fluid, int32_t holder, int32_t link) {
  int32_t at = index_of(fluid, holder, link);
  return at >= 0 ? fluid->link[holder].beside[at].weight : 0;
}

void hec_fluid_clear_beside(hec_fluid *fluid, int32_t holder) {
  hec_fluid_link *l = &fluid->link[holder];
  for (int32_t i = 0; i < l->n_beside; i++)
    if (has_place(fluid, holder, l->beside[i].link))
      *place_of(fluid, holder, l->beside[i].link) = 0;
  l->n_beside = 0;
  if (fluid->shares && holder < fluid->n_given)
    memset(hec_fluid_shares_word(fluid, holder, 0), 0, (size_t)fluid->n_words * sizeof *fluid->shares);
}

void hec_fluid_clear_map(hec_fluid *fluid) {
  if (fluid->map_size > 0)
    memset(fluid->map_key, 0, fluid->map_size * sizeof *fluid->map_key);
  fluid->map_used = 0;
}
