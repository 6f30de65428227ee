/* The project checks the project: the tree follows the rules of rules.c. The second half feeds every rule a text that
 * breaks it, so that a rule which cannot fail would be found out. */
#include "tests/support/test.h"
#include "tests/tidy/rules.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

enum { TEXT_BYTES_MAX = 1 << 20 };

/* ---- The tree ---- */

/* What git ignores at the top, or does not belong to the tree: nothing in there is read. */
static bool is_output(const char *name) {
  return strcmp(name, "build") == 0 || hec_tidy_starts(name, "build-") || strcmp(name, "hecate-out") == 0;
}

/* Files whose lines are checked: everything written by hand but LICENSE; of the data files only the presets. */
static bool is_checked(const char *path) {
  static const char *const suffixes[] = {".c", ".h", ".cu", ".sh", ".cmake", ".txt", ".md", ".py", ".js", ".css"};
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
    if (hec_tidy_ends(path, suffixes[i]))
      return true;
  if (hec_tidy_ends(path, ".json"))
    return hec_tidy_starts(path, "models/") || !strchr(path, '/');
  bool script = hec_tidy_starts(path, "tools/") || hec_tidy_starts(path, ".ci/");
  return script && !strchr(strrchr(path, '/'), '.');
}

static void read_and_check(hec_tidy *f, const char *full, const char *path) {
  FILE *file = fopen(full, "rb");
  ck_assert_msg(file != NULL, "cannot read %s", full);
  char *text = malloc(TEXT_BYTES_MAX + 1);
  ck_assert_ptr_nonnull(text);
  size_t length = fread(text, 1, TEXT_BYTES_MAX, file);
  (void)fclose(file);
  text[length] = '\0';
  if (length == TEXT_BYTES_MAX)
    hec_tidy_complain(f, path, 1, "a text of 1 MiB or more");
  hec_tidy_file(f, path, text);
  free(text);
}

/* Walks HEC_SOURCE_DIR/folder (folder "" or ending in '/'), returns how many files below count as sources. */
static int walk(hec_tidy *f, const char *folder) {
  char full[2048], path[1024];
  struct dirent **entries;
  (void)snprintf(full, sizeof full, "%s/%s", HEC_SOURCE_DIR, folder);
  int n = scandir(full, &entries, NULL, alphasort), n_sources = 0;
  ck_assert_msg(n >= 0, "cannot list %s", full);
  for (int i = 0; i < n; i++) {
    const char *name = entries[i]->d_name;
    struct stat info;
    (void)snprintf(path, sizeof path, "%s%s", folder, name);
    (void)snprintf(full, sizeof full, "%s/%s", HEC_SOURCE_DIR, path);
    bool top = !*folder, hidden = name[0] == '.' && strcmp(name, ".ci") != 0;
    if (!hidden && !(top && is_output(name)) && lstat(full, &info) == 0) {
      int below = 0;
      if (S_ISDIR(info.st_mode)) {
        (void)snprintf(path, sizeof path, "%s%s/", folder, name);
        below = walk(f, path);
      } else if (S_ISREG(info.st_mode) && is_checked(path)) {
        below = 1;
        read_and_check(f, full, path);
      }
      if (top)
        hec_tidy_top_entry(f, name, S_ISDIR(info.st_mode), below > 0);
      n_sources += below;
    }
    free(entries[i]);
  }
  free(entries);
  return n_sources;
}

HEC_TEST(tree_is_tidy) {
  HEC_SCOPED(hec_tidy) f = {.on_disk = true};
  (void)walk(&f, "");
  hec_tidy_circles(&f);
  ck_assert_msg(f.n_found == 0, "%d findings:\n%s", f.n_found, f.found.data);
  ck_assert_int_gt(f.n_files, 20); /* it did read a tree */
}

/* ---- Can it fail? Each text breaks one rule; "" as `expected` means it breaks none. ---- */

