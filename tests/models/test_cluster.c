/* Clusters: the one-line and the JSON form, routes on every tier, overrides, limits and messages. */
#include "models/cluster.h"
#include "models/moe.h"
#include "tests/support/test.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

HEC_TEST_ARENA(arena)
static hec_cluster c;

static void load_line(const char *line) {
  ck_ok(hec_cluster_load(line, &arena, &c));
}

static void ck_error(const char *part) {
  ck_assert_msg(strstr(hec_last_error(), part) != NULL, "expected \"%s\" in \"%s\"", part, hec_last_error());
}

HEC_TEST(line_values) {
  load_line(
      "  2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G hbm=1.5T nics=2 eff=0.5 nic_eff=0.9 nvlink_eff=0.8 tile=64 "
      "sm=0.1 a=1us c=2ms launch=3ns plan=4us@5ns slow=3:0.5 slow=7:0.25");
  ck_assert(c.n_nodes == 2 && c.devices_per_node == 4 && c.n_devices == 8 && c.nics == 2 && !c.pxn &&
            !c.nic_through_port);
  const hec_device *d = &c.devices[0];
  ck_assert(d->flops == 312e12 && d->flops_efficiency == 0.5 && d->hbm_bandwidth == 1.5e12 && d->memory_bytes == 40e9);
  ck_assert(d->gemm_tile == 64 && d->comm_share == 0.1 && d->speed == 1);
  ck_assert_double_eq_tol(d->gemm_a_s, 1e-6, 1e-18);
  ck_assert_double_eq_tol(d->gemm_c_s, 2e-3, 1e-15);
  ck_assert_double_eq_tol(d->launch_s, 3e-9, 1e-20);
  ck_assert_double_eq_tol(c.plan_a_s, 4e-6, 1e-18);
  ck_assert_double_eq_tol(c.plan_b_s, 5e-9, 1e-20);
  ck_assert(c.devices[3].speed == 0.5 && c.devices[7].speed == 0.25 && c.devices[6].speed == 1);
  ck_assert_int_eq(c.n_links, 2 * 8 + 2 * 4);
  ck_assert(c.links[0].nominal == 300e9 && c.links[0].bandwidth == 240e9 && c.links[0].latency_ps == 2000000);
  ck_assert(c.links[16].kind == HEC_LINK_NIC_OUT && c.links[16].nominal == 50e9 && c.links[16].bandwidth == 45e9);
  ck_assert(c.links[18].node == 1 && c.links[18].device == -1 && c.links[20].kind == HEC_LINK_NIC_IN);
  ck_assert(hec_cluster_node_bandwidth(&c, true) == 100e9 && hec_cluster_node_bandwidth(&c, false) == 90e9);
  ck_assert(hec_cluster_latency_ps(&c, 0, 1) == 2000000 && hec_cluster_latency_ps(&c, 0, 4) == 5000000);
  ck_assert_int_eq(hec_cluster_node(&c, 5), 1);
  load_line("1x2 nvlink=7G flops=1 mem=1");
  ck_assert(hec_cluster_node_bandwidth(&c, false) == 7e9 && c.n_links == 4);
  load_line("3x1 nic=7G@1us flops=1 mem=1");
  ck_assert(c.links[0].bandwidth == 7e9 && c.links[0].latency_ps == 0);
  load_line("1x1 nvlink=7G flops=1 mem=1");
  ck_assert_int_eq(c.route_at[1], 0);
}

/* A line that is too long for a name ends with "..." after a whole word. */
HEC_TEST(line_names) {
  load_line("1x4 nvlink=1G@50us flops=10G eff=1 hbm=10G mem=4G tile=8");
  ck_assert_str_eq(c.name, "1x4 nvlink=1G@50us flops=10G eff=1 hbm=10G mem=4G tile=8");
  load_line("1x4 nvlink=1G@50us flops=10G eff=1 hbm=10G mem=4G tile=8 a=5us c=5us launch=5us");
  ck_assert_str_eq(c.name, "1x4 nvlink=1G@50us flops=10G eff=1 hbm=10G mem=4G tile=8 ...");
  load_line("1x4 nvlink=1G@50us flops=10G eff=1 hbm=10G mem=4G tile=8 a=5us "); /* 63 bytes, which fit */
  ck_assert_str_eq(c.name, "1x4 nvlink=1G@50us flops=10G eff=1 hbm=10G mem=4G tile=8 a=5us ");
  load_line("1x4                                                             nvlink=1G flops=10G mem=4G");
  ck_assert_uint_le(strlen(c.name), sizeof c.name - 1);
  ck_assert_str_eq(c.name + strlen(c.name) - 4, " ...");
}

