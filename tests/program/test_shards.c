/* Expert-sharding groups in programs: bytes, work and memory by the definition in runtime/plan/problem.h, under every
 * schedule. What FSMoE's plan promises is what its program takes where the plan's formulas are exact. */
#include "runtime/plan/planners/fsmoe_problem.h"
#include "runtime/program/emit.h"
#include "tests/sim/sim_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

HEC_TEST_ARENA(arena)

enum { RANKS_MAX = 12, EXPERTS_MAX = 32 };

static hec_problem *random_case(uint64_t *seed) {
  char line[160];
  (void)snprintf(line, sizeof line, "3x4 nvlink=%dG@%dus nic=%dG@%dus flops=%dT mem=40G tile=%d",
                 10 + (int)hec_test_below(seed, 300), (int)hec_test_below(seed, 9), 1 + (int)hec_test_below(seed, 50),
                 (int)hec_test_below(seed, 50), 1 + (int)hec_test_below(seed, 60), 1 + (int)hec_test_below(seed, 64));
  int32_t ranks = 4 * (1 + (int32_t)hec_test_below(seed, 3)), esp = 2 << hec_test_below(seed, 2);
  int32_t experts = ranks / esp + (int32_t)hec_test_below(seed, 9);
  hec_problem *p = hec_test_problem(&arena, line, ranks, 1 + (int32_t)hec_test_below(seed, 3), experts,
                                    1 + (int32_t)hec_test_below(seed, 2) % experts, hec_test_below(seed, 4) > 0);
  ck_ok(hec_problem_shard(p, esp));
  return p;
}

/* What a program must hold of one micro-batch, per pass through the layers (forward, backward). */
typedef struct {
  int64_t between[RANKS_MAX][RANKS_MAX], inside[RANKS_MAX][RANKS_MAX]; /* bytes towards the experts */
  int64_t near[RANKS_MAX][RANKS_MAX];                                  /* to relays */
  int64_t rows[RANKS_MAX][EXPERTS_MAX];
} expected;

/* The rank over which the layer's rows go from s to d; by the definition of 2DH where that is its route. */
static int32_t relay_of(const hec_problem *p, const hec_program *program, int32_t layer, int32_t s, int32_t d) {
  for (size_t i = 0; i < program->n_ops; i++)
    if (program->ops[i].role == HEC_ROLE_PERMUTE && program->ops[i].layer == layer && program->ops[i].route == 0)
      return s;
  return s / p->cluster->devices_per_node * p->cluster->devices_per_node + d % p->cluster->devices_per_node;
}

static void expect(const hec_problem *p, const hec_program *program, const hec_plan *plan, const hec_load *load,
                   expected *x) {
  int64_t token = (int64_t)p->bytes.token;
  memset(x, 0, sizeof *x);
  for (int32_t l = 0; l < p->n_layers; l++)
    for (int32_t s = 0; s < p->n_ranks; s++)
      for (int32_t e = 0; e < p->n_experts; e++) {
        int32_t n = (int32_t)hec_load_row(load, l, s)[e], first = hec_plan_home(plan, l, e), to = first + s % p->esp;
        int32_t q = s == to ? s : relay_of(p, program, l, s, to);
        if (s != q)
          x->near[s][q] += n * token;
        if (q != to)
          x->between[q][to] += n * token;
        for (int32_t r = first; r < first + p->esp; r++) {
          x->rows[r][e] += n;
          if (r != to)
            x->inside[to][r] += n * token;
        }
      }
}

static void add_transfers(const hec_program *program, const hec_op *op, int64_t sums[RANKS_MAX][RANKS_MAX]) {
  for (int32_t i = 0; i < op->exchange.n_transfers; i++) {
    const hec_transfer *t = &program->transfers[op->exchange.transfer_at + i];
    sums[t->source][t->destination] += t->bytes;
  }
}

