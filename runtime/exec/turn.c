/* Turns: a word that holds the rank whose turn it is. Taking is a compare-and-swap; whoever fails sleeps until rung. */
#include "runtime/exec/world.h"

hec_status hec_rank_take_turn(hec_rank *rank) {
  for (;;) {
    int32_t nobody = 0;
    if (atomic_compare_exchange_strong(rank->world->turn, &nobody, rank->rank + 1))
      return HEC_OK;
    HEC_TRY(hec_world_sleep(rank, hec_clock_ns() + (int64_t)HEC_SLICE_MS * 1000000));
  }
}

void hec_rank_end_turn(hec_rank *rank) {
  atomic_store(rank->world->turn, 0);
  for (int32_t r = rank->world->first; r < rank->world->first + rank->world->n_local; r++)
    if (r != rank->rank)
      hec_world_ring(rank->world, r);
}
