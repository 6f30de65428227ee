/* Look-up by a linear scan: tables have some thirty rows. */
#include "runtime/base/table.h"

#include "runtime/base/nearest.h"

#include <stdio.h>
#include <string.h>

/* Row i of a table; NULL at its end. Tables hold pointers of their own types: their bytes are copied, not read as void *. */
static const void *row_at(const void *rows, size_t i) {
  const void *row;
  memcpy(&row, (const char *)rows + i * sizeof row, sizeof row);
  return row;
}

static const char *name_of(const void *row) {
  const char *name;
  memcpy(&name, row, sizeof name);
  return name;
}

const void *hec_table_find(const void *rows, const char *name) {
  const void *row;
  for (size_t i = 0; (row = row_at(rows, i)) != NULL; i++)
    if (strcmp(name_of(row), name) == 0)
      return row;
  return NULL;
}

/* The name at place *i or behind it, which then is the place after it; place 0 is the further word's. NULL: no more. */
static const char *next_name(const hec_table *table, size_t *i) {
  if ((*i)++ == 0) {
    if (table->also)
      return table->also;
    (*i)++;
  }
  for (const void *row; (row = row_at(table->rows, *i - 2)) != NULL; (*i)++)
    if (!table->offered || table->offered(row)) {
      return name_of(row);
    }
  return NULL;
}

void hec_table_names(const hec_table *table, hec_text *names) {
  size_t i = 0, before = names->length;
  for (const char *name; (name = next_name(table, &i)) != NULL;)
    hec_text_printf(names, "%s%s", names->length > before ? ", " : "", name);
}

void hec_table_expect(const hec_table *table, const char *name, hec_text *expected) {
  hec_nearest_search search = {.word = name};
  size_t i = 0;
  int n = 0;
  for (const char *one; (one = next_name(table, &i)) != NULL; n++)
    hec_nearest_offer(&search, one);
  hec_text_add(expected, "one of ");
  if (!table->list || n <= HEC_TABLE_LISTED)
    hec_table_names(table, expected);
  else
    hec_text_printf(expected, "the %d names that \"%s\" lists", n, table->list);
  hec_nearest_hint(&search, expected);
}

hec_status hec_table_unknown(const hec_table *table, const char *where, const char *name) {
  HEC_SCOPED(hec_text) expected = {0};
  hec_table_expect(table, name, &expected);
  return hec_fail(HEC_BAD_INPUT, "%s: expected %s, found \"%.60s\"", where, expected.data, name);
}

hec_status hec_word_of(const char *words, const char *where, const char *word, int32_t *which) {
  enum { WORDS_MAX = 16, WORDS_BYTES = 160 };
  char copy[WORDS_BYTES], *rest = copy;
  struct {
    const char *name;
  } names[WORDS_MAX];
  const void *rows[WORDS_MAX + 1] = {NULL};
  HEC_ASSERT(strlen(words) < sizeof copy);
  (void)snprintf(copy, sizeof copy, "%s", words);
  for (int32_t n = 0; n < WORDS_MAX && (names[n].name = strtok_r(rest, " ", &rest)) != NULL; n++)
    rows[n] = &names[n];
  for (*which = 0; rows[*which]; ++*which)
    if (strcmp(names[*which].name, word) == 0)
      return HEC_OK;
  return hec_table_unknown(&(hec_table){.rows = rows}, where, word);
}
