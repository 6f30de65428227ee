/* Text, JSON writer and arena: what they print reads back; what fails leaves nothing behind. */
#include "runtime/base/arena.h"
#include "runtime/base/paths.h"
#include "runtime/base/temporary.h"
#include "runtime/base/text.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <setjmp.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

HEC_TEST(doubles_read_back) {
  uint64_t random = 7;
  for (int i = 0; i < 10000; i++) {
    union {
      uint64_t bits;
      double value;
    } u = {hec_test_random(&random)};
    if (!(u.value - u.value == 0))
      continue;
    HEC_SCOPED(hec_text) text = {0};
    hec_text_add_double(&text, u.value);
    ck_assert(strtod(text.data, NULL) == u.value);
  }
  HEC_SCOPED(hec_text) text = {0};
  hec_text_add_double(&text, 0.1 + 0.2);
  hec_text_add(&text, " ");
  hec_text_add_double(&text, 9007199254740991.0);
  hec_text_add(&text, " ");
  hec_text_add_double(&text, 2.5);
  ck_assert_str_eq(text.data, "0.30000000000000004 9007199254740991 2.5");
}

HEC_TEST(foreign_names_are_plain) {
  HEC_SCOPED(hec_text) text = {0};
  hec_text_add(&text, "\n");
  hec_text_add_plain(&text, "a\x1b[31mb\n\x7f\xc3\xa9");
  ck_assert_str_eq(text.data, "\na?[31mb??\xc3\xa9");
  hec_text_free(&text);
  hec_text_add_plain(&text, "\xc2\x9b"
                            "31m \xc2\xa0 \x9b \xe2\x82\xac \xe2\x82");
  ck_assert_str_eq(text.data, "?"
                              "?31m \xc2\xa0 ? \xe2\x82\xac ??"); /* C1; no-break space; cut */
}

/* What a message quotes does nothing to the terminal; where it is cut, no half of a character is left. */
HEC_TEST(messages_are_plain) {
  char euros[3 * 400 + 1] = "";
  ck_assert_int_eq(hec_fail(HEC_BAD_INPUT, "a\x1b]0;title\a%s\n%.4s: \xc3\xa9", "\x1b[2J", "ab\xe2\x82\xac"),
                   HEC_BAD_INPUT);
  ck_assert_str_eq(hec_last_error(), "a?]0;title??[2J?ab??: \xc3\xa9");
  for (int i = 0; i < 400; i++)
    memcpy(euros + 3 * (size_t)i, "\xe2\x82\xac", 4);
  ck_assert_int_eq(hec_fail(HEC_FAILED, "xy%s", euros), HEC_FAILED); /* 1021 = 3 * 340 + 1 bytes are left for them */
  ck_assert_uint_eq(strlen(hec_last_error()), 1023);
  ck_assert_str_eq(hec_last_error() + 1023 - 4, "\xe2\x82\xac?");
}

HEC_TEST(json_forms) {
  for (int indent = 0; indent <= 1; indent++) {
    HEC_SCOPED(hec_text) text = {0};
    hec_json_out json = hec_json_begin(&text, indent);
    hec_json_object(&json, NULL);
    hec_json_string(&json, "a\"\n", "x\\y");
    hec_json_array(&json, "n");
    hec_json_int(&json, NULL, -3);
    hec_json_double(&json, NULL, 0.5);
    hec_json_close(&json);
    hec_json_strings(&json, "empty", NULL, 0);
    hec_json_strings(&json, "s", (const char *const[]){"\"", "b"}, 2);
    hec_json_ints(&json, "i", (const int32_t[]){7, -1}, 2);
    hec_json_object(&json, "o");
    hec_json_bool(&json, "t", true);
    hec_json_null(&json, "z");
    hec_json_close(&json);
    hec_json_close(&json);
    ck_assert_str_eq(text.data, indent == 0 ? "{\"a\\\"\\u000a\":\"x\\\\y\",\"n\":[-3,0.5],\"empty\":[],\"s\":["
                                              "\"\\\"\",\"b\"],\"i\":[7,-1],\"o\":{\"t\":true,\"z\":null}}\n"
                                            : "{\n \"a\\\"\\u000a\": \"x\\\\y\",\n \"n\": [-3, 0.5],\n \"empty\": "
                                              "[],\n \"s\": [\"\\\"\", \"b\"],\n \"i\": [7, -1],\n \"o\": {\n"
                                              "  \"t\": true,\n  \"z\": null\n }\n}\n");
  }
}

