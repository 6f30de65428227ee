/* Schedule `tutel`: Tutel (arXiv:2206.03382). The layer is cut into chunks (chunked.h). Their number and their all-to-all
 * are tried out while training (tutel.h). Dense gradients are reduced on their own, after the backward. FSMoE's
 * artifact has its Tutel so (arXiv:2501.10714, mode 0). */
#include "runtime/program/tutel.h"
#include "runtime/plan/problem.h"

static void *start(const hec_problem *problem, hec_arena *arena) {
  return hec_tutel_new(problem, arena);
}

static void from_gate(hec_lowering *low, int32_t l) {
  hec_tutel_from_gate(low, low->own, l);
}

const hec_schedule hec_schedule_tutel = {
    .name = "tutel",
    .summary = "tokens in chunks, experts beside them; degree and all-to-all (linear, 2DH) tried out online",
    .source = "Tutel, arXiv:2206.03382",
    .chunked = true,
    .hides = {.chunked = true},
    .routes = true,
    .start = start,
    .to_gate = hec_emit_to_gate,
    .from_gate = from_gate,
    .backward = hec_chunked_backward,
    .end = hec_chunked_end,
};