static const struct {
  const char *line, *error;
} bad_lines[] = {
    {"", "column 1: expected NODESxDEVICES"},
    {"4x", "column 1: expected NODESxDEVICES"},
    {"x8 flops=1", "column 1:"},
    {"0x8 flops=1", "column 1:"},
    {"1000000000x8 flops=1", "column 1:"},
    {"4096x2 flops=1", "at most 4096 devices"},
    {"4x1.5 flops=1", "column 1:"},
    {"4x8 nvlink", "column 5: expected KEY=VALUE"},
    {"4x8 gpu=", "expected a device"},
    {"4x8 speed=1", "column 5: expected KEY=VALUE"},
    {"4x8 flops=1T flops=2T", "column 14: expected every key once"},
    {"4x8 flops=", "column 5: expected flops= with a number"},
    {"4x8 flops=-1", "column 5: expected flops="},
    {"4x8 flops=nan", "column 5: expected flops="},
    {"4x8 flops=inf", "column 5: expected flops="},
    {"4x8 flops=0x10", "column 5: expected flops="},
    {"4x8 flops=1e308", "column 5: expected flops="},
    {"4x8 flops=1e-3042949672950", "column 5: expected flops="},
    {"4x8 flops=1T nvlink=1G@1e-3042949672950us", "column 14: expected nvlink="},
    {"4x8 flops=1TT", "column 5: expected flops="},
    {"4x8 nvlink=1G@5", "column 5: expected nvlink="},
    {"4x8 nvlink=1G@-5us", "column 5: expected nvlink="},
    {"4x8 nvlink=1G@11s", "column 5: expected nvlink="},
    {"4x8 nvlink=0", "column 5: expected nvlink="},
    {"4x8 eff=0", "column 5: expected eff="},
    {"4x8 eff=1.5", "column 5: expected eff="},
    {"4x8 nics=1.5", "column 5: expected nics= with an integer"},
    {"4x8 pxn=2", "column 5: expected pxn= with 0 or 1"},
    {"4x8 tile=0", "column 5: expected tile="},
    {"4x8 slow=1", "column 5: expected slow= with DEVICE:SPEED"},
    {"4x8 flops=1 mem=1 nvlink=1 nic=1 slow=32:0.5", "slow: expected a device from 0 to 31, found 32"},
    {"4x8 nvlink=1 nic=1 flops=1", "no mem="},
    {"4x8 nvlink=1 nic=1 mem=1", "no flops="},
    {"4x8 flops=1 mem=1 nic=1", "nvlink: expected a bandwidth"},
    {"4x8 flops=1 mem=1 nvlink=1", "nic: expected a bandwidth"},
    {"1x1 flops=1 mem=1", "nvlink: expected a bandwidth"},
    {"4x8 flops=1 mem=1 nvlink=1 nic=1 nics=9", "nics: expected 1 to devices per node (8), found 9"},
    {"4x8 flops=1 mem=1 nvlink=1 nic=1 leaf=2", "leaf: expected nodes per leaf and an uplink"},
    {"4x8 flops=1 mem=1 nvlink=1 nic=1 uplink=2", "leaf: expected nodes per leaf and an uplink"},
    {"4x8 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
     "100"},
};

HEC_TEST_ROWS(line_errors, bad_lines) {
  c.n_nodes = 77;
  ck_refused(hec_cluster_parse_line(bad_lines[_i].line, &arena, &c), bad_lines[_i].error);
  ck_assert_int_eq(c.n_nodes, 77);
}

