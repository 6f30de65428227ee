/* Operations that move bytes between ranks: which bytes, and how far they are.
 *
 *   dispatch, combine   token rows, of one chunk: assigned rows of one side, computed rows of the other (rows.h); without
 *                       cells: bytes that stand where the work table says
 *   gather, scatter ..  parcels of experts: parameters, gradients, optimizer state, found by (layer, expert, part)
 *   all-reduce          a ring: n - 1 steps that add, n - 1 that copy, each a slice from every rank to the next; of
 *                       stride s a ring of the ranks of equal place
 *   counts              every rank's row to all
 *
 * Where the transport adds while it receives, what is to be summed is added straight out of the sender's memory.
 * Otherwise it lands in staging, one slot per source, and the reduction that follows adds slot by slot. Either way the
 * order is ascending by source, around a ring by steps. So both give the same bits. */
#include "runtime/base/arena.h"
#include "runtime/exec/exec_state.h"
#include "runtime/exec/link/device_link.h"
#include "runtime/plan/problem.h"
#include "runtime/program/walk.h"

#include <string.h>

/* Whether receives can be added where they belong. */
static bool adds(const hec_exec *exec) {
  return exec->rank->link ? exec->rank->link->adds : exec->rank->transport->adds;
}

static hec_exchange_state *new_state(hec_exec *exec, hec_lane lane, int32_t n_max) {
  hec_exchange_state *x = HEC_NEW(&exec->step, hec_exchange_state, 1);
  x->post.lane = (int32_t)lane;
  x->post.sends = HEC_NEW(&exec->step, hec_message, n_max);
  x->post.receives = HEC_NEW(&exec->step, hec_message, n_max);
  return x;
}

/* ---- Token rows ---- */

static hec_segment row_segment(float *rows, int32_t d, int32_t first, int32_t n) {
  return (hec_segment){rows + (size_t)first * (size_t)d, (int64_t)n * d * (int64_t)sizeof(float)};
}

/* One for each run of the slot; returns the end. */
static hec_segment *run_segments(float *rows, int32_t d, const hec_rows_runs *runs, int32_t slot, hec_segment *out) {
  for (int32_t i = runs->at[slot]; i < runs->at[slot + 1]; i++)
    *out++ = row_segment(rows, d, runs->run[i].first, runs->run[i].rows);
  return out;
}

static void bind_tokens(hec_exec *exec, hec_exec_op *op) {
  const hec_rows *rows = hec_exec_rows(exec, op);
  bool to_experts = !op->op.reverse, backward = op->op.backward;
  int32_t d = exec->problem->moe->d_model;
  static const hec_tensor assigned_of[2][2] = {{HEC_TENSOR_RETURNED, HEC_TENSOR_GRAD_RETURNED},
                                               {HEC_TENSOR_SEND, HEC_TENSOR_GRAD_SEND}};
  static const hec_tensor computed_of[2][2] = {{HEC_TENSOR_OUTPUT, HEC_TENSOR_GRAD_INPUT},
                                               {HEC_TENSOR_INPUT, HEC_TENSOR_GRAD_OUTPUT}};
  float *assigned = hec_exec_tensor(exec, op, assigned_of[to_experts][backward]);
  float *computed = hec_exec_tensor(exec, op, computed_of[to_experts][backward]);
  hec_exchange_state *x = op->exchange = new_state(exec, op->op.lane, exec->n_ranks);
  if (rows->relays) {
    hec_relays_bind(exec, op, assigned, computed);
    return;
  }
  hec_segment *segment = HEC_NEW(&exec->step, hec_segment, exec->n_ranks + rows->leave.n + rows->arrive.n);
  hec_message *of_assigned = to_experts ? x->post.sends : x->post.receives;
  hec_message *of_computed = to_experts ? x->post.receives : x->post.sends;
  int32_t n_assigned = 0, n_computed = 0;
  for (int32_t p = 0; p < exec->n_ranks; p++) {
    hec_segment *first = segment;
    int32_t slot = op->op.chunk * exec->n_ranks + p, *leaving = rows->leaving_at + slot;
    if (exec->rank->link) /* links want the same cuts at both ends; transports cut as they like */
      segment = run_segments(assigned, d, &rows->leave, slot, segment);
    else
      *segment++ = row_segment(assigned, d, leaving[0], leaving[1] - leaving[0]);
    hec_message_add(of_assigned, &n_assigned, p, first, (int32_t)(segment - first));
    first = segment;
    segment = run_segments(computed, d, &rows->arrive, slot, segment);
    hec_message_add(of_computed, &n_computed, p, first, (int32_t)(segment - first));
  }
  x->post.n_sends = to_experts ? n_assigned : n_computed;
  x->post.n_receives = to_experts ? n_computed : n_assigned;
}

