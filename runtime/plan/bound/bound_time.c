/* A lower bound of the time of an iteration for a class of policies, from the cluster's laws.
 *
 * Notation. c_r: seconds of one assignment on rank r, as the expert law has it without launches, tiles and streaming.
 * Where there is a measured curve: the least seconds a row. Weights o_r = (1/c_r) / sum 1/c. A: the mean over ranks,
 * with these weights, of the time at which a rank's compute lane reaches a point. An iteration ends no earlier than A
 * does.
 *
 *   computing   Whatever rank computes them, n assignments raise A by at least n min(o_r c_r) = n / sum(1/c): sum over r
 *               of o_r x_r c_r with sum x_r = n. Attention, gate and the rest raise it by their weighted means. The law
 *               of a rank is at least linear: launches, tiles and streaming only add.
 *   permutes    Every rank reads and writes its own assigned rows four times (twice forward only), whoever computes them:
 *               at least min(o_r / hbm_r) for each byte.
 *   counts      After each gate all ranks wait for each other's counts: where the law has a closed form, A rises by it.
 *   all-reduce  starts when the last rank is there, so not before A; one at a time; the optimizer after the last, over
 *               an even share on the fullest rank at least. As schedule `ideal` has them. The head's starts before the
 *               backward of the layers, or is with the embedding's after it (hec_problem_head_gradients). With tensor parallelism
 *               (problem.mp) two of each: of what is cut, among ranks of equal place, and of what is whole; its AllGathers
 *               and ReduceScatters, inside nodes, are left out: they only add.
 *
 * WHOLE, pieces p = (group, expert) with tokens n_sp of source s, w_p in all:
 *   exchange    At least V = sum over p of (w_p - max_s n_sp) rows leave their source's rank and Q = sum over p of
 *               (w_p - max over nodes of n) leave its node: even the best place of p is one rank of one node.
 *               A rises by the weighted mean of the time that sources take for their own rows, which is at least
 *               min(o) times the largest of  V / (port + NICs of a rank),  Q / (NICs of a rank),
 *               (Q/B)(Q/(N T) + 1)/2  with B of a node's NICs, T rows of the busiest source: ranks of a node end one
 *               after the other however its NICs are shared; ended last and as large as may be sums up to the min.
 *   busiest     Sources of a piece wait for its rank, which takes its rows in (from its best place) and then computes:
 *               A rises by at least phi (d + w c), phi the weight of the sources. Likewise for k+1 pieces that share a
 *               rank (`whole` in bound.h), with the min phi of the candidates and no d.
 *               These are alternatives: the larger counts.
 * Expert-sharding groups (problem.h; s = esp ranks each, ep groups): as WHOLE with groups for ranks, c_r of a shard's row.
 *   computing   n assignments are n rows on each rank of a group, so A rises by at least s n min(o_r c_r).
 *   exchange    V is of rows that leave their source's group: w_p - max over groups of n_gp.
 *   gather      AllGather and ReduceScatter bring each of n rows, or a part of it, to s - 1 other ranks of a node: each raises A
 *               by at least min(o) (s-1) n row / port; the additions by min(o_r / hbm_r) (s+1) n row.
 *   busiest     A rank of the group on which a_j of w rows arrive sends (s-1) a_j and takes in w - a_j, the ReduceScatter
 *               the other way round: at least g = w row (s-1) / (s port) either way, whatever a_j is. Nobody adds before all
 *               have computed, so sources wait for d + g + w c + g, d of the index with most to take in.
 * In training dispatch and combine come back with gradients: the same rows twice more, and computing by the backward law.
 *
 * COPIES, training: a rank whose tokens go to expert e sends 2 n rows in a micro-batch (inputs, gradients of outputs), or
 * computes. Who computes sends its gradient of G bytes, as a copy, or has a replica whose gradient is reduced. That is
 * once an iteration, of which a micro-batch is given G/M. One rank, the home, sends neither. However replicas are
 * reduced (replicas.h, or over all pairs), n of them on m nodes send 2 (n-1) G >= (n-1) G together. Their nodes send 2
 * (m-1) G >= (m-1) G: G for each of them but one. So, of a micro-batch,
 *     V' = sum over e of (sum over s of m_se - max_s m_se),  m_se = min(2 n row, G/M);  per node likewise
 * leave ranks over two lanes (tokens, gradients), which the closed-form law lets run side by side, so
 *     time >= V' / (2 sum over r of (port + NICs)).  Forward only: replicas are everywhere, nothing moves.
 * SHARDED: whoever computes e first lacks (R-1)/R of it: U = that many bytes for each e with tokens, gathered on one lane
 * (returned on another), and others as in COPIES:  time >= max(U, (U + V')/2) / sum. All of this may hide, so it is
 * compared with the rest, not added. What of it cannot hide, since experts or the optimizer wait for it: bound_served.c.
 *
 * A schedule that may send a token once per node (program/nodes.h): a row serves at most as many assignments as a
 * token has, K. It comes over any NIC of the node: V/K, Q/K, m_se with a row's K-th part, and nothing from other nodes
 * in d.
 *
 * A schedule that does not make experts wait for tokens gets the larger of computing and exchanging. Then all-reduces,
 * which it may cut into pieces, after what they reduce. It may cut a layer's exchange into chunks, whose busiest
 * sources differ. Of the ranks of a node that end one after the other only (Q/B)/2 is left. For each chunk, ended half
 * way on average, adds half of its own.
 *
 * A time is a whole number of picoseconds, rounded where an operation ends. That is down by half of one at most, for
 * each of the operations one after the other that the sums above stand for. Their number is taken as OPERATIONS a
 * layer, forward and backward, in however many chunks, and as many for the rest of a micro-batch. So much is taken off
 * in the end. */
