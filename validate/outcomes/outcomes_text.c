/* The report of outcomes as Markdown; for a terminal it goes through validate/plain.h. */
#include "validate/outcomes/outcomes.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void add_percent(hec_text *out, double error) {
  if (isnan(error))
    hec_text_add(out, "n/a");
  else
    hec_text_printf(out, "%+.1f %%", 100 * error);
}

/* "9 to 13 % low" */
static void add_range(hec_text *out, const double range[2]) {
  double low = 100 * range[0], high = 100 * range[1];
  if (high < 0)
    hec_text_printf(out, "%.0f to %.0f %% low", -high, -low);
  else if (low > 0)
    hec_text_printf(out, "%.0f to %.0f %% high", low, high);
  else
    hec_text_printf(out, "%.0f %% low to %.0f %% high", -low, high);
}

static const char *holds(const hec_outcome_set *set) {
  return set->within_bound ? "within" : "BEYOND";
}

static void add_window(const hec_outcomes *o, hec_text *out) {
  const hec_outcome_set *whole = o->n_changes > 0 ? &o->change[0].set : NULL;
  hec_text_printf(out,
                  "**Order of the methods: %s; ratios to LAER: %s %g %%** on micro-batches %" PRId32 " to %" PRId32
                  " (worst %.1f %%)",
                  o->set.order_kept ? "kept" : "NOT KEPT", holds(&o->set), 100 * HEC_OUTCOMES_BOUND, o->first, o->last,
                  100 * o->set.worst);
  if (o->options.first < 0)
    hec_text_add(out, ", the default window");
  if (whole)
    hec_text_printf(out, "; over all %" PRId32 " recorded: %.1f %%, %s.\n\n", o->recorded.n_entries, 100 * whole->worst,
                    whole->within_bound ? "within" : "beyond");
  else
    hec_text_printf(out, "; all %" PRId32 " recorded were not computed (--quick).\n\n", o->recorded.n_entries);
}

/* How far apart the methods are, next to how far off their steps are. */
static void add_gaps(const hec_outcomes *o, hec_text *out) {
  hec_text_add(out, "Gaps between neighbours, predicted (profiled step, iterations): ");
  for (int32_t m = 1; m < HEC_N_METHODS; m++) {
    const hec_outcome_measured *slow = &o->recorded.measured[m - 1], *fast = &o->recorded.measured[m];
    hec_text_printf(out, "%s%s over %s %.1f %% (%.1f %%", m > 1 ? "; " : "", hec_method_name[m - 1], hec_method_name[m],
                    100 * (o->set.of[m - 1].step_s / o->set.of[m].step_s - 1), 100 * (slow->step_s / fast->step_s - 1));
    if (slow->end_to_end_s > 0 && fast->end_to_end_s > 0)
      hec_text_printf(out, ", %.1f %%", 100 * (slow->end_to_end_s / fast->end_to_end_s - 1));
    hec_text_add(out, ")");
  }
  double off = fmax(fabs(o->set.step_error[0]), fabs(o->set.step_error[1]));
  bool same = o->set.step_error[0] * o->set.step_error[1] > 0;
  if (o->set.order_kept && o->set.least_gap < off && same)
    hec_text_printf(out,
                    ". The least gap, %.1f %%, is below the largest error of a step, %.1f %%: that order rests on "
                    "the steps erring in the same direction",
                    100 * o->set.least_gap, 100 * off);
  hec_text_add(out, ".\n\n");
}

/* How much of the ratios rests on rates of compute and links: the same loads on other clusters. */
static void add_reach(const hec_outcomes *o, hec_text *out) {
  int32_t n = 0, n_beyond = 0;
  double moved = 0;
  for (int32_t i = 0; i < o->n_changes; i++) {
    const hec_outcome_change *one = &o->change[i];
    if (!one->cluster)
      continue;
    hec_text_printf(out, "%s%s steps ", n++ > 0 ? "; " : "The same loads priced on other clusters: ", one->cluster);
    add_range(out, one->set.step_error);
    hec_text_printf(out, ", worst ratio %.1f %% off%s", 100 * one->set.worst,
                    one->set.within_bound ? "" : ", beyond the bound");
    n_beyond += !one->set.within_bound;
    for (int32_t m = 0; m < HEC_METHOD_LAER; m++)
      moved = fmax(moved, fabs(one->set.ratio[m] / o->set.ratio[m] - 1));
  }
  if (n > 0)
    hec_text_printf(out,
                    ". Other rates of compute and links move the ratios to LAER by up to %.1f %%; on %" PRId32
                    " of %" PRId32 " clusters they stay within the bound.\n\n",
                    100 * moved, n - n_beyond, n);
}