/* A route as text: "out0 in3 nic-out2 nic-in5 up1 down0", sides after a slash. */
static const char *route_text(int32_t s, int32_t d) {
  static const char *const names[] = {"out", "in", "nic-out", "nic-in", "up", "down"};
  static char text[256];
  const int32_t *route;
  int32_t n = hec_cluster_route(&c, s, d, &route);
  size_t at = 0;
  text[0] = '\0';
  ck_assert(n <= HEC_ROUTE_MAX);
  for (int32_t i = 0; i < n; i++) {
    int32_t first = 0;
    while (c.links[first].kind != c.links[route[i]].kind)
      first++;
    at += (size_t)snprintf(text + at, sizeof text - at, "%s%s%d/%d", i ? " " : "", names[c.links[route[i]].kind],
                           route[i] - first, c.route_side[route - c.route_link + i]);
  }
  return text;
}

HEC_TEST(routes) {
  const char *rest = " nvlink=1G nic=1G flops=1 mem=1 nics=4 leaf=2 uplink=1G";
  char line[160];
  load_line("2x4 nvlink=1G nic=1G flops=1 mem=1");
  ck_assert_str_eq(route_text(1, 3), "out1/1 in3/2");
  ck_assert_str_eq(route_text(1, 6), "nic-out0/1 nic-in1/2");
  ck_assert_str_eq(route_text(2, 2), "");
  load_line("2x4 nvlink=1G nic=1G flops=1 mem=1 nics=2 through=1");
  ck_assert_str_eq(route_text(1, 6), "out1/1 nic-out0/1 nic-in3/2 in6/2");
  /* rails with leaves of two nodes: the same rail in a group stays below the leaf */
  (void)snprintf(line, sizeof line, "4x4%s", rest);
  load_line(line);
  ck_assert_int_eq(c.n_links, 2 * 16 + 2 * 16 + 2 * 8);
  ck_assert_str_eq(route_text(1, 5), "nic-out1/1 nic-in5/2");
  ck_assert_str_eq(route_text(1, 6), "nic-out1/1 up1/3 down2/3 nic-in6/2");
  ck_assert_str_eq(route_text(1, 9), "nic-out1/1 up1/3 down5/3 nic-in9/2");
  (void)snprintf(line, sizeof line, "4x4%s pxn=1", rest);
  load_line(line);
  ck_assert_str_eq(route_text(1, 5), "nic-out1/1 nic-in5/2");
  ck_assert_str_eq(route_text(1, 6), "out1/1 in2/1 nic-out2/1 nic-in6/2");
  ck_assert_str_eq(route_text(1, 15), "out1/1 in3/1 nic-out3/1 up3/3 down7/3 nic-in15/2");
  (void)snprintf(line, sizeof line, "4x4%s pxn=1 through=1", rest);
  load_line(line);
  ck_assert_str_eq(route_text(1, 15), "out1/1 in3/1 nic-out3/1 up3/3 down7/3 nic-in15/2 in15/2");
  /* one leaf for a group of nodes when NICs are shared */
  load_line("5x4 nvlink=1G nic=1G flops=1 mem=1 leaf=2 uplink=1G");
  ck_assert_int_eq(c.n_links, 2 * 20 + 2 * 5 + 2 * 3);
  ck_assert_str_eq(route_text(0, 7), "nic-out0/1 nic-in1/2");
  ck_assert_str_eq(route_text(0, 19), "nic-out0/1 up0/3 down2/3 nic-in4/2");
}

#define JSON_BASE                                                                                                      \
  "\"nodes\": 2, \"devices_per_node\": 2, \"nics\": 2,\n\"nvlink\": {\"bandwidth\": 100e9, \"latency\": 2e-6},\n"      \
  "\"nic\": {\"bandwidth\": 10e9, \"efficiency\": 0.5},\n\"device\": {\"flops\": 1e12, \"memory_bytes\": 1e9"

