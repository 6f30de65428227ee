/* Bare flow sets. The committed cases (exact rational arithmetic, tests/sim/cases/make_cases.py), the shared ones
 * (SimGrid), alpha_beta by hand, the output read back, and every error of the input. */
#include "models/json.h"
#include "sim/flows.h"
#include "tests/support/test.h"
#include "tools/sim/sim_commands.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

HEC_TEST_ARENA(arena)

/* ---- max_min against files ---- */

/* Every flow of the case within 1e-8 relative or 2e-12 s, whichever is larger; returns the worst relative error. */
static double check_case(const char *path) {
  hec_flows flows;
  ck_ok(hec_flows_read(path, &arena, &flows));
  double *finish = HEC_NEW(&arena, double, flows.n_flows), worst = 0;
  ck_ok(hec_flows_run(&flows, "max_min", finish));
  for (int32_t f = 0; f < flows.n_flows; f++) {
    double expected = flows.flow[f].expected_finish, error = fabs(finish[f] - expected);
    ck_assert_double_ge(expected, 0);
    ck_assert_msg(error <= fmax(1e-8 * expected, 2e-12), "%s: flow %d: expected %.17g, found %.17g", path, f, expected,
                  finish[f]);
    worst = fmax(worst, expected > 0 ? error / expected : 0);
  }
  return worst;
}

static const char *const own_cases[] = {"incast",    "shared_nic", "staggered", "latency",
                                        "multi_hop", "parallel",   "tree"};

HEC_TEST_ROWS(own_cases_exactly, own_cases) {
  char path[1024];
  (void)snprintf(path, sizeof path, "%s/tests/sim/cases/%s.json", HEC_SOURCE_DIR, own_cases[_i]);
  ck_assert_double_le(check_case(path), 1e-13); /* rational arithmetic: no error but ours */
}

static const char *const shared_cases[] = {"01_switch_n8_zipf", "02_switch_n16_staggered", "03_node8_shared_nic_n16",
                                           "05_hetero_nics",    "07_incast_hot_expert",    "09_fattree_ecmp_hash",
                                           "11_pxn_relay_paths"};

HEC_TEST(shared_cases_by_simgrid) {
  const size_t n = sizeof shared_cases / sizeof *shared_cases;
  for (size_t i = 0; i < n; i++) {
    char relative[128];
    (void)snprintf(relative, sizeof relative, "cases/maxmin/%s.json", shared_cases[i]);
    const char *path = hec_test_wants("sim.flows/shared_cases_by_simgrid", relative,
                                      "flows of larger networks against SimGrid's finish times; small ones are");
    if (!path)
      return;
    (void)check_case(path);
  }
}

/* ---- by hand ---- */

#define HOSTS "{\"hosts\":[\"a\",\"b\",\"c\"],"
#define LINKS                                                                                                          \
  "\"links\":[{\"id\":\"ua\",\"bandwidth\":100,\"latency\":1},{\"id\":\"ub\",\"bandwidth\":100,\"latency\":1},"        \
  "{\"id\":\"uc\",\"bandwidth\":100,\"latency\":1},{\"id\":\"da\",\"bandwidth\":50,\"latency\":2},"                    \
  "{\"id\":\"db\",\"bandwidth\":50,\"latency\":2},{\"id\":\"dc\",\"bandwidth\":50,\"latency\":2},"                     \
  "{\"id\":\"core\",\"bandwidth\":20,\"latency\":0.5}],"
#define ROUTES                                                                                                         \
  "\"routes\":[{\"src\":\"a\",\"dst\":\"b\",\"links\":[\"ua\",\"db\"]},{\"src\":\"a\",\"dst\":\"c\",\"links\":"        \
  "[\"ua\",\"core\",\"dc\"]},{\"src\":\"b\",\"dst\":\"c\",\"links\":[\"ub\",\"dc\"]}],"
#define FLOW(src, dst, bytes, start) "{\"src\":\"" src "\",\"dst\":\"" dst "\",\"bytes\":" bytes ",\"start\":" start "}"

