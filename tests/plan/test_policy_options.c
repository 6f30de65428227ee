/* Options of policies, whatever rows there are: what a row lists is in order; its defaults are what the row does anyway.
 * Every option changes what is planned; an option of the row goes before the one of the problem. */
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

enum { ITERATIONS = 14, LAYERS = 3, EXPERTS = 16 };

static hec_problem *problem_of(bool large) {
  hec_problem *p = hec_test_problem(&arena, "2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 8, LAYERS,
                                    large ? 4 * EXPERTS : EXPERTS, 2, true);
  p->tokens = 4096;
  return p;
}

static uint64_t mix(uint64_t digest, uint64_t value) {
  return (digest ^ value) * UINT64_C(0x9e3779b97f4a7c15) + (digest >> 29);
}

/* Skewed, and another expert hot every few iterations. */
static void fill(hec_load *load, int64_t iter, uint64_t *seed) {
  for (int32_t l = 0; l < load->n_layers; l++)
    for (int32_t s = 0; s < load->n_sources; s++)
      for (int32_t e = 0; e < load->n_experts; e++) {
        bool hot = (e + l + iter / 3) % 5 == 0;
        hec_load_row(load, l, s)[e] = (uint32_t)((hot ? 900 : 60) + hec_test_below(seed, hot ? 900 : 60));
      }
}

/* Everything that a policy decides over some iterations; steady: of the same load. */
static uint64_t play_under(const hec_policy *policy, const hec_problem *problem, bool steady) {
  uint64_t digest = 1, seed = 77;
  hec_arena_mark mark = hec_arena_save(&arena);
  hec_load load = hec_load_new(&arena, problem->n_layers, problem->n_ranks, problem->n_experts);
  hec_policy_run run = hec_policy_start(policy, problem, &arena);
  for (int64_t iter = 0; iter < ITERATIONS; iter++) {
    seed = steady ? 77 : seed;
    fill(&load, steady ? 0 : iter, &seed);
    hec_policy_decide(&run, iter, 0);
    digest = mix(mix(mix(digest, hec_plan_digest(&run.plan)), run.units), (uint64_t)run.plan.slots);
    hec_policy_rewrite(&run, &load);
    for (int32_t l = 0; l < problem->n_layers; l++) {
      hec_policy_refine(&run, l, &load);
      digest = mix(mix(digest, hec_plan_digest(&run.plan)), run.units);
    }
    hec_policy_observe(&run, &load);
    digest = mix(digest, run.n_dropped);
  }
  hec_policy_stop(&run);
  hec_arena_rewind(&arena, mark);
  return digest;
}

static uint64_t play(const hec_policy *policy, const hec_problem *problem) {
  return play_under(policy, problem, false);
}

static const hec_policy *read_policy(const char *text) {
  const hec_policy *policy = NULL;
  ck_assert_msg(hec_policy_read(text, NULL, "--policy", &arena, &policy) == HEC_OK, "%s", hec_last_error());
  return policy;
}

static const hec_policy *with(const hec_policy *row, const hec_option *option, double value) {
  char text[160];
  (void)snprintf(text, sizeof text, "%s:%s=%.15g", row->name, option->name, value);
  return read_policy(text);
}

HEC_TEST(rows_say_what_their_options_are) {
  int n = 0;
  for (size_t i = 0; hec_policies[i]; i++)
    for (const hec_option *o = hec_policies[i]->options; o && o->name; o++, n++) {
      const char *row = hec_policies[i]->name;
      const void *field = (const char *)hec_policies[i] + o->at;
      double value = o->type == HEC_OPTION_INT ? *(const int32_t *)field : *(const double *)field;
      ck_assert_msg(o->help && o->min < o->max && o->at < sizeof(hec_policy), "%s: %s", row, o->name);
      ck_assert_msg(o->initial || (value >= o->min && value <= o->max), "%s: %s: default %g", row, o->name, value);
      for (const hec_option *other = hec_policies[i]->options; other < o; other++)
        ck_assert_msg(strcmp(other->name, o->name) != 0 && other->at != o->at, "%s: %s twice", row, o->name);
      ck_assert_int_lt(o - hec_policies[i]->options, HEC_OPTIONS_MAX);
    }
  ck_assert_int_gt(n, 40);
}

