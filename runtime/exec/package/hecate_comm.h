/* The inside of libhecate's communicators: hecate_comm.c (ranks, memory), hecate_sparse.c (collectives).
 *
 * A rank's region:   heap of hec_comm_alloc | bounce of the gather | bounce of the scatter */
#pragma once
#include "runtime/exec/launch/rank.h"
#include "runtime/exec/package/hecate.h"
#include "runtime/exec/stage.h"
#include "runtime/plan/collective.h"
#include "runtime/plan/problem.h"

/* The public codes are ints. */
#define HEC_TRY_CODE(expression)                                                                                       \
  do {                                                                                                                 \
    int try_code_ = (int)(expression);                                                                                 \
    if (try_code_ != HECATE_OK)                                                                                        \
      return try_code_;                                                                                                \
  } while (0)

enum { HEC_N_FLIGHTS = 2 }; /* HECATE_GATHER, HECATE_SCATTER */

/* Where an item stands on this rank. */
typedef struct {
  char *at;       /* the user's buffer; NULL: this rank has no part in it */
  char *bounce;   /* a place for it that peers can read; NULL: none yet */
  bool in_bounce; /* in the stage at hand it travels from and to there */
} hec_flight_item;

/* A sparse collective in progress: stages, one after the other. */
typedef struct {
  bool scatter, active;
  int32_t stage;
  hec_sparse sparse; /* a copy of the user's items, `expert` being the index of the item */
  hec_flight_item *items;
  hec_collective_plan merged, each; /* a transfer per pair; per item, in the same order of pairs */
  int32_t *each_at;                 /* of the stage: merged transfer k carries each[each_at[k] .. each_at[k + 1]] */
  hec_post post;
  hec_piece *additions; /* [n_additions] due after the stage */
  int32_t n_additions;
  char *staging; /* malloc */
  size_t staging_capacity;
  char *bounce_base, *bounce_end, *bounce_next;
  hec_arena arena; /* of one collective */
} hec_flight;

struct hec_comm {
  hec_rank *rank;
  bool one_process; /* ranks are threads: peers read any address */
  const hec_collective *forced;
  hec_arena arena;
  hec_cluster cluster;
  hec_problem problem; /* cluster and ranks only */
  hec_link_cost cost;
  hec_collective_plan scratch;
  hec_flight flight[HEC_N_FLIGHTS];
  size_t heap_bytes, heap_used;
  int64_t sent;
  const char *last; /* collective's name */
};

bool hec_flight_open(const hec_comm *comm); /* one that was started and never waited for */
void hec_flight_free(hec_flight *flight);
