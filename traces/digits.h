/* Digits to numbers and back; strtoull and printf take several times as long.
 *
 * Read: eight bytes are loaded at once. The first byte that is no digit is found with one subtraction-free test. d = b
 * ^ 0x30 is a digit iff d + 0x76 and d stay below 0x80. A carry only spoils bytes above the first hit. Up to seven
 * digits become a number by three multiplications (pairs, fours, eights). No branch depends on the digits. Other byte
 * orders take the plain loop. Printed: two digits at a time from the right. */
#pragma once
#include <stdint.h>
#include <string.h>

enum {
  HEC_DIGITS_AHEAD = 8, /* bytes that hec_digits_short reads */
  HEC_DIGITS_MAX = 20   /* bytes that hec_digits_print writes at most */
};

/* 1..7 digits at p followed by anything else: their number and how many. 0 when it is not of this form (no digit,
 * leading zero, longer). */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
static inline unsigned hec_digits_short(const char *p, uint32_t *value) {
  uint64_t d;
  memcpy(&d, p, sizeof d);
  d ^= UINT64_C(0x3030303030303030);
  uint64_t not_digit = ((d + UINT64_C(0x7676767676767676)) | d) & UINT64_C(0x8080808080808080);
  if (not_digit == 0)
    return 0;
  unsigned n = (unsigned)__builtin_ctzll(not_digit) >> 3;
  if (n == 0 || (n > 1 && (d & 0xff) == 0))
    return 0;
  d <<= 64 - 8 * n; /* leading zeros; the first digit in the lowest byte that is left */
  d = d * 10 + (d >> 8);
  d = ((d & UINT64_C(0x000000FF000000FF)) * UINT64_C(0x000F424000000064) +
       ((d >> 16) & UINT64_C(0x000000FF000000FF)) * UINT64_C(0x0000271000000001)) >>
      32;
  *value = (uint32_t)d;
  return n;
}
#else
static inline unsigned hec_digits_short(const char *p, uint32_t *value) {
  unsigned n = 0;
  uint32_t v = 0;
  for (; n < 8 && p[n] >= '0' && p[n] <= '9'; n++)
    v = v * 10 + (uint32_t)(p[n] - '0');
  *value = v;
  return n == 8 || (n > 1 && p[0] == '0') ? 0 : n;
}
#endif

/* Digits of `value` at `to`; returns the end. */
static inline char *hec_digits_print(char *to, uint64_t value) {
  static const char pairs[] =
      "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
      "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";
  size_t n = 1 + (size_t)(value >= 10) + (size_t)(value >= 100) + (size_t)(value >= 1000);
  for (uint64_t rest = value / 10000; rest > 0; rest /= 10)
    n++;
  char *end = to + n, *at = end;
  for (; value >= 100; value /= 100) {
    at -= 2;
    memcpy(at, pairs + 2 * (size_t)(value % 100), 2);
  }
  if (value >= 10)
    memcpy(at - 2, pairs + 2 * (size_t)value, 2);
  else
    at[-1] = (char)('0' + value);
  return end;
}
