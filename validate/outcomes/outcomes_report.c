/* The report of outcomes: for people the verdict first; the form for programs is in outcomes.h. */
#include "validate/outcomes/outcomes.h"

#include <inttypes.h>
#include <math.h>

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
  if (o->set.order_kept && o->set.min_gap < off && same)
    hec_text_printf(out,
                    ". The least gap, %.1f %%, is below the largest error of a step, %.1f %%: that order rests on "
                    "the steps erring in the same direction",
                    100 * o->set.min_gap, 100 * off);
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
  if (o->n_changes > 0) {
    hec_text_add(out, "; over all recorded micro-batches steps ");
    add_range(out, o->change[0].set.step_error);
    hec_text_add(out, ", the all-to-all ");
    add_range(out, o->change[0].set.alltoall_error);
  }
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

static void add_head(hec_doc *doc, const hec_outcomes *o) {
  const hec_outcome_case *c = &o->recorded;
  hec_text out = {0};
  HEC_ADD(doc, HEC_KEEP("version", 1), HEC_KEEP("case", c->name),
          HEC_KEEP("stamp", o->options.stamp ? o->options.stamp : ""), HEC_KEEP("cluster", o->cluster.name),
          HEC_KEEP("model", o->moe.name), HEC_KEEP("law", hec_law_name(o->law)), HEC_KEEP("bound", HEC_OUTCOMES_BOUND),
          hec_value_pair("entries", o->first, o->last));
  hec_doc_note(doc, "# Outcomes of a real system, predicted");
  if (o->options.stamp)
    hec_doc_note(doc, "%s", o->options.stamp);
  add_verdict(o, &out);
  hec_text_add(&out, "Case ");
  hec_text_add_plain(&out, c->name);
  hec_text_printf(&out,
                  ": %" PRId32 " ranks on %" PRId32 " nodes, %" PRId32 " MoE layers, top-%" PRId32 ", %" PRId32
                  " recorded micro-batches; taken are %" PRId32 " to %" PRId32 ".\n\n",
                  c->n_ranks, c->n_nodes, c->n_layers, c->top_k, c->n_entries, o->first, o->last);
  hec_text_add(&out, "Cluster ");
  hec_cluster_describe(&o->cluster, &out);
  hec_text_add(&out, "\n\nModel ");
  hec_moe_describe(&o->moe, &out);
  hec_text_add(&out, "\n\n");
  add_constants(o, &out);
  hec_doc_take(doc, &out);
}

/* ---- Methods ---- */

static void show_time(hec_doc *doc, const char *name, const char *what, double measured, double predicted) {
  bool known = measured > 0;
  HEC_ROW(doc, HEC_CELL(name), HEC_CELL(what), HEC_SHOW(NULL, HEC_FIXED2, known ? measured : NAN),
          HEC_SHOW(NULL, HEC_FIXED2, predicted), HEC_SHOW(NULL, HEC_SIGNED, known ? predicted / measured - 1 : NAN));
}

static void show_times(hec_doc *doc, const hec_outcomes *o) {
  hec_doc_note(doc, "## Seconds of a step");
  hec_doc_table(doc, NULL, "method | what | measured | predicted | error");
  for (int32_t m = 0; m < HEC_N_METHODS; m++) {
    const hec_outcome_measured *measured = &o->recorded.measured[m];
    const hec_outcome_prediction *p = &o->set.of[m];
    double alltoall = measured->alltoall_mean_s, expert = measured->expert_mean_s;
    show_time(doc, hec_method_name[m], "step, profiled", measured->step_s, p->step_s);
    show_time(doc, "", "iteration, mean of many", measured->end_to_end_s, p->step_s);
    show_time(doc, "", "all-to-all with waiting, mean over ranks", alltoall, p->alltoall_s);
    show_time(doc, "", "experts, mean over ranks", expert, p->expert_s);
    show_time(doc, "", "the rest of the step", measured->step_s - alltoall - expert, p->other_s);
  }
  hec_doc_end(doc);
}

