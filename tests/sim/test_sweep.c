/* Sweeps read their inputs once: what happens to the files afterwards is in no row; other contents are another sweep. Paths in
 * a spec are relative to its folder. */
#include "models/preset_data.h"
#include "runtime/base/temporary.h"
#include "tests/support/check_main.h"
#include "tests/support/trace_text.h"
#include "tools/front/sweep/sweep.h"

#include <string.h>
#include <unistd.h>

static char folder[64];
static hec_text spec_path;
static const char *const names[] = {"spec.json", "cluster.json", "model.json", "loads.jsonl"};
enum { N_FILES = sizeof names / sizeof *names };

static void path_of(const char *name, hec_text *path) {
  path->length = 0;
  hec_text_printf(path, "%s/%s", folder, name);
}

static void put(const char *name, const char *text) {
  hec_text path = {0};
  path_of(name, &path);
  ck_assert_msg(hec_write_file(path.data, text, strlen(text)) == HEC_OK, "%s", hec_last_error());
  hec_text_free(&path);
}

/* A cluster of two devices with links of that many GB/s. */
static void put_cluster(int gigabytes) {
  char text[400];
  (void)snprintf(text, sizeof text,
                 "{\"nodes\": 1, \"devices_per_node\": 2, \"nvlink\": {\"bandwidth\": %de9, \"latency\": 2e-6},\n"
                 " \"device\": {\"flops\": 1e12, \"memory_bytes\": 40e9}}",
                 gigabytes);
  put("cluster.json", text);
}

