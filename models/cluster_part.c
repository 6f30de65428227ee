/* A run of a cluster's devices as a cluster of its own: what a planner sees that works inside a group of ranks.
 *
 * Devices, routes, rates and latencies are those of the whole. Links that no route of the part uses are left out, and what is
 * left is numbered anew, in the same order. A part inside one node has one node. Else a node of the part is gcd(n,
 * devices per node) devices. That is whole nodes where the part has whole ones. Else it is pieces that never reach
 * over a node's border. O(n^2 * route length). */
#include "models/cluster.h"

#include <string.h>

static int32_t greatest_divisor(int32_t a, int32_t b) {
  while (b != 0) {
    int32_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* number[l] = 1 for links that the part uses: those of its routes, and the ports of its devices. */
static void mark_links(const hec_cluster *whole, int32_t first, int32_t n, int32_t *number, int32_t *entries) {
  for (int32_t l = 0; l < whole->n_links; l++) {
    const hec_link *link = &whole->links[l];
    bool port = link->kind == HEC_LINK_PORT_OUT || link->kind == HEC_LINK_PORT_IN;
    number[l] = port && link->device >= first && link->device < first + n;
  }
  for (int32_t s = first; s < first + n; s++)
    for (int32_t d = first; d < first + n; d++) {
      const int32_t *route;
      int32_t length = hec_cluster_route(whole, s, d, &route);
      for (int32_t i = 0; i < length; i++)
        number[route[i]] = 1;
      *entries += length;
    }
}

static void copy_links(const hec_cluster *whole, int32_t first, int32_t *number, hec_arena *arena, hec_cluster *part) {
  int32_t first_node = hec_cluster_node(whole, first), n_nics = 0;
  part->n_links = 0;
  for (int32_t l = 0; l < whole->n_links; l++)
    part->n_links += number[l];
  part->links = HEC_NEW(arena, hec_link, part->n_links);
  for (int32_t l = 0, next = 0; l < whole->n_links; l++) {
    if (!number[l])
      continue;
    hec_link *link = &part->links[next];
    *link = whole->links[l];
    link->device -= link->device >= 0 ? first : 0;
    link->node -= link->node >= 0 ? first_node : 0;
    n_nics += link->kind == HEC_LINK_NIC_OUT;
    number[l] = next++;
  }
  part->nics = n_nics > part->n_nodes ? n_nics / part->n_nodes : 1;
}

static void copy_routes(const hec_cluster *whole, int32_t first, const int32_t *number, hec_cluster *part) {
  int32_t n = part->n_devices, at = 0;
  for (int32_t s = 0; s < n; s++)
    for (int32_t d = 0; d < n; d++) {
      const int32_t *route;
      int32_t length = hec_cluster_route(whole, first + s, first + d, &route);
      part->route_at[s * n + d] = at;
      memcpy(part->route_side + at, whole->route_side + (route - whole->route_link), (size_t)length);
      for (int32_t i = 0; i < length; i++)
        part->route_link[at++] = number[route[i]];
    }
  part->route_at[n * n] = at;
}

hec_cluster hec_cluster_part(const hec_cluster *whole, int32_t first, int32_t n, hec_arena *arena) {
  HEC_ASSERT(first >= 0 && n >= 1 && first + n <= whole->n_devices);
  hec_cluster part = *whole;
  bool inside = hec_cluster_node(whole, first) == hec_cluster_node(whole, first + n - 1);
  part.devices_per_node = inside ? n : greatest_divisor(greatest_divisor(n, first), whole->devices_per_node);
  part.n_nodes = n / part.devices_per_node;
  part.n_devices = n;
  part.devices = whole->devices + first;
  int32_t *number = HEC_NEW(arena, int32_t, whole->n_links + 1), entries = 0;
  mark_links(whole, first, n, number, &entries);
  part.route_at = HEC_NEW(arena, int32_t, (size_t)n * (size_t)n + 1);
  part.route_link = HEC_NEW(arena, int32_t, entries + 1);
  part.route_side = HEC_NEW(arena, uint8_t, entries + 1);
  copy_links(whole, first, number, arena, &part);
  copy_routes(whole, first, number, &part);
  return part;
}
