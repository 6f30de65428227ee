/* MoETuner's second integer programme for a solver, y binary bijections of groups a to ranks g in every layer:
 *
 *   minimise sum_l m_l,   m_l >= flow_l[a][b] seconds[g][h] y_l[a][g] y_(l+1)[b][h]   for all a, b, g, h with g != h
 *
 * Up to four ranks a layer has at most 24 bijections. Then the programme is written over pairs of them: one pair (p,
 * q) for each two layers, its cost known beforehand:
 *
 *   minimise sum_l sum_pq cost_l[p][q] w_l[p][q],   sum_p w_l[p][q] = sum_r w_(l+1)[q][r] for all q,  sum_pq w_0[p][q] = 1
 *
 * That is a shortest path, integral as it stands. It is exact however many layers there are, as far as the memory kept
 * for it goes. Above, products are linearised row by row rather than one variable each (n^4 of them). Because the next
 * layer's y is a bijection, sum_b flow[a][b] y[b][h] is the flow that group a sends to rank h, and
 *
 *   m_l >= seconds[g][h] ( sum_b flow_l[a][b] y_(l+1)[b][h] - (1 - y_l[a][g]) max_b flow_l[a][b] )
 *
 * within a limit of nodes; above (layers - 1) n^3 = 1024 none.
 *
 * The bound without a solver: at most n pairs of groups share a rank. So the (n + 1)-th largest flow of two layers
 * crosses at least the fastest pair of ranks. */
#include "runtime/plan/planners/chain.h"

#include "runtime/base/status.h"

#include <string.h>

enum { ORDERS_MAX = 24, ARCS_MAX = 20000, ROWS_MAX = 1024, NODES_MAX = 100, LISTED_NODES_MAX = 100000 };
#define COST_MAX 1e6 /* costs are scaled to it: solvers tell 1e-5 apart */

/* All permutations in lexical order. */
static void list_orders(hec_chain_exact *x, int32_t n) {
  int32_t *now = x->order;
  for (int32_t i = 0; i < n; i++)
    now[i] = i;
  for (int32_t k = 1; k < x->n_orders; k++) {
    memcpy(now + n, now, (size_t)n * sizeof *now);
    now += n;
    int32_t i = n - 2, j = n - 1;
    while (now[i] > now[i + 1])
      i--;
    while (now[j] < now[i])
      j--;
    int32_t swapped = now[i];
    now[i] = now[j];
    now[j] = swapped;
    for (i++, j = n - 1; i < j; i++, j--) {
      swapped = now[i];
      now[i] = now[j];
      now[j] = swapped;
    }
  }
}

hec_chain_exact hec_chain_exact_new(hec_arena *arena, int32_t n_layers, int32_t n, const hec_solver *solver) {
  hec_chain_exact x = {.n_orders = 1,
                       .flow = HEC_NEW(arena, uint64_t, (size_t)n * (size_t)n),
                       .best = HEC_NEW(arena, int32_t, (size_t)n_layers * (size_t)n)};
  if (!solver || n_layers < 2 || n < 2)
    return x;
  for (int32_t i = 2; i <= n && x.n_orders <= ORDERS_MAX; i++)
    x.n_orders *= i;
  int64_t pairs = n_layers - 1, arcs = pairs * x.n_orders * x.n_orders, cells = (int64_t)n * n;
  x.listed = x.n_orders <= ORDERS_MAX && arcs <= ARCS_MAX;
  if (x.listed) {
    x.order = HEC_NEW(arena, int32_t, (size_t)x.n_orders * (size_t)n);
    list_orders(&x, n);
    x.milp = hec_milp_new(arena, (int32_t)arcs, (int32_t)pairs * x.n_orders + 1, 2 * arcs);
  } else if (pairs * cells * n <= ROWS_MAX) {
    x.milp = hec_milp_new(arena, (int32_t)(n_layers * cells + pairs), (int32_t)(2 * n_layers * n + pairs * cells * n),
                          2 * n_layers * cells + pairs * cells * n * (n + 2));
  }
  return x;
}

