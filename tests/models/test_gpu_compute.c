/* Clusters that name a GPU: their compute by its laws, their links by its all-to-all. What is held: a device's numbers come
 * from the file that it names and from nowhere else; shares of links give back what was measured. Experts are priced together;
 * no linear rate, which bounds and planners use, promises more than the laws give. */
#include "models/compute_cost.h"
#include "models/link_cost.h"
#include "models/preset_data.h"
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

HEC_TEST_ARENA(arena)

static hec_cluster load(const char *spec) {
  hec_cluster cluster;
  if (hec_cluster_load(spec, &arena, &cluster) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  return cluster;
}

static hec_moe model(const char *name) {
  hec_moe moe;
  if (hec_moe_load(name, &moe) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  return moe;
}

static void near(double found, double expected, double share) {
  ck_assert_msg(fabs(found - expected) <= share * expected, "expected %.12g, found %.12g", expected, found);
}

/* No preset has constants of its own beside its GPU's. */
HEC_TEST(every_preset_names_a_gpu) {
  int n = 0;
  for (const hec_preset_data *preset = hec_preset_table; preset->name; preset++) {
    if (strncmp(preset->name, "cluster-", 8) != 0)
      continue;
    hec_cluster cluster = load(preset->name + 8);
    const hec_device *device = &cluster.devices[cluster.n_devices - 1];
    ck_assert_msg(device->gpu && device->in_step == HEC_IN_STEP, "%s", preset->name);
    ck_assert(device->flops == device->gpu->gpu.sheet.flops[HEC_LAW_BF16] &&
              device->memory_bytes == device->gpu->gpu.sheet.memory_bytes);
    n++;
  }
  ck_assert_int_eq(n, 13);
}

/* Equal messages inside a node take what the all-to-all law says, at sizes between the points, too; a busy port takes longer. */
HEC_TEST(links_give_back_the_all_to_all) {
  static const char *const specs[] = {"dgx-h100", "a100-80g-4x8", "1x8 gpu=b200", "1x4 gpu=a100", "1x2 gpu=h100"};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    hec_cluster cluster = load(specs[i]);
    int32_t n = cluster.devices_per_node, t = 0;
    hec_transfer list[56];
    HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&cluster, &arena);
    for (double bytes = 600; bytes < 1e9; bytes *= 2.7, t = 0) {
      hec_collective_how how;
      for (int32_t s = 0; s < n; s++)
        for (int32_t d = 0; d < n; d++)
          if (s != d)
            list[t++] = (hec_transfer){.bytes = (int64_t)bytes, .source = s, .destination = d, .item = -1, .after = -1};
      double law_s = hec_gpu_collective_s(&cluster.gpu->gpu, HEC_ALL_TO_ALL, n, (double)(int64_t)bytes * n, &how);
      double s = hec_link_cost_exchange(&cost, list, t, false, 1);
      near(s, law_s, 0.06);
      list[0].bytes *= 4;
      ck_assert(hec_link_cost_exchange(&cost, list, t, false, 1) >= s);
    }
  }
}

/* Inside a node by the law, all-reduce in the switch included; slower where a port is; links that were given count instead. */
HEC_TEST(collectives_inside_a_node) {
  hec_cluster cluster = load("dgx-h100"), given = load("8x8 gpu=h100 nvlink_eff=0.5");
  hec_collective_how how;
  double bytes = 1 << 28, law_s = hec_gpu_collective_s(&cluster.gpu->gpu, HEC_ALL_REDUCE, 8, bytes, &how);
  near(hec_link_cost_allreduce(&cluster, 8, bytes), law_s, 1e-12);
  ck_assert(hec_link_cost_allreduce(&cluster, 16, bytes) > 1.5 * law_s);
  cluster.links[3].bandwidth /= 2;
  near(hec_link_cost_allreduce(&cluster, 8, bytes), 2 * law_s, 1e-12);
  near(hec_link_cost_allreduce(&cluster, 2, 0), 0, 0);
  ck_assert_ptr_null(given.gpu);
  ck_assert(hec_link_cost_allreduce(&given, 8, bytes) >= 2 * 7.0 / 8 * bytes / 225e9);
}

static double experts_s(const hec_device *device, const hec_moe *moe, const int32_t *rows, int32_t n) {
  hec_work_shape expert = hec_work_expert(moe);
  return hec_work_experts_s(device, &expert, rows, n, 1);
}

