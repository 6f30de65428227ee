/* The report of the paper's rows; the form for programs is in published.h. */
#include "runtime/plan/problem.h"
#include "validate/published/published.h"

#include <inttypes.h>
#include <math.h>

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

static const char *number(hec_doc *doc, double value) {
  return isnan(value) ? "n/a" : hec_doc_text(doc, value >= 100 ? "%.0f" : value >= 10 ? "%.1f" : "%.3f", value);
}

static const char *span(hec_doc *doc, hec_span of) {
  if (of.low == of.high || (isnan(of.low) && isnan(of.high)))
    return number(doc, of.low);
  return hec_doc_text(doc, "%s-%s", number(doc, of.low), number(doc, of.high));
}

/* ours / paper as a factor, of both ends. */
static const char *difference(hec_doc *doc, const hec_published_row *row, hec_span ours) {
  double low = ours.low / row->paper.low, high = ours.high / row->paper.high;
  if (row->kind != HEC_ROW_NUMBER)
    return "";
  if (row->paper.low == row->paper.high || isnan(high))
    return hec_doc_text(doc, "x%s", number(doc, low));
  return hec_doc_text(doc, "x%s, x%s", number(doc, low), number(doc, high));
}

static const char *verdict_text(hec_verdict verdict, const hec_published_row *row) {
  if (verdict == HEC_AGREES)
    return "yes";
  if (verdict == HEC_DISAGREES)
    return "**no**";
  return row->kind == HEC_ROW_INFO ? "" : "undefined";
}

/* ---- Inputs ---- */

static hec_value choice(const char *key, int32_t value) {
  if (value == HEC_AUTO || value == HEC_T_PAPER)
    return HEC_KEEP(key, value == HEC_AUTO ? "auto" : "paper");
  return HEC_KEEP(key, value);
}

#define KEEP_INPUTS(in)                                                                                                \
  HEC_OBJECT("inputs", HEC_KEEP("tokens", (in)->tokens), HEC_KEEP("nonmoe_scale", (in)->moe.nonmoe_scale),             \
             HEC_KEEP("skew", (in)->sigma), HEC_KEEP("nic_share", (in)->nic_share), choice("m", (in)->m),              \
             choice("t", (in)->t), HEC_KEEP("drift", (in)->drift))

/* ---- The table ---- */

static const char *const sign[] = {"agrees", "disagrees", "undefined"};
#define KEEP_VALUE(k, value)                                                                                           \
  HEC_OBJECT(k, hec_value_pair("ours", (value)->ours.low, (value)->ours.high),                                         \
             HEC_KEEP("distance", (value)->distance), HEC_KEEP("sign", sign[(value)->verdict]))

static void add_row(hec_doc *doc, const hec_published *p, const hec_published_table *table, int32_t i) {
  static const char *const kind[] = {"number", "sign", "info"};
  const hec_published_row *row = &p->row[i];
  const hec_published_value *value[HEC_N_LOADS];
  for (int32_t k = 0; k < HEC_N_LOADS; k++)
    value[k] = &table->value[k][i];
  HEC_ROW(doc, HEC_KEEP("key", row->key), HEC_CELL(hec_doc_text(doc, "`%s`", row->key)),
          HEC_SHOW("quantity", HEC_AS_IS, row->quantity), HEC_SHOW("where", HEC_AS_IS, row->where),
          HEC_KEEP("kind", kind[row->kind]),
          row->kind == HEC_ROW_NUMBER ? hec_value_pair("paper", row->paper.low, row->paper.high)
                                      : hec_value_text("paper", HEC_NOT, NULL),
          HEC_SHOW("paper_text", HEC_AS_IS, row->paper_text), HEC_KEEP("inputs", row->inputs),
          HEC_KEEP("reading", row->reading), KEEP_VALUE("synthetic", value[HEC_LOADS_SYNTHETIC]),
          p->recorded ? KEEP_VALUE("recorded", value[HEC_LOADS_RECORDED]) : hec_value_text("recorded", HEC_NOT, NULL),
          HEC_OBJECT("moves", HEC_KEEP("least", table->moved[i].low), HEC_KEEP("most", table->moved[i].high),
                     HEC_KEEP("most_by", table->moved_by[i])));
  for (int32_t k = 0; k <= (int32_t)p->recorded; k++)
    HEC_ADD(doc, HEC_CELL(span(doc, value[k]->ours)), HEC_CELL(difference(doc, row, value[k]->ours)),
            HEC_CELL(verdict_text(value[k]->verdict, row)));
  HEC_ADD(doc, HEC_CELL(row->inputs),
          HEC_CELL(hec_doc_text(doc, "%s%s%s", span(doc, table->moved[i]), table->moved_by[i] ? ", most by " : "",
                                table->moved_by[i] ? table->moved_by[i] : "")));
}