static double bound_of(hec_chain_exact *x, const hec_chain *c) {
  int32_t n = c->n;
  double fastest = -1, sum = 0;
  for (int32_t i = 0; i < n * n; i++)
    if (i / n != i % n && (fastest < 0 || c->seconds[i] < fastest))
      fastest = c->seconds[i];
  if (n < 2)
    return 0;
  for (int32_t l = 0; l + 1 < c->n_layers; l++) { /* the n + 1 largest, descending, by insertion */
    int32_t kept = 0;
    for (int32_t i = 0; i < n * n; i++) {
      uint64_t flow = c->flow[(size_t)l * (size_t)(n * n) + (size_t)i];
      int32_t at = kept;
      if (kept == n + 1 && x->flow[n] >= flow)
        continue;
      kept += kept <= n;
      for (at = kept - 1; at > 0 && x->flow[at - 1] < flow; at--)
        x->flow[at] = x->flow[at - 1];
      x->flow[at] = flow;
    }
    sum += (double)x->flow[n] * fastest;
  }
  return sum;
}

static double slowest(const hec_chain *c, int32_t l, const int32_t *from, const int32_t *to) {
  const uint64_t *flow = c->flow + (size_t)l * (size_t)c->n * (size_t)c->n;
  double max = 0;
  for (int32_t a = 0; a < c->n; a++)
    for (int32_t b = 0; b < c->n; b++) {
      double s = (double)flow[a * c->n + b] * c->seconds[from[a] * c->n + to[b]];
      max = s > max ? s : max;
    }
  return max;
}

/* Rows: one of the first layer's pairs, then layer by layer its bijections: in less out. */
static void write_listed(hec_chain_exact *x, const hec_chain *c, double scale) {
  int32_t k = x->n_orders, n = c->n;
  (void)hec_milp_row(&x->milp, 1, 1);
  for (int32_t i = 0; i < (c->n_layers - 2) * k; i++)
    (void)hec_milp_row(&x->milp, 0, 0);
  for (int32_t l = 0; l + 1 < c->n_layers; l++)
    for (int32_t p = 0; p < k; p++)
      for (int32_t q = 0; q < k; q++) {
        (void)hec_milp_column(&x->milp, scale * slowest(c, l, x->order + p * n, x->order + q * n), 1, true);
        hec_milp_entry(&x->milp, l > 0 ? 1 + (l - 1) * k + p : 0, l > 0 ? -1 : 1);
        if (l + 2 < c->n_layers)
          hec_milp_entry(&x->milp, 1 + l * k + q, 1);
      }
}

static bool read_listed(hec_chain_exact *x, const hec_chain *c) {
  int32_t k = x->n_orders, n = c->n, l = 0, last = -1;
  for (int32_t j = 0; j < x->milp.n_columns; j++) {
    if (x->milp.x[j] < 0.5)
      continue;
    int32_t p = j / k % k, q = j % k;
    if (j / k / k != l || (l > 0 && p != last))
      return false;
    memcpy(x->best + (ptrdiff_t)l * n, x->order + (ptrdiff_t)p * n, (size_t)n * sizeof *x->best);
    memcpy(x->best + (ptrdiff_t)(l + 1) * n, x->order + (ptrdiff_t)q * n, (size_t)n * sizeof *x->best);
    last = q;
    l++;
  }
  return l + 1 == c->n_layers;
}

static uint64_t max_of(const uint64_t *row, int32_t n) {
  uint64_t max = 0;
  for (int32_t b = 0; b < n; b++)
    max = row[b] > max ? row[b] : max;
  return max;
}

