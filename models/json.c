/* The door to cJSON. A document is read three times. A strict scan finds errors and where each value begins
 * (json_scan). cJSON reads the values. One walk over both, in the same order, joins them. O(length + members log
 * members). */
#include "models/json.h"

#include "models/json_scan.h"
#include "runtime/base/files.h"
#include "runtime/base/nearest.h"
#include "runtime/base/text.h"

#include <cjson/cJSON.h>
#include <float.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hec_json_value {
  const cJSON *node;
  const hec_json_value *parent, *first, *next;
  size_t at; /* byte offset in the text */
  int32_t length;
};

struct hec_json {
  char *origin, *text; /* own copies; the text ends in a zero */
  size_t length;
  cJSON *tree;
  hec_json_value *values; /* [n_values] in file order; the root first */
  size_t n_values;
};

static hec_status syntax_error(const hec_json *json, size_t at, const char *expected) {
  int line = 1, column = 1;
  for (size_t i = 0; i < at; i++) {
    column = json->text[i] == '\n' ? 1 : column + 1;
    line += json->text[i] == '\n';
  }
  char found[32];
  unsigned char c = (unsigned char)(at < json->length ? json->text[at] : 0);
  if (at >= json->length)
    (void)snprintf(found, sizeof found, "the end of the text");
  else
    (void)snprintf(found, sizeof found, c > ' ' && c < 127 ? "'%c'" : "byte %d", c);
  return hec_fail(HEC_BAD_INPUT, "%s:%d:%d: not valid JSON: expected %s, found %s", json->origin, line, column,
                  expected, found);
}

static int line_of(const hec_json *json, size_t at) {
  int line = 1;
  for (size_t i = 0; i < at; i++)
    line += json->text[i] == '\n';
  return line;
}

/* Appends the path of a value: "links[3].bandwidth"; "the document" for the root. */
static void add_path(hec_text *path, const hec_json_value *value) {
  const hec_json_value *chain[HEC_JSON_DEPTH_MAX + 1];
  int n = 0;
  for (; value->parent; value = value->parent)
    chain[n++] = value;
  if (n == 0)
    hec_text_add(path, "the document");
  while (n-- > 0) {
    const hec_json_value *v = chain[n];
    if (v->node->string) {
      hec_text_printf(path, "%s%.60s", v->parent->parent ? "." : "", v->node->string);
      continue;
    }
    int index = 0;
    for (const hec_json_value *i = v->parent->first; i != v; i = i->next)
      index++;
    hec_text_printf(path, "[%d]", index);
  }
}

