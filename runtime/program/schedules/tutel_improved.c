/* Schedule `tutel-improved`: `tutel` with the dense all-reduce beside the dense part only, FSMoE's stronger baseline
 * (arXiv:2501.10714, mode 1 of its artifact). The gradients of block l+1 are reduced beside gate' and attention' of block
 * l, those of block 0 after the backward. The tokens of block l-1 wait for them, so that the two never share a network.
 *
 * The artifact cuts gradients and carries what does not fit beside one dense part to the next, and to the end. Here a
 * block is reduced in one piece, and what does not fit is waited for there and then. With blocks that are alike the
 * sum is the same, since the next dense part is as full. It chooses its all-to-all as `tutel` does: 2DH is one of the
 * all-to-alls of FSMoE's system; whether its measured baselines had it is not said. */
#include "runtime/base/arena.h"
#include "runtime/plan/problem.h"
#include "runtime/program/tutel.h"

typedef struct {
  hec_tutel *tutel;
  int32_t reduced; /* the newest all-reduce, -1: none */
} own;

static void *start(const hec_problem *problem, hec_arena *arena) {
  own *o = HEC_NEW(arena, own, 1);
  o->tutel = hec_tutel_new(problem, arena);
  return o;
}

static void from_gate(hec_lowering *low, int32_t l) {
  hec_tutel_from_gate(low, ((own *)low->own)->tutel, l);
}

static void backward(hec_lowering *low, int32_t l) {
  own *o = low->own;
  bool first = l == low->problem->n_layers - 1;
  hec_chunked_backward_tokens(low, l, first ? -1 : o->reduced);
  o->reduced = first ? -1 : hec_emit_dense_block(low, l + 1);
  hec_chunked_backward_dense(low, l);
}

static void end(hec_lowering *low) {
  (void)hec_emit_dense_block(low, 0);
}

const hec_schedule hec_schedule_tutel_improved = {
    .name = "tutel-improved",
    .summary = "tutel with the dense all-reduce beside the dense part of the backward",
    .source = "FSMoE, arXiv:2501.10714, mode 1 of its artifact",
    .chunked = true,
    .hides = {.chunked = true},
    .routes = true,
    .start = start,
    .to_gate = hec_emit_to_gate,
    .from_gate = from_gate,
    .backward = backward,
    .end = end,
};
