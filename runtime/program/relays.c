/* Tokens over relays (token_route.h). B(s, d): bytes of the chunk's rows from s to d, q = relay(s, d):
 *
 *   inside    s -> q   sum over d with q != s of B(s, d)       those of d = q are there, the others rest
 *   between   q -> d   sum over s with q != d of B(s, d)       q's own (s = q), and those that rest
 *   at rest   on q     sum over s, d with q != s, d of B(s, d)
 *
 *   to the experts   inside    alignment   between    end            all on the token lane, in line
 *   back             between   alignment   inside     end            (reversed)
 *
 * The published all-to-all copies twice so that what goes to one rank stands together. The first copy is before the
 * first exchange. Here that is part of the permute, since that may sort as it likes. The second is between the two, at
 * the relay, by destination instead of by source. That one is charged, and executed: every row at rest is read and
 * written once. Rows that do not rest need no copy.
 * Two buffers, one for either order, live from the exchange that fills them to the one that empties them, chunk by chunk.
 *
 * A rank may have a part in one exchange and none in the other. So both end in a row that every rank has (it takes no
 * time): who waits for that has waited for both. O(ranks^2) per chunk. */
#include "runtime/program/lowering_state.h"

static void list_inside(hec_lowering *low, int32_t s) {
  hec_program *program = &low->in->program;
  for (int32_t q = 0; q < low->problem->n_ranks; q++) {
    if (low->in->inside_bytes[q] > 0)
      program->transfers[program->n_transfers++] =
          (hec_transfer){.bytes = low->in->inside_bytes[q], .source = s, .destination = q, .item = -1, .after = -1};
    low->in->inside_bytes[q] = 0;
  }
}

void hec_add_relays(hec_lowering *low, const hec_token_route *route, hec_layer_chunk *chunk) {
  hec_program *program = &low->in->program;
  int32_t n_ranks = low->problem->n_ranks;
  HEC_RESERVE(program->transfers, program->transfers_capacity,
              program->n_transfers + (size_t)n_ranks * (size_t)n_ranks);
  chunk->inside.transfer_at = (int32_t)program->n_transfers;
  chunk->relayed_at = hec_program_local_bytes(program, n_ranks);
  for (int32_t s = 0; s < n_ranks; s++) {
    for (int32_t d = 0; d < n_ranks; d++) {
      int64_t *bytes = &low->in->pair_bytes[(size_t)s * (size_t)n_ranks + (size_t)d];
      int32_t q = *bytes > 0 ? route->relay(low->problem, s, d) : s;
      if (q == s) /* nothing; or the exchange between nodes alone */
        continue;
      low->in->inside_bytes[q] += *bytes;
      if (q != d) { /* q's own for d stand there too, and stay: relay(q, d) = q */
        low->in->pair_bytes[(size_t)q * (size_t)n_ranks + (size_t)d] += *bytes;
        program->local_bytes[chunk->relayed_at + q] += (double)*bytes;
        chunk->relayed = true;
      }
      *bytes = 0;
    }
    list_inside(low, s);
  }
  chunk->inside.n_transfers = (int32_t)program->n_transfers - chunk->inside.transfer_at;
}

static hec_layer_chunk *chunk_at(hec_lowering *low, hec_chunk chunk) {
  return &low->layer[chunk.layer].in->chunk[chunk.index];
}

static int32_t emit_inside(hec_lowering *low, hec_chunk chunk, hec_role role, bool backward, const int32_t *deps,
                           int32_t n_deps) {
  bool to_experts = (role == HEC_ROLE_DISPATCH) != backward;
  role = role == HEC_ROLE_DISPATCH ? HEC_ROLE_DISPATCH_INSIDE : HEC_ROLE_COMBINE_INSIDE;
  hec_op op = hec_op_of(low, HEC_OP_EXCHANGE, HEC_LANE_TOKEN, role, chunk.layer, backward);
  op.reverse = !to_experts;
  hec_set_cells(&op, &low->layer[chunk.layer], chunk.index);
  int32_t id = hec_emit_span(low, op, &chunk_at(low, chunk)->inside, deps, n_deps);
  hec_token_buffers(low, chunk.layer, to_experts, backward, id);
  return id;
}

