/* What a cluster gives the bounds of times (bound_time.c has the mathematics): the fastest rates, whatever is
 * measured. And the parts of an iteration that no load changes. O(ranks * layers), once. */
#include "runtime/plan/bound/bound_state.h"
#include "runtime/plan/problem.h"

#include <string.h>

const char *const hec_bound_class_name[HEC_N_BOUND_CLASSES] = {
    [HEC_BOUND_COPIES] = "copies", [HEC_BOUND_WHOLE] = "whole", [HEC_BOUND_SHARDED] = "sharded"};

hec_bound_class hec_bound_class_of(const hec_policy *policy, const hec_problem *problem) {
  if (policy->sliced && problem->n_ranks > 1)
    return HEC_BOUND_SHARDED;
  return policy->whole && (problem->dp == 1 || !policy->all_ranks) ? HEC_BOUND_WHOLE : HEC_BOUND_COPIES;
}

/* ---- What the cluster gives ---- */

/* Seconds per unit that a measured curve never goes below: a point's or the last slope's. */
static double min_slope(const hec_curve *curve) {
  double min = curve->seconds[0] / curve->x[0];
  for (int32_t i = 1; i < curve->n; i++)
    min = smaller(min, curve->seconds[i] / curve->x[i]);
  int32_t last = curve->n - 1;
  if (last > 0)
    min = smaller(min, (curve->seconds[last] - curve->seconds[last - 1]) / (curve->x[last] - curve->x[last - 1]));
  return min;
}

static double row_s_of(const hec_device *device, const hec_work_shape *shape) {
  hec_work_rate rate = hec_work_rate_of(device, shape);
  if (rate.curve)
    return min_slope(rate.curve) / rate.speed;
  return rate.flops_per_row / rate.flops_s + rate.bytes_per_row / rate.hbm_bandwidth;
}

/* Seconds of a byte that a local operation moves, at least: no launch, and a measured curve by its least slope. */
static double local_byte_s(const hec_device *device, hec_curve_kind kind) {
  double min_s = 1 / device->hbm_bandwidth;
  for (int back = 0; back < 2; back++) {
    const hec_curve *curve = device->measured ? hec_curves_find(device->measured, kind, back == 1, 0, 0) : NULL;
    min_s = curve ? smaller(min_s, min_slope(curve) / device->speed) : min_s;
  }
  return min_s;
}

static void set_rows(hec_bound *b) {
  const hec_problem *p = b->problem;
  hec_work_shape shape[2] = {p->expert, hec_work_backward_of(p->moe, p->expert)};
  double sum = 0;
  for (int32_t r = 0; r < p->n_ranks; r++)
    sum += b->weight[r] = 1 / row_s_of(&p->cluster->devices[r], &shape[0]);
  for (int32_t r = 0; r < p->n_ranks; r++) {
    b->weight[r] /= sum;
    b->min_weight = r == 0 ? b->weight[r] : smaller(b->min_weight, b->weight[r]);
    for (int back = 0; back < 2; back++) {
      double row_s = row_s_of(&p->cluster->devices[r], &shape[back]), weighted_s = b->weight[r] * row_s;
      b->row_s[back] = r == 0 ? weighted_s : smaller(b->row_s[back], weighted_s);
      b->min_row_s[back] = r == 0 ? row_s : smaller(b->min_row_s[back], row_s);
    }
    const hec_device *device = &p->cluster->devices[r];
    double add_s = (p->esp + 1) * p->bytes.token * b->weight[r] * local_byte_s(device, HEC_CURVE_REDUCE);
    double permuted_s = 2 * hec_bound_row_bytes(p) * b->weight[r] *
                        (local_byte_s(device, HEC_CURVE_PERMUTE) + local_byte_s(device, HEC_CURVE_UNPERMUTE));
    b->add_s = r == 0 ? add_s : smaller(b->add_s, add_s);
    b->permuted_s = r == 0 ? permuted_s : smaller(b->permuted_s, permuted_s);
  }
  for (int back = 0; back < 2; back++)
    b->row_s[back] *= p->esp;
}

/* Adds what the rank needs for `parts` times its rows of one shape, forward and backward; returns the sum of what training
 * has of it. */
static double add_uniform(hec_bound *b, int32_t rank, hec_work_shape forward, int32_t parts, double mean_s[2]) {
  const hec_problem *p = b->problem;
  hec_work_shape backward = hec_work_backward_of(p->moe, forward);
  double rows = (double)parts * p->tokens;
  double s[2] = {hec_work_s(&p->cluster->devices[rank], &forward, rows),
                 p->train ? hec_work_s(&p->cluster->devices[rank], &backward, rows) : 0};
  mean_s[0] += b->weight[rank] * s[0];
  mean_s[1] += b->weight[rank] * s[1];
  return s[0] + s[1];
}