HEC_TEST(json_values) {
  ck_ok(hec_cluster_parse_json(
      "{" JSON_BASE ", \"hbm_bandwidth\": 1000e9, \"hbm_efficiency\": 0.5},\n"
      "\"leaf\": {\"nodes_per_leaf\": 1, \"bandwidth\": 3e9, \"latency\": 1e-6},\n\"plan\": {\"a_s\": 1e-3},\n"
      "\"devices\": [{\"device\": 3, \"speed\": 0.5, \"memory_bytes\": 2e9}],\n"
      "\"links\": [{\"kind\": \"nic_out\", \"node\": 1, \"nic\": 1, \"bandwidth\": 4e9},\n"
      "{\"kind\": \"port_in\", \"device\": 2, \"efficiency\": 0.25},\n"
      "{\"kind\": \"leaf_down\", \"leaf\": 3, \"latency\": 5e-6}]}",
      "folder/mine.json", &arena, &c));
  ck_assert_str_eq(c.name, "mine.json");
  ck_assert(c.devices[0].hbm_bandwidth == 500e9 && c.devices[3].hbm_bandwidth == 500e9);
  ck_assert(c.devices[3].speed == 0.5 && c.devices[3].memory_bytes == 2e9 && c.devices[2].memory_bytes == 1e9);
  ck_assert(c.plan_a_s == 1e-3 && c.plan_b_s == 1e-9);
  const hec_link *nic_out = c.links + 8, *port_in = c.links + 4, *leaf_down = c.links + 8 + 8 + 4;
  ck_assert(nic_out[2].bandwidth == 5e9 && nic_out[3].nominal == 4e9 && nic_out[3].bandwidth == 2e9);
  ck_assert(port_in[1].bandwidth == 100e9 && port_in[2].bandwidth == 25e9 && port_in[2].nominal == 100e9);
  ck_assert(leaf_down[2].latency_ps == 0 && leaf_down[3].latency_ps == 5000000 &&
            leaf_down[3].kind == HEC_LINK_LEAF_DOWN);
  ck_assert(hec_cluster_node_bandwidth(&c, false) == 7e9); /* node 1: 5 + 2 */
}

#define CURVE_JSON(list) "{" JSON_BASE "},\n\"measured\": " list "}"
#define POINTS_JSON(points)                                                                                            \
  CURVE_JSON("[{\"kind\": \"reduce\", \"points\": [[1, 0]]}, {\"kind\": \"permute\", \"points\": " points "}]")

