/* Devices that talk by NCCL, one to a rank. There is a communicator per communication lane, since what a communicator
 * is given is carried out in one order. An exchange is one group of sends and receives per step. Groups go on the
 * lane's stream in the order of the post (link_steps.c says why steps cannot deadlock). Groups of different lanes run
 * beside each other on the device: each waits for its peers only. Every rank gives its lanes their exchanges in the
 * order of the ids. So the smallest id that is not done always can go on once it is on all its streams. (Kernels that
 * wait for peers must all find room on the device at once: four lanes of them do.)
 *
 * `open` sends one number between every two ranks and sums one on every lane, so that no connection is made later. That
 * writes over the beginning of rank->memory. Nothing is added while it is received: the executor brings staging.
 *
 * Failure: while hosts wait, `check` asks the communicators; close(failed) aborts them, which ends what waits on the device
 * for peers that will never come. O(messages + segments) per exchange, times chunks where it is chained. */
#include "runtime/exec/cuda/plugin.h"
#include "runtime/exec/launch/world.h"
#include "runtime/exec/link/device_link.h"
#include "runtime/exec/link/link_steps.h"
#include "runtime/exec/stage.h"

#include <stdlib.h>
#include <time.h>

typedef struct {
  const hec_cuda_messages *messages;
  hec_cuda_communicator *by[HEC_N_LANES]; /* NULL: of the compute lane, and where there is one rank */
  hec_link_steps steps;
  hec_arena arena;
} nccl;

static hec_status fail(hec_rank *rank, int32_t lane, const char *words) {
  HEC_TRY(hec_rank_check(rank)); /* then that is why */
  return hec_rank_fail(rank, "NCCL, lane %s: %s", hec_lane_name[lane], words);
}

/* ---- Exchanges ---- */

/* Everything between begin and end is noted, also after an error: a group that was begun must end. */
static const char *run_group(const nccl *own, int32_t lane, const hec_link_piece *pieces, size_t n) {
  const hec_cuda_messages *messages = own->messages;
  hec_cuda_communicator *by = own->by[lane];
  const char *words = messages->begin(by);
  if (words)
    return words;
  for (size_t i = 0; i < n && !words; i++)
    words = pieces[i].sends ? messages->send(by, pieces[i].peer, pieces[i].at, pieces[i].n)
                            : messages->receive(by, pieces[i].peer, pieces[i].at, pieces[i].n);
  const char *ended = messages->end(by);
  return words ? words : ended;
}

static hec_status exchange(hec_rank *rank, hec_post *post) {
  nccl *own = rank->link_own;
  HEC_ASSERT(!post->add && post->lane > HEC_LANE_COMPUTE && post->lane < HEC_N_LANES && !rank->serial);
  if (hec_post_is_empty(post))
    return HEC_OK;
  HEC_TRY(hec_rank_check(rank));
  hec_arena_mark mark = hec_arena_save(&own->arena);
  const char *words = NULL;
  hec_link_steps_begin(&own->steps, post, &own->arena);
  while (!words && hec_link_steps_next(&own->steps))
    words = run_group(own, post->lane, own->steps.pieces, own->steps.n_pieces);
  hec_arena_rewind(&own->arena, mark);
  if (words)
    return fail(rank, post->lane, words);
  hec_post_set_moved(post);
  return HEC_OK;
}

static hec_status allreduce(hec_rank *rank, int32_t lane, float *at, int64_t n) {
  nccl *own = rank->link_own;
  HEC_ASSERT(lane > HEC_LANE_COMPUTE && lane < HEC_N_LANES && !rank->serial);
  if (n == 0 || rank->n_ranks == 1)
    return HEC_OK;
  HEC_TRY(hec_rank_check(rank));
  const char *words = own->messages->allreduce(own->by[lane], at, n);
  return words ? fail(rank, lane, words) : HEC_OK;
}

/* ---- Open and close ---- */

static bool stop(void *context) {
  const hec_rank *rank = context;
  return hec_world_failed(rank->world);
}

