/* `joint` keeps up with simple plans: on some tens of settings its iterations take, after the pairs were compared, no longer
 * than those of the fastest pair of the rows and schedules here, but for what the header of portfolio.h leaves open: 1 % in
 * the sum over the last iterations. So under the closed law, under `max_min`, and where communication takes a part of the
 * device. Without its pairs it falls behind, and so it does with pairs that it prices by another law: the test can fail. */
#include "runtime/program/portfolio.h"
#include "sim/simulate.h"
#include "tests/support/problem_case.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 8, LAYERS = 3, EXPERTS = 16, ITERATIONS = 10, WARM = 5, LONG = 10000 };

static const char *const clusters[] = {
    "2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", "2x4 nvlink=150G@2us nic=12G@5us flops=125T mem=40G",
    "1x8 nvlink=900G@2us nic=50G@5us flops=990T mem=80G", "4x2 nvlink=32G@5us nic=6G@10us flops=312T mem=40G"};
static const struct {
  const char *policy, *schedule;
} pairs[] = {{"ep", "fsmoe"},      {"janus", "hecate"}, {"hecate", "hecate"}, {"ultraep", "laer"},
             {"echo", "laer"},     {"eplb", "fsmoe"},   {"lplb", "hiermoe"},  {"micromoe", "fsmoe"},
             {"flashlb", "fsmoe"}, {"taot", "laer"},    {"flexmoe", "fsmoe"}};

/* Loads that fall with an expert's place, `steep` times, alike in every iteration up to a few tokens. */
static void fill(hec_load *load, const hec_problem *p, int32_t steep, uint64_t *seed) {
  for (int32_t l = 0; l < p->n_layers; l++)
    for (int32_t s = 0; s < p->n_ranks; s++) {
      uint32_t *row = hec_load_row(load, l, s);
      uint32_t left = (uint32_t)(p->tokens * p->top_k);
      for (int32_t e = 0; e < p->n_experts; e++) {
        uint32_t share = left / (uint32_t)(e + 1 == p->n_experts ? 1 : 2 + 16 / (1 + steep) - steep % 2);
        row[(5 * e + 3 * l) % p->n_experts] = e + 1 == p->n_experts ? left : share;
        left -= e + 1 == p->n_experts ? left : share;
      }
      uint32_t moved = (uint32_t)(hec_test_random(seed) % 8), *from = &row[s % p->n_experts];
      moved = moved < *from ? moved : *from;
      *from -= moved;
      row[(s + 1) % p->n_experts] += moved;
    }
}

typedef struct {
  double s;    /* of the iterations after WARM, without what moves once */
  double peak; /* bytes of the fullest rank in these */
} result;

static result run_all(hec_problem *p, const hec_law *law, const hec_load *loads, const hec_policy *policy,
                      const char *schedule) {
  HEC_SCOPED(hec_arena) arena = {0};
  double peak[RANKS];
  result of = {0};
  HEC_OPENED(hec_lowering) *low = hec_lowering_new(p, policy, hec_schedule_find(schedule), NULL, &arena);
  HEC_OPENED(hec_sim) *sim = hec_sim_new(p, law, &arena);
  HEC_SCOPED(hec_timeline) timeline = {0};
  for (int32_t i = 0; i < ITERATIONS; i++) {
    int64_t iter =
        i < WARM ? (int64_t)i * LONG : (int64_t)(WARM - 1) * LONG + i - WARM + 1; /* comparisons have ended */
    hec_lower_iteration(low, iter, &loads[i], 1, 1);
    hec_sim_run(sim, hec_lowering_program(low), (hec_sim_options){.without_one_off = true}, &timeline);
    of.s += i < WARM ? 0 : (double)hec_timeline_end_ps(&timeline) * 1e-12;
    hec_program_memory_peak(hec_lowering_program(low), peak, NULL);
    for (int32_t r = 0; i >= WARM && r < RANKS; r++)
      of.peak = peak[r] > of.peak ? peak[r] : of.peak;
  }
  return of;
}

static double run(hec_problem *p, const hec_law *law, const hec_load *loads, const hec_policy *policy,
                  const char *schedule) {
  return run_all(p, law, loads, policy, schedule).s;
}

static double run_pair(hec_problem *p, const hec_law *law, const hec_load *loads, size_t pair) {
  return run(p, law, loads, hec_policy_find(pairs[pair].policy), pairs[pair].schedule);
}

