/* What the page says in words: the verdict, what ran where, and what its numbers do not know. */
#include "runtime/program/job.h"
#include "tools/front/page/chart.h"
#include "tools/front/summary/summary_write.h"

#include <inttypes.h>
#include <string.h>

/* Lines as paragraphs, their indent left out. */
static void add_lines(const char *text, hec_text *out) {
  HEC_SCOPED(hec_text) line = {0};
  while (*text) {
    text += strspn(text, " \n");
    size_t n = strcspn(text, "\n");
    line.length = 0;
    hec_text_add_bytes(&line, text, n);
    if (n > 0) {
      hec_text_add(out, "<p>");
      hec_page_add(line.data, out);
      hec_text_add(out, "</p>\n");
    }
    text += n;
  }
}

static void add_fact(const char *word, const char *text, hec_text *out) {
  if (!text || !text[0])
    return;
  hec_text_add(out, "<dt>");
  hec_page_add(word, out);
  hec_text_add(out, "</dt><dd>");
  hec_page_add(text, out);
  hec_text_add(out, "</dd>\n");
}

static void add_job(const hec_summary *summary, hec_text *out) {
  const hec_job *job = summary->job;
  const hec_problem *p = &job->problem;
  HEC_SCOPED(hec_text) text = {0};
  hec_text_printf(&text,
                  "%s: %" PRId32 " MoE layers, %" PRId32 " experts, top-%" PRId32 ", d_model %" PRId32
                  ", d_ffn %" PRId32 ", attention ",
                  job->moe.name, p->n_layers, p->n_experts, p->top_k, job->moe.d_model, job->moe.d_ffn);
  hec_attention_write(job->moe.attention, job->moe.s2, job->moe.n_heads, &text);
  add_fact("model", text.data, out);
  text.length = 0;
  hec_text_printf(&text, "%s: %" PRId32 " rank%s on %" PRId32 " node%s, %s each", job->cluster.name, p->n_ranks,
                  p->n_ranks == 1 ? "" : "s", p->n_nodes, p->n_nodes == 1 ? "" : "s",
                  hec_bytes(hec_summary_memory(summary)).text);
  add_fact(summary->execution ? "planned for" : "cluster", text.data, out);
  text.length = 0;
  hec_text_printf(&text, "%s, %" PRId32 " tokens per rank%s; %" PRId64 " iteration%s",
                  p->train ? "training iteration" : "forward pass", p->tokens,
                  job->micro_batches > 1 ? " and micro-batch" : "", summary->n_iterations,
                  summary->n_iterations == 1 ? "" : "s");
  add_fact("work", text.data, out);
  if (!summary->execution)
    add_fact("network law", summary->law, out);
}

void hec_report_add_machine(const hec_summary_execution *e, hec_text *out) {
  hec_text_printf(out, "%s; backend %s, %s, %" PRId32 " %s", e->cpu, e->backend, e->transport, e->n_ranks_here,
                  e->ranks_are);
  if (e->virtual_time)
    hec_text_add(out, "; virtual time: computing is measured, transfers are imitated");
}

/* What was executed: where, and whether the answers were right. */
static void add_execution(const hec_summary *summary, hec_text *out) {
  HEC_SCOPED(hec_text) text = {0};
  hec_report_add_machine(summary->execution, &text);
  add_fact("machine", text.data, out);
  int32_t n_failed = 0;
  text.length = 0;
  for (int32_t i = 0; i < summary->n_rows; i++)
    if (summary->rows[i].check && !summary->rows[i].check->passed)
      hec_text_printf(&text, "%s%s", n_failed++ ? ", " : "FAILED: ", summary->rows[i].label);
  if (n_failed == 0)
    hec_text_add(&text, summary->rows[0].check ? "passed, all rows, against a dense reference" : "not asked (--check)");
  add_fact("check", text.data, out);
}

static const hec_summary_execution *execution_of(const hec_report *report) {
  return report->summary ? report->summary->execution : NULL;
}

/* What to do and what that gains, a sentence a line. */
static void add_advice(const hec_report *report, hec_text *out) {
  hec_summary_advice(report->summary, "\n", out);
  HEC_SCOPED(hec_text) names = {0};
  if (report->best >= 0)
    hec_summary_name_close(report->summary, report->best, &names);
  if (names.length > 0)
    hec_text_printf(out, "\nPractically as fast (within 0.5 %%): %s.", names.data);
  hec_text_add(out, "\n");
  hec_summary_say_minds(report->summary, out);
  hec_text_add(out, report->summary->job->n_minds > 0 ? "\n" : "");
  hec_summary_say_cross(report->summary, out);
}