static void solve(const char *text, const char *law, hec_flows *flows, double *finish) {
  ck_ok(hec_flows_parse(text, strlen(text), "case", &arena, flows));
  ck_ok(hec_flows_run(flows, law, finish));
}

/* a->c enters at 3.5 and runs at the core's 20; a->b at 3, b->c at 8 with the 30 that core leaves of dc.
 * a->b: 50 until 3.5 (25), then 50 (the other 975 of 1000): 3 + 20. a->c: 3.5 + 200/20 = 13.5.
 * b->c: 30 from 8 to 13.5 (165), then 50: 13.5 + 435/50. */
HEC_TEST(max_min_by_hand) {
  hec_flows flows;
  double finish[3];
  solve(HOSTS LINKS ROUTES
        "\"flows\":[" FLOW("a", "b", "1000", "0") "," FLOW("a", "c", "200", "0") "," FLOW("b", "c", "600", "5") "]}",
        "max_min", &flows, finish);
  ck_assert_double_eq_tol(finish[0], 23, 1e-13);
  ck_assert_double_eq_tol(finish[1], 13.5, 1e-13);
  ck_assert_double_eq_tol(finish[2], 22.2, 1e-13);
  ck_assert_double_eq(hec_flows_makespan(&flows, finish), finish[0]);
}

/* Two bursts a long time apart: the second is as exact as the first because its clock starts anew. */
HEC_TEST(precision_after_a_long_pause) {
  hec_flows flows;
  double finish[2];
  solve(HOSTS LINKS ROUTES "\"flows\":[" FLOW("a", "b", "1", "0") "," FLOW("a", "b", "25", "1048576") "]}", "max_min",
        &flows, finish);
  ck_assert_double_eq(finish[0], 3 + 1.0 / 50);
  ck_assert_double_eq(finish[1], 1048576 + 3 + 0.5);
}

/* Loads: ua 1200, db 1000, core 200, dc 800, ub 600. Posts: a 4 (the later of its two), b 5, c none.
 * begin: a 5 (b is its partner), b 5, c 5.
 * a: a->b 3 + ua 12 = 15; a->c 3.5 + max(ua 12, core 10) = 15.5: done 20.5.
 * b: from a 3 + db 20 = 23; to c 3 + ub 6 = 9: done 28. c: 3.5 + max(core 10, dc 16); 3 + 16: 19.5: done 24.5. */
HEC_TEST(alpha_beta_by_hand) {
  hec_flows flows;
  double finish[3];
  solve(HOSTS LINKS ROUTES
        "\"flows\":[" FLOW("a", "b", "1000", "0") "," FLOW("a", "c", "200", "4") "," FLOW("b", "c", "600", "5") "]}",
        "alpha_beta", &flows, finish);
  ck_assert_double_eq_tol(finish[0], 28, 1e-13);
  ck_assert_double_eq_tol(finish[1], 24.5, 1e-13);
  ck_assert_double_eq_tol(finish[2], 28, 1e-13);
}

/* Without latency and starts the busiest port bounds the makespan from below under any sharing. An incast, whose hot
 * port is full all the time, reaches it. */
HEC_TEST(busiest_port_is_a_lower_bound) {
  for (size_t i = 0; i < sizeof own_cases / sizeof *own_cases; i++) {
    hec_flows flows;
    double fluid[128], closed[128];
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/tests/sim/cases/%s.json", HEC_SOURCE_DIR, own_cases[i]);
    ck_ok(hec_flows_read(path, &arena, &flows));
    ck_assert_int_le(flows.n_flows, 128);
    for (int32_t f = 0; f < flows.n_flows; f++)
      flows.flow[f].start = 0;
    memset(flows.route_latency, 0, (size_t)flows.n_routes * sizeof *flows.route_latency);
    ck_ok(hec_flows_run(&flows, "max_min", fluid));
    ck_ok(hec_flows_run(&flows, "alpha_beta", closed));
    double makespan = hec_flows_makespan(&flows, closed);
    ck_assert_double_ge(hec_flows_makespan(&flows, fluid), makespan * (1 - 1e-13));
    if (strcmp(own_cases[i], "incast") == 0)
      ck_assert_double_le(hec_flows_makespan(&flows, fluid), makespan * (1 + 1e-13));
  }
}

