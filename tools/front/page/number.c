/* See number.h. A value is scaled to an integer and its digits are written out; + - * / alone, so the page is the same
 * everywhere. */
#include "tools/front/page/number.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LARGEST 9e18 /* below 2^63 */

int64_t hec_round(double value) {
  double limited = value > LARGEST ? LARGEST : value < -LARGEST ? -LARGEST : value;
  return limited < 0 ? -(int64_t)(0.5 - limited) : (int64_t)(limited + 0.5);
}

hec_number hec_fixed(double value, int decimals) {
  hec_number out = {"-"};
  if (!isfinite(value))
    return out;
  double scale = 1, size = value < 0 ? -value : value;
  for (int i = 0; i < decimals; i++)
    scale *= 10;
  if (size * scale >= LARGEST) { /* digits that no double has */
    (void)snprintf(out.text, sizeof out.text, "%.4e", value);
    for (char *c = out.text; *c; c++)
      *c = *c == ',' ? '.' : *c;
    return out;
  }
  int64_t digits = hec_round(size * scale);
  bool negative = value < 0 && digits > 0;
  char *end = out.text + sizeof out.text - 1, *at = end;
  for (int i = 0; i <= decimals || digits > 0; i++, digits /= 10) { /* from the last digit on */
    if (i == decimals && i > 0)
      *--at = '.';
    *--at = (char)('0' + digits % 10);
  }
  if (negative)
    *--at = '-';
  memmove(out.text, at, (size_t)(end - at));
  out.text[end - at] = 0;
  return out;
}

/* Three figures before a unit of the table, each `base` times the next smaller one; 999.7 is 1.00 of the next, or 0.98 for 1024. */
static hec_number with_unit(double value, double base, const char *const *units, int n) {
  int unit = 0;
  double size = value < 0 ? -value : value;
  while (unit + 1 < n && size >= 999.5) {
    size /= base;
    value /= base;
    unit++;
  }
  hec_number out = hec_fixed(value, size == 0 || (unit == 0 && size < 0.5) ? 0
                                    : size < 9.995                         ? 2
                                    : size < 99.95                         ? 1
                                                                           : 0);
  size_t at = strlen(out.text);
  (void)snprintf(out.text + at, sizeof out.text - at, " %s", units[unit]);
  return out;
}

static hec_number bytes_of(double bytes, double base, const char *const units[6]) {
  hec_number whole = hec_fixed(bytes, 0);
  if (bytes < 999.5 && bytes > -999.5) {
    (void)strcat(whole.text, " B");
    return whole;
  }
  return with_unit(bytes, base, units, 6);
}

hec_number hec_bytes(double bytes) {
  static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  return bytes_of(bytes, 1000, units);
}

hec_number hec_bytes_binary(double bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  return bytes_of(bytes, 1024, units);
}

hec_number hec_seconds(double s) {
  static const char *const units[] = {"ns", "us", "ms", "s"};
  return with_unit(1e9 * s, 1000, units, 4);
}

hec_number hec_percent(double share) {
  double size = share < 0 ? -share : share;
  hec_number out = hec_fixed(100 * share, size > 0 && size < 0.0995 ? 1 : 0);
  (void)strcat(out.text, " %");
  return out;
}

hec_number hec_times(double ratio) {
  return hec_fixed(ratio, ratio < 99.995 ? 2 : ratio < 999.95 ? 1 : 0);
}

int hec_decimals(double step) {
  int decimals = 0;
  while (decimals < 6 && step < 0.9999) {
    step *= 10;
    decimals++;
  }
  return decimals;
}
