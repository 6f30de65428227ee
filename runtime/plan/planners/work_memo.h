/* Seconds of the experts that a rank computes (hec_work_experts_s), for planners that ask again and again: what so many rows of
 * one expert take is computed once, where the law is a sum over experts. */
#pragma once
#include "models/compute_cost.h"
#include "runtime/plan/problem.h"

typedef struct {
  const hec_cluster *cluster;
  hec_work_shape shape;
  hec_work_rate rate; /* of rank 0 */
  double speed;       /* likewise */
  bool *alike;        /* [n_ranks] has that rate, as long as it has that speed */
  double *seconds;    /* [HEC_WORK_MEMO] of so many rows; 0: not yet computed */
} hec_work_memo;
enum { HEC_WORK_MEMO = 4096 };

hec_work_memo hec_work_memo_new(hec_arena *arena, const hec_problem *problem, hec_work_shape shape);
/* rows[0..n) of n experts, in this order to the last bit. O(n). */
double hec_work_memo_s(hec_work_memo *memo, int32_t rank, const int32_t *rows, int32_t n);

/* Whether all ranks' times are sums over experts. Then they may be added up expert by expert, to the same bits. */
bool hec_work_memo_sums(const hec_work_memo *memo, int32_t n_ranks);
double hec_work_memo_rate_s(hec_work_memo *memo, int32_t rows);
/* One expert of `rows` > 0. Inline: planners ask it for every holder of every expert. */
static inline double hec_work_memo_expert_s(hec_work_memo *memo, int32_t rows) {
  double s = rows < HEC_WORK_MEMO ? memo->seconds[rows] : 0;
  return s > 0 ? s : hec_work_memo_rate_s(memo, rows);
}
