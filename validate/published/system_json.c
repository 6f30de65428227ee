/* The report of the systems as JSON; the form is in system.h. */
#include "validate/published/system.h"

static void add_span(hec_json_out *json, const char *key, hec_span span) {
  hec_json_array(json, key);
  hec_json_double(json, NULL, span.low);
  hec_json_double(json, NULL, span.high);
  hec_json_close(json);
}

static void add_text(hec_json_out *json, const char *key, const char *text) {
  if (text)
    hec_json_string(json, key, text);
  else
    hec_json_null(json, key);
}

static void add_row(hec_json_out *json, const hec_system_row *row) {
  static const char *const winner[] = {NULL, "same", "other", "open"};
  hec_json_object(json, NULL);
  hec_json_string(json, "quantity", row->quantity);
  hec_json_string(json, "kind", row->kind == HEC_SYSTEM_GAIN ? "gain" : "value");
  hec_json_string(json, "unit", row->unit);
  hec_json_string(json, "setup", row->setup);
  hec_json_string(json, "source", row->source);
  hec_json_string(json, "assumed", row->assumed);
  add_span(json, "published", row->published);
  if (row->skipped) {
    hec_json_null(json, "ours");
    hec_json_null(json, "ratio");
  } else {
    add_span(json, "ours", row->ours);
    hec_json_double(json, "ratio", hec_system_ratio(row));
  }
  if (row->moved_by && !row->skipped)
    add_span(json, "moves", row->moves);
  else
    hec_json_null(json, "moves");
  add_text(json, "moved_by", row->moved_by);
  add_text(json, "winner", winner[hec_system_winner(row)]);
  add_text(json, "skipped", row->skipped);
  hec_json_close(json);
}

static void add_summary(hec_json_out *json, hec_system_summary sum) {
  hec_json_object(json, "summary");
  hec_json_int(json, "numbers", sum.numbers);
  hec_json_int(json, "compared", sum.compared);
  hec_json_int(json, "skipped", sum.skipped);
  hec_json_int(json, "within_10", sum.within_10);
  hec_json_int(json, "within_25", sum.within_25);
  hec_json_int(json, "winners", sum.winners);
  hec_json_int(json, "winners_same", sum.winners_same);
  hec_json_int(json, "varied", sum.varied);
  hec_json_int(json, "reached", sum.reached);
  hec_json_close(json);
}

static void add_section(hec_json_out *json, const hec_system_report *report, const hec_system_section *section) {
  hec_json_object(json, NULL);
  hec_json_string(json, "name", section->file.name);
  hec_json_string(json, "title", section->file.title);
  hec_json_string(json, "source", section->file.source);
  hec_json_string(json, "differs", section->file.differs);
  hec_json_array(json, "rows");
  for (int32_t i = section->first; i < section->end; i++)
    add_row(json, &report->row[i]);
  hec_json_close(json);
  add_summary(json, hec_system_sum(report, section));
  hec_json_close(json);
}

void hec_systems_json(const hec_system_report *report, hec_text *out) {
  const hec_system_options *options = &report->options;
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  hec_json_int(&json, "version", 1);
  add_text(&json, "stamp", options->stamp);
  hec_json_int(&json, "seed", (int64_t)options->seed);
  hec_json_bool(&json, "quick", options->quick);
  hec_json_bool(&json, "recorded", options->shared != NULL);
  hec_json_array(&json, "systems");
  for (int32_t i = 0; i < report->n_sections; i++)
    add_section(&json, report, &report->section[i]);
  hec_json_close(&json);
  add_summary(&json, hec_system_sum(report, NULL));
  hec_json_close(&json);
}
