/* Compute, local and token operations of a layer. The traffic of one dispatch is written once; combine and both
 * backward exchanges use the same transfers, reversed or not. So lowering a layer costs O(ranks^2 + rank-expert pairs).
 *
 * Bytes of a permutation: every assignment is read and written once. Of an unpermute: every assignment is read, every
 * token written (counted as another read of the assignments: an upper bound for top-k > 1). */
#include "runtime/program/dispatched.h"
#include "runtime/program/lowering_state.h"

#include <string.h>

int32_t hec_emit_uniform(hec_lowering *low, hec_role role, int32_t shape, int32_t layer, bool backward, double rows,
                         const int32_t *deps, int32_t n_deps) {
  hec_op op = hec_op_of(low, HEC_OP_COMPUTE, HEC_LANE_COMPUTE, role, layer, backward);
  op.compute.shape = shape + (backward ? 1 : 0);
  op.compute.rows = rows;
  return hec_program_add(&low->in->program, op, deps, n_deps);
}

void hec_open_buffer(hec_lowering *low, int32_t layer, hec_tensor tensor, hec_hold hold) {
  hold.layer = layer;
  hold.tensor = tensor;
  hold.last = HEC_HOLD_OPEN;
  hold.micro_batch = low->in->micro_batch;
  hold.items_at = -1;
  low->layer[layer].in->hold[tensor] = hec_program_hold(&low->in->program, hold);
}

void hec_close_buffer(hec_lowering *low, int32_t layer, hec_tensor tensor, int32_t last) {
  int32_t *hold = &low->layer[layer].in->hold[tensor];
  if (*hold >= 0)
    low->in->program.holds[*hold].last = last;
  *hold = -1;
}

/* A buffer of every rank: rows of `bytes` times those counted in local_bytes[at + r] (in bytes of one token row). */
static void open_rows(hec_lowering *low, int32_t layer, hec_tensor tensor, int32_t first, int32_t at) {
  hec_open_buffer(low, layer, tensor,
                  (hec_hold){.memory = HEC_MEMORY_BUFFER, .first = first, .bytes_at = at, .bytes = 1});
}

int32_t hec_emit_attention(hec_lowering *low, int32_t layer, bool backward, const int32_t *deps, int32_t n_deps) {
  bool dense = hec_moe_dense_attention(low->problem->moe, layer);
  if (low->problem->mp > 1)
    return hec_emit_tensor_attention(low, layer, backward, deps, n_deps);
  int32_t shape = dense ? HEC_SHAPE_DENSE_ATTENTION : HEC_SHAPE_ATTENTION;
  int32_t id = hec_emit_uniform(low, HEC_ROLE_ATTENTION, shape, layer, backward, low->problem->tokens, deps, n_deps);
  if (backward) {
    hec_close_buffer(low, layer, HEC_TENSOR_BLOCK, id);
    return id;
  }
  hec_open_buffer(
      low, layer, HEC_TENSOR_BLOCK,
      (hec_hold){
          .memory = HEC_MEMORY_ACTIVATION, .first = id, .bytes_at = -1, .bytes = low->problem->bytes.activation_layer});
  return id;
}

int32_t hec_emit_gate(hec_lowering *low, int32_t layer, bool backward, const int32_t *deps, int32_t n_deps) {
  return hec_emit_uniform(low, HEC_ROLE_GATE, HEC_SHAPE_GATE, layer, backward, low->problem->tokens, deps, n_deps);
}

int32_t hec_emit_shared_experts(hec_lowering *low, int32_t layer, bool backward, const int32_t *deps, int32_t n_deps) {
  if (low->problem->moe->n_shared_experts == 0)
    return -1;
  return hec_emit_uniform(low, HEC_ROLE_SHARED_EXPERTS, HEC_SHAPE_SHARED, layer, backward, low->problem->tokens, deps,
                          n_deps);
}

/* Before tokens come back to their places: what a schedule waits for, and the sums over shards. These
 * must be named for rows that never left their rank: it may have no part in the exchange that follows the sums. */
