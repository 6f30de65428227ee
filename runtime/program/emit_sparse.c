/* Sparse collectives, replica synchronisation and migration of a layer, as exchanges.
 *
 * A spAG of several stages ends with an empty local row on every rank. Each stage of a spRS is followed by its
 * reduction row. So one id is enough to wait for either (lanes are in order). O(copies of the layer + transfers). */
#include "runtime/program/lowering_state.h"

#include "runtime/base/arena.h"
#include "runtime/plan/replicas.h"

#include <string.h>

static bool has_copies(const hec_lowering *low, int32_t layer, hec_copy_kind kind) {
  const hec_plan *plan = &low->in->shared->run.plan;
  const int32_t *at = plan->copy_at + (size_t)layer * (size_t)(plan->n_experts + 1);
  const uint8_t *kinds = plan->copy_kind + (size_t)layer * (size_t)plan->copy_capacity;
  return at[plan->n_experts] > at[0] && memchr(kinds + at[0], (int)kind, (size_t)(at[plan->n_experts] - at[0])) != NULL;
}

bool hec_layer_has_guests(const hec_lowering *low, int32_t layer) {
  return has_copies(low, layer, HEC_COPY_GUEST);
}

/* Which guests of the layer a collective serves, into low->sparse. */
static void collect(hec_lowering *low, int32_t layer, hec_guests which, double bytes) {
  hec_sparse *sparse = &low->in->sparse;
  sparse->bytes = (int64_t)bytes;
  sparse->bytes_per_param = bytes / hec_moe_expert_params(low->problem->moe);
  sparse->relays = low->in->shared->run.policy->relays || (low->in->collective != NULL && low->in->collective->relays);
  hec_sparse_guests(sparse, &low->in->shared->run.plan, layer,
                    which == HEC_GUESTS_ADDED ? HEC_GUESTS_UNMARKED : HEC_GUESTS_ANY, low->in->gathered);
  for (int32_t i = 0; which == HEC_GUESTS_BEFORE && i < sparse->n_items; i++)
    for (int32_t k = sparse->receiver_at[i]; k < sparse->receiver_at[i + 1]; k++)
      low->in->gathered[(size_t)sparse->expert[i] * (size_t)low->problem->n_ranks + (size_t)sparse->receiver[k]] = 1;
}

static int32_t add_transfers(hec_program *program, const hec_transfer_list *list) {
  int32_t at = (int32_t)program->n_transfers;
  HEC_RESERVE(program->transfers, program->transfers_capacity, program->n_transfers + list->n);
  if (list->n > 0)
    memcpy(program->transfers + at, list->data, list->n * sizeof *list->data);
  program->n_transfers += list->n;
  return at;
}

static void put_parcel(hec_program *program, hec_parcel parcel) {
  HEC_RESERVE(program->parcels, program->parcels_capacity, program->n_parcels + 1);
  program->parcels[program->n_parcels++] = parcel;
}

/* What each transfer of the list carries: the entries of low->moves of its pair, which stand in the same order of
 * pairs. In a chain each transfer has one. */
static int32_t add_parcels(hec_lowering *low, const hec_transfer_list *list) {
  hec_program *program = &low->in->program;
  int32_t first = (int32_t)program->n_parcel_index;
  HEC_RESERVE(program->parcel_index, program->parcel_index_capacity, program->n_parcel_index + list->n + 1);
  size_t at = 0;
  for (size_t i = 0; i < list->n; i++) {
    const hec_transfer *t = &list->data[i];
    program->parcel_index[program->n_parcel_index++] = (int32_t)program->n_parcels;
    for (size_t begin = at; at < low->in->moves.n && low->in->moves.data[at].source == t->source &&
                            low->in->moves.data[at].destination == t->destination && (t->item < 0 || at == begin);
         at++)
      put_parcel(program, low->in->moves.data[at].parcel);
  }
  program->parcel_index[program->n_parcel_index++] = (int32_t)program->n_parcels;
  HEC_ASSERT(at == low->in->moves.n);
  return first;
}

