/* The report as Markdown; for a terminal it goes through validate/plain.h. */
#include "validate/hardware/hardware.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void add_percent(hec_text *out, double value) {
  if (isnan(value))
    hec_text_add(out, "n/a");
  else
    hec_text_printf(out, "%.1f %%", 100 * value);
}

static void add_signed(hec_text *out, double value) {
  if (isnan(value))
    hec_text_add(out, "n/a");
  else
    hec_text_printf(out, "%+.1f %%", 100 * value);
}

static void add_seconds(hec_text *out, double seconds) {
  if (seconds >= 1)
    hec_text_printf(out, "%.4g s", seconds);
  else if (seconds >= 1e-3)
    hec_text_printf(out, "%.4g ms", seconds * 1e3);
  else
    hec_text_printf(out, "%.4g us", seconds * 1e6);
}

static void add_bytes(hec_text *out, int64_t bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  double value = (double)bytes;
  for (; value >= 1024 && unit < 5; unit++)
    value /= 1024;
  hec_text_printf(out, "%.4g %s", value, units[unit]);
}

/* Text of a foreign file in a table: no control characters, no cell ends. */
static void add_cell(hec_text *out, const char *text) {
  size_t begin = out->length;
  hec_text_add_plain(out, text);
  for (size_t i = begin; i < out->length; i++)
    if (out->data[i] == '|')
      out->data[i] = '/';
}

static void add_value(hec_text *out, const hec_hardware_line *line, int k) {
  if (line->at_least)
    hec_text_printf(out, "%.3f", line->value[k]);
  else
    add_percent(out, line->value[k]);
}

static void add_required(const hec_hardware *h, hec_text *out) {
  hec_text_add(
      out, "## Required\n\n| group | what | rows | all rows | without upper bounds | tau of size alone | required | "
           "verdict |\n|---|---|---|---|---|---|---|---|\n");
  for (int32_t i = 0; i < h->n_lines; i++) {
    const hec_hardware_line *line = &h->lines[i];
    hec_text_add(out, "| ");
    add_cell(out, line->group);
    hec_text_printf(out, " | %s | %" PRId32 " | ", line->what, line->rows);
    add_value(out, line, 0);
    hec_text_add(out, " | ");
    add_value(out, line, 1);
    if (line->at_least)
      hec_text_printf(out, " | %.3f | at least %.2g", line->size[0], line->limit);
    else
      hec_text_printf(out, " | | at most %.0f %%", 100 * line->limit);
    hec_text_printf(out, " | %s |\n", line->passed ? "holds" : "**does not hold**");
  }
  hec_text_printf(out, "\n%s\n\n",
                  h->passed ? "Everything required holds, whether upper bounds count or not."
                            : "**Not everything required holds.**");
}

static void add_errors(hec_text *out, hec_error error) {
  hec_text_printf(out, " %" PRId32 " |", error.n);
  const double values[] = {error.median, error.p90, error.worst};
  for (int i = 0; i < 3; i++) {
    hec_text_add(out, " ");
    add_percent(out, error.n > 0 ? values[i] : NAN);
    hec_text_add(out, " |");
  }
  hec_text_add(out, " ");
  add_signed(out, error.n > 0 ? error.bias : NAN);
  hec_text_add(out, " |");
}

static void add_group_line(hec_text *out, const char *name, const char *which, double tau, hec_error error) {
  hec_text_add(out, "| ");
  add_cell(out, name);
  hec_text_printf(out, " | %s |", which);
  if (isnan(tau))
    hec_text_add(out, " |");
  else
    hec_text_printf(out, " %.3f |", tau);
  add_errors(out, error);
  hec_text_add(out, "\n");
}

static void add_groups(const hec_hardware *h, hec_text *out) {
  hec_text_add(
      out, "## Errors by group\n\nError: |predicted / measured - 1|; bias: the median of predicted / measured - 1.\n\n"
           "| group | rows | Kendall tau | n | median | p90 | worst | bias |\n"
           "|---|---|---|---|---|---|---|---|\n");
  for (int32_t g = 0; g < h->n_groups; g++) {
    const hec_hardware_group *group = &h->groups[g];
    add_group_line(out, group->name, "all", group->tau[0], group->error[0]);
    if (group->larges > 0 && group->larges < group->rows)
      add_group_line(out, group->name, "large", NAN, group->large_error[0]);
    if (group->bounds == 0)
      continue;
    add_group_line(out, group->name, "all without upper bounds", group->tau[1], group->error[1]);
    if (group->larges > 0 && group->larges < group->rows)
      add_group_line(out, group->name, "large without upper bounds", NAN, group->large_error[1]);
  }
  hec_text_add(out, "\n");
}