static void add_verdict(const hec_report *report, hec_text *out) {
  HEC_SCOPED(hec_text) verdict = {0};
  if (report->verdict)
    hec_text_add(&verdict, report->verdict);
  else if (execution_of(report))
    hec_summary_verdict(report->summary, &verdict);
  else
    add_advice(report, &verdict);
  hec_text_add(out, "<div class=\"verdict\" id=\"verdict\">\n");
  add_lines(verdict.data ? verdict.data : "", out);
  hec_text_add(out, "</div>\n");
}

void hec_page_head(const hec_report *report, hec_text *out) {
  hec_text_add(out, "<p>");
  if (report->synthetic)
    hec_text_add(out, "<span class=\"tag warn\">synthetic loads</span> ");
  hec_text_printf(out, "<span class=\"tag dim\">%s</span></p>\n<div class=\"head\">\n",
                  report->compared       ? "predicted and measured"
                  : execution_of(report) ? "measured"
                                         : "simulated, not measured");
  add_verdict(report, out);
  hec_text_add(out, "<dl>\n");
  if (report->summary)
    add_job(report->summary, out);
  if (execution_of(report))
    add_execution(report->summary, out);
  for (int32_t i = 0; i < report->n_facts; i++)
    add_fact(report->facts[i].word, report->facts[i].text, out);
  hec_text_add(out, "</dl>\n</div>\n");
}

static void begin_list(const char *title, hec_text *out) {
  hec_text_printf(out, "<h3>%s</h3>\n<ul>\n", title);
}

static void add_item(const char *text, hec_text *out) {
  hec_text_add(out, "<li>");
  hec_page_add(text, out);
  hec_text_add(out, "</li>\n");
}

static void add_notes(const hec_summary *summary, hec_text *out) {
  bool some = false;
  for (int32_t i = 0; i < summary->n_rows; i++) {
    const hec_summary_row *row = &summary->rows[i];
    HEC_SCOPED(hec_text) drops = {0}, note = {0};
    if (row->dropped_share >= 0)
      hec_text_printf(&drops, "%s drops %s of the token-expert assignments: its time buys less than the others'.",
                      row->label, hec_percent(row->dropped_share).text);
    if (hec_summary_say_noted(summary, i, &note))
      hec_text_printf(&note, ": %s", row->note);
    if (drops.length + note.length > 0 && !some)
      begin_list("What policies say of themselves", out);
    if (drops.length > 0)
      add_item(drops.data, out);
    if (note.length > 0)
      add_item(note.data, out);
    some = some || drops.length + note.length > 0;
  }
  hec_text_add(out, some ? "</ul>\n" : "");
}

static void add_references(const hec_summary *summary, hec_text *out) {
  HEC_SCOPED(hec_text) names = {0};
  for (int32_t i = 0; i < summary->n_rows; i++)
    if (summary->rows[i].reference)
      hec_text_printf(&names, "%s%s", names.length > 0 ? ", " : "reference rows (", summary->rows[i].label);
  if (names.length > 0) {
    hec_text_add(&names, ") are no systems: they are in the ranking to measure others by");
    add_item(names.data, out);
  }
}

static void add_summary(const hec_report *report, hec_text *out) {
  const hec_summary *summary = report->summary;
  if (summary->not_modelled) {
    begin_list("Not modelled", out);
    add_item(summary->not_modelled, out);
    hec_text_add(out, "</ul>\n");
  }
  begin_list("Assumed", out);
  for (int32_t i = 0; i < summary->job->n_defaults; i++)
    add_item(summary->job->defaults[i], out);
  add_references(summary, out);
  hec_text_add(out, "</ul>\n");
  add_notes(summary, out);
}

void hec_page_assumed(const hec_report *report, hec_text *out) {
  hec_page_section("assumed", "What was assumed, made up or left out", out);
  begin_list("Where the numbers come from", out);
  add_item(report->synthetic
               ? (report->maps
                      ? "loads: some of the traces are synthetic, made by a generator and not recorded in training"
                      : "loads: synthetic, made by a generator; nothing here was recorded in training")
               : "loads: as the trace has them, which calls itself recorded or says nothing",
           out);
  add_item(report->compared
               ? "times: measured on this machine, beside predictions for it; what was imitated stands above"
           : execution_of(report)
               ? "times: measured, of iterations that were executed; on what, and what was imitated, stands above"
               : "times: simulated; nothing was executed, emulated or measured",
           out);
  for (int32_t i = 0; execution_of(report) && i < execution_of(report)->n_limits; i++)
    add_item(execution_of(report)->limits[i], out);
  HEC_SCOPED(hec_text) line = {0};
  for (int32_t i = 0; i < report->n_assumed; i++) {
    line.length = 0;
    hec_text_printf(&line, "%s%s%s", report->assumed[i].word, report->assumed[i].word[0] ? ": " : "",
                    report->assumed[i].text);
    add_item(line.data, out);
  }
  hec_text_add(out, "</ul>\n");
  if (report->summary)
    add_summary(report, out);
  hec_page_section_end(out);
}
