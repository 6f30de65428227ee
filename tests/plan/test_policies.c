/* What must hold for every row of the policy table, on random problems; a new row is tested without touching this file.
 *   valid plans at every stage; every assignment computed exactly once, on a holder; same input, same plans;
 *   nothing allocated while deciding; a change that must migrate raises the version, nothing else does */
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

enum { ITERATIONS = 4, ROUNDS = 7 };

static void allocation_while_planning(size_t bytes, void *context) {
  const char *const *name = context;
  fprintf(stderr, "policy %s allocates %zu bytes while planning\n", *name, bytes);
  abort();
}

/* Decides and refines with every allocation armed to fail. */
static void plan_once(hec_policy_run *run, int64_t iter, int32_t micro_batch, hec_load *load) {
  const char *name = run->policy->name;
  hec_set_no_memory_handler(allocation_while_planning, &name);
  hec_fail_allocation(1);
  hec_policy_decide(run, iter, micro_batch);
  hec_plan_check(&run->plan);
  if (run->policy->rewrite)
    hec_policy_rewrite(run, load);
  for (int32_t layer = 0; layer < run->problem->n_layers; layer++)
    hec_policy_refine(run, layer, load);
  hec_fail_allocation(0);
  hec_set_no_memory_handler(NULL, NULL);
  hec_plan_check(&run->plan);
}

/* Every part on a holder, every assignment once. */
static void check_routing(const hec_policy_run *run, hec_routing *routing, const hec_load *load, int32_t *ranks,
                          uint32_t *tokens) {
  const hec_problem *p = run->problem;
  const hec_dispatch *rule = run->policy->dispatch;
  for (int32_t layer = 0; layer < p->n_layers; layer++) {
    uint64_t all = 0;
    for (int32_t s = 0; s < p->n_ranks; s++)
      for (int32_t e = 0; e < p->n_experts; e++) {
        uint64_t sum = 0;
        int32_t parts = hec_routing_split(routing, rule, p, &run->plan, load, layer, s, e, ranks, tokens);
        for (int32_t k = 0; k < parts; k++) {
          ck_assert(hec_plan_holds(&run->plan, layer, e, ranks[k]));
          sum += tokens[k];
        }
        ck_assert_msg(sum == hec_load_row(load, layer, s)[e], "%s: an assignment lost", run->policy->name);
        all += sum;
      }
    hec_routing_make(routing, rule, p, &run->plan, load, layer);
    for (int32_t r = 0; r < p->n_ranks; r++)
      all -= routing->rank_tokens[r];
    ck_assert_uint_eq(all, 0);
    ck_assert(hec_routing_overload(routing) >= 1.0 - 1e-12);
  }
}

/* Slots per rank and layer that the row says it fills. */
static int32_t slots_of(const hec_policy *policy, const hec_problem *p) {
  int32_t slots = (p->n_experts + p->ep - 1) / p->ep * policy->fills.shares + policy->fills.more;
  return policy->fills.any || slots > p->n_experts ? p->n_experts : slots;
}

static void check_slots(const hec_policy_run *run) {
  const hec_problem *p = run->problem;
  int32_t slots = slots_of(run->policy, p);
  for (int32_t layer = 0; layer < p->n_layers; layer++)
    for (int32_t r = 0; r < p->n_ranks; r++) {
      int32_t used = 0;
      for (int32_t e = 0; e < p->n_experts; e++) {
        hec_copies copies = hec_plan_copies(&run->plan, layer, e);
        used += run->plan.n_slices == 1 && hec_plan_home(&run->plan, layer, e) == r;
        for (int32_t i = 0; i < copies.n; i++)
          used += copies.rank[i] == r;
      }
      ck_assert_msg(used <= slots, "%s: %d experts on rank %d, %d slots", run->policy->name, used, r, slots);
    }
}

static bool migrates(const hec_plan *from, const hec_plan *to, const hec_problem *p, int64_t *bytes,
                     hec_transfer_list *list) {
  list->n = 0;
  for (int32_t layer = 0; layer < p->n_layers; layer++)
    hec_plan_migration(from, to, p, layer, bytes, list);
  return list->n > 0;
}