typedef struct {
  hec_exec *exec;
  const hec_exec_op *op;
  const hec_transfer *own;
} placed;

static int32_t placed_segment(void *context, int32_t k, hec_segment *out) {
  const placed *of = context;
  const hec_work_table *work = &of->exec->options.work;
  *out = work->place(work->context, of->exec, of->op, &of->own[k]);
  HEC_ASSERT(out->bytes == of->own[k].bytes); /* what the program says */
  return 1;
}

static void bind_placed(hec_exec *exec, hec_exec_op *op) {
  HEC_ASSERT(exec->options.work.place && !op->op.reverse);
  int32_t n;
  placed of = {.exec = exec, .op = op, .own = hec_exec_transfers(exec, &op->op, 2 * exec->n_ranks, &n)};
  hec_exchange_bind_rows(
      exec, op, adds(exec),
      (hec_stage){.transfers = of.own, .n_transfers = n, .n_segments = n, .segments = placed_segment, .context = &of});
}

static void bind_between_nodes(hec_exec *exec, hec_exec_op *op) {
  op->exchange = new_state(exec, op->op.lane, exec->n_ranks);
  hec_exchange_bind_nodes(exec, op, &op->exchange->post);
}

/* ---- Parcels ---- */

/* The arrays of a kind of state: from *first on, and how many. */
static int32_t arrays_of(hec_state state, int32_t *first) {
  *first = state == HEC_STATE_PARAM ? 0 : state == HEC_STATE_GRAD ? 1 : 2;
  return state == HEC_STATE_OPTIMIZER ? 2 : 1;
}

/* Where a migrating parcel stands before or comes to stand; by the store, whatever the plan says. */
static float *migrating(hec_exec *exec, const hec_parcel *parcel, int32_t array, int64_t *n) {
  HEC_ASSERT(parcel->n_parts == exec->options.n_slices);
  hec_store_part at =
      hec_store_at(&exec->store, (int32_t)hec_row_of(exec, parcel->layer, parcel->expert), parcel->part);
  *n = at.n;
  return array == 0 ? at.params : array == 1 ? at.grads : array == 2 ? at.first : at.second;
}

typedef struct {
  hec_exec *exec;
  const hec_op *op;
} parcels_of;

/* Segments of the parcels of transfer k; returns their number. */
static int32_t parcel_segments(void *context, int32_t k, hec_segment *out) {
  const parcels_of *of = context;
  hec_exec *exec = of->exec;
  const hec_op *op = of->op;
  const int32_t *at = exec->program->parcel_index + op->exchange.parcel_at + k;
  int32_t n = 0;
  for (int32_t i = at[0]; i < at[1]; i++) {
    const hec_parcel *parcel = &exec->program->parcels[i];
    int32_t first, count = arrays_of(parcel->state, &first);
    for (int32_t a = first; a < first + count; a++) {
      int64_t floats;
      float *address = op->role == HEC_ROLE_MIGRATE ? migrating(exec, parcel, a, &floats)
                                                    : hec_exec_parcel(exec, parcel, a, &floats);
      HEC_ASSERT(address != NULL || floats == 0);
      out[n++] = (hec_segment){address, floats * (int64_t)sizeof(float)};
    }
  }
  return n;
}

