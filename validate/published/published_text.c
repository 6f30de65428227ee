/* The report as Markdown, for the terminal and for a file. */
#include "runtime/plan/problem.h"
#include "validate/published/published.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void add_number(hec_text *out, double value) {
  if (isnan(value))
    hec_text_add(out, "n/a");
  else if (value >= 100)
    hec_text_printf(out, "%.0f", value);
  else if (value >= 10)
    hec_text_printf(out, "%.1f", value);
  else
    hec_text_printf(out, "%.3f", value);
}

static void add_span(hec_text *out, hec_span span) {
  add_number(out, span.low);
  if (span.low == span.high || (isnan(span.low) && isnan(span.high)))
    return;
  hec_text_add(out, "-");
  add_number(out, span.high);
}

static void add_choice(hec_text *out, const char *name, int32_t value) {
  if (value == HEC_AUTO)
    hec_text_printf(out, ", %s automatic", name);
  else if (value == HEC_T_PAPER)
    hec_text_printf(out, ", %s by the paper's formula", name);
  else
    hec_text_printf(out, ", %s = %" PRId32, name, value);
}

void hec_published_describe(const hec_setup *inputs, hec_text *out) {
  hec_text_printf(out, "%" PRId32 " tokens per GPU, non-MoE time x%g, skew %g, NIC x%g", inputs->tokens,
                  inputs->moe.nonmoe_scale, inputs->sigma, inputs->nic_share);
  add_choice(out, "m", inputs->m);
  add_choice(out, "t", inputs->t);
  hec_text_add(out, inputs->drift ? ", drift as measured by LAER-MoE" : ", no drift");
}

/* ours / paper as a factor, of the farther end. */
static void add_difference(hec_text *out, const hec_published_row *row, hec_span ours) {
  if (row->kind != HEC_ROW_NUMBER) {
    hec_text_add(out, "");
    return;
  }
  double low = ours.low / row->paper.low, high = ours.high / row->paper.high;
  bool one = row->paper.low == row->paper.high;
  hec_text_add(out, "x");
  add_number(out, low);
  if (one || isnan(high))
    return;
  hec_text_add(out, ", x");
  add_number(out, high);
}

static const char *verdict_text(hec_verdict verdict, const hec_published_row *row) {
  if (verdict == HEC_AGREES)
    return "yes";
  if (verdict == HEC_DISAGREES)
    return "**no**";
  return row->kind == HEC_ROW_INFO ? "" : "undefined";
}

/* ---- the table ---- */

static void add_row(const hec_published *p, const hec_published_table *table, int32_t i, hec_text *out) {
  const hec_published_row *row = &p->row[i];
  hec_text_printf(out, "| `%s` | %s | %s | %s |", row->key, row->quantity, row->where, row->paper_text);
  for (int32_t k = 0; k < HEC_N_LOADS; k++) {
    if (k == HEC_LOADS_RECORDED && !p->recorded)
      continue;
    const hec_published_value *value = &table->value[k][i];
    hec_text_add(out, " ");
    add_span(out, value->ours);
    hec_text_add(out, " | ");
    add_difference(out, row, value->ours);
    hec_text_printf(out, " | %s |", verdict_text(value->verdict, row));
  }
  hec_text_printf(out, " %s | ", row->inputs);
  add_span(out, table->moved[i]);
  if (table->moved_by[i])
    hec_text_printf(out, ", most by %s", table->moved_by[i]);
  hec_text_add(out, " |\n");
}

static void add_table(const hec_published *p, const hec_published_table *table, hec_text *out) {
  hec_text_add(out, "| row | quantity | where | paper | synthetic | / paper | sign agrees |");
  if (p->recorded)
    hec_text_add(out, " recorded | / paper | sign agrees |");
  hec_text_add(out, " unknown inputs | synthetic, one input changed |\n|---|---|---|---|---|---|---|");
  hec_text_add(out, p->recorded ? "---|---|---|---|---|\n" : "---|---|\n");
  for (int32_t i = 0; i < p->n_rows; i++)
    add_row(p, table, i, out);
  for (int32_t k = 0; k < HEC_N_LOADS; k++)
    if (k == HEC_LOADS_SYNTHETIC || p->recorded)
      hec_text_printf(out, "\n%s loads: objective %.3f (a factor of %.2f on average); signs: %d agree, %d do not.",
                      hec_loads_name[k], table->objective[k], exp(table->objective[k]), table->agree[k],
                      table->disagree[k]);
  hec_text_add(out, "\n");
}

static bool disagrees(const hec_published *p, const hec_published_table *table, int32_t row) {
  return table->value[HEC_LOADS_SYNTHETIC][row].verdict == HEC_DISAGREES ||
         (p->recorded && table->value[HEC_LOADS_RECORDED][row].verdict == HEC_DISAGREES);
}

