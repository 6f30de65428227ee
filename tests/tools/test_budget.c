/* The budget of `recommend`: no step takes more than is left, what one leaves the next ones have, and records fit into it. */
#include "sim/training_loads.h"
#include "tests/support/test.h"
#include "tools/front/training/budget.h"

/* Each takes all that it may, but for the class, which is a part of the estimates, and further layouts, which are rows. */
HEC_TEST_LOOP(never_more_than_there_is, 2) {
  static const hec_budget_use uses[] = {HEC_BUDGET_ESTIMATES, HEC_BUDGET_TODAY, HEC_BUDGET_ROWS};
  hec_budget b = hec_budget_of(30);
  double all = b.left_s, sum = 0;
  ck_assert(all > 0 && all < 30);
  for (int i = 0; i < 3; i++) {
    double s = hec_budget_for(&b, uses[i]);
    ck_assert(s > 0 && s <= b.left_s);
    ck_assert(uses[i] == HEC_BUDGET_ROWS || s < 0.5 * b.left_s);
    s *= _i == 0 ? 1 : 1.25; /* the last piece of work may be longer than what is left for it */
    hec_budget_spend(&b, s);
    sum += s;
  }
  ck_assert(_i > 0 || (sum > 0.999 * all && sum < 1.001 * all));
  ck_assert(b.left_s >= 0 && b.left_s < 1e-9 * all);
}

HEC_TEST(what_is_left_is_there_for_the_next) {
  hec_budget thrifty = hec_budget_of(30), greedy = thrifty;
  hec_budget_spend(&greedy, hec_budget_for(&greedy, HEC_BUDGET_ESTIMATES));
  for (hec_budget_use use = HEC_BUDGET_TODAY; use < HEC_N_BUDGET_USES; use++)
    ck_assert(hec_budget_for(&thrifty, use) > 1.3 * hec_budget_for(&greedy, use));
}

/* As many as fit, with those before them; at least so many; and none is counted where any step's fit. */
HEC_TEST(records) {
  ck_assert_int_eq(hec_budget_records(2.5, 0.1, 4), 25 - HEC_BUDGET_BEFORE);
  ck_assert_int_eq(hec_budget_records(0.1, 0.1, 4), 4);
  ck_assert_int_eq(hec_budget_records(0, 0.1, 2), 2);
  ck_assert_int_eq(hec_budget_records(1e3, 0.1, 4), 0);
  ck_assert_int_eq(hec_budget_records(0.1 * (HEC_TRAINING_RECORDS + HEC_BUDGET_BEFORE + 0.5), 0.1, 4), 0);
  ck_assert_int_eq(hec_budget_records(0.1 * (HEC_TRAINING_RECORDS + HEC_BUDGET_BEFORE - 0.5), 0.1, 4),
                   HEC_TRAINING_RECORDS - 1);
}
