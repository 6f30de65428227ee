/* What gets which colour; and whatever the text, without its escapes it is the same bytes. */
#include "tests/support/test.h"
#include "tools/front/colour.h"

#include <string.h>

static const struct {
  const char *plain, *coloured;
} cases[] = {
    {"", ""},
    {"{\"a\": \"FAILED\"}\n", "{\"a\": \"FAILED\"}\n"},
    {"hecate-sim 1.2.3: x\nmodel  y\n", "\033[1mhecate-sim 1.2.3: x\033[0m\nmodel  y\n"},
    {"mind     of this\nminding that\n", "\033[33mmind\033[0m     of this\nminding that\n"},
    {"\npolicy     schedule    p95\nname      ms   fits\nep    1.5  2.00x   3 no\nep   1.5  2   3 yes\n",
     "\n\033[1mpolicy     schedule    p95\033[0m\n\033[1mname      ms   fits\033[0m\nep    1.5  2.00x   3 "
     "\033[31mno\033[0m\n"
     "ep   1.5  2   3 yes\n"},
    {"\n  T 1.4 ms   hide   this\n", "\n  T 1.4 ms   hide   this\n"},
    {"a sentence says no\n", "a sentence says no\n"},
    {"check passed: 12\ncheck FAILED: NOT EXACT",
     "check \033[32mpassed\033[0m: 12\ncheck \033[31mFAILED\033[0m: \033[31mNOT EXACT\033[0m"},
    {"bypassed\n", "bypassed\n"},
    {"Fastest that fits: ep.\n", "\033[1m\033[32mFastest that fits: ep.\033[0m\n"},
    {"trace,policy\n1,ep\n", "trace,policy\n1,ep\n"},
};

HEC_TEST_ROWS(rules, cases) {
  HEC_SCOPED(hec_text) out = {0};
  hec_text_add(&out, "");
  hec_colour_add(cases[_i].plain, strlen(cases[_i].plain), &out);
  ck_assert_str_eq(out.data, cases[_i].coloured);
}

/* Pieces that rules look for, in any order. */
HEC_TEST_LOOP(nothing_lost, 200) {
  static const char *const pieces[] = {"\n",  " ",  "  ",  "mind ",     "FAILED",  "passed", "Fastest", "1.5",
                                       " no", "no", "p95", "NOT EXACT", "hecate-", "x",      "\n\n",    "\t"};
  uint64_t seed = 900 + (uint64_t)_i;
  HEC_SCOPED(hec_text) text = {0}, out = {0}, back = {0};
  hec_text_add(&back, "");
  for (uint64_t n = hec_test_below(&seed, 60) + 1; n > 0; n--)
    hec_text_add(&text, pieces[hec_test_below(&seed, sizeof pieces / sizeof *pieces)]);
  hec_colour_add(text.data, text.length, &out);
  for (const char *p = out.data; *p; p++) {
    if (*p == '\033')
      p += strcspn(p, "m");
    else
      hec_text_add_bytes(&back, p, 1);
  }
  ck_assert_str_eq(back.data, text.data);
}