static int32_t add_returned(hec_lowering *low, hec_op op, const int32_t *deps, int32_t n_deps) {
  int32_t wait[HEC_DEGREE_MAX + 4], n_wait = 0;
  HEC_ASSERT(n_deps < HEC_DEGREE_MAX + 4);
  for (int32_t i = 0; i < n_deps; i++)
    wait[n_wait++] = deps[i];
  wait[n_wait++] = low->layer[op.layer].in->added;
  return hec_program_add(&low->in->program, op, wait, n_wait);
}

/* Reads and writes every assigned row once: to where they leave from, or back. Rows that leave (forward of a permutation, backward
 * of its reverse) and travel once per node are gathered for that first. */
static int32_t add_reordering(hec_lowering *low, int32_t layer, hec_role role, bool backward, const int32_t *deps,
                              int32_t n_deps) {
  hec_layer_ops *ops = &low->layer[layer];
  int32_t wait[HEC_NODE_WAITS];
  bool leaves = backward == (role == HEC_ROLE_UNPERMUTE);
  if (ops->in->nodes.on && leaves) {
    n_deps = hec_emit_node_out(low, layer, backward, deps, n_deps, wait);
    deps = wait;
  }
  hec_op op = hec_op_of(low, HEC_OP_LOCAL, HEC_LANE_COMPUTE, role, layer, backward);
  op.local.bytes_at = ops->in->assigned_at;
  op.bytes = 2;
  hec_set_cells(&op, ops, -1);
  return add_returned(low, op, deps, n_deps);
}

/* The routing's rows become work entries; backward uses the same. */
static void add_work(hec_lowering *low, hec_layer_chunk *chunk) {
  hec_program *program = &low->in->program;
  const hec_routing *routing = &low->in->routing;
  int32_t n_ranks = low->problem->n_ranks, n = routing->expert_at[n_ranks];
  HEC_RESERVE(program->work, program->work_capacity, program->n_work + (size_t)n);
  HEC_RESERVE(program->work_index, program->work_index_capacity, program->n_work_index + (size_t)n_ranks + 1);
  chunk->work_at = (int32_t)program->n_work_index;
  for (int32_t r = 0; r <= n_ranks; r++)
    program->work_index[program->n_work_index++] = (int32_t)program->n_work + routing->expert_at[r];
  for (int32_t i = 0; i < n; i++)
    program->work[program->n_work++] = (hec_work){routing->expert[i], (int32_t)routing->tokens[i]};
}

void hec_set_cells(hec_op *op, const hec_layer_ops *ops, int32_t index) {
  op->by_node = ops->in->nodes.on;
  op->chunk = ops->degree > 1 ? index : 0;
  op->degree = ops->degree;
  op->route = ops->route;
  op->n_cells = index < 0 ? ops->in->n_cells : ops->in->n_cells / ops->degree;
  op->cell_at = ops->in->cell_at + (index < 0 ? 0 : index * op->n_cells);
}

int32_t hec_emit_experts(hec_lowering *low, hec_chunk chunk, bool backward, const int32_t *deps, int32_t n_deps) {
  int32_t layer = chunk.layer;
  hec_layer_ops *ops = &low->layer[layer];
  bool first = chunk.index == 0, last = chunk.index == ops->degree - 1;
  if (!backward && ops->degree == 1)
    add_work(low, &ops->in->chunk[0]);
  hec_op op = hec_op_of(low, HEC_OP_COMPUTE, HEC_LANE_COMPUTE, HEC_ROLE_EXPERTS, layer, backward);
  op.compute.shape = HEC_SHAPE_EXPERT + (backward ? 1 : 0);
  op.compute.work_at = ops->in->chunk[chunk.index].work_at;
  hec_set_cells(&op, ops, chunk.index);
  int32_t wait[10], n_wait = 0;
  HEC_ASSERT(n_deps < 10);
  for (int32_t i = 0; i < n_deps; i++)
    wait[n_wait++] = deps[i];
  if (backward) /* the previous micro-batch's guests have added to the gradients that this one adds to */
    wait[n_wait++] = low->in->scattered[layer];
  int32_t id = hec_program_add(&low->in->program, op, wait, n_wait);
  if (first)
    open_rows(low, layer, backward ? HEC_TENSOR_GRAD_INPUT : HEC_TENSOR_OUTPUT, id, ops->in->computed_at);
  if (first && backward)
    ops->in->experts_backward = id;
  if (last && backward)
    hec_close_buffer(low, layer, HEC_TENSOR_GRAD_OUTPUT, id);
  if (last && (backward || !low->problem->train))
    hec_close_buffer(low, layer, HEC_TENSOR_INPUT, id);
  return id;
}