/* ---- output ---- */

HEC_TEST(output_reads_back) {
  hec_flows flows;
  double finish[3];
  solve(HOSTS LINKS ROUTES "\"flows\":[" FLOW("b", "c", "7", "0.1") "," FLOW("a", "b", "10", "0") "," FLOW(
            "a", "c", "0", "0.30000000000000004") "]}",
        "max_min", &flows, finish);
  HEC_SCOPED(hec_text) text = {0};
  hec_flows_write(&flows, "max_min", finish, &text);
  HEC_OPENED(hec_json) *json = NULL;
  ck_ok(hec_json_parse(text.data, text.length, "output", &json));
  const hec_json_value *root = hec_json_root(json), *list = hec_json_get(root, "flows");
  ck_assert_str_eq(hec_json_text(hec_json_get(root, "law")), "max_min");
  ck_assert(hec_json_number(hec_json_get(root, "makespan")) == hec_flows_makespan(&flows, finish));
  ck_assert_int_eq(hec_json_length(list), 3);
  const hec_json_value *v = hec_json_first(list);
  for (int f = 0; f < 3; f++, v = hec_json_next(v)) {
    ck_assert_str_eq(hec_json_text(hec_json_get(v, "src")), f == 0 ? "b" : "a");
    ck_assert_str_eq(hec_json_text(hec_json_get(v, "dst")), f == 1 ? "b" : "c");
    ck_assert(hec_json_number(hec_json_get(v, "bytes")) == (double)flows.flow[f].bytes);
    ck_assert(hec_json_number(hec_json_get(v, "start")) == flows.flow[f].start);
    ck_assert(hec_json_number(hec_json_get(v, "finish")) == finish[f]);
  }
  ck_assert_ptr_nonnull(strstr(text.data, "0.30000000000000004")); /* 17 digits */
}

HEC_TEST(unknown_law) {
  hec_flows flows = {0};
  ck_assert_int_eq(hec_flows_run(&flows, "magic", NULL), HEC_BAD_INPUT);
  for (int32_t i = 0; hec_flows_law_name(i); i++)
    ck_assert_ptr_nonnull(strstr(hec_last_error(), hec_flows_law_name(i)));
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "magic"));
}

/* ---- errors ---- */

#define LINK(bandwidth, latency) "\"links\":[{\"id\":\"x\",\"bandwidth\":" bandwidth ",\"latency\":" latency "}],"
#define ROUTE "\"routes\":[{\"src\":\"a\",\"dst\":\"b\",\"links\":[\"x\"]}],"
#define GOOD_LINK LINK("5", "0")
#define ONE(flow) "\"flows\":[" flow "]}"
#define GOOD_FLOW ONE(FLOW("a", "b", "1", "0"))