HEC_TEST(experts_are_priced_together) {
  hec_cluster h100 = load("dgx-h100"), a100 = load("a100-80g-4x8");
  hec_moe moe = model("mixtral-8x7b");
  const int32_t even[8] = {512, 512, 512, 512, 512, 512, 512, 512}, uneven[8] = {3648, 64, 64, 64, 64, 64, 64, 64},
                one[8] = {4096}, none[8] = {0};
  const hec_device *device = &h100.devices[0];
  double even_s = experts_s(device, &moe, even, 8);
  ck_assert(experts_s(device, &moe, none, 8) <= 0);
  ck_assert(experts_s(device, &moe, one, 8) < even_s); /* the weights of one instead of eight */
  ck_assert(experts_s(device, &moe, uneven, 8) > even_s);
  ck_assert(even_s < 8 * experts_s(device, &moe, even, 1)); /* together they fill waves and launch once */
  hec_work_shape back = hec_work_backward(hec_work_expert(&moe));
  near(hec_work_experts_s(device, &back, even, 8, 1), 2 * even_s, 1e-12);
  moe.recompute = true;
  back = hec_work_backward_of(&moe, hec_work_expert(&moe));
  near(hec_work_experts_s(device, &back, even, 8, 1), 3 * even_s, 1e-12);
  hec_device slow = *device;
  slow.speed = 0.5;
  near(experts_s(&slow, &moe, even, 8), 2 * even_s, 1e-12);
  /* A100's grouped kernels reach half of peak, its dense ones 0.8: large experts run one after another. */
  const int32_t large[4] = {16384, 16384, 16384, 16384};
  double flops = 4 * 16384.0 * 2 * hec_moe_expert_params(&moe);
  double share = flops / experts_s(&a100.devices[0], &moe, large, 4) * HEC_IN_STEP / 312e12;
  ck_assert_msg(share > 0.74 && share < 0.82, "%g of peak", share);
}

HEC_TEST(dense_parts) {
  hec_cluster h100 = load("dgx-h100"), b200 = load("1x8 gpu=b200 step=1"), line = load("1x8 gpu=h100 step=1");
  hec_moe moe = model("mixtral-8x7b");
  const hec_device *device = &h100.devices[0];
  hec_work_shape attention = hec_work_attention(&moe), back = hec_work_backward(attention);
  double forward_s = hec_work_s(device, &attention, 8192), ratio = hec_work_s(device, &back, 8192) / forward_s;
  ck_assert_msg(ratio > 2.05 && ratio < 3, "backward takes %g forwards", ratio); /* 2 of products, 3 of attention */
  near(hec_work_s(&line.devices[0], &attention, 8192) * HEC_IN_STEP, forward_s, 1e-12);
  ck_assert(hec_work_s(&b200.devices[0], &attention, 8192) < 0.7 * forward_s);
  ck_assert(hec_work_s(device, &attention, 0) <= 0 && hec_work_s(device, &attention, 4096) < forward_s);
  moe.nonmoe_scale = 1.5;
  attention = hec_work_attention(&moe);
  near(hec_work_s(device, &attention, 8192), 1.5 * forward_s, 1e-12);
  moe.nonmoe_scale = 1;
  moe.dtype_bytes = 4;
  attention = hec_work_attention(&moe);
  near(hec_work_s(device, &attention, 8192), 2 * forward_s, 1e-12);
  moe.dtype_bytes = 2;
  hec_work_shape cut = hec_work_cut(hec_work_attention(&moe), 4); /* a quarter of the heads over four times the rows */
  near(hec_work_s(device, &cut, 4 * 8192), forward_s, 0.15);
  moe.vocabulary = 0;
  hec_work_shape head = hec_work_head(&moe), blocks = hec_work_dense_blocks(&moe);
  ck_assert(hec_work_s(device, &head, 100) <= 0 && hec_work_s(device, &blocks, 100) <= 0);
}