static bool reduces(const hec_op *op) {
  return op->role == HEC_ROLE_SCATTER || op->role == HEC_ROLE_REPLICA_SCATTER;
}

/* Slices of guests that this rank keeps itself: copied from the slot (gather), or added to it (scatter). */
hec_piece *hec_exchange_own(hec_exec *exec, const hec_op *op, bool adds, int32_t *n) {
  hec_piece *own = HEC_NEW(&exec->step, hec_piece, op->n_own);
  *n = 0;
  for (int32_t i = 0; i < op->n_own; i++) {
    const hec_move *move = &exec->program->own[op->own_at + i];
    if (move->source != exec->r)
      continue;
    int64_t floats, begin = hec_part_begin(exec->options.expert_size, move->parcel.part, move->parcel.n_parts);
    float *kept = hec_exec_parcel(exec, &move->parcel, adds ? 1 : 0, &floats);
    float *guest = hec_exec_guest_at(exec, op, move->parcel.expert, adds) + begin;
    own[(*n)++] = adds ? (hec_piece){kept, guest, floats} : (hec_piece){guest, kept, floats};
  }
  return own;
}

/* A rank that gets a new expert takes its slot now; it keeps those that it sends until the iteration ends. */
static hec_status take_slots(hec_exec *exec, const hec_op *op) {
  HEC_ASSERT(op->role != HEC_ROLE_MIGRATE || op->micro_batch == 0); /* gradients do not migrate: there are none yet */
  for (int32_t k = 0; op->role == HEC_ROLE_MIGRATE && k < op->exchange.n_transfers; k++) {
    if (exec->program->transfers[op->exchange.transfer_at + k].destination != exec->r)
      continue;
    const int32_t *at = exec->program->parcel_index + op->exchange.parcel_at + k;
    for (int32_t i = at[0]; i < at[1]; i++) {
      const hec_parcel *p = &exec->program->parcels[i];
      HEC_TRY(hec_exec_take(exec, (int32_t)hec_row_of(exec, p->layer, p->expert), p->part));
    }
  }
  return HEC_OK;
}

/* Sums that begin with this exchange: its post adds to them. */
static hec_piece new_sums(const hec_exec *exec, const hec_exec_op *op) {
  for (size_t i = exec->n_open; i-- > 0;) {
    const hec_open_buffer_of *b = &exec->open[i];
    if (b->tensor == HEC_TENSOR_PART_GRAD && exec->program->holds[b->hold].first == op->id && b->bytes > 0)
      return (hec_piece){(float *)(void *)b->at, NULL, (int64_t)b->bytes / (int64_t)sizeof(float)};
  }
  return (hec_piece){0};
}

static void clear_sums(const hec_exec *exec, const hec_exec_op *op) {
  const hec_piece *sums = &op->exchange->sums;
  if (sums->n > 0)
    exec->rank->processor->math->zero(exec->rank->processor, sums->to, sums->n);
}

static hec_status bind_parcels(hec_exec *exec, hec_exec_op *op) {
  const hec_op *o = &op->op;
  const int32_t *parcel_at = exec->program->parcel_index + o->exchange.parcel_at;
  HEC_TRY(take_slots(exec, o));
  hec_exchange_state *x = op->exchange = HEC_NEW(&exec->step, hec_exchange_state, 1);
  x->post.lane = (int32_t)o->lane;
  bool staged = reduces(o) && !adds(exec);
  parcels_of of = {exec, o};
  hec_stage stage = {.transfers = exec->program->transfers + o->exchange.transfer_at,
                     .n_transfers = o->exchange.n_transfers,
                     .n_chunks = o->exchange.n_chunks,
                     .rank = exec->r,
                     .n_segments = 2 * (parcel_at[o->exchange.n_transfers] - parcel_at[0]),
                     .reduces = reduces(o),
                     .staged = staged,
                     .staging = staged ? hec_exec_tensor(exec, op, HEC_TENSOR_STAGING) : NULL,
                     .segments = parcel_segments,
                     .context = &of};
  hec_stage_bind(&stage, &exec->step, &x->post, &x->additions, &x->n_additions);
  x->own = hec_exchange_own(exec, o, false, &x->n_own);
  x->sums = new_sums(exec, op);
  exec->staged = x->additions;
  exec->n_staged = x->n_additions;
  return HEC_OK;
}

