/* Sweeps read their inputs once: what happens to the files afterwards is in no row; other contents are another sweep. Paths in
 * a spec are relative to its folder. A bad spec is refused by file and place. */
#include "models/preset_data.h"
#include "runtime/base/temporary.h"
#include "tests/support/test.h"
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
  HEC_SCOPED(hec_text) path = {0};
  path_of(name, &path);
  ck_ok(hec_write_file(path.data, text, strlen(text)));
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
  HEC_SCOPED(hec_text) text = {0};
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
  path_of("spec.json", &spec_path);
}

static void remove_files(int first) {
  HEC_SCOPED(hec_text) path = {0};
  for (int i = first; i < N_FILES; i++) {
    path_of(names[i], &path);
    (void)unlink(path.data);
  }
}

static void teardown(void) {
  remove_files(0);
  (void)rmdir(folder);
  hec_text_free(&spec_path);
}
HEC_TEST_FIXTURE(setup, teardown)

/* The rows as CSV; `meanwhile` happens when all is read and nothing computed. */
static uint64_t run(void (*meanwhile)(void), hec_text *csv) {
  HEC_SCOPED(hec_sweep) sweep = {.n = 0};
  ck_ok(hec_sweep_read(spec_path.data, &sweep));
  ck_ok(hec_sweep_load(&sweep, "test", hec_source_digest));
  if (meanwhile)
    meanwhile();
  HEC_SCOPED(hec_sweep_rows) rows = hec_sweep_rows_new(&sweep);
  hec_sweep_run_options options = {.n_threads = 1, .n_shards = 1};
  ck_ok(hec_sweep_run(&rows, &options));
  ck_assert_int_eq(rows.sweep->n, 4);
  for (int64_t i = 0; i < rows.sweep->n; i++)
    ck_assert_msg(rows.row[i]->why == NULL, "%s", rows.row[i]->why);
  hec_sweep_csv(&rows, csv);
  uint64_t digest = sweep.digest;
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

HEC_TEST_LOOP(inputs_are_read_once, 3) {
  static void (*const events[])(void) = {change_cluster, break_files, delete_files};
  HEC_SCOPED(hec_text) whole = {0}, csv = {0};
  uint64_t digest = run(NULL, &whole);
  ck_assert_uint_eq(run(events[_i], &csv), digest);
  ck_assert_msg(strcmp(csv.data, whole.data) == 0, "other rows");
}

HEC_TEST(other_contents_are_another_sweep) {
  HEC_SCOPED(hec_text) text = {0};
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
}

/* A policy with options is a row of its own, named by them; said or not, a default gives the same. */
HEC_TEST(options_of_policies) {
  HEC_SCOPED(hec_text) csv = {0};
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
}

/* The rows do not say from where the sweep was started. */
HEC_TEST(paths_are_relative_to_the_spec) {
  HEC_SCOPED(hec_text) from_far = {0}, from_near = {0};
  char *before = getcwd(NULL, 0);
  uint64_t digest = run(NULL, &from_far);
  ck_assert_int_eq(chdir(folder), 0);
  hec_text_free(&spec_path);
  hec_text_add(&spec_path, "spec.json");
  ck_assert_uint_eq(run(NULL, &from_near), digest);
  ck_assert_int_eq(chdir(before), 0);
  ck_assert_msg(strcmp(from_far.data, from_near.data) == 0, "other rows");
  free(before);
}

HEC_TEST_LOOP(says_where_it_looked, N_FILES - 1) {
  const char *name = names[1 + _i];
  HEC_SCOPED(hec_sweep) sweep = {.n = 0};
  HEC_SCOPED(hec_text) path = {0};
  path_of(name, &path);
  ck_assert_int_eq(unlink(path.data), 0);
  ck_ok(hec_sweep_read(spec_path.data, &sweep));
  ck_refused(hec_sweep_load(&sweep, "test", hec_source_digest), path.data);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "No such file"));
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "paths in a spec are relative to its folder"));
}

