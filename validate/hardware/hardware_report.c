/* The report: for people the verdict first, then what is required, the errors, and what the columns and the laws are. */
#include "validate/hardware/hardware.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void add_required(const hec_hardware *h, hec_doc *doc) {
  hec_doc_note(doc, "## Required");
  hec_doc_table(doc, "required",
                "group | what | rows | all rows | without upper bounds | tau of size alone | required | verdict");
  for (int32_t i = 0; i < h->n_lines; i++) {
    const hec_hardware_line *line = &h->lines[i];
    hec_value_form form = line->at_least ? HEC_FIXED : HEC_PERCENT;
    HEC_ROW(doc, HEC_SHOW("group", HEC_AS_IS, line->group), HEC_SHOW("what", HEC_AS_IS, line->what),
            HEC_SHOW("rows", HEC_AS_IS, line->rows), HEC_SHOW("value", form, line->value[0]),
            HEC_SHOW("without_bounds", form, line->value[1]),
            line->at_least ? HEC_SHOW(NULL, HEC_FIXED, line->size[0]) : HEC_CELL(NULL),
            HEC_CELL(line->at_least ? hec_doc_text(doc, "at least %.2g", line->limit)
                                    : hec_doc_text(doc, "at most %.0f %%", 100 * line->limit)),
            HEC_KEEP(line->at_least ? "at_least" : "at_most", line->limit), HEC_KEEP("passed", line->passed),
            HEC_CELL(line->passed ? "holds" : "**does not hold**"));
  }
  hec_doc_end(doc);
  hec_doc_note(doc, "%s",
               h->passed ? "Everything required holds, whether upper bounds count or not."
                         : "**Not everything required holds.**");
}

static void show_group(hec_doc *doc, const char *name, const char *which, double tau, hec_error error) {
  bool any = error.n > 0;
  HEC_ROW(doc, HEC_CELL(name), HEC_CELL(which), isnan(tau) ? HEC_CELL(NULL) : HEC_SHOW(NULL, HEC_FIXED, tau),
          HEC_SHOW(NULL, HEC_AS_IS, error.n), HEC_SHOW(NULL, HEC_PERCENT, any ? error.median : NAN),
          HEC_SHOW(NULL, HEC_PERCENT, any ? error.p90 : NAN), HEC_SHOW(NULL, HEC_PERCENT, any ? error.worst : NAN),
          HEC_SHOW(NULL, HEC_SIGNED, any ? error.bias : NAN));
}

static void show_groups(const hec_hardware *h, hec_doc *doc) {
  hec_doc_note(
      doc, "## Errors by group\n\nError: |predicted / measured - 1|; bias: the median of predicted / measured - 1.");
  hec_doc_table(doc, NULL, "group | rows | Kendall tau | n | median | p90 | worst | bias");
  for (int32_t g = 0; g < h->n_groups; g++) {
    const hec_hardware_group *group = &h->groups[g];
    bool mixed = group->larges > 0 && group->larges < group->rows;
    for (int k = 0; k < (group->bounds > 0 ? 2 : 1); k++) {
      show_group(doc, group->name, k == 0 ? "all" : "all without upper bounds", group->tau[k], group->error[k]);
      if (mixed)
        show_group(doc, group->name, k == 0 ? "large" : "large without upper bounds", NAN, group->large_error[k]);
    }
  }
  hec_doc_end(doc);
}

#define KEEP_ERROR(k, error)                                                                                           \
  ((error).n == 0 ? hec_value_text(k, HEC_NOT, NULL)                                                                   \
                  : HEC_OBJECT(k, HEC_KEEP("rows", (error).n), HEC_KEEP_ERROR(error, true)))

static void keep_groups(const hec_hardware *h, hec_doc *doc) {
  hec_doc_table(doc, "groups", NULL);
  for (const hec_hardware_group *g = h->groups; g < h->groups + h->n_groups; g++)
    HEC_ROW(doc, HEC_KEEP("group", g->name), HEC_KEEP("rows", g->rows), HEC_KEEP("bounds", g->bounds),
            HEC_KEEP("large", g->larges), HEC_KEEP("tau", g->tau[0]), HEC_KEEP("tau_without_bounds", g->tau[1]),
            HEC_KEEP("size_tau", g->size_tau[0]), HEC_KEEP("size_tau_without_bounds", g->size_tau[1]),
            KEEP_ERROR("error", g->error[0]), KEEP_ERROR("error_without_bounds", g->error[1]),
            KEEP_ERROR("large_error", g->large_error[0]), KEEP_ERROR("large_error_without_bounds", g->large_error[1]));
  hec_doc_end(doc);
}

static const char *size_of(hec_doc *doc, const hec_hardware_row *row) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = (double)row->bytes;
  int unit = 0;
  for (; value >= 1024 && unit < 5; unit++)
    value /= 1024;
  if (row->kind == HEC_HARDWARE_GEMM)
    return hec_doc_text(doc, "%" PRId64 " x %" PRId64 " x %" PRId64 ", %.3g FLOP", row->m, row->n, row->k, row->flops);
  if (row->kind == HEC_HARDWARE_MOE)
    return hec_doc_text(doc, "%" PRId64 " tokens, top-%" PRId64 " of %" PRId64 ", %" PRId64 " x %" PRId64 ", %.3g FLOP",
                        row->tokens, row->top_k, row->experts, row->hidden, row->ffn, row->flops);
  return hec_doc_text(doc, "%.4g %s", value, units[unit]);
}

