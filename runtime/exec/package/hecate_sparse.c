/* Sparse collectives of libhecate: items and buffers of a user, lowered by runtime/plan/collectives, moved by the
 * transport.
 *
 *   start     check, choose the cheapest row (hec_collective_choose), lower it once more item by item, begin stage 0
 *   advance   test the stage's post; when done: add what was staged, copy back what bounced, begin the next stage
 *
 * A stage has one message per pair of ranks whose segments are the items' buffers; in a chain one message per hop.
 * Gathers travel on the parameter lane, scatters on the gradient lane, so one of each may be in progress.
 *
 * Bouncing: between processes peers read what is sent in place, so it must stand in the region. An item sent from
 * elsewhere is copied there when the stage begins. One that is forwarded while it arrives (chain) is received there and
 * copied out when the stage is done. One more copy of what is sent, nothing else.
 *
 * O(transfers + ranks) per stage besides the bytes. */
#include "runtime/exec/package/hecate_comm.h"

#include "runtime/base/arena.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, MEMBERS_MAX = 1 << 26 };

static const char *const names[] = {"a SparseAllGather", "a SparseReduceScatter"};

bool hec_flight_open(const hec_comm *comm) {
  return comm->flight[HECATE_GATHER].active || comm->flight[HECATE_SCATTER].active;
}

void hec_flight_free(hec_flight *f) {
  hec_collective_plan_free(&f->merged);
  hec_collective_plan_free(&f->each);
  hec_arena_free(&f->arena);
  free(f->staging);
}

/* ---- A stage ---- */

static const hec_transfer_list *each_of(const hec_flight *f) {
  return &f->each.stage[f->stage];
}

/* Which entries of `each` a merged transfer carries: those of its pair; in a chain each its own. */
static void index_stage(hec_flight *f) {
  const hec_transfer_list *merged = &f->merged.stage[f->stage], *each = each_of(f);
  f->each_at = HEC_NEW(&f->arena, int32_t, merged->n + 1);
  size_t at = 0;
  for (size_t k = 0; k < merged->n; k++) {
    const hec_transfer *t = &merged->data[k];
    f->each_at[k] = (int32_t)at;
    for (size_t begin = at; at < each->n && each->data[at].source == t->source &&
                            each->data[at].destination == t->destination && (t->item < 0 || at == begin);
         at++)
      ;
  }
  f->each_at[merged->n] = (int32_t)at;
  HEC_ASSERT(at == each->n);
}

static bool readable(const hec_comm *comm, const char *at) {
  const hec_rank *rank = comm->rank;
  return comm->one_process || !rank->transport->shares_memory ||
         (at >= rank->memory && at < rank->memory + rank->memory_bytes);
}

