/* Schedule `pipemoe`: PipeMoE (INFOCOM 2023, doi 10.1109/INFOCOM53939.2023.10228874) in the form of FSMoE's artifact
 * (arXiv:2501.10714, mode 0). The layer is cut into chunks (chunked.h), of one degree, the same forward and backward.
 * The degree is chosen before training, on balanced loads. It is the r in {1, 2, 4, 8} with the least t(r) = max(2 r
 * a, 2 a + r x) (degree.h). Dense gradients are reduced on their own, after the backward. The degree does not look at
 * loads, so it can be wrong for skewed ones. */
#include "runtime/base/arena.h"
#include "runtime/plan/planners/degree.h"
#include "runtime/plan/problem.h"
#include "runtime/program/chunked.h"

static void *start(const hec_problem *problem, hec_arena *arena) {
  int32_t *degree = HEC_NEW(arena, int32_t, 1);
  *degree = hec_degree_of(problem, arena);
  return degree;
}

static void from_gate(hec_lowering *low, int32_t l) {
  hec_chunked_from_gate(low, l, *(const int32_t *)low->own);
}

const hec_schedule hec_schedule_pipemoe = {
    .name = "pipemoe",
    .summary = "tokens in chunks, experts beside them; one degree by a formula; dense all-reduce at the end",
    .source = "PipeMoE, INFOCOM 2023, doi 10.1109/INFOCOM53939.2023.10228874",
    .chunked = true,
    .hides = {.chunked = true},
    .start = start,
    .to_gate = hec_emit_to_gate,
    .from_gate = from_gate,
    .backward = hec_chunked_backward,
    .end = hec_chunked_end,
};