/* All-gather of the counts, on the token lane. */
static int32_t emit_counts(hec_lowering *low, int32_t layer, const int32_t *deps, int32_t n_deps) {
  hec_op op = hec_op_of(low, HEC_OP_COUNTS, HEC_LANE_TOKEN, HEC_ROLE_COUNTS, layer, false);
  op.bytes = 4.0 * low->problem->n_experts;
  return low->layer[layer].counts = hec_program_add(&low->in->program, op, deps, n_deps);
}

int32_t hec_emit_plan(hec_lowering *low, int32_t layer, hec_lane lane, const int32_t *deps, int32_t n_deps) {
  const hec_policy_run *run = &low->in->shared->run;
  if (!run->planned)
    return -1;
  hec_op op = hec_op_of(low, HEC_OP_PLAN, lane, HEC_ROLE_PLAN, layer, false);
  op.plan.units = run->units - run->units_once;
  op.one_off = layer < 0 && run->policy->known == HEC_KNOWN_PERIODIC;
  low->in->one_off = low->in->one_off || op.one_off || run->units_once > 0;
  int32_t id = hec_program_add(&low->in->program, op, deps, n_deps);
  if (run->units_once == 0)
    return id;
  op.plan.units = run->units_once;
  op.one_off = true;
  return hec_program_add(&low->in->program, op, HEC_DEPS(id));
}

/* The per-rank bytes that permutes and buffers need, of all chunks; transfers of the dispatch where it is not cut. */
static void add_dispatch(hec_lowering *low, hec_layer_ops *ops) {
  hec_program *program = &low->in->program;
  int32_t n_ranks = low->problem->n_ranks;
  int64_t token = (int64_t)low->problem->bytes.token;
  ops->in->assigned_at = hec_program_local_bytes(program, 2 * n_ranks);
  ops->in->computed_at = ops->in->assigned_at + n_ranks;
  double *assigned = program->local_bytes + ops->in->assigned_at,
         *computed = program->local_bytes + ops->in->computed_at;
  bool cut = ops->degree > 1 || low->in->dispatched, direct = !cut && !hec_token_routes[ops->route]->relay;
  HEC_RESERVE(program->transfers, program->transfers_capacity,
              program->n_transfers + (size_t)n_ranks * (size_t)n_ranks);
  hec_transfer_span *span = &ops->in->chunk[0].dispatch;
  span->transfer_at = (int32_t)program->n_transfers;
  hec_transfer *out = program->transfers + program->n_transfers;
  for (int32_t s = 0; s < n_ranks; s++) {
    const uint32_t *pair = low->in->routing.pair + (size_t)s * (size_t)n_ranks;
    int64_t sum = 0;
    for (int32_t d = 0; d < n_ranks; d++) {
      sum += pair[d];
      if (direct && pair[d] > 0 && d != s)
        *out++ = (hec_transfer){.bytes = pair[d] * token, .source = s, .destination = d, .item = -1, .after = -1};
      else if (!cut && !direct && d != s)
        low->in->pair_bytes[(size_t)s * (size_t)n_ranks + (size_t)d] = pair[d] * token;
    }
    assigned[s] = (double)(sum * token);
    computed[s] = (double)((int64_t)low->in->routing.rank_tokens[s] * token);
  }
  span->n_transfers = (int32_t)(out - (program->transfers + program->n_transfers));
  program->n_transfers += (size_t)span->n_transfers;
  if (!cut && !direct)
    hec_add_transfers(low, ops, &ops->in->chunk[0]);
  if (low->problem->esp == 1 || cut)
    return;
  for (int32_t i = 0; i < n_ranks * n_ranks; i++)
    low->in->arrived[i % n_ranks] += low->in->routing.pair[i] * token;
  hec_add_shard_gather(low, &ops->in->chunk[0]);
}

