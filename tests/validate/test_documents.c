/* Accuracy in README.md and validate/README.md is what validate/results/ says, word for word. In a row of a table that
 * links to a report there, what is in double quotes stands in one of the linked reports. No number of accuracy stands
 * outside of quotes. Whoever renews a report sees here which sentences it makes wrong. */
#include "runtime/base/text.h"
#include "tests/support/test.h"

#include <ctype.h>
#include <string.h>

enum { LINKS_MAX = 8 };

static hec_text read_whole(const char *below) {
  HEC_SCOPED(hec_text) path = {0};
  hec_text text = {0};
  hec_text_printf(&path, "%s/%s", HEC_SOURCE_DIR, below);
  FILE *file = fopen(path.data, "rb");
  ck_assert_msg(file != NULL, "%s is not there", below);
  char bytes[4096];
  for (size_t n; (n = fread(bytes, 1, sizeof bytes, file)) > 0;)
    hec_text_add_bytes(&text, bytes, n);
  (void)fclose(file);
  return text;
}

/* The reports that the row links to, one behind the other; false: none. `folder`: of the document, with its slash. */
static bool linked(const char *row, const char *folder, hec_text *reports) {
  bool any = false;
  for (const char *at = row; (at = strstr(at, "](")) != NULL;) {
    at += 2;
    size_t n = strcspn(at, ")#");
    HEC_SCOPED(hec_text) name = {0};
    hec_text_add(&name, folder);
    hec_text_add_bytes(&name, at, n);
    if (strncmp(name.data, "validate/results/", 17) == 0) {
      HEC_SCOPED(hec_text) report = read_whole(name.data);
      hec_text_add(reports, report.data);
      any = true;
    }
  }
  return any;
}

/* Takes the quotes out of the row; each must be in the reports. Returns how many. */
static int check_quotes(char *row, const char *reports, hec_text *wrong) {
  int n = 0;
  for (char *begin = row; (begin = strchr(begin, '"')) != NULL; n++) {
    char *end = strchr(begin + 1, '"');
    if (!end) {
      hec_text_printf(wrong, "a quote does not end: %s\n", begin);
      return n;
    }
    *end = 0;
    if (!strstr(reports, begin + 1))
      hec_text_printf(wrong, "no linked report says \"%s\"\n", begin + 1);
    memset(begin, ' ', (size_t)(end - begin) + 1);
  }
  return n;
}

/* "1.3 %", "41 of 41": what a report would say. */
static void check_rest(const char *row, hec_text *wrong) {
  for (const char *at = row; (at = strchr(at, '%')) != NULL; at++)
    if (at - row >= 2 && isdigit((unsigned char)at[at[-1] == ' ' ? -2 : -1]))
      hec_text_printf(wrong, "a share that is no quote: %.60s\n", at - 2);
  for (const char *at = row; (at = strstr(at, " of ")) != NULL; at++)
    if (at > row && isdigit((unsigned char)at[-1]) && isdigit((unsigned char)at[4]))
      hec_text_printf(wrong, "a count that is no quote: %.60s\n", at - 2);
}

/* Returns how many rows it has checked. */
static int check_document(const char *text, const char *folder, hec_text *wrong) {
  int n = 0;
  for (const char *line = text; *line;) {
    size_t length = strcspn(line, "\n");
    HEC_SCOPED(hec_text) row = {0}, reports = {0};
    hec_text_add_bytes(&row, line, length);
    bool is_row = line[strspn(line, " ")] == '|';
    if (is_row && linked(row.data, folder, &reports)) {
      if (check_quotes(row.data, reports.data, wrong) == 0)
        hec_text_printf(wrong, "a row links to a report and quotes nothing of it: %.80s\n", line);
      check_rest(row.data, wrong);
      n++;
    }
    line += length + (line[length] == '\n');
  }
  return n;
}

HEC_TEST(documents_say_what_the_reports_say) {
  static const struct {
    const char *name, *folder;
    int rows;
  } documents[] = {{"README.md", "", 4}, {"validate/README.md", "validate/", 2}};
  for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
    HEC_SCOPED(hec_text) text = read_whole(documents[i].name);
    hec_text wrong = {0};
    int rows = check_document(text.data, documents[i].folder, &wrong);
    ck_assert_msg(wrong.length == 0, "%s: %.1200s", documents[i].name, wrong.data);
    ck_assert_msg(rows >= documents[i].rows, "%s: %d rows link to reports, expected %d", documents[i].name, rows,
                  documents[i].rows);
  }
}

/* Each row is wrong in one way. */
static const struct {
  const char *row, *said;
} samples[] = {
    {"| a | \"worst 3.4 %\" | [r](validate/results/outcomes.md) |", NULL},
    {"| a | \"worst 3.8 %\" | [r](validate/results/outcomes.md) |", "no linked report says \"worst 3.8 %\""},
    {"| a | \"worst 3.4 %\", about 4 % | [r](validate/results/outcomes.md) |", "a share that is no quote"},
    {"| a | \"worst 3.4 %\", 2 of 3 | [r](validate/results/outcomes.md) |", "a count that is no quote"},
    {"| a | within a few per cent | [r](validate/results/outcomes.md) |", "quotes nothing of it"},
    {"| a | \"worst 3.4 % | [r](validate/results/outcomes.md) |", "a quote does not end"},
};

HEC_TEST_ROWS(other_numbers_are_found, samples) {
  HEC_SCOPED(hec_text) wrong = {0};
  ck_assert_int_eq(check_document(samples[_i].row, "", &wrong), 1);
  if (samples[_i].said)
    ck_assert_msg(wrong.length > 0 && strstr(wrong.data, samples[_i].said), "sample %d: %s", _i,
                  wrong.length > 0 ? wrong.data : "nothing");
  else
    ck_assert_msg(wrong.length == 0, "%s", wrong.data);
}
