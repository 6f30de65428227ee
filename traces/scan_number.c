/* Whole numbers in JSON. Lists of them are the bulk of a trace: those of the common form are read by traces/digits.h. */
#include "traces/scan.h"

#include "runtime/base/arena.h"
#include "traces/digits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

hec_status hec_scan_integer(hec_scan *scan, uint64_t min, uint64_t max, uint64_t *value) {
  int byte = 0;
  HEC_TRY(hec_scan_peek(scan, &byte));
  HEC_TRY(hec_scan_look_ahead(scan));
  const char *p = scan->at;
  uint64_t v = 0;
  bool fits = *p >= '0' && *p <= '9' && !(*p == '0' && p[1] >= '0' && p[1] <= '9');
  for (; *p >= '0' && *p <= '9'; p++) {
    unsigned digit = (unsigned)(*p - '0');
    fits = fits && v <= (UINT64_MAX - digit) / 10;
    v = v * 10 + digit;
  }
  if (scan->whole_floats && p > scan->at && p[0] == '.' && p[1] == '0')
    for (p += 2; *p == '0';)
      p++;
  bool good = fits && hec_scan_ends_token(*p) && v >= min && v <= max;
  if (!good && min == max)
    return hec_scan_fail(scan, NULL, "%" PRIu64, min);
  if (!good && scan->whole_floats)
    return hec_scan_fail(scan, NULL, "a whole number from %" PRIu64 " to %" PRIu64 " (7 or 7.0; no shares or averages)",
                         min, max);
  if (!good)
    return hec_scan_fail(scan, NULL, "a whole number from %" PRIu64 " to %" PRIu64, min, max);
  scan->at = p;
  *value = v;
  return HEC_OK;
}

/* As many of the list's numbers as have the common form (short, then a comma, perhaps a space) and lie inside the
 * window. What separates the last one from the next is read. All must be separated alike. Whether a space follows is
 * checked. But the next address does not wait for that byte, which would nearly double the time of a number. */
static int64_t common_numbers(hec_scan *scan, uint32_t *counts, int64_t n) {
  const char *p = scan->at, *safe = scan->safe;
  int64_t i = 0;
  size_t n_spaces = 0;
  while (i < n && p < safe) {
    unsigned n_digits = hec_digits_short(p, &counts[i]);
    if (n_digits == 0 || p[n_digits] != ',')
      break;
    if (i == 0)
      n_spaces = p[n_digits + 1] == ' ';
    else if (n_spaces > 0 && p[n_digits + 1] != ' ')
      break; /* not alike: the caller takes this one */
    p += n_digits + 1 + n_spaces;
    i++;
  }
  scan->at = p;
  return i;
}

hec_status hec_scan_counts(hec_scan *scan, uint32_t *counts, int64_t n, const char *what) {
  int byte = 0;
  HEC_TRY(hec_scan_peek(scan, &byte));
  if (byte != '[')
    return hec_scan_fail(scan, NULL, "an array of %" PRId64 " %s", n, what);
  scan->at++;
  int depth = scan->n_indices;
  char found[32];
  bool first = true, more = false;
  int64_t i = 0;
  for (; i < n; i++) {
    HEC_TRY(hec_scan_more(scan, ']', &first, &more));
    if (!more)
      break;
    HEC_TRY(hec_scan_peek(scan, &byte)); /* white space before a number */
    HEC_TRY(hec_scan_look_ahead(scan));
    i += common_numbers(scan, counts + i, n - 1 - i); /* the last one has no comma behind it */
    scan->index[depth] = i;
    scan->n_indices = depth + 1;
    uint64_t value = 0;
    HEC_TRY(hec_scan_integer(scan, 0, UINT32_MAX, &value));
    scan->n_indices = depth;
    counts[i] = (uint32_t)value;
  }
  int64_t n_found = i;
  if (more || n == 0)
    HEC_TRY(hec_scan_count_rest(scan, n, &n_found));
  if (n_found == n)
    return HEC_OK;
  (void)snprintf(found, sizeof found, "%" PRId64, n_found);
  return hec_scan_fail(scan, found, "%" PRId64 " %s", n, what);
}