int32_t hec_emit_permute(hec_lowering *low, int32_t layer, bool backward, const int32_t *deps, int32_t n_deps) {
  hec_layer_ops *ops = &low->layer[layer];
  if (!backward) {
    ops->route = low->in->dispatched ? 0 : ops->route;
    add_dispatch(low, ops);
    if (ops->degree > 1)
      hec_cut_layer(low, layer);
    else if (low->in->detail && !ops->in->nodes.on)
      hec_add_cells(low, layer);
    if (low->in->dispatched)
      hec_dispatched_add(low, layer);
  }
  int32_t id = add_reordering(low, layer, HEC_ROLE_PERMUTE, backward, deps, n_deps);
  if (backward) {
    hec_close_buffer(low, layer, HEC_TENSOR_GRAD_RETURNED, id);
    hec_close_buffer(low, layer, HEC_TENSOR_GRAD_INPUT, id);
    return ops->in->nodes.on ? hec_emit_node_home(low, layer, backward, id) : id;
  }
  if (ops->in->nodes.on)
    hec_node_out_read(low, layer, backward, id);
  const hec_memory_cost *bytes = &low->problem->bytes;
  open_rows(low, layer, HEC_TENSOR_SEND, id, ops->in->assigned_at);
  low->in->program.holds[ops->in->hold[HEC_TENSOR_SEND]].last = id; /* until a dispatch follows */
  hec_open_buffer(low, layer, HEC_TENSOR_INPUT,
                  (hec_hold){.memory = HEC_MEMORY_ACTIVATION,
                             .first = id,
                             .bytes_at = ops->in->computed_at,
                             .bytes = bytes->expert_row / bytes->token});
  return id;
}

int32_t hec_emit_unpermute(hec_lowering *low, int32_t layer, bool backward, const int32_t *deps, int32_t n_deps) {
  hec_layer_ops *ops = &low->layer[layer];
  int32_t id = add_reordering(low, layer, HEC_ROLE_UNPERMUTE, backward, deps, n_deps);
  if (backward) {
    if (ops->in->nodes.on)
      hec_node_out_read(low, layer, backward, id);
    hec_close_buffer(low, layer, HEC_TENSOR_RETURNED, id);
    open_rows(low, layer, HEC_TENSOR_GRAD_SEND, id, ops->in->assigned_at);
    low->in->program.holds[ops->in->hold[HEC_TENSOR_GRAD_SEND]].last = id; /* until a combine follows */
    open_rows(low, layer, HEC_TENSOR_GRAD_OUTPUT, id, ops->in->computed_at);
    return id;
  }
  if (ops->in->hold[HEC_TENSOR_RETURNED] < 0)
    open_rows(low, layer, HEC_TENSOR_RETURNED, id, ops->in->assigned_at);
  hec_close_buffer(low, layer, HEC_TENSOR_OUTPUT, id);
  if (low->problem->train)
    low->in->program.holds[ops->in->hold[HEC_TENSOR_RETURNED]].memory = HEC_MEMORY_ACTIVATION;
  else
    hec_close_buffer(low, layer, HEC_TENSOR_RETURNED, id);
  return ops->in->nodes.on ? hec_emit_node_home(low, layer, backward, id) : id;
}

/* Towards the experts the receiving buffer is the experts' own. */
void hec_token_buffers(hec_lowering *low, int32_t layer, bool to_experts, bool backward, int32_t id) {
  const hec_layer_ops *ops = &low->layer[layer];
  hec_tensor sent = backward ? HEC_TENSOR_GRAD_SEND : HEC_TENSOR_SEND;
  hec_tensor returned = backward ? HEC_TENSOR_GRAD_RETURNED : HEC_TENSOR_RETURNED;
  if (to_experts)
    low->in->program.holds[ops->in->hold[sent]].last = id;
  else if (ops->in->hold[returned] < 0)
    open_rows(low, layer, returned, id, ops->in->assigned_at);
}