static void setup(void) {
  hec_text text = {0};
  hec_test_trace trace = {
      .layers = 2, .experts = 4, .top_k = 2, .sources = 2, .records = 3, .first_iter = 1, .stride = 1};
  (void)snprintf(folder, sizeof folder, "/tmp/hecate-test-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  put("spec.json", "{\"trace\": \"loads.jsonl\", \"cluster\": \"cluster.json\", \"model\": \"model.json\",\n"
                   " \"policy\": [\"ep\", \"hecate\"], \"tokens\": [8, 16]}");
  put("model.json", hec_preset_find("moe", "tiny")->text);
  put_cluster(300);
  hec_test_trace_write(&trace, 7, &text);
  put("loads.jsonl", text.data);
  hec_text_free(&text);
  path_of("spec.json", &spec_path);
}

static void remove_files(int first) {
  hec_text path = {0};
  for (int i = first; i < N_FILES; i++) {
    path_of(names[i], &path);
    (void)unlink(path.data);
  }
  hec_text_free(&path);
}

static void teardown(void) {
  remove_files(0);
  (void)rmdir(folder);
  hec_text_free(&spec_path);
}

/* The rows as CSV; `meanwhile` happens when all is read and nothing computed. */
static uint64_t run(void (*meanwhile)(void), hec_text *csv) {
  hec_sweep sweep = {.n = 0};
  ck_assert_msg(hec_sweep_read(spec_path.data, &sweep) == HEC_OK, "%s", hec_last_error());
  ck_assert_msg(hec_sweep_load(&sweep, "test", hec_source_digest) == HEC_OK, "%s", hec_last_error());
  if (meanwhile)
    meanwhile();
  hec_sweep_rows rows = hec_sweep_rows_new(&sweep);
  hec_sweep_run_options options = {.n_threads = 1, .n_shards = 1};
  ck_assert_msg(hec_sweep_run(&rows, &options) == HEC_OK, "%s", hec_last_error());
  ck_assert_int_eq(rows.sweep->n, 4);
  for (int64_t i = 0; i < rows.sweep->n; i++)
    ck_assert_msg(rows.row[i]->why == NULL, "%s", rows.row[i]->why);
  hec_sweep_csv(&rows, csv);
  uint64_t digest = sweep.digest;
  hec_sweep_rows_free(&rows);
  hec_sweep_free(&sweep);
  return digest;
}

static void change_cluster(void) {
  put_cluster(3);
}

static void break_files(void) {
  put("cluster.json", "{");
  put("model.json", "[]");
  put("loads.jsonl", "x");
}

static void delete_files(void) {
  remove_files(1);
}

START_TEST(inputs_are_read_once) {
  static void (*const events[])(void) = {change_cluster, break_files, delete_files};
  hec_text whole = {0}, csv = {0};
  uint64_t digest = run(NULL, &whole);
  ck_assert_uint_eq(run(events[_i], &csv), digest);
  ck_assert_msg(strcmp(csv.data, whole.data) == 0, "other rows");
  hec_text_free(&whole);
  hec_text_free(&csv);
}
END_TEST

START_TEST(other_contents_are_another_sweep) {
  hec_text text = {0};
  uint64_t digest = run(NULL, &text);
  put_cluster(3);
  uint64_t other = run(NULL, &text);
  ck_assert_uint_ne(other, digest);
  put_cluster(300);
  ck_assert_uint_eq(run(NULL, &text), digest);
  text.length = 0;
  hec_text_printf(&text, "%s\n", hec_preset_find("moe", "tiny")->text);
  put("model.json", text.data);
  ck_assert_uint_ne(run(NULL, &text), digest);
  hec_text_free(&text);
}
END_TEST

/* A policy with options is a row of its own, named by them; said or not, a default gives the same. */
START_TEST(options_of_policies) {
  hec_text csv = {0};
  put("spec.json", "{\"trace\": \"loads.jsonl\", \"cluster\": \"cluster.json\", \"model\": \"model.json\",\n"
                   " \"policy\": [\"eplb\", \"eplb:period=100\", \"eplb:slots=4,period=1\", \"ep\"]}");
  (void)run(NULL, &csv);
  char *rows[5];
  int n = 0;
  for (char *at = strtok(csv.data, "\n"); at; at = strtok(NULL, "\n"))
    rows[n++] = at;
  ck_assert_int_eq(n, 5);
  char *default_row = strstr(rows[1], ",eplb,serial,"), *said = strstr(rows[2], ",eplb:period=100,serial,");
  ck_assert(default_row && said && strstr(rows[3], ",\"eplb:period=1,slots=4\",serial,"));
  ck_assert_str_eq(default_row + strlen(",eplb"), said + strlen(",eplb:period=100"));
  hec_text_free(&csv);
}
END_TEST

static const struct {
  const char *policy, *error;
} bad_options[] = {
    {"\"llep\", \"llep:cap=0\"", "spec.json:1: policy[1] llep: cap: expected a number from 0.01 to 1000, found \"0\""},
    {"\"llep:cop=1\"",
     "spec.json:1: policy[0] llep: expected threshold=VALUE, cap=VALUE, least=VALUE, found \"cop=1\""},
    {"\"llepp:cap=1\"", "(did you mean \"llep\"?), found \"llepp\""},
    {"\"llep:cap=1\", \"llep:cap=1.0\"", "expected every value of an axis once"},
};

START_TEST(options_that_are_wrong) {
  hec_sweep sweep = {.n = 0};
  char text[200];
  (void)snprintf(text, sizeof text, "{\"trace\": \"loads.jsonl\", \"policy\": [%s]}", bad_options[_i].policy);
  put("spec.json", text);
  ck_assert_int_eq(hec_sweep_read(spec_path.data, &sweep), HEC_BAD_INPUT);
  ck_assert_msg(strstr(hec_last_error(), bad_options[_i].error) != NULL, "%s", hec_last_error());
  hec_sweep_free(&sweep);
}
END_TEST

/* The rows do not say from where the sweep was started. */
START_TEST(paths_are_relative_to_the_spec) {
  hec_text from_far = {0}, from_near = {0};
  char *before = getcwd(NULL, 0);
  uint64_t digest = run(NULL, &from_far);
  ck_assert_int_eq(chdir(folder), 0);
  hec_text_free(&spec_path);
  hec_text_add(&spec_path, "spec.json");
  ck_assert_uint_eq(run(NULL, &from_near), digest);
  ck_assert_int_eq(chdir(before), 0);
  ck_assert_msg(strcmp(from_far.data, from_near.data) == 0, "other rows");
  free(before);
  hec_text_free(&from_far);
  hec_text_free(&from_near);
}
END_TEST

START_TEST(says_where_it_looked) {
  const char *name = names[1 + _i];
  hec_sweep sweep = {.n = 0};
  hec_text path = {0};
  path_of(name, &path);
  ck_assert_int_eq(unlink(path.data), 0);
  ck_assert_int_eq(hec_sweep_read(spec_path.data, &sweep), HEC_OK);
  ck_assert_int_eq(hec_sweep_load(&sweep, "test", hec_source_digest), HEC_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), path.data));
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "No such file"));
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "paths in a spec are relative to its folder"));
  hec_sweep_free(&sweep);
  hec_text_free(&path);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("sweep");
  TCase *c = tcase_create("sweep");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_loop_test(c, inputs_are_read_once, 0, 3);
  tcase_add_test(c, other_contents_are_another_sweep);
  tcase_add_test(c, paths_are_relative_to_the_spec);
  tcase_add_test(c, options_of_policies);
  tcase_add_loop_test(c, options_that_are_wrong, 0, sizeof bad_options / sizeof *bad_options);
  tcase_add_loop_test(c, says_where_it_looked, 0, N_FILES - 1);
  suite_add_tcase(s, c);
  return s;
}

HEC_TEST_MAIN(suite)