static const struct {
  const char *text, *error;
} bad_json[] = {
    {"[1]", "c.json:1: the document: expected an object"},
    {"{`nodes`: 0}", "nodes: expected an integer from 1 to 4096, found 0"},
    {"{`nodes`: 1e9}", "nodes: expected an integer from 1 to 4096, found 1e9"},
    {"{`nodes`: 1}", "expected a member `devices_per_node`"},
    {"{`nodes`: 64, `devices_per_node`: 65, `device`: {`flops`: 1, `memory_bytes`: 1}}", "found 64 x 65"},
    {"{`nodes`: 1, `devices_per_node`: 1}", "expected a member `device`"},
    {"{`nodes`: 1, `devices_per_node`: 1, `device`: {`flops`: 1e308}}", "device.flops: expected a number from 1"},
    {"{" JSON_BASE "},\n`extra`: 1}", "c.json:5: extra: expected a known field"},
    {"{" JSON_BASE ",\n`gemm_tile`: 0}}", "c.json:5: device.gemm_tile: expected an integer from 1"},
    {"{" JSON_BASE ",\n`hbm_efficiency`: 0.5}}", "c.json:5: device.hbm_efficiency: expected hbm_bandwidth beside"},
    {"{" JSON_BASE ",\n`comm_share`: 1}}", "c.json:5: device.comm_share: expected a number from 0 to 0.99"},
    {"{" JSON_BASE "},\n`leaf`: {`bandwidth`: 1}}", "c.json:5: leaf: expected a member `nodes_per_leaf`"},
    {"{" JSON_BASE "},\n`leaf`: {`nodes_per_leaf`: 1, `bandwidth`: 1, `efficiency_by_bytes`: 1}}",
     "c.json:5: leaf.efficiency_by_bytes: expected an array of 1 to 32 pairs"},
    {"{" JSON_BASE "},\n`leaf`: {`nodes_per_leaf`: 1, `bandwidth`: 1, `efficiency_by_bytes`: [[1, 0.5, 2]]}}",
     "leaf.efficiency_by_bytes[0]: expected a pair of numbers"},
    {"{" JSON_BASE "},\n`leaf`: {`nodes_per_leaf`: 1, `bandwidth`: 1, `efficiency_by_bytes`: [[2, 1], [2, 1]]}}",
     "leaf.efficiency_by_bytes[1][0]: expected bytes above 0, ascending"},
    {"{" JSON_BASE "},\n`leaf`: {`nodes_per_leaf`: 1, `bandwidth`: 1, `efficiency_by_bytes`: [[2, 1.5]]}}",
     "leaf.efficiency_by_bytes[0][1]: expected a share from 0.001 to 1"},
    {"{" JSON_BASE "},\n`leaf`: {`nodes_per_leaf`: 1, `bandwidth`: 1, `efficiency_by_bytes`: [[2, 0.1], [4, 0.3]]}}",
     "leaf.efficiency_by_bytes[1][1]: expected bytes / share rising"},
    {"{" JSON_BASE "},\n`devices`: {}}", "c.json:5: devices: expected an array"},
    {"{" JSON_BASE "},\n`devices`: [1]}", "c.json:5: devices[0]: expected an object, found 1"},
    {"{" JSON_BASE "},\n`devices`: [{`device`: 4}]}", "c.json:5: devices[0].device: expected an integer from 0 to 3"},
    {"{" JSON_BASE "},\n`links`: [{`kind`: `nic`}]}", "c.json:5: links[0].kind: expected port_out"},
    {"{" JSON_BASE "},\n`links`: [{`kind`: `leaf_up`, `leaf`: 0}]}", "links[0]: expected a kind of link that this"},
    {"{" JSON_BASE "},\n`links`: [{`kind`: `nic_in`, `node`: 2}]}", "links[0].node: expected an integer from 0 to 1"},
    {"{" JSON_BASE "},\n`links`: [{`kind`: `nic_in`, `node`: 0,\n`nic`: 2}]}", "c.json:6: links[0].nic:"},
    {"{" JSON_BASE "},\n`links`: [{`kind`: `port_in`, `device`: 0,\n`bandwidth`: -1}]}",
     "c.json:6: links[0].bandwidth: expected a number from 1 to"},
    {CURVE_JSON("1"), "c.json:5: measured: expected an array of at most 4096 curves"},
    {CURVE_JSON("[1]"), "c.json:5: measured[0]: expected an object, found 1"},
    {CURVE_JSON("[{}]"), "c.json:5: measured[0]: expected a member `kind`"},
    {CURVE_JSON("[{`kind`: `cooking`}]"), "measured[0].kind: expected a kind of models/curve.h"},
    {CURVE_JSON("[{`kind`: `expert`}]"), "measured[0]: expected a member `flops_per_row`"},
    {CURVE_JSON("[{`kind`: `expert`, `flops_per_row`: 0}]"), "measured[0].flops_per_row: expected a number from 1"},
    {CURVE_JSON("[{`kind`: `counts`}]"), "measured[0]: expected a member `ranks`"},
    {CURVE_JSON("[{`kind`: `all-reduce`, `ranks`: 0}]"), "measured[0].ranks: expected an integer from 1 to 4096"},
    {CURVE_JSON("[{`kind`: `reduce`, `backward`: 1}]"), "measured[0].backward: expected"},
    {CURVE_JSON("[{`kind`: `reduce`, `speed`: 1}]"), "measured[0].speed: expected a known field"},
    {CURVE_JSON("[{`kind`: `reduce`}]"), "measured[0]: expected `points`: an array of 1 to 64 pairs"},
    {POINTS_JSON("{}"), "measured[1].points: expected `points`: an array of 1 to 64 pairs"},
    {POINTS_JSON("[]"), "measured[1].points: expected `points`: an array of 1 to 64 pairs"},
    {POINTS_JSON("[1]"), "measured[1].points[0]: expected a pair of numbers"},
    {POINTS_JSON("[[]]"), "measured[1].points[0]: expected a pair of numbers"},
    {POINTS_JSON("[[1]]"), "measured[1].points[0]: expected a pair of numbers"},
    {POINTS_JSON("[[1, 1, 1]]"), "measured[1].points[0]: expected a pair of numbers"},
    {POINTS_JSON("[[1, `1`]]"), "measured[1].points[0]: expected a pair of numbers"},
    {POINTS_JSON("[[0, 1]]"), "measured[1].points[0][0]: expected sizes above 0, ascending"},
    {POINTS_JSON("[[-1, 1]]"), "measured[1].points[0][0]: expected sizes above 0, ascending"},
    {POINTS_JSON("[[1e19, 1]]"), "measured[1].points[0][0]: expected sizes above 0, ascending, at most 1e18"},
    {POINTS_JSON("[[1, 1], [1, 2]]"), "measured[1].points[1][0]: expected sizes above 0, ascending"},
    {POINTS_JSON("[[1, -1]]"), "measured[1].points[0][1]: expected seconds from 0 to 1e6, not decreasing"},
    {POINTS_JSON("[[1, 1e7]]"), "measured[1].points[0][1]: expected seconds from 0 to 1e6"},
    {POINTS_JSON("[[1, 2], [2, 1]]"), "measured[1].points[1][1]: expected seconds from 0 to 1e6, not decreasing"},
};