int32_t hec_emit_span(hec_lowering *low, hec_op op, hec_transfer_span *span, const int32_t *deps, int32_t n_deps) {
  op.exchange.transfer_at = span->transfer_at;
  op.exchange.n_transfers = span->n_transfers;
  op.exchange.part_at = span->part_at;
  op.bytes = span->bytes;
  int32_t id = hec_program_add(&low->in->program, op, deps, n_deps);
  span->part_at = low->in->program.ops[id].exchange.part_at;
  span->bytes = low->in->program.ops[id].bytes;
  return id;
}

static int32_t emit_exchange(hec_lowering *low, hec_chunk chunk, hec_role role, bool backward, const int32_t *deps,
                             int32_t n_deps) {
  hec_layer_ops *ops = &low->layer[chunk.layer];
  hec_layer_chunk *of = &ops->in->chunk[chunk.index];
  bool to_experts = (role == HEC_ROLE_DISPATCH) != backward;
  hec_transfer_span *span = to_experts && of->there.n_transfers > 0 ? &of->there : &of->dispatch;
  if (span->n_transfers == 0)
    return -1;
  hec_op op = hec_op_of(low, HEC_OP_EXCHANGE, HEC_LANE_TOKEN, role, chunk.layer, backward);
  op.reverse = !to_experts;
  if (of->seconds_at >= 0)
    op.exchange.seconds = of->seconds_at + 1 + (to_experts ? 0 : low->problem->n_ranks);
  hec_set_cells(&op, ops, chunk.index);
  int32_t id = hec_emit_span(low, op, span, deps, n_deps);
  hec_token_buffers(low, chunk.layer, to_experts, backward, id);
  return id;
}

/* The exchange between nodes, and what a route over relays has before or behind it. */
static int32_t emit_routed(hec_lowering *low, hec_chunk chunk, hec_role role, bool backward, const int32_t *deps,
                           int32_t n_deps) {
  int32_t wait[HEC_WAITS_MAX];
  if (low->layer[chunk.layer].in->chunk[chunk.index].inside.n_transfers == 0)
    return emit_exchange(low, chunk, role, backward, deps, n_deps);
  if ((role == HEC_ROLE_DISPATCH) == backward) {
    int32_t sent = emit_exchange(low, chunk, role, backward, deps, n_deps);
    return hec_emit_from_relays(low, chunk, role, backward, sent, deps, n_deps);
  }
  int32_t relayed = hec_emit_to_relays(low, chunk, role, backward, deps, n_deps);
  int32_t n_wait = hec_wait_also(wait, deps, n_deps, relayed);
  return hec_emit_relays_end(low, chunk, backward, relayed, emit_exchange(low, chunk, role, backward, wait, n_wait));
}

int32_t hec_emit_tokens(hec_lowering *low, hec_chunk chunk, hec_role role, bool backward, const int32_t *deps,
                        int32_t n_deps) {
  if (low->problem->esp == 1)
    return emit_routed(low, chunk, role, backward, deps, n_deps);
  if ((role == HEC_ROLE_DISPATCH) != backward)
    return hec_emit_shard_gather(low, chunk, backward, emit_routed(low, chunk, role, backward, deps, n_deps), deps,
                                 n_deps);
  int32_t added = hec_emit_shard_scatter(low, chunk, backward, deps, n_deps);
  int32_t sent = emit_routed(low, chunk, role, backward, HEC_DEPS(added));
  return sent >= 0 ? sent : added;
}