void hec_exchange_bind_rows(hec_exec *exec, hec_exec_op *op, bool adds, hec_stage stage) {
  hec_exchange_state *x = op->exchange = HEC_NEW(&exec->step, hec_exchange_state, 1);
  x->post.lane = (int32_t)op->op.lane;
  stage.n_chunks = 1;
  stage.rank = exec->r;
  stage.reduces = op->op.reverse;
  stage.staged = op->op.reverse && !adds;
  stage.staging = stage.staged ? hec_exec_tensor(exec, op, HEC_TENSOR_STAGING) : NULL;
  hec_stage_bind(&stage, &exec->step, &x->post, &x->additions, &x->n_additions);
  exec->staged = x->additions;
  exec->n_staged = x->n_additions;
}

/* ---- Everybody with everybody ---- */

/* What an all-reduce sums: a span of dense gradients; what its second half alone brings: of parameters. */
static float *reduced(const hec_exec *exec, const hec_op *op, int64_t *n) {
  hec_dense dense = hec_exec_dense(exec, op->layer);
  int64_t first = op->allreduce.first_byte / (int64_t)sizeof(float);
  *n = (int64_t)(op->bytes / sizeof(float));
  HEC_ASSERT((double)*n * sizeof(float) == op->bytes && first * (int64_t)sizeof(float) == op->allreduce.first_byte);
  HEC_ASSERT(first >= 0 && first + *n <= dense.n);
  return (op->allreduce.half == HEC_ALLREDUCE_GATHER ? dense.params : dense.grads) + first;
}

/* Around a ring of n ranks, rank i is place i. In step k = 0 .. n-2 of the first half it sends slice i - k - 1 to the
 * next, and adds slice i - k - 2 of the one before. So it ends with slice i of the sum. In step k of the second half it
 * sends slice i - k, and gets slice i - k - 1. All modulo n. Every rank sends 2 (n-1)/n of the bytes, to its next alone:
 * what the laws price, and what NCCL does. One ring, however many NICs a node has: the transport chooses among them. */
typedef struct {
  float *all, *staging; /* staging: NULL where the transport adds */
  int64_t n;            /* floats of all */
  int32_t place, members, before, next, lane;
} ring;

static ring ring_of(hec_exec *exec, const hec_op *op) {
  int32_t stride = op->allreduce.stride > 1 ? op->allreduce.stride : 1, first = exec->r % stride;
  ring of = {.place = exec->r / stride, .members = exec->n_ranks / stride, .lane = (int32_t)op->lane};
  of.all = reduced(exec, op, &of.n);
  of.staging = adds(exec) ? NULL : exec->staging;
  of.next = (of.place + 1) % of.members * stride + first;
  of.before = (of.place + of.members - 1) % of.members * stride + first;
  return of;
}

static hec_segment slice_of(const ring *of, int32_t slice) {
  slice = (slice + 2 * of->members) % of->members;
  int64_t begin = hec_part_begin(of->n, slice, of->members), end = hec_part_begin(of->n, slice + 1, of->members);
  return (hec_segment){of->all + begin, (end - begin) * (int64_t)sizeof(float)};
}

