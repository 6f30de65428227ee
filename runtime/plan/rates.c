/* Rates as the cost laws achieve them (efficiency included), not nominal ones. O(ranks + links). */
#include "runtime/plan/rates.h"

#include "runtime/plan/problem.h"

static double port_bandwidth(const hec_cluster *cluster) {
  for (int32_t l = 0; l < cluster->n_links; l++)
    if (cluster->links[l].kind == HEC_LINK_PORT_IN && cluster->links[l].device == 0)
      return cluster->links[l].bandwidth;
  return hec_cluster_node_bandwidth(cluster, false);
}

static double slowest_flops(const hec_problem *problem) {
  double slowest = 0;
  for (int32_t r = 0; r < problem->n_ranks; r++) {
    const hec_device *d = &problem->cluster->devices[r];
    double flops = d->flops * d->flops_efficiency * d->speed;
    slowest = r == 0 || flops < slowest ? flops : slowest;
  }
  return slowest;
}

hec_rates hec_rates_of(const hec_problem *problem) {
  hec_rates rates = {.assignment_s = problem->expert.flops_per_row / slowest_flops(problem),
                     .port = port_bandwidth(problem->cluster)};
  bool one_node = problem->n_nodes == 1;
  rates.node = one_node ? rates.port : hec_cluster_node_bandwidth(problem->cluster, false);
  rates.rank = one_node ? rates.port : rates.node / problem->cluster->devices_per_node;
  return rates;
}

/* Between dp groups each rank reduces those of its experts, 2 (dp - 1) / dp of their bytes, over its share of the network. */
double hec_problem_own_gradients_s(const hec_problem *problem) {
  if (!problem->train || problem->outside_s > 0)
    return problem->outside_s;
  double dense_s = hec_problem_reduce_s(problem, hec_problem_gradients(problem, 0));
  int32_t experts = hec_problem_share(problem), others = problem->dp - 1;
  return dense_s + 2.0 * others / problem->dp * experts * problem->bytes.expert_grad / hec_rates_of(problem).rank;
}