/* Bounds take the linear part of a rate for what no plan goes below; more rows never take less time. */
HEC_TEST(rates_promise_no_more_than_laws) {
  static const char *const specs[] = {"dgx-h100", "p4d-4x8", "gb200-nvl72", "v100-1edr", "1x8 gpu=l40s"};
  static const char *const models[] = {"gpt-moe-s", "mixtral-8x7b", "deepseek-v3"};
  uint64_t random = 7;
  for (int i = 0; i < 600; i++) {
    hec_cluster cluster = load(specs[i % 5]);
    hec_moe moe = model(models[i % 3]);
    const hec_device *device = &cluster.devices[0];
    hec_work_shape expert = hec_work_expert(&moe), exact = expert;
    exact.exact = true;
    int32_t rows[8];
    double sum = 0;
    for (int e = 0; e < 8; e++) {
      double u = hec_test_uniform(&random);
      sum += rows[e] = (int32_t)(u * u * u * 20000);
    }
    double s = hec_work_experts_s(device, &expert, rows, 8, 1);
    ck_assert_msg(hec_work_s(device, &exact, sum) <= s * (1 + 1e-12), "%s %s", specs[i % 5], models[i % 3]);
    hec_arena_free(&arena);
  }
}

static const struct {
  const char *spec, *words;
} bad[] = {
    {"1x8 gpu=h999", "h999"},
    {"1x8 gpu=h100 flops=1T", "beside gpu="},
    {"1x8 eff=0.5 gpu=h100", "beside gpu="},
    {"1x8 gpu=h100 tile=8", "beside gpu="},
    {"1x8 nvlink=1G flops=1T mem=1G step=2", "step= beside gpu="},
    {"1x8 gpu=h100 step=0.5", "step= with a number"},
    {"1x8 gpu=h100 gpu=h100", "every key once"},
    {"{\"nodes\": 1, \"devices_per_node\": 8, \"gpu\": \"h100\", \"device\": {\"flops\": 1e12}}", "device.flops"},
    {"{\"nodes\": 1, \"devices_per_node\": 8, \"gpu\": \"h100\", \"devices\": [{\"device\": 1, \"launch_s\": 1e-6}]}",
     "devices[0].launch_s"},
    {"{\"nodes\": 1, \"devices_per_node\": 8, \"gpu\": \"h100\", \"device\": {\"in_step\": 0.9}}", "device.in_step"},
    {"{\"nodes\": 1, \"devices_per_node\": 1, \"nvlink\": {\"bandwidth\": 1e9}, \"device\": {\"flops\": 1e12, "
     "\"memory_bytes\": 1e9, \"in_step\": 1.2}}",
     "in_step"},
    {"{\"nodes\": 1, \"devices_per_node\": 8, \"gpu\": 7}", "gpu"},
};

HEC_TEST_ROWS(bad_clusters, bad) {
  hec_cluster cluster;
  const char *spec = bad[_i].spec;
  hec_status status = spec[0] == '{' ? hec_cluster_parse_json(spec, "c.json", &arena, &cluster)
                                     : hec_cluster_load(spec, &arena, &cluster);
  ck_assert_int_ne(status, HEC_OK);
  ck_assert_msg(strstr(hec_last_error(), bad[_i].words), "%s", hec_last_error());
}

/* What is given beside the GPU counts, wherever it stands; a GPU without constants is known by its data sheet. */
HEC_TEST(given_beside_the_gpu) {
  hec_cluster line = load("2x4 nic=10G@1us mem=20G gpu=a100 nvlink=100G nics=2 slow=3:0.5"),
              peak = load("1x8 gpu=mi300x"), json;
  ck_assert(line.devices[0].memory_bytes == 20e9 && line.links[0].nominal == 100e9 && line.links[16].nominal == 10e9);
  ck_assert(line.links[0].n_shares > 0 && line.links[0].latency_ps > 0 && line.links[16].latency_ps == 1000000);
  ck_assert(line.devices[3].speed == 0.5 && line.devices[3].gpu == line.devices[0].gpu);
  ck_assert(!peak.devices[0].gpu && peak.devices[0].in_step == 1 && peak.devices[0].flops == 1307e12);
  const char *text =
      "{\"nodes\": 2, \"devices_per_node\": 8, \"gpu\": \"h100\", \"nics\": 8, \"nvlink\": {\"bandwidth\": 400e9, "
      "\"efficiency\": 0.5}, \"devices\": [{\"device\": 1, \"in_step\": 2}]}";
  ck_assert(hec_cluster_parse_json(text, "c.json", &arena, &json) == HEC_OK);
  ck_assert(json.links[0].bandwidth == 200e9 && json.links[0].n_shares == 0 && !json.gpu);
  near(json.devices[1].flops_efficiency * 2, json.devices[0].flops_efficiency * HEC_IN_STEP, 1e-12);
}
