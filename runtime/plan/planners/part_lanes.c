/* See the header. */
#include "runtime/plan/planners/part_lanes.h"

#include "runtime/plan/problem.h"
#include "runtime/plan/rates.h"

#include <string.h>

hec_part_lanes hec_part_lanes_new(hec_arena *arena, const hec_problem *p) {
  hec_rates rates = hec_rates_of(p);
  int32_t per_node = p->cluster->devices_per_node < p->n_ranks ? p->cluster->devices_per_node : p->n_ranks;
  int64_t latency_ps = p->n_ranks > 1 ? 3 * hec_cluster_latency_ps(p->cluster, 0, p->n_ranks - 1) : 0;
  int32_t *node_of = HEC_NEW(arena, int32_t, p->n_ranks);
  for (int32_t r = 0; r < p->n_ranks; r++)
    node_of[r] = hec_problem_node(p, r);
  return (hec_part_lanes){.problem = p,
                          .n_ranks = p->n_ranks,
                          .n_nodes = p->n_nodes,
                          .per_node = per_node,
                          .port = rates.port,
                          .node = rates.node,
                          .latency_s = (double)latency_ps * 1e-12,
                          .other = (double)(per_node - 1) / per_node,
                          .node_of = node_of,
                          .owner_out = HEC_NEW(arena, double, p->n_ranks),
                          .near_in = HEC_NEW(arena, double, p->n_ranks),
                          .far_in = HEC_NEW(arena, double, p->n_ranks),
                          .node_out = HEC_NEW(arena, double, p->n_nodes),
                          .node_in = HEC_NEW(arena, double, p->n_nodes),
                          .passed = HEC_NEW(arena, double, p->n_nodes),
                          .copies = HEC_NEW(arena, int32_t, (size_t)p->n_experts * (size_t)p->n_nodes),
                          .all = HEC_NEW(arena, int32_t, p->n_experts)};
}

void hec_part_lanes_clear(hec_part_lanes *lanes) {
  size_t ranks = (size_t)lanes->n_ranks, nodes = (size_t)lanes->n_nodes;
  memset(lanes->owner_out, 0, ranks * sizeof *lanes->owner_out);
  memset(lanes->near_in, 0, ranks * sizeof *lanes->near_in);
  memset(lanes->far_in, 0, ranks * sizeof *lanes->far_in);
  memset(lanes->node_out, 0, nodes * sizeof *lanes->node_out);
  memset(lanes->node_in, 0, nodes * sizeof *lanes->node_in);
  memset(lanes->passed, 0, nodes * sizeof *lanes->passed);
  memset(lanes->copies, 0, (size_t)lanes->problem->n_experts * nodes * sizeof *lanes->copies);
  memset(lanes->all, 0, (size_t)lanes->problem->n_experts * sizeof *lanes->all);
}

void hec_part_lanes_copy(const hec_part_lanes *from, hec_part_lanes *to) {
  size_t ranks = (size_t)from->n_ranks, nodes = (size_t)from->n_nodes;
  memcpy(to->owner_out, from->owner_out, ranks * sizeof *to->owner_out);
  memcpy(to->near_in, from->near_in, ranks * sizeof *to->near_in);
  memcpy(to->far_in, from->far_in, ranks * sizeof *to->far_in);
  memcpy(to->node_out, from->node_out, nodes * sizeof *to->node_out);
  memcpy(to->node_in, from->node_in, nodes * sizeof *to->node_in);
  memcpy(to->passed, from->passed, nodes * sizeof *to->passed);
  memcpy(to->copies, from->copies, (size_t)from->problem->n_experts * nodes * sizeof *to->copies);
  memcpy(to->all, from->all, (size_t)from->problem->n_experts * sizeof *to->all);
}

void hec_part_lanes_add(hec_part_lanes *lanes, int32_t expert, int32_t owner, int32_t rank, int sign) {
  int32_t home = lanes->node_of[owner], node = lanes->node_of[rank];
  int32_t *here = &lanes->copies[expert * lanes->n_nodes + node];
  bool first = lanes->all[expert] == (sign > 0 ? 0 : 1);
  bool enters = node != home && *here == (sign > 0 ? 0 : 1);
  *here += sign;
  lanes->all[expert] += sign;
  double other = lanes->other;
  if (first)
    lanes->owner_out[owner] += sign * other;
  if (enters) {
    lanes->node_out[home] += sign;
    lanes->node_in[node] += sign;
  }
  if (node == home)
    lanes->near_in[rank] += sign * other;
  else {
    lanes->far_in[rank] += sign * other;
    lanes->passed[node] += (double)sign / lanes->per_node;
  }
}

void hec_part_lanes_add_all(hec_part_lanes *lanes, int32_t expert, int32_t owner, const uint8_t *held, uint8_t which,
                            int sign) {
  int32_t home = lanes->node_of[owner], before = lanes->all[expert];
  double other = sign * lanes->other;
  for (int32_t node = 0; node < lanes->n_nodes; node++) {
    int32_t first = node * lanes->per_node, end = first + lanes->per_node, n = 0;
    int32_t *here = &lanes->copies[expert * lanes->n_nodes + node];
    double *in = node == home ? lanes->near_in : lanes->far_in;
    end = end < lanes->n_ranks ? end : lanes->n_ranks;
    for (int32_t r = first; r < end; r++) {
      bool is = held[r] == which;
      in[r] += is ? other : 0;
      n += is;
    }
    bool enters = node != home && (*here == 0) != (*here + sign * n == 0);
    *here += sign * n;
    lanes->all[expert] += sign * n;
    lanes->passed[node] += node == home ? 0 : (double)(sign * n) / lanes->per_node;
    lanes->node_out[home] += enters ? sign : 0;
    lanes->node_in[node] += enters ? sign : 0;
  }
  if ((before == 0) != (lanes->all[expert] == 0))
    lanes->owner_out[owner] += other;
}

static double max_of(const double *value, int32_t n) {
  double max = 0;
  for (int32_t i = 0; i < n; i++)
    max = value[i] > max ? value[i] : max;
  return max;
}

static double larger(double a, double b) {
  return a > b ? a : b;
}

double hec_part_lanes_s(const hec_part_lanes *lanes, double bytes) {
  double spread = max_of(lanes->owner_out, lanes->n_ranks);
  if (spread <= 0)
    return 0;
  double cross = larger(max_of(lanes->node_out, lanes->n_nodes), max_of(lanes->node_in, lanes->n_nodes));
  double near = max_of(lanes->near_in, lanes->n_ranks);
  double far = larger(max_of(lanes->far_in, lanes->n_ranks), max_of(lanes->passed, lanes->n_nodes));
  return bytes * (spread / lanes->port + larger(cross / lanes->node, near / lanes->port) + far / lanes->port) +
         lanes->latency_s;
}
