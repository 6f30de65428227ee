/* Tables of named rows: look-up, the nearest name, and what an unknown name is answered. */
#include "runtime/base/nearest.h"
#include "runtime/base/table.h"
#include "tests/support/test.h"

#include <string.h>

typedef struct {
  const char *name;
  int number;
} row;
static const row rows[] = {{"serial", 1}, {"hecate", 2}, {"hecate-rm", 3}, {"secret", 4},
                           {"tutel", 5},  {"lina", 6},   {"fsmoe", 7},     {"prefetch", 8}};
static const row *const few[] = {&rows[0], &rows[1], NULL};
static const row *const many[] = {&rows[0], &rows[1], &rows[2], &rows[3], &rows[4], &rows[5], &rows[6], &rows[7], NULL};
static const row *const none[] = {NULL};

static bool is_offered(const void *one) {
  return strcmp(((const row *)one)->name, "secret") != 0;
}

HEC_TEST(finds_by_whole_name) {
  for (int i = 0; many[i]; i++)
    ck_assert_ptr_eq(hec_table_find(many, many[i]->name), many[i]);
  ck_assert_ptr_null(hec_table_find(many, "hecat"));
  ck_assert_ptr_null(hec_table_find(many, "hecate-"));
  ck_assert_ptr_null(hec_table_find(many, ""));
  ck_assert_ptr_null(hec_table_find(none, "serial"));
}

HEC_TEST(names_in_order_without_what_is_not_offered) {
  HEC_SCOPED(hec_text) names = {0};
  hec_table_names(&(hec_table){.rows = many, .offered = is_offered, .also = "auto"}, &names);
  ck_assert_str_eq(names.data, "auto, serial, hecate, hecate-rm, tutel, lina, fsmoe, prefetch");
}

/* The wrong word, candidates in order, the nearest (NULL: none is alike). */
static const char *const cases[][5] = {
    {"hectae", "lina", "hecate", "hecate-rm", "hecate"}, /* two letters exchanged */
    {"ecate", "lina", "hecate", "hecate-rm", "hecate"},  /* one left out */
    {"hecate-m", "lina", "hecate", "hecate-rm", "hecate-rm"},
    {"eplbb", "eplb", "eplc", "ep", "eplb"},
    {"eplx", "eplb", "eplc", "ep", "eplb"}, /* as near as the next: the first */
    {"zzz", "lina", "hecate", "ep", NULL},
    {"", "lina", "hecate", "ep", NULL},
};

HEC_TEST_ROWS(nearest_name, cases) {
  const char *const *c = cases[_i];
  hec_nearest_search search = {.word = c[0]};
  for (int k = 1; k < 4; k++)
    hec_nearest_offer(&search, c[k]);
  if (c[4])
    ck_assert_str_eq(search.nearest ? search.nearest : "none", c[4]);
  else
    ck_assert_ptr_null(search.nearest);
}

HEC_TEST(overlong_names_are_like_none) {
  char words[2][200];
  memset(words, 'a', sizeof words);
  words[0][199] = words[1][198] = 0;
  hec_nearest_search search = {.word = words[0]};
  hec_nearest_offer(&search, words[1]);
  hec_nearest_offer(&search, "a");
  ck_assert_ptr_null(search.nearest);
}

HEC_TEST(a_short_table_is_told_whole) {
  ck_assert_int_eq(hec_table_unknown(&(hec_table){.rows = few, .list = "tool --list"}, "--schedule", "x"),
                   HEC_BAD_INPUT);
  ck_assert_str_eq(hec_last_error(), "--schedule: expected one of serial, hecate, found \"x\"");
}

HEC_TEST(words_are_told_as_a_table_is) {
  int32_t which;
  ck_assert_int_eq(hec_word_of("train forward", "`phase`", "forward", &which), HEC_OK);
  ck_assert_int_eq(which, 1);
  ck_assert_int_eq(hec_word_of("train forward", "`phase`", "foward", &which), HEC_BAD_INPUT);
  ck_assert_str_eq(hec_last_error(),
                   "`phase`: expected one of train, forward (did you mean \"forward\"?), found \"foward\"");
}

HEC_TEST(a_long_table_tells_the_nearest_and_how_to_list) {
  hec_table table = {.rows = many, .offered = is_offered, .also = "auto", .list = "tool --list"};
  ck_assert_int_eq(hec_table_unknown(&table, "--schedule", "hecat"), HEC_BAD_INPUT);
  ck_assert_str_eq(hec_last_error(), "--schedule: expected one of the 8 names that \"tool --list\" lists (did you mean "
                                     "\"hecate\"?), found \"hecat\"");
  ck_assert_int_eq(hec_table_unknown(&table, "--schedule", "secre"), HEC_BAD_INPUT);
  ck_assert_msg(!strstr(hec_last_error(), "secret"), "%s", hec_last_error());
}
