/* --slow and --skew: what they change, what they say, and every message. */
#include "models/straggler.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)
static hec_cluster c;
static hec_text said;

#define LINE "2x4 nvlink=100G@2us nic=10G@5us nics=2 nic_eff=0.5 flops=1T mem=1G slow=6:0.5"

static void setup(void) {
  ck_ok(hec_cluster_load(LINE, &arena, &c));
  hec_text_free(&said);
  said = (hec_text){0};
}

static void apply(const char *slow, const char *skew) {
  setup();
  ck_ok(hec_stragglers_apply(&(hec_stragglers){slow, skew}, 8, &c, &arena, &c, &said));
}

HEC_TEST(ranks) {
  apply("rank=3:0.8,rank=6:0.5", NULL);
  for (int32_t d = 0; d < 8; d++)
    ck_assert(c.devices[d].speed == (d == 3 ? 0.8 : d == 6 ? 0.25 : 1) && c.devices[d].skew_s == 0);
  ck_assert_str_eq(said.data, "rank 3 computes at 0.8 of its speed; rank 6 computes at 0.5 of its speed, "
                              "which is 0.5 in the cluster: at 0.25");
  apply(NULL, "rank=0:500us,rank=7:1.5ms,rank=2:0");
  ck_assert(c.devices[0].skew_s == 500 * 1e-6 && c.devices[7].skew_s == 1.5 * 1e-3 && c.devices[2].skew_s == 0);
  ck_assert_str_eq(said.data, "rank 0 begins 500 us late; rank 7 begins 1500 us late; rank 2 begins 0 us late");
  apply(NULL, NULL);
  ck_assert(said.length == 0);
}

/* Links stand port out [8], port in [8], NIC out [2 * 2], NIC in [2 * 2]. Nothing else changes. */
HEC_TEST(links) {
  apply("link=nic_out:node1:0.5,link=nic_in:node0.nic1:0.25,link=port_in:device5:0.1", NULL);
  hec_cluster plain;
  ck_ok(hec_cluster_load(LINE, &arena, &plain));
  for (int32_t l = 0; l < c.n_links; l++) {
    double factor = l == 16 + 2 ? 0.5 : l == 20 + 1 ? 0.25 : l == 8 + 5 ? 0.1 : 1;
    ck_assert(c.links[l].bandwidth == plain.links[l].bandwidth * factor &&
              c.links[l].nominal == plain.links[l].nominal);
  }
  ck_assert_str_eq(said.data,
                   "link nic_out:node1 carries 0.5 of its bandwidth; link nic_in:node0.nic1 carries 0.25 of its "
                   "bandwidth; link port_in:device5 carries 0.1 of its bandwidth");
}

/* The option and the file say the same. */
HEC_TEST(as_in_json) {
  static const char json[] =
      "{\"nodes\": 2, \"devices_per_node\": 4, \"nics\": 2, \"nvlink\": {\"bandwidth\": 1e11}, \"nic\": "
      "{\"bandwidth\": "
      "1e10}, \"device\": {\"flops\": 1e12, \"memory_bytes\": 1e9}, \"devices\": [{\"device\": 3, \"speed\": 0.8, "
      "\"skew_s\": 5e-4}], \"links\": [{\"kind\": \"nic_out\", \"node\": 1, \"nic\": 1, \"efficiency\": 0.5}]}";
  hec_cluster file;
  ck_ok(hec_cluster_parse_json(json, "c.json", &arena, &file));
  ck_ok(hec_cluster_load("2x4 nvlink=100G nic=10G nics=2 flops=1T mem=1G", &arena, &c));
  const hec_stragglers options = {"rank=3:0.8,link=nic_out:node1.nic1:0.5", "rank=3:500us"};
  ck_ok(hec_stragglers_apply(&options, 8, &c, &arena, &c, &said));
  for (int32_t d = 0; d < 8; d++)
    ck_assert(file.devices[d].speed == c.devices[d].speed && file.devices[d].skew_s == c.devices[d].skew_s);
  for (int32_t l = 0; l < c.n_links; l++)
    ck_assert(file.links[l].bandwidth == c.links[l].bandwidth);
  ck_ok(hec_stragglers_none_late(&c, 3));
  ck_refused(hec_stragglers_none_late(&c, 4), "device 3: skew_s");
}

