/* Digits against the C library's: every length, both sides of every power of ten, whatever stands behind. */
#include "tests/support/test.h"
#include "traces/digits.h"

#include <inttypes.h>

static void check_print(uint64_t value) {
  char wanted[32], printed[32];
  int n = snprintf(wanted, sizeof wanted, "%" PRIu64, value);
  memset(printed, '#', sizeof printed);
  ck_assert_int_eq(hec_digits_print(printed, value) - printed, n);
  ck_assert_mem_eq(printed, wanted, (size_t)n);
  ck_assert_int_eq(printed[n], '#'); /* nothing behind it is written */
}

HEC_TEST(numbers_are_printed) {
  uint64_t seed = 1, power = 1;
  for (int digits = 1; digits <= 20; digits++, power *= 10)
    for (uint64_t near = 0; near < 3; near++)
      check_print(power - 1 + near);
  check_print(UINT64_MAX);
  for (int i = 0; i < 200000; i++)
    check_print(hec_test_random(&seed) >> hec_test_below(&seed, 64));
}

HEC_TEST(short_numbers_are_read) {
  static const char behind[] = {',', ']', ' ', 0, '/', ':', '-', '.', 'e', (char)0x80, (char)0xb0, (char)0xff, '\n'};
  uint64_t seed = 2;
  for (int i = 0; i < 400000; i++) {
    char text[24];
    int n = (int)hec_test_below(&seed, 10), end = n;
    for (int c = 0; c < 24; c++) /* any bytes after the one behind the digits */
      text[c] = (char)hec_test_random(&seed);
    for (int c = 0; c < n; c++)
      text[c] = (char)('0' + hec_test_below(&seed, 10));
    if (n > 1 && hec_test_below(&seed, 4) == 0)
      text[0] = '0';
    text[end++] = behind[hec_test_below(&seed, sizeof behind)];
    if (n == 1 && hec_test_below(&seed, 2) == 0)
      text[0] = '0';
    uint32_t value = UINT32_MAX;
    unsigned read = hec_digits_short(text, &value);
    bool is_short = n >= 1 && n <= 7 && (n == 1 || text[0] != '0');
    ck_assert_uint_eq(read, is_short ? (unsigned)n : 0);
    if (is_short) {
      text[n] = 0;
      ck_assert_uint_eq(value, strtoul(text, NULL, 10));
    }
  }
}
