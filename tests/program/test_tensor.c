/* Tensor parallelism in programs, under every policy and schedule. What travels, what is computed between, in which order,
 * and how dense gradients are reduced, by the definition in runtime/plan/problem.h. Times by hand. */
#include "models/link_cost.h"
#include "runtime/program/emit.h"
#include "runtime/program/lowering_state.h"
#include "sim/simulate.h"
#include "tests/sim/sim_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

/* The case with groups as wide as its ranks, nodes and 4 heads allow; false: it has none. */
static bool widen(hec_test_case *c) {
  for (int32_t mp = 4; mp > 1; mp /= 2)
    if (c->problem.n_ranks % mp == 0 && c->cluster.devices_per_node % mp == 0)
      return hec_problem_tensor(&c->problem, mp) == HEC_OK;
  return false;
}

static int32_t passes_of(const hec_problem *p, bool backward) {
  return !backward ? 1 : !p->train ? 0 : p->moe->recompute ? 2 : 1;
}

/* Bytes of every pair: a block's rows once a pass, twice in blocks without MoE. */
static void check_traffic(const hec_test_step *step) {
  const hec_problem *p = &step->c->problem;
  const hec_program *program = step->program;
  hec_arena_mark mark = hec_arena_save(&arena);
  int32_t n = p->n_ranks, blocks = p->n_layers + 2 * (p->moe->n_layers - p->n_layers);
  for (int way = 0; way < 4; way++) {
    bool backward = way % 2 == 1, scatter = way >= 2;
    int64_t *sum = HEC_NEW(&arena, int64_t, n * n), each = (int64_t)p->tokens * (int64_t)p->bytes.token;
    double added = 0;
    for (size_t i = 0; i < program->n_ops; i++) {
      const hec_op *op = &program->ops[i];
      bool here = op->role == (scatter ? HEC_ROLE_TENSOR_SCATTER : HEC_ROLE_TENSOR_GATHER) && op->backward == backward;
      if (here)
        ck_assert(op->reverse == scatter);
      for (int32_t k = 0; here && k < op->exchange.n_transfers; k++) {
        const hec_transfer *t = &program->transfers[op->exchange.transfer_at + k];
        sum[scatter ? t->destination * n + t->source : t->source * n + t->destination] += t->bytes;
      }
      added += op->role == HEC_ROLE_TENSOR_REDUCE && op->backward == backward ? op->bytes : 0;
    }
    int64_t times = (int64_t)blocks * passes_of(p, backward) * step->c->n_micro_batches;
    for (int32_t s = 0; s < n; s++)
      for (int32_t d = 0; d < n; d++)
        ck_assert_msg(sum[s * n + d] == (s != d && s / p->mp == d / p->mp ? each * times : 0), "%d to %d: %s", s, d,
                      hec_test_step_name(step));
    if (scatter)
      ck_assert(added == (double)(times * each * (p->mp + 1)));
  }
  hec_arena_rewind(&arena, mark);
}

/* Every piece of attention and dense FFN once, with the FLOPs it has undivided. */
static void check_work(const hec_test_step *step) {
  const hec_problem *p = &step->c->problem;
  const hec_moe *moe = p->moe;
  double found[2] = {0, 0}, wanted = 0, per_layer;
  int32_t n_pieces = 0;
  for (size_t i = 0; i < step->program->n_ops; i++) {
    const hec_op *op = &step->program->ops[i];
    if (op->role != HEC_ROLE_ATTENTION && op->role != HEC_ROLE_DENSE_BLOCKS)
      continue;
    ck_assert(op->compute.rows == (double)p->mp * p->tokens);
    found[op->backward] += op->compute.rows * step->program->shapes[op->compute.shape].flops_per_row;
    if (op->role == HEC_ROLE_DENSE_BLOCKS) /* attention, FFN, attention ... and backward the other way round */
      ck_assert((op->compute.shape / 2 * 2 == HEC_SHAPE_DENSE_FFN) == (n_pieces++ % 2 == !op->backward));
  }
  for (int32_t l = 0; l < p->n_layers; l++) {
    hec_work_shape shape = hec_moe_dense_attention(moe, l) ? hec_work_dense_attention(moe) : hec_work_attention(moe);
    wanted += shape.flops_per_row * p->tokens;
  }
  per_layer = moe->n_layers > moe->n_moe_layers ? hec_work_dense_blocks(moe).flops_per_row * p->tokens : 0;
  wanted = (wanted + per_layer) * step->c->n_micro_batches;
  ck_assert_double_eq_tol(found[0], wanted, 1e-9 * wanted + 1e-300);
  wanted *= p->train ? (moe->recompute ? 3 : 2) : 0;
  ck_assert_double_eq_tol(found[1], wanted, 1e-9 * wanted + 1e-300);
}

