/* The model of a test problem is small and of entropy enough that no two costs coincide by accident. */
#include "tests/support/problem_case.h"

#include "tests/support/check_main.h"

hec_problem *hec_test_problem(hec_arena *arena, const char *cluster, int32_t n_ranks, int32_t n_layers,
                              int32_t n_experts, int32_t top_k, bool train) {
  hec_moe *moe = HEC_NEW(arena, hec_moe, 1);
  *moe = (hec_moe){
      .name = "case",
      .n_layers = n_layers,
      .n_moe_layers = n_layers,
      .d_model = 64,
      .d_ffn = 128,
      .d_ffn_dense = 128,
      .n_ffn_matrices = 2,
      .n_experts = n_experts,
      .top_k = top_k,
      .n_heads = 4,
      .n_kv_heads = 4,
      .d_head = 16,
      .seq_len = 256,
      .tokens_per_rank = 256,
      .micro_batches = 1,
      .dtype_bytes = 2,
      .grad_bytes = 2,
      .optimizer_bytes = 12,
      .nonmoe_scale = 1,
  };
  hec_cluster *machine = HEC_NEW(arena, hec_cluster, 1);
  hec_problem *problem = HEC_NEW(arena, hec_problem, 1);
  if (hec_cluster_load(cluster, arena, machine) != HEC_OK ||
      hec_problem_make(moe, machine, train, n_ranks, 256, problem) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  return problem;
}

hec_problem *hec_test_random_problem(hec_arena *arena, uint64_t *seed) {
  static const char *const clusters[] = {
      "1x16 nvlink=300G@2us nic=50G@5us flops=312T mem=40G",
      "4x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G",
      "8x2 nvlink=100G@2us nic=12G@5us flops=100T mem=32G",
      "16x1 nvlink=100G@2us nic=12G@5us flops=100T mem=32G",
  };
  const char *cluster = clusters[hec_test_below(seed, 4)];
  int32_t ranks = 1 + (int32_t)hec_test_below(seed, 16), experts = 1 + (int32_t)hec_test_below(seed, 40);
  int32_t layers = 1 + (int32_t)hec_test_below(seed, 4), top_k = experts > 1 ? 1 + (int32_t)hec_test_below(seed, 2) : 1;
  return hec_test_problem(arena, cluster, ranks, layers, experts, top_k, hec_test_below(seed, 4) != 0);
}

static uint32_t random_count(uint64_t *seed, int kind, int32_t source, int32_t expert, int32_t hot) {
  switch (kind) {
  case 0:
    return 0;
  case 1:
    return expert == hot ? (uint32_t)hec_test_below(seed, 1000) : 0;
  case 2:
    return source % 2 ? (uint32_t)hec_test_below(seed, 100) : 0;
  case 3:
    return hec_test_below(seed, 3) ? 0 : (uint32_t)hec_test_below(seed, 50);
  case 4:
    return (uint32_t)(hec_test_below(seed, 2000) / (1 + (uint64_t)(expert + hot) % 17));
  default:
    return (uint32_t)hec_test_below(seed, 64);
  }
}

void hec_test_one_group(hec_arena *arena, hec_problem *problem) {
  if (problem->dp > 1)
    *problem = hec_problem_of_group(problem, problem->dp - 1, arena);
}

hec_load hec_test_random_load(hec_arena *arena, const hec_problem *problem, uint64_t *seed) {
  hec_load load = hec_load_new(arena, problem->n_layers, problem->n_ranks, problem->n_experts);
  for (int32_t layer = 0; layer < problem->n_layers; layer++) {
    int kind = (int)hec_test_below(seed, 8);
    int32_t hot = (int32_t)hec_test_below(seed, (uint64_t)problem->n_experts);
    for (int32_t s = 0; s < problem->n_ranks; s++)
      for (int32_t e = 0; e < problem->n_experts; e++)
        hec_load_row(&load, layer, s)[e] = random_count(seed, kind, s, e, hot);
  }
  return load;
}

hec_load hec_test_even_load(hec_arena *arena, const hec_problem *problem, const uint32_t *totals) {
  hec_load load = hec_load_new(arena, 1, problem->n_ranks, problem->n_experts);
  uint32_t ranks = (uint32_t)problem->n_ranks;
  for (uint32_t s = 0; s < ranks; s++)
    for (int32_t e = 0; e < problem->n_experts; e++)
      hec_load_row(&load, 0, (int32_t)s)[e] = totals[e] / ranks + (s < totals[e] % ranks);
  return load;
}
