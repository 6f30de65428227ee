/* Schedule `lina`: Lina's training schedule (ATC 2023, arXiv:2210.17223; reference policies.md 3.7). All communication is
 * cut into micro-operations of 30 MB, all-to-all first: those of an all-reduce run only while no all-to-all is pending.
 * Experts start on a micro-operation's tokens as they arrive.
 *
 *   tokens      chunks (chunked.h), ceil(bytes of the busiest source's assignments / 30 MB) of them, at most 16
 *   gradients   a queue of pieces of at most 30 MB, blocks in the order in which they are ready. In a backward all-to-alls
 *               are pending from combine' to dispatch'; so pieces run beside gate' and attention', as many as begin there
 *
 *                   while a piece is left and (pieces so far) * t(piece) < time of gate' and attention':  send it
 *
 *               by the cost laws on the slowest device; the one that runs over is waited for, as micro-operations are not
 *               interrupted. What is left at the end of the backward follows then.
 *
 * Published is a queue at run time. Lanes here are in order. So the order is decided when the layer is lowered, by the
 * same rule on predicted times. The simulator and the runtime then have one program. Three things are not expressed.
 * Pieces between the two all-to-alls of a backward (rare: the second begins with the first chunk computed). Expert
 * packing, which is placement. The inference half of the paper. Gradients outside MoE blocks are reduced at the end in
 * one piece: nothing is pending then. O(pieces) per layer. */
#include "runtime/base/arena.h"
#include "runtime/plan/problem.h"
#include "runtime/program/chunked.h"

static const double micro_op_bytes = 30e6; /* arXiv:2210.17223 */

typedef struct {
  int32_t n_pieces; /* of a block */
  double block_bytes;
  double window_s[2], piece_s; /* window: second, of a layer whose attention is dense beside s2 */
  int32_t layer, piece;        /* the next one of the queue; those of layers below are not ready */
  int64_t first_byte;          /* of it */
  int32_t sent;                /* the newest, which the next all-to-all waits for; -1 */
} own;

static double backward_s(const hec_problem *p, const hec_device *device, hec_work_shape shape, int32_t parts) {
  shape = hec_work_backward_of(p->moe, shape);
  return hec_work_s(device, &shape, (double)parts * p->tokens);
}

static void *start(const hec_problem *problem, hec_arena *arena) {
  own *o = HEC_NEW(arena, own, 1);
  double block = hec_problem_gradients(problem, 0);
  o->block_bytes = block;
  o->n_pieces = 1 + (int32_t)(block / micro_op_bytes);
  o->piece_s = hec_problem_reduce_s(problem, block / o->n_pieces);
  hec_work_shape attention[2] = {hec_problem_attention(problem, false), hec_problem_attention(problem, true)};
  for (int32_t r = 0; r < problem->n_ranks; r++)
    for (int dense = 0; dense < 2; dense++) {
      const hec_device *device = &problem->cluster->devices[r];
      double s = backward_s(problem, device, attention[dense], problem->mp) +
                 backward_s(problem, device, hec_work_gate(problem->moe), 1);
      o->window_s[dense] = s > o->window_s[dense] ? s : o->window_s[dense];
    }
  return o;
}

static int32_t degree_of(const hec_lowering *low, int32_t l) {
  uint64_t max = 0;
  for (int32_t s = 0; s < low->load->n_sources; s++) {
    uint64_t sum = 0;
    for (int32_t e = 0; e < low->load->n_experts; e++)
      sum += hec_load_row(low->load, l, s)[e];
    max = sum > max ? sum : max;
  }
  double micro_ops = (double)max * low->problem->bytes.token / micro_op_bytes;
  int32_t degree = micro_ops < HEC_DEGREE_MAX ? (int32_t)micro_ops : HEC_DEGREE_MAX;
  return degree < micro_ops && degree < HEC_DEGREE_MAX ? degree + 1 : degree < 1 ? 1 : degree;
}

static void from_gate(hec_lowering *low, int32_t l) {
  hec_chunked_from_gate(low, l, degree_of(low, l));
}

/* Sends the next piece. */
static void send(hec_lowering *low, own *o) {
  double unit = low->problem->moe->grad_bytes;
  int64_t bytes = hec_part_bytes((int64_t)o->block_bytes, unit, o->piece, o->n_pieces);
  hec_dense_span span = {o->layer, o->first_byte, (double)bytes};
  o->sent = hec_emit_dense_span(low, HEC_LANE_GRAD, span, HEC_DEPS(low->tail));
  o->first_byte += bytes;
  if (++o->piece == o->n_pieces) {
    o->layer--;
    o->piece = 0;
    o->first_byte = 0;
  }
}

static void backward(hec_lowering *low, int32_t l) {
  own *o = low->own;
  double used_s = 0, window_s = o->window_s[hec_moe_dense_attention(low->problem->moe, l)];
  if (l == low->problem->n_layers - 1) {
    o->layer = l;
    o->piece = 0;
    o->first_byte = 0;
    o->sent = -1;
  }
  hec_chunked_backward_tokens(low, l, o->sent);
  o->sent = -1;
  for (; o->layer > l && used_s < window_s; used_s += o->piece_s)
    send(low, o);
  hec_chunked_backward_dense(low, l);
}

static void end(hec_lowering *low) {
  own *o = low->own;
  while (o->layer >= 0)
    send(low, o);
}

const hec_schedule hec_schedule_lina = {
    .name = "lina",
    .summary = "all communication in 30 MB pieces, experts beside tokens; dense all-reduce where no tokens are pending",
    .source = "Lina, ATC 2023, arXiv:2210.17223",
    .chunked = true,
    .hides = {.chunked = true},
    .start = start,
    .to_gate = hec_emit_to_gate,
    .from_gate = from_gate,
    .backward = backward,
    .end = end,
};
