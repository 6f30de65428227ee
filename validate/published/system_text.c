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
  for (int32_t i = 0; hec_systems[i]; i++) {
    hec_system_summary sum = hec_system_sum(report, hec_systems[i]);
    if (sum.numbers > 0)
      add_overview_row(out, hec_systems[i]->name, sum);
  }
  add_overview_row(out, "all", hec_system_sum(report, NULL));
}

/* Set-up, source and assumptions of each row; once where the next row has the same. */
static void add_notes(hec_text *out, const hec_system_report *report, int32_t first, int32_t end) {
  for (int32_t i = first; i < end; i++) {
    const hec_system_row *row = hec_system_at(report, i, NULL);
    int32_t last = i;
    while (last + 1 < end && hec_system_same_notes(row, hec_system_at(report, last + 1, NULL)))
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

static void add_system(hec_text *out, const hec_system_report *report, int32_t first, int32_t end) {
  const hec_system *system;
  hec_system_at(report, first, &system);
  hec_text_printf(out,
                  "\n## %s: %s\n\nSource: %s. %s\n\n| | what | published | ours | ours / published | who wins | moves "
                  "|\n|---|---|---|---|---|---|---|\n",
                  system->name, system->title, system->source, system->differs);
  for (int32_t i = first; i < end; i++)
    add_row(out, hec_system_at(report, i, NULL), i - first + 1);
  hec_text_add(out, "\n");
  add_notes(out, report, first, end);
  hec_text_add(out, "\n");
  add_summary(out, system->name, hec_system_sum(report, system));
}

void hec_systems_markdown(const hec_system_report *report, hec_text *out) {
  const hec_system_options *options = hec_system_options_of(report);
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
  int32_t n = hec_system_count(report);
  for (int32_t first = 0, end; first < n; first = end) {
    const hec_system *system, *next;
    hec_system_at(report, first, &system);
    for (end = first + 1; end < n; end++) {
      hec_system_at(report, end, &next);
      if (next != system)
        break;
    }
    add_system(out, report, first, end);
  }
  hec_text_add(out, "\n");
  add_summary(out, "All", hec_system_sum(report, NULL));
}

static void json_system(hec_json_out *json, const char *name, const char *title, const char *source) {
  hec_json_object(json, NULL);
  hec_json_string(json, "name", name);
  hec_json_string(json, "title", title);
  hec_json_string(json, "source", source);
  hec_json_close(json);
}

void hec_systems_list_json(hec_text *out) {
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  hec_json_int(&json, "version", 1);
  hec_json_array(&json, "systems");
  json_system(&json, "hecate", "the FSSDP paper", "arXiv 2502.02581");
  for (int32_t i = 0; hec_systems[i]; i++)
    json_system(&json, hec_systems[i]->name, hec_systems[i]->title, hec_systems[i]->source);
  hec_json_close(&json);
  hec_json_close(&json);
}

void hec_systems_list(hec_text *out) {
  hec_text_add(out, "hecate        the FSSDP paper, arXiv 2502.02581 (default)\n");
  for (int32_t i = 0; hec_systems[i]; i++) {
    hec_text words = {0};
    hec_text_printf(&words, "%s; %s", hec_systems[i]->title, hec_systems[i]->source);
    hec_text_printf(out, "%-13s", hec_systems[i]->name);
    hec_text_wrap(out, words.data, 13, 14, 110);
    hec_text_add(out, "\n");
    hec_text_free(&words);
  }
  hec_text_add(out, "all           every one of these but hecate\n");
}
