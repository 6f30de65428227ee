/* Schedule `joint`: parameters travel a layer ahead and gradients a layer behind, as in `laer`. Each layer's tokens
 * travel in the way that ends its token work soonest (ways.h): whole, in chunks beside the experts, or once per node.
 *
 *   forward   TOKEN   dispatch_l 1 ..     combine_l 1 ..
 *             COMPUTE           experts_l 1 ..
 *             PARAM   [copies that this gate asks for]  spAG of layer l+1
 *   backward  TOKEN   combine'_l 1 ..     dispatch'_l 1 ..
 *             COMPUTE           experts'_l 1 ..
 *             PARAM   spAG of layer l-1, with re-materialisation
 *             GRAD    spRS of layer l+1, put off from that layer
 *
 * The first layer's copies are gathered beside its own attention, forward, and their gradients return beside it, backward. What
 * else waits for what, and the memory of two layers' copies, are `laer`'s. */
#include "runtime/plan/problem.h"
#include "runtime/program/emit.h"
#include "runtime/program/ways.h"

static void *start(const hec_problem *problem, hec_arena *arena) {
  return hec_ways_new(problem, arena);
}

static void from_gate(hec_lowering *low, int32_t l) {
  hec_layer_ops *ops = &low->layer[l];
  bool last_layer = l == low->problem->n_layers - 1;
  int32_t there[HEC_DEGREE_MAX], wait[HEC_DEGREE_MAX + 1], experts = -1;
  int32_t plan = hec_emit_plan(low, l, HEC_LANE_COMPUTE, HEC_DEPS(ops->counts));
  int32_t late =
      hec_emit_gather(low, l, HEC_ROLE_CALIBRATE, HEC_GUESTS_ADDED, HEC_DEPS(ops->counts, plan, ops->gather));
  hec_ways_choose(low, low->own, l);
  int32_t permute = hec_emit_permute(low, l, false, HEC_DEPS(ops->counts, plan));
  for (int32_t c = 0; c < ops->degree; c++)
    there[c] = hec_emit_tokens(low, (hec_chunk){l, c}, HEC_ROLE_DISPATCH, false, HEC_DEPS(permute));
  if (!last_layer)
    low->layer[l + 1].gather =
        hec_emit_gather(low, l + 1, HEC_ROLE_GATHER, HEC_GUESTS_BEFORE, HEC_DEPS(permute, there[0]));
  int32_t shared = hec_emit_shared_experts(low, l, false, HEC_DEPS(permute));
  for (int32_t c = 0; c < ops->degree; c++) {
    hec_chunk chunk = {l, c};
    experts = hec_emit_experts(low, chunk, false, HEC_DEPS(permute, there[c], shared, ops->gather, late, ops->migrate));
    wait[c] = hec_emit_tokens(low, chunk, HEC_ROLE_COMBINE, false, HEC_DEPS(experts));
  }
  wait[ops->degree] = experts;
  low->tail = hec_emit_unpermute(low, l, false, wait, ops->degree + 1);
  if (!low->problem->train || (hec_rematerialises(low) && !last_layer))
    hec_release_guests(low, l, experts);
}

/* The copies of the layer that backward comes to next, and the gradients of the one that it came from. */
static int32_t backward_experts(hec_lowering *low, int32_t l, int32_t unpermute, const int32_t *there, int32_t *wait) {
  hec_layer_ops *ops = &low->layer[l];
  int32_t n = low->problem->n_layers, experts = -1;
  if (hec_rematerialises(low) && l > 0)
    low->layer[l - 1].regather =
        hec_emit_gather(low, l - 1, HEC_ROLE_REGATHER, HEC_GUESTS_ALL, HEC_DEPS(unpermute, there[0]));
  int32_t buffer = l + 2 < n ? low->layer[l + 2].scatter : -1;
  for (int32_t c = 0; c < ops->degree; c++) {
    hec_chunk chunk = {l, c};
    experts = hec_emit_experts(low, chunk, true, HEC_DEPS(unpermute, there[c], ops->regather, buffer));
    if (c == 0 && l + 1 < n && hec_layer_has_guests(low, l + 1)) {
      hec_emit_return(low, l + 1, HEC_DEPS(unpermute, there[0]));
      (void)hec_emit_dense_block(low, l + 1);
    }
    wait[c] = hec_emit_tokens(low, chunk, HEC_ROLE_DISPATCH, true, HEC_DEPS(experts));
  }
  return experts;
}

static void backward(hec_lowering *low, int32_t l) {
  hec_layer_ops *ops = &low->layer[l];
  int32_t there[HEC_DEGREE_MAX], wait[HEC_DEGREE_MAX + 1];
  int32_t unpermute = hec_emit_unpermute(low, l, true, HEC_DEPS(low->tail));
  for (int32_t c = 0; c < ops->degree; c++)
    there[c] = hec_emit_tokens(low, (hec_chunk){l, c}, HEC_ROLE_COMBINE, true, HEC_DEPS(unpermute));
  int32_t experts = backward_experts(low, l, unpermute, there, wait);
  bool guests = hec_layer_has_guests(low, l);
  hec_release_guests(low, l, experts);
  if (!guests || l == 0) /* the first layer's hide beside its own attention at least */
    hec_emit_return(low, l, HEC_DEPS(experts, wait[ops->degree - 1]));
  wait[ops->degree] = experts;
  int32_t permute = hec_emit_permute(low, l, true, wait, ops->degree + 1);
  int32_t shared = hec_emit_shared_experts(low, l, true, HEC_DEPS(permute));
  int32_t gate = hec_emit_gate(low, l, true, HEC_DEPS(permute, shared));
  low->tail = hec_emit_attention(low, l, true, HEC_DEPS(gate));
  if (!guests || l == 0)
    (void)hec_emit_dense_block(low, l);
}

const hec_schedule hec_schedule_joint = {
    .name = "joint",
    .summary = "as laer; of each layer tokens whole, in chunks beside experts, or once per node, by cost",
    .source = "this project; gathers of LAER-MoE, chunks of PipeMoE, rows of HierMoE",
    .own = true,
    .plans_beside = true,
    .chunked = true,
    .by_node = true,
    .hides = {.gathers = HEC_HIDES_LAYER, .returns = HEC_HIDES_LAYER, .chunked = true, .by_node = true},
    .start = start,
    .to_gate = hec_emit_to_gate_with_guests,
    .from_gate = from_gate,
    .backward = backward,
};
