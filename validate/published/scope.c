/* Look-ups are linear: a file has some ten objects open with some ten members each. O(open * members) each. */
#include "validate/published/scope.h"

#include <string.h>

hec_scope hec_scope_of(const hec_system_file *file, bool quick) {
  hec_scope scope = {.file = file, .quick = quick};
  hec_scope_push(&scope, hec_json_root(file->json));
  return scope;
}

void hec_scope_push(hec_scope *scope, const hec_json_value *object) {
  HEC_ASSERT(scope->n < HEC_SCOPE_MAX);
  scope->open[scope->n++] = object;
}

void hec_scope_pop(hec_scope *scope) {
  HEC_ASSERT(scope->n > 0);
  scope->n--;
}

const hec_json_value *hec_scope_named(const hec_scope *scope, const char *map, const char *name) {
  const hec_json_value *all = hec_scope_find(scope, map);
  return all ? hec_json_get(all, name) : NULL;
}

/* The object in which the key stands. */
static const hec_json_value *owner_of(const hec_scope *scope, const char *key) {
  for (int32_t i = scope->n - 1; i >= 0; i--) {
    if (hec_json_get(scope->open[i], key))
      return scope->open[i];
    const hec_json_value *use = hec_json_get(scope->open[i], "use"), *sets = hec_json_get(scope->open[0], "sets");
    const hec_json_value *set = use && sets && hec_json_is_string(use) ? hec_json_get(sets, hec_json_text(use)) : NULL;
    if (set && hec_json_get(set, key))
      return set;
  }
  return NULL;
}

const hec_json_value *hec_scope_find(const hec_scope *scope, const char *key) {
  const hec_json_value *owner = owner_of(scope, key);
  return owner ? hec_json_get(owner, key) : NULL;
}

const char *hec_scope_text(const hec_scope *scope, const char *key) {
  const hec_json_value *value = hec_scope_find(scope, key);
  return value && hec_json_is_string(value) ? hec_json_text(value) : NULL;
}

hec_status hec_scope_number(const hec_scope *scope, const char *key, double min, double max, double *out) {
  const hec_json_value *value = hec_scope_find(scope, key);
  if (!value)
    return HEC_OK;
  if (hec_json_is_array(value) && hec_json_length(value) == 2) {
    value = hec_json_first(value);
    value = scope->quick ? hec_json_next(value) : value;
  }
  if (!hec_json_is_number(value) || hec_json_number(value) < min || hec_json_number(value) > max)
    return hec_json_error(scope->file->json, value, "a number in its range, or two: of whole and of quick runs");
  *out = hec_json_number(value);
  return HEC_OK;
}

hec_status hec_scope_flag(const hec_scope *scope, const char *key, bool *out) {
  const hec_json_value *owner = owner_of(scope, key);
  return owner ? hec_json_bool_or(scope->file->json, owner, key, *out, out) : HEC_OK;
}

hec_status hec_scope_rows(hec_scope *scope, hec_status (*row)(hec_scope *scope, void *context), void *context) {
  const hec_json_value *rows = hec_json_get(scope->open[scope->n - 1], "rows");
  if (!rows)
    return row(scope, context);
  for (const hec_json_value *v = hec_json_first(rows); v; v = hec_json_next(v)) {
    if (!hec_json_is_object(v))
      return hec_json_error(scope->file->json, v, "a row or a group of rows");
    hec_scope_push(scope, v);
    hec_status status = hec_scope_rows(scope, row, context);
    hec_scope_pop(scope);
    HEC_TRY(status);
  }
  return HEC_OK;
}