/* For programs; for people rank by rank alone. */
static void add_method(hec_doc *doc, const hec_outcomes *o, int32_t m) {
  const hec_outcome_measured *measured = &o->recorded.measured[m];
  const hec_outcome_prediction *p = &o->set.of[m];
  double alltoall = measured->alltoall_mean_s, expert = measured->expert_mean_s,
         other = measured->step_s - alltoall - expert;
  double end_to_end = measured->end_to_end_s > 0 ? measured->end_to_end_s : NAN;
  double expert_spread = hec_outcomes_spread(measured->expert_s, o->recorded.n_ranks),
         alltoall_spread = hec_outcomes_spread(measured->alltoall_s, o->recorded.n_ranks);
  hec_value parts[HEC_N_ROLES + 1];
  int32_t n_parts = 0;
  for (int32_t i = 0; i < HEC_N_ROLES; i++)
    if (p->role_s[i] > 0)
      parts[n_parts++] = HEC_KEEP(hec_role_name[i], p->role_s[i]);
  parts[n_parts++] = HEC_KEEP("waiting", p->wait_s);
  HEC_ROW(doc, HEC_KEEP("method", hec_method_key[m]),
          HEC_OBJECT("measured", HEC_KEEP("step_s", measured->step_s), HEC_KEEP("end_to_end_s", end_to_end),
                     HEC_KEEP("alltoall_s", alltoall), HEC_KEEP("expert_s", expert), HEC_KEEP("other_s", other)),
          HEC_OBJECT("predicted", HEC_KEEP("step_s", p->step_s), HEC_KEEP("alltoall_s", p->alltoall_s),
                     HEC_KEEP("wire_s", p->wire_s), HEC_KEEP("expert_s", p->expert_s), HEC_KEEP("other_s", p->other_s)),
          HEC_OBJECT("error", HEC_KEEP("step", p->step_s / measured->step_s - 1),
                     HEC_KEEP("end_to_end", p->step_s / end_to_end - 1),
                     HEC_KEEP("alltoall", p->alltoall_s / alltoall - 1), HEC_KEEP("expert", p->expert_s / expert - 1),
                     HEC_KEEP("other", p->other_s / other - 1)),
          HEC_OBJECT("rank", HEC_KEEP("expert_error_mean", p->expert_error_mean),
                     HEC_KEEP("expert_correlation", p->expert_correlation),
                     HEC_KEEP("alltoall_correlation", p->alltoall_correlation),
                     hec_value_pair("expert_spread_s", p->expert_spread_s, expert_spread),
                     hec_value_pair("alltoall_spread_s", p->alltoall_spread_s, alltoall_spread)),
          hec_value_object("parts", parts, n_parts), HEC_CELL(hec_method_name[m]),
          HEC_SHOW(NULL, HEC_PERCENT, p->expert_error_mean), HEC_SHOW(NULL, HEC_FIXED2, p->expert_correlation),
          HEC_SHOW(NULL, HEC_FIXED2, p->expert_spread_s), HEC_SHOW(NULL, HEC_FIXED2, expert_spread),
          HEC_SHOW(NULL, HEC_FIXED2, p->alltoall_correlation), HEC_SHOW(NULL, HEC_FIXED2, p->alltoall_spread_s),
          HEC_SHOW(NULL, HEC_FIXED2, alltoall_spread));
}

static void add_methods(hec_doc *doc, const hec_outcomes *o, const char *key, const char *heads) {
  hec_doc_table(doc, key, heads);
  for (int32_t m = 0; m < HEC_N_METHODS; m++)
    add_method(doc, o, m);
  hec_doc_end(doc);
}

static void add_ratios(hec_doc *doc, const hec_outcomes *o) {
  const hec_outcome_measured *base = &o->recorded.measured[HEC_METHOD_LAER];
  hec_doc_note(doc, "## Ratios");
  hec_doc_table(doc, "ratios", "ratio | predicted | measured, profiled step | error | measured, iterations | error");
  for (int32_t m = 0; m < HEC_METHOD_LAER; m++) {
    const hec_outcome_measured *one = &o->recorded.measured[m];
    double error = o->set.error_end_to_end[m], ratio = one->end_to_end_s / base->end_to_end_s;
    HEC_ROW(doc, HEC_KEEP("method", hec_method_key[m]), HEC_CELL(hec_doc_text(doc, "%s over LAER", hec_method_name[m])),
            HEC_SHOW("predicted", HEC_FIXED, o->set.ratio[m]),
            HEC_SHOW("measured_step", HEC_FIXED, one->step_s / base->step_s),
            HEC_SHOW(NULL, HEC_SIGNED, o->set.error_step[m]),
            HEC_SHOW("measured_end_to_end", HEC_FIXED, isnan(error) ? NAN : ratio),
            HEC_KEEP("error_step", o->set.error_step[m]), HEC_SHOW("error_end_to_end", HEC_SIGNED, error));
  }
  hec_doc_end(doc);
}