static void set_uniform(hec_bound *b) {
  const hec_problem *p = b->problem;
  const hec_moe *moe = p->moe;
  for (int32_t r = 0; r < p->n_ranks; r++) {
    double layer_s = add_uniform(b, r, hec_problem_attention(p, false), p->mp, b->attention_s[0]), once_s = 0;
    double dense_s = add_uniform(b, r, hec_problem_attention(p, true), p->mp, b->attention_s[1]) - layer_s;
    layer_s += add_uniform(b, r, hec_work_gate(moe), 1, b->attention_s[0]);
    (void)add_uniform(b, r, hec_work_gate(moe), 1, b->attention_s[1]);
    once_s += hec_moe_n_dense_attention(moe, true) * dense_s;
    if (moe->n_shared_experts > 0) {
      hec_work_shape shared = hec_work_shared(moe);
      double shared_s = hec_work_s(&p->cluster->devices[r], &shared, p->tokens);
      b->min_shared_s = r == 0 ? shared_s : smaller(b->min_shared_s, shared_s);
      layer_s += add_uniform(b, r, shared, 1, b->shared_s);
    }
    if (moe->vocabulary > 0) {
      once_s += add_uniform(b, r, hec_work_embedding(moe), 1, b->before_s);
      once_s += add_uniform(b, r, hec_work_head(moe), 1, b->head_s);
    }
    if (moe->n_layers > moe->n_moe_layers)
      once_s += add_uniform(b, r, hec_work_cut(hec_work_dense_blocks(moe), p->mp), p->mp, b->before_s);
    b->slowest_s = larger(b->slowest_s, p->n_layers * layer_s + once_s);
  }
}

/* `stride` ring all-reduces at once, of n ranks each. In each, 2 (n-1)/n of the bytes leave every rank. A node sends those of
 * all rings. */
static double ring_s(const hec_bound *b, double bytes, int32_t stride, bool closed_form) {
  const hec_problem *p = b->problem;
  int32_t n = p->n_ranks / stride;
  if (n == 1 || bytes <= 0)
    return 0;
  if (closed_form)
    return stride > 1 ? hec_link_cost_allreduce_strided(p->cluster, p->n_ranks, stride, bytes)
                      : hec_link_cost_allreduce(p->cluster, p->n_ranks, bytes);
  double each = 2 * bytes * (double)(n - 1) / n;
  return larger(each / b->rank_rate, p->n_nodes > 1 ? stride * each / b->node_nics : 0);
}

/* The closed form of pieces adds up to no less than that of the whole. A measured curve may bend, so it counts by its
 * least slope. */
static double in_pieces_s(const hec_bound *b, double bytes) {
  const hec_problem *p = b->problem;
  const hec_curve *curve = p->cluster->measured.n > 0
                               ? hec_curves_find(&p->cluster->measured, HEC_CURVE_ALLREDUCE, false, 0, p->n_ranks)
                               : NULL;
  double whole_s = ring_s(b, bytes, 1, true);
  return curve && whole_s > 0 ? smaller(whole_s, min_slope(curve) * bytes) : whole_s;
}

/* Gradients of which `cut` bytes are of ranks of equal place, `whole` of all. Form: reduce_form. */
static double reduce_s(const hec_bound *b, double cut, double whole, int32_t form) {
  int32_t mp = b->problem->mp;
  return ring_s(b, cut, mp, form > 0) + (form == 2 ? in_pieces_s(b, whole) : ring_s(b, whole, 1, form == 1));
}

static void set_end(hec_bound *b) {
  const hec_problem *p = b->problem;
  const hec_memory_cost *bytes = &p->bytes;
  if (!p->train)
    return;
  double cut = hec_problem_cut_gradients(p, 0), rest_cut = hec_problem_cut_gradients(p, -1);
  double block = hec_problem_gradients(p, 0), rest = hec_problem_gradients(p, -1), head = hec_problem_head_gradients(p);
  for (int32_t form = 0; form < 3; form++) {
    b->block_reduce_s[form] = reduce_s(b, cut, block - cut, form);
    b->head_reduce_s[form] = reduce_s(b, 0, head, form);
    b->rest_reduce_s[form] = reduce_s(b, rest_cut, rest - rest_cut - head, form);
  }
  double share = (double)p->n_layers * (double)p->n_experts / (double)p->n_ranks;
  double dense = bytes->dense_grad + 2 * bytes->dense_optimizer + bytes->dense_param;
  double expert = bytes->expert_grad + 2 * bytes->expert_optimizer + bytes->expert_param;
  for (int32_t r = 0; r < p->n_ranks; r++) {
    double s = hec_local_s(&p->cluster->devices[r], HEC_CURVE_OPTIMIZER, true, dense + expert * share);
    b->optimizer_s = r == 0 ? s : smaller(b->optimizer_s, s);
  }
}