static hec_status take_bounce(hec_flight *f, hec_flight_item *item) {
  size_t bytes = ((size_t)f->sparse.bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (item->bounce)
    return HEC_OK;
  if (bytes > (size_t)(f->bounce_end - f->bounce_next))
    return hec_fail(HEC_FAILED, "%s: what is sent from memory not of hec_comm_alloc does not fit %zu bytes",
                    names[f->scatter], (size_t)(f->bounce_end - f->bounce_base));
  item->bounce = f->bounce_next;
  f->bounce_next += bytes;
  return HEC_OK;
}

static hec_status fill_bounces(const hec_comm *comm, hec_flight *f) {
  const hec_transfer_list *each = each_of(f);
  for (int32_t i = 0; i < f->sparse.n_items; i++)
    f->items[i].in_bounce = false;
  for (size_t k = 0; k < each->n; k++) {
    const hec_transfer *t = &each->data[k];
    hec_flight_item *item = &f->items[t->item];
    if (t->source != comm->rank->rank || item->in_bounce || readable(comm, item->at))
      continue;
    HEC_TRY(take_bounce(f, item));
    item->in_bounce = true;
    if (t->after < 0)
      memcpy(item->bounce, item->at, (size_t)f->sparse.bytes);
  }
  return HEC_OK;
}

static int32_t segments_of(void *context, int32_t k, hec_segment *out) {
  const hec_flight *f = context;
  int32_t n = 0;
  for (int32_t i = f->each_at[k]; i < f->each_at[k + 1]; i++) {
    const hec_flight_item *item = &f->items[each_of(f)->data[i].item];
    out[n++] = (hec_segment){item->in_bounce ? item->bounce : item->at, f->sparse.bytes};
  }
  return n;
}

static hec_status begin_stage(hec_comm *comm, hec_flight *f) {
  const hec_transfer_list *merged = &f->merged.stage[f->stage], *each = each_of(f);
  int32_t me = comm->rank->rank, n_segments = 0, n_received = 0;
  index_stage(f);
  HEC_TRY(fill_bounces(comm, f));
  for (size_t k = 0; k < each->n; k++) {
    n_segments += each->data[k].source == me || each->data[k].destination == me;
    n_received += each->data[k].destination == me;
    comm->sent += each->data[k].source == me ? each->data[k].bytes : 0;
  }
  bool staged = f->scatter && !comm->rank->transport->adds;
  if (staged)
    HEC_RESERVE(f->staging, f->staging_capacity, (size_t)n_received * (size_t)f->sparse.bytes);
  hec_stage stage = {.transfers = merged->data,
                     .n_transfers = (int32_t)merged->n,
                     .n_chunks = f->merged.n_chunks,
                     .rank = me,
                     .n_segments = n_segments,
                     .reduces = f->scatter,
                     .staged = staged,
                     .staging = f->staging,
                     .segments = segments_of,
                     .context = f};
  f->post = (hec_post){.lane = f->scatter ? HEC_LANE_GRAD : HEC_LANE_PARAM};
  hec_stage_bind(&stage, &f->arena, &f->post, &f->additions, &f->n_additions);
  return hec_post_is_empty(&f->post) ? HEC_OK : comm->rank->transport->start(comm->rank, &f->post);
}

static void end_stage(const hec_comm *comm, hec_flight *f) {
  comm->rank->processor->math->add(comm->rank->processor, f->additions, f->n_additions);
  const hec_transfer_list *each = each_of(f);
  for (size_t k = 0; k < each->n; k++) {
    const hec_flight_item *item = &f->items[each->data[k].item];
    if (each->data[k].destination == comm->rank->rank && item->in_bounce)
      memcpy(item->at, item->bounce, (size_t)f->sparse.bytes);
  }
}

/* As far as it goes without waiting. */
static hec_status advance(hec_comm *comm, hec_flight *f) {
  while (f->active) {
    bool done = true;
    if (!hec_post_is_empty(&f->post))
      HEC_TRY(comm->rank->transport->test(comm->rank, &f->post, &done));
    if (!done)
      return HEC_OK;
    end_stage(comm, f);
    f->active = ++f->stage < f->merged.n_stages;
    if (!f->active)
      return HEC_OK;
    hec_status status = begin_stage(comm, f);
    if (status != HEC_OK) { /* the others wait for this rank in vain: all must end */
      f->active = false;
      return hec_rank_report(comm->rank, status, hec_last_error());
    }
  }
  return HEC_OK;
}

/* ---- Starting ---- */

static hec_status check_item(const hec_comm *comm, const hec_sparse_items *items, int32_t i) {
  int32_t ranks = comm->rank->n_ranks, owner = items->owner[i];
  int32_t first = items->receiver_at[i], end = items->receiver_at[i + 1];
  if (owner < 0 || owner >= ranks)
    return hec_fail(HEC_BAD_INPUT, "item %d: expected an owner from 0 to %d, found %d", i, ranks - 1, owner);
  if (i > 0 && items->expert[i] <= items->expert[i - 1])
    return hec_fail(HEC_BAD_INPUT, "item %d: expected an expert above %d, found %d", i, items->expert[i - 1],
                    items->expert[i]);
  if (first < 0 || end <= first || end - first >= ranks || (i == 0 && first != 0))
    return hec_fail(HEC_BAD_INPUT, "item %d: expected 1 to %d receivers, found receiver_at %d and %d", i, ranks - 1,
                    first, end);
  for (int32_t k = first; k < end; k++) {
    int32_t r = items->receiver[k];
    if (r < 0 || r >= ranks || r == owner || (k > first && r <= items->receiver[k - 1]))
      return hec_fail(HEC_BAD_INPUT, "item %d: expected ascending ranks below %d other than the owner %d, found %d", i,
                      ranks, owner, r);
  }
  return HEC_OK;
}

static hec_status check_items(const hec_comm *comm, const hec_sparse_items *items, size_t bytes) {
  if (items->n_items < 0 || items->n_items > MEMBERS_MAX)
    return hec_fail(HEC_BAD_INPUT, "items: expected 0 to %d, found %d", MEMBERS_MAX, items->n_items);
  if (bytes > (size_t)INT64_MAX / MEMBERS_MAX)
    return hec_fail(HEC_BAD_INPUT, "bytes of an item: expected at most %lld, found %zu",
                    (long long)(INT64_MAX / MEMBERS_MAX), bytes);
  for (int32_t i = 0; i < items->n_items; i++)
    HEC_TRY(check_item(comm, items, i));
  if (items->n_items > 0 && items->receiver_at[items->n_items] > MEMBERS_MAX)
    return hec_fail(HEC_BAD_INPUT, "items: expected at most %d receivers in all, found %d", MEMBERS_MAX,
                    items->receiver_at[items->n_items]);
  return HEC_OK;
}

static bool has_part(const hec_sparse_items *items, int32_t i, int32_t rank) {
  bool part = items->owner[i] == rank;
  for (int32_t k = items->receiver_at[i]; k < items->receiver_at[i + 1]; k++)
    part = part || items->receiver[k] == rank;
  return part;
}

static hec_status take_buffers(const hec_comm *comm, const hec_sparse_items *items, size_t bytes, void *const *buffers,
                               hec_flight *f) {
  f->items = HEC_NEW(&f->arena, hec_flight_item, items->n_items);
  for (int32_t i = 0; i < items->n_items; i++) {
    if (!has_part(items, i, comm->rank->rank))
      continue;
    if (!buffers[i] && bytes > 0)
      return hec_fail(HEC_BAD_INPUT, "item %d: rank %d takes part and has no buffer for it", i, comm->rank->rank);
    f->items[i].at = buffers[i];
  }
  return HEC_OK;
}

static int32_t *copy_of(hec_arena *arena, const int32_t *from, int32_t n) {
  int32_t *to = HEC_NEW(arena, int32_t, n);
  if (n > 0)
    memcpy(to, from, (size_t)n * sizeof *to);
  return to;
}

static void take_items(const hec_sparse_items *items, size_t bytes, hec_flight *f) {
  int32_t n = items->n_items;
  f->sparse = (hec_sparse){.n_items = n,
                           .n_slices = 1,
                           .expert = HEC_NEW(&f->arena, int32_t, n),
                           .owner = copy_of(&f->arena, items->owner, n),
                           .receiver_at = copy_of(&f->arena, items->receiver_at, n > 0 ? n + 1 : 0),
                           .receiver = copy_of(&f->arena, items->receiver, n > 0 ? items->receiver_at[n] : 0),
                           .bytes = (int64_t)bytes};
  for (int32_t i = 0; i < n; i++)
    f->sparse.expert[i] = i;
}

static hec_status start(hec_comm *comm, int32_t which, const hec_sparse_items *items, size_t bytes,
                        void *const *buffers) {
  hec_flight *f = &comm->flight[which];
  if (f->active)
    return hec_fail(HEC_BAD_INPUT, "%s is in progress: hec_sparse_wait", names[which]);
  HEC_TRY(check_items(comm, items, bytes));
  hec_arena_free(&f->arena);
  HEC_TRY(take_buffers(comm, items, bytes, buffers, f));
  take_items(items, bytes, f);
  f->scatter = which == HECATE_SCATTER;
  f->merged.per_item = false;
  f->each.per_item = true;
  const hec_collective *row = hec_collective_choose(&comm->cost, &comm->problem, &f->sparse, f->scatter, comm->forced,
                                                    &f->merged, &comm->scratch);
  (f->scatter ? row->scatter : row->gather)(&comm->problem, &f->sparse, &f->each);
  HEC_ASSERT(f->merged.n_stages == f->each.n_stages);
  comm->last = row->name;
  f->bounce_next = f->bounce_base;
  f->stage = 0;
  f->active = f->merged.n_stages > 0;
  if (!f->active)
    return HEC_OK;
  hec_status status = begin_stage(comm, f);
  f->active = status == HEC_OK;
  return status;
}

/* ---- What others call ---- */

int hec_sparse_all_gather_start(hec_comm *comm, const hec_sparse_items *items, size_t bytes, void *const *buffers) {
  return (int)start(comm, HECATE_GATHER, items, bytes, buffers);
}

int hec_sparse_reduce_scatter_start(hec_comm *comm, const hec_sparse_items *items, size_t n_floats,
                                    float *const *buffers) {
  if (n_floats > SIZE_MAX / sizeof(float))
    return (int)hec_fail(HEC_BAD_INPUT, "floats of an item: %zu cannot be addressed", n_floats);
  HEC_SCOPED(hec_arena) pointers = {0};
  void **plain = HEC_NEW(&pointers, void *, items->n_items > 0 ? items->n_items : 0);
  for (int32_t i = 0; i < items->n_items; i++)
    plain[i] = buffers[i];
  hec_status status = start(comm, HECATE_SCATTER, items, n_floats * sizeof(float), plain);
  return (int)status;
}

static hec_status check_which(int32_t which) {
  if (which == HECATE_GATHER || which == HECATE_SCATTER)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "expected HECATE_GATHER or HECATE_SCATTER, found %d", which);
}