/* Rows: of each layer its groups, its ranks; then (l, a, g, h). Columns: (l, group, rank); then the m_l. */
static void write_compact(hec_chain_exact *x, const hec_chain *c, double scale) {
  int32_t n = c->n, cells = n * n, first = 2 * c->n_layers * n;
  hec_milp *m = &x->milp;
  for (int32_t i = 0; i < first; i++)
    (void)hec_milp_row(m, 1, 1);
  for (int32_t i = 0; i < (c->n_layers - 1) * cells * n; i++) {
    int32_t g = i / n % n, h = i % n;
    uint64_t max = max_of(c->flow + (ptrdiff_t)(i / cells) * n, n); /* of (l, a) */
    (void)hec_milp_row(m, -(double)max * c->seconds[g * n + h] * scale, HEC_MILP_FREE);
  }
  for (int32_t l = 0; l < c->n_layers; l++)
    for (int32_t a = 0; a < n; a++)
      for (int32_t g = 0; g < n; g++) {
        (void)hec_milp_column(m, 0, 1, true);
        hec_milp_entry(m, 2 * l * n + a, 1);
        hec_milp_entry(m, (2 * l + 1) * n + g, 1);
        for (int32_t h = 0; h < n && l + 1 < c->n_layers; h++) { /* sends to h */
          double max = (double)max_of(c->flow + (ptrdiff_t)l * cells + (ptrdiff_t)a * n, n);
          if (h != g)
            hec_milp_entry(m, first + ((l * n + a) * n + g) * n + h, -max * c->seconds[g * n + h] * scale);
        }
        for (int32_t i = 0; i < cells && l > 0; i++) { /* from group i / n on rank i % n, to this one on g */
          double flow = (double)c->flow[(ptrdiff_t)(l - 1) * cells + (ptrdiff_t)(i / n) * n + a];
          if (i % n != g && flow > 0)
            hec_milp_entry(m, first + (((l - 1) * n + i / n) * n + i % n) * n + g,
                           -flow * c->seconds[i % n * n + g] * scale);
        }
      }
  for (int32_t l = 0; l + 1 < c->n_layers; l++) {
    (void)hec_milp_column(m, 1, HEC_MILP_FREE, false);
    for (int32_t i = 0; i < cells * n; i++)
      hec_milp_entry(m, first + l * cells * n + i, 1);
  }
}

static bool read_compact(hec_chain_exact *x, const hec_chain *c) {
  int32_t n = c->n;
  for (int32_t l = 0; l < c->n_layers; l++) {
    uint64_t *used = x->flow;
    memset(used, 0, (size_t)n * sizeof *used);
    for (int32_t a = 0; a < n; a++) {
      int32_t rank = -1, n_ranks = 0;
      for (int32_t g = 0; g < n; g++)
        if (x->milp.x[(l * n + a) * n + g] > 0.5) {
          rank = g;
          n_ranks++;
        }
      if (n_ranks != 1 || used[rank]++ > 0)
        return false;
      x->best[l * n + a] = rank;
    }
  }
  return true;
}

hec_chain_verdict hec_chain_improve(hec_chain_exact *x, hec_chain *c, const hec_solver *solver) {
  double sum, was = hec_chain_seconds(c, &sum);
  hec_chain_verdict verdict = {.bound_s = bound_of(x, c)};
  verdict.proven = was <= verdict.bound_s;
  if (verdict.proven || !solver || x->milp.columns_max == 0)
    return verdict;
  double scale = COST_MAX / was;
  hec_milp_clear(&x->milp);
  (x->listed ? write_listed : write_compact)(x, c, scale);
  hec_milp_answer answer = solver->solve(&x->milp, x->listed ? LISTED_NODES_MAX : NODES_MAX);
  verdict.tried = true;
  verdict.proven = answer.proven;
  if (answer.found && (x->listed ? read_listed : read_compact)(x, c)) {
    size_t bytes = (size_t)c->n_layers * (size_t)c->n * sizeof *c->rank;
    memcpy(c->start, c->rank, bytes);
    memcpy(c->rank, x->best, bytes);
    double now = hec_chain_seconds(c, &sum);
    verdict.improved = now < was * (1 - 1e-12); /* sums of the same terms round alike or almost */
    if (!verdict.improved)
      memcpy(c->rank, c->start, bytes);
    was = verdict.improved ? now : was;
  }
  double bound = answer.bound / scale * (1 - 1e-9);
  verdict.bound_s = verdict.proven ? was : bound > verdict.bound_s ? bound : verdict.bound_s;
  verdict.bound_s = verdict.bound_s < was ? verdict.bound_s : was;
  return verdict;
}