/* Sums, over the links of one direction that routes of the rank use, of ports and of NICs. `seen`: [n_links] marks, the
 * rank's own number + 1; those of its node likewise in `node_seen`. */
static void add_links(hec_bound *b, int32_t rank, bool out, int32_t *seen, int32_t *node_seen, double *node_nics) {
  const hec_problem *p = b->problem;
  double port = 0, nics = 0;
  for (int32_t other = 0; other < p->n_ranks; other++) {
    if (other == rank)
      continue;
    const int32_t *links;
    int32_t n =
        out ? hec_cluster_route(p->cluster, rank, other, &links) : hec_cluster_route(p->cluster, other, rank, &links);
    for (int32_t i = 0; i < n; i++) {
      const hec_link *link = &p->cluster->links[links[i]];
      bool is_port = link->kind == (out ? HEC_LINK_PORT_OUT : HEC_LINK_PORT_IN) && link->device == rank;
      bool is_nic = link->kind == (out ? HEC_LINK_NIC_OUT : HEC_LINK_NIC_IN);
      if ((!is_port && !is_nic) || seen[links[i]] == rank + 1)
        continue;
      seen[links[i]] = rank + 1;
      *(is_port ? &port : &nics) += link->bandwidth;
      if (is_nic && !node_seen[links[i]])
        *node_nics += link->bandwidth;
      node_seen[links[i]] |= is_nic;
    }
  }
  b->port = larger(b->port, port);
  b->nics = larger(b->nics, nics);
  b->rank_rate = larger(b->rank_rate, port + nics);
  b->node_nics = larger(b->node_nics, *node_nics);
}

static void set_links(hec_bound *b, hec_arena *arena) {
  const hec_problem *p = b->problem;
  hec_arena_mark mark = hec_arena_save(arena);
  for (int out = 0; out < 2; out++) {
    int32_t *seen = HEC_NEW(arena, int32_t, p->cluster->n_links);
    int32_t *node_seen = HEC_NEW(arena, int32_t, p->cluster->n_links);
    double node_nics = 0;
    for (int32_t r = 0; r < p->n_ranks; r++) {
      if (r % p->cluster->devices_per_node == 0)
        node_nics = 0;
      add_links(b, r, out == 1, seen, node_seen, &node_nics);
    }
  }
  hec_arena_rewind(arena, mark);
}

static double factor_of(const hec_problem *p, hec_curve_kind first, hec_curve_kind last) {
  double min = 1;
  for (int32_t i = 0; i < p->cluster->measured.n; i++) {
    const hec_curve *curve = &p->cluster->measured.curves[i];
    if (curve->kind >= first && curve->kind <= last && hec_curve_is_exchange(curve->kind))
      min = smaller(min, min_slope(curve));
  }
  return min;
}

hec_bound *hec_bound_new(const hec_problem *problem, hec_arena *arena) {
  hec_bound *b = HEC_NEW(arena, hec_bound, 1);
  size_t experts = (size_t)problem->n_experts;
  b->problem = problem;
  b->n_pieces = problem->dp * problem->n_experts;
  b->weight = HEC_NEW(arena, double, problem->n_ranks);
  b->rise = HEC_NEW(arena, hec_bound_rise, problem->n_layers);
  b->pair = HEC_NEW(arena, uint32_t, experts * (size_t)problem->n_ranks);
  b->pieces = HEC_NEW(arena, hec_bound_piece, b->n_pieces);
  b->total = HEC_NEW(arena, uint64_t, experts);
  b->node = HEC_NEW(arena, uint64_t, 2 * experts);
  b->largest = HEC_NEW(arena, uint64_t, 2 * experts);
  set_rows(b);
  set_uniform(b);
  set_links(b, arena);
  set_end(b);
  if (!problem->dispatch.by)
    b->counts_s = hec_link_cost_allgather(problem->cluster, problem->n_ranks, 4.0 * problem->n_experts);
  b->token_factor = factor_of(problem, HEC_CURVE_TOKENS, HEC_CURVE_TOKENS);
  b->moved_factor = factor_of(problem, HEC_CURVE_TOKENS, HEC_CURVE_SLICED_SCATTER);
  return b;
}