/* Step k of a half as a post; of the first half what is added after it, in *addition. */
static hec_post ring_step(hec_exec *exec, const ring *of, int32_t k, hec_piece *addition) {
  hec_segment *segment = HEC_NEW(&exec->step, hec_segment, 2);
  int32_t sent = of->place - k - (addition != NULL);
  segment[0] = slice_of(of, sent);
  segment[1] = slice_of(of, sent - 1);
  if (addition && of->staging) {
    *addition = (hec_piece){segment[1].at, of->staging, segment[1].bytes / (int64_t)sizeof(float)};
    segment[1].at = of->staging;
  }
  hec_post post = {.lane = of->lane,
                   .sends = HEC_NEW(&exec->step, hec_message, 1),
                   .receives = HEC_NEW(&exec->step, hec_message, 1),
                   .add = addition && !of->staging};
  hec_message_add(post.sends, &post.n_sends, of->next, &segment[0], 1);
  hec_message_add(post.receives, &post.n_receives, of->before, &segment[1], 1);
  return post;
}

static void bind_allreduce(hec_exec *exec, hec_exec_op *op) {
  ring of = ring_of(exec, &op->op);
  hec_exchange_state *x = op->exchange = HEC_NEW(&exec->step, hec_exchange_state, 1);
  x->posts = HEC_NEW(&exec->step, hec_post, 2 * of.members);
  x->additions = HEC_NEW(&exec->step, hec_piece, 2 * of.members);
  for (int32_t k = 0; k < of.members - 1 && op->op.allreduce.half != HEC_ALLREDUCE_GATHER; k++, x->n_posts++)
    x->posts[x->n_posts] = ring_step(exec, &of, k, &x->additions[x->n_posts]);
  for (int32_t k = 0; k < of.members - 1 && op->op.allreduce.half != HEC_ALLREDUCE_SCATTER; k++)
    x->posts[x->n_posts++] = ring_step(exec, &of, k, NULL);
  x->post = x->n_posts > 0 ? x->posts[0] : (hec_post){.lane = of.lane};
}

static void bind_counts(hec_exec *exec, hec_exec_op *op) {
  uint32_t *table = exec->counts + (hec_exec_counts(exec, op->op.layer, op->op.micro_batch) - exec->counts_host);
  hec_exchange_state *x = op->exchange = new_state(exec, op->op.lane, exec->n_ranks);
  hec_segment *segment = HEC_NEW(&exec->step, hec_segment, 2 * exec->n_ranks);
  int64_t bytes = (int64_t)exec->n_experts * (int64_t)sizeof *table;
  for (int32_t p = 0; p < exec->n_ranks; p++) {
    if (p == exec->r)
      continue;
    segment[0] = (hec_segment){table + (size_t)exec->r * (size_t)exec->n_experts, bytes};
    segment[1] = (hec_segment){table + (size_t)p * (size_t)exec->n_experts, bytes};
    hec_message_add(x->post.sends, &x->post.n_sends, p, &segment[0], 1);
    hec_message_add(x->post.receives, &x->post.n_receives, p, &segment[1], 1);
    segment += 2;
  }
}

/* ---- Times of held transports: the closed-form law ---- */

static void bind_law(hec_exec *exec, hec_exec_op *op) {
  const hec_op *o = &op->op;
  hec_exchange_state *x = op->exchange;
  uint8_t *partner = HEC_NEW(&exec->step, uint8_t, exec->n_ranks);
  double seconds;
  if (o->kind == HEC_OP_EXCHANGE) {
    const hec_transfer *t = exec->program->transfers + o->exchange.transfer_at;
    (void)hec_link_cost_exchange(&exec->cost, t, o->exchange.n_transfers, o->reverse, o->exchange.n_chunks);
    seconds = exec->cost.done_s[exec->r];
    for (int32_t k = 0; k < o->exchange.n_transfers; k++)
      if (t[k].source == exec->r || t[k].destination == exec->r)
        partner[t[k].source] = partner[t[k].destination] = 1;
  } else {
    seconds = hec_walk_together_s(exec->links, exec->n_ranks, o);
    memset(partner, 1, (size_t)exec->n_ranks);
  }
  x->law_ns = (int64_t)(seconds * 1e9 + 0.5);
  x->partners = HEC_NEW(&exec->step, int32_t, exec->n_ranks);
  for (int32_t p = 0; p < exec->n_ranks; p++)
    if (partner[p])
      x->partners[x->n_partners++] = p;
}

