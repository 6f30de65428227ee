/* The one door to cJSON: presets, specs and cases (small documents; trace rows have a reader of their own in traces/).
 * Every getter names origin, line and path in its message: "FILE:LINE: links[3].bandwidth: expected a number > 0, found
 * "x"". */
#pragma once
#include "runtime/base/arena.h"
#include "runtime/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HEC_JSON_BYTES_MAX = 64 << 20 }; /* of a document */

typedef struct hec_json hec_json;             /* a document */
typedef struct hec_json_value hec_json_value; /* one value in it; lives as long as the document */

/* Parses `text` (not necessarily zero-terminated): bytes after the value, nesting past 64, a duplicate key: errors with
 * file, line and column. Free with hec_json_free. */
hec_status hec_json_parse(const char *text, size_t length, const char *origin, hec_json **json) HEC_MUST_USE;
/* Reads a whole file first; at most 64 MiB; a directory or unreadable file is an error. */
hec_status hec_json_read(const char *path, hec_json **json) HEC_MUST_USE;
void hec_json_free(hec_json *json);
HEC_OPENED_BY(hec_json, hec_json_free)
const hec_json_value *hec_json_root(const hec_json *json);

bool hec_json_is_object(const hec_json_value *value);
bool hec_json_is_array(const hec_json_value *value);
bool hec_json_is_string(const hec_json_value *value);
bool hec_json_is_number(const hec_json_value *value);
const char *hec_json_text(const hec_json_value *value); /* of a string */
double hec_json_number(const hec_json_value *value);    /* of a number */

/* Members of an object and elements of an array, in file order; NULL when absent or past the end. */
const hec_json_value *hec_json_get(const hec_json_value *object, const char *key);
const hec_json_value *hec_json_first(const hec_json_value *parent);
const hec_json_value *hec_json_next(const hec_json_value *value);
const char *hec_json_key(const hec_json_value *member);
int32_t hec_json_length(const hec_json_value *array);

/* "FILE:LINE: PATH" of a value, for messages. */
void hec_json_where(const hec_json *json, const hec_json_value *value, hec_text *where);
/* Fails with origin, line and the value's path: "expected EXPECTED, found <the value>". */
hec_status hec_json_error(const hec_json *json, const hec_json_value *value, const char *expected) HEC_MUST_USE;

/* Required members (absent: an error naming object and key); *_or: optional, `otherwise` when absent. */
hec_status hec_json_want_double(const hec_json *j, const hec_json_value *object, const char *key, double min,
                                double max, double *out) HEC_MUST_USE;
hec_status hec_json_want_int(const hec_json *j, const hec_json_value *object, const char *key, int64_t min, int64_t max,
                             int64_t *out) HEC_MUST_USE;
hec_status hec_json_want_text(const hec_json *j, const hec_json_value *object, const char *key,
                              const char **out) HEC_MUST_USE;
hec_status hec_json_double_or(const hec_json *j, const hec_json_value *object, const char *key, double min, double max,
                              double otherwise, double *out) HEC_MUST_USE;
hec_status hec_json_int_or(const hec_json *j, const hec_json_value *object, const char *key, int64_t min, int64_t max,
                           int64_t otherwise, int64_t *out) HEC_MUST_USE;
hec_status hec_json_bool_or(const hec_json *j, const hec_json_value *object, const char *key, bool otherwise,
                            bool *out) HEC_MUST_USE;

/* Rejects members of `object` that are not in the NULL-terminated list `known` ("notes" and "sources" always are). */
hec_status hec_json_only(const hec_json *j, const hec_json_value *object, const char *const *known) HEC_MUST_USE;