/* On every rank: AllGather, compute, ReduceScatter, addition, whatever comes next. */
static void check_order(const hec_test_step *step, const hec_timeline *t) {
  const hec_program *program = step->program;
  size_t n = (size_t)program->n_ranks;
  hec_lane lane = step->schedule->inside ? HEC_LANE_INTRA : HEC_LANE_TOKEN;
  for (size_t r = 0; r < n; r++) {
    int64_t gathered = -1, computed = -1, scattered = -1, added = -1;
    for (size_t i = 0; i < program->n_ops; i++) {
      const hec_op *op = &program->ops[i];
      int64_t begin = t->begin_ps[i * n + r], end = t->end_ps[i * n + r];
      switch (op->role) {
      case HEC_ROLE_TENSOR_GATHER:
        ck_assert(op->lane == lane && begin >= added);
        gathered = end;
        break;
      case HEC_ROLE_ATTENTION:
      case HEC_ROLE_DENSE_BLOCKS:
        ck_assert_msg(begin >= gathered && gathered > computed, "%s", hec_test_step_name(step));
        computed = end;
        break;
      case HEC_ROLE_TENSOR_SCATTER:
        ck_assert(op->lane == lane && begin >= computed && begin >= gathered);
        scattered = end;
        break;
      case HEC_ROLE_TENSOR_REDUCE:
        ck_assert(op->lane == lane && begin >= scattered);
        added = end;
        break;
      case HEC_ROLE_GATE:
      case HEC_ROLE_EMBEDDING:
        ck_assert_msg(begin >= added, "%s", hec_test_step_name(step));
        break;
      default:
        break;
      }
    }
  }
}

/* Of each block every byte once: the first, which are cut, among ranks of equal place, the others among all. */
static void check_gradients(const hec_test_step *step) {
  const hec_problem *p = &step->c->problem;
  double told[HEC_N_TRAFFIC], one_off[HEC_N_TRAFFIC], dense = 0;
  for (int32_t l = -1; l < p->n_layers; l++) {
    double done = p->mp < p->n_ranks ? 0 : hec_problem_cut_gradients(p, l), cut = hec_problem_cut_gradients(p, l);
    double all = p->train ? hec_problem_gradients(p, l) : 0;
    for (size_t i = 0; i < step->program->n_ops; i++) {
      const hec_op *op = &step->program->ops[i];
      if (op->role != HEC_ROLE_DENSE_REDUCE || op->layer != l)
        continue;
      ck_assert_double_eq((double)op->allreduce.first_byte, done);
      ck_assert_double_gt(op->bytes, 0);
      ck_assert_msg((op->allreduce.stride == p->mp) == (done < cut) && (done >= cut || done + op->bytes <= cut), "%s",
                    hec_test_step_name(step));
      done += op->bytes;
      dense += 2 * op->bytes * (p->n_ranks - (op->allreduce.stride > 1 ? p->mp : 1));
    }
    ck_assert_double_eq(done, p->train ? all : done);
  }
  hec_program_traffic(step->program, told, one_off);
  ck_assert_double_eq_tol(told[HEC_TRAFFIC_DENSE], dense, 1e-9 * dense + 1e-300);
}

static void visit(const hec_test_step *step, void *context) {
  int32_t *n = context;
  hec_program_check(step->program);
  check_traffic(step);
  check_work(step);
  check_gradients(step);
  HEC_SCOPED(hec_timeline) timeline =
      hec_test_simulate(&step->c->problem, step->program, &hec_law_alpha_beta, (hec_sim_options){0});
  check_order(step, &timeline);
  for (size_t i = 0; i < step->program->n_holds; i++) /* what is in flight lands */
    ck_assert(step->program->holds[i].memory != HEC_MEMORY_BUFFER || step->program->holds[i].last >= 0);
  ++*n;
}

HEC_TEST_LOOP(programs_by_definition, hec_test_cases(24)) {
  int32_t n = 0;
  for (uint64_t i = 0; n == 0; i++) { /* the first case from here that has groups */
    uint64_t seed = 700 + 40 * (uint64_t)_i + i;
    hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){0});
    if (widen(c))
      hec_test_each(c, false, visit, &n);
  }
}

