/* What `recommend` may spend, in seconds of one core. Work is counted and no clock is read, so that the same input gives the same
 * answer. Each step may take its share of what is left then. What it leaves is there for the next ones. */
#pragma once
#include "models/training/step.h"

typedef struct {
  double left_s;
} hec_budget;

/* In this order: */
typedef enum {
  HEC_BUDGET_ESTIMATES, /* of all layouts, under loads of a few records */
  HEC_BUDGET_CLASS,     /* of the estimates' part: all policies of one class of layouts */
  HEC_BUDGET_TODAY,     /* every policy of what runs today */
  HEC_BUDGET_MORE,      /* layouts beyond the nearest, with all records; how many there are, for they are rows then */
  HEC_BUDGET_ROWS,      /* records of all layouts that are chosen: the rest */
  HEC_N_BUDGET_USES
} hec_budget_use;

/* Of the time that the user gives; balanced routing and what is not counted have a part of it. */
hec_budget hec_budget_of(double within_s);
double hec_budget_for(const hec_budget *budget, hec_budget_use use);
void hec_budget_spend(hec_budget *budget, double s);

/* ---- What work costs ---- */

/* Planning so many records of so many layers with so many policies. */
double hec_planning_s(const hec_training *training, int32_t n_layers, int32_t n_policies, int32_t records);
/* Of pricing so many layers: times micro-batches and policies. */
double hec_pricing_s(double layers);

/* A simulation of a layout plans so many records before those of the step. */
enum { HEC_BUDGET_BEFORE = 5 };
/* So many records of a step, at least `min`, fit into the time; 0: as many as any step takes. one_s: planning one of them, of all
 * layouts together. */
int32_t hec_budget_records(double within_s, double one_s, int32_t min);