#include "runtime/plan/bound/bound_state.h"
#include "runtime/plan/problem.h"

#include <stdlib.h>
#include <string.h>

enum { OPERATIONS = 128 };

/* ---- Tokens that leave ranks and nodes ---- */

typedef struct {
  double rank, node; /* rows, or bytes, that leave their rank, their node at least */
} leaving;

/* Of the sources first..end-1: what each expert has in all (b->total), at most on one source and on one node; m = min(n,
 * most). */
static leaving count_leaving(hec_bound *b, const hec_load *load, int32_t layer, int32_t first, int32_t end, double row,
                             double max) {
  const hec_problem *p = b->problem;
  int32_t n_experts = p->n_experts;
  uint64_t *here = b->node, *best = b->node + n_experts, *group = b->largest + n_experts;
  leaving sum = {0, 0};
  memset(b->total, 0, (size_t)n_experts * sizeof *b->total);
  memset(b->largest, 0, 2 * (size_t)n_experts * sizeof *b->largest);
  memset(b->node, 0, 2 * (size_t)n_experts * sizeof *b->node);
  for (int32_t s = first; s < end; s++) {
    const uint32_t *count = hec_load_row(load, layer, s);
    for (int32_t e = 0; e < n_experts; e++) {
      b->total[e] += count[e];
      here[e] += count[e];
      group[e] = s % p->esp == 0 ? count[e] : group[e] + count[e];
      b->largest[e] = group[e] > b->largest[e] ? group[e] : b->largest[e];
      sum.rank += smaller(row * count[e], max);
    }
    if (s + 1 < end && hec_problem_node(p, s + 1) == hec_problem_node(p, s))
      continue;
    for (int32_t e = 0; e < n_experts; e++) {
      best[e] = here[e] > best[e] ? here[e] : best[e];
      sum.node += smaller(row * (double)here[e], max);
      here[e] = 0;
    }
  }
  for (int32_t e = 0; e < n_experts; e++) {
    sum.rank -= smaller(row * (double)b->largest[e], max);
    sum.node -= smaller(row * (double)best[e], max);
  }
  return (leaving){larger(sum.rank, 0), larger(sum.node, 0)};
}

/* ---- WHOLE ---- */

static double exchange_s(const hec_bound *b, leaving bytes, double busiest) {
  const hec_problem *p = b->problem;
  double s = b->rank_rate > 0 ? bytes.rank / b->rank_rate : 0;
  if (b->nics > 0 && busiest > 0) {
    double one_by_one = b->options.tokens_wait ? (bytes.node / (p->n_nodes * busiest) + 1) / 2 : 0.5;
    s = larger(s, bytes.node / b->nics);
    s = larger(s, bytes.node / b->node_nics * one_by_one);
  }
  return b->min_weight * b->token_factor * s;
}

