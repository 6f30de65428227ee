/* Planned slots become all-reduces: in a layer's MoE part between its last combine' and its first dispatch', in its dense
 * part beside gate' and attention'. These are on the token lane, which is FSMoE's stream between nodes, so tokens and gradients never
 * share the network. What nothing hides comes after the backward, on the gradient lane, where the optimizer waits for it.
 *
 * The planner's units are bytes of one pool, oldest first. Pieces are whole parameters of one block. So a slot that
 * spans two blocks has two all-reduces, each with its own start (the planner counts one). What is left after the last
 * layer has one a block. With several micro-batches the gradients are reduced in the last one.
 * O(degree + blocks a slot spans) operations a layer.
 *
 * One degree for both directions, where the paper has two. What two would save: over the paper's grid 0.4 % on its
 * testbed A and 0.1 % on B, at most 2.5 % (walked, tests/validate/test_fsmoe.c). Over presets of clusters and models
 * here it is 0.24 %, at most 3.9 %, and 42 of 177 would have two (the planner's closed form,
 * tests/plan/test_fsmoe_problem.c). What it would take:
 *
 *   cells      cut once, at the finer degree F of the two (chunks.c); degrees are powers of two, so chunk c of a direction of
 *              degree r is the fine chunks c F/r .. (c+1) F/r - 1. Buffers keep their layout, by fine chunks
 *   lowering   transfers, work, gathers of shards and parts of both cuts in hec_layer_ops; operations name a range of fine
 *              chunks instead of one, as permute and unpermute name all
 *   executors  a coarse chunk has F/r runs of rows for each peer, and of computed rows F/r for each expert: messages of
 *              several segments, and products over F/r runs. On devices their lists grow likewise. Products then start F/r
 *              times an expert, which is part of what a smaller degree is chosen for, unless rows are moved together first
 *
 * That is every backend's handling of rows, for less than the planner's formulas are off by. */
#include "runtime/program/fsmoe.h"

#include "runtime/plan/planners/fsmoe_problem.h"
#include "runtime/plan/problem.h"

struct hec_fsmoe_run {
  hec_fsmoe_decision decision;
  int64_t block, unit; /* bytes of a block's dense gradients, of one parameter's */
  /* In the backward pass of the micro-batch that reduces: */
  int32_t oldest; /* the layer that is reduced next */
  int64_t done;   /* bytes of it that are */
  int32_t lowest; /* layers from here on have all their gradients */
  int32_t ready;  /* the operation after which they have; -1: there is none */
  int32_t newest; /* the newest all-reduce of a piece; -1 */
};

hec_fsmoe_run *hec_fsmoe_run_new(const hec_problem *problem, bool folded, hec_arena *arena) {
  hec_fsmoe_run *run = HEC_NEW(arena, hec_fsmoe_run, 1);
  double bytes = hec_problem_gradients(problem, 0);
  int64_t unit = (int64_t)problem->moe->grad_bytes;
  run->decision = hec_fsmoe_decide(problem, folded, arena);
  run->block = (int64_t)bytes;
  run->unit = unit >= 1 && (double)unit == problem->moe->grad_bytes ? unit : 1;
  return run;
}

void hec_fsmoe_from_gate(hec_lowering *low, int32_t layer) {
  const hec_fsmoe_run *run = low->own;
  hec_chunked_from_gate(low, layer, run->decision.degree);
}

/* `bytes` of the gradients that are ready, or all of them if there are fewer; also after operation `after`. */
static void reduce(hec_lowering *low, hec_lane lane, double bytes, int32_t after) {
  hec_fsmoe_run *run = low->own;
  int64_t left = (int64_t)(bytes / (double)run->unit) * run->unit;
  while (left > 0 && run->oldest >= run->lowest) {
    int64_t rest = run->block - run->done, piece = left < rest ? left : rest;
    run->newest = hec_emit_dense_span(low, lane, (hec_dense_span){run->oldest, run->done, (double)piece},
                                      HEC_DEPS(run->ready, after, run->newest));
    left -= piece;
    run->done += piece;
    if (run->done == run->block) {
      run->oldest--;
      run->done = 0;
    }
  }
}

void hec_fsmoe_backward_layer(hec_lowering *low, int32_t layer) {
  hec_fsmoe_run *run = low->own;
  int32_t n_layers = low->problem->n_layers;
  const hec_fsmoe_slot *slot = &run->decision.slots[n_layers - 1 - layer];
  if (layer == n_layers - 1) {
    run->oldest = n_layers - 1;
    run->lowest = n_layers;
    run->done = 0;
    run->ready = run->newest = -1;
  }
  hec_chunked_way way = hec_chunked_backward_there(low, layer, -1);
  reduce(low, HEC_LANE_TOKEN, slot->beside_moe, way.there[low->layer[layer].degree - 1]);
  hec_chunked_backward_back(low, layer, &way);
  reduce(low, HEC_LANE_TOKEN, slot->beside_dense, -1);
  hec_chunked_backward_dense(low, layer);
  run->lowest = layer;
  run->ready = low->tail;
}

void hec_fsmoe_end(hec_lowering *low) {
  const hec_fsmoe_run *run = low->own;
  reduce(low, HEC_LANE_GRAD, (double)run->block * low->problem->n_layers, low->tail);
}
