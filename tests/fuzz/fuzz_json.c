/* Any bytes: the JSON door and the forms on top of it return a status; nothing crashes, leaks or grows without bound.
 */
#include "models/cluster.h"
#include "models/json.h"
#include "models/moe.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const hec_json *json, const hec_json_value *value) {
  static const char *const known[] = {"a", "b", NULL};
  double number;
  int64_t integer;
  hec_status status = hec_json_only(json, value, known);
  status = hec_json_want_double(json, value, "a", 0, 1, &number);
  status = hec_json_want_int(json, value, "b", -5, INT64_MAX, &integer);
  status = hec_json_error(json, value, "nothing");
  (void)status;
  for (const hec_json_value *v = hec_json_first(value); v; v = hec_json_next(v))
    walk(json, v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  hec_json *json;
  if (hec_json_parse((const char *)data, size, "fuzz", &json) == HEC_OK) {
    if (size < 4096)
      walk(json, hec_json_root(json));
    hec_json_free(json);
  }
  char *text = malloc(size + 1);
  if (!text)
    return 0;
  memcpy(text, data, size);
  text[size] = '\0';
  hec_moe moe;
  hec_cluster cluster;
  HEC_SCOPED(hec_arena) arena = {0};
  hec_status status = hec_moe_parse(text, "fuzz", &moe);
  status = hec_cluster_parse_json(text, "fuzz", &arena, &cluster);
  (void)status;
  free(text);
  return 0;
}
