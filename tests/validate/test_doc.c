/* One report in its forms: each has what is for it, and nothing else. */
#include "tests/support/test.h"
#include "validate/doc.h"

#include <math.h>

static void rows(const void *of, hec_doc *doc) {
  static const char *const words[] = {"a", "b"};
  static const double numbers[] = {0.5, 1, 2};
  const int32_t *n = of;
  hec_doc_note(doc, "# %s\n\nA paragraph.\n\n", "Title");
  HEC_ADD(doc, HEC_KEEP("version", 1),
          HEC_OBJECT("machine", HEC_KEEP("cores", (int64_t)2), hec_value_texts("words", words, 2),
                     HEC_OBJECT("within", hec_value_reals("numbers", numbers, 3))));
  hec_doc_table(doc, "rows", "name | ms | error | remark");
  for (int32_t i = 0; i < *n; i++) {
    hec_interval interval = {i == 0 ? 0.25 : NAN, i == 0 ? 0.5 : NAN};
    HEC_ROW(doc, HEC_SHOW("name", HEC_AS_IS, i == 0 ? "one|\n" : "twenty"),
            HEC_SHOW("seconds", HEC_MS, i == 0 ? 0.0125 : 12.5), HEC_KEEP("kept", (bool)(i == 0)),
            hec_value_interval("interval", interval), HEC_SHOW("error", HEC_SIGNED, i == 0 ? 0.1234 : NAN));
    hec_doc_table(doc, "inner", "not shown");
    HEC_ROW(doc, HEC_SHOW("x", HEC_AS_IS, i));
    hec_doc_end(doc);
    HEC_ADD(doc, i == 0 ? HEC_CELL(NULL) : HEC_CELL(hec_doc_text(doc, "%d %%", 7)));
  }
  hec_doc_end(doc);
  hec_doc_table(doc, "for_programs", NULL);
  HEC_ROW(doc, HEC_SHOW("x", HEC_FIXED, (double)INFINITY));
  hec_doc_end(doc);
  hec_doc_list(doc, "names");
  HEC_ADD(doc, HEC_CELL("first"), HEC_CELL("x|y"));
  hec_doc_end(doc);
  hec_doc_table(doc, NULL, "for people |");
  HEC_ROW(doc, HEC_SHOW("x", HEC_SECONDS, 2.5e-5), HEC_SHOW("y", HEC_SIGNED2, -0.5));
  hec_doc_end(doc);
}

static const struct {
  hec_doc_kind kind;
  int32_t n;
  const char *written;
} forms[] = {
    {HEC_DOC_JSON, 2,
     "{\"version\":1,\"machine\":{\"cores\":2,\"words\":[\"a\",\"b\"],\"within\":{\"numbers\":[0.5,1,2]}},"
     "\"rows\":[{\"name\":\"one|\\u000a\",\"seconds\":0.0125,\"kept\":true,\"interval\":[0.25,0.5],\"error\":0.1234,"
     "\"inner\":[{\"x\":0}]},{\"name\":\"twenty\",\"seconds\":12.5,\"kept\":false,\"interval\":null,\"error\":null,"
     "\"inner\":[{\"x\":1}]}],\"for_programs\":[{\"x\":null}],\"names\":[\"first\",\"x|y\"]}\n"},
    {HEC_DOC_MARKDOWN, 2,
     "# Title\n\nA paragraph.\n\n"
     "| name | ms | error | remark |\n|---|---|---|---|\n| one/? | 12.500 | +12.3 % | |\n"
     "| twenty | 12500.000 | - | 7 % |\n\n- first\n- x|y\n\n| for people | |\n|---|---|\n| 25 us | -50.00 % |\n"},
    {HEC_DOC_MARKDOWN, 0,
     "# Title\n\nA paragraph.\n\n"
     "| name | ms | error | remark |\n|---|---|---|---|\n\n- first\n- x|y\n\n| for people | |\n|---|---|\n| 25 us | "
     "-50.00 % "
     "|\n"},
    {HEC_DOC_TEXT, 2,
     "Title\n\nA paragraph.\n\n"
     "name           ms    error  remark\none/?      12.500  +12.3 %\ntwenty  12500.000        -  7 %\n\n"
     "- first\n- x|y\n\nfor people\n     25 us  -50.00 %\n"},
};

HEC_TEST_ROWS(a_form_has_what_is_for_it, forms) {
  HEC_SCOPED(hec_text) out = {0};
  hec_doc_write(rows, &forms[_i].n, forms[_i].kind, 0, &out);
  ck_assert_str_eq(out.data, forms[_i].written);
}
