/* Memory of a program against a recount at every operation. Which holds are open, what they add up to, and that the
 * copies in memory are the copies of the plan. */
#include "runtime/program/emit.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static bool open_at(const hec_hold *hold, int32_t op) {
  return hold->first <= op && (hold->last < 0 || hold->last >= op);
}

static double bytes_of(const hec_program *program, const hec_hold *hold, int32_t rank) {
  return hold->bytes_at < 0 ? hold->bytes : hold->bytes * program->local_bytes[hold->bytes_at + rank];
}

static double sum_at(const hec_program *program, int32_t op, int32_t rank, int memory, int32_t layer) {
  double sum = 0;
  for (size_t i = 0; i < program->n_holds; i++) {
    const hec_hold *hold = &program->holds[i];
    if (open_at(hold, op) && (memory < 0 || (int)hold->memory == memory) && (layer < -1 || hold->layer == layer))
      sum += bytes_of(program, hold, rank);
  }
  return sum;
}

static bool near(double a, double b) {
  return a <= b * (1 + 1e-12) + 1e-6 && b <= a * (1 + 1e-12) + 1e-6;
}

static void check_peak(const hec_test_step *step) {
  const hec_program *program = step->program;
  double *peak = HEC_NEW(&arena, double, program->n_ranks), by_class[HEC_N_MEMORY], max = 0, classes = 0;
  hec_program_memory_peak(program, peak, by_class);
  for (int32_t r = 0; r < program->n_ranks; r++) {
    double wanted = 0;
    for (int32_t i = -1; i < (int32_t)program->n_ops; i++) {
      double now = sum_at(program, i, r, -1, -2);
      wanted = now > wanted ? now : wanted;
    }
    ck_assert_msg(near(peak[r], wanted), "rank %d: peak %.17g, recount %.17g: %s", r, peak[r], wanted,
                  hec_test_step_name(step));
    max = peak[r] > max ? peak[r] : max;
  }
  for (int k = 0; k < HEC_N_MEMORY; k++) {
    ck_assert(by_class[k] >= -1e-6);
    classes += by_class[k];
  }
  ck_assert_msg(near(classes, max), "classes %.17g, peak %.17g: %s", classes, max, hec_test_step_name(step));
}

/* State that is always there: dense and kept experts, in total over ranks each expert once and each resident. */
static void check_state(const hec_test_step *step) {
  const hec_program *program = step->program;
  const hec_problem *problem = &step->c->problem;
  const hec_memory_cost *bytes = &problem->bytes;
  const hec_plan *plan = &hec_lowering_run(step->low)->plan;
  double residents = 0, all[HEC_N_MEMORY] = {0};
  double *in_use = HEC_NEW(&arena, double, problem->n_ranks); /* whole experts only */
  for (int32_t l = 0; l < plan->n_layers; l++)
    for (int32_t e = 0; e < plan->n_experts; e++) {
      hec_copies copies = hec_plan_copies(plan, l, e);
      for (int32_t i = 0; i < copies.n; i++) {
        residents += copies.kind[i] == HEC_COPY_RESIDENT;
        in_use[copies.rank[i]] += copies.kind[i] == HEC_COPY_RESIDENT;
      }
      in_use[hec_plan_home(plan, l, e)]++;
    }
  double experts = residents + (double)problem->n_layers * problem->n_experts;
  if (plan->slots > 0) { /* reserved slots are held, used or not */
    experts = 0;
    for (int32_t r = 0; r < problem->n_ranks; r++) {
      double reserved = (double)plan->slots * problem->n_layers;
      experts += in_use[r] > reserved ? in_use[r] : reserved;
    }
  }
  for (int k = 0; k < HEC_N_MEMORY; k++)
    for (int32_t r = 0; r < problem->n_ranks; r++) {
      double end = sum_at(program, (int32_t)program->n_ops, r, k, -2);
      ck_assert(end >= 0);
      all[k] += end;
    }
  double ranks = problem->n_ranks;
  ck_assert(near(all[HEC_MEMORY_PARAM], ranks * bytes->dense_param + experts * bytes->expert_param));
  ck_assert(near(all[HEC_MEMORY_GRAD], ranks * bytes->dense_grad + experts * bytes->expert_grad));
  ck_assert(near(all[HEC_MEMORY_OPTIMIZER], ranks * bytes->dense_optimizer + experts * bytes->expert_optimizer));
  ck_assert(near(all[HEC_MEMORY_ACTIVATION], ranks * bytes->activation_rest));
  ck_assert(all[HEC_MEMORY_COPY_PARAM] == 0 && all[HEC_MEMORY_COPY_GRAD] == 0 && all[HEC_MEMORY_BUFFER] == 0);
  for (size_t i = 0; !problem->train && i < program->n_holds; i++) {
    hec_memory memory = program->holds[i].memory;
    ck_assert(memory != HEC_MEMORY_GRAD && memory != HEC_MEMORY_OPTIMIZER && memory != HEC_MEMORY_COPY_GRAD);
  }
}

