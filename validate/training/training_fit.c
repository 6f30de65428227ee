/* Coordinate descent on a grid: see training.h. */
#include "validate/training/training.h"

#include <math.h>
#include <string.h>

typedef struct {
  const char *part;
  const hec_training_table *table;
} fitted_rows;

static double loss_of(const fitted_rows *rows, const hec_step_constants *constants, int32_t *n) {
  double sum = 0;
  *n = 0;
  for (int32_t i = 0; i < rows->table->n; i++) {
    const hec_training_case *c = &rows->table->cases[i];
    hec_training training = c->set_up;
    hec_training_result result;
    training.constants = *constants;
    if (c->why_not || !strstr(c->id, rows->part) ||
        hec_training_run(&(hec_training_job){.training = &training}, &result) != HEC_OK)
      continue;
    double measured_s = c->result.step_s / (1 + c->error); /* in seconds, whatever the metric */
    sum += fabs(log(result.step_s / measured_s));
    *n += 1;
  }
  return *n > 0 ? sum / (double)*n : 0;
}

/* The best of `value`'s grid between low and high; true if it moved. */
static bool improve(const fitted_rows *rows, hec_step_constants *c, double *value, int low, int high, double *best) {
  double from = *value, at = from;
  int32_t n;
  for (int i = low; i <= high; i++) {
    *value = (double)i / 100;
    double loss = loss_of(rows, c, &n);
    if (loss < *best - 1e-9) {
      *best = loss;
      at = *value;
    }
  }
  *value = at;
  return at < from || at > from;
}

hec_status hec_training_fit(const char *path, const char *part, hec_step_constants *c, int32_t *n) {
  enum { ROUNDS = 8 };
  HEC_SCOPED(hec_training_table) table = {0};
  fitted_rows rows = {.part = part, .table = &table};
  HEC_TRY(hec_training_judge(path, c, &table));
  double best = loss_of(&rows, c, n);
  if (*n == 0)
    return hec_fail(HEC_BAD_INPUT,
                    "`fit` %s: expected a part of the ids of rows that can be predicted, found none in %s", part, path);
  for (int round = 0; round < ROUNDS; round++) {
    bool moved = improve(&rows, c, &c->in_step, 100, 160, &best);
    moved |= improve(&rows, c, &c->nic, 50, 100, &best);
    moved |= improve(&rows, c, &c->hidden, 0, 100, &best);
    if (!moved)
      break;
  }
  return HEC_OK;
}
