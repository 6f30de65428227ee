/* See the header. A layer's exchange takes D (a latency L of it). Its busiest rank computes E(1/r of its rows) in a
 * chunk. In r chunks the layer takes t(r) of degree.h with a = L + (D - L)/r and x = E(1/r). Once per node it is not
 * cut: there it must gain more than the chunks do. */
#include "runtime/program/ways.h"

#include "models/training/dispatcher.h"
#include "runtime/plan/planners/degree.h"
#include "runtime/program/dispatched.h"
#include "runtime/program/lowering_state.h"
#include "runtime/program/nodes.h"

struct hec_ways {
  hec_nodes *nodes;
  hec_transfer *transfers; /* [n_ranks * n_ranks] */
  int32_t *rows;           /* [n_experts] */
};

hec_ways *hec_ways_new(const hec_problem *p, hec_arena *arena) {
  size_t ranks = (size_t)p->n_ranks;
  hec_ways *ways = HEC_NEW(arena, hec_ways, 1);
  *ways = (hec_ways){.nodes = hec_nodes_new(p, arena),
                     .transfers = HEC_NEW(arena, hec_transfer, ranks * ranks),
                     .rows = HEC_NEW(arena, int32_t, p->n_experts)};
  return ways;
}

/* Seconds of the layer's dispatch in one piece; its latency. */
static double exchange_s(hec_lowering *low, hec_ways *ways, int32_t layer, double *latency_s) {
  const hec_problem *p = low->problem;
  int32_t n = 0;
  int64_t longest_ps = 0;
  if (low->in->dispatched && p->dispatch.by->part_s)
    return hec_dispatched_s(low, layer, latency_s);
  for (int32_t s = 0; s < p->n_ranks; s++)
    for (int32_t d = 0; d < p->n_ranks; d++) {
      int64_t rows = low->in->routing.pair[(size_t)s * (size_t)p->n_ranks + (size_t)d];
      if (rows == 0 || s == d)
        continue;
      ways->transfers[n++] = (hec_transfer){
          .bytes = rows * (int64_t)p->bytes.token, .source = s, .destination = d, .item = -1, .after = -1};
      int64_t ps = hec_cluster_latency_ps(p->cluster, s, d);
      longest_ps = ps > longest_ps ? ps : longest_ps;
    }
  *latency_s = (double)longest_ps * 1e-12;
  return n > 0 ? hec_link_cost_exchange(&low->in->shared->run.link, ways->transfers, n, false, 1) : 0;
}

/* Of the busiest rank, 1/degree of all rows. */
static double experts_s(const hec_lowering *low, hec_ways *ways, int32_t degree, bool backward) {
  const hec_routing *routing = &low->in->routing;
  const hec_work_shape *shape = &low->in->program.shapes[HEC_SHAPE_EXPERT + (backward ? 1 : 0)];
  double max = 0;
  for (int32_t r = 0; r < routing->n_ranks; r++) {
    int32_t n = 0;
    for (int32_t i = routing->expert_at[r]; i < routing->expert_at[r + 1]; i++)
      ways->rows[n++] = (int32_t)((routing->tokens[i] + (uint32_t)degree - 1) / (uint32_t)degree);
    double s = n > 0 ? hec_work_experts_s(&low->problem->cluster->devices[r], shape, ways->rows, n, 1) : 0;
    max = s > max ? s : max;
  }
  return max;
}

static double degree_s(const hec_lowering *low, hec_ways *ways, int32_t degree, double travel_s, double latency_s) {
  double a2a_s = latency_s + (travel_s - latency_s) / degree, s = 0;
  for (int back = 0; back < (low->problem->train ? 2 : 1); back++)
    s += hec_degree_s(degree, (hec_chunk_time){a2a_s, experts_s(low, ways, degree, back == 1)});
  return s;
}

void hec_ways_choose(hec_lowering *low, hec_ways *ways, int32_t layer) {
  double latency_s, travel_s = exchange_s(low, ways, layer, &latency_s);
  if (travel_s <= 0 || low->problem->esp > 1)
    return;
  double whole_s = degree_s(low, ways, 1, travel_s, latency_s), best_s = whole_s;
  int32_t degree = 1;
  for (int32_t i = 1; i < HEC_N_DEGREES; i++) {
    double s = degree_s(low, ways, hec_degrees[i], travel_s, latency_s);
    if (s >= best_s)
      break; /* t falls until experts start too often */
    best_s = s;
    degree = hec_degrees[i];
  }
  if (!hec_nodes_choose(low, ways->nodes, layer, whole_s - best_s))
    low->layer[layer].degree = degree;
}
