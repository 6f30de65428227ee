/* Draws are GSL's Mersenne twister: tokens uniform in eighths, sigma uniform in [0, 2], top-k uniform in 1 .. 4 (at most the
 * experts), policies in turn so that all of them occur. */
#include "validate/configurations.h"

#include "runtime/base/arena.h"
#include "runtime/plan/problem.h"
#include "traces/synth_memory.h"

#include <gsl/gsl_rng.h>

#include <stdio.h>

enum { EIGHTHS = 8, TOP_K_MAX = 4 };

static hec_status draw_one(const hec_configurations *o, gsl_rng *random, int32_t index, hec_arena *arena,
                           hec_experiment_case *one) {
  hec_moe *moe = HEC_NEW(arena, hec_moe, 1);
  hec_model *model = HEC_NEW(arena, hec_model, 1);
  hec_problem *problem = HEC_NEW(arena, hec_problem, 1);
  const hec_policy *policy = o->policies[index % o->n_policies];
  int32_t max_k = o->model->n_experts < TOP_K_MAX ? o->model->n_experts : TOP_K_MAX;
  int32_t tokens = o->tokens * (1 + (int32_t)gsl_rng_uniform_int(random, EIGHTHS)) / EIGHTHS;
  tokens = tokens > 0 ? tokens : 1;
  *moe = o->model->moe;
  moe->top_k = 1 + (int32_t)gsl_rng_uniform_int(random, (unsigned long)max_k);
  double sigma = (double)gsl_rng_uniform_int(random, 201) / 100;
  HEC_TRY(hec_model_make(moe, false, o->model->seed, model));
  HEC_TRY(hec_problem_make(&model->moe, o->cluster, o->train, o->n_ranks, tokens, problem));
  HEC_TRY(hec_problem_group(problem, o->ep));
  HEC_TRY(hec_problem_shard(problem, o->esp > 1 ? o->esp : 1));
  problem->t = problem->m = problem->period = problem->slots = HEC_AUTO;
  *one = (hec_experiment_case){.model = model,
                               .problem = problem,
                               .policy = policy,
                               .schedule = o->schedule,
                               .n_steps = o->n_steps,
                               .n_micro_batches = 1,
                               .warmup = o->warmup};
  (void)snprintf(one->name, sizeof one->name, "%s, %d tokens, top-%d, sigma %.2f", policy->name, (int)tokens,
                 (int)moe->top_k, sigma);
  hec_experiment_loads wish = {.n_layers = model->n_blocks,
                               .n_experts = model->n_experts,
                               .top_k = moe->top_k,
                               .n_ranks = o->n_ranks,
                               .tokens = tokens,
                               .n_steps = o->n_steps,
                               .sigma = sigma,
                               .seed = o->seed * 1000003 + (uint64_t)index};
  return hec_experiment_draw(&wish, arena, &one->steps);
}

hec_status hec_configurations_draw(const hec_configurations *o, int32_t n, hec_arena *arena,
                                   hec_experiment_case *cases) {
  hec_gsl_watch_memory(false);
  gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
  HEC_ASSERT(o->n_policies > 0);
  gsl_rng_set(random, (unsigned long)(o->seed % 4294967291u) + 1);
  hec_status status = HEC_OK;
  for (int32_t i = 0; status == HEC_OK && i < n; i++)
    status = draw_one(o, random, i, arena, &cases[i]);
  gsl_rng_free(random);
  return status;
}