/* A policy on a problem for some iterations of two micro-batches; returns a digest of all its plans. */
static uint64_t drive(const hec_policy *policy, hec_problem *p, uint64_t seed) {
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(policy, p, &arena);
  hec_routing routing = hec_routing_new(&arena, p);
  hec_plan before = hec_plan_new(&arena, p, run.plan.n_slices);
  int32_t *ranks = HEC_NEW(&arena, int32_t, p->n_ranks + run.plan.copy_capacity);
  uint32_t *tokens = HEC_NEW(&arena, uint32_t, p->n_ranks + run.plan.copy_capacity);
  int64_t *bytes = HEC_NEW(&arena, int64_t, (size_t)p->n_ranks * (size_t)p->n_ranks);
  hec_transfer_list list = {0};
  uint64_t digest = 0;
  hec_plan_check(&run.plan);
  for (int64_t iter = 0; iter < ITERATIONS; iter++)
    for (int32_t micro_batch = 0; micro_batch < 2; micro_batch++) {
      hec_load load = hec_test_random_load(&arena, p, &seed);
      hec_plan_assign(&before, &run.plan);
      plan_once(&run, iter, micro_batch, &load);
      check_routing(&run, &routing, &load, ranks, tokens);
      check_slots(&run);
      ck_assert_msg(!migrates(&before, &run.plan, p, bytes, &list) || run.plan.version > before.version,
                    "%s moves state and keeps its version", policy->name);
      ck_assert(policy->known != HEC_KNOWN_STATIC || (run.plan.version == 0 && run.units == 0));
      digest = digest * 31 + hec_plan_digest(&run.plan);
      hec_policy_observe(&run, &load);
    }
  free(list.data);
  return digest;
}

HEC_TEST_LOOP(every_row_on_random_problems, 2) {
  uint64_t seed = 1000 + (uint64_t)_i;
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t again = seed, loads = hec_test_random(&seed);
    for (size_t i = 0; hec_policies[i]; i++) {
      uint64_t shape = again;
      hec_problem *p = hec_test_random_problem(&arena, &shape);
      p->period = round % 3 == 0 ? HEC_AUTO : 1 + round % 3;
      uint64_t first = drive(hec_policies[i], p, loads);
      ck_assert_msg(first == drive(hec_policies[i], p, loads), "%s is not deterministic", hec_policies[i]->name);
      hec_arena_free(&arena);
    }
    (void)hec_test_random(&seed);
  }
}

/* Names are unique and found; every row says what it must. */
HEC_TEST(table) {
  int n = 0;
  for (size_t i = 0; hec_policies[i]; i++, n++) {
    const hec_policy *policy = hec_policies[i];
    ck_assert(policy->name && policy->summary && policy->source && policy->schedule && policy->dispatch &&
              policy->init);
    ck_assert_ptr_eq(hec_policy_find(policy->name), policy);
    ck_assert_ptr_null(strchr(policy->name, '_'));
    ck_assert_msg(policy->fills.any != (policy->fills.shares > 0), "%s: how many slots it fills", policy->name);
    ck_assert(policy->window >= 1 && (policy->known != HEC_KNOWN_PERIODIC || policy->period > 0));
    ck_assert_ptr_eq(hec_dispatch_find(policy->dispatch->name), policy->dispatch);
  }
  ck_assert_int_ge(n, 10);
  ck_assert_ptr_null(hec_policy_find("nobody"));
}

/* What reports call a system that rearranges experts is no reference, no baseline and drops nothing; several do. */
HEC_TEST(rearranging_rows) {
  int n = 0;
  for (size_t i = 0; hec_policies[i]; i++) {
    const hec_policy *p = hec_policies[i];
    ck_assert_msg(!p->rearranges || !(p->reference || p->baseline || p->drops), "%s", p->name);
    n += p->rearranges;
  }
  ck_assert_int_ge(n, 10);
}
