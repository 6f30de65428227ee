/* The paper: minimise the time of each of the four cases over real r >= 1, within the conditions under which it
 * applies. Keep the best. Case 1 holds under four alternative sets of conditions and case 2 under two. So there are
 * eight problems in one variable (runtime/plan/planners/fsmoe.c has the conditions):
 *
 *   1 INTER   Q1 !Q2 Q4 | Q1 Q2 Q5 | !Q1 !Q3 Q6 | !Q1 Q3 Q7     2 COMPUTE  Q1 Q2 !Q5 | !Q1 Q3 !Q7
 *   3 A2A     Q1 !Q2 !Q4                                       4 INTRA    !Q1 !Q3 !Q6
 *
 * with r a_r = r start + volume linear in r, so every side of a condition is  k1 r + k0 + k_1 / r,  and so are the four
 * times: one function with three coefficients serves objective and limits, with its derivative k1 - k_1 / r^2.
 *
 * The artifact then rounds to the powers of two below and above and keeps those that hold their case's conditions within
 * 1e-5. Start of the search: the geometric middle of [1, degree_max] (inferred; neither paper nor reference says). A
 * problem counts as feasible when its conditions hold within 1e-5 at the solution. */
#include "validate/published/fsmoe_slsqp.h"

#include "runtime/base/status.h"
#include "validate/nlopt/slsqp.h"

#include <math.h>

#define TOLERANCE 1e-5

/* k[0] r + k[1] + k[2] / r */
typedef struct {
  double k[3];
} form;

static double value_of(const double *x, double *gradient, const void *context) {
  const double *k = ((const form *)context)->k, r = x[0];
  if (gradient)
    gradient[0] = k[0] - k[2] / (r * r);
  return k[0] * r + k[1] + k[2] / r;
}

static form sum_of(form a, form b, double times) {
  return (form){{a.k[0] + times * b.k[0], a.k[1] + times * b.k[1], a.k[2] + times * b.k[2]}};
}

/* A chunk's time, r of it, and r - 1 of it. */
static form one(hec_fsmoe_op op) {
  return (form){{0, op.start, op.volume}};
}
static form all(hec_fsmoe_op op) {
  return (form){{op.start, op.volume, 0}};
}
static form all_but_one(hec_fsmoe_op op) {
  return sum_of(all(op), one(op), -1);
}

enum { CONDITIONS = 6, PROBLEMS = 8 };

/* Condition i holds where margin[i](r) > 0. */
typedef struct {
  form margin[CONDITIONS], time[5];
} model;

static model model_of(const hec_fsmoe_layer *l, double reduce) {
  const form gradients = {{0, reduce, 0}};
  form inside = sum_of(one(l->gather), one(l->scatter), 1), a = all_but_one(l->a2a), x = all(l->experts);
  form inside_all = sum_of(all(l->gather), all(l->scatter), 1);
  form inside_but_one = sum_of(all_but_one(l->gather), all_but_one(l->scatter), 1);
  form compute = sum_of(sum_of(x, a, -2), inside, 1), ends = sum_of((form){{0}}, one(l->a2a), 2);
  form a2a = sum_of((form){{0}}, all(l->a2a), 2);
  return (model){.margin = {sum_of(one(l->a2a), one(l->gather), -1), sum_of(x, a, -2), sum_of(x, inside_but_one, -1),
                            sum_of(gradients, inside, -1), sum_of(gradients, compute, -1),
                            sum_of(gradients, sum_of(inside_all, a, -2), -1)},
                 .time = {{{0}},
                          sum_of(a2a, gradients, 1),
                          sum_of(sum_of(ends, inside, 1), x, 1),
                          sum_of(a2a, inside, 1),
                          sum_of(ends, inside_all, 1)}};
}

