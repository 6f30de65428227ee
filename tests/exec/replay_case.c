/* Sizes are tiny: what is tested is where numbers go, not how fast. */
#include "tests/exec/replay_case.h"

#include "sim/simulate.h"
#include "tests/exec/launch_case.h"
#include "tests/support/check_main.h"

#include <stdio.h>
#include <string.h>

static const char *const machines[] = {
    "1x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", "2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G",
    "4x2 nvlink=100G@1us nic=12G@5us flops=100T mem=32G", "8x1 nvlink=100G@2us nic=12G@5us flops=10T mem=32G",
    "2x4 nvlink=10G@2us nic=1G@5us flops=100T mem=40G",   "4x2 nvlink=300G@1us nic=2G@9us flops=1T mem=1M"};

static int32_t below(uint64_t *seed, int32_t n) {
  return (int32_t)hec_test_below(seed, (uint64_t)n);
}

static void random_moe(uint64_t *seed, hec_replay_wish wish, hec_moe *moe) {
  int32_t layers = wish.exact ? 1 : wish.layers > 0 ? wish.layers : 1 + below(seed, 3), experts = 1 + below(seed, 12);
  int32_t top_k = wish.top_k > 0 ? wish.top_k : 1 + below(seed, 8);
  experts = experts < top_k ? top_k : experts;
  int32_t heads = 1 << below(seed, 3), kv = below(seed, 2) ? heads : 1;
  *moe = (hec_moe){.name = "case",
                   .n_layers = layers,
                   .n_moe_layers = layers,
                   .d_model = 8 * (1 + below(seed, 2)),
                   .d_ffn = 8 + 4 * below(seed, 4),
                   .d_ffn_shared = 12,
                   .n_shared_experts = below(seed, 4) == 0,
                   .n_ffn_matrices = 2 + below(seed, 2),
                   .n_experts = experts,
                   .top_k = top_k,
                   .n_heads = heads,
                   .n_kv_heads = kv,
                   .d_head = 4,
                   .seq_len = 4 + below(seed, 8),
                   .tokens_per_rank = 8 + below(seed, 16),
                   .micro_batches = 1,
                   .dtype_bytes = 4,
                   .grad_bytes = 4,
                   .optimizer_bytes = 8,
                   .attention = below(seed, 2) ? HEC_ATTENTION_CAUSAL : HEC_ATTENTION_FULL,
                   .fused_attention = below(seed, 2) != 0,
                   .nonmoe_scale = 1};
  if (wish.exact)
    moe->n_ffn_matrices = 2;
  if (wish.d_model > 0) {
    moe->d_model = moe->d_head = wish.d_model;
    moe->n_heads = moe->n_kv_heads = 1;
  }
  if (wish.mp > 0) {
    moe->n_heads = wish.mp * (1 + below(seed, 2));
    moe->n_kv_heads = below(seed, 2) ? moe->n_heads : wish.mp;
  }
  if (moe->seq_len % 3 == 0 && wish.mp == 0) {
    moe->attention = HEC_ATTENTION_S2;
    moe->s2 = (hec_s2){
        .shards = moe->n_heads, .local = 2, .block = 1 + (moe->seq_len == 6), .dense = moe->seq_len == 9 ? 2 : 0};
  }
}

/* Of each kind now and then: idle ranks, idle experts, one hot expert, everything idle. */
static void random_load(uint64_t *seed, const hec_problem *p, hec_load *load) {
  for (int32_t l = 0; l < p->n_layers; l++) {
    int32_t kind = below(seed, 8), hot = below(seed, p->n_experts);
    for (int32_t s = 0; s < p->n_ranks; s++)
      for (int32_t a = 0; a < p->tokens * p->top_k; a++) {
        int32_t e = kind == 0 ? hot : below(seed, 3) ? below(seed, p->n_experts) : hot;
        bool idle = (kind == 1 && s % 2) || (kind == 2 && e % 3 == 0) || kind == 3;
        if (!idle)
          hec_load_row(load, l, s)[e]++;
      }
  }
}

