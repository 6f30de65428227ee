/* Building a programme in memory that was reserved before. */
#include "runtime/plan/milp.h"

#include "runtime/base/status.h"

const hec_solver *hec_solver_ready(const hec_solver *solver) {
  return solver && (!solver->ready || solver->ready()) ? solver : NULL;
}

hec_milp hec_milp_new(hec_arena *arena, int32_t columns_max, int32_t rows_max, int64_t entries_max) {
  return (hec_milp){
      .columns_max = columns_max,
      .rows_max = rows_max,
      .entries_max = entries_max,
      .at = HEC_NEW(arena, int64_t, columns_max + 1),
      .row = HEC_NEW(arena, int32_t, entries_max),
      .value = HEC_NEW(arena, double, entries_max),
      .cost = HEC_NEW(arena, double, columns_max),
      .upper = HEC_NEW(arena, double, columns_max),
      .integer = HEC_NEW(arena, uint8_t, columns_max),
      .min = HEC_NEW(arena, double, rows_max),
      .max = HEC_NEW(arena, double, rows_max),
      .x = HEC_NEW(arena, double, columns_max),
  };
}

void hec_milp_clear(hec_milp *m) {
  m->n_columns = m->n_rows = 0;
  m->at[0] = 0;
}

int32_t hec_milp_row(hec_milp *m, double min, double max) {
  HEC_ASSERT(m->n_rows < m->rows_max);
  m->min[m->n_rows] = min;
  m->max[m->n_rows] = max;
  return m->n_rows++;
}

int32_t hec_milp_column(hec_milp *m, double cost, double upper, bool integer) {
  int32_t c = m->n_columns;
  HEC_ASSERT(c < m->columns_max);
  m->cost[c] = cost;
  m->upper[c] = upper;
  m->integer[c] = integer;
  m->at[c + 1] = m->at[c];
  return m->n_columns++;
}

void hec_milp_entry(hec_milp *m, int32_t row, double value) {
  int64_t *end = &m->at[m->n_columns];
  HEC_ASSERT(m->n_columns > 0 && row >= 0 && row < m->n_rows && *end < m->entries_max);
  m->row[*end] = row;
  m->value[*end] = value;
  ++*end;
}