/* Under which changes of one input the sign is the paper's: what the disagreement may come from, as far as this run can
 * tell. */
static void add_agreeing(const hec_published *p, const hec_published_table *table, int32_t i, hec_text *out) {
  int32_t n = 0, n_formed = 0;
  for (int32_t k = 1; k < table->n_changes; k++) {
    hec_verdict verdict = hec_row_verdict(&p->row[i], table->change[k].ours[i]);
    n_formed += verdict != HEC_UNDEFINED;
    if (verdict == HEC_AGREES)
      hec_text_printf(out, "%s%s", n++ > 0 ? "; " : "; on synthetic loads it agrees with one input changed: ",
                      table->change[k].change);
  }
  if (n_formed == 0)
    hec_text_add(out, "; no change of one input was run for it");
  else if (n == 0)
    hec_text_printf(out, "; of %" PRId32 " changes of one input, on synthetic loads, none makes it agree", n_formed);
}

static void add_disagreeing(const hec_published *p, const hec_published_table *table, hec_text *out) {
  bool first = true;
  for (int32_t i = 0; i < p->n_rows; i++) {
    const hec_published_row *row = &p->row[i];
    if (!disagrees(p, table, i))
      continue;
    if (first)
      hec_text_add(out, "\nWhere the sign does not agree:\n\n");
    first = false;
    hec_text_printf(out, "- `%s` (%s): the paper says %s, here it is ", row->key, row->where, row->paper_text);
    add_span(out, table->value[HEC_LOADS_SYNTHETIC][i].ours);
    if (p->recorded) {
      hec_text_add(out, " on synthetic loads and ");
      add_span(out, table->value[HEC_LOADS_RECORDED][i].ours);
      hec_text_add(out, " on recorded ones");
    }
    add_agreeing(p, table, i, out);
    hec_text_add(out, ".\n");
  }
}

static void add_no_fit(const hec_published_table *table, hec_text *out) {
  if (table->n_no_fit == 0) {
    hec_text_add(out, "\nEverything fits into the memory of a GPU.\n");
    return;
  }
  hec_text_add(out, "\nDoes not fit into the memory of a GPU (its time is shown all the same):\n\n");
  for (int32_t i = 0; i < table->n_no_fit; i++) {
    const hec_published_no_fit *one = &table->no_fit[i];
    hec_text_printf(out, "- %s on %s, %s loads, %s", one->setup.model, one->setup.setting, hec_loads_name[one->loads],
                    one->setup.policy);
    if (one->setup.tokens != table->inputs.tokens)
      hec_text_printf(out, ", %" PRId32 " tokens per GPU", one->setup.tokens);
    hec_text_printf(out, ": %.1f GB\n", one->peak_bytes * 1e-9);
  }
}