static const struct {
  const char *path, *text, *expected;
} samples[] = {
    {"sim/a.c", "/* a */\n#include \"sim/b.h\"\n#include \"runtime/program/p.h\"\n#include <math.h>\n", ""},
    {"models/a.c", "/* a */\n#include \"runtime/base/text.h\"\n#include <sys/stat.h>\n", ""},
    {"runtime/plan/policies/a.c", "/* a */\n#include \"runtime/plan/plan.h\"\n#include \"models/moe.h\"\n", ""},
    {"tests/sim/test_a.c", "/* a */\n#include \"tools/front/a.h\"\n#include \"validate/v.h\"\n#include <check.h>\n",
     ""},
    {"sim/a.c", "/* a\n#include \"tools/x.h\" */\n// #include <zlib.h>\n", ""},
    /* up */
    {"sim/a.c", "/* a */\n#include \"validate/v.h\"\n", "sim/a.c:2: wrong arrow: sim/ (floor 3)"},
    {"models/a.h", "#pragma once\n # include  \"sim/x.h\"\n", "models/a.h:2: wrong arrow"},
    {"runtime/plan/a.c", "/* a */\n#include \"runtime/program/p.h\"\n", "wrong arrow"},
    {"runtime/exec/cuda/a.cu", "/* a */\n#include \"tools/t.h\"\n", "wrong arrow"},
    /* sideways */
    {"sim/a.c", "/* a */\n#include \"runtime/exec/cpu.h\"\n", "wrong arrow"},
    {"runtime/exec/a.c", "/* a */\n#include \"sim/engine.h\"\n", "wrong arrow"},
    {"runtime/plan/a.c", "/* a */\n#include \"traces/trace.h\"\n", "wrong arrow"},
    {"traces/a.c", "/* a */\n#include \"runtime/plan/plan.h\"\n", "wrong arrow"},
    {"runtime/base/a.c", "/* a */\n#include \"models/moe.h\"\n", "wrong arrow"},
    {"tools/hecate-a.c", "/* a */\n#include \"tests/support/check_main.h\"\n", "wrong arrow"},
    {"tools/sim/a.c", "/* a */\n#include \"tools/run/r.h\"\n", "wrong arrow"},
    {"tools/front/a.c", "/* a */\n#include \"tools/run/r.h\"\n", "wrong arrow"},
    {"tools/run/a.c", "/* a */\n#include \"tools/front/c.h\"\n#include \"tools/run/r.h\"\n", ""},
    {"tools/hecate-a.c", "/* a */\n#include \"tools/run/r.h\"\n", ""},
    {"tools/front/page/a.c", "/* a */\n#include \"sim/s.h\"\n#include \"tools/front/a.h\"\n", ""},
    {"validate/a.c", "/* a */\n#include \"tools/front/a.h\"\n", ""},
    {"runtime/program/a.c", "/* a */\n#include \"tools/front/page/r.h\"\n", "wrong arrow"},
    {"runtime/exec/a.c", "/* a */\n#include \"tools/front/a.h\"\n", "wrong arrow"},
    {"tools/front/page/a.c", "/* a */\n#include \"validate/v.h\"\n", "wrong arrow"},
    {"sim/a.c", "/* a */\n#include \"b.h\"\n", "path from the top"},
    {"runtime/a.c", "/* a */\n#include \"models/moe.h\"\n", "belongs to no floor"},
    {"sim/a.c", "/* a */\n#include WHAT\n", "names neither"},
    /* doors */
    {"models/json.c", "/* a */\n#include <cjson/cJSON.h>\n", ""},
    {"models/moe.c", "/* a */\n#include <cjson/cJSON.h>\n", "wrong door"},
    {"traces/gzip.c", "/* a */\n#include <zlib.h>\n", ""},
    {"tests/traces/test_a.c", "/* a */\n#include <zlib.h>\n", ""}, /* makes damaged files */
    {"tests/sim/test_a.c", "/* a */\n#include <zlib.h>\n", "wrong door"},
    {"traces/synth_drift.c", "/* a */\n#include <gsl/gsl_rng.h>\n", ""},
    {"validate/calibrate/fit.c", "/* a */\n#include <gsl/gsl_multifit.h>\n", ""},
    {"sim/a.c", "/* a */\n#include <gsl/gsl_rng.h>\n", "wrong door"},
    {"runtime/exec/math/cpu_math.c", "/* a */\n#include <cblas.h>\n", ""},
    {"runtime/exec/cpu.c", "/* a */\n#include <cblas.h>\n", "wrong door"},
    {"runtime/exec/mpi/plugin.c", "/* a */\n#include <mpi.h>\n", ""},
    {"runtime/exec/backend_mpi.c", "/* a */\n#include <mpi.h>\n", "wrong door"},
    {"runtime/exec/cuda/gemm.cu", "/* a */\n#include <cublas_v2.h>\n#include <nccl.h>\n#include <cuda_runtime.h>\n",
     ""},
    {"runtime/exec/cpu.c", "/* a */\n#include <cuda_runtime.h>\n", "wrong door"},
    {"sim/a.c", "/* a */\n#include <check.h>\n", "wrong door"},
    {"sim/a.c", "/* a */\n#include <glib.h>\n", "has no door"},
    /* form */
    {"sim/a.c", "int x;\n", "does not begin with a comment"},
    {"sim/a.c", "/* a */\n\tint x;\n", "sim/a.c:2: a tab"},
    {"tools/setup.sh", "# a\nls \n", "tools/setup.sh:2: a trailing blank"},
    {"README.md", "a\r\n", "a trailing blank"},
    {"sim/a.c", "/* a */", "no newline at the end"},
    {"sim/a.c",
     "/* a */\n/* TO"
     "DO: b */\n",
     "sim/a.c:2: unfinished"},
    {"sim/a.c",
     "/* a */\nint x; // FIX"
     "ME\n",
     "unfinished"},
    {"sim/a.c",
     "/* a, /tmp/hecate-"
     "XX"
     "XX"
     "XX */\n",
     ""},
    {"tools/check",
     "cd /ho"
     "me/me/hecate\n",
     "tools/check:1: a path of one machine"},
    {"models/presets/a.json",
     "{\"source\": \"https://x.org/ho"
     "me/y\"}\n",
     ""},
    {"sim/a.c",
     "/* a */\nint x = filesys"
     "tem(1);\n",
     ""},
    {"sim/a.c",
     "/* a */\nint x = sys"
     "tem(line);\n",
     "sim/a.c:2: sys"
     "tem(): start a program"},
    {"tests/a/test_a.c",
     "/* a */\nFILE *f = po"
     "pen(line, mode);\n",
     "without a shell"},
    {"traces/a.c", "/* a */\nstatic void *f(void) {\n  return fopen(\"x\", \"r\");\n}\n",
     "traces/a.c:3: fopen(): runtime/base/files.h"},
    {"traces/a.c", "/* a */\nstatic void *f(void) {\n  return strdup(\"x\");\n}\n", "traces/a.c:3: strdup(): memory"},
    {"runtime/base/a.c", "/* a */\nstatic void *f(void) {\n  return malloc(1);\n}\n", ""},
    {"sim/a.c", "/* a */\nstatic const char *const a = \"b (--micro-batches)\";\n", "sim/a.c:2: a flag in a string"},
    {"runtime/plan/a.c", "/* a, --ep */\nstatic const char *const a = \"`ep` -- c\";\n", ""},
    {"tools/front/a.c", "/* a */\nstatic const char *const a = \"--ep\";\n", ""},
    {"sim/a.h", "int f(void);\n", "no #pragma once"},
    {"sim/a.h", "/* #pragma once\n */\n", "no #pragma once"},
    {"runtime/exec/package/hecate.h", "#ifndef HEC_HECATE_H\n#define HEC_HECATE_H\n#endif\n", ""},
};