static const struct {
  const char *slow, *skew, *message;
} wrong[] = {
    {"", NULL, "`slow`: expected rank=RANK:FACTOR or link=KIND:PLACE:FACTOR, found \"\""},
    {"3:0.8", NULL, "`slow`: expected rank=RANK:FACTOR or link=KIND:PLACE:FACTOR, found \"3:0.8\""},
    {"rank=8:0.8", NULL, "`slow`: expected a rank from 0 to 7, found \"rank=8:0.8\""},
    {"rank=-1:0.8", NULL, "a rank from 0 to 7"},
    {"rank=99999999999:0.8", NULL, "a rank from 0 to 7"},
    {"rank=3", NULL, "a factor from 1e-06 to 1"},
    {"rank=3:", NULL, "a factor"},
    {"rank=3:0", NULL, "a factor"},
    {"rank=3:1.01", NULL, "a factor"},
    {"rank=3:nan", NULL, "a factor"},
    {"rank=3:0.5x", NULL, "a factor"},
    {"rank=3:0.5 ", NULL, "a factor"},
    {"rank=3:0.5,", NULL, "another one after the last comma"},
    {"rank=3:0.5,,rank=4:0.5", NULL, "rank=RANK:FACTOR"},
    {"rank=3:0.5,rank=3:0.5", NULL, "every rank and link once"},
    {"rank=6:0.000001", NULL, "stays 1e-06"},
    {"link=nic:node0:0.5", NULL, "KIND"},
    {"link=leaf_up:leaf0:0.5", NULL, "a kind of link that this cluster has"},
    {"link=nic_out:node2:0.5", NULL, "node0 to node1 after nic_out, found \"link=nic_out:node2:0.5\""},
    {"link=nic_out:device0:0.5", NULL, "node0 to node1"},
    {"link=port_out:device8:0.5", NULL, "device0 to device7"},
    {"link=nic_out:node1.nic2:0.5", NULL, "nic0 to nic1"},
    {"link=nic_out:node1:2", NULL, "a factor"},
    {"link=nic_out:node1:0.5,link=nic_out:node1.nic0:0.5", NULL, "every rank and link once"},
    {NULL, "", "`skew`: expected rank=RANK:TIME, found \"\""},
    {NULL, "2:500us", "`skew`: expected rank=RANK:TIME"},
    {NULL, "rank=8:500us", "`skew`: expected a rank from 0 to 7"},
    {NULL, "rank=2:500", "`skew`: expected a time from 0 to 10s such as 500us, found \"rank=2:500\""},
    {NULL, "rank=2:-1us", "a time"},
    {NULL, "rank=2:11s", "a time"},
    {NULL, "rank=2:1us,rank=2:1us", "every rank and link once"},
};

HEC_TEST_ROWS(messages, wrong) {
  setup();
  ck_refused(hec_stragglers_apply(&(hec_stragglers){wrong[_i].slow, wrong[_i].skew}, 8, &c, &arena, &c, &said),
             wrong[_i].message);
}

/* A link is one that messages between the ranks cross: here nothing leaves node 0, then nothing leaves rank 0. */
HEC_TEST(uncrossed) {
  static const struct {
    const char *slow;
    int32_t n_ranks;
  } cases[] = {{"link=nic_out:node0:0.5", 4},
               {"link=nic_in:node1:0.5", 4},
               {"link=port_in:device5:0.5", 4},
               {"link=nic_out:node1.nic1:0.5", 6},
               {"link=port_out:device0:0.5", 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    setup();
    const hec_stragglers options = {cases[i].slow, NULL};
    ck_refused(hec_stragglers_apply(&options, cases[i].n_ranks, &c, &arena, &c, &said),
               "a link that messages between ranks 0 to");
    setup();
    ck_ok(hec_stragglers_apply(&options, 8, &c, &arena, &c, &said));
  }
}

HEC_TEST(checked_and_unchanged) {
  setup();
  hec_device device = c.devices[3];
  ck_ok(hec_stragglers_check(&(hec_stragglers){"rank=3:0.5", "rank=3:1us"}, 8, &c));
  ck_assert_double_eq(c.devices[3].speed, device.speed);
  ck_assert_double_eq(c.devices[3].skew_s, device.skew_s);
  ck_assert_int_eq(hec_stragglers_check(&(hec_stragglers){"rank=3:0.5", NULL}, 3, &c), HEC_BAD_INPUT);
  hec_cluster slowed;
  double bandwidth = c.links[16].bandwidth;
  const hec_stragglers both = {"rank=3:0.5,link=nic_out:node0:0.5", "rank=3:1us"},
                       half = {"rank=3:0.5,rank=9:0.5", NULL};
  ck_ok(hec_stragglers_apply(&both, 8, &c, &arena, &slowed, &said));
  ck_assert(slowed.devices[3].speed == 0.5 * device.speed && slowed.links[16].bandwidth == 0.5 * bandwidth);
  ck_assert(c.devices[3].speed == device.speed && c.links[16].bandwidth == bandwidth);
  ck_assert_int_eq(hec_stragglers_apply(&half, 8, &c, &arena, &c, &said), HEC_BAD_INPUT);
  ck_assert_double_eq(c.devices[3].speed, device.speed);
}

HEC_TEST(many) {
  char list[2048] = "";
  for (int i = 0; i < 65; i++)
    (void)snprintf(list + strlen(list), sizeof list - strlen(list), "%srank=%d:0.5", i ? "," : "", i);
  ck_ok(hec_cluster_load("1x80 nvlink=1G flops=1T mem=1G", &arena, &c));
  ck_refused(hec_stragglers_apply(&(hec_stragglers){list, NULL}, 80, &c, &arena, &c, &said), "at most 64");
  *strrchr(list, ',') = '\0';
  ck_ok(hec_cluster_load("1x80 nvlink=1G flops=1T mem=1G", &arena, &c));
  ck_ok(hec_stragglers_apply(&(hec_stragglers){list, NULL}, 80, &c, &arena, &c, &said));
}

static void teardown(void) {
  hec_text_free(&said);
  hec_arena_free(&arena);
}
HEC_TEST_FIXTURE(NULL, teardown)
