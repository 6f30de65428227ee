/* Markdown as text. Columns are as wide as their widest cell, marks go, lines are wrapped unless they are preformatted, no line
 * ends in a space. */
#include "tests/support/test.h"
#include "validate/plain.h"

#include <string.h>

static void expect(const char *markdown, const char *plain) {
  HEC_SCOPED(hec_text) out = {0};
  hec_plain_add(&out, markdown);
  ck_assert_str_eq(out.data, plain);
}

HEC_TEST(tables_are_aligned) {
  expect("## A table\n\n| a | long name | |\n|---|---|---|\n| **wide cell** | | x |\n| b | 2 | |\nend\n",
         "A table\n\na          long name\nwide cell             x\nb          2\nend\n");
  expect("| a |\n|---|\n", "a\n");
  expect("|\n", "\n");
  expect("| open | cell", "open\n");
  expect("| a | ms | |\n|---|---:|---:|\n| b | 12.5 | |\n| c | | 7 |\n", "a    ms\nb  12.5\nc        7\n");
}

HEC_TEST(lines_are_wrapped) {
  char text[512] = "- ", wrapped[512] = "- ";
  for (int i = 0; i < 40; i++) {
    strcat(text, i > 0 ? " word" : "word");
    /* 2 + 22 * 5 - 1 = 111 is one too many: 21 words a line */
    strcat(wrapped, i == 0 ? "word" : i % 21 == 0 ? "\n  word" : " word");
  }
  strcat(text, "\n");
  strcat(wrapped, "\n");
  expect(text, wrapped);
  expect("```\n# as   it is **\n| a |\n```\nend\n", "# as   it is **\n| a |\nend\n");
  expect("```\nno end", "no end\n");
  expect("**bold** and 2 * 3\n", "bold and 2 * 3\n");
}