static int32_t guests_of(const hec_plan *plan, int32_t layer, int32_t rank) {
  int32_t guests = 0;
  for (int32_t e = 0; e < plan->n_experts; e++) {
    hec_copies copies = hec_plan_copies(plan, layer, e);
    int32_t last = -1;
    for (int32_t i = 0; i < copies.n; i++) {
      bool home = plan->n_slices == 1 && hec_plan_home(plan, layer, e) == rank;
      guests += copies.kind[i] == HEC_COPY_GUEST && copies.rank[i] == rank && last != rank && !home;
      last = copies.rank[i];
    }
  }
  return guests;
}

/* Of which other layer guests may be in memory while experts run: that of which the schedule gathers ahead. And gradients:
 * that of which it returns them behind. -1: none. */
static int32_t layer_ahead(const hec_test_step *step, const hec_op *op) {
  int32_t next = op->backward ? op->layer - 1 : op->layer + 1;
  return step->schedule->hides.gathers == HEC_HIDES_LAYER && next < step->c->problem.n_layers ? next : -1;
}

static int32_t layer_behind(const hec_test_step *step, const hec_op *op) {
  int32_t last = op->layer + 1; /* gone once the first chunk's experts have run */
  return step->schedule->hides.returns == HEC_HIDES_LAYER && op->chunk == 0 && last < step->c->problem.n_layers ? last
                                                                                                                : -1;
}

/* Guests of the layer in memory while `op` runs, before its gate or (backward) after it. Those the plan has, fewer before
 * the gate if the policy refines. */
static void check_ahead(const hec_test_step *step, const hec_op *op, int32_t rank, double bytes) {
  int32_t ahead = layer_ahead(step, op);
  double wanted = ahead < 0 ? 0 : guests_of(&hec_lowering_run(step->low)->plan, ahead, rank);
  wanted *= step->c->problem.bytes.expert_param;
  bool all = op->backward || !step->policy->refine;
  ck_assert_msg(all ? near(bytes, wanted) : bytes <= wanted * (1 + 1e-12),
                "layer %d, rank %d: %.17g bytes of other layers' guests, wanted %.17g: %s", op->layer, rank, bytes,
                wanted, hec_test_step_name(step));
}

/* While experts run, forward and backward, the layer's guests are in memory; with re-materialisation no other's but what
 * the schedule has ahead. Gradients likewise, always. */
