/* See value.h. A value is written as the writer of JSON has its kind. */
#include "runtime/base/value.h"

static void add_json(hec_json_out *json, const hec_value *v) {
  const double *reals = v->many ? v->many : v->real;
  const hec_value *members = v->many;
  switch (v->kind) {
  case HEC_VALUE_TEXT:
    if (v->text)
      hec_json_string(json, v->key, v->text);
    else
      hec_json_null(json, v->key);
    return;
  case HEC_VALUE_INT:
    hec_json_int(json, v->key, v->whole);
    return;
  case HEC_VALUE_BOOL:
    hec_json_bool(json, v->key, v->whole);
    return;
  case HEC_VALUE_REAL:
    hec_json_double(json, v->key, v->real[0]);
    return;
  case HEC_VALUE_TEXTS:
    hec_json_strings(json, v->key, v->many, v->n);
    return;
  case HEC_VALUE_REALS:
    hec_json_array(json, v->key);
    for (int32_t i = 0; i < v->n; i++)
      hec_json_double(json, NULL, reals[i]);
    break;
  case HEC_VALUE_LIST:
  case HEC_VALUE_OBJECT:
    (v->kind == HEC_VALUE_LIST ? hec_json_array : hec_json_object)(json, v->key);
    for (int32_t i = 0; i < v->n; i++)
      add_json(json, &members[i]);
    break;
  }
  hec_json_close(json);
}

void hec_json_add(hec_json_out *json, const hec_value *values, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    add_json(json, &values[i]);
}
