/* A trace from one of its forms into another: JSON Lines, one JSON object; gzip by the name of the output. */
#pragma once
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum { HEC_FORM_LINES, HEC_FORM_OBJECT } hec_trace_form;

typedef struct {
  int64_t n_records;
  char misspelt[128]; /* as of the header: hec_trace_header */
  bool left_out;      /* there were members behind "iterations", which JSON Lines have no place for */
} hec_trace_converted;

/* Reads all of `in` and checks it, then copies: every key, number and text byte for byte, also those that nobody knows.
 * White space is kept but for line ends and what is indented. `in` is read twice, so it cannot be "-". */
hec_status hec_trace_convert(const char *in, const char *out, hec_trace_form form,
                             hec_trace_converted *result) HEC_MUST_USE;
