/* The report of the systems, and the list of them. Losses stand as losses. The form for programs is in system.h. */
#include "validate/published/system.h"

#include "runtime/base/value.h"

#include <inttypes.h>
#include <math.h>

static const char *number(hec_doc *doc, double value) {
  double size = fabs(value);
  return hec_doc_text(doc, size >= 100 ? "%.0f" : size >= 10 ? "%.1f" : size >= 0.1 ? "%.2f" : "%.2g", value);
}

static const char *span(hec_doc *doc, hec_span of, const char *unit) {
  return hec_doc_text(doc, "%s%s%s%s%s", number(doc, of.low), of.high != of.low ? "-" : "",
                      of.high != of.low ? number(doc, of.high) : "", *unit && *unit != 'x' ? " " : "", unit);
}

static void add_row(hec_doc *doc, const hec_system_row *row, int32_t index) {
  static const char *const winner[] = {NULL, "same", "other", "open"}, *const shown[] = {"", "same", "**other**",
                                                                                         "open"};
  bool ours = !row->skipped;
  HEC_ROW(doc, HEC_SHOW(NULL, HEC_AS_IS, index), HEC_SHOW("quantity", HEC_AS_IS, row->quantity),
          HEC_KEEP("kind", row->kind == HEC_SYSTEM_GAIN ? "gain" : "value"), HEC_KEEP("unit", row->unit),
          HEC_KEEP("setup", row->setup), HEC_KEEP("source", row->source), HEC_KEEP("assumed", row->assumed),
          hec_value_pair("published", row->published.low, row->published.high),
          HEC_CELL(span(doc, row->published, row->unit)),
          ours ? hec_value_pair("ours", row->ours.low, row->ours.high) : hec_value_text("ours", HEC_NOT, NULL),
          HEC_CELL(ours ? span(doc, row->ours, row->unit) : "skipped"),
          ours ? HEC_SHOW("ratio", HEC_FIXED2, hec_system_ratio(row)) : hec_value_text("ratio", HEC_AS_IS, NULL),
          ours && row->moved_by ? hec_value_pair("moves", row->moves.low, row->moves.high)
                                : hec_value_text("moves", HEC_NOT, NULL),
          HEC_KEEP("moved_by", row->moved_by), HEC_KEEP("winner", winner[hec_system_winner(row)]),
          HEC_CELL(ours ? shown[hec_system_winner(row)] : NULL), HEC_KEEP("skipped", row->skipped),
          HEC_CELL(!ours           ? NULL
                   : row->moved_by ? hec_doc_text(doc, "%s (%s)", span(doc, row->moves, row->unit), row->moved_by)
                                   : ""));
}

static void add_rows(hec_doc *doc, const hec_system_report *report, const hec_system_section *section, const char *key,
                     const char *heads) {
  hec_doc_table(doc, key, heads);
  for (int32_t i = section->first; i < section->end; i++)
    add_row(doc, &report->row[i], i - section->first + 1);
  hec_doc_end(doc);
}

/* ---- Sums ---- */

#define KEEP_SUMMARY(s)                                                                                                \
  HEC_OBJECT("summary", HEC_KEEP("numbers", (s).numbers), HEC_KEEP("compared", (s).compared),                          \
             HEC_KEEP("skipped", (s).skipped), HEC_KEEP("within_10", (s).within_10),                                   \
             HEC_KEEP("within_25", (s).within_25), HEC_KEEP("winners", (s).winners),                                   \
             HEC_KEEP("winners_same", (s).winners_same), HEC_KEEP("varied", (s).varied),                               \
             HEC_KEEP("reached", (s).reached))

static void show_summary(hec_doc *doc, const char *whose, hec_system_summary sum) {
  hec_doc_note(doc,
               "%s: of %" PRId32 " numbers %" PRId32 " compared (%" PRId32 " skipped); within 10 %%: %" PRId32
               ", within 25 %%: %" PRId32 "; who wins: %" PRId32 " of %" PRId32
               " the same; in the range tried: %" PRId32 " of %" PRId32 ".",
               whose, sum.numbers, sum.compared, sum.skipped, sum.within_10, sum.within_25, sum.winners_same,
               sum.winners, sum.reached, sum.varied);
}

