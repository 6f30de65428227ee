/* The problem: one place where sizes are derived, so that planners and lowering cannot disagree.
 *
 *   ep = max { d : d divides R, d <= E }      ranks of an expert-parallel group, unless told; dp = R / ep
 *   bytes without copies = dense state + ceil(L * E / R) * expert state + activations + two token buffers (or, where it is
 *                          more, what a tensor-parallel attention has in flight: 2 mp times its rank's rows, 3 mp with recomputation)
 *
 * The share of expert state is that of an even split over all layers together, which every policy here starts from. */
#include "runtime/plan/problem.h"

#include "models/link_cost.h"
#include "runtime/base/text.h"

#include <stdio.h>

static int32_t group_size(int32_t n_ranks, int32_t n_experts) {
  int32_t size = n_ranks < n_experts ? n_ranks : n_experts;
  while (n_ranks % size != 0)
    size--;
  return size;
}

hec_status hec_problem_make(const hec_moe *moe, const hec_cluster *cluster, bool train, int32_t n_ranks, int32_t tokens,
                            hec_problem *problem) {
  if (n_ranks < 1 || n_ranks > cluster->n_devices)
    return hec_fail(HEC_BAD_INPUT, "ranks: expected 1 to %d (the devices of cluster %s), found %d", cluster->n_devices,
                    cluster->name, n_ranks);
  if (tokens < 0)
    return hec_fail(HEC_BAD_INPUT, "tokens per rank: expected a number >= 0, found %d", tokens);
  if (moe->n_moe_layers < 1 || moe->n_experts < 1 || moe->top_k < 1 || moe->top_k > moe->n_experts)
    return hec_fail(
        HEC_BAD_INPUT,
        "model %s: expected MoE layers >= 1 and 1 <= top_k <= experts, found %d layers, top_k %d, %d experts",
        moe->name, moe->n_moe_layers, moe->top_k, moe->n_experts);
  int32_t ep = group_size(n_ranks, moe->n_experts);
  *problem = (hec_problem){
      .moe = moe,
      .cluster = cluster,
      .train = train,
      .n_ranks = n_ranks,
      .n_nodes = (n_ranks + cluster->devices_per_node - 1) / cluster->devices_per_node,
      .n_layers = moe->n_moe_layers,
      .n_experts = moe->n_experts,
      .top_k = moe->top_k,
      .tokens = tokens,
      .ep = ep,
      .dp = n_ranks / ep,
      .esp = 1,
      .mp = 1,
      .bytes = hec_memory_cost_of(moe, tokens, train),
      .expert = hec_work_expert(moe),
      .window_s = hec_nonmoe_forward_s(moe, hec_work_attention(moe), cluster, n_ranks, tokens),
      .dense_window_s = hec_nonmoe_forward_s(moe, hec_work_dense_attention(moe), cluster, n_ranks, tokens),
      .t = HEC_AUTO,
      .m = HEC_AUTO,
      .period = HEC_AUTO,
      .slots = HEC_AUTO,
  };
  return HEC_OK;
}

void hec_problem_share_optimizer(hec_problem *problem) {
  HEC_ASSERT(problem->esp == 1 && problem->mp == 1);
  if (!problem->zero)
    problem->bytes.dense_optimizer /= problem->n_ranks;
  problem->zero = 1;
}

void hec_problem_choose_as(hec_problem *problem, const hec_problem *from) {
  problem->t = from->t;
  problem->m = from->m;
  problem->period = from->period;
  problem->slots = from->slots;
  problem->head_late = from->head_late;
  problem->solver = from->solver;
  problem->pricer = from->pricer;
  problem->dispatch = from->dispatch;
  problem->placement =
      problem->n_ranks == from->n_ranks && problem->n_experts == from->n_experts ? from->placement : NULL;
  if (problem->n_ranks == from->n_ranks && problem->n_experts == from->n_experts && from->esp == 1) {
    problem->ep = from->ep;
    problem->dp = from->dp;
  }
  if (from->zero && problem->n_ranks == from->n_ranks)
    hec_problem_share_optimizer(problem);
  bool same = problem->n_layers > 1 && problem->n_layers <= from->n_layers && problem->n_experts == from->n_experts;
  problem->transitions = same ? from->transitions : NULL;
}

hec_status hec_problem_group(hec_problem *problem, int32_t ep) {
  HEC_ASSERT(problem->esp == 1);
  int32_t max = group_size(problem->n_ranks, problem->n_experts);
  ep = ep == 0 ? max : ep;
  if (ep >= 1 && ep <= max && problem->n_ranks % ep == 0) {
    problem->ep = ep;
    problem->dp = problem->n_ranks / ep;
    return HEC_OK;
  }
  HEC_SCOPED(hec_text) fits = {0};
  for (int32_t size = 1; size <= max; size++)
    if (problem->n_ranks % size == 0)
      hec_text_printf(&fits, "%s%d", size == 1 ? "" : size == max ? " or " : ", ", size);
  return hec_fail(HEC_BAD_INPUT,
                  "`ep`: expected a divisor of the %d ranks that is at most the %d experts (%s), found %d",
                  problem->n_ranks, problem->n_experts, fits.data, ep);
}