static int descending(const void *a, const void *b) {
  const hec_bound_piece *x = a, *y = b;
  return x->tokens != y->tokens ? (x->tokens < y->tokens) - (x->tokens > y->tokens) : x->index - y->index;
}

/* Seconds of the rows into the rank, or those of a sharding group at `place`, that computes the piece. Of near sources
 * all but the largest come by a port (of a group: all but its own), far ones by NICs. It is that of the rank with most.
 */
static double inward_at_s(const hec_bound *b, const hec_load *load, int32_t layer, const hec_bound_piece *largest,
                          int32_t place) {
  const hec_problem *p = b->problem;
  int32_t expert = largest->index % p->n_experts, piece_group = largest->index / p->n_experts;
  int32_t first = hec_problem_node(p, place) * p->cluster->devices_per_node, width = p->n_ranks / p->dp;
  int32_t end = hec_problem_node_end(p, hec_problem_node(p, place));
  double longest_s = 0;
  for (int32_t index = 0; index < p->esp; index++) {
    uint64_t near = 0, own = 0, far = 0;
    for (int32_t s = index; s < p->n_ranks; s += p->esp) {
      uint64_t n = s / width == piece_group ? hec_load_row(load, layer, s)[expert] : 0;
      bool inside = s >= first && s < end, is_own = p->esp == 1 ? n > own : s / p->esp == place / p->esp;
      near += inside ? n : 0;
      far += inside ? 0 : n;
      own = inside && is_own ? n : own;
    }
    double s = near > own ? (double)(near - own) * hec_bound_row_bytes(p) / b->port : 0;
    if (far > 0 && !b->options.by_node)
      s = larger(s, (double)far * hec_bound_row_bytes(p) / b->nics);
    longest_s = larger(longest_s, s);
  }
  return longest_s;
}

/* The least over all places: nodes, where the rank with most rows is the best, or groups. */
static double inward_s(const hec_bound *b, const hec_load *load, int32_t layer, const hec_bound_piece *largest) {
  const hec_problem *p = b->problem;
  int32_t step = p->esp == 1 ? p->cluster->devices_per_node : p->esp;
  double min = -1;
  for (int32_t place = 0; place < p->n_ranks; place += step) {
    double s = inward_at_s(b, load, layer, largest, place);
    min = min < 0 ? s : smaller(min, s);
  }
  return min * b->token_factor;
}

/* Of `rows` in all of a sharding group: what its AllGather, or its ReduceScatter, takes at least on any rank of it. */
static double gather_s(const hec_bound *b, double rows) {
  int32_t esp = b->problem->esp;
  return esp > 1 ? b->moved_factor * rows * b->problem->bytes.token * (esp - 1) / (esp * b->port) : 0;
}

static double waiting_of(const hec_bound *b, const hec_load *load, int32_t layer, const hec_bound_piece *one) {
  const hec_problem *p = b->problem;
  int32_t expert = one->index % p->n_experts, width = p->n_ranks / p->dp, first = one->index / p->n_experts * width;
  double sum = 0;
  for (int32_t s = first; s < first + width; s++)
    sum += hec_load_row(load, layer, s)[expert] > 0 ? b->weight[s] : 0;
  return sum;
}

/* The busiest rank: the largest piece alone, and k+1 of the kR+1 largest together. */
static void add_busiest(hec_bound *b, const hec_load *load, int32_t layer, hec_bound_rise *rise) {
  const hec_problem *p = b->problem;
  qsort(b->pieces, (size_t)b->n_pieces, sizeof *b->pieces, descending);
  double waiting = 1;
  for (int32_t last = 0, k = 0, next = 0; last < b->n_pieces && b->pieces[last].tokens > 0;
       last += p->n_ranks / p->esp, k++) {
    for (; next <= last; next++)
      waiting = smaller(waiting, waiting_of(b, load, layer, &b->pieces[next]));
    double together = 0;
    for (int32_t i = last - k; i <= last; i++)
      together += (double)b->pieces[i].tokens;
    double gather = gather_s(b, together), inward = k == 0 ? inward_s(b, load, layer, &b->pieces[0]) + gather : gather;
    for (int back = 0; back < 2; back++) {
      double ahead = back == 0 ? larger(inward, b->min_shared_s) : inward;
      double busiest_s = waiting * (ahead + together * b->min_row_s[back] + gather);
      rise->busiest_s[back] = larger(rise->busiest_s[back], busiest_s);
    }
  }
}

