/* Problems for tests of planners, in one line: a cluster string and a model of a few numbers. */
#pragma once
#include "models/load.h"
#include "runtime/plan/problem.h"

/* `n_ranks` of the cluster; d_model 64, d_ffn 128, no dense blocks, bf16 parameters, gradients 2 and optimizer 12 bytes
 * per parameter; 256 tokens per rank. Everything on the arena. */
hec_problem *hec_test_problem(hec_arena *arena, const char *cluster, int32_t n_ranks, int32_t n_layers,
                              int32_t n_experts, int32_t top_k, bool train);

/* Random shape: 1..16 ranks (the last node may be partly used), 1..40 experts, 1..4 layers. */
hec_problem *hec_test_random_problem(hec_arena *arena, uint64_t *seed);

/* Where there are several expert-parallel groups, the last one alone, as policies see it. */
void hec_test_one_group(hec_arena *arena, hec_problem *problem);

/* Random counts for the problem's layers, ranks and experts: of each kind now and then. All zero, one expert only, idle
 * sources, idle experts, heavy skew. */
hec_load hec_test_random_load(hec_arena *arena, const hec_problem *problem, uint64_t *seed);

/* One layer whose totals are `totals`[n_experts], each split evenly over the sources, remainders to the first ones. */
hec_load hec_test_even_load(hec_arena *arena, const hec_problem *problem, const uint32_t *totals);
