/* See the header. */
#include "runtime/plan/planners/work_memo.h"

#include <string.h>

/* A GPU's experts share their waves, so they have a time together only. */
static bool is_sum(const hec_device *device, const hec_work_shape *shape, const hec_work_rate *rate) {
  return !device->gpu || rate->curve || shape->exact || shape->dims.part != HEC_WORK_EXPERT;
}

hec_work_memo hec_work_memo_new(hec_arena *arena, const hec_problem *problem, hec_work_shape shape) {
  const hec_device *devices = problem->cluster->devices;
  hec_work_memo memo = {.cluster = problem->cluster,
                        .shape = shape,
                        .rate = hec_work_rate_of(&devices[0], &shape),
                        .speed = devices[0].speed,
                        .alike = HEC_NEW(arena, bool, problem->n_ranks),
                        .seconds = HEC_NEW(arena, double, HEC_WORK_MEMO)};
  for (int32_t r = 0; r < problem->n_ranks; r++) {
    hec_work_rate rate = hec_work_rate_of(&devices[r], &shape);
    memo.alike[r] = is_sum(&devices[r], &shape, &rate) && memcmp(&rate, &memo.rate, sizeof rate) == 0;
  }
  return memo;
}

double hec_work_memo_rate_s(hec_work_memo *memo, int32_t rows) {
  double s = hec_work_rate_s(&memo->rate, rows);
  if (rows > 0 && rows < HEC_WORK_MEMO)
    memo->seconds[rows] = s;
  return s;
}

static bool is_alike(const hec_work_memo *memo, int32_t rank) {
  return memo->alike[rank] && memo->cluster->devices[rank].speed == memo->speed;
}

bool hec_work_memo_sums(const hec_work_memo *memo, int32_t n_ranks) {
  for (int32_t r = 0; r < n_ranks; r++)
    if (!is_alike(memo, r))
      return false;
  return true;
}

double hec_work_memo_s(hec_work_memo *memo, int32_t rank, const int32_t *rows, int32_t n) {
  if (!is_alike(memo, rank))
    return hec_work_experts_s(&memo->cluster->devices[rank], &memo->shape, rows, n, 1);
  double sum = 0;
  for (int32_t i = 0; i < n; i++)
    sum += rows[i] > 0 ? hec_work_memo_expert_s(memo, rows[i]) : hec_work_memo_rate_s(memo, rows[i]);
  return sum;
}