HEC_TEST_ROWS(rules_find_what_is_wrong, samples) {
  HEC_SCOPED(hec_tidy) f = {0};
  hec_tidy_file(&f, samples[_i].path, samples[_i].text);
  if (!*samples[_i].expected)
    ck_assert_msg(f.n_found == 0, "sample %d: %s", _i, f.found.data);
  else
    ck_assert_msg(f.n_found == 1 && strstr(f.found.data, samples[_i].expected),
                  "sample %d: expected one finding, %s; found %s", _i, samples[_i].expected,
                  f.found.data ? f.found.data : "none");
}

HEC_TEST(included_files_exist) {
  HEC_SCOPED(hec_tidy) f = {.on_disk = true};
  hec_tidy_file(&f, "sim/a.c", "/* a */\n#include \"runtime/base/text.h\"\n");
  ck_assert_int_eq(f.n_found, 0);
  hec_tidy_file(&f, "sim/a.c", "/* a */\n#include \"runtime/base/absent.h\"\n");
  ck_assert_int_eq(f.n_found, 1);
}

/* a -> b -> c -> b: b and c are one. A is not, nor what c includes besides, nor a pair of a header and its own file. */
HEC_TEST(circles_are_found) {
  static const struct {
    const char *path, *text;
  } files[] = {{"sim/a.c", "/* a */\n#include \"sim/a.h\"\n#include \"sim/b.h\"\n"},
               {"sim/b.h", "#pragma once\n#include \"sim/d.h\"\n"},
               {"sim/b.c", "/* b */\n#include \"sim/b.h\"\n\n#include \"sim/c.h\"\n"},
               {"sim/c.h", "#pragma once\n#include \"models/b.h\"\n"},
               {"sim/c.c", "/* c */\n#include \"sim/b.h\"\n"}};
  for (size_t n = 4; n <= 5; n++) {
    HEC_SCOPED(hec_tidy) f = {0};
    for (size_t i = 0; i < n; i++)
      hec_tidy_file(&f, files[i].path, files[i].text);
    hec_tidy_circles(&f);
    ck_assert_int_eq(f.n_found, n == 5 ? 2 : 0);
    ck_assert(n == 4 || (strstr(f.found.data, "sim/b.c:4: a circle of files: includes \"sim/c.h\"") &&
                         strstr(f.found.data, "sim/c.c:2: a circle of files: includes \"sim/b.h\"")));
  }
}