/* Assignments that a row may serve. */
static double per_row(const hec_bound *b, const hec_load *load, int32_t layer) {
  const hec_problem *p = b->problem;
  uint64_t max = 1;
  for (int32_t s = 0; b->options.by_node && s < p->n_ranks; s++) {
    uint64_t sum = 0;
    for (int32_t e = 0; e < p->n_experts; e++)
      sum += hec_load_row(load, layer, s)[e];
    uint64_t each = (sum + (uint64_t)p->tokens - 1) / (uint64_t)p->tokens;
    max = each > max ? each : max;
  }
  return (double)max;
}

static void add_whole(hec_bound *b, const hec_load *load, int32_t layer, hec_bound_rise *rise) {
  const hec_problem *p = b->problem;
  leaving bytes = {0, 0};
  uint64_t busiest = 0;
  for (int32_t group = 0, width = p->n_ranks / p->dp; group < p->dp; group++) {
    leaving own = count_leaving(b, load, layer, group * width, (group + 1) * width, hec_bound_row_bytes(p), 1e300);
    bytes.rank += own.rank;
    bytes.node += own.node;
    for (int32_t e = 0; e < p->n_experts; e++)
      b->pieces[group * p->n_experts + e] = (hec_bound_piece){.tokens = b->total[e], .index = group * p->n_experts + e};
  }
  for (int32_t s = 0; s < p->n_ranks; s++) {
    uint64_t sum = 0;
    for (int32_t e = 0; e < p->n_experts; e++)
      sum += hec_load_row(load, layer, s)[e];
    busiest = sum > busiest ? sum : busiest;
  }
  bytes.rank /= per_row(b, load, layer);
  bytes.node /= per_row(b, load, layer);
  double n = (double)hec_load_layer_total(load, layer);
  rise->exchange_s = exchange_s(b, bytes, (double)busiest * hec_bound_row_bytes(p));
  rise->gather_s = b->min_weight * p->esp * gather_s(b, n); /* all ranks of all groups together */
  rise->add_s = p->esp > 1 ? n * b->add_s : 0;
  add_busiest(b, load, layer, rise);
}

/* ---- What must move for copies ---- */

static void add_moved(hec_bound *b, const hec_load *load, int32_t layer, double per_row) {
  const hec_problem *p = b->problem;
  const hec_memory_cost *bytes = &p->bytes;
  bool sharded = b->options.class == HEC_BOUND_SHARDED;
  double row = (p->train ? 2 : 1) * hec_bound_row_bytes(p) / per_row, used = 0, params = hec_moe_expert_params(p->moe);
  double part = (double)(p->n_ranks - 1) / p->n_ranks,
         slack = params > 0 ? 1 / params : 1; /* a slice: whole parameters */
  part = sharded ? larger(part - slack, 0) : 1;
  double copy =
      p->train ? part * bytes->expert_grad / (sharded ? 1 : b->options.n_micro_batches) : part * bytes->expert_param;
  if (!p->train && !sharded) /* replicas everywhere cost nothing */
    copy = 0;
  leaving min = count_leaving(b, load, layer, 0, p->n_ranks, row, copy);
  for (int32_t e = 0; e < p->n_experts; e++)
    used += b->total[e] > 0;
  double lacking = sharded ? used * part * larger(p->train ? bytes->expert_grad : 0, bytes->expert_param) : 0;
  double returned = sharded ? used * copy : 0, ranks = p->n_ranks;
  double s = larger(lacking, (returned + min.rank) / 2) / (ranks * b->rank_rate);
  if (!sharded && b->nics > 0)
    s = larger(s, min.node / (2 * ranks * b->nics));
  b->moved_s += s * b->moved_factor;
}

/* ---- An iteration ---- */

void hec_bound_begin(hec_bound *b, hec_bound_case options) {
  b->options = options;
  b->done = 0;
  b->chain_s = b->reduced_s = b->forward_s = b->token_s = b->inside_s = b->moved_s = 0;
  memset(b->served_s, 0, sizeof b->served_s);
}