int32_t hec_emit_dense_span(hec_lowering *low, hec_lane lane, hec_dense_span span, const int32_t *deps,
                            int32_t n_deps) {
  if (!hec_lower_last_micro_batch(low) || low->problem->n_ranks == 1 || span.bytes <= 0)
    return -1;
  hec_op op = hec_op_of(low, HEC_OP_ALLREDUCE, lane, HEC_ROLE_DENSE_REDUCE, span.layer, true);
  if (low->problem->zero) { /* parts are of all that a layer has */
    HEC_ASSERT(span.first_byte == 0 && span.bytes >= hec_problem_gradients(low->problem, span.layer));
    op.allreduce.half = HEC_ALLREDUCE_SCATTER;
  }
  double before = hec_problem_cut_gradients(low->problem, span.layer) - (double)span.first_byte;
  int32_t id = -1;
  if (before > 0) { /* among ranks of equal place */
    op.allreduce.stride = low->problem->mp;
    op.bytes = before < span.bytes ? before : span.bytes;
    op.allreduce.first_byte = span.first_byte;
    span.first_byte += (int64_t)op.bytes;
    span.bytes -= op.bytes;
    id = low->problem->mp < low->problem->n_ranks ? hec_program_add(&low->in->program, op, deps, n_deps) : -1;
    op.allreduce.stride = 1;
  }
  op.bytes = span.bytes;
  op.allreduce.first_byte = span.first_byte;
  if (span.bytes > 0)
    id = hec_program_add(&low->in->program, op, deps, n_deps);
  low->in->grad_tail = lane == HEC_LANE_GRAD && id >= 0 ? id : low->in->grad_tail;
  return id;
}

int32_t hec_emit_dense_reduce(hec_lowering *low, int32_t layer, double bytes, const int32_t *deps, int32_t n_deps) {
  return hec_emit_dense_span(low, HEC_LANE_GRAD, (hec_dense_span){layer, 0, bytes}, deps, n_deps);
}

int32_t hec_emit_dense_block(hec_lowering *low, int32_t layer) {
  return hec_emit_dense_reduce(low, layer, hec_problem_gradients(low->problem, layer), HEC_DEPS(low->tail));
}

void hec_emit_to_gate_with_guests(hec_lowering *low, int32_t layer) {
  if (layer == 0)
    low->layer[layer].gather =
        hec_emit_gather(low, layer, HEC_ROLE_GATHER, HEC_GUESTS_BEFORE, HEC_DEPS(low->tail, low->moved));
  hec_emit_to_gate(low, layer);
}

void hec_emit_to_gate(hec_lowering *low, int32_t layer) {
  int32_t attention = hec_emit_attention(low, layer, false, HEC_DEPS(low->tail, low->moved));
  int32_t gate = hec_emit_gate(low, layer, false, HEC_DEPS(attention));
  low->tail = emit_counts(low, layer, HEC_DEPS(gate));
}

void hec_emit_backward(hec_lowering *low, int32_t layer, bool reduces) {
  int32_t unpermute = hec_emit_unpermute(low, layer, true, HEC_DEPS(low->tail));
  int32_t combine = hec_emit_tokens(low, hec_whole(layer), HEC_ROLE_COMBINE, true, HEC_DEPS(unpermute));
  int32_t gather = -1;
  if (low->in->shared->run.plan.rematerialise)
    gather = hec_emit_gather(low, layer, HEC_ROLE_REGATHER, HEC_GUESTS_ALL, HEC_DEPS(unpermute, combine));
  int32_t experts = hec_emit_experts(low, hec_whole(layer), true, HEC_DEPS(unpermute, combine, gather));
  int32_t dispatch = hec_emit_tokens(low, hec_whole(layer), HEC_ROLE_DISPATCH, true, HEC_DEPS(experts));
  hec_release_guests(low, layer, experts);
  int32_t scatter = hec_emit_scatter(low, layer, HEC_DEPS(experts, dispatch));
  if (reduces)
    (void)hec_emit_replicas(low, layer, HEC_DEPS(experts, dispatch, scatter));
  int32_t permute = hec_emit_permute(low, layer, true, HEC_DEPS(experts, dispatch, scatter));
  int32_t shared = hec_emit_shared_experts(low, layer, true, HEC_DEPS(permute));
  int32_t gate = hec_emit_gate(low, layer, true, HEC_DEPS(permute, shared));
  low->tail = hec_emit_attention(low, layer, true, HEC_DEPS(gate));
  if (reduces)
    (void)hec_emit_dense_block(low, layer);
}
