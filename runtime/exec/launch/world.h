/* The inside of a launch: what world.c, launch.c, control.c, failure.c, turn.c and the transports share. A process manager's backend makes a
 * world of one local rank with it. Not for users of ranks (rank.h is). */
#pragma once
#include "runtime/exec/launch/rank.h"

#include <semaphore.h>
#include <stdalign.h>
#include <stdatomic.h>

enum {
  HEC_CONTROL_BYTES = 256 << 10, /* behind every region: where control messages stand while peers read them */
  HEC_PLACE_WORDS = 7,
  HEC_FAILURE_BYTES = 1024,
  HEC_SLICE_MS = 50 /* longest sleep before a look at the failure flag */
};

/* What others see of a rank. Lines are kept apart: the bell is rung by peers, the place is written in the loop. */
typedef struct {
  alignas(64) sem_t doorbell;
  _Atomic uint32_t bell; /* events for this rank so far */
  _Atomic int32_t sleeping;
  uint32_t heard;                          /* its owner's: the bell when it last returned from a sleep */
  alignas(64) _Atomic int ended;           /* the body returned and its outcome is recorded */
  _Atomic int32_t waits_for;               /* the peer's number in the launch; -1: none */
  _Atomic int64_t awake_ns;                /* last time it was seen in a wait; a stopped rank's grows old */
  alignas(64) _Atomic uint32_t place_turn; /* odd while the place is being written */
  _Atomic uint64_t place[HEC_PLACE_WORDS];
} hec_rank_slot;

/* claimed by the first to fail (its rank + 1; the supervisor: n_ranks + 1), then written, then told. */
typedef struct {
  _Atomic int32_t claimed;
  _Atomic int32_t told;
  hec_status code;
  char text[HEC_FAILURE_BYTES];
} hec_failure;

/* Virtual time: who computes. */
typedef struct {
  _Atomic int32_t holder; /* 1 + the rank whose turn it is; 0: nobody's */
  _Atomic uint32_t ended; /* turns so far */
} hec_turn;

struct hec_world {
  int32_t n_ranks, first, n_local; /* ranks first .. first + n_local - 1 share this memory */
  int32_t base;                    /* of a group (group.h): its rank 0's number in the launch; else 0 */
  bool crowded;                    /* fewer cores than ranks: never poll before sleeping */
  size_t memory_bytes, stride;
  char *regions;        /* [n_local * stride] */
  hec_rank_slot *slots; /* [n_ranks] */
  hec_failure *failure;
  _Atomic int64_t *posted; /* [n_local][HEC_POSTS_MAX]; NULL: ranks elsewhere */
  hec_turn *turn;
  void *transport; /* set by its prepare */
  void *link;      /* likewise, of the link between devices */
  int32_t n_shared;
  struct {
    void *at;
    size_t bytes;
  } shared[8];
};

/* Maps regions, slots and the failure record for ranks first .. first + n_local - 1 of this machine. */
hec_status hec_world_new(const hec_launch_options *options, int32_t first, int32_t n_local,
                         hec_world **out) HEC_MUST_USE;
void hec_world_free(hec_world *world);
hec_rank hec_world_rank(hec_world *world, const hec_launch_options *options, int32_t rank);
/* Zeroed memory that ranks made from now on share; reserved, not touched. Belongs to the world. */
hec_status hec_world_share(hec_world *world, size_t bytes, void **out) HEC_MUST_USE;
static inline bool hec_world_is_local(const hec_world *world, int32_t rank) {
  return rank >= world->first && rank < world->first + world->n_local;
}
/* The region of a rank of this machine; rank->memory is it, unless that is the memory of a device. */
static inline char *hec_world_region(const hec_world *world, int32_t rank) {
  return world->regions + (size_t)(rank - world->first) * world->stride;
}
/* The HEC_CONTROL_BYTES behind the rank's region. */
static inline char *hec_world_control(const hec_rank *rank) {
  return hec_world_region(rank->world, rank->rank) + (rank->world->stride - HEC_CONTROL_BYTES);
}

/* Something may have changed for `rank`. Rings are never lost: a sleep that begins after a ring which the rank has not
 * heard returns at once. */
void hec_world_ring(hec_world *world, int32_t rank);
/* Until rung, until_ns or failure. */
hec_status hec_world_sleep(hec_rank *rank, int64_t until_ns) HEC_MUST_USE;
/* For transports that sleep otherwise: says that this rank is alive. */
void hec_world_awake(hec_rank *rank, int64_t now_ns);

/* Records a failure of the launch unless there is one; `who` is a rank or n_ranks (the supervisor). `dead`: a rank that
 * ended and may have left its claim unwritten, which is then taken over; -1: none. */
void hec_world_fail(hec_world *world, int32_t who, int32_t dead, hec_status code, const char *text);
bool hec_world_failed(const hec_world *world);
/* The place last published by `rank`; false when it published none or is elsewhere. */
bool hec_world_place(const hec_world *world, int32_t rank, hec_place *place);