hec_status hec_exchange_bind(hec_exec *exec, hec_exec_op *op) {
  bool inside = op->op.role == HEC_ROLE_DISPATCH_INSIDE || op->op.role == HEC_ROLE_COMBINE_INSIDE;
  bool tokens = op->op.role == HEC_ROLE_DISPATCH || op->op.role == HEC_ROLE_COMBINE || inside;
  if (op->op.kind == HEC_OP_ALLREDUCE)
    bind_allreduce(exec, op);
  else if (op->op.kind == HEC_OP_COUNTS)
    bind_counts(exec, op);
  else if (op->op.role == HEC_ROLE_NODE_DISPATCH || op->op.role == HEC_ROLE_NODE_COMBINE)
    bind_between_nodes(exec, op);
  else if (tokens && op->op.cell_at < 0)
    bind_placed(exec, op);
  else if (tokens)
    bind_tokens(exec, op);
  else if (op->op.role == HEC_ROLE_TENSOR_GATHER || op->op.role == HEC_ROLE_TENSOR_SCATTER)
    hec_tensor_rows_bind(exec, op, adds(exec));
  else if (op->op.role == HEC_ROLE_SHARD_GATHER || op->op.role == HEC_ROLE_SHARD_SCATTER)
    hec_shard_rows_bind(exec, op, adds(exec));
  else
    HEC_TRY(bind_parcels(exec, op));
  if (exec->rank->transport->held && !exec->rank->link && !exec->options.virtual_time)
    bind_law(exec, op);
  return HEC_OK;
}

static hec_status start(hec_exec *exec, hec_post *post) {
  return hec_post_is_empty(post) ? HEC_OK : exec->rank->transport->start(exec->rank, post);
}

hec_status hec_exchange_start(hec_exec *exec, hec_exec_op *op) {
  hec_exchange_state *x = op->exchange;
  exec->rank->processor->math->copy(exec->rank->processor, x->own, x->n_own);
  clear_sums(exec, op);
  return start(exec, &x->post);
}

/* ---- On a stream ---- */

/* Nothing goes to others from a device that has failed: what they would get was never written, and they may plan by it. */
static hec_status check_device(const hec_exec *exec) {
  hec_processor *on = exec->rank->processor;
  const char *error = on->streams->error(on);
  return error ? hec_rank_fail(exec->rank, "the device failed: %s", error) : HEC_OK;
}

static hec_status exchange(hec_exec *exec, hec_post *post) {
  HEC_TRY(check_device(exec));
  return hec_post_is_empty(post) ? HEC_OK : exec->rank->link->exchange(exec->rank, post);
}

/* After post k of a ring. */
static void add_step(hec_exec *exec, const hec_exchange_state *x, int32_t k) {
  if (x->additions[k].n > 0)
    exec->rank->processor->math->add(exec->rank->processor, &x->additions[k], 1);
}

static hec_status enqueue_allreduce(hec_exec *exec, hec_exec_op *op) {
  hec_exchange_state *x = op->exchange;
  int64_t n;
  float *all = reduced(exec, &op->op, &n);
  HEC_TRY(check_device(exec));
  bool whole = op->op.allreduce.stride <= 1 && op->op.allreduce.half == HEC_ALLREDUCE_WHOLE;
  if (exec->rank->link->allreduce && whole) /* the link's is of all ranks */
    return exec->rank->link->allreduce(exec->rank, x->post.lane, all, n);
  for (int32_t k = 0; k < x->n_posts; k++) {
    HEC_TRY(exchange(exec, &x->posts[k]));
    add_step(exec, x, k);
  }
  return HEC_OK;
}