/* 63 bytes at most, and no half of a character; also of a file's name. */
HEC_TEST(json_long_names) {
  char euros[3 * 30 + 1] = "", text[512], origin[160];
  for (int i = 0; i < 30; i++)
    memcpy(euros + 3 * (size_t)i, "\xe2\x82\xac", 4);
  for (int ahead = 0; ahead < 3; ahead++) {
    for (int of_file = 0; of_file < 2; of_file++) {
      (void)snprintf(origin, sizeof origin, "folder/%.*s%s.json", ahead, "ab", euros);
      (void)snprintf(text, sizeof text, "{" JSON_BASE "}%s%.*s%s%s}", of_file ? "" : ",\"name\":\"",
                     of_file ? 0 : ahead, "ab", of_file ? "" : euros, of_file ? "" : "\"");
      ck_ok(hec_cluster_parse_json(text, origin, &arena, &c));
      ck_assert_uint_eq(strlen(c.name), (size_t)(ahead + (63 - ahead) / 3 * 3));
      ck_assert(strncmp(c.name + ahead, euros, strlen(c.name) - (size_t)ahead) == 0);
    }
  }
}

HEC_TEST_ROWS(json_errors, bad_json) {
  c.n_nodes = 77;
  ck_refused(hec_cluster_parse_json(hec_test_quoted(bad_json[_i].text), "c.json", &arena, &c),
             hec_test_quoted(bad_json[_i].error));
  ck_assert_int_eq(c.n_nodes, 77);
}

/* The longest curve, one point more than it, none at all. */
HEC_TEST(json_curve_length) {
  for (int32_t n = 64; n <= 65; n++) {
    HEC_SCOPED(hec_text) text = {0};
    hec_text_add(&text, "{" JSON_BASE "},\n\"measured\": [{\"kind\": \"gate\", \"flops_per_row\": 1, \"points\": [");
    for (int32_t i = 1; i <= n; i++)
      hec_text_printf(&text, "%s[%d, %d]", i > 1 ? "," : "", (int)i, (int)i);
    hec_text_add(&text, "]}]}");
    hec_status status = hec_cluster_parse_json(text.data, "c.json", &arena, &c);
    ck_assert(status == (n == 64 ? HEC_OK : HEC_BAD_INPUT));
  }
  ck_error("c.json:5: measured[0].points: expected \"points\": an array of 1 to 64 pairs");
  ck_assert(c.measured.n == 1 && c.measured.curves[0].n == 64 && c.devices[3].measured->n == 1);
  ck_ok(hec_cluster_parse_json(CURVE_JSON("[]"), "c.json", &arena, &c));
  ck_assert_int_eq(c.measured.n, 0);
}

HEC_TEST(look_up) {
  char path[] = "/tmp/hecate-cluster-XXXXXX";
  ck_refused(hec_cluster_load("nowhere", &arena, &c), "expected a preset of hecate-sim `list`, a line");
  ck_assert(hec_cluster_load("/tmp", &arena, &c) == HEC_BAD_INPUT);
  ck_refused(hec_cluster_load("4x8", &arena, &c), "no flops=");
  int file = mkstemp(path);
  ck_assert(write(file, "{" JSON_BASE "}}", strlen("{" JSON_BASE "}}")) > 0);
  close(file);
  load_line(path);
  ck_assert_int_eq(c.n_devices, 4);
  unlink(path);
  load_line("p3dn-4x8");
  HEC_SCOPED(hec_text) text = {0};
  hec_cluster_describe(&c, &text);
  ck_assert_str_eq(
      text.data,
      "p3dn-4x8: 4 nodes x 8 NVIDIA V100 SXM2 32 GB, 125 TFLOP/s x 0.7, 32 GB at 697.9 GB/s, port 108.7 GB/s, "
      "1 NIC a node, 8.975 GB/s together");
  load_line("1x4 nvlink=300G flops=312T eff=0.5 mem=40G");
  text.length = 0;
  hec_cluster_describe(&c, &text);
  ck_assert_str_eq(text.data,
                   "1x4 nvlink=300G flops=312T eff=0.5 mem=40G: 1 node x 4 devices, 312 TFLOP/s x 0.5, 40 GB at "
                   "1555 GB/s, port 300 GB/s");
}