static void add_size(hec_text *out, const hec_hardware_row *row) {
  if (row->kind == HEC_HARDWARE_GEMM)
    hec_text_printf(out, "%" PRId64 " x %" PRId64 " x %" PRId64 ", %.3g FLOP", row->m, row->n, row->k, row->flops);
  else if (row->kind == HEC_HARDWARE_MOE)
    hec_text_printf(out, "%" PRId64 " tokens, top-%" PRId64 " of %" PRId64 ", %" PRId64 " x %" PRId64 ", %.3g FLOP",
                    row->tokens, row->top_k, row->experts, row->hidden, row->ffn, row->flops);
  else
    add_bytes(out, row->bytes);
}

static const char *remark(const hec_hardware_row *row) {
  if (!row->bound)
    return "";
  return row->predicted_s <= row->measured_s ? "upper bound" : "upper bound, and the law is above it";
}

static void add_row(hec_text *out, const hec_hardware_row *row) {
  hec_text_add(out, "| ");
  add_cell(out, row->id);
  hec_text_add(out, " | ");
  add_cell(out, row->what);
  hec_text_add(out, " | ");
  add_cell(out, row->hardware);
  hec_text_add(out, " | ");
  add_cell(out, row->cluster);
  hec_text_printf(out, " | %" PRId32 " on %" PRId32 " | ", row->ranks, row->nodes);
  add_size(out, row);
  hec_text_add(out, " | ");
  add_seconds(out, row->measured_s);
  hec_text_add(out, " | ");
  add_seconds(out, row->predicted_s);
  hec_text_add(out, " | ");
  add_signed(out, row->predicted_s / row->measured_s - 1);
  hec_text_printf(out, " | %s%s%s |\n", row->large ? "large" : "", row->large && row->bound ? ", " : "", remark(row));
}

static void add_rows(const hec_hardware *h, hec_text *out) {
  for (int32_t g = 0; g < h->n_groups; g++) {
    hec_text_add(out, "## ");
    add_cell(out, h->groups[g].name);
    hec_text_add(
        out,
        "\n\n| id | what | hardware | priced with | ranks on nodes | size | measured | predicted | error | remark |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n");
    for (int32_t i = 0; i < h->n_rows; i++)
      if (strcmp(h->rows[i].group, h->groups[g].name) == 0)
        add_row(out, &h->rows[i]);
    hec_text_add(out, "\n");
  }
}

static void add_sources(const hec_hardware *h, hec_text *out) {
  hec_text_add(out, "## Who measured\n\n");
  for (int32_t i = 0; i < h->n_rows; i++) {
    bool seen = false;
    for (int32_t j = 0; j < i && !seen; j++)
      seen = strcmp(h->rows[j].source, h->rows[i].source) == 0;
    if (seen || h->rows[i].source[0] == '\0')
      continue;
    hec_text_add(out, "- ");
    hec_text_add_plain(out, h->rows[i].source);
    hec_text_add(out, "\n");
  }
}

/* What the columns and the laws are. */
static void add_meaning(const hec_hardware *hardware, hec_text *out) {
  hec_text_add(out, "## What is compared\n\nMeasurements: ");
  hec_text_add_plain(out, hardware->file);
  hec_text_printf(
      out,
      ", %" PRId32
      " rows that others measured. Predictions: the link law and the GEMM law with presets alone; no constant "
      "is fitted to these rows, and `sources` in each preset names where its numbers are from. Large: messages of 64 "
      "MiB "
      "and more, dense GEMMs of 1e11 FLOP and more. Upper bound: the row's own notes call it slow, so the hardware can "
      "do "
      "better; what is required is formed with and without such rows, and both must hold. Bytes: " HEC_HARDWARE_BYTES
      ". All-to-all, all-gather and reduce-scatter share one law: every rank sends bytes / ranks to every other; "
      "all-reduce "
      "is a ring. Tau of size alone: Kendall tau of the rows ranked by bytes or FLOP only; where that is as high, tau "
      "says "
      "nothing of the law.\n\nNot in the laws: the start of a collective (small messages come out too fast), trees "
      "(NCCL "
      "takes one on two nodes, which may beat the ring priced here), what fused MoE kernels lose against dense "
      "GEMMs.\n\n",
      hardware->n_rows);
}

void hec_hardware_markdown(const hec_hardware *hardware, bool details, hec_text *out) {
  hec_text_add(out, "# Laws against measured hardware\n\n");
  if (hardware->stamp)
    hec_text_printf(out, "%s\n\n", hardware->stamp);
  hec_hardware_verdict(hardware, out);
  add_required(hardware, out);
  add_groups(hardware, out);
  add_meaning(hardware, out);
  if (!details)
    return;
  add_rows(hardware, out);
  add_sources(hardware, out);
}