/* Said or not, a default is the same. */
HEC_TEST(defaults_are_what_the_row_does) {
  const hec_problem *problem = problem_of(false);
  for (size_t i = 0; hec_policies[i]; i++)
    for (const hec_option *o = hec_policies[i]->options; o && o->name; o++) {
      const void *field = (const char *)hec_policies[i] + o->at;
      double value = o->type == HEC_OPTION_INT ? *(const int32_t *)field : *(const double *)field;
      if (o->initial)
        continue;
      const hec_policy *said = with(hec_policies[i], o, value);
      ck_assert(said != hec_policies[i] && said->given != 0);
      ck_assert_msg(play(said, problem) == play(hec_policies[i], problem), "%s", said->name);
    }
}

/* Some value of it changes what is planned, or how long that takes, on one of the problems. */
HEC_TEST(every_option_has_an_effect) {
  static const double values[] = {0, 1, 2, 3, 5, 20, 40, 0.5, 1.5, 300, 20000, 1e6};
  for (size_t i = 0; hec_policies[i]; i++)
    for (const hec_option *o = hec_policies[i]->options; o && o->name; o++) {
      /* What lowerings do: tests/sim/test_portfolio.c, tests/program/test_lowering.c. */
      if (o->at == offsetof(hec_policy, portfolio) ||
          strcmp(o->name, "lane") == 0) /* it needs a head's gradients, which these models have not */
        continue;
      bool changes = false;
      for (int way = 0; way < 3 && !changes; way++) { /* few experts, many, and many decisions on a steady load */
        hec_problem *problem = problem_of(way == 1);
        bool steady = way == 2;
        problem->period = strcmp(o->name, "period") == 0 ? HEC_AUTO : steady ? 1 : 3; /* windows show in the second */
        uint64_t before = play_under(hec_policies[i], problem, steady);
        for (size_t k = 0; k < sizeof values / sizeof *values && !changes; k++)
          if (values[k] >= o->min && values[k] <= o->max && (o->type == HEC_OPTION_REAL || values[k] != 0.5) &&
              (o->type == HEC_OPTION_REAL || values[k] != 1.5)) {
            const hec_policy *policy = with(hec_policies[i], o, values[k]);
            changes = hec_policy_suits(policy, problem) == HEC_OK && play_under(policy, problem, steady) != before;
          }
      }
      ck_assert_msg(changes, "%s: %s changes nothing", hec_policies[i]->name, o->name);
    }
}

static const struct {
  const char *field, *row, *with; /* the problem's option and its value 2, a row, the row with another value */
  size_t at;
  int32_t value, own;
} wishes[] = {
    {"slots", "eplb", "eplb:slots=5", offsetof(hec_problem, slots), 3, 5},
    {"slots", "flexmoe", "flexmoe:slots=4", offsetof(hec_problem, slots), 3, 4},
    {"slots", "laer", "laer:slots=6", offsetof(hec_problem, slots), 3, 6},
    {"t", "hecate", "hecate:t=1", offsetof(hec_problem, t), 5, 1},
    {"t", "hecate", "hecate:t=paper", offsetof(hec_problem, t), 5, HEC_T_PAPER},
    {"m", "hecate", "hecate:m=1", offsetof(hec_problem, m), 4, 1},
    {"m", "prophet", "prophet:m=1", offsetof(hec_problem, m), 4, 1},
};

/* A row with a clock says so, and it is one clock: of the row, and of the problem for all rows. */
HEC_TEST(period_of_the_row_is_that_of_the_problem) {
  int n = 0;
  for (size_t i = 0; hec_policies[i]; i++) {
    const hec_policy *row = hec_policies[i];
    const hec_option *o = row->options;
    while (o && o->name && strcmp(o->name, "period") != 0)
      o++;
    ck_assert_msg((o && o->name) == (row->period > 0), "%s", row->name);
    for (int32_t period = 1; row->period > 0 && period <= 4; period += 3, n++) {
      hec_problem *problem = problem_of(false), other = *problem;
      const hec_policy *said = with(row, o, period);
      other.period = period;
      problem->period = 3; /* the row's goes before it */
      ck_assert_msg(play(said, problem) == play(row, &other), "%s", said->name);
    }
  }
  ck_assert_int_gt(n, 20);
}