static void add_verdict(const hec_outcomes *o, hec_text *out) {
  add_window(o, out);
  hec_text_add(out, "Weak sides: predicted steps are ");
  add_range(out, o->set.step_error);
  hec_text_add(out, ", the all-to-all with its waiting ");
  add_range(out, o->set.alltoall_error);
  hec_text_add(out, ".\n\n");
  add_reach(o, out);
  add_gaps(o, out);
}

static void add_constants(const hec_outcomes *o, hec_text *out) {
  hec_text_printf(out,
                  "Every predicted number is simulated (law %s) from the recorded loads of ranks, with one set of "
                  "constants for all methods; none was fitted to a row below. Bound: order of the methods "
                  "kept, ratios within %g %%.\n\n",
                  hec_law_name(o->law), 100 * HEC_OUTCOMES_BOUND);
}

static void add_head(const hec_outcomes *o, hec_text *out) {
  const hec_outcome_case *c = &o->recorded;
  hec_text_add(out, "# Outcomes of a real system, predicted\n\n");
  if (o->options.stamp)
    hec_text_printf(out, "%s\n\n", o->options.stamp);
  add_verdict(o, out);
  hec_text_add(out, "Case ");
  hec_text_add_plain(out, c->name);
  hec_text_printf(out,
                  ": %" PRId32 " ranks on %" PRId32 " nodes, %" PRId32 " MoE layers, top-%" PRId32 ", %" PRId32
                  " recorded micro-batches; taken are %" PRId32 " to %" PRId32 ".\n\n",
                  c->n_ranks, c->n_nodes, c->n_layers, c->top_k, c->n_entries, o->first, o->last);
  hec_text_add(out, "Cluster ");
  hec_cluster_describe(&o->cluster, out);
  hec_text_add(out, "\n\nModel ");
  hec_moe_describe(&o->moe, out);
  hec_text_add(out, "\n\n");
  add_constants(o, out);
}

static void add_time(hec_text *out, const char *name, const char *what, double measured, double predicted) {
  hec_text_printf(out, "| %s | %s | ", name, what);
  if (measured > 0)
    hec_text_printf(out, "%.2f | %.2f | ", measured, predicted);
  else
    hec_text_printf(out, "n/a | %.2f | ", predicted);
  add_percent(out, measured > 0 ? predicted / measured - 1 : NAN);
  hec_text_add(out, " |\n");
}

static void add_times(const hec_outcomes *o, hec_text *out) {
  const hec_outcome_case *c = &o->recorded;
  hec_text_add(out,
               "## Seconds of a step\n\n| method | what | measured | predicted | error |\n|---|---|---|---|---|\n");
  for (int32_t m = 0; m < HEC_N_METHODS; m++) {
    const hec_outcome_measured *measured = &c->measured[m];
    const hec_outcome_prediction *p = &o->set.of[m];
    double alltoall = measured->alltoall_mean_s, expert = measured->expert_mean_s;
    add_time(out, hec_method_name[m], "step, profiled", measured->step_s, p->step_s);
    add_time(out, "", "iteration, mean of many", measured->end_to_end_s, p->step_s);
    add_time(out, "", "all-to-all with waiting, mean over ranks", alltoall, p->alltoall_s);
    add_time(out, "", "experts, mean over ranks", expert, p->expert_s);
    add_time(out, "", "the rest of the step", measured->step_s - alltoall - expert, p->other_s);
  }
}

static void add_ratios(const hec_outcomes *o, hec_text *out) {
  const hec_outcome_measured *base = &o->recorded.measured[HEC_METHOD_LAER];
  hec_text_add(out,
               "\n## Ratios\n\n| ratio | predicted | measured, profiled step | error | measured, iterations | error "
               "|\n|---|---|---|---|---|---|\n");
  for (int32_t m = 0; m < HEC_METHOD_LAER; m++) {
    const hec_outcome_measured *one = &o->recorded.measured[m];
    hec_text_printf(out, "| %s over LAER | %.3f | %.3f | ", hec_method_name[m], o->set.ratio[m],
                    one->step_s / base->step_s);
    add_percent(out, o->set.error_step[m]);
    if (isnan(o->set.error_end_to_end[m]))
      hec_text_add(out, " | n/a | ");
    else
      hec_text_printf(out, " | %.3f | ", one->end_to_end_s / base->end_to_end_s);
    add_percent(out, o->set.error_end_to_end[m]);
    hec_text_add(out, " |\n");
  }
}