static hec_status open_lane(hec_rank *rank, nccl *own, int32_t lane) {
  hec_cuda_id id = {{0}};
  const char *words = rank->rank == 0 ? own->messages->make_id(&id) : NULL;
  if (words)
    return fail(rank, lane, words);
  HEC_TRY(hec_rank_broadcast(rank, &id, sizeof id));
  words = own->messages->open(rank->processor, &id, rank->n_ranks, rank->rank, hec_clock_ns() + rank->limit_ns, stop,
                              rank, &own->by[lane]);
  return words ? fail(rank, lane, words) : HEC_OK;
}

/* One number to every other rank and one from each, then a sum of one. */
static hec_status connect_lane(hec_rank *rank, int32_t lane) {
  float *at = (float *)(void *)rank->memory;
  hec_segment segments[2 * HEC_RANKS_MAX];
  hec_message messages[2 * HEC_RANKS_MAX];
  hec_post post = {.lane = lane, .sends = messages, .receives = messages + HEC_RANKS_MAX};
  for (int32_t p = 0; p < rank->n_ranks; p++) {
    if (p == rank->rank)
      continue;
    for (int32_t end = 0; end < 2; end++) {
      hec_segment *segment = &segments[2 * p + end];
      *segment = (hec_segment){at + 2 * (size_t)p + end, sizeof(float)};
      hec_message_add(end ? post.receives : post.sends, end ? &post.n_receives : &post.n_sends, p, segment, 1);
    }
  }
  rank->processor->streams->select(rank->processor, lane);
  HEC_TRY(exchange(rank, &post));
  return allreduce(rank, lane, at + 2 * (size_t)rank->rank, 1);
}

static hec_status connect_all(hec_rank *rank) {
  size_t bytes = 2 * (size_t)rank->n_ranks * sizeof(float);
  if (rank->memory_bytes < bytes)
    return hec_rank_fail(rank, "connecting needs %zu bytes of the device's memory", bytes);
  for (int32_t lane = HEC_LANE_TOKEN; lane < HEC_N_LANES; lane++) {
    HEC_TRY(connect_lane(rank, lane));
    HEC_TRY(hec_device_wait(rank, "the first messages of NCCL")); /* lanes write the same memory */
  }
  rank->processor->streams->restart(rank->processor);
  return hec_rank_barrier(rank);
}

static hec_status open_all(hec_rank *rank) {
  const hec_cuda_plugin *plugin = hec_cuda_plugin_of();
  if (!plugin || !plugin->messages)
    return hec_rank_fail(rank, "link nccl: the CUDA plug-in is not loaded");
  HEC_ASSERT(rank->processor->streams);
  nccl *own = hec_malloc(1, sizeof *own);
  *own = (nccl){.messages = plugin->messages};
  rank->link_own = own;
  if (rank->n_ranks == 1)
    return HEC_OK;
  for (int32_t lane = HEC_LANE_TOKEN; lane < HEC_N_LANES; lane++)
    HEC_TRY(open_lane(rank, own, lane));
  return connect_all(rank);
}

static hec_status check(hec_rank *rank) {
  const nccl *own = rank->link_own;
  for (int32_t lane = 0; lane < HEC_N_LANES; lane++) {
    const char *words = own->by[lane] ? own->messages->check(own->by[lane]) : NULL;
    if (words)
      return fail(rank, lane, words);
  }
  return HEC_OK;
}

static void close_all(hec_rank *rank, bool failed) {
  nccl *own = rank->link_own;
  for (int32_t lane = 0; own && lane < HEC_N_LANES; lane++)
    if (own->by[lane])
      own->messages->close(own->by[lane], failed);
  if (own) {
    hec_link_steps_free(&own->steps);
    hec_arena_free(&own->arena);
  }
  free(own);
  rank->link_own = NULL;
}

const hec_device_link hec_device_link_nccl = {
    .name = "nccl",
    .summary = "NCCL, one device to a rank",
    .adds = false,
    .prepare = NULL,
    .open = open_all,
    .exchange = exchange,
    .allreduce = allreduce,
    .check = check,
    .close = close_all,
};