/* Prices by the closed law, and as if communication took nothing of a device. */
static void *start_blind(const hec_pricer *pricer, const hec_problem *problem, hec_arena *arena) {
  hec_problem *other = HEC_NEW(arena, hec_problem, 1);
  hec_cluster *cluster = HEC_NEW(arena, hec_cluster, 1);
  (void)pricer;
  *other = *problem;
  other->cluster = cluster;
  *cluster = *problem->cluster;
  cluster->devices = HEC_NEW(arena, hec_device, cluster->n_devices);
  for (int32_t i = 0; i < cluster->n_devices; i++) {
    cluster->devices[i] = problem->cluster->devices[i];
    cluster->devices[i].comm_share = 0;
  }
  return hec_law_pricer(&hec_law_alpha_beta)->start(hec_law_pricer(&hec_law_alpha_beta), other, arena);
}

typedef struct {
  double best, alone, joint,
      blind; /* seconds of the best pair; of `joint` without pairs, with them, with false prices */
} outcome;

static outcome outcome_of(const char *cluster, int32_t steep, const hec_law *law) {
  HEC_SCOPED(hec_arena) arena = {0};
  outcome o = {0};
  uint64_t seed = 7 + (uint64_t)steep;
  hec_policy alone = *hec_policy_find("joint");
  hec_pricer blind = *hec_law_pricer(&hec_law_alpha_beta);
  alone.portfolio = 0;
  blind.start = start_blind;
  hec_problem *p = hec_test_problem(&arena, cluster, RANKS, LAYERS, EXPERTS, 2, true);
  hec_load loads[ITERATIONS];
  for (int32_t i = 0; i < ITERATIONS; i++) {
    loads[i] = hec_load_new(&arena, LAYERS, RANKS, EXPERTS);
    fill(&loads[i], p, steep, &seed);
  }
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    double s = run_pair(p, law, loads, i);
    o.best = i == 0 || s < o.best ? s : o.best;
  }
  o.alone = run(p, law, loads, &alone, "joint");
  p->pricer = &blind;
  o.blind = run(p, law, loads, hec_policy_find("joint"), "joint");
  p->pricer = hec_law_pricer(law);
  o.joint = run(p, law, loads, hec_policy_find("joint"), "joint");
  return o;
}

/* Behind the best pair without pairs; false prices cost something (`misled`). */
static void keeps_up(const char *const *which, size_t n, int32_t n_steep, const hec_law *law, bool misled) {
  int32_t n_behind = 0, n_misled = 0;
  for (size_t c = 0; c < n; c++)
    for (int32_t steep = 0; steep < n_steep; steep++) {
      outcome o = outcome_of(which[c], steep, law);
      ck_assert_msg(o.joint <= 1.01 * o.best, "%s, steep %d: joint %.6g s, best pair %.6g s", which[c], steep, o.joint,
                    o.best);
      n_behind += o.alone > 1.01 * o.best;
      n_misled += o.blind > 1.01 * o.joint;
    }
  ck_assert_int_gt(n_behind, 0);
  ck_assert_int_eq(n_misled > 0, misled);
}

HEC_TEST(keeps_up) {
  keeps_up(clusters, sizeof clusters / sizeof *clusters, 8, &hec_law_alpha_beta, false);
}

/* Where communication takes a part of the device, what hides it costs: as on h800. */
HEC_TEST(keeps_up_on_shared_devices) {
  static const char *const shared[] = {"2x4 nvlink=150G@2us nic=12G@5us flops=125T mem=40G sm=0.5",
                                       "2x4 nvlink=32G@5us nic=6G@10us flops=3T mem=40G sm=0.5",
                                       "4x2 nvlink=32G@5us nic=6G@10us flops=1T mem=40G sm=0.5"};
  keeps_up(shared, sizeof shared / sizeof *shared, 2, &hec_law_alpha_beta, true);
}

HEC_TEST(keeps_up_under_max_min) {
  keeps_up(clusters, sizeof clusters / sizeof *clusters, 2, &hec_law_max_min, true);
}

/* Of a job that is large only rows that use no load are tried; here one of them is faster than its own planner. */
HEC_TEST(large_jobs_follow_static_rows) {
  enum { MANY_LAYERS = HEC_PORTFOLIO_SIZE_MAX / (RANKS * RANKS) + 1, FEW_EXPERTS = 8 };
  HEC_SCOPED(hec_arena) arena = {0};
  uint64_t seed = 7;
  hec_policy alone = *hec_policy_find("joint");
  alone.portfolio = 0;
  hec_problem *p = hec_test_problem(&arena, clusters[2], RANKS, MANY_LAYERS, FEW_EXPERTS, 1, true);
  p->pricer = hec_law_pricer(&hec_law_alpha_beta);
  hec_load loads[ITERATIONS];
  for (int32_t i = 0; i < ITERATIONS; i++) {
    loads[i] = hec_load_new(&arena, MANY_LAYERS, RANKS, FEW_EXPERTS);
    fill(&loads[i], p, 7, &seed);
  }
  double janus_s = run(p, &hec_law_alpha_beta, loads, hec_policy_find("janus"), "laer");
  ck_assert_double_gt(run(p, &hec_law_alpha_beta, loads, &alone, "joint"), 1.01 * janus_s);
  ck_assert_double_le(run(p, &hec_law_alpha_beta, loads, hec_policy_find("joint"), "joint"), 1.01 * janus_s);
}

