/* From one lowered and timed iteration to a row of the summary: what simulator and runtime do alike. Linear in operations
 * and transfers. */
#include "runtime/plan/problem.h"
#include "runtime/program/summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

hec_summary_row hec_summary_row_of(const hec_policy *policy, const hec_schedule *schedule, int32_t n_ranks,
                                   hec_arena *arena) {
  return (hec_summary_row){.name = policy->name,
                           .label = policy->name,
                           .about = policy->summary,
                           .source = policy->source,
                           .schedule = schedule->name,
                           .reference = policy->reference,
                           .baseline = policy->baseline,
                           .published = policy->schedule,
                           .cuts = schedule->chunked,
                           .routes = schedule->routes,
                           .by_node = schedule->by_node,
                           .rearranges = policy->rearranges,
                           .placed = policy->placed,
                           .t_min = -1,
                           .t_max = -1,
                           .m_min = -1,
                           .m_max = -1,
                           .dropped_share = -1,
                           .rank_peak = HEC_NEW(arena, double, n_ranks)};
}

void hec_summary_tell_apart(hec_summary *summary, hec_arena *arena) {
  for (int32_t i = 0; i < summary->n_rows; i++) {
    hec_summary_row *row = &summary->rows[i];
    int32_t n = 0;
    for (int32_t k = 0; k < summary->n_rows; k++)
      n += strcmp(summary->rows[k].name, row->name) == 0;
    if (n > 1)
      row->label = hec_arena_printf(arena, "%s/%s", row->name, row->schedule);
  }
}

void hec_summary_row_free(hec_summary_row *row) {
  hec_series_free(&row->iteration_s);
  hec_series_free(&row->overload);
  hec_series_free(&row->late);
  hec_series_free(&row->bound_s);
}

void hec_summary_free(hec_summary *summary) {
  hec_series_free(&summary->iters);
  for (int32_t p = 0; p < summary->n_rows; p++)
    hec_summary_row_free(&summary->rows[p]);
}

static void add_memory(hec_summary_row *row, const hec_program *program) {
  double by_class[HEC_N_MEMORY];
  hec_program_memory_peak(program, row->rank_peak, by_class);
  double max = 0;
  for (int32_t r = 0; r < program->n_ranks; r++)
    max = row->rank_peak[r] > max ? row->rank_peak[r] : max;
  if (max > row->peak_bytes) {
    row->peak_bytes = max;
    memcpy(row->peak_class, by_class, sizeof by_class);
  }
}

void hec_summary_widen(int32_t *min, int32_t *max, const int32_t *values, int32_t n) {
  for (int32_t i = 0; values && i < n; i++) {
    if (values[i] < 0)
      continue;
    *min = *min < 0 || values[i] < *min ? values[i] : *min;
    *max = values[i] > *max ? values[i] : *max;
  }
}

static void add_choice(hec_token_choice *sum, const hec_token_choice *choice) {
  sum->n_layers += choice->n_layers;
  for (int32_t r = 0; r <= HEC_DEGREE_MAX; r++)
    sum->degree[r] += choice->degree[r];
  for (int32_t k = 0; k < HEC_N_TOKEN_ROUTES; k++)
    sum->route[k] += choice->route[k];
  sum->by_node += choice->by_node;
}

void hec_summary_add_iteration(hec_summary_row *row, const hec_lowering *low, const hec_breakdown *all,
                               const hec_breakdown *ordinary, int64_t stride) {
  const hec_program *program = hec_lowering_program(low);
  row->n_migrations += hec_lowering_migrated(low);
  hec_summary_add(row, all, ordinary, stride);
  double traffic[HEC_N_TRAFFIC], moved[HEC_N_TRAFFIC];
  hec_program_traffic(program, traffic, moved);
  hec_summary_add_traffic(row, traffic, moved, stride);
  int32_t n;
  const double *overload = hec_lowering_overload(low, &n);
  for (int32_t i = 0; i < n; i++)
    hec_series_add(&row->overload, overload[i]);
  add_memory(row, program);
  const hec_policy_run *run = hec_lowering_run(low);
  hec_summary_widen(&row->t_min, &row->t_max, run->t, run->problem->n_layers);
  hec_summary_widen(&row->m_min, &row->m_max, run->m, run->problem->n_layers);
  (void)snprintf(row->note, sizeof row->note, "%s", hec_lowering_note(low));
  add_choice(&row->choice, hec_lowering_choice(low));
  if (run->policy->drops)
    row->dropped_share = run->n_offered > 0 ? (double)run->n_dropped / (double)run->n_offered : 0;
}

int64_t hec_summary_nearest_median(hec_summary_row *row) {
  const hec_series *series = &row->iteration_s;
  double median = hec_summary_median(row);
  int64_t best = 0;
  for (size_t i = 1; i < series->n; i++)
    if (fabs(series->value[i] - median) < fabs(series->value[best] - median))
      best = (int64_t)i;
  return best;
}
