/* The report of the systems as Markdown, and the list of them. Losses stand as losses. */
#include "validate/published/system.h"

#include <inttypes.h>
#include <math.h>

static void add_number(hec_text *out, double value) {
  double size = fabs(value);
  hec_text_printf(out, size >= 100 ? "%.0f" : size >= 10 ? "%.1f" : size >= 0.1 ? "%.2f" : "%.2g", value);
}

static void add_span(hec_text *out, hec_span span, const char *unit) {
  add_number(out, span.low);
  if (span.high != span.low) {
    hec_text_add(out, "-");
    add_number(out, span.high);
  }
  hec_text_printf(out, "%s%s", *unit && *unit != 'x' ? " " : "", unit);
}

static const char *const winner_text[] = {"", "same", "**other**", "open"};

static void add_row(hec_text *out, const hec_system_row *row, int32_t number) {
  hec_text_printf(out, "| %" PRId32 " | %s | ", number, row->quantity);
  add_span(out, row->published, row->unit);
  hec_text_add(out, " | ");
  if (row->skipped) {
    hec_text_add(out, "skipped | | | |\n");
    return;
  }
  add_span(out, row->ours, row->unit);
  hec_text_printf(out, " | %.2f | %s | ", hec_system_ratio(row), winner_text[hec_system_winner(row)]);
  if (row->moved_by) {
    add_span(out, row->moves, row->unit);
    hec_text_printf(out, " (%s)", row->moved_by);
  }
  hec_text_add(out, " |\n");
}

static void add_summary(hec_text *out, const char *whose, hec_system_summary sum) {
  hec_text_printf(out,
                  "%s: of %" PRId32 " numbers %" PRId32 " compared (%" PRId32 " skipped); within 10 %%: %" PRId32
                  ", within 25 %%: %" PRId32 "; who wins: %" PRId32 " of %" PRId32
                  " the same; in the range tried: %" PRId32 " of %" PRId32 ".\n",
                  whose, sum.numbers, sum.compared, sum.skipped, sum.within_10, sum.within_25, sum.winners_same,
                  sum.winners, sum.reached, sum.varied);
}

static void add_overview_row(hec_text *out, const char *name, hec_system_summary sum) {
  hec_text_printf(out,
                  "| %s | %" PRId32 " | %" PRId32 " | %" PRId32 " | %" PRId32 " | %" PRId32 " of %" PRId32 " | %" PRId32
                  " of %" PRId32 " |\n",
                  name, sum.numbers, sum.skipped, sum.within_10, sum.within_25, sum.winners_same, sum.winners,
                  sum.reached, sum.varied);
}

static void add_overview(hec_text *out, const hec_system_report *report) {
  hec_text_add(out,
               "\n| system | numbers | skipped | within 10 % | within 25 % | who wins: the same | in the range tried "
               "|\n|---|---|---|---|---|---|---|\n");
  for (int32_t i = 0; i < report->n_sections; i++)
    add_overview_row(out, report->section[i].file.name, hec_system_sum(report, &report->section[i]));
  add_overview_row(out, "all", hec_system_sum(report, NULL));
}

/* Set-up, source and assumptions of each row; once where the next row has the same. */
static void add_notes(hec_text *out, const hec_system_report *report, int32_t first, int32_t end) {
  for (int32_t i = first; i < end; i++) {
    const hec_system_row *row = &report->row[i];
    int32_t last = i;
    while (last + 1 < end && hec_system_same_notes(row, &report->row[last + 1]))
      last++;
    hec_text_printf(out, "- %" PRId32, i - first + 1);
    if (last > i)
      hec_text_printf(out, " to %" PRId32, last - first + 1);
    hec_text_printf(out, ": %s. Published in: %s.", row->setup, row->source);
    if (*row->assumed)
      hec_text_printf(out, " Assumed: %s.", row->assumed);
    if (row->skipped)
      hec_text_printf(out, " Skipped: %s.", row->skipped);
    hec_text_add(out, "\n");
    i = last;
  }
}

static void add_section(hec_text *out, const hec_system_report *report, const hec_system_section *section) {
  const hec_system_file *file = &section->file;
  hec_text_printf(out,
                  "\n## %s: %s\n\nSource: %s. %s\n\n| | what | published | ours | ours / published | who wins | moves "
                  "|\n|---|---|---|---|---|---|---|\n",
                  file->name, file->title, file->source, file->differs);
  for (int32_t i = section->first; i < section->end; i++)
    add_row(out, &report->row[i], i - section->first + 1);
  hec_text_add(out, "\n");
  add_notes(out, report, section->first, section->end);
  hec_text_add(out, "\n");
  add_summary(out, file->name, hec_system_sum(report, section));
}

void hec_systems_markdown(const hec_system_report *report, hec_text *out) {
  const hec_system_options *options = &report->options;
  hec_text_add(out, "# Published numbers of other systems, simulated\n\n");
  if (options->stamp)
    hec_text_printf(out, "%s.\n\n", options->stamp);
  hec_text_printf(
      out,
      "Every number of ours is simulated (law alpha_beta, unless a system's section says otherwise) with one set of "
      "defaults; nothing is measured, no constant is fitted. Gains (x) are ratios: above 1 the system of the heading "
      "is the faster. "
      "Ours / published takes the geometric middle of ranges. *Moves*: ours over the values tried of what "
      "is not known; *in the range tried*: the published number lies in there. *Who wins*: same, where a gain and its "
      "published number are on one side of 1 (1 %% around it is neither); other, where not; open, where a range of "
      "ours "
      "holds both. *Skipped*: no number of ours, the reason stands below. *Within 10 %%*: ours / published is 0.9 to "
      "1.1. Synthetic loads have seed %" PRIu64 ".%s\n",
      options->seed, options->quick ? " **Quick run: short and small, no meaning but for tests.**" : "");
  add_overview(out, report);
  for (int32_t i = 0; i < report->n_sections; i++)
    add_section(out, report, &report->section[i]);
  hec_text_add(out, "\n");
  add_summary(out, "All", hec_system_sum(report, NULL));
}

/* ---- the list ---- */

static void list_text(hec_text *out, const hec_system_file *file) {
  hec_text words = {0};
  hec_text_printf(&words, "%s; %s", file->title, file->source);
  hec_text_printf(out, "%-13s", file->name);
  hec_text_wrap(out, words.data, 13, 14, 110);
  hec_text_add(out, "\n");
  hec_text_free(&words);
}

static void list_json(hec_json_out *json, const hec_system_file *file) {
  hec_json_object(json, NULL);
  hec_json_string(json, "name", file->name);
  hec_json_string(json, "title", file->title);
  hec_json_string(json, "source", file->source);
  hec_json_close(json);
}

hec_status hec_systems_list(bool json, hec_text *out) {
  static const hec_system hecate = {.name = "hecate"};
  hec_json_out list;
  if (json) {
    list = hec_json_begin(out, 1);
    hec_json_object(&list, NULL);
    hec_json_int(&list, "version", 1);
    hec_json_array(&list, "systems");
  }
  for (const hec_system *system = &hecate, *const *at = hec_systems; system; system = *at++) {
    hec_system_file file;
    HEC_TRY(hec_system_open(system, &file));
    if (json)
      list_json(&list, &file);
    else if (system == &hecate)
      hec_text_printf(out, "%-13s %s, %s (default)\n", file.name, file.title, file.source);
    else
      list_text(out, &file);
    hec_system_close(&file);
  }
  if (json) {
    hec_json_close(&list);
    hec_json_close(&list);
  } else {
    hec_text_add(out, "all           every one of these but hecate\n");
  }
  return HEC_OK;
}