static void compare(const hec_problem *p, const hec_program *program, const expected *x, bool backward, bool inside) {
  static expected found[2]; /* to the experts, and back (reversed exchanges are written the same way round) */
  static double reduced[RANKS_MAX];
  memset(found, 0, sizeof found);
  memset(reduced, 0, sizeof reduced);
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    bool shard = op->role == HEC_ROLE_SHARD_GATHER || op->role == HEC_ROLE_SHARD_SCATTER;
    if (shard || op->role == HEC_ROLE_SHARD_REDUCE)
      ck_assert_int_eq((int32_t)op->lane, (int32_t)(inside ? HEC_LANE_INTRA : HEC_LANE_TOKEN));
    if (op->backward != backward)
      continue;
    if (shard)
      ck_assert(op->reverse == (op->role == HEC_ROLE_SHARD_SCATTER));
    if (shard)
      add_transfers(program, op, found[op->reverse].inside);
    if (op->role == HEC_ROLE_DISPATCH || op->role == HEC_ROLE_COMBINE)
      add_transfers(program, op, found[op->reverse].between);
    if (op->role == HEC_ROLE_DISPATCH_INSIDE || op->role == HEC_ROLE_COMBINE_INSIDE)
      add_transfers(program, op, found[op->reverse].near);
    for (int32_t r = 0; op->role == HEC_ROLE_SHARD_REDUCE && r < p->n_ranks; r++)
      reduced[r] += op->bytes * program->local_bytes[op->local.bytes_at + r];
    for (int32_t r = 0; op->role == HEC_ROLE_EXPERTS && r < p->n_ranks; r++)
      for (int32_t k = program->work_index[op->compute.work_at + r];
           k < program->work_index[op->compute.work_at + r + 1]; k++)
        found[0].rows[r][program->work[k].item] += program->work[k].rows;
  }
  for (int32_t r = 0; r < p->n_ranks; r++) {
    int64_t arrived = 0;
    for (int32_t d = 0; d < p->n_ranks; d++)
      for (int32_t back = 0; back < 2; back++) {
        ck_assert_int_eq(found[back].between[r][d], x->between[r][d]);
        ck_assert_int_eq(found[back].near[r][d], x->near[r][d]);
        ck_assert_int_eq(found[back].inside[r][d], x->inside[r][d]);
        arrived = x->inside[r][d] > arrived ? x->inside[r][d] : arrived;
      }
    ck_assert_double_eq(reduced[r], (double)((p->esp + 1) * arrived));
    for (int32_t e = 0; e < p->n_experts; e++)
      ck_assert_int_eq(found[0].rows[r][e], x->rows[r][e]);
  }
}

/* Rows that never left their rank are added up before they go back to their tokens. It does not matter who has a part
 * in the exchange that follows the addition. */
static void returns_wait(const hec_program *program) {
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    int32_t newest = -1;
    if ((op->role != HEC_ROLE_UNPERMUTE || op->backward) && (op->role != HEC_ROLE_PERMUTE || !op->backward))
      continue;
    for (size_t k = 0; k < i; k++)
      if (program->ops[k].role == HEC_ROLE_SHARD_REDUCE && program->ops[k].layer == op->layer &&
          program->ops[k].backward == op->backward)
        newest = (int32_t)k;
    bool waits = newest < 0;
    for (int32_t d = 0; d < op->n_deps; d++)
      waits = waits || program->deps[op->dep_at + d] == newest;
    ck_assert(waits);
  }
}

HEC_TEST_LOOP(programs_by_definition, 40) {
  uint64_t seed = 500 + (uint64_t)_i;
  hec_problem *p = random_case(&seed);
  hec_load load = hec_test_random_load(&arena, p, &seed);
  for (int32_t s = 0; hec_schedules[s]; s++) {
    if (hec_schedules[s]->bound)
      continue;
    HEC_OPENED(hec_lowering) *low = hec_lowering_new(p, hec_policy_find("ep"), hec_schedules[s], NULL, &arena);
    for (int32_t i = 0; i < 5; i++) { /* Tutel tries its degrees */
      hec_lower_iteration(low, i, &load, 1, 1);
      const hec_program *program = hec_lowering_program(low);
      expected x;
      hec_program_check(program);
      returns_wait(program);
      expect(p, program, &hec_lowering_run(low)->plan, &load, &x);
      for (int32_t backward = 0; backward < (p->train ? 2 : 1); backward++)
        compare(p, program, &x, backward, hec_schedules[s]->inside);
      (void)hec_test_seconds(p, program); /* checks the timeline */
    }
  }
}

