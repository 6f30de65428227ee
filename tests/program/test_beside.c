/* Lowerings of one policy under all schedules, lowered together, each make the program that they make alone: its digest has
 * everything that an interpreter reads. What a row's paper excludes is no candidate for its best. */
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

typedef struct {
  const hec_test_case *c;
  const hec_policy *policy;
  int32_t n;
  const hec_schedule *schedules[HEC_SCHEDULES_MAX];
  hec_lowering *together[HEC_SCHEDULES_MAX], *alone[HEC_SCHEDULES_MAX];
} pairs;

static void check_iteration(const pairs *p, int32_t iteration) {
  const hec_test_case *c = p->c;
  const hec_load *loads = c->loads + (ptrdiff_t)iteration * c->n_micro_batches;
  hec_lower_iterations(p->together, p->n, 10 + iteration, loads, c->n_micro_batches, c->n_micro_batches);
  for (int32_t s = 0; s < p->n; s++) {
    hec_lower_iteration(p->alone[s], 10 + iteration, loads, c->n_micro_batches, c->n_micro_batches);
    ck_assert_msg(hec_program_digest(hec_lowering_program(p->together[s])) ==
                      hec_program_digest(hec_lowering_program(p->alone[s])),
                  "%s under %s, iteration %d: another program beside others", p->policy->name, p->schedules[s]->name,
                  iteration);
    ck_assert_str_eq(hec_lowering_note(p->together[s]), hec_lowering_note(p->alone[s]));
    ck_assert(hec_lowering_one_off(p->together[s]) == hec_lowering_one_off(p->alone[s]));
  }
}

static void check_policy(const hec_test_case *c, const hec_policy *policy) {
  HEC_SCOPED(hec_arena) own = {0};
  pairs p = {.c = c, .policy = policy, .n = hec_schedules_of(policy, &c->problem, p.schedules)};
  for (int32_t s = 0; s < p.n; s++) {
    p.together[s] = s == 0 ? hec_lowering_new(&c->problem, policy, p.schedules[s], c->collective, &own)
                           : hec_lowering_beside(p.together[0], p.schedules[s]);
    p.alone[s] = hec_lowering_new(&c->problem, policy, p.schedules[s], c->collective, &own);
  }
  for (int32_t i = 0; i < c->n_iterations; i++)
    check_iteration(&p, i);
  for (int32_t s = p.n - 1; s >= 0; s--) {
    hec_lowering_free(p.together[s]);
    hec_lowering_free(p.alone[s]);
  }
}

HEC_TEST_LOOP(together_as_alone, 4) {
  uint64_t seed = 700 + (uint64_t)_i;
  for (int32_t n = hec_test_cases(3); n > 0; n--) {
    hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){.ranks_max = 12});
    for (int32_t p = 0; hec_policies[p]; p++)
      if (p % 4 == _i && hec_policy_suits(hec_policies[p], &c->problem) == HEC_OK)
        check_policy(c, hec_policies[p]);
  }
}

HEC_TEST(candidates) {
  const hec_schedule *schedules[HEC_SCHEDULES_MAX];
  hec_problem problem = {.esp = 1};
  int32_t all = hec_schedules_of(hec_policy_find("eplb"), &problem, schedules);
  ck_assert_str_eq(schedules[0]->name, "serial"); /* the published one first */
  ck_assert_int_eq(hec_schedules_of(hec_policy_find("ideal"), &problem, schedules), 1);
  ck_assert_str_eq(schedules[0]->name, "ideal");
  hec_policy some = *hec_policy_find("laer");
  some.excludes = "hecate tutel-improved";
  ck_assert_int_eq(hec_schedules_of(&some, &problem, schedules), all - 2);
  ck_assert_str_eq(schedules[0]->name, "laer");
  bool tutel = false;
  for (int32_t s = 0; s < all - 2; s++) {
    ck_assert_str_ne(schedules[s]->name, "hecate");
    ck_assert_str_ne(schedules[s]->name, "tutel-improved");
    ck_assert_str_ne(schedules[s]->name, "fsmoe-no-iio"); /* without shards the same as fsmoe */
    tutel = tutel || strcmp(schedules[s]->name, "tutel") == 0;
  }
  ck_assert_msg(tutel, "a name excludes another that begins with it");
  problem.esp = 2;
  ck_assert_int_eq(hec_schedules_of(hec_policy_find("ep"), &problem, schedules), all + 1);
}

/* Every name that a row excludes is one. */
HEC_TEST_TABLE(excluded_names, hec_policies) {
  char names[256];
  (void)snprintf(names, sizeof names, "%s", hec_policies[_i]->excludes ? hec_policies[_i]->excludes : "");
  for (char *name = strtok(names, " "); name; name = strtok(NULL, " "))
    ck_assert_msg(hec_schedule_find(name) && strcmp(name, hec_policies[_i]->schedule) != 0, "%s excludes %s",
                  hec_policies[_i]->name, name);
}
