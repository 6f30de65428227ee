/* The page's own digits: against printf where no half is to be rounded, by hand where units and halves meet. Ticks cover
 * what they stand for. */
#include "tests/support/test.h"
#include "tools/front/page/page.h"

#include <math.h>

HEC_TEST(fixed) {
  static const struct {
    double value;
    int decimals;
    const char *text;
  } cases[] = {{0, 0, "0"},
               {0, 3, "0.000"},
               {-0.0, 2, "0.00"},
               {2.385, 1, "2.4"},
               {-2.385, 1, "-2.4"},
               {0.5, 0, "1"},
               {-0.5, 0, "-1"},
               {-0.0004, 3, "0.000"},
               {1234567.5, 0, "1234568"},
               {0.05, 1, "0.1"},
               {99.996, 2, "100.00"},
               {NAN, 2, "-"},
               {INFINITY, 2, "-"},
               {1e15, 2, "1000000000000000.00"},
               {1e300, 2, "1.0000e+300"},
               {7, 9, "7.000000000"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    ck_assert_str_eq(hec_fixed(cases[i].value, cases[i].decimals).text, cases[i].text);
  uint64_t seed = 5;
  for (int i = 0; i < 20000; i++) {
    double value = (hec_test_uniform(&seed) - 0.5) * (double)(1 + hec_test_below(&seed, 1000000));
    int decimals = (int)hec_test_below(&seed, 7);
    char text[64];
    (void)snprintf(text, sizeof text, "%.*f", decimals, value);
    double back = strtod(hec_fixed(value, decimals).text, NULL), step = pow(10, -decimals);
    ck_assert_msg(fabs(back - strtod(text, NULL)) < 1.01 * step && fabs(back - value) < 0.500001 * step, "%s of %.17g",
                  text, value);
  }
}

HEC_TEST(units) {
  ck_assert_str_eq(hec_bytes(0).text, "0 B");
  ck_assert_str_eq(hec_bytes(999).text, "999 B");
  ck_assert_str_eq(hec_bytes(999.6).text, "1.00 kB");
  ck_assert_str_eq(hec_bytes(5.3712e9).text, "5.37 GB");
  ck_assert_str_eq(hec_bytes(40e9).text, "40.0 GB");
  ck_assert_str_eq(hec_bytes(999.7e6).text, "1.00 GB");
  ck_assert_str_eq(hec_bytes_binary(5.0 * 1073741824).text, "5.00 GiB");
  ck_assert_str_eq(hec_bytes_binary(1000.0 * 1048576).text, "0.98 GiB");
  ck_assert_str_eq(hec_bytes(3e18).text, "3000 PB");
  ck_assert_str_eq(hec_seconds(0.042273).text, "42.3 ms");
  ck_assert_str_eq(hec_seconds(0.9999).text, "1.00 s");
  ck_assert_str_eq(hec_seconds(5.16e-6).text, "5.16 us");
  ck_assert_str_eq(hec_seconds(0).text, "0 ns");
  ck_assert_str_eq(hec_seconds(NAN).text, "- ns");
  ck_assert_str_eq(hec_percent(0.0312).text, "3.1 %");
  ck_assert_str_eq(hec_percent(0.43).text, "43 %");
  ck_assert_str_eq(hec_percent(-0.123).text, "-12 %");
  ck_assert_str_eq(hec_times(1.9534).text, "1.95");
  ck_assert_str_eq(hec_times(123.46).text, "123.5");
}

HEC_TEST(ticks) {
  uint64_t seed = 11;
  for (int i = 0; i < 5000; i++) {
    double size = pow(10, (double)hec_test_below(&seed, 14) - 6), low = (hec_test_uniform(&seed) - 0.3) * size,
           high = low + hec_test_uniform(&seed) * size;
    int32_t about = 2 + (int32_t)hec_test_below(&seed, 8);
    hec_axis axis = hec_axis_of(low, high, about);
    double steps = (axis.high - axis.low) / axis.step, digits = log10(axis.step);
    double lead = axis.step / pow(10, floor(digits + 1e-9));
    ck_assert_msg(axis.low <= low + 1e-9 * size && axis.high >= high - 1e-9 * size, "%g to %g", low, high);
    ck_assert_msg(fabs(lead - 1) < 1e-6 || fabs(lead - 2) < 1e-6 || fabs(lead - 5) < 1e-6, "step %g", axis.step);
    ck_assert_msg(steps < 2 * about + 3, "%g steps for %d, %g to %g", steps, about, low, high);
  }
  hec_axis one = hec_axis_of(3, 3, 5);
  ck_assert(one.high > one.low && one.low <= 3 && one.high >= 3);
}

HEC_TEST(harmless_text) {
  static const struct {
    const char *text, *wanted;
  } cases[] = {{"<script>alert(1)</script>", "&#60;script&#62;alert(1)&#60;/script&#62;"},
               {"a \"b\" 'c' & d", "a &#34;b&#34; &#39;c&#39; &#38; d"},
               {"line\nfeed\ttab\x01\x7f", "line feed tab\xef\xbf\xbd\xef\xbf\xbd"},
               {"\xff\xc0\xaf ok \xe2\x82\xac \xed\xa0\x80",
                "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd ok \xe2\x82\xac \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
               {"", ""}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    HEC_SCOPED(hec_text) out = {0};
    hec_text_add(&out, "");
    hec_page_add(cases[i].text, &out);
    ck_assert_str_eq(out.data, cases[i].wanted);
  }
}
