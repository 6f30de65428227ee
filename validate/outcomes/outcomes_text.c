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

static bool is_known(const hec_outcomes *o) {
  return strcmp(o->recorded.name, "laer_mixtral_8x7b_e16k4") == 0 && strcmp(o->cluster.name, "a100-80g-4x8") == 0 &&
         strcmp(o->moe.name, "mixtral-8x7b-e16k4") == 0;
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
  if (is_known(o) && o->options.first < 0)
    hec_text_add(out, ", the window of the artifact's figure, chosen after its imbalance had been seen");
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

/* What the ratios do not rest on, shown by other clusters. */
static void add_reach(const hec_outcomes *o, hec_text *out) {
  bool any = false, beyond = false;
  for (int32_t i = 0; i < o->n_changes; i++) {
    const hec_outcome_change *one = &o->change[i];
    if (!one->cluster)
      continue;
    hec_text_add(out, any           ? "; "
                      : is_known(o) ? "What is validated is how recorded imbalance between ranks becomes waiting, not "
                                      "rates of compute or links: the ratios hardly depend on those. The same loads "
                                      "priced on other clusters than the one measured: "
                                    : "The same loads priced on other clusters: ");
    hec_text_printf(out, "%s steps ", one->cluster);
    add_range(out, one->set.step_error);
    hec_text_printf(out, ", worst ratio %.1f %% off", 100 * one->set.worst);
    any = true;
    beyond = beyond || !one->set.within_bound;
  }
  hec_text_add(out, any ? "." : "");
  if (beyond && is_known(o))
    hec_text_add(
        out, " Only a network so slow that the exchange of expert parameters outlasts the computing, about the same in "
             "all methods, brings the ratios beyond the bound.");
  hec_text_add(out, any ? "\n\n" : "");
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
                  "constants for all methods; none was fitted to a row below",
                  hec_law_name(o->law));
  if (is_known(o))
    hec_text_printf(out,
                    ", but the artifact's own profiles, runs apart from these, give the compute efficiency, the "
                    "bandwidths and the factor of the non-MoE part (x %.2f)",
                    o->moe.nonmoe_scale);
  hec_text_printf(out, ". Bound: order of the methods kept, ratios within %g %%.\n\n", 100 * HEC_OUTCOMES_BOUND);
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

/* Of this one recording and these presets. */
static const char *const reading[] = {
    "## What the columns were taken to mean\n",
    "Artifact: github.com/Fizzmy/LAER-MoE-AE, system: github.com/PKU-DAIR/Hetu-Galvatron, branch laer-moe. Found: it "
    "is "
    "written there. Derived: it follows from the numbers. Inferred: the best explanation we have.\n",
    "- **A recorded entry is one micro-batch, in forward.** Derived: a layer's loads add up to half of 128 * 8192 "
    "tokens, "
    "top-4, and the step has two micro-batches. Entries 2k and 2k + 1 correlate more than 2k + 1 and 2k + 2 (every "
    "pair "
    "from entry 8 on): an optimizer step lies between the latter.",
    "- **Which entries.** 30 entries are steps 0 to 14 (derived: in entry 0 all methods have the same loads, as no "
    "planner has a history yet); what was measured lies at its end or later: iterations 21 to 70 (found), and a "
    "profiled "
    "step whose default is number 14 (found). So the end of the recording is what comes nearest. Where it begins is "
    "taken "
    "from the artifact: its own figure of these loads (figure 10b, default data) shows entries 25 to 29. The choice "
    "was "
    "not blind, the imbalance of several windows had been seen, and it matters more than any constant: see the rows "
    "`loads` above. Over the whole recording, planners' start included, the ratios are nearer to 1 and one of them is "
    "beyond the bound.",
    "- **expert_s** is twice the GPU time of the forward of the experts. Found: the script that makes the column "
    "doubles "
    "the profiler's total of a range around the forward, which recomputation runs twice per micro-batch. So it is four "
    "forwards, and backward is counted as two forwards, not measured; that is also what is predicted.",
    "- **alltoall_s** is the GPU time of the all-to-all function. Found: its name is matched exactly, and the dispatch "
    "of "
    "the last layer and the combine of the first go through another function; both are left out here too. Inferred: it "
    "holds the backward all-to-alls as well (as in Megatron-LM, whose all-to-all calls itself in backward): with those "
    "of "
    "forward alone the difference between methods could not be as large as it is.",
    "- **It includes waiting.** Inferred: ranks with less expert time have more all-to-all time (FSDP: rank 0 7.98 + "
    "12.62 s, rank 1 11.69 + 10.19 s). Who waits for whom: rows stay in the node (derived: in all but a few recorded "
    "layers a node computes exactly what its ranks send), so a rank waits in combine for its node; the counts that are "
    "gathered before each dispatch (found) make all ranks meet, and that wait is in the rest of the step.",
    "- **step_s** is the profiler's host time of one step (found); which step is not stated (the script's default is "
    "step "
    "14 from 0). The iterations are means of a separate run without a profiler.\n",
    "## Constants\n",
    "- compute: 0.783 of 312 TFLOP/s, from the artifact's profile of an MLP (median of twelve batch sizes); non-MoE "
    "part "
    "2.28 times the law, from the same profile's attention row. Neither was measured in these runs.",
    "- links: 216.3 GB/s in the node, 89.0 GB/s between nodes (for 8 GPUs together): the artifact's "
    "network_config.json.",
    "- sizes: the artifact's model and launch scripts (24 layers, d 4096, f 7168, 16 experts top-4, 4 slots per rank, "
    "sequence 8192, global batch 128 in two micro-batches, recomputation on).",
    "- launch, tile, latency, HBM efficiency: assumed, as in the other A100 preset; they hardly matter at these sizes. "
    "The "
    "preset files name the source of every number.\n",
    "## What is not modelled\n",
    "- Per-expert loads and who sends to whom: not published. Rows are spread evenly over a rank's slots and over the "
    "senders of its node.",
    "- Whatever makes the all-to-all longer than its bytes at the profiled rate and the waiting for experts: in all "
    "three "
    "methods about the same time is missing (the all-to-all rows above; it nearly cancels in the ratios, and "
    "its relative error is largest where the all-to-all is shortest). Candidates: the parameter exchange that runs "
    "beside it, a slower all-to-all of 32 ranks with uneven sizes, host synchronisation. No constant was bent to hide "
    "it.",
    "- Contention between parameter and token exchanges beyond shared links (`--law max_min` shares them and changes "
    "no "
    "step by a thousandth: parameters cross the network, tokens stay in the node), host time, kernel gaps, the gather "
    "of dense parameters, "
    "spread "
    "between GPUs of one model.",
    "- The routing kernels of the runtime and its unfused permutations beyond reading and writing each row once."};

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
  for (size_t i = 0; details && is_known(o) && i < sizeof reading / sizeof *reading; i++)
    hec_text_printf(out, "%s\n", reading[i]);
}