static void look_at(hec_bound *b, const hec_load *load, int32_t layer) {
  const hec_problem *p = b->problem;
  hec_bound_rise *rise = &b->rise[layer];
  double n = (double)hec_load_layer_total(load, layer);
  *rise = (hec_bound_rise){.experts_s = {n * b->row_s[0], n * b->row_s[1]}, .permuted_s = n * b->permuted_s};
  if (b->options.class == HEC_BOUND_WHOLE) {
    add_whole(b, load, layer, rise);
  } else if (p->esp == 1 && p->n_ranks > 1) {
    double row = per_row(b, load, layer);
    add_moved(b, load, layer, row);
    hec_bound_add_served(b, load, layer, row);
  }
  b->token_s += (p->train ? 4 : 2) * rise->exchange_s;
  b->inside_s += (p->train ? 2 : 1) * (2 * rise->gather_s + rise->add_s);
}

/* What a layer adds to A from its gate on (forward) or until its gate (backward). The schedule may compute shared experts
 * beside the forward dispatch; if it cuts tokens, all of them beside the tokens. */
static double rise_of(const hec_bound *b, const hec_bound_rise *rise, int back) {
  double shared_s[2] = {back == 0 ? b->shared_s[0] : 0, back == 1 ? b->shared_s[1] : 0};
  double ahead_s = rise->exchange_s + rise->gather_s, experts_s = rise->experts_s[back];
  double beside_s = larger(2 * rise->exchange_s, 2 * rise->gather_s + rise->add_s);
  double s = b->options.tokens_wait
                 ? larger(larger(ahead_s, shared_s[0]) + experts_s + ahead_s + rise->add_s, rise->busiest_s[back])
                 : larger(shared_s[0] + experts_s, beside_s);
  return rise->permuted_s + s + shared_s[1];
}

/* Of block_reduce_s, head_reduce_s and rest_reduce_s. */
static int32_t reduce_form(const hec_bound *b) {
  return !b->options.closed_form ? 0 : b->options.tokens_wait ? 1 : 2;
}

void hec_bound_add(hec_bound *b, const hec_load *load) {
  const hec_problem *p = b->problem;
  bool last = ++b->done == b->options.n_micro_batches;
  HEC_ASSERT(b->done <= b->options.n_micro_batches && load->n_sources == p->n_ranks);
  b->chain_s += b->before_s[0];
  for (int32_t l = 0; l < p->n_layers; l++) {
    look_at(b, load, l);
    b->chain_s += b->attention_s[hec_moe_dense_attention(p->moe, l)][0] + rise_of(b, &b->rise[l], 0);
    b->chain_s += b->options.closed_form ? b->counts_s : 0;
  }
  b->forward_s = b->done == 1 ? b->chain_s : b->forward_s;
  b->chain_s += b->head_s[0] + b->head_s[1];
  if (last && p->train)
    b->reduced_s = b->chain_s + b->head_reduce_s[reduce_form(b)];
  for (int32_t l = p->n_layers - 1; p->train && l >= 0; l--) {
    b->chain_s += rise_of(b, &b->rise[l], 1) + b->attention_s[hec_moe_dense_attention(p->moe, l)][1];
    if (last)
      b->reduced_s = larger(b->reduced_s, b->chain_s) + b->block_reduce_s[reduce_form(b)];
  }
  b->chain_s += b->before_s[1];
}

hec_bound_time hec_bound_end(hec_bound *b) {
  HEC_ASSERT(b->done == b->options.n_micro_batches);
  double rest_s = b->problem->train ? b->rest_reduce_s[reduce_form(b)] : 0;
  b->reduced_s = larger(b->reduced_s, b->chain_s) + rest_s;
  double slowest_s = b->slowest_s * b->options.n_micro_batches, served_s = hec_bound_served_s(b, rest_s);
  double total_s = larger(larger(b->reduced_s, served_s), slowest_s) + b->optimizer_s;
  double token_s = larger(b->token_s, b->inside_s);
  total_s = larger(total_s, larger(token_s, b->moved_s));
  double rounded = OPERATIONS * b->options.n_micro_batches * (b->problem->n_layers + 1.0);
  total_s = larger(total_s - 0.5e-12 * rounded, 0);
  return (hec_bound_time){.chain_s = b->chain_s + b->optimizer_s,
                          .served_s = served_s + b->optimizer_s,
                          .token_s = token_s,
                          .moved_s = b->moved_s,
                          .total_s = total_s};
}