/* Every rank keeps an esp-th of its group's experts. */
HEC_TEST(memory_is_shared) {
  hec_problem *p = hec_test_problem(&arena, "2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 8, 2, 5, 2, true);
  hec_load load = hec_load_new(&arena, 2, 8, 5); /* no tokens: state alone */
  for (int32_t esp = 2; esp <= 4; esp *= 2) {
    hec_problem q = *p;
    double peak[8];
    ck_ok(hec_problem_shard(&q, esp));
    HEC_OPENED(hec_lowering) *low = hec_test_lower(&q, "ep", "serial", &load, &arena);
    hec_program_memory_peak(hec_lowering_program(low), peak, NULL);
    double expert = q.bytes.expert_param + q.bytes.expert_grad + q.bytes.expert_optimizer;
    for (int32_t r = 0; r < 8; r++) {
      int32_t experts = 0, first = r / esp * esp, last = 8 - esp;
      for (int32_t e = 0; e < 5; e++)
        experts += hec_plan_home(&hec_lowering_run(low)->plan, 0, e) == first;
      ck_assert_int_gt(experts, 0);
      ck_assert_double_eq_tol(peak[r] - peak[last], 2.0 * (experts - 5 / (8 / esp)) * expert / esp, expert);
    }
  }
}

static double simulated(const hec_problem *p, const char *schedule, const hec_load *load, double *overlapped) {
  HEC_OPENED(hec_lowering) *low = hec_test_lower(p, "ep", schedule, load, &arena);
  const hec_program *program = hec_lowering_program(low);
  HEC_SCOPED(hec_timeline) timeline = hec_test_simulate(p, program, &hec_law_alpha_beta, (hec_sim_options){0});
  double s = (double)hec_timeline_end_ps(&timeline) * 1e-12, busy[HEC_N_LANES] = {0};
  for (int32_t i = 0; i < timeline.n_ops; i++)
    if (timeline.begin_ps[(size_t)i * (size_t)p->n_ranks] >= 0)
      busy[program->ops[i].lane] += 1e-12 * (double)(timeline.end_ps[(size_t)i * (size_t)p->n_ranks] -
                                                     timeline.begin_ps[(size_t)i * (size_t)p->n_ranks]);
  *overlapped = busy[HEC_LANE_INTRA];
  return s;
}

/* No tiles, no latency on anything but links, chunks alike, no cost of adding: forward passes differ by what the planner says. */
HEC_TEST_LOOP(the_plan_is_what_the_program_takes, 30) {
  uint64_t seed = 900 + (uint64_t)_i;
  char line[200];
  (void)snprintf(line, sizeof line,
                 "4x2 nvlink=%dM@%dus nic=%dM@%dus flops=%dG mem=40G a=0s c=0s launch=0s tile=1 hbm=1000000T "
                 "plan=0s@0s",
                 100 + (int)hec_test_below(&seed, 900), (int)hec_test_below(&seed, 200),
                 100 + (int)hec_test_below(&seed, 900), (int)hec_test_below(&seed, 200),
                 1 + (int)hec_test_below(&seed, 40));
  hec_problem *p = hec_test_problem(&arena, line, 8, 2, 4, 1, false);
  ck_ok(hec_problem_shard(p, 2));
  p->tokens = 512;
  hec_load load = hec_test_equal_load(p, 128, &arena);
  double inside, none, serial = simulated(p, "serial", &load, &none), time[2], planned[2];
  for (int32_t folded = 0; folded < 2; folded++) {
    hec_fsmoe_decision d = hec_fsmoe_decide(p, folded, &arena);
    hec_fsmoe_view view = hec_fsmoe_view_of(p, &arena);
    time[folded] = simulated(p, folded ? "fsmoe-no-iio" : "fsmoe", &load, &inside);
    ck_assert(folded ? inside == 0 : inside > 0);
    planned[folded] = d.time_s;
    double whole = 2 * hec_fsmoe_case_time(&view.forward, 1, 0, HEC_FSMOE_COMPUTE);
    ck_assert_double_eq_tol(serial - time[folded], whole - d.time_s, 1e-6 * serial);
  }
  ck_assert(none == 0);
  ck_assert_double_le(time[0], time[1] + 1e-6 * serial);
  ck_assert_double_le(planned[1], serial);
}
