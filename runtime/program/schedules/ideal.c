/* Schedule `ideal`, a lower bound and no system. Attention, gate and shared experts are as everywhere. Experts are one
 * GEMM of the assignments as the ranks' devices can best share them (emit_mean.c; alike: the mean). It has no tiles,
 * weight streaming or fixed cost. There are no counts, no token, parameter or migration traffic, and no planning.
 * Dense all-reduce is kept, and the optimizer runs over an even share of the experts. Every other schedule emits these
 * same rows, with at least this compute, plus more. So no policy under any schedule is faster (a test, on even
 * clusters and on uneven ones). */
#include "runtime/plan/problem.h"
#include "runtime/program/emit.h"

static void to_gate(hec_lowering *low, int32_t l) {
  int32_t attention = hec_emit_attention(low, l, false, HEC_DEPS(low->tail));
  low->tail = hec_emit_gate(low, l, false, HEC_DEPS(attention));
}

static void from_gate(hec_lowering *low, int32_t l) {
  int32_t shared = hec_emit_shared_experts(low, l, false, HEC_DEPS(low->tail));
  low->tail = hec_emit_mean_experts(low, l, false, HEC_DEPS(low->tail, shared));
}

static void backward(hec_lowering *low, int32_t l) {
  int32_t experts = hec_emit_mean_experts(low, l, true, HEC_DEPS(low->tail));
  int32_t shared = hec_emit_shared_experts(low, l, true, HEC_DEPS(experts));
  int32_t gate = hec_emit_gate(low, l, true, HEC_DEPS(experts, shared));
  low->tail = hec_emit_attention(low, l, true, HEC_DEPS(gate));
  (void)hec_emit_dense_block(low, l);
}

const hec_schedule hec_schedule_ideal = {
    .name = "ideal",
    .summary = "reference: compute as balanced as devices allow, no token, parameter or migration traffic (a bound, "
               "not a system)",
    .source = "this project, DESIGN",
    .bound = true,
    .to_gate = to_gate,
    .from_gate = from_gate,
    .backward = backward,
};