/* Conditions Q1 .. Q6 (Q7 is Q5), numbered from 1; negative: must not hold. */
static const struct {
  hec_fsmoe_case bound;
  int32_t conditions[3];
} problems[PROBLEMS] = {{HEC_FSMOE_INTER, {1, -2, 4}},   {HEC_FSMOE_INTER, {1, 2, 5}},
                        {HEC_FSMOE_INTER, {-1, -3, 6}},  {HEC_FSMOE_INTER, {-1, 3, 5}},
                        {HEC_FSMOE_COMPUTE, {1, 2, -5}}, {HEC_FSMOE_COMPUTE, {-1, 3, -5}},
                        {HEC_FSMOE_A2A, {1, -2, -4}},    {HEC_FSMOE_INTRA, {-1, -3, -6}}};

/* The limits of problem p as forms <= 0. */
static void limits_of(const model *m, int32_t p, form limits[3]) {
  for (int32_t i = 0; i < 3; i++) {
    int32_t q = problems[p].conditions[i];
    limits[i] = sum_of((form){{0}}, m->margin[(q > 0 ? q : -q) - 1], q > 0 ? -1 : 1);
  }
}

static bool holds(const form limits[3], double r) {
  bool all_hold = true;
  for (int32_t i = 0; i < 3; i++)
    all_hold &= value_of(&r, NULL, &limits[i]) <= TOLERANCE;
  return all_hold;
}

static bool solve(const model *m, int32_t p, const form limits[3], double degree_max, double *r) {
  hec_slsqp_problem problem = {.n = 1,
                               .n_limits = 3,
                               .objective = value_of,
                               .context = &m->time[problems[p].bound],
                               .low = {1},
                               .high = {degree_max},
                               .limit_tolerance = 1e-8,
                               .x_tolerance = 1e-8,
                               .evaluations_max = 200};
  for (int32_t i = 0; i < 3; i++) {
    problem.limits[i] = value_of;
    problem.limit_contexts[i] = &limits[i];
  }
  *r = sqrt(degree_max);
  return hec_slsqp_minimise(&problem, r) && holds(limits, *r);
}

hec_fsmoe_solved hec_fsmoe_slsqp(const hec_fsmoe_layer *layer, double reduce, int32_t degree_max) {
  hec_fsmoe_solved found = {0};
  model m = model_of(layer, reduce);
  double min = 0;
  for (int32_t p = 0; p < PROBLEMS; p++) {
    form limits[3];
    double r;
    limits_of(&m, p, limits);
    if (!solve(&m, p, limits, degree_max, &r))
      continue;
    double time = value_of(&r, NULL, &m.time[problems[p].bound]);
    if (!found.found || time < found.real_time) {
      found.real_degree = r;
      found.real_time = time;
    }
    found.found = true;
    int32_t below = 1;
    while (2 * below <= degree_max && 2 * below <= r)
      below *= 2;
    for (int32_t degree = below; degree <= 2 * below && degree <= degree_max; degree *= 2) {
      double whole = degree, rounded = value_of(&whole, NULL, &m.time[problems[p].bound]);
      if (!holds(limits, whole) || (found.rounded && rounded >= min))
        continue;
      found.rounded = true;
      found.choice.degree = degree;
      min = rounded;
    }
  }
  if (found.rounded) {
    found.choice.bound = hec_fsmoe_case_of(layer, found.choice.degree, reduce);
    found.choice.time = hec_fsmoe_case_time(layer, found.choice.degree, reduce, found.choice.bound);
  }
  return found;
}

void hec_fsmoe_compare(hec_fsmoe_comparison *sum, const hec_fsmoe_choice *enumerated, const hec_fsmoe_solved *solved) {
  sum->n++;
  if (!solved->rounded) {
    sum->unanswered++;
    return;
  }
  int32_t answered = sum->n - sum->unanswered;
  double gap = solved->choice.time / enumerated->time - 1, rounding = enumerated->time / solved->real_time - 1;
  bool same = solved->choice.degree == enumerated->degree, even = gap <= 1e-9;
  HEC_ASSERT(gap >= -1e-9);
  sum->same += same;
  sum->as_good += !same && even;
  sum->worse += !same && !even;
  sum->worst = gap > sum->worst ? gap : sum->worst;
  sum->mean += (gap - sum->mean) / answered;
  sum->rounding_worst = rounding > sum->rounding_worst ? rounding : sum->rounding_worst;
  sum->rounding_mean += (rounding - sum->rounding_mean) / answered;
}