static double simulated(const hec_problem *p, const hec_load *load, double peak[]) {
  HEC_OPENED(hec_lowering) *low = hec_test_lower(p, "ep", "deepspeed", load, &arena);
  double s = hec_test_seconds(p, hec_lowering_program(low));
  hec_program_memory_peak(hec_lowering_program(low), peak, NULL);
  return s;
}

/* Nothing overlaps, tiles of one row: the two differ by the exchanges, the additions, all-reduces and the optimizer. */
HEC_TEST(times_by_hand) {
  const char *line =
      "2x4 nvlink=10G@3us nic=1G@7us flops=1T eff=1 mem=40G hbm=100G a=0s c=0s launch=1us tile=1 plan=0s@0s";
  for (int i = 0; i < 8; i++) {
    bool train = i % 2 == 1;
    int32_t mp = i < 4 ? 2 : 4;
    hec_problem *p = hec_test_problem(&arena, line, 8, 3, 8, 2, train), q;
    hec_moe *moe = HEC_NEW(&arena, hec_moe, 1);
    *moe = *p->moe;
    moe->recompute = i % 4 >= 2;
    ck_ok(hec_problem_make(moe, p->cluster, train, 8, 256, p));
    q = *p;
    ck_ok(hec_problem_tensor(&q, mp));
    hec_load load = hec_test_equal_load(p, 64, &arena);
    double peak[2][8], whole = simulated(p, &load, peak[0]), cut = simulated(&q, &load, peak[1]);
    double row = 128, rows = 256 * row, once = 2 * (3e-6 + (mp - 1) * rows / 10e9) + 1e-6 + (mp + 1) * rows / 100e9;
    double passes = 3 * (train ? (moe->recompute ? 3 : 2) : 1), more = passes * once;
    if (train) {
      double attention = 4 * 64 * 64, rest = 2 * 64 + 64 * 8, spared = 3 * attention * (1 - 1.0 / mp);
      more += 3 * (hec_link_cost_allreduce_strided(p->cluster, 8, mp, 2 * attention / mp) +
                   hec_link_cost_allreduce(p->cluster, 8, 2 * rest) -
                   hec_link_cost_allreduce(p->cluster, 8, 2 * (attention + rest)));
      more -= spared * (2 + 24 + 2) / 100e9; /* gradient, state twice, parameter */
    }
    ck_assert_double_eq_tol(cut - whole, more, 1e-9);
    if (train &&
        !moe->recompute) /* the peak is in the experts of the last layer: state and kept rows of three layers */
      ck_assert_double_eq(peak[1][5] - peak[0][5], 3 * (mp - 1) * rows - 16 * 3 * 4 * 64 * 64 * (1 - 1.0 / mp));
  }
}

/* In flight beside the state: gathered rows, partial sums, then sums and what arrived. */
HEC_TEST(memory_in_flight) {
  hec_problem *p = hec_test_problem(&arena, "1x4 nvlink=300G flops=312T mem=40G", 4, 1, 4, 1, true);
  ck_ok(hec_problem_tensor(p, 4));
  hec_load load = hec_load_new(&arena, 1, 4, 4); /* no token goes anywhere */
  HEC_OPENED(hec_lowering) *low = hec_test_lower(p, "ep", "serial", &load, &arena);
  const hec_program *program = hec_lowering_program(low);
  double rows = 256 * 128, buffers[64] = {0};
  ck_assert_uint_lt(program->n_ops, 64);
  for (size_t h = 0; h < program->n_holds; h++)
    for (int32_t i = 0; program->holds[h].memory == HEC_MEMORY_BUFFER && i < (int32_t)program->n_ops; i++)
      buffers[i] += i >= program->holds[h].first && i <= program->holds[h].last ? program->holds[h].bytes : 0;
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    double wanted = op->role == HEC_ROLE_TENSOR_GATHER    ? (op->backward ? 4 : 0)
                    : op->role == HEC_ROLE_ATTENTION      ? (op->backward ? 4 + 4 : 4)
                    : op->role == HEC_ROLE_TENSOR_SCATTER ? 4 + 3
                    : op->role == HEC_ROLE_TENSOR_REDUCE  ? 4 + 3
                                                          : -1;
    if (wanted >= 0)
      ck_assert_double_eq(buffers[i], wanted * rows);
  }
}