/* A function of `lines` lines after a table and a type that are as long and must not count. */
static void long_file(hec_text *text, int lines) {
  hec_text_add(text, "/* a */\n");
  const char *const heads[] = {"static const int table[] = {", "typedef struct {", "int f(int a,\n      int b) {"};
  const char *const tails[] = {"};", "} type;", "}"};
  for (int part = 0; part < 3; part++) {
    int rest = part < 2 ? 100 : lines - 3;
    hec_text_printf(text, "%s\n", heads[part]);
    for (int i = 0; i < rest; i++)
      hec_text_add(text, i == 3 ? "out:\n" : "  /* } */\n");
    hec_text_printf(text, "%s\n", tails[part]);
  }
}

HEC_TEST(lengths_have_limits) {
  for (int over = 0; over <= 1; over++) {
    hec_tidy f = {0};
    HEC_SCOPED(hec_text) text = {0};
    long_file(&text, HEC_TIDY_FUNCTION_LINES + over);
    hec_tidy_file(&f, "sim/a.c", text.data);
    ck_assert_int_eq(f.n_found, over);
    if (over)
      ck_assert_ptr_nonnull(strstr(f.found.data, "sim/a.c:206: a function of 81 lines"));
    hec_text_free(&text);
    for (int i = 0; i < HEC_TIDY_FILE_LINES + over; i++)
      hec_text_add(&text, "//\n");
    hec_tidy_free(&f);
    f = (hec_tidy){0};
    hec_tidy_file(&f, "sim/a.c", text.data);
    ck_assert_int_eq(f.n_found, over);
    hec_tidy_free(&f);
  }
}

HEC_TEST(top_level_is_fixed) {
  HEC_SCOPED(hec_tidy) f = {0};
  hec_tidy_top_entry(&f, "sim", true, true);
  hec_tidy_top_entry(&f, ".github", true, true);
  hec_tidy_top_entry(&f, "d", true, false);
  ck_assert_int_eq(f.n_found, 0);
  hec_tidy_top_entry(&f, "utils", true, true);
  hec_tidy_top_entry(&f, "notes", false, false);
  ck_assert_int_eq(f.n_found, 2);
  ck_assert(is_output("build") && is_output("build-dev") && is_output("hecate-out") && !is_output("builder"));
}
