/* Shares and rates: see budget.h. */
#include "tools/front/training/budget.h"

#include "sim/training_loads.h"

static const double counted = 0.65; /* of the time */
static const double shares[HEC_N_BUDGET_USES] = {[HEC_BUDGET_ESTIMATES] = 0.3,
                                                 [HEC_BUDGET_CLASS] = 0.125,
                                                 [HEC_BUDGET_TODAY] = 0.125,
                                                 [HEC_BUDGET_MORE] = 0.3,
                                                 [HEC_BUDGET_ROWS] = 1};

/* One core plans so many policies x records x layers x ranks x experts a second, and prices so many layers and pieces. Over all
 * policies it is 110 million (DeepSeek-R1's loads, 8 to 256 ranks); those that are kept plan longer than the mean. */
static const double planned_per_s = 7e7, priced_per_s = 4e5;

hec_budget hec_budget_of(double within_s) {
  return (hec_budget){counted * within_s};
}

double hec_budget_for(const hec_budget *budget, hec_budget_use use) {
  return shares[use] * budget->left_s;
}

void hec_budget_spend(hec_budget *budget, double s) {
  budget->left_s = s < budget->left_s ? budget->left_s - s : 0;
}

double hec_planning_s(const hec_training *t, int32_t n_layers, int32_t n_policies, int32_t records) {
  return (double)(t->layout.ep * t->layout.etp) * (double)t->moe->n_experts * (double)n_layers * (double)n_policies *
         (double)records / planned_per_s;
}

double hec_pricing_s(double layers) {
  return layers / priced_per_s;
}

int32_t hec_budget_records(double within_s, double one_s, int32_t min) {
  double records = within_s / one_s - HEC_BUDGET_BEFORE;
  return records >= HEC_TRAINING_RECORDS ? 0 : records > min ? (int32_t)records : min;
}
