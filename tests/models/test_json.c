/* The JSON door: what it accepts, and that every error names file, line and path. */
#include "models/json.h"
#include "tests/support/test.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static hec_json *parsed(const char *text) {
  hec_json *json;
  ck_ok(hec_json_parse(text, strlen(text), "f.json", &json));
  return json;
}

static void ck_error(const char *part) {
  ck_assert_msg(strstr(hec_last_error(), part) != NULL, "expected \"%s\" in \"%s\"", part, hec_last_error());
}

HEC_TEST(reads) {
  hec_json *json =
      parsed(" {\"a\": [1, -2.5e3, {\"b\": \"x\\u00e9\\ud83d\\ude00\\n\"}, []], \"c\": true, \"d\": null, \"e\": {}} ");
  const hec_json_value *root = hec_json_root(json), *a = hec_json_get(root, "a"), *v = hec_json_first(a);
  ck_assert(hec_json_is_object(root) && hec_json_length(root) == 4);
  ck_assert(hec_json_is_array(a) && hec_json_length(a) == 4);
  ck_assert(hec_json_is_number(v) && hec_json_number(v) == 1);
  v = hec_json_next(v);
  ck_assert(hec_json_number(v) == -2500);
  v = hec_json_next(v);
  ck_assert_str_eq(hec_json_text(hec_json_get(v, "b")), "x\xc3\xa9\xf0\x9f\x98\x80\n");
  v = hec_json_next(v);
  ck_assert(hec_json_is_array(v) && !hec_json_first(v) && !hec_json_next(v));
  v = hec_json_next(a);
  ck_assert_str_eq(hec_json_key(v), "c");
  v = hec_json_next(hec_json_next(v));
  ck_assert_str_eq(hec_json_key(v), "e");
  ck_assert(!hec_json_next(v) && !hec_json_get(v, "x") && !hec_json_get(a, "x"));
  hec_json_free(json);
  hec_json_free(NULL);
}

/* Names that begin alike, one of them empty. */
HEC_TEST(finds) {
  hec_json *json = parsed("{\"layers\": 1, \"layout\": 2, \"\": 3, \"l\": 4}");
  const hec_json_value *root = hec_json_root(json);
  ck_assert(hec_json_number(hec_json_get(root, "layout")) == 2 && hec_json_number(hec_json_get(root, "l")) == 4);
  ck_assert(hec_json_number(hec_json_get(root, "")) == 3 && !hec_json_get(root, "lay"));
  hec_json_free(json);
}

static const struct {
  const char *text, *error;
} broken[] = {
    {"", "f.json:1:1: not valid JSON: expected a JSON value, found the end of the text"},
    {"{\n`a`: 1\n `b`: 2}", "f.json:3:2: not valid JSON: expected ',' or '}', found '`'"},
    {"[1, 2", "f.json:1:6: not valid JSON: expected ',' or ']', found the end"},
    {"[1,]", "f.json:1:4: not valid JSON: expected a JSON value, found ']'"},
    {"{`a`:1,}", "f.json:1:8: not valid JSON: expected a key in quotes"},
    {"{`a` 1}", "f.json:1:6: not valid JSON: expected ':'"},
    {"1 2", "f.json:1:3: not valid JSON: expected the end of the document"},
    {"[NaN]", "f.json:1:2: not valid JSON: expected a JSON value, found 'N'"},
    {"[nan]", "f.json:1:2:"},
    {"[Infinity]", "f.json:1:2:"},
    {"[01]", "f.json:1:3: not valid JSON"},
    {"[+1]", "f.json:1:2:"},
    {"[1.]", "f.json:1:4: not valid JSON: expected a digit"},
    {"[1e]", "f.json:1:4: not valid JSON: expected a digit"},
    {"[1,\n1e-3042949672950]",
     "f.json:2: [1]: expected a number in range (0, or in size from 5e-324 to 1.8e308), found 1e-30"},
    {"{`a`: {`huge`: -1.5e400}}", "f.json:1: a.huge: expected a number in range"},
    {"[-]", "f.json:1:3: not valid JSON: expected a digit"},
    {"[`a\nb`]", "f.json:1:4: not valid JSON: expected no control character"},
    {"[`\\x`]", "f.json:1:4: not valid JSON: expected one of"},
    {"[`\\u12g4`]", "hexadecimal"},
    {"[`\\ud800`]", "surrogates"},
    {"[`\\udc00`]", "surrogates"},
    {"[`\\u0000`]", "other than"},
    {"[`abc", "f.json:1:6: not valid JSON: expected the end of the string"},
    {"tru", "f.json:1:1:"},
    {"// x\n1", "f.json:1:1:"},
    {"[1\f]", "byte 12"},
    {"[11111111111111111111111111111111111111111111111111111111111111111111]", "at most 60"},
    {"{\n `a`: {`b`: 1,\n `c`: 2,\n `\\u0062`: 3}}", "f.json:4: a.b: expected every key once in an object, found 3"},
};