static void check_copies(const hec_test_step *step) {
  const hec_program *program = step->program;
  const hec_plan *plan = &hec_lowering_run(step->low)->plan;
  double param = step->c->problem.bytes.expert_param, grad = step->c->problem.bytes.expert_grad;
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    if (op->role != HEC_ROLE_EXPERTS || op->micro_batch != step->c->n_micro_batches - 1)
      continue;
    int32_t id = (int32_t)i, behind = layer_behind(step, op);
    for (int32_t r = 0; r < program->n_ranks; r++) {
      double wanted = guests_of(plan, op->layer, r), here = sum_at(program, id, r, HEC_MEMORY_COPY_PARAM, op->layer);
      ck_assert_msg(near(here, wanted * param), "layer %d, rank %d: %.17g bytes of copies, plan %.17g: %s", op->layer,
                    r, here, wanted * param, hec_test_step_name(step));
      if (plan->rematerialise)
        check_ahead(step, op, r, sum_at(program, id, r, HEC_MEMORY_COPY_PARAM, -2) - here);
      if (!op->backward)
        continue;
      double other = behind < 0 ? 0 : guests_of(plan, behind, r);
      ck_assert_msg(near(sum_at(program, id, r, HEC_MEMORY_COPY_GRAD, op->layer), wanted * grad), "%s",
                    hec_test_step_name(step));
      ck_assert_msg(near(sum_at(program, id, r, HEC_MEMORY_COPY_GRAD, -2), (wanted + other) * grad),
                    "layer %d, rank %d, gradients: %s", op->layer, r, hec_test_step_name(step));
    }
  }
}

static void visit(const hec_test_step *step, void *context) {
  (void)context;
  hec_arena_mark mark = hec_arena_save(&arena);
  check_peak(step);
  check_state(step);
  if (strcmp(step->schedule->name, "ideal") != 0)
    check_copies(step);
  hec_arena_rewind(&arena, mark);
}

HEC_TEST_LOOP(recount, hec_test_cases(30)) {
  uint64_t seed = 101 + (uint64_t)_i;
  hec_test_each(hec_test_random_case(&arena, &seed, (hec_test_wish){.ranks_max = 6}), false, visit, NULL);
}

/* Holds by hand: [start, 0] 5, [1, 2] 7 and 3 per rank index, [2, end] 1. */
HEC_TEST(by_hand) {
  HEC_SCOPED(hec_program) program = {0};
  hec_program_clear(&program, 2);
  for (int i = 0; i < 4; i++)
    (void)hec_program_add(&program, hec_op_new(HEC_OP_LOCAL, HEC_LANE_COMPUTE, HEC_ROLE_EMBEDDING, 0), NULL, 0);
  int32_t at = hec_program_local_bytes(&program, 2);
  program.local_bytes[at + 1] = 1;
  (void)hec_program_hold(&program, (hec_hold){HEC_MEMORY_PARAM, -1, -1, 0, -1, 5, HEC_TENSOR_STATE, -1, -1});
  (void)hec_program_hold(&program, (hec_hold){HEC_MEMORY_BUFFER, -1, 1, 2, -1, 7, HEC_TENSOR_STATE, -1, -1});
  (void)hec_program_hold(&program, (hec_hold){HEC_MEMORY_COPY_GRAD, -1, 1, 1, at, 3, HEC_TENSOR_STATE, -1, -1});
  (void)hec_program_hold(&program, (hec_hold){HEC_MEMORY_GRAD, -1, 2, -1, -1, 1, HEC_TENSOR_STATE, -1, -1});
  double peak[2], by_class[HEC_N_MEMORY];
  hec_program_check(&program);
  hec_program_memory_peak(&program, peak, by_class);
  ck_assert(peak[0] == 8 && peak[1] == 10);
  ck_assert(by_class[HEC_MEMORY_BUFFER] == 7 && by_class[HEC_MEMORY_COPY_GRAD] == 3 && by_class[HEC_MEMORY_GRAD] == 0);
  (void)hec_program_hold(&program, (hec_hold){HEC_MEMORY_PARAM, -1, 3, 3, -1, 100, HEC_TENSOR_STATE, -1,
                                              -1}); /* more holds, never a lower peak */
  hec_program_memory_peak(&program, peak, NULL);
  ck_assert(peak[0] == 101 && peak[1] == 101);
}