/* A long table: a line for each of its rows, in a document that is compact. */
HEC_TEST(json_rows) {
  for (int n = 0; n <= 2; n++) {
    HEC_SCOPED(hec_text) text = {0};
    hec_json_out json = hec_json_begin(&text, 0);
    hec_json_object(&json, NULL);
    hec_json_int(&json, "n", n);
    hec_json_rows(&json, "rows");
    for (int i = 0; i < n; i++) {
      hec_json_object(&json, NULL);
      hec_json_ints(&json, "i", (const int32_t[]){i, 7}, 2);
      hec_json_close(&json);
    }
    hec_json_close(&json);
    hec_json_bool(&json, "end", true);
    hec_json_close(&json);
    ck_assert_str_eq(text.data, n == 0   ? "{\"n\":0,\"rows\":[\n],\"end\":true}\n"
                                : n == 1 ? "{\"n\":1,\"rows\":[\n{\"i\":[0,7]}\n],\"end\":true}\n"
                                         : "{\"n\":2,\"rows\":[\n{\"i\":[0,7]},\n{\"i\":[1,7]}\n],\"end\":true}\n");
  }
}

HEC_TEST(arena_prints) {
  HEC_SCOPED(hec_arena) arena = {0};
  ck_assert_str_eq(hec_arena_printf(&arena, "%s of %d", "3", 4), "3 of 4");
  ck_assert_uint_eq(strlen(hec_arena_printf(&arena, "%70000d", 1)), 70000); /* as long as it is */
  ck_assert_str_eq(hec_arena_printf(&arena, "%s", ""), "");
}

HEC_TEST(arena_rewinds) {
  HEC_SCOPED(hec_arena) arena = {0};
  int *kept = HEC_NEW(&arena, int, 10);
  kept[9] = 42;
  hec_arena_mark mark = hec_arena_save(&arena);
  for (int i = 0; i < 100; i++) {
    char *block = HEC_NEW(&arena, char, 100000);
    ck_assert_int_eq(block[0] + block[99999], 0);
    memset(block, 1, 100000);
  }
  hec_arena_rewind(&arena, mark);
  ck_assert_uint_eq(arena.used_bytes, mark.used_bytes);
  ck_assert_int_eq(kept[9], 42);
  ck_assert_int_eq(HEC_NEW(&arena, char, 16)[0], 0);
}

/* What one arena had lives as long as the other, in all its blocks. */
HEC_TEST(arena_takes) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_arena from = {0}, none = {0};
  int *own = HEC_NEW(&arena, int, 10), *taken = HEC_NEW(&from, int, 10);
  char *large = HEC_NEW(&from, char, 1 << 20);
  own[9] = 42;
  taken[9] = 43;
  large[(1 << 20) - 1] = 44;
  size_t bytes = arena.used_bytes + from.used_bytes;
  hec_arena_take(&arena, &from);
  hec_arena_take(&arena, &none);
  ck_assert_ptr_null(from.newest);
  ck_assert_uint_eq(arena.used_bytes, bytes);
  for (int i = 0; i < 100; i++)
    memset(HEC_NEW(&arena, char, 10000), 1, 10000);
  ck_assert_int_eq(own[9] + taken[9] + large[(1 << 20) - 1], 42 + 43 + 44);
}

static jmp_buf no_memory_exit;
static void leave(size_t bytes, void *context) {
  (void)bytes;
  *(int *)context += 1;
  longjmp(no_memory_exit, 1);
}

HEC_TEST(every_allocation_may_fail) {
  static int calls;
  static hec_arena arena;
  hec_set_no_memory_handler(leave, &calls);
  for (volatile unsigned k = 1;; k++) {
    hec_fail_allocation(k);
    if (setjmp(no_memory_exit) == 0) {
      for (int i = 0; i < 5; i++)
        (void)HEC_NEW(&arena, double, 40000);
      ck_assert_uint_gt(k, 1); /* it did fail at least once before it came through */
      break;
    }
    hec_arena_free(&arena);
    ck_assert_uint_lt(k, 100);
  }
  hec_arena_free(&arena);
  ck_assert_int_gt(calls, 0);
}

HEC_TEST(files_are_whole_or_absent) {
  char folder[] = "/tmp/hecate-text-XXXXXX";
  ck_assert_ptr_nonnull(mkdtemp(folder));
  char path[64];
  (void)snprintf(path, sizeof path, "%s/out", folder);
  ck_ok(hec_write_file(path, "abc", 3));
  FILE *file = fopen(path, "rb");
  char back[8] = {0};
  ck_assert_uint_eq(fread(back, 1, 8, file), 3);
  (void)fclose(file);
  ck_assert_str_eq(back, "abc");
  (void)remove(path);
  ck_assert_int_eq(hec_write_file("/nonexistent/x", "abc", 3), HEC_FAILED);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "/nonexistent/x"));
  ck_assert_int_eq(hec_write_file("/dev/full", "abc", 3), HEC_FAILED);
  ck_assert_int_eq(rmdir(folder), 0); /* nothing was left in it */
}

