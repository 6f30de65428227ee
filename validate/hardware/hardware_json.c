/* The report as JSON; the form is in hardware.h. */
#include "validate/hardware/hardware.h"

static void add_error(hec_json_out *json, const char *key, hec_error error) {
  if (error.n == 0) {
    hec_json_null(json, key);
    return;
  }
  hec_json_object(json, key);
  hec_json_int(json, "rows", error.n);
  hec_json_double(json, "median", error.median);
  hec_json_double(json, "p90", error.p90);
  hec_json_double(json, "worst", error.worst);
  hec_json_double(json, "bias", error.bias);
  hec_json_close(json);
}

static void add_line(hec_json_out *json, const hec_hardware_line *line) {
  hec_json_object(json, NULL);
  hec_json_string(json, "group", line->group);
  hec_json_string(json, "what", line->what);
  hec_json_int(json, "rows", line->rows);
  hec_json_double(json, "value", line->value[0]);
  hec_json_double(json, "without_bounds", line->value[1]);
  hec_json_double(json, line->at_least ? "at_least" : "at_most", line->limit);
  hec_json_bool(json, "passed", line->passed);
  hec_json_close(json);
}

static void add_group(hec_json_out *json, const hec_hardware_group *group) {
  hec_json_object(json, NULL);
  hec_json_string(json, "group", group->name);
  hec_json_int(json, "rows", group->rows);
  hec_json_int(json, "bounds", group->bounds);
  hec_json_int(json, "large", group->larges);
  hec_json_double(json, "tau", group->tau[0]);
  hec_json_double(json, "tau_without_bounds", group->tau[1]);
  hec_json_double(json, "size_tau", group->size_tau[0]);
  hec_json_double(json, "size_tau_without_bounds", group->size_tau[1]);
  add_error(json, "error", group->error[0]);
  add_error(json, "error_without_bounds", group->error[1]);
  add_error(json, "large_error", group->large_error[0]);
  add_error(json, "large_error_without_bounds", group->large_error[1]);
  hec_json_close(json);
}

static void add_row(hec_json_out *json, const hec_hardware_row *row) {
  hec_json_object(json, NULL);
  hec_json_string(json, "id", row->id);
  hec_json_string(json, "group", row->group);
  hec_json_string(json, "what", row->what);
  hec_json_string(json, "hardware", row->hardware);
  hec_json_string(json, "cluster", row->cluster);
  hec_json_int(json, "ranks", row->ranks);
  hec_json_int(json, "nodes", row->nodes);
  if (row->bytes > 0)
    hec_json_int(json, "bytes", row->bytes);
  else
    hec_json_double(json, "flops", row->flops);
  hec_json_double(json, "measured_s", row->measured_s);
  hec_json_double(json, "predicted_s", row->predicted_s);
  hec_json_double(json, "error", row->predicted_s / row->measured_s - 1);
  hec_json_bool(json, "bound", row->bound);
  hec_json_bool(json, "large", row->large);
  hec_json_string(json, "source", row->source);
  hec_json_close(json);
}

void hec_hardware_json(const hec_hardware *hardware, hec_text *out) {
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  hec_json_int(&json, "version", 1);
  hec_json_string(&json, "file", hardware->file);
  hec_json_string(&json, "stamp", hardware->stamp ? hardware->stamp : "");
  hec_json_bool(&json, "passed", hardware->passed);
  hec_json_array(&json, "required");
  for (int32_t i = 0; i < hardware->n_lines; i++)
    add_line(&json, &hardware->lines[i]);
  hec_json_close(&json);
  hec_json_array(&json, "groups");
  for (int32_t i = 0; i < hardware->n_groups; i++)
    add_group(&json, &hardware->groups[i]);
  hec_json_close(&json);
  hec_json_array(&json, "rows");
  for (int32_t i = 0; i < hardware->n_rows; i++)
    add_row(&json, &hardware->rows[i]);
  hec_json_close(&json);
  hec_json_close(&json);
}
