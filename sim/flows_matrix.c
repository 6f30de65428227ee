/* A traffic matrix on a cluster as flows: one from each rank to each other that gets bytes. All start at time 0 and
 * take the cluster's route with its latency. The diagonal makes none. What a message of that size cannot reach of its
 * links' bandwidth (efficiency_by_bytes) is its share. O(flows * route length). */
#include "sim/flows.h"

#include <stdio.h>

static const char *name_of(hec_arena *arena, const char *kind, const char *place, int32_t index, int32_t nic) {
  char name[64];
  int n = snprintf(name, sizeof name, "%s%s%s%d", kind, *kind ? ":" : "", place, index);
  if (nic >= 0)
    (void)snprintf(name + n, sizeof name - (size_t)n, ".nic%d", nic);
  return hec_arena_text(arena, name);
}

/* Names as in --slow link=... */
static void copy_links(const hec_cluster *c, hec_arena *arena, hec_flows *flows) {
  int32_t first[HEC_N_LINK_KINDS];
  for (int kind = 0; kind < HEC_N_LINK_KINDS; kind++)
    (void)hec_cluster_kind(c, (hec_link_kind)kind, &first[kind]);
  flows->n_links = c->n_links;
  flows->link_name = HEC_NEW(arena, const char *, c->n_links);
  flows->bandwidth = HEC_NEW(arena, double, c->n_links);
  flows->latency = HEC_NEW(arena, double, c->n_links);
  for (int32_t l = 0; l < c->n_links; l++) {
    const hec_link *link = &c->links[l];
    int32_t index = l - first[link->kind];
    bool nic = link->kind == HEC_LINK_NIC_OUT || link->kind == HEC_LINK_NIC_IN;
    const char *place = link->kind < HEC_LINK_NIC_OUT ? "device" : nic ? "node" : "leaf";
    flows->link_name[l] = name_of(arena, hec_link_kind_name[link->kind], place, nic ? index / c->nics : index,
                                  nic && c->nics > 1 ? index % c->nics : -1);
    flows->bandwidth[l] = link->bandwidth;
    flows->latency[l] = (double)link->latency_ps * 1e-12;
  }
}

/* Route f of flow f. */
static void add_route(const hec_cluster *c, hec_flows *flows, int32_t f) {
  const int32_t *links;
  int32_t s = flows->flow[f].source, d = flows->flow[f].destination, n = hec_cluster_route(c, s, d, &links);
  const uint8_t *side = c->route_side + (links - c->route_link);
  int32_t at = flows->route_at[f];
  for (int32_t i = 0; i < n; i++) {
    flows->route_link[at + i] = links[i];
    flows->route_side[at + i] = side[i];
  }
  flows->route_at[f + 1] = at + n;
  flows->route_latency[f] = (double)hec_cluster_latency_ps(c, s, d) * 1e-12;
  flows->relay_s[f] = (double)hec_cluster_relay_ps(c, s, d, (double)flows->flow[f].bytes) * 1e-12;
  flows->share[f] = hec_cluster_share_of(c, s, d, (double)flows->flow[f].bytes);
}

hec_status hec_flows_of_matrix(const hec_traffic_matrix *matrix, const hec_cluster *cluster, hec_arena *arena,
                               hec_flows *flows) {
  int32_t n = matrix->n;
  if (n > cluster->n_devices)
    return hec_fail(HEC_BAD_INPUT, "matrix: expected at most the %d devices of cluster %s, found %d ranks",
                    cluster->n_devices, cluster->name, n);
  *flows = (hec_flows){.n_hosts = n,
                       .hosts_per_node = cluster->devices_per_node,
                       .p2p = cluster->p2p,
                       .of_matrix = true,
                       .size_bytes = hec_traffic_matrix_size(matrix),
                       .host_name = HEC_NEW(arena, const char *, n)};
  for (int32_t r = 0; r < n; r++)
    flows->host_name[r] = name_of(arena, "", "rank", r, -1);
  copy_links(cluster, arena, flows);
  size_t max = (size_t)n * (size_t)n;
  flows->flow = HEC_NEW(arena, hec_flow, max);
  for (int32_t s = 0; s < n; s++)
    for (int32_t d = 0; d < n; d++) {
      int64_t bytes = matrix->bytes[(size_t)s * (size_t)n + (size_t)d];
      if (s != d && bytes > 0) {
        int32_t f = flows->n_flows++;
        flows->flow[f] = (hec_flow){.bytes = bytes, .expected_finish = -1, .source = s, .destination = d, .route = f};
      }
    }
  flows->n_routes = flows->n_flows;
  flows->route_at = HEC_NEW(arena, int32_t, flows->n_flows + 1);
  flows->route_link = HEC_NEW(arena, int32_t, (size_t)flows->n_flows * HEC_ROUTE_MAX);
  flows->route_side = HEC_NEW(arena, uint8_t, (size_t)flows->n_flows * HEC_ROUTE_MAX);
  flows->route_latency = HEC_NEW(arena, double, flows->n_flows);
  flows->share = HEC_NEW(arena, double, flows->n_flows);
  flows->relay_s = HEC_NEW(arena, double, flows->n_flows);
  for (int32_t f = 0; f < flows->n_flows; f++)
    add_route(cluster, flows, f);
  return HEC_OK;
}
