/* Turns: a word that holds the rank whose turn it is. Taking is a compare-and-swap; whoever fails sleeps until rung. A rank
 * that is stopped in its turn ends no more turns, and so is found by those who wait. */
#include "runtime/exec/launch/world.h"

hec_status hec_rank_take_turn(hec_rank *rank) {
  hec_turn *turn = rank->world->turn;
  uint32_t ended = hec_rank_turns(rank);
  int64_t progress_ns = hec_clock_ns();
  for (int32_t holder = 0; !atomic_compare_exchange_strong(&turn->holder, &holder, rank->rank + 1); holder = 0) {
    int64_t now_ns = hec_clock_ns();
    hec_rank_waits_for(rank, holder - 1);
    if (hec_rank_turns(rank) != ended)
      progress_ns = now_ns;
    ended = hec_rank_turns(rank);
    if (now_ns - progress_ns > rank->limit_ns)
      return hec_rank_late(rank, holder - 1, "taking turns");
    HEC_TRY(hec_world_sleep(rank, now_ns + (int64_t)HEC_SLICE_MS * 1000000));
  }
  hec_rank_waits_for(rank, -1);
  return HEC_OK;
}

void hec_rank_end_turn(hec_rank *rank) {
  (void)atomic_fetch_add(&rank->world->turn->ended, 1);
  atomic_store(&rank->world->turn->holder, 0);
  for (int32_t r = rank->world->first; r < rank->world->first + rank->world->n_local; r++)
    if (r != rank->rank)
      hec_world_ring(rank->world, r);
}

uint32_t hec_rank_turns(const hec_rank *rank) {
  return atomic_load(&rank->world->turn->ended);
}