/* Fewer experts than ranks: whole ones leave no room, slices do. They fit to the byte, as what copies of everything take does
 * not depend on the loads. */
HEC_TEST(starts_in_slices) {
  enum { MANY = 12, FEW = 4 };
  static const struct {
    const char *policy, *schedule;
  } rows[] = {{"ep", "serial"},     {"ep", "fsmoe"},    {"janus", "hecate"},
              {"hecate", "hecate"}, {"fsdp", "hecate"}, {"fsdp", "laer"}};
  HEC_SCOPED(hec_arena) arena = {0};
  hec_problem *p = hec_test_problem(&arena, clusters[0], RANKS, MANY, FEW, 2, true);
  const hec_policy *joint = hec_policy_find("joint");
  hec_load loads[ITERATIONS];
  uint64_t seed = 5;
  for (int32_t i = 0; i < ITERATIONS; i++) {
    loads[i] = hec_load_new(&arena, MANY, RANKS, FEW);
    fill(&loads[i], p, 2, &seed);
  }
  double memory = run_all(p, &hec_law_alpha_beta, loads, hec_policy_find("fsdp"), "hecate").peak, best = 0;
  for (int32_t r = 0; r < RANKS; r++)
    p->cluster->devices[r].memory_bytes = memory;
  p->pricer = hec_law_pricer(&hec_law_alpha_beta);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    result of = run_all(p, &hec_law_alpha_beta, loads, hec_policy_find(rows[i].policy), rows[i].schedule);
    ck_assert(of.peak > memory || strcmp(rows[i].policy, "fsdp") == 0); /* slices alone fit */
    if (of.peak <= memory)
      best = best == 0 || of.s < best ? of.s : best;
  }
  result of = run_all(p, &hec_law_alpha_beta, loads, joint, "joint");
  ck_assert_double_le(of.peak, memory);
  ck_assert_msg(of.s <= 1.01 * best, "joint %.6g s, best pair that fits %.6g s", of.s, best);
}

/* The first iteration that follows a pair; ITERATIONS: none does. */
static int32_t first_followed(hec_problem *p, const hec_load *loads) {
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_OPENED(hec_lowering) *low =
      hec_lowering_new(p, hec_policy_find("joint"), hec_schedule_find("joint"), NULL, &arena);
  int32_t first = ITERATIONS;
  for (int32_t i = 0; i < ITERATIONS; i++) {
    hec_lower_iteration(low, i, &loads[i], 1, 1);
    if (first == ITERATIONS && strstr(hec_lowering_note(low), "as "))
      first = i;
  }
  return first;
}

/* Pairs are looked for after two iterations. They are followed when the host has had the time that planning takes. */
HEC_TEST(follows_when_the_host_is_done) {
  HEC_SCOPED(hec_arena) arena = {0};
  uint64_t seed = 7;
  hec_problem *p = hec_test_problem(&arena, clusters[3], RANKS, LAYERS, EXPERTS, 2, true);
  hec_cluster *cluster = HEC_NEW(&arena, hec_cluster, 1);
  *cluster = *p->cluster;
  p->cluster = cluster;
  p->pricer = hec_law_pricer(&hec_law_alpha_beta);
  hec_load loads[ITERATIONS];
  for (int32_t i = 0; i < ITERATIONS; i++) {
    loads[i] = hec_load_new(&arena, LAYERS, RANKS, EXPERTS);
    fill(&loads[i], p, 1, &seed);
  }
  cluster->plan_a_s = cluster->plan_b_s = 0;
  ck_assert_int_eq(first_followed(p, loads), 2);
  cluster->plan_a_s = 1e-6; /* any part of an iteration: the next one is on its way */
  ck_assert_int_eq(first_followed(p, loads), 3);
  cluster->plan_b_s = 1e-9; /* all in all some tens of these short iterations */
  ck_assert_int_eq(first_followed(p, loads), ITERATIONS);
}

/* Fewer experts than ranks: what keeps an expert is on one node, so that no gradients are reduced between nodes. Expert-parallel
 * groups, one a node here, would each have a holder. */