static const struct {
  const char *text, *where; /* what the message must name */
} bad[] = {
    {"", "case:1"},
    {"[]", "hosts"},
    {"3", "hosts"},
    {"{}", "hosts"},
    {"{`hosts`:[]}", "hosts"},
    {"{`hosts`:{}}", "hosts"},
    {"{`hosts`:[`a`,3]}", "hosts[1]"},
    {"{`hosts`:[`a`,`b`,`a`]," GOOD_LINK ROUTE GOOD_FLOW, "hosts[2]"},
    {HOSTS ROUTE GOOD_FLOW, "links"},
    {HOSTS "`links`:[7]," ROUTE GOOD_FLOW, "links[0]"},
    {HOSTS "`links`:[{`bandwidth`:1}]," ROUTE GOOD_FLOW, "id"},
    {HOSTS "`links`:[{`id`:`x`,`bandwidth`:1},{`id`:`x`,`bandwidth`:2}]," ROUTE GOOD_FLOW, "links[1].id"},
    {HOSTS LINK("0", "0") ROUTE GOOD_FLOW, "links[0].bandwidth"},
    {HOSTS LINK("-5", "0") ROUTE GOOD_FLOW, "links[0].bandwidth"},
    {HOSTS LINK("1e999", "0") ROUTE GOOD_FLOW, "case:1"},
    {HOSTS LINK("`5`", "0") ROUTE GOOD_FLOW, "links[0].bandwidth"},
    {HOSTS LINK("5", "-1") ROUTE GOOD_FLOW, "links[0].latency"},
    {HOSTS LINK("5", "null") ROUTE GOOD_FLOW, "links[0].latency"},
    {HOSTS GOOD_LINK GOOD_FLOW, "routes"},
    {HOSTS GOOD_LINK "`routes`:[[]]," GOOD_FLOW, "routes[0]"},
    {HOSTS GOOD_LINK "`routes`:[{`src`:`a`,`dst`:`b`}]," GOOD_FLOW, "routes[0]"},
    {HOSTS GOOD_LINK "`routes`:[{`src`:`a`,`dst`:`b`,`links`:`x`}]," GOOD_FLOW, "routes[0].links"},
    {HOSTS GOOD_LINK "`routes`:[{`src`:`a`,`dst`:`b`,`links`:[`y`]}]," GOOD_FLOW, "routes[0].links[0]"},
    {HOSTS GOOD_LINK "`routes`:[{`src`:`a`,`dst`:`q`,`links`:[`x`]}]," GOOD_FLOW, "routes[0].dst"},
    {HOSTS GOOD_LINK "`routes`:[{`src`:`a`,`dst`:`b`,`links`:[]},{`src`:`a`,`dst`:`b`,`links`:[]}]," GOOD_FLOW,
     "routes[1]"},
    {HOSTS GOOD_LINK ROUTE "`n`:0}", "flows"},
    {HOSTS GOOD_LINK ROUTE "`flows`:[]}", "flows"},
    {HOSTS GOOD_LINK ROUTE ONE("4"), "flows[0]"},
    {HOSTS GOOD_LINK ROUTE ONE(FLOW("z", "b", "1", "0")), "flows[0].src"},
    {HOSTS GOOD_LINK ROUTE ONE(FLOW("a", "a", "1", "0")), "flows[0].dst"},
    {HOSTS GOOD_LINK ROUTE ONE(FLOW("b", "a", "1", "0")), "flows[0]"},
    {HOSTS GOOD_LINK ROUTE ONE(FLOW("a", "b", "-1", "0")), "flows[0].bytes"},
    {HOSTS GOOD_LINK ROUTE ONE(FLOW("a", "b", "1.5", "0")), "flows[0].bytes"},
    {HOSTS GOOD_LINK ROUTE ONE(FLOW("a", "b", "1e17", "0")), "flows[0].bytes"},
    {HOSTS GOOD_LINK ROUTE ONE(FLOW("a", "b", "true", "0")), "flows[0].bytes"},
    {HOSTS GOOD_LINK ROUTE ONE(FLOW("a", "b", "1", "-1")), "flows[0].start"},
    {HOSTS GOOD_LINK ROUTE ONE(FLOW("a", "b", "1", "1e300")), "flows[0].start"},
    {HOSTS GOOD_LINK ROUTE ONE("{`src`:`a`,`dst`:`b`,`start`:0}"), "bytes"},
    {HOSTS GOOD_LINK ROUTE GOOD_FLOW "x", "case:1"},
};

HEC_TEST_ROWS(bad_input, bad) {
  hec_flows flows = {.n_flows = 77};
  ck_assert_msg(hec_flows_parse(hec_test_quoted(bad[_i].text), strlen(bad[_i].text), "case", &arena, &flows) ==
                    HEC_BAD_INPUT,
                "accepted: %s", bad[_i].text);
  ck_assert_msg(strstr(hec_last_error(), bad[_i].where) != NULL, "%s: does not name %s", hec_last_error(),
                bad[_i].where);
  ck_assert_msg(strncmp(hec_last_error(), "case:1", 6) == 0, "%s", hec_last_error());
  ck_assert_int_eq(flows.n_flows, 77); /* written only on success */
}

