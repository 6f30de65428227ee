/* Rates as the cost laws achieve them (efficiency included), not nominal ones. O(ranks + links).
 *
 * Of a dispatcher with kernels, per token with k = top_k assignments on V nodes of d devices, from its law
 * (dispatcher.h, part_s), between half of the tokens and all:
 *
 *   token_port = k bytes / seconds with all its ranks and no other node
 *   token_rank = k (V-1)/V bytes / seconds with all its other nodes and no copies beside;  token_node = d token_rank
 *
 * So a row that is sent once for several assignments, in fewer bytes, raises them. */
#include "runtime/plan/rates.h"

#include "models/training/dispatcher.h"
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

hec_gpu hec_dispatch_gpu(const hec_problem *problem, int32_t rank) {
  hec_gpu gpu = *problem->dispatch.gpu;
  gpu.sheet.nvlink_bandwidth *= hec_cluster_port_left(problem->cluster, rank);
  gpu.sheet.nic_bandwidth *= hec_cluster_nic_left(problem->cluster, rank);
  return gpu;
}

/* With the slowest port and the slowest NIC of all ranks. */
static hec_gpu slowest_gpu(const hec_problem *p) {
  hec_gpu slowest = *p->dispatch.gpu;
  for (int32_t r = 0; r < p->n_ranks; r++) {
    const hec_gpu_sheet sheet = hec_dispatch_gpu(p, r).sheet;
    if (sheet.nvlink_bandwidth < slowest.sheet.nvlink_bandwidth)
      slowest.sheet.nvlink_bandwidth = sheet.nvlink_bandwidth;
    if (sheet.nic_bandwidth < slowest.sheet.nic_bandwidth)
      slowest.sheet.nic_bandwidth = sheet.nic_bandwidth;
  }
  return slowest;
}

/* Seconds of one more token, the mean of both ways. */
static double token_s(const hec_problem *p, const hec_gpu *gpu, double ranks, double nodes) {
  int32_t per_node = p->cluster->devices_per_node;
  double s = 0;
  for (int back = 0; back < 2; back++) {
    hec_dispatch_work work = {.tokens = p->tokens,
                              .bytes = back ? p->bytes.token : p->dispatch.row,
                              .ranks = ranks,
                              .nodes = nodes,
                              .ranks_per_node = p->ep < per_node ? p->ep : per_node,
                              .n_nodes = (p->ep + per_node - 1) / per_node,
                              .sms = p->dispatch.sms};
    s += p->dispatch.by->part_s(gpu, &work, back);
    work.tokens = p->tokens / 2;
    s -= p->dispatch.by->part_s(gpu, &work, back);
  }
  return s / 2 / (p->tokens - p->tokens / 2);
}

static void kernel_rates(const hec_problem *p, hec_rates *rates) {
  int32_t per_node = p->cluster->devices_per_node;
  const hec_gpu gpu = slowest_gpu(p);
  double n_nodes = (p->ep + per_node - 1) / per_node, others = (n_nodes - 1) / n_nodes, all = p->top_k * p->bytes.token;
  rates->token_port = all / token_s(p, &gpu, hec_distinct_groups(p->n_experts, p->ep, p->top_k), 0);
  rates->token_rank = rates->token_node = rates->token_port;
  if (n_nodes < 2)
    return;
  double nodes = others * hec_distinct_groups(p->n_experts, (int64_t)n_nodes, p->top_k);
  rates->token_rank = others * all / token_s(p, &gpu, 0, nodes);
  rates->token_node = per_node * rates->token_rank;
}

/* Where all tokens go to all ranks, no plan changes what travels. */
static const double free_rate = 1e30;

static void token_rates(const hec_problem *p, hec_rates *rates) {
  const hec_dispatcher *by = p->dispatch.by;
  double wider = by && p->dispatch.row > 0 ? 2 * p->bytes.token / (p->dispatch.row + p->bytes.token) : 1;
  rates->token_port = wider * rates->port;
  rates->token_node = wider * rates->node;
  rates->token_rank = wider * rates->rank;
  if (by && by->gathers)
    rates->token_port = rates->token_node = rates->token_rank = free_rate;
  else if (by && by->part_s)
    kernel_rates(p, rates);
}

hec_rates hec_rates_of(const hec_problem *problem) {
  hec_rates rates = {.assignment_s = problem->expert.flops_per_row / slowest_flops(problem),
                     .port = port_bandwidth(problem->cluster)};
  bool one_node = problem->n_nodes == 1;
  rates.node = one_node ? rates.port : hec_cluster_node_bandwidth(problem->cluster, false);
  rates.rank = one_node ? rates.port : rates.node / problem->cluster->devices_per_node;
  token_rates(problem, &rates);
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
