/* Pull scanner over JSON text of any length: the caller asks for what it expects, nothing is built. One window of bytes
 * is in memory; integer lists are parsed straight from it. Values nobody asked for are checked and skipped. Own code, because cJSON
 * keeps the whole document in memory, and traces are larger than that. */
#pragma once
#include "runtime/base/text.h"
#include "traces/source.h"

#include <stdbool.h>
#include <stdint.h>

enum { HEC_SCAN_NESTING = 64, HEC_SCAN_TEXT_MAX = 1 << 20, HEC_SCAN_KEY = 64, HEC_SCAN_AHEAD = 64 };

typedef struct {
  hec_source *source;
  char *window;         /* [capacity + slack], zero bytes behind `end` */
  const char *at, *end; /* unread bytes */
  const char *safe;     /* up to here a number can be read without asking for more bytes */
  bool ended;           /* the source has no more */
  bool whole_floats;    /* 7.0 is a whole number too */
  bool one_line;        /* a line feed is not white space (JSON Lines records) */
  int64_t line;         /* 1-based, of `at` */
  hec_text *capture;    /* gets every byte passed since hec_scan_capture, NULL: none */
  const char *capture_from;
  char prefix[48];        /* path in messages: prefix, key, [index] ... */
  char key[HEC_SCAN_KEY]; /* cut */
  int64_t index[3];
  int n_indices;
} hec_scan;

/* Takes over `source`. */
hec_status hec_scan_begin(hec_scan *scan, hec_source *source) HEC_MUST_USE;
hec_status hec_scan_rewind(hec_scan *scan) HEC_MUST_USE;
void hec_scan_end(hec_scan *scan);

/* The next byte that is not white space, unread, in *byte; 0 at the end of the text. */
hec_status hec_scan_peek(hec_scan *scan, int *byte) HEC_MUST_USE;
/* Reads this byte of punctuation (after white space) or fails. */
hec_status hec_scan_expect(hec_scan *scan, char byte) HEC_MUST_USE;
/* Inside an object or array just begun (`first`) or after a member: *more is false when `closing` was read. Otherwise a
 * comma was (unless first) and a member follows. */
hec_status hec_scan_more(hec_scan *scan, char closing, bool *first, bool *more) HEC_MUST_USE;
/* A member's key and its colon; the key (cut) is in scan->key and in paths of messages. */
hec_status hec_scan_key(hec_scan *scan) HEC_MUST_USE;

/* Makes HEC_SCAN_AHEAD unread bytes available, or all there are. */
hec_status hec_scan_look_ahead(hec_scan *scan) HEC_MUST_USE;
/* True for a byte that may stand behind a number or a literal (0: the end). */
static inline bool hec_scan_ends_token(char c) {
  return c == ',' || c == ']' || c == '}' || c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == 0;
}

/* Plain digits only: no sign, fraction (but see whole_floats), exponent or leading zero. */
hec_status hec_scan_integer(hec_scan *scan, uint64_t min, uint64_t max, uint64_t *value) HEC_MUST_USE;
/* An array of exactly n whole numbers; `what` names them in messages ("counts"). */
hec_status hec_scan_counts(hec_scan *scan, uint32_t *counts, int64_t n, const char *what) HEC_MUST_USE;
/* An array of rows of equally many whole numbers, as long as it is; "[]" has no rows. Gzip makes a long array of few
 * bytes. So more numbers than anyone records are an error before they are in memory: 64 MiB of them. */
enum { HEC_SCAN_ROW_MAX = 1 << 20, HEC_SCAN_ROWS_MAX = 1 << 24 }; /* numbers of a row; of all rows */
typedef struct {
  uint32_t *values; /* [n_rows][n_columns] malloc family, reused */
  size_t capacity;
  int64_t n_rows, n_columns; /* in: n_columns that a row must have, -1: as the first; out */
} hec_scan_matrix;
hec_status hec_scan_rows(hec_scan *scan, hec_scan_matrix *matrix, const char *what) HEC_MUST_USE;
hec_status hec_scan_text(hec_scan *scan, hec_text *text) HEC_MUST_USE;
/* The same of at most `max` bytes, and no other check. */
hec_status hec_scan_long_text(hec_scan *scan, size_t max, hec_text *text) HEC_MUST_USE;
hec_status hec_scan_skip(hec_scan *scan) HEC_MUST_USE;
/* Skips a value and keeps its bytes. */
hec_status hec_scan_raw(hec_scan *scan, hec_text *text) HEC_MUST_USE;
/* Reads `null` if it comes next. */
hec_status hec_scan_null(hec_scan *scan, bool *is_null) HEC_MUST_USE;
/* After the n members that were expected: counts the rest up to the closing bracket; *n_found is the whole number. */
hec_status hec_scan_count_rest(hec_scan *scan, int64_t n, int64_t *n_found) HEC_MUST_USE;

/* FILE:LINE: PATH: expected EXPECTED, found FOUND; found NULL: described from the next bytes. */
hec_status hec_scan_fail(hec_scan *scan, const char *found, const char *expected, ...)
    __attribute__((format(printf, 3, 4))) HEC_MUST_USE;
