/* Robust non-negative least squares, what both fits of fit.h come down to. */
#pragma once
#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stdint.h>

enum { HEC_FIT_KNOTS_MAX = 32, HEC_FIT_COLUMNS_MAX = HEC_FIT_KNOTS_MAX + 1 };

/* How the residuals were weighed. With fewer than two observations per coefficient no majority tells a stall from work:
 * plain least squares. Where the bisquare iteration does not settle, Huber's (convex); where that does not, least
 * squares. */
typedef enum { HEC_FIT_BISQUARE, HEC_FIT_HUBER, HEC_FIT_LEAST_SQUARES } hec_fit_how;

typedef struct {
  double c[HEC_FIT_COLUMNS_MAX]; /* >= 0 */
  double *weight;                /* [n] 0..1 of the last iteration, on the arena */
  hec_fit_how how;
} hec_fit_solution;

/* c >= 0 such that rows [n][p] times c is 1 in every row, as nearly as can be. No entry is negative, every column
 * has one above zero, none depends on the others. */
hec_status hec_fit_solve(const double *rows, int32_t n, int32_t p, hec_arena *arena,
                         hec_fit_solution *solution) HEC_MUST_USE;

/* The first column of rows [n][p] that is zero or that those before it explain up to a hundredth of its norm. Rows are
 * weighed by weight [n] (NULL: 1). -1 when there is none. */
int32_t hec_fit_dependent_column(const double *rows, const double *weight, int32_t n, int32_t p);

/* Median and 90 % quantile of |rows times c - 1|. */
void hec_fit_residuals(const double *rows, const double *c, int32_t n, int32_t p, hec_arena *arena, double *median,
                       double *p90);