hec_problem hec_problem_of_group(const hec_problem *problem, int32_t group, hec_arena *arena) {
  HEC_ASSERT(problem->esp == 1 && group >= 0 && group < problem->dp);
  hec_problem own = *problem;
  hec_cluster *cluster = HEC_NEW(arena, hec_cluster, 1);
  *cluster = hec_cluster_part(problem->cluster, group * problem->ep, problem->ep, arena);
  own.cluster = cluster;
  own.n_ranks = problem->ep;
  own.n_nodes = cluster->n_nodes;
  own.dp = 1;
  own.outside_s = hec_problem_own_gradients_s(problem);
  own.placement = NULL;
  return own;
}

hec_status hec_problem_shard(hec_problem *problem, int32_t esp) {
  const hec_moe *moe = problem->moe;
  int32_t per_node = problem->cluster->devices_per_node;
  if (esp == 1)
    return HEC_OK;
  if (esp < 1 || problem->n_ranks % esp != 0 || per_node % esp != 0 || moe->d_ffn % esp != 0)
    return hec_fail(HEC_BAD_INPUT,
                    "`esp`: expected a divisor of the %d ranks, the %d devices of a node and d_ffn %d, found %d",
                    problem->n_ranks, per_node, moe->d_ffn, esp);
  if (problem->n_ranks / esp > problem->n_experts)
    return hec_fail(HEC_BAD_INPUT,
                    "`esp`: expected at most as many groups as the %d experts, found %d groups of %d ranks",
                    problem->n_experts, problem->n_ranks / esp, esp);
  if (problem->ep != group_size(problem->n_ranks, problem->n_experts))
    return hec_fail(HEC_BAD_INPUT,
                    "`esp`: with experts in shards all %d ranks are one expert-parallel group: expected no `ep` beside "
                    "it, found %d",
                    problem->n_ranks, problem->ep);
  hec_moe shard = *moe;
  shard.d_ffn /= esp;
  problem->esp = esp;
  problem->ep = problem->n_ranks / esp;
  problem->dp = 1;
  problem->expert = hec_work_expert(&shard);
  problem->bytes.expert_row = hec_memory_cost_of(&shard, problem->tokens, problem->train).expert_row;
  return HEC_OK;
}

/* Whole parameters of a part. */
static double part_of(double params, int32_t parts) {
  int64_t whole = (int64_t)params;
  return parts == 1 ? params : (double)((whole + parts - 1) / parts);
}

/* Parameters of the dense part that a rank has a part of, undivided: of an MoE block, of all other blocks. */
static double cut_params(const hec_problem *p, int32_t layer) {
  const hec_moe *moe = p->moe;
  double attention = hec_moe_attention_params(moe), n = (double)(moe->n_layers - moe->n_moe_layers);
  double ffn = (double)moe->n_ffn_matrices * (double)moe->d_model * (double)moe->d_ffn_dense;
  return layer >= 0 ? attention : n * (attention + ffn);
}

/* Parameters that other ranks of the group have instead. */
static double spared_params(const hec_problem *p) {
  double sum = 0;
  for (int32_t l = -1; l < p->n_layers; l++)
    sum += cut_params(p, l) - part_of(cut_params(p, l), p->mp);
  return sum;
}

hec_work_shape hec_problem_attention(const hec_problem *problem, bool dense) {
  const hec_moe *moe = problem->moe;
  hec_work_shape shape = dense ? hec_work_dense_attention(moe) : hec_work_attention(moe);
  return problem->mp == 1 ? shape : hec_work_cut(shape, problem->mp);
}

/* Forward time of attention and gate on the slowest device. */
static double window_s(const hec_problem *p, bool dense) {
  hec_work_shape attention = hec_problem_attention(p, dense), gate = hec_work_gate(p->moe);
  double slowest = 0;
  for (int32_t r = 0; r < p->n_ranks; r++) {
    const hec_device *device = &p->cluster->devices[r];
    double s = hec_work_s(device, &attention, (double)p->mp * p->tokens) + hec_work_s(device, &gate, p->tokens);
    slowest = s > slowest ? s : slowest;
  }
  return slowest;
}

static hec_status check_tensor(const hec_problem *p, int32_t mp) {
  const hec_moe *moe = p->moe;
  int32_t per_node = p->cluster->devices_per_node;
  bool ffn = moe->n_layers > moe->n_moe_layers;
  char dense[48] = "";
  if (mp >= 1 && p->n_ranks % mp == 0 && per_node % mp == 0 && moe->n_heads % mp == 0 && moe->n_kv_heads % mp == 0 &&
      (!ffn || moe->d_ffn_dense % mp == 0))
    return HEC_OK;
  if (ffn)
    (void)snprintf(dense, sizeof dense, ", d_ffn_dense %d", moe->d_ffn_dense);
  return hec_fail(
      HEC_BAD_INPUT,
      "`mp`: expected a divisor of the %d ranks, the %d devices of a node%s and the model's %d heads and %d "
      "kv heads, found %d",
      p->n_ranks, per_node, dense, moe->n_heads, moe->n_kv_heads, mp);
}