static void add_cases(const hec_published *p, const hec_published_table *table, hec_text *out) {
  hec_text_add(
      out,
      "\nBehind the ratios, milliseconds an iteration; t and m as they came out:\n\n| loads | where | model | EP | "
      "EP balanced | best rearrangement | Hecate | overload EP | overload Hecate | t | m |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (int32_t k = 0; k <= (int32_t)p->recorded; k++)
    for (int32_t i = 0; i < table->n_cases; i++) {
      const hec_published_case *one = &table->cases[k][i];
      hec_text_printf(out, "| %s | %s | %s | %.1f | %.1f | %.1f %s | %.1f | %.2f | %.2f | %" PRId32, hec_loads_name[k],
                      one->setting, one->model, one->ep_s * 1e3, one->balanced_s * 1e3, one->best_s * 1e3, one->best,
                      one->hecate_s * 1e3, one->ep_overload, one->hecate_overload, one->t_least);
      if (one->t_most != one->t_least)
        hec_text_printf(out, "-%" PRId32, one->t_most);
      hec_text_printf(out, " | %" PRId32 " |\n", one->m);
    }
}

/* ---- sensitivity ---- */

static void add_sensitivity(const hec_published *p, const hec_published_table *table, hec_text *out) {
  hec_text_add(out,
               "\nOne input changed at a time (synthetic loads, shorter runs; all rows are in the JSON):\n\n| change "
               "| objective | signs that agree |");
  for (int32_t k = 0; k < p->n_rows; k++)
    if (p->row[k].followed)
      hec_text_printf(out, " `%s` |", p->row[k].key);
  hec_text_add(out, "\n|---|---|---|");
  for (int32_t k = 0; k < p->n_rows; k++)
    hec_text_add(out, p->row[k].followed ? "---|" : "");
  hec_text_add(out, "\n");
  for (int32_t i = 0; i < table->n_changes; i++) {
    const hec_published_change *change = &table->change[i];
    hec_text_printf(out, "| %s | %.3f | %d |", change->change, change->objective, change->signs_agree);
    for (int32_t k = 0; k < p->n_rows; k++) {
      if (!p->row[k].followed)
        continue;
      hec_text_add(out, " ");
      add_span(out, change->ours[k]);
      hec_text_add(out, " |");
    }
    hec_text_add(out, "\n");
  }
}

/* ---- the grid ---- */

static void add_grid(const hec_published *p, hec_text *out) {
  hec_text_printf(
      out,
      "\n## The search\n\nAll %d sets, full grid. Objective: mean over the rows with a number (without those "
      "of long runs: re-sharding, SmartMoE's period, full Hecate over materialisation alone) of |ln(ours / "
      "paper)|, on synthetic loads; a ratio that could not be formed counts as ln 10; sets under which plain "
      "expert parallelism does not fit into a GPU are left out.\n\n| tokens per GPU | non-MoE time | skew | "
      "objective |\n|---|---|---|---|\n",
      p->n_grid);
  for (int32_t i = 0; i < p->n_grid; i++) {
    const hec_grid_point *point = &p->grid[i];
    hec_text_printf(out, "| %" PRId32 " | x%g | %g | ", point->inputs.tokens, point->inputs.moe.nonmoe_scale,
                    point->inputs.sigma);
    if (point->fits)
      hec_text_printf(out, "%.3f%s |\n", point->objective, i == p->best ? " **best**" : "");
    else
      hec_text_add(out, "does not fit |\n");
  }
}

/* ---- all ---- */

static void add_heading(const hec_published *p, hec_text *out) {
  hec_text_add(out, "# The published numbers of FSSDP, simulated\n\n");
  if (p->options.stamp)
    hec_text_printf(out, "%s.\n\n", p->options.stamp);
  hec_text_printf(
      out,
      "Paper: arXiv 2502.02581v1. Clusters: A = %s, B = %s; every time is simulated (law alpha_beta), nothing is "
      "measured. Every value is a ratio of means over iterations. *Where*: cluster and number of GPUs. *Sign agrees*: "
      "ours and the paper's are on one side of 1. *Best rearrangement*: the fastest of FasterMoE, SmartMoE and FlexMoE "
      "there. *Unknown inputs*: what the paper leaves open and the row depends on (skew of the loads, share of the NIC "
      "that is reached, factor on non-MoE time; t: experts copied before the gate, m: copies a rank has room for). "
      "*Objective*: mean over rows of |ln(ours / paper)|. "
      "*Synthetic* loads: log-normal popularity with drift, seed %" PRIu64 ", made by this program. ",
      p->options.cluster_a, p->options.cluster_b, p->options.seed);
  if (p->recorded)
    hec_text_printf(
        out,
        "*Recorded* loads: %s, every %" PRId64 "th iteration, scaled to the tokens of the set-up; 64 experts are "
        "two recorded layers of 32 side by side, half of the tokens each (no recorded trace has 64 experts on "
        "32 GPUs). ",
        p->trace_name, p->trace_stride);
  else
    hec_text_add(out, "No recorded trace was given or found: synthetic loads only. ");
  hec_text_printf(
      out,
      "Iterations: %d, the first %d not reported; rows of long runs (periods) %d and %d; search and changed "
      "inputs %d and %d.%s\n",
      p->plain.iterations, p->plain.warmup, p->longer.iterations, p->longer.warmup, p->search.iterations,
      p->search.warmup, p->options.quick ? " **Quick run: two models, no meaning but for tests.**" : "");
}

static void add_readings(const hec_published *p, hec_text *out) {
  hec_text_add(out,
               "\n## What is our reading\n\nThe paper leaves these open; each row takes the reading named here.\n\n");
  for (int32_t i = 0; i < p->n_rows; i++)
    if (p->row[i].reading)
      hec_text_printf(out, "- `%s` (%s): %s.\n", p->row[i].key, p->row[i].where, p->row[i].reading);
}

void hec_published_markdown(const hec_published *p, hec_text *out) {
  static const char *const title[] = {"Inputs as the paper states them, unknown ones at plain defaults",
                                      "The best single set of unknown inputs"};
  add_heading(p, out);
  for (int32_t i = 0; i < 2; i++) {
    hec_text_printf(out, "\n## %s\n\n", title[i]);
    hec_published_describe(&p->table[i].inputs, out);
    hec_text_add(out, ".\n\n");
    add_table(p, &p->table[i], out);
    add_disagreeing(p, &p->table[i], out);
    add_no_fit(&p->table[i], out);
    add_cases(p, &p->table[i], out);
    add_sensitivity(p, &p->table[i], out);
  }
  add_grid(p, out);
  add_readings(p, out);
}
