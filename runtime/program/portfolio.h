/* A policy that keeps up with simple plans: beside its own planner it tries pairs of another row of the table and a
 * schedule. Each iteration follows the one that is predicted to end soonest.
 *
 *   iterations 1, 2         its own planner; their loads are kept
 *   after 2, 4, 16, 64 ..   every pair is lowered on the last two iterations, as if it had run, and walked on the second
 *                           (walk.h): the time that the law `alpha_beta` gives the iteration, exactly. The fastest that
 *                           fit in memory take the place of those that are not followed
 *   after 3, 4, 5, 7 ..     its own planner and these are walked on the iteration that has just been. The fastest by
 *                           the mean, newer iterations counting more, is followed from the next one on. It must save
 *                           in a part of a period more than what must move costs
 *
 * They are compared at least every period, and after the next iteration where what is followed takes 1 % longer than
 * expected.
 *
 * Guarantee. On the iterations that it looks at, what it follows is predicted to end no later than any pair. There are
 * three exceptions: the dead zone, the cost of moving, and pairs that were not among the fastest when all were tried.
 * Nothing is guaranteed of loads that change faster. Nor of networks that are not as the closed form has them, nor of
 * memory beyond what those iterations took.
 *
 * Pairs are rows and schedules that say `tried`, and each of these rows under the policy's own schedule. Their
 * copies may travel in parts (collectives/parts.c). Known are past loads and the cost laws. Comparing is not
 * charged: a system can do it on the host beside the iterations. Ours does not yet: every rank compares between two
 * iterations (hec_lower_end), and hecate-run waits for it. All compare alike. */
#ifndef HEC_PROGRAM_PORTFOLIO_H
#define HEC_PROGRAM_PORTFOLIO_H
#include "runtime/program/emit.h"

typedef struct hec_portfolio hec_portfolio;

/* Layers x ranks^2 up to which pairs are tried. Lowering them all takes time in that proportion: 45 s for 58 layers on 64
 * ranks (237,568), and an answer should take half a minute. */
enum { HEC_PORTFOLIO_SIZE_MAX = 1 << 17 };
bool hec_portfolio_affordable(const hec_problem *problem);

/* For a new lowering whose policy has one (policy.h, `portfolio`). From then on it stands for what it follows. */
void hec_portfolio_start(hec_lowering *low);
void hec_portfolio_free(hec_lowering *low); /* afterwards the lowering is its own planner's, still to be freed */

void hec_portfolio_begin(hec_lowering *low, int64_t iter,
                         int32_t n_micro_batches);                   /* may follow another from here on */
void hec_portfolio_observe(hec_lowering *low, const hec_load *load); /* after a micro-batch */
void hec_portfolio_end(hec_lowering *low);                           /* the program is complete */
void hec_portfolio_stop(hec_lowering *low);                          /* from now on it stays with what it follows */

#endif
