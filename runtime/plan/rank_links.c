/* Links are numbered in the order of the cluster, routes keep theirs. O(ranks^2 * route length). */
#include "runtime/plan/rank_links.h"

#include "runtime/plan/problem.h"
#include "runtime/plan/rates.h"

/* Marks the links between ranks in number_of (1) and returns the entries of all routes. */
static int32_t mark_used(const hec_problem *problem, int32_t *number_of) {
  int32_t entries = 0;
  for (int32_t s = 0; s < problem->n_ranks; s++)
    for (int32_t d = 0; d < problem->n_ranks; d++) {
      if (s == d)
        continue;
      const int32_t *route;
      int32_t n = hec_cluster_route(problem->cluster, s, d, &route);
      for (int32_t i = 0; i < n; i++)
        number_of[route[i]] = 1;
      entries += n;
    }
  return entries;
}

static void copy_routes(const hec_problem *problem, const int32_t *number_of, hec_rank_links *links) {
  int32_t entries = 0;
  for (int32_t s = 0; s < problem->n_ranks; s++)
    for (int32_t d = 0; d < problem->n_ranks; d++) {
      links->route_at[s * problem->n_ranks + d] = entries;
      if (s == d)
        continue;
      links->latency_s[s * problem->n_ranks + d] = (double)hec_cluster_latency_ps(problem->cluster, s, d) * 1e-12;
      const int32_t *route;
      int32_t n = hec_cluster_route(problem->cluster, s, d, &route);
      for (int32_t i = 0; i < n; i++)
        links->route_link[entries++] = number_of[route[i]];
    }
  links->route_at[problem->n_ranks * problem->n_ranks] = entries;
}

hec_rank_links hec_rank_links_new(hec_arena *arena, const hec_problem *problem) {
  const hec_cluster *cluster = problem->cluster;
  size_t ranks = (size_t)problem->n_ranks;
  int32_t *number_of = HEC_NEW(arena, int32_t, cluster->n_links + 1);
  int32_t entries = mark_used(problem, number_of);
  hec_rank_links links = {.n_ranks = problem->n_ranks};
  for (int32_t l = 0; l < cluster->n_links; l++)
    number_of[l] = number_of[l] ? links.n_links++ : -1;
  links.n_padded = links.n_links < 4 ? 4 : (links.n_links + 3) / 4 * 4;
  links.bandwidth = HEC_NEW(arena, double, links.n_padded);
  links.token = HEC_NEW(arena, double, links.n_padded);
  for (int32_t l = 0; l < links.n_padded; l++)
    links.bandwidth[l] = links.token[l] = 1;
  hec_rates rates = hec_rates_of(problem);
  for (int32_t l = 0; l < cluster->n_links; l++)
    if (number_of[l] >= 0) {
      hec_link_kind kind = cluster->links[l].kind;
      bool port = kind == HEC_LINK_PORT_OUT || kind == HEC_LINK_PORT_IN;
      double bandwidth = links.bandwidth[number_of[l]] = cluster->links[l].bandwidth;
      links.token[number_of[l]] = bandwidth * (port ? rates.token_port / rates.port : rates.token_rank / rates.rank);
    }
  links.route_at = HEC_NEW(arena, int32_t, ranks * ranks + 1);
  links.route_link = HEC_NEW(arena, int32_t, entries + 1);
  links.latency_s = HEC_NEW(arena, double, ranks *ranks);
  copy_routes(problem, number_of, &links);
  return links;
}
