/* The report of the systems as JSON; the form is in system.h. */
#include "validate/published/system.h"

#include <string.h>

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

void hec_systems_json(const hec_system_report *report, hec_text *out) {
  const hec_system_options *options = hec_system_options_of(report);
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  hec_json_int(&json, "version", 1);
  add_text(&json, "stamp", options->stamp);
  hec_json_int(&json, "seed", (int64_t)options->seed);
  hec_json_bool(&json, "quick", options->quick);
  hec_json_bool(&json, "recorded", options->shared != NULL);
  hec_json_array(&json, "systems");
  const hec_system *last = NULL, *system;
  for (int32_t i = 0; i < hec_system_count(report); i++) {
    const hec_system_row *row = hec_system_at(report, i, &system);
    if (system != last) {
      hec_json_object(&json, NULL);
      hec_json_string(&json, "name", system->name);
      hec_json_string(&json, "title", system->title);
      hec_json_string(&json, "source", system->source);
      hec_json_string(&json, "differs", system->differs);
      hec_json_array(&json, "rows");
      last = system;
    }
    add_row(&json, row);
    const hec_system *next = NULL;
    if (i + 1 < hec_system_count(report))
      hec_system_at(report, i + 1, &next);
    if (next == system)
      continue;
    hec_json_close(&json);
    add_summary(&json, hec_system_sum(report, system));
    hec_json_close(&json);
  }
  hec_json_close(&json);
  add_summary(&json, hec_system_sum(report, NULL));
  hec_json_close(&json);
}
