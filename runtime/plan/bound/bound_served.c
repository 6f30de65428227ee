/* Tokens or copies: what a bound charges for serving each expert's tokens where they are (bound_time.c has the notation).
 *
 * A unit is a rank, or a node. n_eu: tokens for expert e in a layer that unit u has. y_eu = 1 where somebody in u computes e,
 * else 0. With y_eu = 0 all n_eu leave the unit, come back, and in training do so twice. With y_eu = 1 none may have to, but
 * u has a copy of e. One unit, where e is at home, has none to return. Every other returns its gradient of G bytes (an
 * M-th of it for a micro-batch, as in bound_time.c). Of J copies that are returned, then,
 *
 *   tokens   Q >= sum of n_eu - (the largest n_eu of each e) - (the J largest of the others)   leave their unit
 *   copies   J G bytes leave it
 *
 * J is all that is left to choose: the bound is the least over J. Exchanges of tokens raise A (bound_time.c) in dispatch,
 * combine and, backward, both again. Each takes a rank the bytes that leave it, over its links:
 *
 *   x(J) = min(o) Q row / (links of a rank)         links: port and NICs for ranks, NICs for nodes
 *   c(J) = min(o) J G / (links of a rank)
 *
 *   experts wait          forward  max(x, shared) + computing + x,     backward  x + computing + x
 *   chunks                forward  max(2 x, computing and shared),     backward  max(2 x, computing)
 *   once per node         as `experts wait`, with x / K (bound_time.c). Such rows are not cut (nodes.h), so a schedule that has
 *                         both has in each layer one of them
 *
 * Two ends follow. After backward come the reduction of what no block has (it waits for the last backward) and the
 * optimizer. And gradients of copies return on one lane, none before the first forward has ended, and the optimizer waits for
 * them. With F, B: all that raises A in the first forward, in all of the iteration; over all layers and micro-batches
 *
 *   T >= B + sum (forward + backward)(J) + reduction + optimizer
 *   T >= F + (sum of the first forward + c)(J) + optimizer
 *
 * Each J moves time from one to the other. For any price 0 <= p <= 1, T is at least (1 - p) times the first and p times the
 * second. That is a sum over layers. So each layer's J may be the best for itself (Lagrange; a sum of minima is a
 * lower bound of the minimum). The bound is the largest over PRICES prices and both kinds of unit: no price is wrong,
 * some are sharper.
 *
 * SHARDED: nobody has a whole expert, so every unit that computes e returns what it lacks of it: the first one too.
 * Forward only: replicas are everywhere and nothing moves; with slices nothing returns, and bound_time.c has what is gathered.
 *
 * O(units * experts * (log + PRICES)) per layer. */
#include "runtime/plan/bound/bound_state.h"
#include "runtime/plan/problem.h"

#include <stdlib.h>

static int fewer(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x < y) - (x > y);
}

/* A kind of unit in a layer. */
typedef struct {
  int32_t n, n_first;   /* pairs that may have a copy to return; experts with tokens: SHARDED, one more of each */
  double tokens;        /* Q without copies */
  double row_s, once_s; /* x of a row; the same where rows travel once per node */
  double copy_s;        /* c of a copy */
} units;

/* The pairs but the largest of each expert, most tokens first, into b->pair. */
static units count(hec_bound *b, const hec_load *load, int32_t layer, bool nodes) {
  const hec_problem *p = b->problem;
  units u = {0};
  int32_t width = nodes ? p->cluster->devices_per_node : 1;
  for (int32_t e = 0; e < p->n_experts; e++) {
    uint32_t largest = 0;
    for (int32_t first = 0; first < p->n_ranks; first += width) {
      uint32_t n = 0;
      for (int32_t s = first; s < first + width && s < p->n_ranks; s++)
        n += hec_load_row(load, layer, s)[e];
      if (n == 0)
        continue;
      uint32_t other = n < largest ? n : largest;
      largest = n > largest ? n : largest;
      if (other > 0)
        b->pair[u.n++] = other;
      u.tokens += (double)other;
    }
    u.n_first += largest > 0;
  }
  qsort(b->pair, (size_t)u.n, sizeof *b->pair, fewer);
  return u;
}