static void add_ranks(const hec_outcomes *o, hec_text *out) {
  int32_t n = o->recorded.n_ranks;
  hec_text_add(out,
               "\n## Rank by rank\n\n| method | experts: mean error | correlation | spread predicted, s | measured, s "
               "| all-to-all: correlation | spread predicted, s | measured, s |\n|---|---|---|---|---|---|---|---|\n");
  for (int32_t m = 0; m < HEC_N_METHODS; m++) {
    const hec_outcome_prediction *p = &o->set.of[m];
    const hec_outcome_measured *measured = &o->recorded.measured[m];
    hec_text_printf(out, "| %s | %.1f %% | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", hec_method_name[m],
                    100 * p->expert_error_mean, p->expert_correlation, p->expert_spread_s,
                    hec_outcomes_spread(measured->expert_s, n), p->alltoall_correlation, p->alltoall_spread_s,
                    hec_outcomes_spread(measured->alltoall_s, n));
  }
  hec_text_printf(out,
                  "\nMean error: mean over the %" PRId32
                  " ranks of |predicted / measured - 1|. Correlation: Pearson's, "
                  "predicted and measured time over the ranks. Spread: standard deviation over the ranks. The "
                  "measurement is one profiled step, the prediction the mean of the micro-batches taken.\n",
                  n);
}

static void add_part(hec_text *out, const char *name, const double *value) {
  hec_text_printf(out, "| %s |", name);
  for (int32_t m = 0; m < HEC_N_METHODS; m++)
    hec_text_printf(out, " %.3f |", value[m]);
  hec_text_add(out, "\n");
}

static void add_parts(const hec_outcomes *o, hec_text *out) {
  double total[HEC_N_METHODS] = {0}, value[HEC_N_METHODS], wait[HEC_N_METHODS];
  hec_text_add(out, "\n## Where the predicted step goes\n\nSeconds, mean over ranks; communication only where it is "
                    "exposed (SparseAllGather, SparseReduceScatter: experts gathered into slots, gradients given "
                    "back).\n\n| part |");
  for (int32_t m = 0; m < HEC_N_METHODS; m++)
    hec_text_printf(out, " %s |", hec_method_name[m]);
  hec_text_add(out, "\n|---|---|---|---|\n");
  for (int32_t i = 0; i < HEC_N_ROLES; i++) {
    double most = 0;
    for (int32_t m = 0; m < HEC_N_METHODS; m++) {
      value[m] = o->set.of[m].role_s[i];
      total[m] += value[m];
      most = fmax(most, value[m]);
    }
    if (most >= 0.0005)
      add_part(out, hec_role_name[i], value);
  }
  for (int32_t m = 0; m < HEC_N_METHODS; m++)
    total[m] += wait[m] = o->set.of[m].wait_s;
  add_part(out, "waiting for other ranks", wait);
  add_part(out, "total", total);
}

static void add_change(const hec_outcome_change *one, bool details, hec_text *out) {
  const hec_outcome_prediction *of = one->set.of;
  hec_text_printf(out, "| %s | ", one->change);
  if (details)
    hec_text_printf(out, "%s | ", one->why);
  hec_text_printf(out, "%.3f | %.3f | %.1f %%%s | %s, %.1f %% | ", one->set.ratio[0], one->set.ratio[1],
                  100 * one->set.worst, one->set.within_bound ? "" : " (beyond)",
                  one->set.order_kept ? "kept" : "not kept", 100 * one->set.least_gap);
  add_range(out, one->set.step_error);
  if (details)
    hec_text_printf(out, " | %.1f | %.1f | %.1f", of[0].alltoall_s, of[1].alltoall_s, of[2].alltoall_s);
  hec_text_add(out, " |\n");
}

static void add_changes(const hec_outcomes *o, bool details, hec_text *out) {
  if (o->n_changes == 0)
    return;
  hec_text_add(out,
               "\n## One input changed\n\nRatios to LAER, the worst of their errors against both measurements, whether "
               "the order is kept with the least gap between neighbours, errors of the steps, all-to-all with waiting "
               "as mean over ranks. Controls throw away what the prediction rests on, or put it on other hardware.\n\n"
               "| change |");
  hec_text_add(out, details ? " why |" : "");
  for (int32_t m = 0; m < HEC_METHOD_LAER; m++)
    hec_text_printf(out, " %s over LAER |", hec_method_name[m]);
  hec_text_add(out, " worst error | order, least gap | steps |");
  for (int32_t m = 0; details && m < HEC_N_METHODS; m++)
    hec_text_printf(out, " all-to-all of %s, s |", hec_method_name[m]);
  hec_text_add(out, details ? "\n|---|---|---|---|---|---|---|---|---|---|\n" : "\n|---|---|---|---|---|---|\n");
  for (int32_t i = 0; i < o->n_changes; i++)
    add_change(&o->change[i], details, out);
}

void hec_outcomes_markdown(const hec_outcomes *o, bool details, hec_text *out) {
  add_head(o, out);
  add_times(o, out);
  add_ratios(o, out);
  if (details) {
    add_ranks(o, out);
    add_parts(o, out);
  }
  add_changes(o, details, out);
  hec_text_add(out, "\n");
  if (details)
    hec_text_add(out, "How the columns of a recording are read: validate/outcomes/README.md.\n");
}
