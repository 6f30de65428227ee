/* The header of a trace, as a stream. Private to traces/. */
#pragma once
#include "traces/scan.h"
#include "traces/trace.h"

/* Reads from the opening brace up to and including the closing one (*in_object false: records are lines). Or up to the
 * bracket that opens "iterations" (*in_object true). Texts live in `arena`. */
hec_status hec_trace_header_scan(hec_scan *scan, hec_arena *arena, hec_trace_header *header,
                                 bool *in_object) HEC_MUST_USE;

/* The header as one line of JSON with its line feed, as the writer puts it. */
void hec_trace_header_print(const hec_trace_header *header, hec_text *text);

/* True for a key that the header understands (it may not come again after "iterations"). */
bool hec_trace_header_knows(const char *key);