/* Bytes that a copy returns in a micro-batch. */
static double copy_bytes(const hec_bound *b, bool nodes) {
  const hec_problem *p = b->problem;
  if (!p->train)
    return 0;
  if (b->options.class == HEC_BOUND_COPIES)
    return p->bytes.expert_grad / b->options.n_micro_batches;
  double params = hec_moe_expert_params(p->moe), slack = params > 0 ? 1 / params : 1; /* a slice: whole parameters */
  double own = nodes ? p->cluster->devices_per_node : 1;
  return larger(1 - own * (1.0 / p->n_ranks + slack), 0) * p->bytes.expert_grad;
}

/* Forward and backward of a layer, beyond computing, where each exchange takes x. */
typedef struct {
  double forward, backward;
} beyond;

static beyond waiting_s(const hec_bound *b, double x) {
  return (beyond){larger(x - b->shared_s[0], 0) + x, b->problem->train ? 2 * x : 0};
}

static beyond beside_s(const hec_bound *b, const hec_bound_rise *rise, double x) {
  double back = b->problem->train ? larger(2 * x - rise->experts_s[1], 0) : 0;
  return (beyond){larger(2 * x - rise->experts_s[0] - b->shared_s[0], 0), back};
}

/* The least over J at a price. All is convex in J, as copies save less and less, so it is where the sum first grows. */
static double least_s(const hec_bound *b, const hec_bound_rise *rise, const units *u, double price, bool once) {
  bool first = b->done == 1, sharded = b->options.class == HEC_BOUND_SHARDED;
  double min_s = -1, left = u->tokens, always = sharded ? u->n_first : 0;
  for (int32_t j = 0; j <= u->n; j++) {
    double x = left * (once ? u->once_s : u->row_s);
    beyond s = once || b->options.tokens_wait ? waiting_s(b, x) : beside_s(b, rise, x);
    double sum_s =
        (1 - price) * (s.forward + s.backward) + price * ((first ? s.forward : 0) + (always + j) * u->copy_s);
    if (min_s >= 0 && sum_s >= min_s)
      break;
    min_s = sum_s;
    left -= j < u->n ? (double)b->pair[j] : 0;
  }
  return min_s;
}

static void add_units(hec_bound *b, const hec_bound_rise *rise, const units *u, double *served_s) {
  bool once = b->options.by_node, plain = !once || !b->options.tokens_wait;
  for (int32_t k = 0; k < HEC_BOUND_PRICES; k++) {
    double price = hec_bound_price(k), s = plain ? least_s(b, rise, u, price, false) : 0;
    double once_s = once ? least_s(b, rise, u, price, true) : s;
    served_s[k] += plain ? smaller(s, once_s) : once_s;
  }
}

void hec_bound_add_served(hec_bound *b, const hec_load *load, int32_t layer, double per_row) {
  const hec_problem *p = b->problem;
  for (int nodes = 0; nodes < 2; nodes++) {
    double rate = nodes ? b->nics : b->rank_rate;
    if (rate <= 0)
      continue;
    units u = count(b, load, layer, nodes == 1);
    double row = b->token_factor * hec_bound_row_bytes(p);
    u.row_s = b->min_weight * row / rate;
    u.once_s = u.row_s / per_row;
    u.copy_s = b->min_weight * b->moved_factor * copy_bytes(b, nodes == 1) / rate;
    add_units(b, &b->rise[layer], &u, b->served_s[nodes]);
  }
}

double hec_bound_served_s(const hec_bound *b, double rest_s) {
  double max_s = 0;
  for (int nodes = 0; nodes < 2; nodes++)
    for (int32_t k = 0; k < HEC_BOUND_PRICES; k++) {
      double price = hec_bound_price(k);
      max_s = larger(max_s, (1 - price) * (b->chain_s + rest_s) + price * b->forward_s + b->served_s[nodes][k]);
    }
  return max_s;
}