static int32_t add_exchange(hec_lowering *low, hec_op op, const hec_transfer_list *list, int32_t n_chunks,
                            const int32_t *deps, int32_t n_deps) {
  op.exchange.transfer_at = add_transfers(&low->in->program, list);
  op.exchange.n_transfers = (int32_t)list->n;
  op.exchange.n_chunks = n_chunks;
  if (low->in->detail)
    op.exchange.parcel_at = add_parcels(low, list);
  return hec_program_add(&low->in->program, op, deps, n_deps);
}

/* How many guests each rank receives in low->sparse, as per-rank counts in local_bytes. */
static int32_t count_received(hec_lowering *low) {
  int32_t at = hec_program_local_bytes(&low->in->program, low->problem->n_ranks);
  for (int32_t i = 0; i < low->in->sparse.receiver_at[low->in->sparse.n_items]; i++)
    low->in->program.local_bytes[at + low->in->sparse.receiver[i]] += 1;
  return at;
}

/* Which experts each rank receives in low->sparse, counted in local_bytes[at + r]; index into item_index, -1 without
 * detail. */
static int32_t list_items(hec_lowering *low, int32_t at) {
  if (!low->in->detail)
    return -1;
  hec_program *program = &low->in->program;
  const hec_sparse *sparse = &low->in->sparse;
  int32_t n_ranks = low->problem->n_ranks, first = (int32_t)program->n_item_index;
  int32_t n = sparse->receiver_at[sparse->n_items];
  HEC_RESERVE(program->item_index, program->item_index_capacity, program->n_item_index + (size_t)n_ranks + 1);
  HEC_RESERVE(program->items, program->items_capacity, program->n_items + (size_t)n);
  int32_t *index = program->item_index + first;
  index[0] = (int32_t)program->n_items;
  for (int32_t r = 0; r < n_ranks; r++)
    index[r + 1] = index[r] + (int32_t)program->local_bytes[at + r];
  int32_t *filled = low->in->holders; /* [n_ranks] */
  memcpy(filled, index, (size_t)n_ranks * sizeof *filled);
  for (int32_t i = 0; i < sparse->n_items; i++)
    for (int32_t k = sparse->receiver_at[i]; k < sparse->receiver_at[i + 1]; k++)
      program->items[filled[sparse->receiver[k]]++] = sparse->expert[i];
  program->n_item_index += (size_t)n_ranks + 1;
  program->n_items += (size_t)n;
  return first;
}

static void hold_guests(hec_lowering *low, int32_t layer, int32_t first) {
  hec_layer_ops *ops = &low->layer[layer];
  for (size_t i = 0; i < sizeof ops->in->guest_hold / sizeof *ops->in->guest_hold; i++)
    if (ops->in->guest_hold[i] < 0) {
      int32_t at = count_received(low);
      hec_hold hold = {HEC_MEMORY_COPY_PARAM,
                       layer,
                       first,
                       HEC_HOLD_OPEN,
                       at,
                       low->problem->bytes.expert_param,
                       HEC_TENSOR_GUEST_PARAM,
                       low->in->micro_batch,
                       list_items(low, at)};
      ops->in->guest_hold[i] = hec_program_hold(&low->in->program, hold);
      return;
    }
  hec_assert_failed("a layer gathers at most three times", __FILE__, __LINE__);
}

void hec_release_guests(hec_lowering *low, int32_t layer, int32_t last) {
  hec_layer_ops *ops = &low->layer[layer];
  for (size_t i = 0; i < sizeof ops->in->guest_hold / sizeof *ops->in->guest_hold; i++) {
    if (ops->in->guest_hold[i] >= 0)
      low->in->program.holds[ops->in->guest_hold[i]].last = last;
    ops->in->guest_hold[i] = -1;
  }
}