/* A table is for programs where it has a key, for people where it has heads. */
static void add_rows(hec_doc *doc, const hec_published *p, const hec_published_table *table, const char *key,
                     const char *heads) {
  hec_doc_table(doc, key, heads);
  for (int32_t i = 0; i < p->n_rows; i++)
    add_row(doc, p, table, i);
  hec_doc_end(doc);
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

static void show_disagreeing(hec_doc *doc, const hec_published *p, const hec_published_table *table) {
  hec_text out = {0};
  for (int32_t i = 0; i < p->n_rows; i++) {
    const hec_published_row *row = &p->row[i];
    if (!disagrees(p, table, i))
      continue;
    if (out.length == 0)
      hec_text_add(&out, "Where the sign does not agree:\n\n");
    hec_text_printf(&out, "- `%s` (%s): the paper says %s, here it is %s", row->key, row->where, row->paper_text,
                    span(doc, table->value[HEC_LOADS_SYNTHETIC][i].ours));
    if (p->recorded)
      hec_text_printf(&out, " on synthetic loads and %s on recorded ones",
                      span(doc, table->value[HEC_LOADS_RECORDED][i].ours));
    add_agreeing(p, table, i, &out);
    hec_text_add(&out, ".\n");
  }
  hec_doc_take(doc, &out);
}

static void keep_no_fit(hec_doc *doc, const hec_published_table *table) {
  hec_doc_table(doc, "no_fit", NULL);
  for (const hec_published_no_fit *one = table->no_fit; one < table->no_fit + table->n_no_fit; one++)
    HEC_ROW(doc, HEC_KEEP("loads", hec_loads_name[one->loads]), HEC_KEEP("setting", one->setup.setting),
            HEC_KEEP("model", one->setup.model), HEC_KEEP("policy", one->setup.policy),
            one->setup.tokens != table->inputs.tokens ? HEC_KEEP("tokens", one->setup.tokens)
                                                      : hec_value_text("tokens", HEC_NOT, NULL),
            HEC_KEEP("peak_gb", one->peak_bytes * 1e-9));
  hec_doc_end(doc);
}

static void show_no_fit(hec_doc *doc, const hec_published_table *table) {
  hec_text out = {0};
  hec_text_add(&out, table->n_no_fit == 0
                         ? "Everything fits into the memory of a GPU."
                         : "Does not fit into the memory of a GPU (its time is shown all the same):\n\n");
  for (const hec_published_no_fit *one = table->no_fit; one < table->no_fit + table->n_no_fit; one++) {
    hec_text_printf(&out, "- %s on %s, %s loads, %s", one->setup.model, one->setup.setting, hec_loads_name[one->loads],
                    one->setup.policy);
    if (one->setup.tokens != table->inputs.tokens)
      hec_text_printf(&out, ", %" PRId32 " tokens per GPU", one->setup.tokens);
    hec_text_printf(&out, ": %.1f GB\n", one->peak_bytes * 1e-9);
  }
  hec_doc_take(doc, &out);
}

static void add_cases(hec_doc *doc, const hec_published *p, const hec_published_table *table, const char *key,
                      const char *heads) {
  hec_doc_table(doc, key, heads);
  for (int32_t k = 0; k <= (int32_t)p->recorded; k++)
    for (int32_t i = 0; i < table->n_cases; i++) {
      const hec_published_case *one = &table->cases[k][i];
      const double t[] = {one->t_min, one->t_max};
      HEC_ROW(doc, HEC_SHOW("loads", HEC_AS_IS, hec_loads_name[k]), HEC_SHOW("setting", HEC_AS_IS, one->setting),
              HEC_SHOW("model", HEC_AS_IS, one->model), HEC_SHOW("ep_s", HEC_MS1, one->ep_s),
              HEC_SHOW("ep_balanced_s", HEC_MS1, one->balanced_s), HEC_KEEP("best_rearrangement", one->best),
              HEC_KEEP("best_rearrangement_s", one->best_s),
              HEC_CELL(hec_doc_text(doc, "%.1f %s", one->best_s * 1e3, one->best)),
              HEC_SHOW("hecate_s", HEC_MS1, one->hecate_s), HEC_SHOW("ep_overload", HEC_FIXED2, one->ep_overload),
              HEC_SHOW("hecate_overload", HEC_FIXED2, one->hecate_overload), hec_value_reals("t", t, 2),
              HEC_CELL(one->t_max == one->t_min ? hec_doc_text(doc, "%" PRId32, one->t_min)
                                                : hec_doc_text(doc, "%" PRId32 "-%" PRId32, one->t_min, one->t_max)),
              HEC_SHOW("m", HEC_AS_IS, one->m));
    }
  hec_doc_end(doc);
}

static void add_changes(hec_doc *doc, const hec_published *p, const hec_published_table *table, const char *key,
                        const char *heads) {
  hec_doc_table(doc, key, heads);
  for (int32_t i = 0; i < table->n_changes; i++) {
    const hec_published_change *change = &table->change[i];
    hec_value rows[HEC_PUBLISHED_ROWS_MAX];
    int32_t n = 0;
    for (int32_t k = 0; k < p->n_rows; k++)
      if (change->long_runs || !p->row[k].long_run)
        rows[n++] = hec_value_pair(p->row[k].key, change->ours[k].low, change->ours[k].high);
    HEC_ROW(doc, HEC_SHOW("change", HEC_AS_IS, change->change), KEEP_INPUTS(&change->inputs),
            HEC_SHOW("objective", HEC_FIXED, change->objective),
            HEC_SHOW("signs_agree", HEC_AS_IS, change->signs_agree), hec_value_object("rows", rows, n));
    for (int32_t k = 0; k < p->n_rows; k++)
      if (p->row[k].followed)
        HEC_ADD(doc, HEC_CELL(span(doc, change->ours[k])));
  }
  hec_doc_end(doc);
}

static void keep_table(hec_doc *doc, const hec_published *p, const hec_published_table *table) {
  hec_value objective[HEC_N_LOADS], signs[HEC_N_LOADS], counts[HEC_N_LOADS][2];
  int32_t n = p->recorded ? HEC_N_LOADS : 1;
  for (int32_t k = 0; k < n; k++) {
    counts[k][0] = HEC_KEEP("agree", table->agree[k]);
    counts[k][1] = HEC_KEEP("disagree", table->disagree[k]);
    objective[k] = HEC_KEEP(hec_loads_name[k], table->objective[k]);
    signs[k] = hec_value_object(hec_loads_name[k], counts[k], 2);
  }
  HEC_ROW(doc, HEC_KEEP("name", table->name), KEEP_INPUTS(&table->inputs), hec_value_object("objective", objective, n),
          hec_value_object("signs", signs, n));
  add_rows(doc, p, table, "rows", NULL);
  keep_no_fit(doc, table);
  add_cases(doc, p, table, "cases", NULL);
  add_changes(doc, p, table, "sensitivity", NULL);
}

static void show_table(hec_doc *doc, const hec_published *p, const hec_published_table *table, const char *title) {
  HEC_SCOPED(hec_text) heads = {0};
  hec_text text = {0};
  hec_text_printf(&text, "## %s\n\n", title);
  hec_published_describe(&table->inputs, &text);
  hec_text_add(&text, ".");
  hec_doc_take(doc, &text);
  add_rows(doc, p, table, NULL,
           hec_doc_text(doc,
                        "row | quantity | where | paper | synthetic | / paper | sign agrees%s | unknown inputs | "
                        "synthetic, one input changed",
                        p->recorded ? " | recorded | / paper | sign agrees" : ""));
  for (int32_t k = 0; k <= (int32_t)p->recorded; k++)
    hec_text_printf(&text, "%s loads: objective %.3f (a factor of %.2f on average); signs: %d agree, %d do not.\n",
                    hec_loads_name[k], table->objective[k], exp(table->objective[k]), table->agree[k],
                    table->disagree[k]);
  hec_doc_take(doc, &text);
  show_disagreeing(doc, p, table);
  show_no_fit(doc, table);
  hec_doc_note(doc, "Behind the ratios, milliseconds an iteration; t and m as they came out:");
  add_cases(
      doc, p, table, NULL,
      "loads | where | model | EP | EP balanced | best rearrangement | Hecate | overload EP | overload Hecate | t "
      "| m");
  hec_doc_note(doc, "One input changed at a time (synthetic loads, shorter runs; all rows are in the JSON):");
  hec_text_add(&heads, "change | objective | signs that agree");
  for (int32_t k = 0; k < p->n_rows; k++)
    if (p->row[k].followed)
      hec_text_printf(&heads, " | `%s`", p->row[k].key);
  add_changes(doc, p, table, NULL, heads.data);
}

/* ---- All ---- */

static void add_grid(hec_doc *doc, const hec_published *p) {
  hec_doc_note(doc,
               "## The search\n\nAll %d sets, full grid. Objective: mean over the rows with a number (without those of "
               "long runs: re-sharding, SmartMoE's period, full Hecate over materialisation alone) of |ln(ours / "
               "paper)|, on synthetic loads; a ratio that could not be formed counts as ln 10; sets under which plain "
               "expert parallelism does not fit into a GPU are left out.",
               p->n_grid);
  hec_doc_table(doc, "grid", "tokens per GPU | non-MoE time | skew | objective");
  for (int32_t i = 0; i < p->n_grid; i++) {
    const hec_grid_point *point = &p->grid[i];
    HEC_ROW(doc, KEEP_INPUTS(&point->inputs), HEC_KEEP("objective", point->objective), HEC_KEEP("fits", point->fits),
            HEC_SHOW(NULL, HEC_AS_IS, point->inputs.tokens),
            HEC_CELL(hec_doc_text(doc, "x%g", point->inputs.moe.nonmoe_scale)),
            HEC_CELL(hec_doc_text(doc, "%g", point->inputs.sigma)),
            HEC_CELL(point->fits ? hec_doc_text(doc, "%.3f%s", point->objective, i == p->best ? " **best**" : "")
                                 : "does not fit"));
  }
  hec_doc_end(doc);
}

static void keep_head(hec_doc *doc, const hec_published *p) {
  HEC_ADD(doc, HEC_KEEP("version", 1), HEC_KEEP("paper", "arXiv 2502.02581v1"),
          HEC_KEEP("stamp", p->options.stamp ? p->options.stamp : ""),
          HEC_OBJECT("clusters", HEC_KEEP("a", p->options.cluster_a), HEC_KEEP("b", p->options.cluster_b)),
          p->recorded ? HEC_OBJECT("trace", HEC_KEEP("name", p->trace_name), HEC_KEEP("stride", p->trace_stride))
                      : hec_value_text("trace", HEC_NOT, NULL),
          HEC_KEEP("seed", (int64_t)p->options.seed), HEC_KEEP("quick", p->options.quick),
          HEC_OBJECT("iterations", HEC_KEEP("reported", p->plain.iterations - p->plain.warmup),
                     HEC_KEEP("warmup", p->plain.warmup), HEC_KEEP("sweep", p->longer.iterations),
                     HEC_KEEP("sweep_warmup", p->longer.warmup), HEC_KEEP("search", p->search.iterations),
                     HEC_KEEP("search_warmup", p->search.warmup)));
}

static void show_heading(hec_doc *doc, const hec_published *p) {
  hec_text text = {0}, *out = &text;
  hec_doc_note(doc, "# The published numbers of FSSDP, simulated");
  if (p->options.stamp)
    hec_doc_note(doc, "%s.", p->options.stamp);
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
  hec_doc_take(doc, out);
}

static void show_readings(hec_doc *doc, const hec_published *p) {
  hec_text text = {0};
  hec_text_add(&text,
               "## What is our reading\n\nThe paper leaves these open; each row takes the reading named here.\n\n");
  for (int32_t i = 0; i < p->n_rows; i++)
    if (p->row[i].reading)
      hec_text_printf(&text, "- `%s` (%s): %s.\n", p->row[i].key, p->row[i].where, p->row[i].reading);
  hec_doc_take(doc, &text);
}

void hec_published_report(const void *published, hec_doc *doc) {
  const hec_published *p = published;
  keep_head(doc, p);
  show_heading(doc, p);
  hec_doc_table(doc, "tables", NULL);
  for (int32_t i = 0; i < 2; i++)
    keep_table(doc, p, &p->table[i]);
  hec_doc_end(doc);
  show_table(doc, p, &p->table[0], "Inputs as the paper states them, unknown ones at plain defaults");
  show_table(doc, p, &p->table[1], "The best single set of unknown inputs");
  add_grid(doc, p);
  HEC_ADD(doc, HEC_KEEP("best", p->best));
  show_readings(doc, p);
}
