/* See the header. Transfers are sorted by round (counting), then dealt to both ends' slots in that order. So each slot
 * of a rank is a list ascending by round; a batch of it is a run of that list. */
#include "sim/rounds.h"

typedef struct {
  int32_t first, end; /* of the batch in flight, into `listed` */
  int32_t left;       /* of its transfers */
} slot_state;

struct hec_rounds {
  int32_t n_ranks, n_nodes, per_node, n_slots, batch;
  int32_t *node_place, *local_place; /* of a difference, in the quadratic order */
  hec_rounds_pair *pair;             /* [n] */
  uint8_t *ends;                     /* [n] at how many it is in flight */
  int32_t *slot_at;                  /* [n_ranks * n_slots + 1] into listed */
  int32_t *listed;                   /* [2 n] transfers of a slot of a rank, by round */
  slot_state *slot;                  /* [n_ranks * n_slots] */
};

/* place[difference], for differences 0 .. n-1. */
static int32_t *quadratic_order(hec_arena *arena, int32_t n) {
  int32_t *place = HEC_NEW(arena, int32_t, n), power = 1, taken = 0;
  while (power < n)
    power *= 2;
  for (int32_t x = 0, difference = 0; x < power; x++, difference = (difference + x) & (power - 1))
    if (difference < n)
      place[difference] = taken++;
  return place;
}

static int32_t difference(int32_t from, int32_t to, int32_t n) {
  return to >= from ? to - from : to - from + n;
}

int32_t hec_rounds_of(const hec_rounds *rounds, int32_t source, int32_t destination) {
  int32_t per_node = rounds->per_node;
  int32_t nodes = difference(source / per_node, destination / per_node, rounds->n_nodes);
  int32_t locals = difference(source % per_node, destination % per_node, per_node);
  return rounds->node_place[nodes] * per_node + rounds->local_place[locals];
}

/* Transfers by (round, transfer). */
static int32_t *by_round(hec_arena *arena, const hec_rounds *rounds, int32_t n) {
  int32_t *sorted = HEC_NEW(arena, int32_t, n), *at = HEC_NEW(arena, int32_t, rounds->n_ranks + 1);
  for (int32_t i = 0; i < n; i++)
    at[hec_rounds_of(rounds, rounds->pair[i].source, rounds->pair[i].destination) + 1]++;
  for (int32_t k = 0; k < rounds->n_ranks; k++)
    at[k + 1] += at[k];
  for (int32_t i = 0; i < n; i++)
    sorted[at[hec_rounds_of(rounds, rounds->pair[i].source, rounds->pair[i].destination)]++] = i;
  return sorted;
}

static int32_t slot_of(const hec_rounds *rounds, int32_t rank, int32_t transfer) {
  const hec_rounds_pair *p = &rounds->pair[transfer];
  return rank * rounds->n_slots + hec_rounds_of(rounds, p->source, p->destination) % rounds->n_slots;
}

static void deal(hec_arena *arena, hec_rounds *rounds, int32_t n) {
  int32_t n_slots = rounds->n_ranks * rounds->n_slots, *sorted = by_round(arena, rounds, n);
  rounds->slot_at = HEC_NEW(arena, int32_t, n_slots + 1);
  rounds->listed = HEC_NEW(arena, int32_t, 2 * (int64_t)n);
  rounds->slot = HEC_NEW(arena, slot_state, n_slots);
  for (int32_t i = 0; i < n; i++) {
    rounds->slot_at[slot_of(rounds, rounds->pair[i].source, i) + 1]++;
    rounds->slot_at[slot_of(rounds, rounds->pair[i].destination, i) + 1]++;
  }
  for (int32_t s = 0; s < n_slots; s++) {
    rounds->slot_at[s + 1] += rounds->slot_at[s];
    rounds->slot[s].end = rounds->slot_at[s];
  }
  for (int32_t i = 0; i < n; i++) { /* `end` counts while dealing */
    rounds->listed[rounds->slot[slot_of(rounds, rounds->pair[sorted[i]].source, sorted[i])].end++] = sorted[i];
    rounds->listed[rounds->slot[slot_of(rounds, rounds->pair[sorted[i]].destination, sorted[i])].end++] = sorted[i];
  }
  for (int32_t s = 0; s < n_slots; s++)
    rounds->slot[s] = (slot_state){rounds->slot_at[s], rounds->slot_at[s], 0};
}

hec_rounds *hec_rounds_new(hec_arena *arena, int32_t n_ranks, int32_t per_node, hec_p2p p2p, int32_t n,
                           const hec_rounds_pair *pair) {
  hec_rounds *rounds = HEC_NEW(arena, hec_rounds, 1);
  bool flat = n_ranks % per_node != 0;
  *rounds = (hec_rounds){.n_ranks = n_ranks,
                         .per_node = flat ? n_ranks : per_node,
                         .n_nodes = flat ? 1 : n_ranks / per_node,
                         .n_slots = p2p.channels / p2p.channels_per_peer,
                         .batch = p2p.batch,
                         .pair = HEC_NEW(arena, hec_rounds_pair, n),
                         .ends = HEC_NEW(arena, uint8_t, n)};
  rounds->node_place = quadratic_order(arena, rounds->n_nodes);
  rounds->local_place = quadratic_order(arena, rounds->per_node);
  for (int32_t i = 0; i < n; i++)
    rounds->pair[i] = pair[i];
  deal(arena, rounds, n);
  return rounds;
}

/* The batch behind the one in flight: the next transfers of the list, of `batch` different rounds. */
static void next_batch(hec_rounds *rounds, int32_t s, hec_rounds_start *start, void *context) {
  slot_state *slot = &rounds->slot[s];
  slot->first = slot->end;
  for (int32_t n = 0, last = -1; slot->end < rounds->slot_at[s + 1]; slot->end++) {
    const hec_rounds_pair *p = &rounds->pair[rounds->listed[slot->end]];
    int32_t k = hec_rounds_of(rounds, p->source, p->destination);
    if (k != last && n++ == rounds->batch)
      break;
    last = k;
  }
  slot->left = slot->end - slot->first;
  for (int32_t i = slot->first; i < slot->end; i++)
    if (++rounds->ends[rounds->listed[i]] == 2)
      start(context, rounds->listed[i]);
}

void hec_rounds_begin(hec_rounds *rounds, hec_rounds_start *start, void *context) {
  for (int32_t s = 0; s < rounds->n_ranks * rounds->n_slots; s++)
    next_batch(rounds, s, start, context);
}

static void one_less(hec_rounds *rounds, int32_t rank, int32_t transfer, hec_rounds_start *start, void *context) {
  int32_t s = slot_of(rounds, rank, transfer);
  if (--rounds->slot[s].left == 0)
    next_batch(rounds, s, start, context);
}

void hec_rounds_done(hec_rounds *rounds, int32_t transfer, hec_rounds_start *start, void *context) {
  one_less(rounds, rounds->pair[transfer].source, transfer, start, context);
  one_less(rounds, rounds->pair[transfer].destination, transfer, start, context);
}
