/* See the header for what is computed. Keepers of a node stand next to each other, so nodes are found while walking. */
#include "runtime/plan/replicas.h"

typedef struct {
  const hec_problem *problem;
  int32_t expert, n, n_pieces, n_nodes;
  const int32_t *keeper; /* [n] */
} sharing;

/* Behind the last keeper of the node of keeper `first`. */
static int32_t node_end(const sharing *s, int32_t first) {
  int32_t end = first + 1, behind = hec_problem_node_end(s->problem, hec_problem_node(s->problem, s->keeper[first]));
  while (end < s->n && s->keeper[end] < behind)
    end++;
  return end;
}

/* Who sums piece j among the node's keepers first .. end - 1. */
static int32_t summing(const sharing *s, int32_t first, int32_t end, int32_t j) {
  return s->keeper[first + (j + s->expert) % (end - first)];
}

static void inside(const sharing *s, hec_replica_visit *visit, void *context) {
  for (int32_t first = 0, end; first < s->n; first = end) {
    end = node_end(s, first);
    for (int32_t j = 0; end - first > 1 && j < s->n_pieces; j++) {
      int32_t to = summing(s, first, end, j);
      for (int32_t i = first; i < end; i++)
        if (s->keeper[i] != to)
          visit(context, (hec_replica_piece){s->keeper[i], to, j, s->n_pieces});
    }
  }
}

static void between(const sharing *s, hec_replica_visit *visit, void *context) {
  for (int32_t j = 0; s->n_nodes > 1 && j < s->n_pieces; j++)
    for (int32_t a = 0, a_end; a < s->n; a = a_end) {
      a_end = node_end(s, a);
      for (int32_t b = 0, b_end, node = 0; b < s->n; b = b_end, node++) {
        b_end = node_end(s, b);
        if (a != b)
          visit(context, (hec_replica_piece){summing(s, a, a_end, j), summing(s, b, b_end, j), j * s->n_nodes + node,
                                             s->n_pieces * s->n_nodes});
      }
    }
}

int32_t hec_replica_keepers(const hec_plan *plan, int32_t layer, int32_t expert, int32_t *out) {
  hec_copies copies = hec_plan_copies(plan, layer, expert);
  int32_t count = 0;
  int32_t home = hec_plan_home(plan, layer, expert);
  bool home_done = false;
  for (int32_t i = 0; i < copies.n; i++) {
    if (copies.kind[i] != HEC_COPY_RESIDENT || (count > 0 && out[count - 1] == copies.rank[i]))
      continue;
    if (!home_done && home < copies.rank[i])
      out[count++] = home;
    home_done = home_done || home <= copies.rank[i];
    out[count++] = copies.rank[i];
  }
  if (!home_done && count > 0)
    out[count++] = home;
  return count;
}

hec_replica_own hec_replica_own_of(const hec_problem *problem, int32_t expert, int32_t rank) {
  int32_t n_pieces = 1, n_nodes = 0, here = 0, node = 0, place = 0;
  for (int32_t r = rank % problem->ep, last = -1, n = 0; problem->zero && r < problem->n_ranks; r += problem->ep) {
    int32_t of = hec_problem_node(problem, r);
    n = of == last ? n + 1 : 1;
    n_nodes += of != last;
    last = of;
    n_pieces = n > n_pieces ? n : n_pieces;
    if (r == rank) {
      node = n_nodes - 1;
      place = n - 1;
    }
    here += of == hec_problem_node(problem, rank);
  }
  if (!problem->zero)
    return (hec_replica_own){0, 1, 1, 1};
  int32_t piece = ((place - expert) % here + here) % here; /* the first that is summed here, see summing */
  return (hec_replica_own){.first = piece * n_nodes + node,
                           .stride = here * n_nodes,
                           .n = (n_pieces - piece + here - 1) / here,
                           .n_parts = n_pieces * n_nodes};
}

void hec_replica_pieces(const hec_problem *problem, int32_t expert, const int32_t *keeper, int32_t n,
                        hec_replica_step step, hec_replica_visit *visit, void *context) {
  sharing s = {.problem = problem, .expert = expert, .n = n, .keeper = keeper};
  for (int32_t first = 0, end; first < n; first = end, s.n_nodes++) {
    end = node_end(&s, first);
    s.n_pieces = end - first > s.n_pieces ? end - first : s.n_pieces;
  }
  if (step == HEC_REPLICA_INSIDE)
    inside(&s, visit, context);
  else
    between(&s, visit, context);
}
