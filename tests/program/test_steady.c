/* Nothing is allocated while a job runs. The growing arrays stop growing. After that, planning, lowering and the walk
 * of every policy under every schedule take no memory, be a decision due or not. Three loads take turns, so that
 * before long whatever a policy does it has done before. Ranks and experts are those that the claim on planning costs
 * is made for; two layers do what twelve do. */
#include "runtime/program/walk.h"
#include "tests/support/problem_case.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <string.h>

enum { RANKS = 32, LAYERS = 2, EXPERTS = 64, WARM = 24, ITERATIONS = 6, LOADS = 3 };

static void allocation(size_t bytes, void *context) {
  fprintf(stderr, "%s allocates %zu bytes\n", (const char *)context, bytes);
  abort();
}

/* A nanosecond for everything: what the walk is told does not matter here. */
static void one_nanosecond(const void *context, const hec_program *program, int32_t op, int64_t *ps) {
  (void)context;
  (void)op;
  for (int32_t r = 0; r < program->n_ranks; r++)
    ps[r] = 1000;
}

typedef struct {
  hec_problem *problem;
  hec_load loads[LOADS];
  hec_timeline timeline;
  int32_t planned, migrated; /* armed iterations in which something was planned, in which something moved */
} job;

/* Iterations of one and of two micro-batches. */
static void run_armed(job *j, const hec_policy *policy, const hec_schedule *schedule) {
  char name[128];
  (void)snprintf(name, sizeof name, "%s under %s", policy->name, schedule->name);
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(j->problem->cluster, &arena);
  HEC_OPENED(hec_walk) *walk = hec_walk_new(&cost, RANKS, &arena);
  HEC_OPENED(hec_lowering) *low = hec_lowering_new(j->problem, policy, schedule, NULL, &arena);
  size_t arena_bytes = arena.used_bytes;
  for (int32_t i = 0; i < WARM + ITERATIONS; i++) {
    if (i == WARM) {
      hec_set_no_memory_handler(allocation, name);
      hec_fail_allocation(1);
    }
    hec_lower_iteration(low, i, &j->loads[i % LOADS], 1, 1 + i % 2);
    hec_walk_run(walk, hec_lowering_program(low), (hec_walk_options){.own = one_nanosecond}, &j->timeline);
    if (i >= WARM) {
      j->planned += hec_lowering_run(low)->planned;
      j->migrated += hec_lowering_migrated(low);
    }
  }
  hec_fail_allocation(0);
  hec_set_no_memory_handler(NULL, NULL);
  ck_assert_msg(arena.used_bytes == arena_bytes, "%s: the job's arena grows", name);
}

HEC_TEST(nothing_allocated) {
  HEC_SCOPED(hec_arena) arena = {0};
  job j = {.problem = hec_test_problem(&arena, "4x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", RANKS, LAYERS,
                                       EXPERTS, 2, true)};
  j.problem->period = 2; /* due in every other iteration, before and after */
  uint64_t seed = 41;
  for (int32_t i = 0; i < LOADS; i++)
    j.loads[i] = hec_test_random_load(&arena, j.problem, &seed);
  for (int32_t p = 0; hec_policies[p]; p++)
    for (int32_t s = 0; hec_schedules[s]; s++) {
      const hec_schedule *schedule;
      if (hec_schedule_of(hec_policies[p], hec_schedules[s]->name, &schedule) == HEC_OK)
        run_armed(&j, hec_policies[p], schedule);
    }
  ck_assert_int_gt(j.planned, 0);
  ck_assert_int_gt(j.migrated, 0);
  hec_timeline_free(&j.timeline);
}