HEC_TEST(residents_stay_on_a_node) {
  enum { FEW = RANKS / 2 };
  HEC_SCOPED(hec_arena) arena = {0};
  uint64_t seed = 7;
  hec_policy alone = *hec_policy_find("joint");
  alone.portfolio = 0;
  hec_problem *p =
      hec_test_problem(&arena, "2x4 nvlink=300G@2us nic=1G@5us flops=312T mem=40G", RANKS, LAYERS, FEW, 2, true);
  p->ep = FEW;
  p->bytes.expert_grad *= 16; /* gradients are what costs */
  hec_load load = hec_load_new(&arena, LAYERS, RANKS, FEW);
  HEC_OPENED(hec_lowering) *low = hec_lowering_new(p, &alone, hec_schedule_find("joint"), NULL, &arena);
  for (int32_t i = 0; i < 4; i++) {
    fill(&load, p, 0, &seed);
    hec_lower_iteration(low, i, &load, 1, 1);
  }
  const hec_plan *plan = &hec_lowering_run(low)->plan;
  for (int32_t l = 0; l < LAYERS; l++)
    for (int32_t e = 0; e < FEW; e++) {
      hec_copies copies = hec_plan_copies(plan, l, e);
      int32_t node = hec_problem_node(p, hec_plan_home(plan, l, e));
      for (int32_t i = 0; i < copies.n; i++)
        if (copies.kind[i] == HEC_COPY_RESIDENT)
          ck_assert_int_eq(hec_problem_node(p, copies.rank[i]), node);
    }
}

/* Homes are placed once a period, so that is no part of an ordinary iteration, however long it takes. Copies before the gate are
 * chosen again only where the loads have changed: the fifth iteration's are seen by the sixth. */
HEC_TEST(placing_is_charged_once) {
  HEC_SCOPED(hec_arena) arena = {0};
  uint64_t seed = 7;
  hec_policy alone = *hec_policy_find("joint");
  alone.portfolio = 0;
  hec_problem *p = hec_test_problem(&arena, clusters[0], RANKS, LAYERS, EXPERTS, 2, true);
  hec_load load = hec_load_new(&arena, LAYERS, RANKS, EXPERTS);
  HEC_OPENED(hec_lowering) *low = hec_lowering_new(p, &alone, hec_schedule_find("joint"), NULL, &arena);
  uint64_t once = 0, ordinary[6] = {0};
  for (int32_t i = 0; i < 6; i++) {
    fill(&load, p, i < 4 ? 3 : 0, &seed);
    hec_lower_iteration(low, i, &load, 1, 1);
    const hec_program *program = hec_lowering_program(low);
    for (size_t k = 0; k < program->n_ops; k++)
      if (program->ops[k].kind == HEC_OP_PLAN && program->ops[k].layer < 0)
        *(program->ops[k].one_off ? &once : &ordinary[i]) += program->ops[k].plan.units;
    ck_assert_int_eq(hec_lowering_one_off(low), i == 2); /* loads of two iterations are known */
  }
  ck_assert_uint_gt(once, 2 * ordinary[2]);
  ck_assert_uint_lt(ordinary[2], 2 * ordinary[1]);
  ck_assert_uint_lt(10 * ordinary[3], ordinary[2]);
  ck_assert_uint_lt(10 * ordinary[4], ordinary[5]);
}

/* One hot expert in each layer, each time another one: what seemed fastest on one record was lucky with it. */
HEC_TEST(keeps_up_with_changing_loads) {
  for (uint64_t seed = 1; seed <= 2; seed++) {
    HEC_SCOPED(hec_arena) arena = {0};
    uint64_t random = seed;
    hec_problem *p = hec_test_problem(&arena, clusters[3], RANKS, LAYERS, EXPERTS, 2, true);
    p->pricer = hec_law_pricer(&hec_law_alpha_beta);
    hec_load loads[ITERATIONS];
    for (int32_t i = 0; i < ITERATIONS; i++) {
      loads[i] = hec_load_new(&arena, LAYERS, RANKS, EXPERTS);
      for (int32_t l = 0; l < LAYERS; l++) {
        int32_t hot = (int32_t)(hec_test_random(&random) % EXPERTS);
        uint32_t all = (uint32_t)(p->tokens * p->top_k);
        uint32_t each = all / EXPERTS / (1 + (uint32_t)(hec_test_random(&random) % 16));
        for (int32_t r = 0; r < RANKS; r++)
          for (int32_t e = 0; e < EXPERTS; e++)
            hec_load_row(&loads[i], l, r)[e] = each + (e == hot ? all - each * EXPERTS : 0);
      }
    }
    double best = 0, s = run(p, &hec_law_alpha_beta, loads, hec_policy_find("joint"), "joint");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
      double one = run_pair(p, &hec_law_alpha_beta, loads, i);
      best = i == 0 || one < best ? one : best;
    }
    ck_assert_msg(s <= best, "seed %d: joint %.6g s, best pair %.6g s", (int)seed, s, best);
  }
}