static bool same_numbers(const int32_t *a, const int32_t *b, int32_t n) {
  return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static bool same_request(const hec_sparse *a, const hec_sparse *b) {
  int32_t n = a->n_items;
  return n == b->n_items && a->n_slices == b->n_slices && a->relays == b->relays && a->bytes == b->bytes &&
         a->bytes_per_param == b->bytes_per_param && same_numbers(a->receiver_at, b->receiver_at, n + 1) &&
         same_numbers(a->expert, b->expert, n) && same_numbers(a->owner, b->owner, n * a->n_slices) &&
         same_numbers(a->receiver, b->receiver, a->receiver_at[n]);
}

static void copy_request(const hec_sparse *from, hec_sparse *to) {
  hec_sparse own = *to;
  size_t n = (size_t)from->n_items;
  memcpy(own.expert, from->expert, n * sizeof *own.expert);
  memcpy(own.owner, from->owner, n * (size_t)from->n_slices * sizeof *own.owner);
  memcpy(own.receiver_at, from->receiver_at, (n + 1) * sizeof *own.receiver_at);
  memcpy(own.receiver, from->receiver, (size_t)from->receiver_at[n] * sizeof *own.receiver);
  *to = *from;
  to->expert = own.expert;
  to->owner = own.owner;
  to->receiver_at = own.receiver_at;
  to->receiver = own.receiver;
}

/* Lowers low->sparse with the cheapest collective (or the one asked for) into low->chosen. */
static void choose_row(hec_lowering *low, bool scatter) {
  const hec_collective *row = low->in->collective;
  hec_sparse_answer *last = &low->in->shared->answer[scatter];
  low->in->chosen = &last->plan;
  if (!low->in->detail && last->there && same_request(&low->in->sparse, &last->sparse))
    return;
  if (!row && low->in->shared->spread[scatter] && low->in->sparse.n_slices == 1)
    row = hec_spread_choose(low->in->shared->spread[scatter], &low->in->sparse, &low->in->shared->spread_sum[scatter]);
  row = hec_collective_choose(&low->in->shared->run.link, low->problem, &low->in->sparse, scatter, row, &last->plan,
                              &low->in->shared->other);
  copy_request(&low->in->sparse, &last->sparse);
  last->there = true;
  if (low->in->detail) /* the same once more, item by item */
    (scatter ? row->scatter : row->gather)(low->problem, &low->in->sparse, &low->in->each);
}

static void choose(hec_lowering *low, bool scatter) {
  choose_row(low, scatter);
  low->in->in_parts = low->in->in_parts || low->in->chosen->n_parts > low->in->sparse.n_slices;
}

/* Stage k of low->each as moves. */
static void list_moves(hec_lowering *low, int32_t stage, int32_t layer, hec_state state) {
  low->in->moves.n = 0;
  if (!low->in->detail)
    return;
  const hec_transfer_list *list = &low->in->each.stage[stage];
  int32_t n = low->in->each.n_parts;
  for (size_t i = 0; i < list->n; i++) {
    const hec_transfer *t = &list->data[i];
    hec_move_list_add(&low->in->moves,
                      (hec_move){t->source, t->destination, {layer, t->item / n, t->item % n, n, state}});
  }
}

/* Slices that a receiver keeps itself: copied or added on the spot, with operation `id`. */
static void list_own(hec_lowering *low, int32_t id, int32_t layer, hec_state state) {
  const hec_sparse *sparse = &low->in->sparse;
  if (!low->in->detail || sparse->n_slices == 1)
    return;
  hec_program *program = &low->in->program;
  program->ops[id].own_at = (int32_t)program->n_own;
  for (int32_t i = 0; i < sparse->n_items; i++)
    for (int32_t k = sparse->receiver_at[i]; k < sparse->receiver_at[i + 1]; k++)
      for (int32_t j = 0; j < sparse->n_slices; j++)
        if (sparse->owner[i * sparse->n_slices + j] == sparse->receiver[k]) {
          HEC_RESERVE(program->own, program->own_capacity, program->n_own + 1);
          program->own[program->n_own++] = (hec_move){
              sparse->receiver[k], sparse->receiver[k], {layer, sparse->expert[i], j, sparse->n_slices, state}};
        }
  program->ops[id].n_own = (int32_t)program->n_own - program->ops[id].own_at;
}

/* The parts that ranks pass on without holding them, from the exchange `first` of the stage on until release_parts. Each has
 * room for the largest part. */
static void hold_parts(hec_lowering *low, int32_t layer, int32_t stage, int32_t first, hec_tensor tensor) {
  const hec_transfer_list *list = &low->in->chosen->relayed[stage];
  if (list->n == 0)
    return;
  hec_program *program = &low->in->program;
  int32_t n_ranks = low->problem->n_ranks, at = hec_program_local_bytes(program, n_ranks), items = -1;
  double *count = program->local_bytes + at;
  for (size_t i = 0; i < list->n; i++)
    count[list->data[i].destination] += 1;
  if (low->in->detail) {
    items = (int32_t)program->n_item_index;
    HEC_RESERVE(program->item_index, program->item_index_capacity, program->n_item_index + (size_t)n_ranks + 1);
    HEC_RESERVE(program->items, program->items_capacity, program->n_items + list->n);
    int32_t *index = program->item_index + items, *filled = low->in->holders;
    index[0] = (int32_t)program->n_items;
    for (int32_t r = 0; r < n_ranks; r++) {
      filled[r] = index[r];
      index[r + 1] = index[r] + (int32_t)count[r];
    }
    for (size_t i = 0; i < list->n; i++)
      program->items[filled[list->data[i].destination]++] = list->data[i].item;
    program->n_item_index += (size_t)n_ranks + 1;
    program->n_items += list->n;
  }
  const hec_sparse *sparse = &low->in->sparse;
  double params = (double)sparse->bytes / sparse->bytes_per_param, n_parts = low->in->chosen->n_parts;
  int64_t part = ((int64_t)params + (int64_t)n_parts - 1) / (int64_t)n_parts;
  low->in->part_hold[stage] = hec_program_hold(program, (hec_hold){HEC_MEMORY_BUFFER, layer, first, HEC_HOLD_OPEN, at,
                                                                   (double)part * sparse->bytes_per_param, tensor,
                                                                   low->in->micro_batch, items});
}

static void release_parts(hec_lowering *low, int32_t last) {
  for (int32_t k = 0; k < HEC_COLLECTIVE_STAGES_MAX; k++)
    if (low->in->chosen->relayed[k].n > 0)
      low->in->program.holds[low->in->part_hold[k]].last = last;
}

int32_t hec_emit_gather(hec_lowering *low, int32_t layer, hec_role role, hec_guests which, const int32_t *deps,
                        int32_t n_deps) {
  if (which == HEC_GUESTS_BEFORE)
    memset(low->in->gathered, 0, (size_t)low->problem->n_experts * (size_t)low->problem->n_ranks);
  if (!hec_layer_has_guests(low, layer))
    return -1;
  collect(low, layer, which, low->problem->bytes.expert_param);
  if (low->in->sparse.n_items == 0)
    return -1;
  choose(low, false);
  int32_t wait[HEC_COLLECTIVE_STAGES_MAX + 8], n_wait = 0, id = -1, first = (int32_t)low->in->program.n_ops;
  HEC_ASSERT(n_deps <= 8);
  for (int32_t i = 0; i < n_deps; i++)
    wait[n_wait++] = deps[i];
  hec_op op = hec_op_of(low, HEC_OP_EXCHANGE, HEC_LANE_PARAM, role, layer, role == HEC_ROLE_REGATHER);
  op.sliced = low->in->sparse.n_slices > 1;
  for (int32_t s = 0; s < low->in->chosen->n_stages; s++)
    if (low->in->chosen->stage[s].n > 0) {
      list_moves(low, s, layer, HEC_STATE_PARAM);
      id = add_exchange(low, op, &low->in->chosen->stage[s], low->in->chosen->n_chunks, wait, n_wait);
      hold_parts(low, layer, s, id, HEC_TENSOR_PART_PARAM);
      wait[n_wait++] = id;
    }
  release_parts(low, id);
  if (id < 0)
    return -1;
  list_own(low, first, layer, HEC_STATE_PARAM);
  if (id != first) {
    op.kind = HEC_OP_LOCAL;
    op.local = (hec_op_local){-1, -1};
    id = hec_program_add(&low->in->program, op, wait, n_wait);
  }
  hold_guests(low, layer, first);
  return id;
}

/* Bytes that each rank receives in the transfers, in local_bytes. */
static int32_t count_incoming(hec_lowering *low, const hec_transfer_list *list) {
  int32_t at = hec_program_local_bytes(&low->in->program, low->problem->n_ranks);
  for (size_t i = 0; i < list->n; i++)
    low->in->program.local_bytes[at + list->data[i].destination] += (double)list->data[i].bytes;
  return at;
}

/* An exchange into one staging slot per source, then the sum in ascending source order. Per staged byte: one read of
 * the slot, one read and one write of the target. */
static int32_t emit_reducing(hec_lowering *low, int32_t layer, hec_role role, const hec_transfer_list *list,
                             const int32_t *deps, int32_t n_deps) {
  hec_op op = hec_op_of(low, HEC_OP_EXCHANGE, HEC_LANE_GRAD, role, layer, true);
  op.sliced = role == HEC_ROLE_SCATTER && low->in->sparse.n_slices > 1;
  bool sliced = op.sliced;
  int32_t exchange = add_exchange(low, op, list, 1, deps, n_deps);
  op = hec_op_of(low, HEC_OP_LOCAL, HEC_LANE_GRAD, HEC_ROLE_REDUCE, layer, true);
  op.sliced = sliced;
  op.local.bytes_at = count_incoming(low, list);
  op.bytes = 3;
  int32_t wait[9] = {exchange}, n_wait = 1;
  HEC_ASSERT(n_deps <= 8);
  for (int32_t i = 0; i < n_deps; i++)
    wait[n_wait++] = deps[i];
  int32_t reduce = hec_program_add(&low->in->program, op, wait, n_wait);
  hec_program_hold(&low->in->program, (hec_hold){HEC_MEMORY_BUFFER, layer, exchange, reduce, op.local.bytes_at, 1,
                                                 HEC_TENSOR_STAGING, low->in->micro_batch, -1});
  return low->in->grad_tail = reduce;
}

int32_t hec_emit_scatter(hec_lowering *low, int32_t layer, const int32_t *deps, int32_t n_deps) {
  if (!hec_layer_has_guests(low, layer))
    return -1;
  collect(low, layer, HEC_GUESTS_ALL, low->problem->bytes.expert_grad);
  if (low->in->sparse.n_items == 0)
    return -1;
  choose(low, true);
  int32_t received = count_received(low), items = list_items(low, received), id = -1;
  for (int32_t s = 0; s < low->in->chosen->n_stages; s++)
    if (low->in->chosen->stage[s].n > 0) {
      list_moves(low, s, layer, HEC_STATE_GRAD);
      id = emit_reducing(low, layer, HEC_ROLE_SCATTER, &low->in->chosen->stage[s], deps, n_deps);
      hold_parts(low, layer, s, id - 1, HEC_TENSOR_PART_GRAD);
    }
  release_parts(low, id);
  if (id >= 0) {
    hec_program_hold(&low->in->program,
                     (hec_hold){HEC_MEMORY_COPY_GRAD, layer, low->layer[layer].in->experts_backward, id, received,
                                low->problem->bytes.expert_grad, HEC_TENSOR_GUEST_GRAD, low->in->micro_batch, items});
    list_own(low, id, layer, HEC_STATE_GRAD); /* a reduction runs on every rank, an exchange only where bytes move */
  }
  return low->layer[layer].scatter = id;
}

static inline void add_pair(hec_lowering *low, int32_t source, int32_t destination, int64_t bytes) {
  size_t at = (size_t)source * (size_t)low->problem->n_ranks + (size_t)destination;
  low->in->pair_bytes[at] += bytes;
  low->in->pair_set[at / 64] |= UINT64_C(1) << at % 64;
}

/* The entries of pair_bytes that were added to, as transfers, ascending; they become zero again. Few pairs have any, so
 * words of 64 pairs are looked at first. */
static void take_pairs(hec_lowering *low, hec_transfer_list *list) {
  size_t n_ranks = (size_t)low->problem->n_ranks, n_words = (n_ranks * n_ranks + 63) / 64;
  list->n = 0;
  for (size_t word = 0; word < n_words; word++) {
    for (uint64_t set = low->in->pair_set[word]; set != 0; set &= set - 1) {
      size_t at = 64 * word + (size_t)__builtin_ctzll(set);
      int64_t *bytes = &low->in->pair_bytes[at];
      if (*bytes > 0)
        hec_transfer_list_add(list, (hec_transfer){.bytes = *bytes,
                                                   .source = (int32_t)(at / n_ranks),
                                                   .destination = (int32_t)(at % n_ranks),
                                                   .item = -1,
                                                   .after = -1});
      *bytes = 0;
    }
    low->in->pair_set[word] = 0;
  }
}

typedef struct {
  hec_lowering *low;
  int32_t layer, expert;
  bool back;
  hec_state state; /* gradients, or parameters that were updated */
  int64_t bytes;   /* of an expert */
  double bytes_per_param;
} replica_pieces;

static void add_piece(void *context, hec_replica_piece piece) {
  const replica_pieces *of = context;
  hec_lowering *low = of->low;
  int64_t bytes = hec_part_bytes(of->bytes, of->bytes_per_param, piece.part, piece.n_parts);
  int32_t source = of->back ? piece.destination : piece.source;
  int32_t destination = of->back ? piece.source : piece.destination;
  add_pair(low, source, destination, bytes);
  if (low->in->detail && bytes > 0)
    hec_move_list_add(&low->in->moves,
                      (hec_move){source, destination, {of->layer, of->expert, piece.part, piece.n_parts, of->state}});
}

/* One step of all experts of the layer, there or back, into low->migration and low->moves. */
static void list_pieces(hec_lowering *low, int32_t layer, hec_replica_step step, bool back, hec_state state) {
  double whole = state == HEC_STATE_GRAD ? low->problem->bytes.expert_grad : low->problem->bytes.expert_param;
  replica_pieces of = {.low = low,
                       .layer = layer,
                       .back = back,
                       .state = state,
                       .bytes = (int64_t)whole,
                       .bytes_per_param = whole / hec_moe_expert_params(low->problem->moe)};
  low->in->moves.n = 0;
  for (of.expert = 0; of.expert < low->problem->n_experts; of.expert++) {
    int32_t n = hec_replica_keepers(&low->in->shared->run.plan, layer, of.expert, low->in->holders);
    if (n > 1)
      hec_replica_pieces(low->problem, of.expert, low->in->holders, n, step, add_piece, &of);
  }
  take_pairs(low, &low->in->migration);
  hec_move_list_sort(&low->in->moves);
}

/* What went there comes back: the same pairs, the other way. */
static void list_back(hec_lowering *low, const hec_transfer_list *there) {
  for (size_t i = 0; i < there->n; i++)
    add_pair(low, there->data[i].destination, there->data[i].source, there->data[i].bytes);
  take_pairs(low, &low->in->migration);
}

static void keep_inside(hec_lowering *low) {
  low->in->inside.n = 0;
  for (size_t i = 0; i < low->in->migration.n; i++)
    hec_transfer_list_add(&low->in->inside, low->in->migration.data[i]);
}

enum { REPLICA_STEPS = 4, REPLICA_BACK = 2 };

/* Steps first .. end - 1 of replicas.h. */
static int32_t emit_replica_steps(hec_lowering *low, int32_t layer, int first, int end, const int32_t *deps,
                                  int32_t n_deps) {
  static const hec_replica_step steps[REPLICA_STEPS] = {HEC_REPLICA_INSIDE, HEC_REPLICA_BETWEEN, HEC_REPLICA_BETWEEN,
                                                        HEC_REPLICA_INSIDE};
  int32_t id = -1;
  for (int k = first; k < end; k++) {
    bool back = k >= REPLICA_BACK;
    if (back && first == 0 && !low->in->detail)
      list_back(low, steps[k] == HEC_REPLICA_INSIDE ? &low->in->inside : &low->in->migration);
    else
      list_pieces(low, layer, steps[k], back, back && low->problem->zero ? HEC_STATE_PARAM : HEC_STATE_GRAD);
    if (k == 0)
      keep_inside(low);
    if (low->in->migration.n == 0)
      continue;
    hec_op op = hec_op_of(low, HEC_OP_EXCHANGE, HEC_LANE_GRAD, HEC_ROLE_REPLICA_GATHER, layer, true);
    id = back ? add_exchange(low, op, &low->in->migration, 1, deps, n_deps)
              : emit_reducing(low, layer, HEC_ROLE_REPLICA_SCATTER, &low->in->migration, deps, n_deps);
    deps = &id; /* of the next step */
    n_deps = 1;
  }
  return id;
}

int32_t hec_emit_replicas(hec_lowering *low, int32_t layer, const int32_t *deps, int32_t n_deps) {
  if (!hec_lower_last_micro_batch(low) || !has_copies(low, layer, HEC_COPY_RESIDENT))
    return -1;
  return emit_replica_steps(low, layer, 0, low->problem->zero ? REPLICA_BACK : REPLICA_STEPS, deps, n_deps);
}

void hec_emit_updated(hec_lowering *low, int32_t optimizer) {
  const hec_problem *problem = low->problem;
  const hec_moe *moe = problem->moe;
  for (int32_t l = -1; l < problem->n_layers; l++) {
    hec_op op = hec_op_of(low, HEC_OP_ALLREDUCE, HEC_LANE_GRAD, HEC_ROLE_DENSE_GATHER, l, true);
    op.bytes = hec_problem_gradients(problem, l) * moe->dtype_bytes / moe->grad_bytes;
    op.allreduce.half = HEC_ALLREDUCE_GATHER;
    if (problem->n_ranks > 1 && op.bytes > 0)
      (void)hec_program_add(&low->in->program, op, &optimizer, 1);
    if (l >= 0 && has_copies(low, l, HEC_COPY_RESIDENT))
      (void)emit_replica_steps(low, l, REPLICA_BACK, REPLICA_STEPS, &optimizer, 1);
  }
}

int32_t hec_emit_migration(hec_lowering *low, int32_t plan) {
  const hec_problem *problem = low->problem;
  bool alone = low->in->schedule->alone, by_layer = low->in->shared->run.policy->migrates_beside && !alone;
  hec_op op = hec_op_of(low, HEC_OP_EXCHANGE, HEC_LANE_PARAM, HEC_ROLE_MIGRATE, -1, false);
  op.one_off = true;
  int32_t id = -1;
  low->in->migration.n = low->in->moves.n = 0;
  for (int32_t l = 0; l < problem->n_layers; l++) {
    low->layer[l].migrate = -1;
    hec_plan_migration(&low->in->before, &low->in->shared->run.plan, problem, l, low->in->pair_bytes,
                       &low->in->migration);
    if (low->in->detail)
      hec_plan_moves(&low->in->before, &low->in->shared->run.plan, problem, l, &low->in->moves);
    if (!by_layer || low->in->migration.n == 0)
      continue;
    op.layer = l;
    hec_move_list_sort(&low->in->moves);
    low->layer[l].migrate = add_exchange(low, op, &low->in->migration, 1, NULL, 0);
    low->in->migrated = low->in->one_off = true;
    low->in->migration.n = low->in->moves.n = 0;
  }
  if (low->in->migration.n > 0) { /* all layers as one exchange, one transfer per pair */
    for (size_t i = 0; i < low->in->migration.n; i++) {
      const hec_transfer *t = &low->in->migration.data[i];
      add_pair(low, t->source, t->destination, t->bytes);
    }
    take_pairs(low, &low->in->migration);
    hec_move_list_sort(&low->in->moves);
    op.layer = -1;
    int32_t wait[2] = {low->tail, plan};
    id = add_exchange(low, op, &low->in->migration, 1, wait, alone ? 2 : 0);
    low->in->migrated = low->in->one_off = true;
  }
  hec_plan_assign(&low->in->before, &low->in->shared->run.plan);
  return id;
}

void hec_emit_return(hec_lowering *low, int32_t layer, const int32_t *deps, int32_t n_deps) {
  int32_t scatter = hec_emit_scatter(low, layer, deps, n_deps);
  (void)hec_emit_replicas(low, layer, HEC_DEPS(deps[0], scatter));
}