/* A case cut anywhere is an error, never a crash and never a smaller case. */
HEC_TEST(truncated_input) {
  static const char text[] = HOSTS GOOD_LINK ROUTE GOOD_FLOW;
  hec_flows flows;
  for (size_t n = 0; n < sizeof text - 1; n++) {
    ck_assert_int_eq(hec_flows_parse(text, n, "case", &arena, &flows), HEC_BAD_INPUT);
  }
  ck_ok(hec_flows_parse(text, sizeof text - 1, "case", &arena, &flows));
}

/* ---- the command ---- */

/* Runs `hecate-sim flows` with the words; stdout in `out`, stderr in `errors` (both cut to 4095 bytes). */
static int command(int argc, char **argv, char out[4096], char errors[4096]) {
  FILE *files[2] = {tmpfile(), tmpfile()};
  int saved[2];
  for (int i = 0; i < 2; i++) {
    ck_assert_ptr_nonnull(files[i]);
    saved[i] = dup(i + 1);
    (void)fflush(i == 0 ? stdout : stderr);
    ck_assert_int_ge(dup2(fileno(files[i]), i + 1), 0);
  }
  int code = hec_flows_command(argc, argv);
  for (int i = 0; i < 2; i++) {
    (void)fflush(i == 0 ? stdout : stderr);
    ck_assert_int_ge(dup2(saved[i], i + 1), 0);
    (void)close(saved[i]);
    rewind(files[i]);
    char *to = i == 0 ? out : errors;
    to[fread(to, 1, 4095, files[i])] = '\0';
    (void)fclose(files[i]);
  }
  return code;
}

HEC_TEST(command_line) {
  char out[4096], errors[4096], path[1024];
  (void)snprintf(path, sizeof path, "%s/tests/sim/cases/incast.json", HEC_SOURCE_DIR);
  ck_assert_int_eq(command(2, (char *[]){"flows", path, NULL}, out, errors), 0);
  ck_assert_ptr_nonnull(strstr(out, "makespan 1 ms"));
  ck_assert_ptr_nonnull(strstr(out, "h4 -> h0"));
  ck_assert_ptr_nonnull(strstr(out, "down0"));
  ck_assert_ptr_nonnull(strstr(out, "100.0 %"));
  ck_assert_str_eq(errors, "");
  ck_assert_int_eq(command(5, (char *[]){"flows", "--law", "alpha_beta", path, "--json", NULL}, out, errors), 0);
  ck_assert_int_eq(out[0], '{');
  ck_assert_ptr_nonnull(strstr(out, "alpha_beta"));
  ck_assert_str_eq(errors, "");
  ck_assert_int_eq(command(2, (char *[]){"flows", "--help", NULL}, out, errors), 0);
  ck_assert_ptr_nonnull(strstr(out, "--law"));
}

HEC_TEST(command_line_errors) {
  char out[4096], errors[4096], path[1024];
  (void)snprintf(path, sizeof path, "%s/tests/sim/cases/incast.json", HEC_SOURCE_DIR);
  struct {
    char *words[5];
    const char *says;
  } wrong[] = {{{"flows"}, "case file"},
               {{"flows", path, "--law"}, "--law"},
               {{"flows", path, "--law=magic"}, "magic"},
               {{"flows", path, "--fast"}, "--fast"},
               {{"flows", path, path}, "unexpected argument"},
               {{"flows", "/nonexistent.json"}, "/nonexistent.json"},
               {{"flows", HEC_SOURCE_DIR "/tests"}, "tests"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    int n = 0;
    while (wrong[i].words[n])
      n++;
    ck_assert_int_eq(command(n, wrong[i].words, out, errors), 2);
    ck_assert_str_eq(out, "");
    ck_assert_msg(strstr(errors, wrong[i].says) != NULL, "%s", errors);
    ck_assert_ptr_eq(strchr(errors, '\n'), errors + strlen(errors) - 1); /* one line */
  }
}
