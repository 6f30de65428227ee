/* What a training step takes from its cluster: rates, memory and latency of the links into the data sheet and the job, uplinks of
 * leaf switches. A step has a closed form for each, so what else a cluster may say is refused where somebody wrote it down. */
#include "models/cluster_spec.h"
#include "tools/front/training/set_up.h"

#include <string.h>

/* Nodes that the first one reaches without an uplink are below its leaf. With rails a group of nodes has a leaf for each. */
static void take_leaves(const hec_cluster *cluster, hec_training *t) {
  int32_t first, n_leaves = hec_cluster_kind(cluster, HEC_LINK_LEAF_UP, &first), below = 0;
  for (int32_t node = 0; n_leaves > 0 && node < cluster->n_nodes; node++) {
    int32_t to = node * cluster->devices_per_node;
    bool up = false;
    for (int32_t i = cluster->route_at[to]; i < cluster->route_at[to + 1]; i++)
      up = up || cluster->links[cluster->route_link[i]].kind == HEC_LINK_LEAF_UP;
    below += !up;
  }
  if (below == 0)
    return;
  t->leaf_gpus = below * cluster->devices_per_node;
  t->uplink = cluster->links[first].nominal * (double)(n_leaves / ((cluster->n_nodes + below - 1) / below));
}

/* Words of a cluster's line that would change nothing. */
static hec_status refuse_word(const char *spec, const char *word, size_t length) {
  static const char nvlink[] = "nvlink=";
  static const struct {
    const char *key, *why;
  } unused[] = {
      {"pxn=", "traffic is spread evenly over the NICs of a node"},
      {"through=", "traffic between nodes takes the NICs alone"},
      {"sm=", "constants of a step have what communication takes of the GPU"},
      {"step=", "a step has constants of its own (models/training/step.h)"},
      {"plan=", "time to plan is not part of a step"},
      {"p2p=", "network laws of flows are not used"},
      {"slow=", "slow ranks are not modelled"},
  };
  for (size_t i = 0; i < sizeof unused / sizeof unused[0]; i++)
    if (strncmp(word, unused[i].key, strlen(unused[i].key)) == 0)
      return hec_fail(HEC_BAD_INPUT, "cluster \"%.200s\": %s means nothing beside --layout: %s", spec, unused[i].key,
                      unused[i].why);
  if (strncmp(word, nvlink, strlen(nvlink)) == 0 && memchr(word, '@', length) && !strstr(spec, "nvlink_eff="))
    return hec_fail(HEC_BAD_INPUT,
                    "cluster \"%.200s\": a latency of nvlink= means nothing beside --layout: laws of the GPU have it; "
                    "with nvlink_eff= it is taken, in place of the laws",
                    spec);
  return HEC_OK;
}

static hec_status refuse_unused(const char *spec) {
  for (const char *at = spec; *(at += strspn(at, " \t"));) {
    size_t length = strcspn(at, " \t");
    HEC_TRY(refuse_word(spec, at, length));
    at += length;
  }
  return HEC_OK;
}

/* A step has one rate of each kind. */
static hec_status check_alike(const hec_cluster *c, const char *spec) {
  bool alike = true;
  for (int32_t kind = 0; kind < HEC_N_LINK_KINDS; kind++) {
    int32_t first, n = hec_cluster_kind(c, (hec_link_kind)kind, &first);
    for (int32_t i = 1; i < n; i++) {
      const hec_link *a = &c->links[first], *b = &c->links[first + i];
      alike = alike && b->bandwidth >= a->bandwidth && b->bandwidth <= a->bandwidth && a->latency_ps == b->latency_ps;
    }
  }
  for (int32_t i = 0; i < c->n_devices; i++)
    alike = alike && c->devices[i].speed >= 1 && c->devices[i].speed <= 1 && c->devices[i].skew_s <= 0;
  return alike ? HEC_OK
               : hec_fail(HEC_BAD_INPUT,
                          "cluster %.200s: expected devices and links that are all alike beside --layout, where slow "
                          "ranks are not modelled; found some that differ",
                          spec);
}

/* A unit that was left out, or nic=8 in place of nics=8: a step would take years, or nothing would fit. */
static const double least_bandwidth = 1e6, least_memory = 1e6;
static hec_status check_rates(const hec_cluster *c, const char *spec) {
  if (c->devices[0].memory_bytes < least_memory)
    return hec_fail(
        HEC_BAD_INPUT,
        "cluster %.200s: expected devices with 1 MB of memory and more, found %.4g bytes (write mem=80G, not "
        "mem=80)",
        spec, c->devices[0].memory_bytes);
  for (int32_t i = 0; i < c->n_links; i++)
    if (c->links[i].nominal < least_bandwidth)
      return hec_fail(
          HEC_BAD_INPUT,
          "cluster %.200s: too slow for a training step: expected links of 1 MB/s and more, found %.4g bytes/s "
          "(write 50G, not 50; nics=8 is the number of NICs, nic=50G the rate of each)",
          spec, c->links[i].nominal);
  return HEC_OK;
}

hec_status hec_set_up_take_cluster(const hec_cluster *cluster, const char *spec, hec_training *t,
                                   hec_gpu_sheet *sheet) {
  int32_t first;
  if (hec_cluster_is_line(spec))
    HEC_TRY(refuse_unused(spec));
  HEC_TRY(check_rates(cluster, spec));
  HEC_TRY(check_alike(cluster, spec));
  hec_cluster_take_sheet(cluster, sheet);
  if (hec_cluster_kind(cluster, HEC_LINK_PORT_OUT, &first) > 0 && !cluster->links[first].by_laws) {
    const hec_link *port = &cluster->links[first];
    t->nvlink_share = port->bandwidth / port->nominal;
    t->nvlink_latency_s = 1e-12 * (double)port->latency_ps;
  }
  if (hec_cluster_kind(cluster, HEC_LINK_NIC_OUT, &first) > 0) {
    const hec_link *nic = &cluster->links[first];
    double s = 1e-12 * (double)nic->latency_ps;
    if (!nic->by_laws)
      t->constants.nic = nic->bandwidth / nic->nominal;
    if (s < 0.999 * HEC_NIC_LATENCY_S || s > 1.001 * HEC_NIC_LATENCY_S)
      t->nic_latency_s = s > 0 ? s : 1e-12; /* 0 would be the one that is assumed */
  }
  take_leaves(cluster, t);
  return HEC_OK;
}
