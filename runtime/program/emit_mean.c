/* Experts of the `ideal` row: the assignments cut over the ranks so that the last of them is done as early as can be.
 *
 * Rank r needs F_r seconds of a micro-batch for all that is not experts (its tokens are its own). It needs c_r for an
 * assignment, forward and backward, without launches, tiles and streaming. The N assignments of all layers may be cut
 * in any way, x_r >= 0 of them on rank r. The ranks' compute lanes cannot all be done before
 *
 *     T = min over x of max over r of F_r + c_r x_r,      x_r = max(0, (T - F_r) / c_r),   sum of x_r = N
 *
 * so ranks that are still busy with the rest at T get none. Each layer is cut in these proportions, in whole numbers,
 * rounded down: still a bound. Where all ranks are alike this is the mean. What F_r and c_r are made of need not follow a
 * device's speed alike: products do, traffic through its memory does not.
 *
 * T is found by leaving out ranks with F_r >= T until there are none: it only falls, so at most R rounds of O(R). */
#include "runtime/program/lowering_state.h"

/* Seconds of `rows` rows of the shape on the rank, forward and where it trains backward. */
static double both_s(const hec_lowering *low, int32_t rank, int32_t shape, double rows) {
  const hec_work_shape *shapes = &low->in->program.shapes[shape];
  const hec_device *device = &low->problem->cluster->devices[rank];
  return hec_work_s(device, &shapes[0], rows) + (low->problem->train ? hec_work_s(device, &shapes[1], rows) : 0);
}

/* F_r */
static double rest_s(const hec_lowering *low, int32_t rank) {
  const hec_problem *problem = low->problem;
  const hec_moe *moe = problem->moe;
  double tokens = problem->tokens, dense = hec_moe_n_dense_attention(moe, true);
  double s = (problem->n_layers - dense) * both_s(low, rank, HEC_SHAPE_ATTENTION, tokens) +
             dense * both_s(low, rank, HEC_SHAPE_DENSE_ATTENTION, tokens) +
             problem->n_layers * both_s(low, rank, HEC_SHAPE_GATE, tokens);
  if (moe->n_shared_experts > 0)
    s += problem->n_layers * both_s(low, rank, HEC_SHAPE_SHARED, tokens);
  if (moe->vocabulary > 0)
    s += both_s(low, rank, HEC_SHAPE_EMBEDDING, tokens) + both_s(low, rank, HEC_SHAPE_HEAD, tokens);
  if (moe->n_layers > moe->n_moe_layers)
    s += both_s(low, rank, HEC_SHAPE_DENSE_BLOCKS, tokens);
  return s;
}

/* T; `rest`, `one`: F_r, c_r. */
static double done_s(const double *rest, const double *one, int32_t n_ranks, double total) {
  double done = -1;
  for (bool again = true; again;) {
    double work = total, rate = 0, before = done;
    for (int32_t r = 0; r < n_ranks; r++)
      if (before < 0 || rest[r] < before) {
        work += rest[r] / one[r];
        rate += 1 / one[r];
      }
    done = work / rate;
    again = before < 0 || done < before;
  }
  return done;
}

/* Whether all ranks are alike. */
static bool even(const double *rest, const double *one, int32_t n_ranks) {
  bool same = true;
  for (int32_t r = 1; r < n_ranks; r++)
    same = same && rest[r] == rest[0] && one[r] == one[0];
  return same;
}

static void add_mean_work(hec_lowering *low, hec_layer_chunk *chunk) {
  const hec_problem *problem = low->problem;
  hec_program *program = &low->in->program;
  int32_t n_ranks = problem->n_ranks;
  uint64_t layer = 0;
  for (int32_t r = 0; r < n_ranks; r++)
    layer += low->in->routing.rank_tokens[r];
  hec_arena_mark mark = hec_arena_save(low->in->arena);
  double *rest = HEC_NEW(low->in->arena, double, n_ranks), *one = HEC_NEW(low->in->arena, double, n_ranks);
  for (int32_t r = 0; r < n_ranks; r++) {
    rest[r] = rest_s(low, r);
    one[r] = both_s(low, r, HEC_SHAPE_EXACT, 1);
  }
  double total = (double)problem->n_layers * (double)layer, done = done_s(rest, one, n_ranks, total);
  bool alike = even(rest, one, n_ranks);
  HEC_RESERVE(program->work, program->work_capacity, program->n_work + (size_t)n_ranks);
  HEC_RESERVE(program->work_index, program->work_index_capacity, program->n_work_index + (size_t)n_ranks + 1);
  chunk->work_at = (int32_t)program->n_work_index;
  for (int32_t r = 0; r < n_ranks; r++) {
    double rows = alike ? (double)(layer / (uint64_t)n_ranks)
                        : (done > rest[r] ? (done - rest[r]) / one[r] / (double)problem->n_layers : 0);
    program->work_index[program->n_work_index++] = (int32_t)program->n_work;
    program->work[program->n_work++] = (hec_work){-1, (int32_t)rows};
  }
  program->work_index[program->n_work_index++] = (int32_t)program->n_work;
  hec_arena_rewind(low->in->arena, mark);
}

int32_t hec_emit_mean_experts(hec_lowering *low, int32_t layer, bool backward, const int32_t *deps, int32_t n_deps) {
  hec_layer_ops *ops = &low->layer[layer];
  if (!backward) /* by the time of the backward, low->routing is another layer's */
    add_mean_work(low, &ops->in->chunk[0]);
  hec_op op = hec_op_of(low, HEC_OP_COMPUTE, HEC_LANE_COMPUTE, HEC_ROLE_EXPERTS, layer, backward);
  op.compute.shape = HEC_SHAPE_EXACT + (backward ? 1 : 0);
  op.compute.work_at = ops->in->chunk[0].work_at;
  return hec_program_add(&low->in->program, op, deps, n_deps);
}
