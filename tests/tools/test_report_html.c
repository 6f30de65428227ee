/* A report's Markdown as a page: every form that our reports have, and nothing of it is taken for markup. */
#include "tests/support/test.h"
#include "tools/validate/report_out.h"

#include <string.h>

/* The page between its frame. */
static void expect(const char *markdown, const char *body) {
  HEC_SCOPED(hec_text) page = {0};
  hec_report_html(markdown, &page);
  const char *begin = strstr(page.data, "<main>\n"), *end = strstr(page.data, "</main>");
  ck_assert(begin && end);
  begin += strlen("<main>\n");
  ck_assert_msg(strlen(body) == (size_t)(end - begin) && memcmp(begin, body, strlen(body)) == 0, "%.*s",
                (int)(end - begin), begin);
}

HEC_TEST(forms) {
  expect("# Title\n\none\ntwo\n\n## Part\n- first\n- second,\n  longer\nend\n",
         "<p>one\ntwo\n</p>\n<h2>Part</h2>\n<ul>\n<li>first\n</li>\n<li>second,\nlonger\nend\n</li>\n</ul>\n");
  expect("**bold** and `--cod**e` a * b\n", "<p><b>bold</b> and <code>--cod**e</code> a * b\n</p>\n");
  expect("**open\n", "<p><b>open</b>\n</p>\n");
  expect("```\n# as   it is **\n| a |\n```\nend", "<pre># as   it is **\n| a |\n</pre>\n<p>end\n</p>\n");
  expect("", "");
}

HEC_TEST(tables) {
  HEC_SCOPED(hec_text) page = {0};
  hec_report_html("| a | ms |\n|---|---|\n| **x** | -1.5 |\n| y | |\n", &page);
  ck_assert_ptr_nonnull(strstr(page.data, "<table>\n<tr><th class=\"words\">a</th><th>ms</th></tr>\n"
                                          "<tr><td class=\"words\"><b>x</b></td><td>-1.5</td></tr>\n"
                                          "<tr><td class=\"words\">y</td><td></td></tr>\n</table>\n"));
}

HEC_TEST(foreign_text_is_no_markup) {
  HEC_SCOPED(hec_text) page = {0};
  hec_report_html("# <b>&\n\n<script>alert(1)</script>\n\n| <i> |\n|---|\n| \"x\" |\n\n```\n</pre>\n```\n", &page);
  ck_assert_ptr_nonnull(strstr(page.data, "<title>&#60;b&#62;&#38;</title>"));
  ck_assert_ptr_nonnull(strstr(page.data, "<p>&#60;script&#62;alert(1)&#60;/script&#62;\n</p>"));
  ck_assert_ptr_nonnull(strstr(page.data, "<th class=\"words\">&#60;i&#62;</th>"));
  ck_assert_ptr_nonnull(strstr(page.data, "<pre>&#60;/pre&#62;\n</pre>"));
}
