/* --out DIR replaces and removes what hecate wrote there, and nothing else. */
#include "tests/support/test.h"
#include "tools/front/timeline_files.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/hecate-output-XXXXXX";
static const hec_timeline_format *chrome, *kineto;

static void setup(void) {
  ck_assert_ptr_nonnull(mkdtemp(folder));
  chrome = hec_timeline_format_find("chrome");
  kineto = hec_timeline_format_find("kineto");
  ck_assert(chrome && kineto && hec_timeline_by_rank(kineto) && !hec_timeline_by_rank(chrome));
}
HEC_TEST_FIXTURE(setup, NULL)

static const char *at(const char *name) {
  static char path[4][256];
  static int next;
  char *to = path[next++ % 4];
  (void)snprintf(to, sizeof path[0], "%s/%s", folder, name);
  return to;
}

static void put(const char *name, const char *text) {
  FILE *file = fopen(at(name), "w");
  ck_assert(file && fputs(text, file) >= 0);
  ck_assert_int_eq(fclose(file), 0);
}

static bool holds(const char *name, const char *text) {
  char found[256] = "";
  FILE *file = fopen(at(name), "r");
  size_t n = file ? fread(found, 1, sizeof found - 1, file) : 0;
  if (file)
    (void)fclose(file);
  return file && n == strlen(text) && memcmp(found, text, n) == 0;
}

static bool is_there(const char *name) {
  return access(at(name), F_OK) == 0;
}

static hec_status look(const hec_timeline_format *format) {
  return hec_timeline_files_check(&(hec_timeline_files){.out = folder, .format = format}, NULL, 0);
}

/* A run that writes the texts that are not NULL, and a rank's timeline where the format has those. */
static hec_status run(const hec_timeline_format *format, const char *json, const char *report, const char *rank) {
  HEC_SCOPED(hec_output_files) files = {.json = {0}};
  HEC_SCOPED(hec_text) one = {0};
  hec_timeline_files to = {.out = folder, .format = format};
  hec_text_add(&files.json, json);
  if (report)
    hec_text_add(&files.report, report);
  hec_status status = hec_timeline_files_begin(&to);
  if (status == HEC_OK && rank) {
    hec_text_add(&one, rank);
    status = hec_timeline_files_put(&to, "ep", 0, &one);
  }
  status = hec_timeline_files_finish(&to, status, &files);
  return status;
}

static void refused(const hec_timeline_format *format, const char *name) {
  ck_assert_int_eq(look(format), HEC_BAD_INPUT);
  ck_assert_msg(strstr(hec_last_error(), at(name)) && strstr(hec_last_error(), "move it, or name another folder"), "%s",
                hec_last_error());
}

HEC_TEST(a_file_of_the_user_stays) {
  static const char *const names[] = {"compare.md", "report.html", "summary.json", "summary.csv", "timeline.json"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    put(names[i], "mine");
    refused(chrome, names[i]);
    ck_assert_int_eq(run(chrome, "{}", NULL, NULL), HEC_FAILED); /* also when it came during the run */
    ck_assert(holds(names[i], "mine"));
    ck_assert(!is_there(HEC_MANIFEST_NAME));
    ck_assert_int_eq(unlink(at(names[i])), 0);
  }
  put("notes.md", "mine"); /* a name that hecate has no use for */
  ck_ok(run(chrome, "{}", NULL, NULL));
  ck_assert(holds("notes.md", "mine") && holds("summary.json", "{}"));
}

HEC_TEST(what_hecate_wrote_is_replaced_and_removed) {
  ck_ok(look(chrome));
  ck_ok(run(chrome, "first", "report", NULL));
  ck_ok(look(chrome));
  ck_ok(run(chrome, "second", NULL, NULL));
  ck_assert(holds("summary.json", "second") && !is_there("compare.md"));
  put("compare.md", "report"); /* byte for byte what it was is still not this run's to know */
  refused(chrome, "compare.md");
  ck_assert_int_eq(unlink(at("compare.md")), 0);
  put("summary.json", "secoNd");
  refused(chrome, "summary.json");
  ck_assert_int_eq(run(chrome, "third", NULL, NULL), HEC_FAILED);
  ck_assert(holds("summary.json", "secoNd"));
}

HEC_TEST(a_link_is_not_followed) {
  ck_ok(run(chrome, "first", NULL, NULL));
  ck_assert_int_eq(rename(at("summary.json"), at("kept.json")), 0);
  ck_assert_int_eq(symlink("kept.json", at("summary.json")), 0);
  refused(chrome, "summary.json");
}

HEC_TEST(timelines_of_ranks) {
  ck_ok(run(kineto, "first", NULL, "rank"));
  ck_assert(holds("kineto/ep/rank0.json", "rank"));
  ck_ok(look(kineto));
  ck_ok(run(kineto, "second", NULL, "other"));
  ck_assert(holds("kineto/ep/rank0.json", "other"));
  put("kineto/ep/rank0.json", "mine");
  refused(kineto, "kineto/ep/rank0.json");
  ck_assert(run(kineto, "third", NULL, "rank") != HEC_OK);
  ck_ok(run(chrome, "fourth", NULL, NULL));
  ck_assert(holds("kineto/ep/rank0.json", "mine")); /* of another format: it stays */
  put("kineto/ep/rank0.json", "rank");
  ck_assert_int_eq(unlink(at("kineto/ep/rank0.json")), 0);
  ck_assert_int_eq(rmdir(at("kineto/ep")), 0);
  ck_assert_int_eq(rmdir(at("kineto")), 0);
  ck_ok(run(kineto, "fifth", NULL, "rank"));
  ck_ok(run(chrome, "sixth", NULL, NULL));
  ck_assert(!is_there("kineto")); /* hecate's own: of other numbers */
}

HEC_TEST(a_list_that_is_none) {
  put(HEC_MANIFEST_NAME, "my list\n");
  ck_refused(look(chrome), "expected the list of files that hecate wrote");
  ck_assert_int_eq(unlink(at(HEC_MANIFEST_NAME)), 0);
  ck_assert_int_eq(mkdir(at(HEC_MANIFEST_NAME), 0777), 0);
  ck_assert_int_eq(look(chrome), HEC_BAD_INPUT);
}

/* A run that was killed while it put its files in place left some of both runs: all are hecate's. */
HEC_TEST(files_of_two_runs) {
  HEC_SCOPED(hec_manifest) both = {.lines = {0}};
  HEC_SCOPED(hec_text) text = {0};
  hec_manifest_add(&both, "summary.json", "new", 3);
  hec_manifest_add(&both, "summary.json", "old", 3);
  hec_manifest_add(&both, "summary.csv", "old", 3);
  hec_manifest_text(&both, &text);
  put(HEC_MANIFEST_NAME, text.data);
  put("summary.json", "new");
  put("summary.csv", "old");
  ck_ok(look(chrome));
  put("summary.csv", "new");
  refused(chrome, "summary.csv");
}
