/* FSMoE's degree as its paper finds it: SLSQP over real degrees in each case, rounded as its artifact rounds. For
 * comparison with runtime/plan/planners/fsmoe.h, which evaluates the four degrees. Needs validate/nlopt/slsqp.h. */
#pragma once
#include "runtime/plan/planners/fsmoe.h"

typedef struct {
  bool found;                    /* some case was feasible; else nothing below */
  double real_degree, real_time; /* the best real optimum of a feasible case */
  bool rounded;                  /* some rounded degree kept its case's limits; else not the choice */
  hec_fsmoe_choice choice;       /* its time: that of the case that applies, whichever the solver was in */
} hec_fsmoe_solved;

/* Solves the layer with `reduce` time of gradients in it. hec_slsqp_version() may not be NULL. */
hec_fsmoe_solved hec_fsmoe_slsqp(const hec_fsmoe_layer *layer, double reduce, int32_t degree_max);

/* Enumeration and SLSQP on one layer after the other: layers, directions, gradients. */
typedef struct {
  int32_t n;          /* problems */
  int32_t same;       /* the same degree */
  int32_t as_good;    /* or another of the same time, to 1e-9 */
  int32_t worse;      /* slower by more */
  int32_t unanswered; /* no rounded degree kept its limits */
  double worst, mean; /* time by SLSQP over that by enumeration, less 1; mean over those with an answer */
  double rounding_worst, rounding_mean; /* enumeration's time over the real optimum's, less 1: what whole powers cost */
} hec_fsmoe_comparison;
void hec_fsmoe_compare(hec_fsmoe_comparison *sum, const hec_fsmoe_choice *enumerated, const hec_fsmoe_solved *solved);