/* What killed runs left of the same path goes; what is alive, held or somebody else's stays. */
HEC_TEST(what_killed_runs_left_is_removed) {
  char folder[] = "/tmp/hecate-text-XXXXXX", path[64], name[96];
  ck_assert_ptr_nonnull(mkdtemp(folder));
  (void)snprintf(path, sizeof path, "%s/out", folder);
  pid_t gone[3];
  for (int i = 0; i < 3; i++) {
    gone[i] = fork();
    if (gone[i] == 0)
      _exit(0);
    ck_assert(gone[i] > 0 && waitpid(gone[i], NULL, 0) == gone[i]);
  }
  const struct {
    const char *before, *after;
    long pid;
    bool stays;
  } left[] = {{"out.", ".part", gone[0], false},  {"out.", ".part", gone[1], false},
              {"out.", ".part", getppid(), true}, {"out.", ".part", gone[2], true},
              {"out.x", ".part", gone[0], true},  {"out2.", ".part", gone[0], true},
              {"out.", ".parts", gone[0], true},  {"out.", "", gone[0], true},
              {"out.-", ".part", gone[0], true},  {"out.9999999999", ".part", 9, true}};
  enum { N = sizeof left / sizeof *left, HELD = 3 };
  int held = -1;
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < N; i++) {
      (void)snprintf(name, sizeof name, "%s/%s%ld%s", folder, left[i].before, left[i].pid, left[i].after);
      int file = open(name, O_CREAT | O_WRONLY, 0600);
      ck_assert(file >= 0 &&
                (i != HELD || round == 1 || flock(file, LOCK_EX | LOCK_NB) == 0)); /* by a writer elsewhere */
      if (i == HELD && round == 0)
        held = file;
      else
        (void)close(file);
      if (round == 1 && i == HELD)
        (void)close(held);
    }
    ck_ok(hec_write_file(path, "abc", 3));
    for (int i = 0; i < N; i++) {
      (void)snprintf(name, sizeof name, "%s/%s%ld%s", folder, left[i].before, left[i].pid, left[i].after);
      bool stays = left[i].stays && !(i == HELD && round == 1);
      ck_assert_msg((access(name, F_OK) == 0) == stays, "round %d: %s", round, name);
      if (round == 1)
        (void)unlink(name);
    }
  }
  ck_assert_int_eq(remove(path), 0);
  ck_assert_int_eq(rmdir(folder), 0);
}

static hec_status is_still_new(void *path) {
  char back[8] = {0};
  FILE *file = fopen(path, "rb");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_eq(fread(back, 1, sizeof back - 1, file), 3);
  (void)fclose(file);
  ck_assert_str_eq(back, "new");
  return hec_fail(HEC_FAILED, "not in place");
}

HEC_TEST(several_files_are_written_together_or_not_at_all) {
  char folder[] = "/tmp/hecate-text-XXXXXX";
  ck_assert_ptr_nonnull(mkdtemp(folder));
  char path[64], back[8] = {0};
  (void)snprintf(path, sizeof path, "%s/out", folder);
  ck_ok(hec_write_file(path, "old", 3));
  const hec_file_out files[] = {{path, "new", 3}, {"/nonexistent/x", "abc", 3}};
  ck_assert_int_eq(hec_write_files(files, 2), HEC_FAILED);
  FILE *file = fopen(path, "rb");
  ck_assert_uint_eq(fread(back, 1, 8, file), 3);
  (void)fclose(file);
  ck_assert_str_eq(back, "old");
  ck_ok(hec_write_files(files, 1));
  /* What takes its place with them is asked when all are written and none is renamed. */
  const hec_file_out last = {path, "last", 4};
  ck_assert_int_eq(hec_write_files_with(&last, 1, is_still_new, path), HEC_FAILED);
  ck_assert_int_eq(is_still_new(path), HEC_FAILED);
  ck_assert_int_eq(remove(path), 0);
  ck_assert_int_eq(rmdir(folder), 0); /* nothing else is left */
}

