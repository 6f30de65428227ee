/* Numbers as the page shows them: our own digits, whatever the locale. The value itself is on the stack, so that
 * hec_fixed(x, 2).text stands in a call. */
#pragma once
#include <stdint.h>

typedef struct {
  char text[40];
} hec_number;

/* Rounded to `decimals` (0 to 9) digits after the point, half away from zero; "-" for what is not finite. */
hec_number hec_fixed(double value, int decimals);
hec_number hec_bytes(double bytes);        /* "5.37 GB": three figures and a unit, powers of 1000 */
hec_number hec_bytes_binary(double bytes); /* "5.00 GiB": powers of 1024, as a training step counts */
hec_number hec_seconds(double s);          /* "42.3 ms": three figures and a unit */
hec_number hec_percent(double share);      /* "12 %", below 10 % one digit more */
hec_number hec_times(double ratio);        /* "1.95", from 100 on fewer digits */
int hec_decimals(double step);             /* digits that tell multiples of `step` apart, at most 6 */
int64_t hec_round(double value);           /* half away from zero; inside of int64 */
