/* A policy that keeps up with simple plans: beside its own planner it tries pairs of another row of the table and a
 * schedule. Each iteration follows the one that is predicted to end soonest.
 *
 *   iterations 1, 2         its own planner; their loads are kept
 *   after 2, 8, 32, 128 ..  look: every pair is lowered on the last two iterations, as if it had run, and the second is
 *                           priced. The fastest that fit in memory take the place of those that are not followed. They are
 *                           priced on the first as well, as if it came after the second
 *   after 3, 4, 6, 10 ..    comparison: its own planner and these are priced on the iteration that has just been. The
 *                           fastest by the mean, newer iterations counting more, is followed, if what it saves in a part
 *                           of a period pays for what must move
 *
 * They are compared at least every period, and where what is followed takes 1 % longer than expected. Where it takes 10 %
 * longer, the loads are not those of before. Then a row is followed that sees the loads, if it seems faster, before all are
 * compared.
 *
 * Of many pairs the fastest on a few records was lucky with them. So half of how far a pair's prices rise is added to their
 * mean. Rows whose placements last learn: where their price falls, the newest counts most.
 *
 * Prices are the interpreter's own (lower.h, hec_pricer): the law, and what communication takes of a device.
 *
 * A look or comparison is the host's work beside the iterations. It takes the planning time of so many programs, and its
 * result is followed from the first iteration that begins later. One is made at a time. What was missed meanwhile is made
 * good from the last records. A helper does the work (lower.h), and the iteration of the result waits for it; without one it
 * is done then.
 *
 * Whole experts or slices is decided once, before the first iteration: executors keep experts as they began with them.
 * Slices need less memory where experts do not divide evenly over the ranks. So they are tried where memory is short, on
 * loads that are only expected, and taken if nothing else fits or they are faster by 5 %. Then all pairs are of rows with
 * slices, and its own planner stands by.
 *
 * Guarantee. On the iterations that it looks at, what it follows is predicted to end no later than any pair of its
 * sharding. There are four exceptions: the dead zone, the cost of moving, prices that rose, and pairs that were not among the
 * fastest when all were tried. Nothing is guaranteed of loads that change faster than a comparison takes. Nor of networks that are not
 * as the law has them, nor of memory beyond what those iterations took.
 *
 * Pairs are rows and schedules that say `tried`, and each of these rows under the policy's own schedule. And its own planner
 * with one part the other way (policy.h, `varies`). Their copies may travel in parts (collectives/parts.c). Known are past loads
 * and the laws. All ranks compare alike. */
#pragma once
#include "runtime/plan/problem.h"
#include "runtime/program/emit.h"

typedef struct hec_portfolio hec_portfolio;

/* Layers x ranks^2 up to which all pairs are tried. Lowering them takes time in that proportion: 45 s for 58 layers on 64
 * ranks (237,568), and an answer should take half a minute. Of larger jobs, up to the second, only rows that use no load. */
enum { HEC_PORTFOLIO_SIZE_MAX = 1 << 17, HEC_PORTFOLIO_STATIC_MAX = 1 << 20 };
static inline int64_t hec_portfolio_size(const hec_problem *problem) {
  return (int64_t)problem->n_layers * problem->n_ranks * problem->n_ranks;
}

/* For a new lowering whose policy has one (policy.h, `portfolio`) and whose problem has a pricer. From then on it stands for
 * what it follows. */
void hec_portfolio_start(hec_lowering *low);
void hec_portfolio_help(hec_lowering *low, const hec_helper *helper);
void hec_portfolio_free(hec_lowering *low); /* afterwards the lowering is its own planner's, still to be freed */

void hec_portfolio_begin(hec_lowering *low, int64_t iter,
                         int32_t n_micro_batches);                   /* may follow another from here on */
void hec_portfolio_observe(hec_lowering *low, const hec_load *load); /* after a micro-batch */
void hec_portfolio_end(hec_lowering *low);                           /* the program is complete */
void hec_portfolio_stop(hec_lowering *low);                          /* from now on it stays with what it follows */