/* From the one order to the other. */
static int32_t emit_alignment(hec_lowering *low, hec_chunk chunk, bool to_experts, bool backward, const int32_t *deps,
                              int32_t n_deps) {
  hec_op op = hec_op_of(low, HEC_OP_LOCAL, HEC_LANE_TOKEN, HEC_ROLE_ALIGN, chunk.layer, backward);
  op.reverse = !to_experts;
  op.local.bytes_at = chunk_at(low, chunk)->relayed_at;
  op.bytes = 2;
  hec_set_cells(&op, &low->layer[chunk.layer], chunk.index);
  return hec_program_add(&low->in->program, op, deps, n_deps);
}

static void hold_rows(hec_lowering *low, hec_chunk chunk, hec_tensor tensor, int32_t first, int32_t last) {
  (void)hec_program_hold(&low->in->program, (hec_hold){.memory = HEC_MEMORY_BUFFER,
                                                       .layer = chunk.layer,
                                                       .first = first,
                                                       .last = last,
                                                       .bytes_at = chunk_at(low, chunk)->relayed_at,
                                                       .bytes = 1,
                                                       .tensor = tensor,
                                                       .micro_batch = low->in->micro_batch,
                                                       .items_at = -1});
}

static int32_t emit_end(hec_lowering *low, hec_chunk chunk, bool backward, int32_t first, int32_t second) {
  if (first < 0 || second < 0)
    return first < 0 ? second : first;
  hec_op op = hec_op_of(low, HEC_OP_LOCAL, HEC_LANE_TOKEN, HEC_ROLE_ALIGN, chunk.layer, backward);
  hec_set_cells(&op, &low->layer[chunk.layer], chunk.index);
  return hec_program_add(&low->in->program, op, HEC_DEPS(first, second));
}

int32_t hec_emit_to_relays(hec_lowering *low, hec_chunk chunk, hec_role role, bool backward, const int32_t *deps,
                           int32_t n_deps) {
  int32_t wait[HEC_WAITS_MAX], inside = emit_inside(low, chunk, role, backward, deps, n_deps);
  if (!chunk_at(low, chunk)->relayed)
    return inside;
  int32_t n_wait = hec_wait_also(wait, deps, n_deps, inside); /* a rank may have no part in it */
  int32_t aligned = emit_alignment(low, chunk, true, backward, wait, n_wait);
  hold_rows(low, chunk, HEC_TENSOR_RELAYED, inside, aligned);
  return aligned;
}

int32_t hec_emit_relays_end(hec_lowering *low, hec_chunk chunk, bool backward, int32_t relayed, int32_t sent) {
  if (chunk_at(low, chunk)->relayed)
    hold_rows(low, chunk, HEC_TENSOR_ALIGNED, relayed, sent);
  return emit_end(low, chunk, backward, relayed, sent);
}

int32_t hec_emit_from_relays(hec_lowering *low, hec_chunk chunk, hec_role role, bool backward, int32_t sent,
                             const int32_t *deps, int32_t n_deps) {
  int32_t wait[HEC_WAITS_MAX], n_wait = hec_wait_also(wait, deps, n_deps, sent), last = sent;
  if (chunk_at(low, chunk)->relayed) {
    last = emit_alignment(low, chunk, false, backward, wait, n_wait);
    hold_rows(low, chunk, HEC_TENSOR_ALIGNED, sent, last);
    n_wait = hec_wait_also(wait, deps, n_deps, last);
  }
  int32_t inside = emit_inside(low, chunk, role, backward, wait, n_wait);
  if (chunk_at(low, chunk)->relayed)
    hold_rows(low, chunk, HEC_TENSOR_RELAYED, last, inside);
  return emit_end(low, chunk, backward, sent, inside);
}
