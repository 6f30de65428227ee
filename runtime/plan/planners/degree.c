/* See the header for the formula. Backward has the same all-to-alls and the experts' backward. That the sum of both passes
 * is what one common degree minimises is inferred (the paper's text was not at hand). Balanced loads, an
 * expert-parallel group of G: each rank sends k T / G assignments to each, and computes k T of ceil(E / G) experts:
 *
 *   a(r) = closed form of an exchange of k T token / (G r) bytes between all pairs of each group
 *   x(r) = max over ranks of ceil(E/G) * gemm(k T / (ceil(E/G) r))          tiles and weight streaming as the law has them
 *
 * O(R G) per degree. */
#include "runtime/plan/planners/degree.h"

#include "models/link_cost.h"
#include "runtime/base/arena.h"
#include "runtime/plan/problem.h"

const int32_t hec_degrees[HEC_N_DEGREES] = {1, 2, 4, 8};

double hec_degree_s(int32_t degree, hec_chunk_time chunk) {
  double travel_s = 2 * degree * chunk.a2a_s, compute_s = 2 * chunk.a2a_s + degree * chunk.experts_s;
  return travel_s > compute_s ? travel_s : compute_s;
}

int32_t hec_degree_best(const hec_chunk_time *forward, const hec_chunk_time *backward) {
  int32_t best = 0;
  double best_s = 0;
  for (int32_t i = 0; i < HEC_N_DEGREES; i++) {
    double s = hec_degree_s(hec_degrees[i], forward[i]) + (backward ? hec_degree_s(hec_degrees[i], backward[i]) : 0);
    best = i == 0 || s < best_s ? i : best;
    best_s = best == i ? s : best_s;
  }
  return hec_degrees[best];
}

/* `bytes` from every rank to its like in every group of its expert-parallel group; `inside`: to every other rank of its
 * expert-sharding group. */
static double exchange_s(const hec_problem *p, double bytes, bool inside, hec_arena *arena) {
  hec_arena_mark mark = hec_arena_save(arena);
  hec_transfer *transfers = HEC_NEW(arena, hec_transfer, (size_t)p->n_ranks * (size_t)(inside ? p->esp : p->ep));
  hec_link_cost cost = hec_link_cost_new(p->cluster, arena);
  int32_t n = 0, step = inside ? 1 : p->esp, width = inside ? p->esp : p->ep * p->esp;
  for (int32_t s = 0; s < p->n_ranks; s++)
    for (int32_t d = s / width * width + s % step; d < (s / width + 1) * width; d += step)
      if (d != s && bytes >= 1)
        transfers[n++] =
            (hec_transfer){.bytes = (int64_t)bytes, .source = s, .destination = d, .item = -1, .after = -1};
  double s = n > 0 ? hec_link_cost_exchange(&cost, transfers, n, false, 1) : 0;
  hec_link_cost_free(&cost);
  hec_arena_rewind(arena, mark);
  return s;
}

hec_chunk_time hec_degree_balanced(const hec_problem *problem, int32_t degree, bool backward, hec_arena *arena) {
  double assignments = (double)problem->tokens * problem->top_k / degree, rows = assignments * problem->bytes.token;
  int32_t experts = hec_problem_share(problem);
  hec_work_shape shape = backward ? hec_work_backward_of(problem->moe, problem->expert) : problem->expert;
  hec_chunk_time chunk = {.a2a_s = exchange_s(problem, rows / problem->ep, false, arena)};
  for (int32_t r = 0; r < problem->n_ranks; r++) {
    double s = experts * hec_work_s(&problem->cluster->devices[r], &shape, assignments * problem->esp / experts);
    chunk.experts_s = s > chunk.experts_s ? s : chunk.experts_s;
  }
  if (problem->esp > 1) {
    double added_s = 0;
    for (int32_t r = 0; r < problem->n_ranks; r++) {
      double s = hec_local_s(&problem->cluster->devices[r], HEC_CURVE_NONE, false, rows * (problem->esp + 1));
      added_s = s > added_s ? s : added_s;
    }
    chunk.a2a_s += exchange_s(problem, rows, true, arena) + added_s / 2;
  }
  return chunk;
}

int32_t hec_degree_of(const hec_problem *problem, hec_arena *arena) {
  hec_chunk_time forward[HEC_N_DEGREES], backward[HEC_N_DEGREES];
  for (int32_t i = 0; i < HEC_N_DEGREES; i++) {
    forward[i] = hec_degree_balanced(problem, hec_degrees[i], false, arena);
    backward[i] = hec_degree_balanced(problem, hec_degrees[i], true, arena);
  }
  return hec_degree_best(forward, problem->train ? backward : NULL);
}