/* Waiting for the slowest rank cannot make a ratio larger than that of the busiest ranks: all else is alike or hides it. */
static void show_limit(hec_doc *doc, const hec_outcomes *o, const hec_outcome_set *set, const char *what) {
  const hec_outcome_measured *measured = o->recorded.measured;
  hec_doc_note(
      doc,
      "Limit of the loads, %s: the busiest rank computes %.2f times as many rows with %s as with LAER (%.2f and "
      "%.2f of the mean). If nothing but its experts took time, the steps would be as far apart; measured is %.2f.",
      what, set->busiest[0] / set->busiest[HEC_METHOD_LAER], hec_method_name[0], set->busiest[0],
      set->busiest[HEC_METHOD_LAER], measured[0].step_s / measured[HEC_METHOD_LAER].step_s);
}

/* The profiled step is of the last two micro-batches: what is its ratio worth for others? */
static void show_moved(hec_doc *doc, const hec_outcomes *o, const hec_outcome_set *set, const char *what) {
  const hec_outcome_measured *measured = o->recorded.measured;
  double ratio = measured[0].step_s / measured[HEC_METHOD_LAER].step_s;
  hec_doc_note(
      doc,
      "Measured at other loads, %s: the profiled step of %s is %.3f times that of LAER. It is of the last two "
      "micro-batches. Moved to these loads, by the measured time of the experts alone, it is %.3f times, so %.1f %% "
      "off. A prediction without error is as far off. Ours is %.1f %% from the moved ratio.",
      what, hec_method_name[0], ratio, set->moved, 100 * fabs(set->moved / ratio - 1),
      100 * fabs(set->ratio[0] / set->moved - 1));
}

static void show_limits(hec_doc *doc, const hec_outcomes *o) {
  show_limit(doc, o, &o->set, "micro-batches taken");
  if (o->n_changes > 0) {
    show_limit(doc, o, &o->change[0].set, "all that are recorded");
    show_moved(doc, o, &o->change[0].set, "all that are recorded");
  }
}

static void show_ranks(hec_doc *doc, const hec_outcomes *o) {
  hec_doc_note(doc, "## Rank by rank");
  add_methods(
      doc, o, NULL,
      "method | experts: mean error | correlation | spread predicted, s | measured, s | all-to-all: correlation "
      "| spread predicted, s | measured, s");
  hec_doc_note(doc,
               "Mean error: mean over the %" PRId32 " ranks of |predicted / measured - 1|. Correlation: Pearson's, "
               "predicted and measured time over the ranks. Spread: standard deviation over the ranks. The "
               "measurement is one profiled step, the prediction the mean of the micro-batches taken.",
               o->recorded.n_ranks);
}

static void show_part(hec_doc *doc, const char *name, const double *value) {
  HEC_ROW(doc, HEC_CELL(name));
  for (int32_t m = 0; m < HEC_N_METHODS; m++)
    HEC_ADD(doc, HEC_SHOW(NULL, HEC_FIXED, value[m]));
}

static void show_parts(hec_doc *doc, const hec_outcomes *o) {
  double total[HEC_N_METHODS] = {0}, value[HEC_N_METHODS], wait[HEC_N_METHODS];
  hec_doc_note(doc, "## Where the predicted step goes\n\nSeconds, mean over ranks; communication only where it is "
                    "exposed (SparseAllGather, SparseReduceScatter: experts gathered into slots, gradients given "
                    "back).");
  hec_doc_table(doc, NULL,
                hec_doc_text(doc, "part | %s | %s | %s", hec_method_name[0], hec_method_name[1], hec_method_name[2]));
  for (int32_t i = 0; i < HEC_N_ROLES; i++) {
    double max = 0;
    for (int32_t m = 0; m < HEC_N_METHODS; m++) {
      value[m] = o->set.of[m].role_s[i];
      total[m] += value[m];
      max = fmax(max, value[m]);
    }
    if (max >= 0.0005)
      show_part(doc, hec_role_name[i], value);
  }
  for (int32_t m = 0; m < HEC_N_METHODS; m++)
    total[m] += wait[m] = o->set.of[m].wait_s;
  show_part(doc, "waiting for other ranks", wait);
  show_part(doc, "total", total);
  hec_doc_end(doc);
}