static void show_sum(hec_doc *doc, const char *name, hec_system_summary sum) {
  HEC_ROW(doc, HEC_CELL(name), HEC_SHOW(NULL, HEC_AS_IS, sum.numbers), HEC_SHOW(NULL, HEC_AS_IS, sum.skipped),
          HEC_SHOW(NULL, HEC_AS_IS, sum.within_10), HEC_SHOW(NULL, HEC_AS_IS, sum.within_25),
          HEC_CELL(hec_doc_text(doc, "%" PRId32 " of %" PRId32, sum.winners_same, sum.winners)),
          HEC_CELL(hec_doc_text(doc, "%" PRId32 " of %" PRId32, sum.reached, sum.varied)));
}

static void show_overview(hec_doc *doc, const hec_system_report *report) {
  hec_doc_table(doc, NULL,
                "system | numbers | skipped | within 10 % | within 25 % | who wins: the same | in the range tried");
  for (int32_t i = 0; i < report->n_sections; i++)
    show_sum(doc, report->section[i].file.name, hec_system_sum(report, &report->section[i]));
  show_sum(doc, "all", hec_system_sum(report, NULL));
  hec_doc_end(doc);
}

/* ---- Systems ---- */

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

static void keep_sections(hec_doc *doc, const hec_system_report *report) {
  hec_doc_table(doc, "systems", NULL);
  for (int32_t i = 0; i < report->n_sections; i++) {
    const hec_system_section *section = &report->section[i];
    const hec_system_file *file = &section->file;
    hec_system_summary sum = hec_system_sum(report, section);
    HEC_ROW(doc, HEC_KEEP("name", file->name), HEC_KEEP("title", file->title), HEC_KEEP("source", file->source),
            HEC_KEEP("differs", file->differs));
    add_rows(doc, report, section, "rows", NULL);
    HEC_ADD(doc, KEEP_SUMMARY(sum));
  }
  hec_doc_end(doc);
}

static void show_section(hec_doc *doc, const hec_system_report *report, const hec_system_section *section) {
  const hec_system_file *file = &section->file;
  hec_text notes = {0};
  hec_doc_note(doc, "## %s: %s", file->name, file->title);
  hec_doc_note(doc, "Source: %s. %s", file->source, file->differs);
  add_rows(doc, report, section, NULL, "| what | published | ours | ours / published | who wins | moves");
  add_notes(&notes, report, section->first, section->end);
  hec_doc_take(doc, &notes);
  show_summary(doc, file->name, hec_system_sum(report, section));
}

void hec_systems_report(const void *systems, hec_doc *doc) {
  const hec_system_report *report = systems;
  const hec_system_options *options = &report->options;
  hec_system_summary sum = hec_system_sum(report, NULL);
  HEC_ADD(doc, HEC_KEEP("version", 1), HEC_KEEP("stamp", options->stamp), HEC_KEEP("seed", (int64_t)options->seed),
          HEC_KEEP("quick", options->quick), HEC_KEEP("recorded", (bool)(options->shared != NULL)));
  keep_sections(doc, report);
  HEC_ADD(doc, KEEP_SUMMARY(sum));
  hec_doc_note(doc, "# Published numbers of other systems, simulated");
  if (options->stamp)
    hec_doc_note(doc, "%s.", options->stamp);
  hec_doc_note(
      doc,
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
  show_overview(doc, report);
  for (int32_t i = 0; i < report->n_sections; i++)
    show_section(doc, report, &report->section[i]);
  show_summary(doc, "All", sum);
}

/* ---- the list ---- */

static void list_text(hec_text *out, const hec_system_file *file) {
  HEC_SCOPED(hec_text) words = {0};
  hec_text_printf(&words, "%s; %s", file->title, file->source);
  hec_text_printf(out, "%-13s", file->name);
  hec_text_wrap(out, words.data, 13, 14, 110);
  hec_text_add(out, "\n");
}

static void list_json(hec_json_out *json, const hec_system_file *file) {
  HEC_JSON(json, HEC_OBJECT(NULL, HEC_TEXT("name", file->name), HEC_TEXT("title", file->title),
                            HEC_TEXT("source", file->source)));
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
