/* Strict scan of a JSON text (RFC 8259): is it well formed, and where does each value begin? Used by json.c only;
 * cJSON, which reads the values, accepts more than JSON and knows no positions. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { HEC_JSON_DEPTH_MAX = 64, HEC_JSON_VALUES_MAX = 1 << 24 };

typedef struct {
  size_t *value_at; /* [n_values] byte offsets in file order, parents before their members; malloc family */
  size_t n_values, capacity;
  size_t error_at;      /* byte offset of the first error */
  const char *expected; /* what the grammar wants there; NULL: the text is well formed */
} hec_json_scan;

/* O(length). Free value_at with free(). */
hec_json_scan hec_json_scan_text(const char *text, size_t length);