/* The host's own row goes out; the table comes back for whoever plans. */
static hec_status enqueue_counts(hec_exec *exec, hec_exec_op *op) {
  hec_processor *on = exec->rank->processor;
  size_t row = (size_t)exec->n_experts;
  uint32_t *host = hec_exec_counts(exec, op->op.layer, op->op.micro_batch);
  uint32_t *table = exec->counts + (host - exec->counts_host);
  size_t own = (size_t)exec->r * row;
  on->streams->put(on, table + own, host + own, row * sizeof *table);
  HEC_TRY(exchange(exec, &op->exchange->post));
  on->streams->fetch(on, host, table, (size_t)exec->n_ranks * row * sizeof *table);
  return HEC_OK;
}

hec_status hec_exchange_enqueue(hec_exec *exec, hec_exec_op *op) {
  hec_processor *on = exec->rank->processor;
  if (op->op.kind == HEC_OP_ALLREDUCE)
    return enqueue_allreduce(exec, op);
  if (op->op.kind == HEC_OP_COUNTS)
    return enqueue_counts(exec, op);
  on->math->copy(on, op->exchange->own, op->exchange->n_own);
  clear_sums(exec, op);
  return exchange(exec, &op->exchange->post);
}

/* ---- On the host ---- */

static hec_status test(hec_exec *exec, hec_post *post, bool *done, bool *moved) {
  int64_t before = hec_post_moved(post);
  *done = true;
  if (!hec_post_is_empty(post))
    HEC_TRY(exec->rank->transport->test(exec->rank, post, done));
  *moved = *moved || hec_post_moved(post) != before || *done;
  return HEC_OK;
}

/* What follows the post that is done: the next step of a ring, or nothing. */
static hec_status go_on(hec_exec *exec, hec_exchange_state *x) {
  if (x->n_posts > 0)
    add_step(exec, x, x->step);
  x->done = ++x->step >= x->n_posts;
  if (x->done)
    return HEC_OK;
  x->post = x->posts[x->step];
  return start(exec, &x->post);
}

hec_status hec_exchange_test(hec_exec *exec, hec_exec_op *op, bool *done, bool *moved) {
  hec_exchange_state *x = op->exchange;
  bool arrived = false;
  if (!x->done)
    HEC_TRY(test(exec, &x->post, &arrived, moved));
  if (arrived)
    HEC_TRY(go_on(exec, x));
  *done = x->done;
  return HEC_OK;
}

/* When rank p posted the operation; before the iteration's start: not yet. */
static int64_t posted_by(const hec_exec *exec, const hec_exec_op *op, int32_t p) {
  return p == exec->r ? op->posted_ns : hec_rank_posted(exec->rank, p, op->id);
}

int32_t hec_exchange_waits_for(const hec_exec *exec, const hec_exec_op *op) {
  const hec_exchange_state *x = op->exchange;
  int32_t peer = hec_post_missing_peer(&x->post);
  for (int32_t i = 0; peer < 0 && i < x->n_partners; i++)
    if (posted_by(exec, op, x->partners[i]) < exec->start_ns)
      peer = x->partners[i];
  return peer;
}

int64_t hec_exchange_held_until(const hec_exec *exec, const hec_exec_op *op) {
  const hec_exchange_state *x = op->exchange;
  int64_t latest = op->posted_ns;
  for (int32_t i = 0; i < x->n_partners; i++) {
    int64_t posted = posted_by(exec, op, x->partners[i]);
    if (posted < exec->start_ns)
      return INT64_MAX;
    latest = posted > latest ? posted : latest;
  }
  return latest + x->law_ns;
}