static const char *remark(hec_doc *doc, const hec_hardware_row *row) {
  return hec_doc_text(doc, "%s%s%s%s", row->large ? "large" : "", row->large && row->bound ? ", " : "",
                      row->bound ? "upper bound" : "",
                      row->bound && row->predicted_s > row->measured_s ? ", and the law is above it" : "");
}

static void add_row(hec_doc *doc, const hec_hardware_row *row) {
  HEC_ROW(doc, HEC_SHOW("id", HEC_AS_IS, row->id), HEC_KEEP("group", row->group),
          HEC_SHOW("what", HEC_AS_IS, row->what), HEC_SHOW("hardware", HEC_AS_IS, row->hardware),
          HEC_SHOW("cluster", HEC_AS_IS, row->cluster), HEC_KEEP("ranks", row->ranks), HEC_KEEP("nodes", row->nodes),
          HEC_CELL(hec_doc_text(doc, "%" PRId32 " on %" PRId32, row->ranks, row->nodes)),
          row->bytes > 0 ? HEC_KEEP("bytes", row->bytes) : HEC_KEEP("flops", row->flops), HEC_CELL(size_of(doc, row)),
          HEC_SHOW("measured_s", HEC_SECONDS, row->measured_s), HEC_SHOW("predicted_s", HEC_SECONDS, row->predicted_s),
          HEC_SHOW("error", HEC_SIGNED, row->predicted_s / row->measured_s - 1), HEC_KEEP("bound", row->bound),
          HEC_KEEP("large", row->large), HEC_CELL(remark(doc, row)), HEC_KEEP("source", row->source));
}

/* Of one group, for people; of all (NULL), for programs. */
static void add_rows(const hec_hardware *h, const char *group, hec_doc *doc) {
  static const char heads[] =
      "id | what | hardware | priced with | ranks on nodes | size | measured | predicted | error | remark";
  hec_doc_table(doc, group ? NULL : "rows", group ? heads : NULL);
  for (int32_t i = 0; i < h->n_rows; i++)
    if (!group || strcmp(h->rows[i].group, group) == 0)
      add_row(doc, &h->rows[i]);
  hec_doc_end(doc);
}

static void add_sources(const hec_hardware *h, hec_doc *doc) {
  hec_doc_note(doc, "## Who measured");
  hec_doc_list(doc, NULL);
  for (int32_t i = 0; i < h->n_rows; i++) {
    bool seen = h->rows[i].source[0] == '\0';
    for (int32_t j = 0; j < i && !seen; j++)
      seen = strcmp(h->rows[j].source, h->rows[i].source) == 0;
    if (!seen)
      HEC_ADD(doc, HEC_CELL(h->rows[i].source));
  }
  hec_doc_end(doc);
}

/* What the columns and the laws are. */
static void add_meaning(const hec_hardware *hardware, hec_doc *doc) {
  HEC_SCOPED(hec_text) file = {0};
  hec_text_add_plain(&file, hardware->file);
  hec_doc_note(
      doc,
      "## What is compared\n\nMeasurements: %s, %" PRId32
      " rows that others measured. Predictions: the laws of the GPU that each preset names. Inside a node and of GEMMs "
      "their "
      "constants are fitted to tables that most of these rows are from (docs/devices.md has the error of rows not "
      "seen); "
      "between nodes none is fitted to these rows. Large: messages of 64 "
      "MiB and more, dense GEMMs of 1e11 FLOP and more. Upper bound: the row's own notes call it slow, so the hardware "
      "can do better; what is required is formed with and without such rows, and both must hold. "
      "Bytes: " HEC_HARDWARE_BYTES
      ". All-to-all, all-gather and reduce-scatter share one law: every rank sends bytes / ranks to "
      "every other; all-reduce in a node has a law of its own, between nodes it is a ring. Tau of size alone: Kendall "
      "tau of the rows ranked by bytes or FLOP only; "
      "where that is as high, tau says nothing of the law.\n\nNot in the laws: trees (NCCL takes one on "
      "two nodes, which may beat the ring priced here), Triton kernels of MoE layers (priced as CUTLASS's).",
      file.data ? file.data : "", hardware->n_rows);
}

void hec_hardware_report(const void *hardware, hec_doc *doc) {
  const hec_hardware *h = hardware;
  hec_text verdict = {0};
  doc->missing = "n/a";
  HEC_ADD(doc, HEC_KEEP("version", 1), HEC_KEEP("file", h->file), HEC_KEEP("stamp", h->stamp ? h->stamp : ""),
          HEC_KEEP("passed", h->passed));
  hec_doc_note(doc, "# Laws against measured hardware");
  if (h->stamp)
    hec_doc_note(doc, "%s", h->stamp);
  hec_hardware_verdict(h, &verdict);
  hec_doc_take(doc, &verdict);
  add_required(h, doc);
  show_groups(h, doc);
  keep_groups(h, doc);
  add_meaning(h, doc);
  add_rows(h, NULL, doc);
  for (int32_t g = 0; h->details && g < h->n_groups; g++) {
    hec_text name = {0};
    hec_text_add(&name, "## ");
    hec_text_add_plain(&name, h->groups[g].name);
    hec_doc_take(doc, &name);
    add_rows(h, h->groups[g].name, doc);
  }
  if (h->details)
    add_sources(h, doc);
}
