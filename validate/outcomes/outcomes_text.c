/* The report of outcomes as Markdown, for the terminal and for a file. */
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

static void add_head(const hec_outcomes *o, hec_text *out) {
  const hec_outcome_case *c = &o->recorded;
  hec_text_add(out, "# Outcomes of a real system, predicted\n\n");
  if (o->options.stamp)
    hec_text_printf(out, "%s\n\n", o->options.stamp);
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
  hec_text_printf(out,
                  "\n\nEvery predicted number is simulated (law %s) from the recorded loads of ranks, with one "
                  "set of constants for all methods; none was fitted to a row below. Bound: order of the "
                  "methods kept, ratios within %g %%.\n\n",
                  hec_law_name(o->law), 100 * HEC_OUTCOMES_BOUND);
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
  hec_text_add(out, "## Seconds of a step\n\n| method | | measured | predicted | error |\n|---|---|---|---|---|\n");
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
  hec_text_add(out, "\n## Ratios\n\n| | predicted | measured, profiled step | error | measured, iterations | error "
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
  hec_text_printf(out, "\nOrder of the methods: %s. Worst ratio: %.1f %% off, bound %g %%: %s.\n",
                  o->set.order_kept ? "kept" : "NOT KEPT", 100 * o->set.worst, 100 * HEC_OUTCOMES_BOUND,
                  o->set.within_bound ? "within" : "BEYOND");
}

static void add_ranks(const hec_outcomes *o, hec_text *out) {
  hec_text_add(out, "\n## Rank by rank\n\n| method | expert time: mean error | correlation | all-to-all: correlation "
                    "|\n|---|---|---|---|\n");
  for (int32_t m = 0; m < HEC_N_METHODS; m++) {
    const hec_outcome_prediction *p = &o->set.of[m];
    hec_text_printf(out, "| %s | %.1f %% | %.2f | %.2f |\n", hec_method_name[m], 100 * p->expert_error_mean,
                    p->expert_correlation, p->alltoall_correlation);
  }
  hec_text_add(out, "\nWhere a method leaves little imbalance between ranks, what is left is noise and correlates with "
                    "nothing.\n");
}

static void add_parts(const hec_outcomes *o, hec_text *out) {
  hec_text_add(out, "\n## Where the predicted step goes\n\nSeconds, mean over ranks; communication only where it is "
                    "exposed (SparseAllGather, SparseReduceScatter: experts gathered into slots, gradients given "
                    "back).\n\n| |");
  for (int32_t m = 0; m < HEC_N_METHODS; m++)
    hec_text_printf(out, " %s |", hec_method_name[m]);
  hec_text_add(out, "\n|---|---|---|---|\n");
  for (int32_t i = 0; i < HEC_N_ROLES; i++) {
    double most = 0;
    for (int32_t m = 0; m < HEC_N_METHODS; m++)
      most = fmax(most, o->set.of[m].role_s[i]);
    if (most < 0.0005)
      continue;
    hec_text_printf(out, "| %s |", hec_role_name[i]);
    for (int32_t m = 0; m < HEC_N_METHODS; m++)
      hec_text_printf(out, " %.3f |", o->set.of[m].role_s[i]);
    hec_text_add(out, "\n");
  }
  hec_text_add(out, "| waiting for other ranks |");
  for (int32_t m = 0; m < HEC_N_METHODS; m++)
    hec_text_printf(out, " %.3f |", o->set.of[m].wait_s);
  hec_text_add(out, "\n");
}

static void add_changes(const hec_outcomes *o, hec_text *out) {
  if (o->n_changes == 0)
    return;
  hec_text_add(out,
               "\n## One input changed\n\nRatios to LAER and the worst of their errors against both measurements. "
               "Controls throw away what the prediction rests on.\n\n| change | why | static | FlexMoE-style | worst "
               "error | order | all-to-all s |\n|---|---|---|---|---|---|---|\n");
  for (int32_t i = 0; i < o->n_changes; i++) {
    const hec_outcome_change *one = &o->change[i];
    const hec_outcome_prediction *of = one->set.of;
    hec_text_printf(out, "| %s | %s | %.3f | %.3f | %.1f %%%s | %s | %.1f, %.1f, %.1f |\n", one->change, one->why,
                    one->set.ratio[0], one->set.ratio[1], 100 * one->set.worst,
                    one->set.within_bound ? "" : " (beyond)", one->set.order_kept ? "kept" : "not kept",
                    of[0].alltoall_s, of[1].alltoall_s, of[2].alltoall_s);
  }
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

void hec_outcomes_markdown(const hec_outcomes *o, hec_text *out) {
  add_head(o, out);
  add_times(o, out);
  add_ratios(o, out);
  add_ranks(o, out);
  add_parts(o, out);
  add_changes(o, out);
  hec_text_add(out, "\n");
  bool known = strcmp(o->recorded.name, "laer_mixtral_8x7b_e16k4") == 0 &&
               strcmp(o->cluster.name, "a100-80g-4x8") == 0 && strcmp(o->moe.name, "mixtral-8x7b-e16k4") == 0;
  for (size_t i = 0; known && i < sizeof reading / sizeof *reading; i++)
    hec_text_printf(out, "%s\n", reading[i]);
}