/* ---- Changes ---- */

static void add_change(hec_doc *doc, const hec_outcome_change *one, bool details) {
  const hec_outcome_set *set = &one->set;
  double step_s[HEC_N_METHODS], alltoall_s[HEC_N_METHODS];
  HEC_SCOPED(hec_text) steps = {0};
  for (int32_t m = 0; m < HEC_N_METHODS; m++) {
    step_s[m] = set->of[m].step_s;
    alltoall_s[m] = set->of[m].alltoall_s;
  }
  add_range(&steps, set->step_error);
  HEC_ROW(doc, HEC_SHOW("change", HEC_AS_IS, one->change), HEC_SHOW("why", details ? HEC_AS_IS : HEC_NOT, one->why),
          HEC_KEEP("control", one->control), hec_value_reals("step_s", step_s, HEC_N_METHODS),
          hec_value_reals("alltoall_s", alltoall_s, HEC_N_METHODS),
          hec_value_reals("ratios", set->ratio, HEC_METHOD_LAER),
          hec_value_reals("busiest", set->busiest, HEC_N_METHODS), HEC_KEEP("moved", set->moved),
          HEC_KEEP("worst", set->worst), HEC_KEEP("within_bound", set->within_bound),
          HEC_KEEP("order_kept", set->order_kept), hec_value_reals("step_error", set->step_error, 2),
          hec_value_reals("alltoall_error", set->alltoall_error, 2), HEC_KEEP("min_gap", set->min_gap),
          HEC_SHOW(NULL, HEC_FIXED, set->ratio[0]), HEC_SHOW(NULL, HEC_FIXED, set->ratio[1]),
          HEC_CELL(hec_doc_text(doc, "%.1f %%%s", 100 * set->worst, set->within_bound ? "" : " (beyond)")),
          HEC_CELL(hec_doc_text(doc, "%s, %.1f %%", set->order_kept ? "kept" : "not kept", 100 * set->min_gap)),
          HEC_CELL(steps.data));
  for (int32_t m = 0; details && m < HEC_N_METHODS; m++)
    HEC_ADD(doc, HEC_CELL(hec_doc_text(doc, "%.1f", alltoall_s[m])));
}

static void add_changes(hec_doc *doc, const hec_outcomes *o) {
  const char *const *name = hec_method_name;
  bool details = o->options.details;
  if (o->n_changes > 0)
    hec_doc_note(
        doc, "## One input changed\n\nRatios to LAER, the worst of their errors against both measurements, whether "
             "the order is kept with the least gap between neighbours, errors of the steps, all-to-all with waiting "
             "as mean over ranks. Controls throw away what the prediction rests on, or put it on other hardware.");
  const char *heads =
      hec_doc_text(doc, "change%s | %s over LAER | %s over LAER | worst error | order, least gap | steps%s",
                   details ? " | why" : "", name[0], name[1],
                   details ? hec_doc_text(doc, " | all-to-all of %s, s | all-to-all of %s, s | all-to-all of %s, s",
                                          name[0], name[1], name[2])
                           : "");
  hec_doc_table(doc, "changes", o->n_changes > 0 ? heads : NULL);
  for (int32_t i = 0; i < o->n_changes; i++)
    add_change(doc, &o->change[i], details);
  hec_doc_end(doc);
}

void hec_outcomes_report(const void *outcomes, hec_doc *doc) {
  const hec_outcomes *o = outcomes;
  doc->missing = "n/a";
  add_head(doc, o);
  show_times(doc, o);
  add_methods(doc, o, "rows", NULL);
  add_ratios(doc, o);
  show_limits(doc, o);
  HEC_ADD(doc, hec_value_reals("busiest", o->set.busiest, HEC_N_METHODS), HEC_KEEP("worst", o->set.worst),
          HEC_KEEP("order_kept", o->set.order_kept), HEC_KEEP("within_bound", o->set.within_bound),
          hec_value_reals("step_error", o->set.step_error, 2),
          hec_value_reals("alltoall_error", o->set.alltoall_error, 2), HEC_KEEP("min_gap", o->set.min_gap),
          HEC_KEEP("passed", o->passed));
  if (o->options.details) {
    show_ranks(doc, o);
    show_parts(doc, o);
  }
  add_changes(doc, o);
  if (o->options.details)
    hec_doc_note(doc, "How the columns of a recording are read: validate/outcomes/README.md.");
}