hec_status hec_problem_tensor(hec_problem *problem, int32_t mp) {
  const hec_moe *moe = problem->moe;
  if (mp == 1)
    return HEC_OK;
  HEC_TRY(check_tensor(problem, mp));
  problem->mp = mp;
  double spared = spared_params(problem), rows = (double)(mp - 1) * problem->tokens * problem->bytes.token;
  problem->bytes.dense_param -= spared * (double)moe->dtype_bytes;
  problem->window_s = window_s(problem, false);
  problem->dense_window_s = window_s(problem, true);
  if (!moe->recompute) { /* gathered rows, kept for the gradients of weights */
    problem->bytes.activation_layer += rows;
    problem->bytes.activation_rest += problem->train ? 2 * (moe->n_layers - moe->n_moe_layers) * rows : 0;
  }
  if (!problem->train)
    return HEC_OK;
  problem->bytes.dense_grad -= spared * moe->grad_bytes;
  problem->bytes.dense_optimizer -= spared * moe->optimizer_bytes;
  return HEC_OK;
}

double hec_problem_cut_gradients(const hec_problem *problem, int32_t layer) {
  return problem->mp == 1 ? 0 : part_of(cut_params(problem, layer), problem->mp) * problem->moe->grad_bytes;
}

double hec_problem_gradients(const hec_problem *problem, int32_t layer) {
  const hec_moe *moe = problem->moe;
  double spared = cut_params(problem, 0) - part_of(cut_params(problem, 0), problem->mp);
  double block = (hec_moe_block_params(moe) - spared) * moe->grad_bytes;
  return layer >= 0 ? block : problem->bytes.dense_grad - problem->n_layers * block;
}

/* From the last layer's gradients, or from the head's, on: what the lane of gradients could begin earlier. */
static double last_attention_s(const hec_problem *p) {
  hec_work_shape shape = hec_problem_attention(p, hec_moe_dense_attention(p->moe, p->n_layers - 1));
  hec_work_shape back = hec_work_backward_of(p->moe, shape);
  double min = 0;
  for (int32_t r = 0; r < p->n_ranks; r++) {
    double s = hec_work_s(&p->cluster->devices[r], &back, p->tokens);
    min = r == 0 || s < min ? s : min;
  }
  return min;
}

double hec_problem_head_gradients(const hec_problem *p) {
  double head = hec_moe_embedding_params(p->moe) / 2 * p->moe->grad_bytes;
  if (!p->train || p->head_late || p->mp > 1 || p->zero || p->n_ranks == 1 || head <= 0)
    return 0;
  double all = hec_problem_gradients(p, -1);
  double apart_s = hec_problem_reduce_s(p, head) + hec_problem_reduce_s(p, all - head);
  return apart_s - hec_problem_reduce_s(p, all) <= last_attention_s(p) ? head : 0;
}

double hec_problem_reduce_s(const hec_problem *problem, double bytes) {
  if (problem->mp == 1)
    return hec_link_cost_allreduce(problem->cluster, problem->n_ranks, bytes);
  double cut = bytes * hec_problem_cut_gradients(problem, 0) / hec_problem_gradients(problem, 0);
  return hec_link_cost_allreduce_strided(problem->cluster, problem->n_ranks, problem->mp, cut) +
         hec_link_cost_allreduce(problem->cluster, problem->n_ranks, bytes - cut);
}

double hec_problem_bytes_reference(const hec_problem *problem) {
  const hec_memory_cost *b = &problem->bytes;
  double rows = (double)problem->n_layers * problem->n_experts, params = b->dense_param + rows * b->expert_param;
  double states = b->dense_grad + b->dense_optimizer + rows * (b->expert_grad + b->expert_optimizer);
  return problem->train ? params + states : params;
}

double hec_problem_bytes_without_copies(const hec_problem *problem) {
  const hec_memory_cost *b = &problem->bytes;
  int64_t rows = (int64_t)problem->n_layers * problem->n_experts;
  int64_t share = (rows + problem->n_ranks - 1) / problem->n_ranks; /* rounded up */
  double assignments = (double)problem->tokens * problem->top_k;
  double dense = b->dense_param + b->dense_grad + b->dense_optimizer;
  double expert = b->expert_param + b->expert_grad + b->expert_optimizer;
  double kept = b->activation_layer + (b->expert_row + b->returned_row) * assignments;
  int32_t layers = problem->train ? problem->n_layers : 1; /* forward alone keeps nothing for later */
  double flight = 2 * assignments * b->token,
         tensor = (problem->moe->recompute ? 3.0 : 2.0) * problem->mp * problem->tokens * b->token;
  if (problem->mp > 1 && tensor > flight)
    flight = tensor;
  return dense + (double)share * expert + layers * kept + b->activation_rest + flight;
}