/* Appends the value as people know it: its text as written, cut when long; the kind and size of a container. */
static void add_found(hec_text *found, const hec_json *json, const hec_json_value *value) {
  enum { SHOWN = 60 };
  if (cJSON_IsObject(value->node)) {
    hec_text_printf(found, "an object of %d members", (int)value->length);
  } else if (cJSON_IsArray(value->node)) {
    hec_text_printf(found, "an array of %d", (int)value->length);
  } else if (cJSON_IsString(value->node)) {
    const char *text = value->node->valuestring;
    int n = (int)strnlen(text, SHOWN);
    while (n == SHOWN && n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
      n--; /* not in the middle of a UTF-8 character */
    hec_text_printf(found, "\"%.*s%s\"", n, text, text[n] ? "..." : "");
  } else {
    size_t n = strcspn(json->text + value->at, ",]} \t\r\n");
    hec_text_printf(found, "%.*s", (int)n, json->text + value->at);
  }
}

void hec_json_where(const hec_json *json, const hec_json_value *value, hec_text *where) {
  hec_text_printf(where, "%s:%d: ", json->origin, line_of(json, value->at));
  add_path(where, value);
}

hec_status hec_json_error(const hec_json *json, const hec_json_value *value, const char *expected) {
  HEC_SCOPED(hec_text) where = {0}, found = {0};
  hec_json_where(json, value, &where);
  add_found(&found, json, value);
  return hec_fail(HEC_BAD_INPUT, "%s: expected %s, found %s", where.data, expected, found.data);
}

static const hec_json_value *parent_next(const hec_json_value *value) {
  while (value->parent && !value->node->next)
    value = value->parent;
  return value;
}

/* Joins cJSON's tree with the offsets, both in file order. */
static void join_values(hec_json *json, const size_t *value_at) {
  const cJSON *node = json->tree;
  const hec_json_value *parent = NULL;
  for (size_t i = 0; i < json->n_values; i++) {
    HEC_ASSERT(node != NULL);
    hec_json_value *value = &json->values[i];
    *value = (hec_json_value){.node = node, .parent = parent, .at = value_at[i]};
    if (parent) {
      hec_json_value *owner = &json->values[parent - json->values];
      owner->length++;
      if (owner->length == 1)
        owner->first = value;
    }
    if (node->child) {
      parent = value;
      node = node->child;
      continue;
    }
    const hec_json_value *last = parent_next(value); /* the value whose sibling comes next; the root at the end */
    parent = last->parent;
    node = parent ? last->node->next : NULL;
    if (node)
      json->values[last - json->values].next = &json->values[i + 1];
  }
  HEC_ASSERT(node == NULL);
}

static int by_key_and_place(const void *a, const void *b) {
  const hec_json_value *x = *(const hec_json_value *const *)a, *y = *(const hec_json_value *const *)b;
  int order = strcmp(x->node->string, y->node->string);
  return order != 0 ? order : (x->at > y->at) - (x->at < y->at);
}

/* Of the members of an object: the earliest one in the file whose key came before; NULL when all keys differ. */
static const hec_json_value *duplicate_of(const hec_json_value *object, const hec_json_value **scratch) {
  size_t n = 0;
  const hec_json_value *found = NULL;
  for (const hec_json_value *v = object->first; v; v = v->next)
    scratch[n++] = v;
  qsort(scratch, n, sizeof *scratch, by_key_and_place);
  for (size_t i = 1; i < n; i++)
    if (strcmp(scratch[i - 1]->node->string, scratch[i]->node->string) == 0 && (!found || scratch[i]->at < found->at))
      found = scratch[i];
  return found;
}

static hec_status reject_duplicates(const hec_json *json) {
  const hec_json_value **scratch = hec_malloc(json->n_values, sizeof *scratch);
  const hec_json_value *found = NULL;
  for (size_t i = 0; i < json->n_values && !found; i++)
    if (cJSON_IsObject(json->values[i].node) && json->values[i].length > 1)
      found = duplicate_of(&json->values[i], scratch);
  free(scratch);
  return found ? hec_json_error(json, found, "every key once in an object") : HEC_OK;
}

/* strtod gives infinity or 0 for what a double cannot hold. */
static hec_status reject_out_of_range(const hec_json *json) {
  for (size_t i = 0; i < json->n_values; i++) {
    const char *end;
    double value;
    const hec_json_value *v = &json->values[i];
    if (cJSON_IsNumber(v->node) && !hec_number_read(json->text + v->at, &end, &value))
      return hec_json_error(json, v, "a number in range (0, or in size from 5e-324 to 1.8e308)");
  }
  return HEC_OK;
}

/* cJSON answers NULL when memory runs out, as it does for a bad text. With this hook it never sees that. */
static void *allocate(size_t bytes) {
  return hec_malloc(bytes, 1);
}

static void set_hooks(void) {
  cJSON_Hooks hooks = {allocate, free};
  cJSON_InitHooks(&hooks);
}

static hec_status read_values(hec_json *json) {
  hec_json_scan scan = hec_json_scan_text(json->text, json->length);
  if (scan.expected) {
    free(scan.value_at);
    return syntax_error(json, scan.error_at, scan.expected);
  }
  const char *end = json->text;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  (void)pthread_once(&once, set_hooks);
  json->tree = cJSON_ParseWithLengthOpts(json->text, json->length + 1, &end, 1);
  if (!json->tree) {
    free(scan.value_at);
    return syntax_error(json, (size_t)(end - json->text), "something that cJSON can read");
  }
  json->n_values = scan.n_values;
  json->values = hec_malloc(scan.n_values, sizeof *json->values);
  join_values(json, scan.value_at);
  free(scan.value_at);
  HEC_TRY(reject_duplicates(json));
  return reject_out_of_range(json);
}

hec_status hec_json_parse(const char *text, size_t length, const char *origin, hec_json **out) {
  if (length > HEC_JSON_BYTES_MAX)
    return hec_fail(HEC_BAD_INPUT, "%s:1: expected at most %d bytes, found %zu", origin, HEC_JSON_BYTES_MAX, length);
  hec_json *json = hec_malloc(1, sizeof *json);
  size_t origin_bytes = strlen(origin) + 1;
  *json = (hec_json){.origin = hec_malloc(origin_bytes, 1), .text = hec_malloc(length + 1, 1), .length = length};
  memcpy(json->origin, origin, origin_bytes);
  if (length > 0)
    memcpy(json->text, text, length);
  json->text[length] = '\0';
  hec_status status = read_values(json);
  if (status == HEC_OK)
    *out = json;
  else
    hec_json_free(json);
  return status;
}

void hec_json_free(hec_json *json) {
  if (!json)
    return;
  cJSON_Delete(json->tree);
  free(json->values);
  free(json->origin);
  free(json->text);
  free(json);
}

hec_status hec_json_read(const char *path, hec_json **json) {
  char *text;
  size_t length;
  HEC_TRY(hec_file_read(path, "a JSON file", HEC_JSON_BYTES_MAX, &text, &length));
  hec_status status = hec_json_parse(text, length, path, json);
  free(text);
  return status;
}

const hec_json_value *hec_json_root(const hec_json *json) {
  return json->values;
}
bool hec_json_is_object(const hec_json_value *value) {
  return cJSON_IsObject(value->node);
}
bool hec_json_is_array(const hec_json_value *value) {
  return cJSON_IsArray(value->node);
}
bool hec_json_is_string(const hec_json_value *value) {
  return cJSON_IsString(value->node);
}
bool hec_json_is_number(const hec_json_value *value) {
  return cJSON_IsNumber(value->node);
}
const char *hec_json_text(const hec_json_value *value) {
  return value->node->valuestring;
}
double hec_json_number(const hec_json_value *value) {
  return value->node->valuedouble;
}
const hec_json_value *hec_json_first(const hec_json_value *parent) {
  return parent->first;
}
const hec_json_value *hec_json_next(const hec_json_value *value) {
  return value->next;
}
const char *hec_json_key(const hec_json_value *member) {
  return member->node->string;
}
int32_t hec_json_length(const hec_json_value *array) {
  return array->length;
}

const hec_json_value *hec_json_get(const hec_json_value *object, const char *key) {
  if (!hec_json_is_object(object))
    return NULL;
  const hec_json_value *v = object->first;
  while (v && (v->node->string[0] != key[0] || strcmp(v->node->string, key) != 0)) /* most differ in the first letter */
    v = v->next;
  return v;
}

/* A member that was probably meant: another at a slip or two. NULL: none. */
static const char *slip_of(const hec_json_value *object, const char *key) {
  enum { SLIPS_MAX = 2 };
  hec_nearest_search search = {.word = key};
  for (const hec_json_value *v = object->first; v; v = v->next)
    hec_nearest_offer(&search, v->node->string);
  return search.nearest && search.distance <= SLIPS_MAX ? search.nearest : NULL;
}

static hec_status missing(const hec_json *j, const hec_json_value *object, const char *key) {
  if (!hec_json_is_object(object))
    return hec_json_error(j, object, "an object");
  HEC_SCOPED(hec_text) path = {0};
  const char *slip = slip_of(object, key);
  add_path(&path, object);
  return hec_fail(HEC_BAD_INPUT, "%s:%d: %s: expected a member \"%s\", found none%s%.60s%s", j->origin,
                  line_of(j, object->at), path.data, key, slip ? "; the nearest there is \"" : "", slip ? slip : "",
                  slip ? "\"" : "");
}

/* "a number from 0 to 1", "a number > 0", "an integer >= 1": limits that only mean "finite" or "positive" are not
 * shown. */
static void describe_range(char *out, size_t size, const char *kind, double min, double max) {
  HEC_SCOPED(hec_text) range = {0};
  hec_text_add(&range, kind);
  bool is_open = max >= 1e300, any = min <= -1e300;
  if (is_open && min > 0 && min < 1e-9) {
    hec_text_add(&range, " > 0");
  } else if (!(is_open && any)) {
    hec_text_add(&range, is_open ? " >= " : any ? " <= " : " from ");
    hec_text_add_double(&range, any ? max : min);
    if (!is_open && !any) {
      hec_text_add(&range, " to ");
      hec_text_add_double(&range, max);
    }
  }
  (void)snprintf(out, size, "%s", range.data);
}

static hec_status read_double(const hec_json *j, const hec_json_value *v, double min, double max, double *out) {
  double number = hec_json_is_number(v) ? hec_json_number(v) : 0;
  if (!hec_json_is_number(v) || !(number >= min && number <= max && number <= DBL_MAX && number >= -DBL_MAX)) {
    char expected[96];
    describe_range(expected, sizeof expected, "a number", min, max);
    return hec_json_error(j, v, expected);
  }
  *out = number;
  return HEC_OK;
}

static hec_status read_int(const hec_json *j, const hec_json_value *v, int64_t min, int64_t max, int64_t *out) {
  static const double exact = 9007199254740992.0; /* 2^53: every integer up to it is a double */
  double number = hec_json_is_number(v) ? hec_json_number(v) : 0;
  bool is_integer = hec_json_is_number(v) && number >= -exact && number <= exact && (double)(int64_t)number == number;
  if (!is_integer || (int64_t)number < min || (int64_t)number > max) {
    char expected[96];
    describe_range(expected, sizeof expected, "an integer", min == INT64_MIN ? -DBL_MAX : (double)min,
                   max == INT64_MAX ? DBL_MAX : (double)max);
    return hec_json_error(j, v, expected);
  }
  *out = (int64_t)number;
  return HEC_OK;
}

hec_status hec_json_want_double(const hec_json *j, const hec_json_value *object, const char *key, double min,
                                double max, double *out) {
  const hec_json_value *v = hec_json_get(object, key);
  return v ? read_double(j, v, min, max, out) : missing(j, object, key);
}

hec_status hec_json_want_int(const hec_json *j, const hec_json_value *object, const char *key, int64_t min, int64_t max,
                             int64_t *out) {
  const hec_json_value *v = hec_json_get(object, key);
  return v ? read_int(j, v, min, max, out) : missing(j, object, key);
}

hec_status hec_json_want_text(const hec_json *j, const hec_json_value *object, const char *key, const char **out) {
  const hec_json_value *v = hec_json_get(object, key);
  if (!v)
    return missing(j, object, key);
  if (!hec_json_is_string(v))
    return hec_json_error(j, v, "a text");
  *out = hec_json_text(v);
  return HEC_OK;
}

hec_status hec_json_double_or(const hec_json *j, const hec_json_value *object, const char *key, double min, double max,
                              double otherwise, double *out) {
  const hec_json_value *v = hec_json_get(object, key);
  if (v)
    return read_double(j, v, min, max, out);
  *out = otherwise;
  return HEC_OK;
}

hec_status hec_json_int_or(const hec_json *j, const hec_json_value *object, const char *key, int64_t min, int64_t max,
                           int64_t otherwise, int64_t *out) {
  const hec_json_value *v = hec_json_get(object, key);
  if (v)
    return read_int(j, v, min, max, out);
  *out = otherwise;
  return HEC_OK;
}

hec_status hec_json_bool_or(const hec_json *j, const hec_json_value *object, const char *key, bool otherwise,
                            bool *out) {
  const hec_json_value *v = hec_json_get(object, key);
  if (v && !cJSON_IsBool(v->node))
    return hec_json_error(j, v, "true or false");
  *out = v ? cJSON_IsTrue(v->node) : otherwise;
  return HEC_OK;
}

static bool is_known(const char *key, const char *const *known) {
  if (strcmp(key, "notes") == 0 || strcmp(key, "sources") == 0)
    return true;
  while (*known && strcmp(key, *known) != 0)
    known++;
  return *known != NULL;
}

hec_status hec_json_only(const hec_json *j, const hec_json_value *object, const char *const *known) {
  if (!hec_json_is_object(object))
    return hec_json_error(j, object, "an object");
  for (const hec_json_value *v = object->first; v; v = v->next) {
    if (is_known(v->node->string, known))
      continue;
    HEC_SCOPED(hec_text) expected = {0};
    hec_text_add(&expected, "a known field (");
    for (const char *const *k = known; *k; k++)
      hec_text_printf(&expected, "%s%s", k == known ? "" : ", ", *k);
    hec_text_add(&expected, ")");
    return hec_json_error(j, v, expected.data);
  }
  return HEC_OK;
}