/* A spec, or the axes of one of loads.jsonl; ` is a quote. */
static const struct {
  const char *words, *spec;
} bad_specs[] = {
    {"expected a known field", "`polices`: `ep`"},
    {"a member `trace`", "{`policy`: `ep`}"},
    {"an object", "[]"},
    {"spec.json:2: policy[1]: expected one of the", "{`trace`: `loads.jsonl`,\n  `policy`: [`ep`, `nonsense`]}"},
    {"every value of an axis once", "`ranks`: [4, 8, 4]"},
    {"every value of an axis once", "`policy`: [`ep`, `all`]"},
    {"at least one value", "`ranks`: []"},
    {"at least one value", "{`trace`: []}"},
    {"ranks: expected a whole number from 1 to 65536", "`ranks`: 0"},
    {"found 2.5", "`tokens`: [2.5]"},
    {"found true", "`m`: true"},
    {"found null", "`cluster`: null"},
    {"an array of 1", "`m`: [[1]]"},
    {"mp: expected a whole number from 1 to 65536", "`mp`: 0"},
    {"slow: expected a text", "`slow`: 1"},
    {"every value of an axis once", "`slow`: [``, `auto`]"},
    {"slow[1]: expected what some configuration can have (",
     "`cluster`: [`2x4 nvlink=300G nic=50G flops=312T mem=40G`, `1x4 nvlink=90G flops=100T mem=16G`], `ranks`: [8, 4, "
     "16], `slow`: [``, `rank=9:0.5`]"},
    {"skew: expected what some configuration can have", "`skew`: `rank=16:500us`"},
    {"skew[1]: expected what some configuration can have", "`skew`: [`rank=0:1us`, `rank=0`], `ranks`: [1, 64]"},
    {"law: expected", "`law`: `auto`"},
    {"schedule: expected one of the 13 names", "`schedule`: `ideal`"},
    {"phase: expected train", "`phase`: `decode`"},
    {"attention: expected", "`attention`: `s2:shards=-1`"},
    {"cluster[1]: expected a cluster", "`cluster`: [`auto`, `4y8`]"},
    {"model: expected a model", "`model`: `absent.json`"},
    {"trace: expected a trace that can be read (", "{`trace`: `absent.jsonl`}"},
    {"expected a regular file", "{`trace`: `/dev/zero`}"},
    {"expected a regular file", "{`trace`: `.`}"},
    {"expected a trace file", "{`trace`: `-`}"},
    {"workload", "{`trace`: {`synth`: {`layers`: 2}}}"},
    {"expected a known field", "{`trace`: {`synth`: {`workload`: `zipf`, `drift`: `1:0.9`}}}"},
    {"expected a known field", "{`trace`: {`synth`: {`workload`: `zipf`}, `seed`: 1}}"},
    {"trace.synth.top_k[1]", "{`trace`: {`synth`: {`workload`: `zipf`, `top_k`: [1, `2`]}}}"},
    {"expected at most 1073741824, found 2", "{`trace`: {`synth`: {`workload`: `zipf`, `iterations`: 1000000000}}}"},
    {"spec.json:1: policy[1] llep: cap: expected a number from 0.01 to 1000, found `0`",
     "`policy`: [`llep`, `llep:cap=0`]"},
    {"llep: expected threshold=VALUE, cap=VALUE, min=VALUE, found `cop=1`", "`policy`: `llep:cop=1`"},
    {"(did you mean `llep`?), found `llepp`", "`policy`: [`llepp:cap=1`]"},
    {"expected every value of an axis once", "`policy`: [`llep:cap=1`, `llep:cap=1.0`]"},
    {"not valid JSON", "{`trace`: `loads.jsonl`"},
    {"not valid JSON", ""},
    {"every key once", "{`trace`: `loads.jsonl`, `trace`: `loads.jsonl`}"},
};

static void spec_refused(const char *spec, const char *words) {
  HEC_SCOPED(hec_text) text = {0};
  HEC_SCOPED(hec_sweep) sweep = {.n = 0};
  hec_text_printf(&text, *spec == '`' ? "{\"trace\": \"loads.jsonl\", %s}" : "%s", hec_test_quoted(spec));
  hec_status status = hec_sweep_parse(text.data ? text.data : "", text.length, spec_path.data, &sweep);
  if (status == HEC_OK)
    status = hec_sweep_load(&sweep, "test", hec_source_digest);
  hec_test_refused(status, spec, hec_test_quoted(words));
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "spec.json:"));
}

HEC_TEST_ROWS(says_what_is_wrong, bad_specs) {
  spec_refused(bad_specs[_i].spec, bad_specs[_i].words);
}

HEC_TEST(too_much) {
  HEC_SCOPED(hec_text) list = {0}, spec = {0};
  for (int i = 1; i <= 2000; i++)
    hec_text_printf(&list, "%s%d", i > 1 ? ", " : "", i);
  hec_text_printf(&spec, "{\"trace\": \"loads.jsonl\", \"ranks\": [%s], \"tokens\": [%s]}", list.data, list.data);
  spec_refused(spec.data, "at most 1000000 configurations, found 1");
  for (int i = 2001; i <= 20000; i++)
    hec_text_printf(&list, ", %d", i);
  spec.length = 0;
  hec_text_printf(&spec, "{\"trace\": \"loads.jsonl\", \"tokens\": [%s]}", list.data);
  spec_refused(spec.data, "at most 16384 values");
}
