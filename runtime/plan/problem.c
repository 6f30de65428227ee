/* The problem: one place where sizes are derived, so that planners and lowering cannot disagree.
 *
 *   ep = max { d : d divides R, d <= E }      ranks of an expert-parallel group; dp = R / ep
 *   bytes without copies = dense state + ceil(L * E / R) * expert state + activations + two token buffers
 *
 * The share of expert state is that of an even split over all layers together, which every policy here starts from. */
#include "runtime/plan/problem.h"

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

void hec_problem_choose_as(hec_problem *problem, const hec_problem *from) {
  problem->t = from->t;
  problem->m = from->m;
  problem->period = from->period;
  problem->slots = from->slots;
  problem->solver = from->solver;
  bool same = problem->n_layers > 1 && problem->n_layers <= from->n_layers && problem->n_experts == from->n_experts;
  problem->transitions = same ? from->transitions : NULL;
}

hec_status hec_problem_shard(hec_problem *problem, int32_t esp) {
  const hec_moe *moe = problem->moe;
  int32_t per_node = problem->cluster->devices_per_node;
  if (esp == 1)
    return HEC_OK;
  if (esp < 1 || problem->n_ranks % esp != 0 || per_node % esp != 0 || moe->d_ffn % esp != 0)
    return hec_fail(HEC_BAD_INPUT,
                    "--esp: expected a divisor of the %d ranks, the %d devices of a node and d_ffn %d, found %d",
                    problem->n_ranks, per_node, moe->d_ffn, esp);
  if (problem->n_ranks / esp > problem->n_experts)
    return hec_fail(HEC_BAD_INPUT,
                    "--esp: expected at most as many groups as the %d experts, found %d groups of %d ranks",
                    problem->n_experts, problem->n_ranks / esp, esp);
  hec_moe shard = *moe;
  shard.d_ffn /= esp;
  problem->esp = esp;
  problem->ep = problem->n_ranks / esp;
  problem->dp = 1;
  problem->expert = hec_work_expert(&shard);
  problem->bytes.expert_row = hec_memory_cost_of(&shard, problem->tokens, problem->train).expert_row;
  return HEC_OK;
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
  return dense + (double)share * expert + layers * kept + b->activation_rest + 2 * assignments * b->token;
}
