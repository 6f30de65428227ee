/* Options of a row: where a row ends in a list, how numbers are read, and what is answered when one is wrong. */
#include "runtime/base/option.h"
#include "tests/support/test.h"

#include <string.h>

typedef struct {
  double cap, min;
  int32_t slots;
} row;

static const hec_option options[] = {
    {.name = "cap", .type = HEC_OPTION_REAL, .at = offsetof(row, cap), .min = 0.01, .max = 1e30, .help = "the cap"},
    {.name = "least", .type = HEC_OPTION_WHOLE, .at = offsetof(row, min), .min = 0, .max = 1e9, .help = "the least"},
    {.name = "slots",
     .at = offsetof(row, slots),
     .min = 1,
     .max = 64,
     .help = "the slots",
     .source = "a paper",
     .initial = "as many as fit",
     .word = "all",
     .word_value = -2},
    {0}};

static const struct {
  const char *text;
  size_t end;
} lists[] = {{"ep", 2},
             {"ep,eplb", 2},
             {"llep:cap=1", 10},
             {"llep:cap=1,eplb", 10},
             {"", 0},
             {",ep", 0},
             {"llep:cap=1,least=2,ep", 18},
             {"ep,llep:cap=1,least=2", 2},
             {"llep:cap=1,", 10},
             {"llep:cap=1,eplb:slots=2", 10},
             {"a:b=1,c=2,d=3", 13}};

HEC_TEST(row_ends_where_no_option_follows) {
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
    ck_assert_msg(hec_options_end(lists[i].text) == lists[i].text + lists[i].end, "%s", lists[i].text);
}

static hec_status read_row(const char *text, row *values, uint32_t *given) {
  return hec_options_read("--policy", "llep", text, options, values, sizeof *values, given);
}

HEC_TEST(values_go_into_fields) {
  row values = {.cap = 1, .min = 1024, .slots = 3};
  uint32_t given = 0;
  ck_assert_int_eq(read_row("least=7,cap=1.30", &values, &given), HEC_OK);
  ck_assert(values.cap == 1.3 && values.min == 7 && values.slots == 3 && given == 3);
  HEC_SCOPED(hec_text) text = {0};
  hec_options_write(options, &values, given, &text);
  ck_assert_str_eq(text.data, ":cap=1.3,least=7");
  text.length = 0;
  ck_assert_int_eq(read_row("slots=all", &values, &given), HEC_OK);
  ck_assert(values.slots == -2 && given == 4);
  hec_options_write(options, &values, given, &text);
  ck_assert_str_eq(text.data, ":slots=all");
  text.length = 0;
  hec_options_write(options, &values, 0, &text);
  hec_options_write(NULL, &values, 0, &text);
  ck_assert_uint_eq(text.length, 0);
  hec_option_explain(&options[0], &values, &text);
  ck_assert_str_eq(text.data, "the cap, 0.01 to 1e+30; default 1.3");
  text.length = 0;
  hec_option_explain(&options[2], &values, &text);
  ck_assert_str_eq(text.data, "the slots, 1 to 64 or \"all\"; default as many as fit (a paper)");
}

/* Against strtod, in the locale of the test: the nearest double. */
HEC_TEST(numbers_are_the_nearest_double) {
  uint64_t seed = 5;
  for (int round = 0; round < 20000; round++) {
    char number[64], text[80];
    unsigned long long whole = hec_test_below(&seed, 1000000), part = hec_test_below(&seed, 1000000000);
    int n = snprintf(number, sizeof number, "%llu", whole);
    if (round % 2)
      n += snprintf(number + n, sizeof number - (size_t)n, ".%0*llu", 9, part);
    if (round % 3 == 0)
      (void)snprintf(number + n, sizeof number - (size_t)n, "e%s%d", round % 4 < 2 ? "-" : "",
                     (int)hec_test_below(&seed, 14));
    row values = {0};
    uint32_t given;
    double wanted = strtod(number, NULL);
    (void)snprintf(text, sizeof text, "cap=%s", number);
    if (wanted < 0.01)
      continue;
    ck_assert_msg(read_row(text, &values, &given) == HEC_OK, "%s", hec_last_error());
    ck_assert_msg(values.cap == wanted, "%s: %.17g", number, values.cap);
  }
}

static const struct {
  const char *text, *error;
} wrong[] = {
    {"", "--policy llep: expected cap=VALUE, least=VALUE, slots=VALUE, found \"\""},
    {"cpa=3", "--policy llep: expected cap=VALUE, least=VALUE, slots=VALUE, found \"cpa=3\" (did you mean \"cap\"?)"},
    {"cap", "found \"cap\" (did you mean \"cap\"?)"},
    {"cap=1,", "found \"\""},
    {"cap=", "--policy llep: cap: expected a number from 0.01 to 1e+30, found \"\""},
    {"cap=1x", "found \"1x\""},
    {"cap=-1", "found \"-1\""},
    {"cap=+1", "found \"+1\""},
    {"cap=0x10", "found \"0x10\""},
    {"cap=nan", "found \"nan\""},
    {"cap=inf", "found \"inf\""},
    {"cap=.", "found \".\""},
    {"cap=1e", "found \"1e\""},
    {"cap=1e23", "found \"1e23\""},
    {"cap=1.2.3", "found \"1.2.3\""},
    {"cap=1 ", "found \"1 \""},
    {"cap=0.001", "found \"0.001\""},
    {"cap=1234567890.1234567", "found \"1234567890.1234567\""},
    {"least=1.5", "--policy llep: least: expected an integer from 0 to 1e+09, found \"1.5\""},
    {"slots=0", "--policy llep: slots: expected an integer from 1 to 64 or \"all\", found \"0\""},
    {"slots=al", "found \"al\""},
    {"slots=65,cap=1", "found \"65\""},
    {"cap=1,least=2,cap=3", "--policy llep: cap is given twice"},
};

HEC_TEST(wrong_options_change_nothing) {
  row values = {.cap = 5, .min = 6, .slots = 7};
  uint32_t given = 9;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ck_assert_msg(read_row(wrong[i].text, &values, &given) == HEC_BAD_INPUT, "%s", wrong[i].text);
    ck_assert_msg(strstr(hec_last_error(), wrong[i].error) != NULL, "%s", hec_last_error());
    ck_assert(values.cap == 5 && values.min == 6 && values.slots == 7 && given == 9);
  }
  ck_assert_int_eq(hec_options_read("--gate", "softmax", "cap=1", NULL, &values, sizeof values, &given), HEC_BAD_INPUT);
  ck_assert_str_eq(hec_last_error(), "--gate softmax: expected nothing after the name, found \"cap=1\"");
}