HEC_TEST(row_goes_before_problem) {
  for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
    hec_problem *problem = problem_of(false), other = *problem;
    *(int32_t *)(void *)((char *)problem + wishes[i].at) = wishes[i].value;
    *(int32_t *)(void *)((char *)&other + wishes[i].at) = wishes[i].own;
    const hec_policy *row = hec_policy_find(wishes[i].row), *with_it = read_policy(wishes[i].with);
    ck_assert_msg(play(with_it, problem) == play(row, &other), "%s", wishes[i].with);
    ck_assert_msg(play(row, problem) != play(row, &other), "%s: %s", wishes[i].row, wishes[i].field);
    ck_assert_str_eq(with_it->name, wishes[i].with);
  }
}

/* Another way to say how many slots there are goes before the problem's, too; of one row `slots` decides. */
HEC_TEST(slots_by_another_option) {
  hec_problem *plain = problem_of(false), wide = *plain;
  wide.slots = 6;
  ck_assert(play(read_policy("eplb:redundant=3"), &wide) == play(read_policy("eplb:slots=5"), plain));
  ck_assert(play(read_policy("echo:guests=1"), &wide) == play(read_policy("echo:guests=1"), plain));
  ck_assert(play(hec_policy_find("echo"), &wide) == play(read_policy("echo:guests=4"), plain));
  ck_assert(play(read_policy("symi:replicas=2"), &wide) == play(read_policy("symi:slots=4"), plain));
  ck_assert(play(read_policy("eplb:redundant=3,slots=4"), plain) == play(read_policy("eplb:slots=4"), plain));
}

/* Every expert-parallel group plans with the options. */
HEC_TEST(groups_have_the_options) {
  hec_problem *p =
      hec_test_problem(&arena, "2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 8, LAYERS, EXPERTS, 2, true);
  ck_assert_int_eq(hec_problem_group(p, 4), HEC_OK);
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(read_policy("hecate:m=1,t=3"), p, &arena);
  ck_assert(run.m[0] == 1);
  ck_assert(play(read_policy("llep:min=100"), p) != play(hec_policy_find("llep"), p));
}

HEC_TEST(names_and_errors) {
  const hec_policy *policy = NULL;
  ck_assert_ptr_eq(read_policy("llep"), hec_policy_find("llep"));
  ck_assert_str_eq(read_policy("llep:min=512,cap=1.50")->name, "llep:cap=1.5,min=512");
  ck_assert_int_eq(hec_policy_read("llepp:cap=1", NULL, "--policy", &arena, &policy), HEC_BAD_INPUT);
  ck_assert_msg(strstr(hec_last_error(), "found \"llepp\"") != NULL, "%s", hec_last_error());
  ck_assert_int_eq(hec_policy_read("ep:cap=1", NULL, "policy", &arena, &policy), HEC_BAD_INPUT);
  ck_assert_str_eq(hec_last_error(), "policy ep: expected nothing after the name, found \"cap=1\"");
  ck_assert_int_eq(hec_policy_read("llep:", NULL, "policy", &arena, &policy), HEC_BAD_INPUT);
  ck_assert_ptr_null(policy);
  const hec_problem *problem = problem_of(false);
  ck_assert_int_eq(hec_policy_suits(read_policy("eplb:slots=1"), problem), HEC_BAD_INPUT);
  ck_assert_msg(strstr(hec_last_error(), "eplb:slots=1: slots: expected at least 2") != NULL, "%s", hec_last_error());
  ck_assert_int_eq(hec_policy_suits(read_policy("eplb:slots=2"), problem), HEC_OK);
}