/* ---- rows of equal length ---- */

/* As many whole rows "[1,2,3]" with a comma behind them as have the common form (see common_numbers) and lie inside the
 * window; at most `room`. */
static int64_t common_rows(hec_scan *scan, uint32_t *values, int64_t n_columns, int64_t room) {
  const char *p = scan->at, *safe = scan->safe;
  int64_t n = 0;
  for (; n < room; n++, values += n_columns) {
    const char *q = p + 1;
    int64_t c = 0;
    if (p >= safe || *p != '[')
      break;
    for (; c < n_columns && q < safe; c++) {
      unsigned n_digits = hec_digits_short(q, &values[c]);
      if (n_digits == 0 || q[n_digits] != (c + 1 < n_columns ? ',' : ']'))
        break;
      q += n_digits + 1;
      q += *q == ' ';
    }
    if (c < n_columns || *q != ',') /* a blank before the comma is not common */
      break;
    p = q + 1;
    p += *p == ' ';
  }
  scan->at = p;
  return n;
}

/* The first row: as many numbers as there are. */
static hec_status first_row(hec_scan *scan, hec_scan_matrix *m, int depth, const char *what) {
  bool first = true, more = true;
  m->n_columns = 0;
  HEC_TRY(hec_scan_expect(scan, '['));
  for (;;) {
    HEC_TRY(hec_scan_more(scan, ']', &first, &more));
    if (!more)
      break;
    if (m->n_columns == HEC_SCAN_ROW_MAX)
      return hec_scan_fail(scan, "more", "at most %d %s", HEC_SCAN_ROW_MAX, what);
    scan->index[depth + 1] = m->n_columns;
    scan->n_indices = depth + 2;
    uint64_t value = 0;
    HEC_TRY(hec_scan_integer(scan, 0, UINT32_MAX, &value));
    scan->n_indices = depth + 1;
    HEC_RESERVE(m->values, m->capacity, m->n_columns + 1);
    m->values[m->n_columns++] = (uint32_t)value;
  }
  return HEC_OK;
}

hec_status hec_scan_rows(hec_scan *scan, hec_scan_matrix *m, const char *what) {
  enum { STEP_NUMBERS = 1 << 14 };
  int byte = 0, depth = scan->n_indices;
  HEC_ASSERT(depth + 2 <= 3);
  HEC_TRY(hec_scan_peek(scan, &byte));
  if (byte != '[')
    return hec_scan_fail(scan, NULL, "an array of arrays of %s", what);
  scan->at++;
  bool first = true, more = true;
  for (m->n_rows = 0;; m->n_rows++) {
    HEC_TRY(hec_scan_more(scan, ']', &first, &more));
    if (!more)
      return HEC_OK;
    int64_t left = m->n_columns > 0 ? HEC_SCAN_ROWS_MAX / m->n_columns - m->n_rows : 1; /* rows */
    if (left <= 0)
      return hec_scan_fail(scan, "more", "at most %d %s", HEC_SCAN_ROWS_MAX, what);
    HEC_TRY(hec_scan_peek(scan, &byte));
    scan->index[depth] = m->n_rows;
    scan->n_indices = depth + 1;
    if (m->n_columns < 0) {
      HEC_TRY(first_row(scan, m, depth, what));
    } else {
      int64_t room = m->n_columns > 0 ? STEP_NUMBERS / m->n_columns : 0;
      room = room < left ? room : left - 1;
      HEC_RESERVE(m->values, m->capacity, (m->n_rows + room + 1) * m->n_columns + 1);
      if (room > 0)
        m->n_rows += common_rows(scan, m->values + m->n_rows * m->n_columns, m->n_columns, room);
      scan->index[depth] = m->n_rows;
      HEC_TRY(hec_scan_counts(scan, m->values + m->n_rows * m->n_columns, m->n_columns, what));
    }
    scan->n_indices = depth;
  }
}