/* Whole groups, each inside a node and, of shards, with an expert of its own. */
static const char *group(uint64_t *seed, hec_replay_wish wish, int32_t *ranks, int32_t *experts) {
  static const int32_t of_nodes[] = {0, 1, 4, 2, 5}; /* machines whose nodes hold four, then two ranks */
  int32_t width = wish.esp > 0 ? wish.esp : wish.mp;
  *ranks = wish.ranks > 0 ? wish.ranks : width * (1 + below(seed, 8 / width));
  *experts = wish.esp > 0 && *experts < *ranks / width ? *ranks / width : *experts;
  return machines[of_nodes[below(seed, width == 4 ? 3 : 5)]];
}

static void random_options(uint64_t *seed, hec_problem *p) {
  if (below(seed, 3))
    p->t = below(seed, p->n_experts + 1);
  if (below(seed, 3) == 0)
    p->m = below(seed, 4);
  p->period = 1 + below(seed, 3);
}

hec_replay_case *hec_replay_random(hec_arena *arena, uint64_t *seed, hec_replay_wish wish) {
  hec_replay_case *c = HEC_NEW(arena, hec_replay_case, 1);
  int32_t ranks = wish.ranks > 0 ? wish.ranks : 1 + below(seed, 8);
  int32_t micro_batches = wish.micro_batches > 0 ? wish.micro_batches : 1 + below(seed, 2);
  int32_t steps = wish.exact ? 1 : wish.steps > 0 ? wish.steps : 1 + below(seed, 3);
  const char *machine = machines[below(seed, (int32_t)(sizeof machines / sizeof *machines))];
  machine = wish.machine ? wish.machine : machine;
  random_moe(seed, wish, &c->moe);
  if (wish.esp > 0 || wish.mp > 0)
    machine = group(seed, wish, &ranks, &c->moe.n_experts);
  if (hec_cluster_load(machine, arena, &c->cluster) != HEC_OK ||
      hec_problem_make(&c->moe, &c->cluster, !wish.forward, ranks, c->moe.tokens_per_rank, &c->problem) != HEC_OK ||
      hec_problem_shard(&c->problem, wish.esp > 0 ? wish.esp : 1) != HEC_OK ||
      hec_problem_tensor(&c->problem, wish.mp > 0 ? wish.mp : 1) != HEC_OK ||
      hec_model_make(&c->moe, wish.exact, *seed, &c->model) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  random_options(seed, &c->problem);
  c->problem.pricer = hec_law_pricer(&hec_law_alpha_beta);
  c->cluster.plan_a_s = c->cluster.plan_b_s = 0; /* comparisons of pairs end at once */
  hec_replay_step *list = HEC_NEW(arena, hec_replay_step, steps);
  for (int32_t i = 0; i < steps; i++) {
    hec_load *loads = HEC_NEW(arena, hec_load, micro_batches);
    for (int32_t mb = 0; mb < micro_batches; mb++) {
      loads[mb] = hec_load_new(arena, c->problem.n_layers, ranks, c->problem.n_experts);
      random_load(seed, &c->problem, &loads[mb]);
    }
    list[i] = (hec_replay_step){.iter = 10 + i, .stride = 1, .n_loads = micro_batches, .loads = loads};
  }
  c->replay = (hec_replay){.problem = &c->problem,
                           .model = &c->model,
                           .steps = list,
                           .n_steps = steps,
                           .n_micro_batches = micro_batches,
                           .schedule = "published",
                           .check = true,
                           .differ_iteration = -1};
  (void)snprintf(c->line, sizeof c->line,
                 "%d ranks (esp %d, mp %d) on %s; %d layers, %d experts top-%d, %d matrices, %d tokens, %d "
                 "micro-batches, %d steps, "
                 "t %d, m %d",
                 ranks, c->problem.esp, c->problem.mp, machine, c->problem.n_layers, c->problem.n_experts,
                 c->problem.top_k, c->moe.n_ffn_matrices, c->problem.tokens, micro_batches, steps, c->problem.t,
                 c->problem.m);
  return c;
}

typedef struct {
  hec_replay_case *c;
  hec_replay_launch launch;
} launched;

static hec_status run_one(const launched *l, hec_rank *rank, const hec_policy *policy, const char *schedule) {
  hec_replay replay = l->c->replay;
  hec_replay_check result = {0};
  replay.schedule = schedule;
  HEC_TRY(hec_replay_run(&replay, policy, rank, &result));
  if (rank->rank == 0 && l->launch.result)
    *l->launch.result = result;
  if (rank->rank == 0 && replay.check && !result.passed)
    return hec_rank_fail(rank, "%s under %s: %s: error %g, tolerance %g; %s", policy->name, schedule, result.worst_at,
                         result.worst, result.tolerance, l->c->line);
  return HEC_OK;
}

static hec_status run_chunked(const launched *l, hec_rank *rank, const hec_policy *policy) {
  for (int32_t s = 0; hec_schedules[s]; s++)
    if (hec_schedules[s]->chunked)
      HEC_TRY(run_one(l, rank, policy, hec_schedules[s]->name));
  return HEC_OK;
}

enum { PARTS = 3 }; /* of the policies, a turn takes one */

static hec_status body(hec_rank *rank, void *context) {
  const launched *l = context;
  const char *schedules[32]; /* that are systems */
  int32_t n_schedules = 0;
  for (int32_t s = 0; hec_schedules[s]; s++)
    if (!hec_schedules[s]->bound) {
      HEC_ASSERT(n_schedules < (int32_t)(sizeof schedules / sizeof *schedules));
      schedules[n_schedules++] = hec_schedules[s]->name;
    }
  for (int32_t p = 0; hec_policies[p]; p++) {
    const hec_policy *policy = hec_policies[p];
    if (strcmp(policy->schedule, "ideal") == 0 || (l->launch.policy && strcmp(policy->name, l->launch.policy) != 0))
      continue;
    if (l->launch.turn && !l->launch.policy && (p + l->launch.turn) % PARTS != 0)
      continue;
    if (hec_policy_suits(policy, &l->c->problem) != HEC_OK)
      continue;
    if (l->launch.chunked)
      HEC_TRY(run_chunked(l, rank, policy));
    else if (l->launch.schedule)
      HEC_TRY(run_one(l, rank, policy, l->launch.schedule));
    else
      HEC_TRY(
          run_one(l, rank, policy, l->launch.turn ? schedules[(l->launch.turn / PARTS + p) % n_schedules] : "published"));
  }
  return HEC_OK;
}

/* All ranks come to the end of the body before one closes its link. */
static hec_status device_body(hec_rank *rank, void *context) {
  const launched *l = context;
  if (l->launch.device)
    l->launch.device(rank, rank->processor);
  hec_status status = body(rank, context);
  if (status == HEC_OK)
    status = hec_rank_barrier(rank);
  if (status != HEC_OK)
    (void)hec_rank_report(rank, status, hec_last_error());
  return status;
}

static hec_status on_device(hec_rank *rank, void *context) {
  const launched *l = context;
  uint64_t seed = l->launch.device_seed + (uint64_t)rank->rank;
  hec_device_link staged = hec_device_link_local;
  staged.adds = false;
  return hec_test_on_device(rank, l->launch.staged ? &staged : &hec_device_link_local, seed, device_body, context);
}

hec_status hec_replay_all(hec_replay_case *c, hec_replay_launch launch) {
  launched l = {c, launch};
  const hec_backend *backend = launch.backend ? launch.backend : &hec_backend_cpu;
  const hec_transport *transport = launch.transport ? launch.transport : &hec_transport_shm;
  if (!launch.transport && backend->transport)
    transport = backend->transport();
  size_t max = 0;
  for (int32_t p = 0; hec_policies[p]; p++) {
    size_t bytes = hec_replay_bytes(&c->replay, hec_policies[p]);
    max = bytes > max ? bytes : max;
  }
  hec_launch_options options = {.n_ranks = c->problem.n_ranks,
                                .threads = launch.threads,
                                .transport = transport,
                                .cluster = &c->cluster,
                                .memory_bytes = max,
                                .limit_s = launch.limit_s > 0 ? launch.limit_s : 100};
  if (launch.device_seed == 0)
    return backend->launch(&options, body, &l);
  options.threads = true;
  options.link = &hec_device_link_local;
  return backend->launch(&options, on_device, &l);
}

void hec_replay_expect(hec_replay_case *c, hec_replay_launch launch) {
  if (hec_replay_all(c, launch) != HEC_OK)
    ck_abort_msg("%s\n%s", hec_last_error(), c->line);
}