/* What is UTF-8 stays; every other byte becomes U+FFFD (RFC 3629 section 4 and Unicode table 3-7). */
HEC_TEST(json_is_utf8_whatever_the_text) {
#define REPLACED "\xef\xbf\xbd"
  static const struct {
    const char *text, *json;
  } cases[] = {{"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
               {"\xff", "\"" REPLACED "\""},
               {"\xc0\x80", "\"" REPLACED REPLACED "\""},              /* not the shortest form */
               {"\xe0\x9f\xbf", "\"" REPLACED REPLACED REPLACED "\""}, /* likewise */
               {"\xed\xa0\x80", "\"" REPLACED REPLACED REPLACED "\""}, /* a surrogate */
               {"\xf4\x90\x80\x80", "\"" REPLACED REPLACED REPLACED REPLACED "\""},
               {"\xe2\x82", "\"" REPLACED REPLACED "\""}, /* cut */
               {"\xe2\"", "\"" REPLACED "\\\"\""}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    HEC_SCOPED(hec_text) text = {0};
    hec_json_out json = hec_json_begin(&text, 0);
    hec_json_array(&json, NULL);
    hec_json_string(&json, NULL, cases[i].text);
    hec_json_close(&json);
    char expected[64];
    (void)snprintf(expected, sizeof expected, "[%s]\n", cases[i].json);
    ck_assert_str_eq(text.data, expected);
  }
}

HEC_TEST(words_are_wrapped) {
  static const struct {
    const char *words;
    size_t column;
    int indent;
    const char *text;
  } cases[] = {{"a bc def", 0, 2, " a bc def"},
               {"a bc def g", 0, 2, " a bc def\n  g"},
               {"a bc", 8, 1, " a\n bc"},
               {"a bc", 7, 3, " a\n   bc"},
               {"", 5, 2, ""},
               {"abcdefghijkl m", 3, 0, "\nabcdefghijkl\nm"},
               {"a  b", 0, 0, " a  b"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    HEC_SCOPED(hec_text) text = {0};
    hec_text_wrap(&text, cases[i].words, cases[i].column, cases[i].indent, 10);
    ck_assert_str_eq(text.data ? text.data : "", cases[i].text);
  }
}

/* The same file under any name is one; devices, presets and what is not there are none. */
HEC_TEST(what_is_written_is_no_input) {
  char folder[] = "/tmp/hec_paths_XXXXXX", path[5][64];
  static const char *const names[4] = {"in", "hard", "soft", "new"};
  ck_assert_ptr_nonnull(mkdtemp(folder));
  for (int i = 0; i < 4; i++)
    (void)snprintf(path[i], sizeof path[i], "%s/%s", folder, names[i]);
  (void)snprintf(path[4], sizeof path[4], "%s/../%s/new", folder, folder + 5);
  ck_ok(hec_write_file(path[0], "x", 1));
  ck_assert_int_eq(link(path[0], path[1]), 0);
  ck_assert_int_eq(symlink(path[0], path[2]), 0);
  const struct {
    hec_path_use uses[2];
    bool same;
  } cases[] = {{{{"the trace", path[0], false}, {"--out", path[0], true}}, true},
               {{{"--out", path[1], true}, {"the trace", path[0], false}}, true},
               {{{"the trace", path[0], false}, {"--out", path[2], true}}, true},
               {{{"the trace", path[0], false}, {"the trace", path[0], false}}, false},
               {{{"the trace", path[0], false}, {"--out", path[3], true}}, false},
               {{{"--out", path[3], true}, {"--report", path[4], true}}, true},
               {{{"--cluster", path[3], false}, {"--out", path[4], true}}, false}, /* not there: no input */
               {{{"--out", "/dev/null", true}, {"--report", "/dev/null", true}}, false},
               {{{"the trace", "-", false}, {"--out", "-", true}}, false},
               {{{"the trace", path[0], false}, {"--out", NULL, true}}, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    ck_assert_int_eq(hec_paths_check(cases[i].uses, 2), cases[i].same ? HEC_BAD_INPUT : HEC_OK);
  ck_assert_int_eq(hec_paths_check(cases[0].uses, 2), HEC_BAD_INPUT);
  char expected[256];
  (void)snprintf(expected, sizeof expected, "--out %s: expected a file that is no input, found the trace %s itself",
                 path[0], path[0]);
  ck_assert_str_eq(hec_last_error(), expected);
  ck_assert_int_eq(hec_paths_check(cases[5].uses, 2), HEC_BAD_INPUT);
  (void)snprintf(expected, sizeof expected,
                 "--report %s: expected a file that is not written already, found --out %s itself", path[4], path[3]);
  ck_assert_str_eq(hec_last_error(), expected);
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(unlink(path[i]), 0);
  ck_assert_int_eq(rmdir(folder), 0);
}

/* A spreadsheet runs a cell that begins with one of = + - @ as a formula; numbers, with their sign, are none. */
HEC_TEST(csv_cells_are_no_formulas) {
  static const char *const cells[][2] = {{"ep", "ep"},
                                         {"", ""},
                                         {"=1+1", "'=1+1"},
                                         {"+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"},
                                         {"-x", "'-x"},
                                         {"-", "'-"},
                                         {"@SUM(A1)", "'@SUM(A1)"},
                                         {"\t=1", "'\t=1"},
                                         {"=\"a\",b", "\"'=\"\"a\"\",b\""},
                                         {"-1.5", "-1.5"},
                                         {"+3e-4", "+3e-4"},
                                         {"-1+1", "'-1+1"},
                                         {"-inf", "'-inf"},
                                         {"-0x10", "'-0x10"},
                                         {"a=b", "a=b"},
                                         {"a,b", "\"a,b\""},
                                         {"a\nb", "\"a\nb\""},
                                         {"\r=1", "\"'\r=1\""}};
  for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
    HEC_SCOPED(hec_text) text = {0};
    hec_text_add_csv(&text, cells[i][0]);
    ck_assert_str_eq(text.data, cells[i][1]);
  }
}

/* As many files as there are, and no others: the ninth was forgotten once. */
HEC_TEST(every_temporary_file_is_removed) {
  enum { N = 40 };
  char folder[] = "/tmp/hecate-text-XXXXXX", path[64];
  ck_assert_ptr_nonnull(mkdtemp(folder));
  for (int i = 0; i < N; i++) {
    (void)snprintf(path, sizeof path, "%s/%d", folder, i);
    FILE *file = fopen(path, "wb");
    ck_assert(file && fclose(file) == 0);
    hec_temporary_add(path);
    if (i % 3 == 0) /* in place by now */
      hec_temporary_drop(path);
  }
  hec_temporary_remove();
  for (int i = 0; i < N; i++) {
    (void)snprintf(path, sizeof path, "%s/%d", folder, i);
    ck_assert_int_eq(access(path, F_OK) == 0, i % 3 == 0);
    (void)unlink(path);
  }
  ck_assert_int_eq(rmdir(folder), 0);
}

/* Lack of memory is one message and exit code 1, and the files being written go. */
HEC_TEST(no_memory_is_a_failed_run) {
  char path[] = "/tmp/hecate-text-XXXXXX", said[200] = "";
  int file = mkstemp(path), ends[2], outcome;
  ck_assert(file >= 0 && close(file) == 0 && pipe(ends) == 0);
  pid_t child = fork();
  if (child == 0) {
    (void)dup2(ends[1], STDERR_FILENO);
    hec_temporary_add(path);
    hec_fail_allocation(1);
    free(hec_malloc(1000, 1));
    _exit(0);
  }
  ck_assert(close(ends[1]) == 0 && waitpid(child, &outcome, 0) == child);
  ck_assert(read(ends[0], said, sizeof said - 1) > 0);
  ck_assert(WIFEXITED(outcome) && WEXITSTATUS(outcome) == 1);
  ck_assert_str_eq(said, "hecate: out of memory (1000 bytes wanted)\n");
  ck_assert_int_ne(access(path, F_OK), 0);
  (void)close(ends[0]);
}

HEC_TEST(numbers_are_in_range) {
  static const struct {
    const char *text;
    bool good;
    int length;
    double value;
  } rows[] = {{"1e-3042949672950", false, 0, 0},
              {"1e3042949672950", false, 0, 0},
              {"-2e-400", false, 0, 0},
              {"0.001e-330", false, 0, 0},
              {"nan", false, 0, 0},
              {"inf", false, 0, 0},
              {"0x10", false, 0, 0},
              {"", false, 0, 0},
              {" 1", false, 0, 0},
              {"0e-3042949672950", true, 16, 0},
              {"-0.00", true, 5, -0.0},
              {"0", true, 1, 0},
              {"2.5e-3us", true, 6, 2.5e-3},
              {"1e308,", true, 5, 1e308},
              {"16", true, 2, 16}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *end;
    double value;
    ck_assert_msg(hec_number_read(rows[i].text, &end, &value) == rows[i].good, "%s", rows[i].text);
    if (rows[i].good)
      ck_assert_msg(end == rows[i].text + rows[i].length && value == rows[i].value, "%s", rows[i].text);
  }
}