/* A file that may not be read is there: "expected a preset" would send people looking for a typing error. */
HEC_TEST(unreadable) {
  char path[] = "/tmp/hecate-cluster-XXXXXX";
  int file = mkstemp(path);
  ck_assert(file >= 0 && fchmod(file, 0) == 0);
  (void)close(file);
  bool unprivileged = geteuid() != 0 || seteuid(65534) == 0;
  hec_moe moe;
  ck_assert(hec_cluster_load(path, &arena, &c) == HEC_BAD_INPUT);
  if (unprivileged)
    ck_error("cannot be opened: Permission denied");
  ck_assert(hec_moe_load(path, &moe) == HEC_BAD_INPUT);
  if (unprivileged)
    ck_error("cannot be opened: Permission denied");
  (void)!seteuid(getuid());
  (void)unlink(path);
}

/* Large clusters build; memory is a few dozen bytes a pair; the last device has its routes. */
HEC_TEST(large) {
  static const char *const lines[] = {
      "128x8 nvlink=1G nic=1G flops=1 mem=1",
      "128x8 nvlink=1G nic=1G flops=1 mem=1 nics=8 leaf=16 uplink=1G pxn=1 through=1",
      "1x4096 nvlink=1G flops=1 mem=1",
  };
  static const int32_t devices[] = {1024, 1024, 4096}, hops[] = {2, 7, 2};
  for (int i = 0; i < 3; i++) {
    const int32_t *link;
    load_line(lines[i]);
    ck_assert_int_eq(c.n_devices, devices[i]);
    ck_assert_int_eq(hec_cluster_route(&c, 0, c.n_devices - 1, &link), hops[i]);
    ck_assert_int_eq(hec_cluster_route(&c, c.n_devices - 1, 0, &link), hops[i]);
    ck_assert(arena.used_bytes < (size_t)c.n_devices * (size_t)c.n_devices * 48);
    hec_arena_free(&arena);
  }
}

/* Links in bits and bytes a second; what is faster than any NIC is doubted. */
HEC_TEST(units_of_links) {
  static const struct {
    const char *nic;
    double bytes;
    bool doubted;
  } cases[] = {{"50G", 50e9, false},   {"50GB", 50e9, false},        {"50GB/s", 50e9, false},
               {"400Gb", 50e9, false}, {"400Gbps@2us", 50e9, false}, {"800Gb/s", 100e9, false},
               {"400G", 400e9, true},  {"1600Gb", 200e9, true}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    hec_cluster cluster;
    HEC_SCOPED(hec_text) words = {0};
    int32_t first;
    const char *line = hec_arena_printf(&arena, "2x4 gpu=h100 nics=4 nic=%s", cases[i].nic);
    ck_ok(hec_cluster_parse_line(line, &arena, &cluster));
    ck_assert_int_gt(hec_cluster_kind(&cluster, HEC_LINK_NIC_OUT, &first), 0);
    ck_near(cluster.links[first].nominal, cases[i].bytes);
    hec_cluster_doubt(&cluster, line, &words);
    ck_assert_msg((words.length > 0) == cases[i].doubted, "%s: %s", cases[i].nic, words.data ? words.data : "no doubt");
  }
  hec_cluster none;
  ck_refused(hec_cluster_parse_line("2x4 gpu=h100 nic=400Gbit", &arena, &none), "found \"nic=400Gbit\"");
  ck_refused(hec_cluster_parse_line("2x4 gpu=h100sxm", &arena, &none), "(did you mean \"h100\"?)");
}