static hec_status advance_all(hec_comm *comm) {
  HEC_TRY(hec_rank_check(comm->rank));
  for (int32_t f = 0; f < HEC_N_FLIGHTS; f++)
    HEC_TRY(advance(comm, &comm->flight[f]));
  return HEC_OK;
}

int hec_sparse_test(hec_comm *comm, int32_t which, int32_t *done) {
  HEC_TRY_CODE(check_which(which));
  HEC_TRY_CODE(advance_all(comm));
  *done = !comm->flight[which].active;
  return HECATE_OK;
}

/* Both are moved on, so that ranks may wait for them in different orders. */
static hec_status wait_for(hec_comm *comm, int32_t which) {
  hec_rank *rank = comm->rank;
  const hec_flight *f = &comm->flight[which];
  int64_t deadline_ns = hec_clock_ns() + rank->limit_ns, moved = -1;
  for (int32_t stage = -1;;) {
    HEC_TRY(advance_all(comm));
    if (!f->active)
      return HEC_OK;
    int64_t now_ns = hec_clock_ns(), total = hec_post_moved(&f->post);
    if (f->stage != stage || total != moved)
      deadline_ns = now_ns + rank->limit_ns;
    stage = f->stage;
    moved = total;
    int32_t peer = hec_post_missing_peer(&f->post);
    hec_rank_waits_for(rank, peer);
    if (now_ns >= deadline_ns)
      return hec_rank_late(rank, peer, names[which]);
    HEC_TRY(rank->transport->wait(rank, deadline_ns));
  }
}

int hec_sparse_wait(hec_comm *comm, int32_t which) {
  HEC_TRY_CODE(check_which(which));
  hec_status status = wait_for(comm, which);
  hec_rank_waits_for(comm->rank, -1);
  return (int)status;
}

int hec_sparse_all_gather(hec_comm *comm, const hec_sparse_items *items, size_t bytes, void *const *buffers) {
  HEC_TRY_CODE(hec_sparse_all_gather_start(comm, items, bytes, buffers));
  return hec_sparse_wait(comm, HECATE_GATHER);
}

int hec_sparse_reduce_scatter(hec_comm *comm, const hec_sparse_items *items, size_t n_floats, float *const *buffers) {
  HEC_TRY_CODE(hec_sparse_reduce_scatter_start(comm, items, n_floats, buffers));
  return hec_sparse_wait(comm, HECATE_SCATTER);
}