HEC_TEST_ROWS(rejects, broken) {
  hec_json *json = (hec_json *)&json; /* must stay as it is */
  ck_assert(hec_json_parse(hec_test_quoted(broken[_i].text), strlen(broken[_i].text), "f.json", &json) ==
            HEC_BAD_INPUT);
  ck_assert_ptr_eq(json, &json);
  ck_error(hec_test_quoted(broken[_i].error));
}

HEC_TEST(depth_and_bytes) {
  char text[200];
  HEC_OPENED(hec_json) *json = NULL;
  for (int depth = 63; depth <= 66; depth++) {
    memset(text, '[', (size_t)depth);
    memset(text + depth, ']', (size_t)depth);
    hec_status status = hec_json_parse(text, 2 * (size_t)depth, "f.json", &json);
    ck_assert((status == HEC_OK) == (depth <= 64));
    if (status == HEC_OK)
      hec_json_free(json);
  }
  ck_error("nesting of at most 64");
  ck_refused(hec_json_parse("[1]\0", 4, "f.json", &json), "f.json:1:4:");
  ck_ok(hec_json_parse("[1]x", 3, "f.json", &json)); /* not zero-terminated after 3 bytes */
}

HEC_TEST(getters) {
  hec_json *json = parsed("{\n\"n\": 2.5,\n\"i\": 7,\n\"t\": \"x\",\n\"huge\": 1e308,\n\"list\": [{\"bandwidth\": "
                          "\"fast\"},\n{\"q\": -1}],\n"
                          "\"yes\": true}");
  const hec_json_value *root = hec_json_root(json), *list = hec_json_get(root, "list");
  const hec_json_value *second = hec_json_next(hec_json_first(list));
  double d = 0;
  int64_t i = 0;
  bool b = false;
  const char *t = NULL;
  ck_assert(hec_json_want_double(json, root, "n", 0, 10, &d) == HEC_OK && d == 2.5);
  ck_assert(hec_json_want_int(json, root, "i", 7, 7, &i) == HEC_OK && i == 7);
  ck_assert(hec_json_want_text(json, root, "t", &t) == HEC_OK && strcmp(t, "x") == 0);
  ck_assert(hec_json_double_or(json, root, "absent", 0, 1, 0.25, &d) == HEC_OK && d == 0.25);
  ck_assert(hec_json_int_or(json, root, "absent", 0, 1, -4, &i) == HEC_OK && i == -4);
  ck_assert(hec_json_bool_or(json, root, "absent", true, &b) == HEC_OK && b);
  ck_assert(hec_json_bool_or(json, root, "yes", false, &b) == HEC_OK && b);
  ck_refused(hec_json_want_double(json, root, "n", 3, 10, &d),
             "f.json:2: n: expected a number from 3 to 10, found 2.5");
  ck_refused(hec_json_want_int(json, root, "n", 0, 10, &i), "f.json:2: n: expected an integer from 0 to 10, found 2.5");
  ck_refused(hec_json_want_double(json, root, "huge", 0, 1e307, &d),
             "f.json:5: huge: expected a number >= 0, found 1e308");
  ck_assert(hec_json_want_int(json, root, "huge", 0, INT64_MAX, &i) == HEC_BAD_INPUT);
  ck_refused(hec_json_want_double(json, hec_json_first(list), "bandwidth", 1e-30, 1e300, &d),
             "f.json:6: list[0].bandwidth: expected a number > 0, found \"fast\"");
  ck_refused(hec_json_want_double(json, second, "q", 0, 1, &d),
             "f.json:7: list[1].q: expected a number from 0 to 1, found -1");
  ck_refused(hec_json_want_text(json, second, "name", &t), "f.json:7: list[1]: expected a member \"name\", found none");
  ck_refused(hec_json_want_text(json, list, "name", &t), "list: expected an object, found an array of 2");
  ck_refused(hec_json_bool_or(json, root, "n", true, &b), "true or false");
  ck_ok(hec_json_only(json, second, (const char *const[]){"q", NULL}));
  ck_refused(hec_json_only(json, second, (const char *const[]){"p", "r", NULL}),
             "list[1].q: expected a known field (p, r)");
  ck_assert(d == 0.25 && i == -4); /* outputs only on success */
  hec_json_free(json);
}

HEC_TEST(files) {
  char folder[] = "/tmp/hecate-json-XXXXXX", path[64];
  hec_json *json;
  ck_assert_ptr_nonnull(mkdtemp(folder));
  ck_refused(hec_json_read(folder, &json), "directory");
  (void)snprintf(path, sizeof path, "%s/x.json", folder);
  ck_refused(hec_json_read(path, &json), "cannot be opened");
  FILE *file = fopen(path, "wb");
  fputs("{\"a\":\n3}", file);
  fclose(file);
  ck_ok(hec_json_read(path, &json));
  ck_assert(hec_json_number(hec_json_get(hec_json_root(json), "a")) == 3);
  hec_json_free(json);
  file = fopen(path, "wb");
  ck_assert(fseek(file, (64 << 20) + 1, SEEK_SET) == 0);
  fputs("x", file);
  fclose(file);
  ck_refused(hec_json_read(path, &json), "67108864");
  unlink(path);
  rmdir(folder);
}
