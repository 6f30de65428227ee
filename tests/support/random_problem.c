/* Shapes are small (at most 12 ranks, 4 layers, 12 experts) so that hundreds of cases with all policies take seconds.
 */
#include "tests/support/random_problem.h"

#include "runtime/program/lowering_state.h"
#include "tests/support/check_main.h"
#include "tests/support/problem_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || HAS_FEATURE(address_sanitizer) ||                 \
    HAS_FEATURE(thread_sanitizer)
enum { ONE_OF = 16 };
#else
enum { ONE_OF = 4 };
#endif

int hec_test_cases(int n) {
  const char *times = getenv("HECATE_TEST_CASES");
  int wanted = times ? atoi(times) : 1;
  HEC_ASSERT(wanted >= 1 && wanted <= 1000);
  return (n * wanted + ONE_OF - 1) / ONE_OF;
}

static bool chance(uint64_t *seed, uint64_t one_in) {
  return hec_test_below(seed, one_in) == 0;
}

static void random_line(char *line, size_t size, uint64_t *seed, hec_test_wish wish) {
  static const int shapes[][2] = {{1, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 1}, {2, 2},
                                  {2, 4}, {3, 2}, {3, 4}, {4, 2}, {6, 2}, {5, 1}};
  const int *shape = shapes[hec_test_below(seed, sizeof shapes / sizeof *shapes)];
  int nodes = shape[0], per_node = shape[1];
  /* Drawn one after the other: the order in which a compiler evaluates arguments is its own. */
  static const uint64_t below[] = {3000, 300, 9000, 60, 4000, 300};
  int drawn[6];
  for (int i = 0; i < 6; i++)
    drawn[i] = (int)hec_test_below(seed, below[i]);
  int n = snprintf(line, size, "%dx%d nvlink=%dG@%dns nic=%dG@%dns flops=%dT mem=40G hbm=%dG", nodes, per_node,
                   1 + drawn[5], drawn[4], 1 + drawn[3], drawn[2], 1 + drawn[1], 200 + drawn[0]);
  if (per_node > 1 && chance(seed, 3))
    n += snprintf(line + n, size - (size_t)n, " nics=%d", per_node);
  if (nodes > 2 && chance(seed, 4))
    n += snprintf(line + n, size - (size_t)n, " leaf=2 uplink=%dG@1us", 5 + (int)hec_test_below(seed, 60));
  if (chance(seed, 4))
    n += snprintf(line + n, size - (size_t)n, " through=1");
  if (wish.no_overhead)
    n += snprintf(line + n, size - (size_t)n, " a=0s c=0s launch=0s plan=0s@0s tile=1");
  else if (chance(seed, 3))
    n += snprintf(line + n, size - (size_t)n, " tile=%d", 1 + (int)hec_test_below(seed, 40));
  if (wish.comm_share)
    n += snprintf(line + n, size - (size_t)n, " sm=0.%d", 1 + (int)hec_test_below(seed, 8));
  static const char *const speeds[] = {"0.01", "0.2", "0.7", "3", "20", "100"};
  for (int i = 0; wish.uneven && i < 3 && n < (int)size - 16; i++)
    if (i == 0 || chance(seed, 2)) {
      uint64_t speed = hec_test_below(seed, 6);
      n += snprintf(line + n, size - (size_t)n, " slow=%d:%s", (int)hec_test_below(seed, (uint64_t)(nodes * per_node)),
                    speeds[speed]);
    }
  if (!wish.uniform && !wish.uneven && nodes * per_node > 1 && chance(seed, 4)) {
    int speed = 3 + (int)hec_test_below(seed, 6);
    (void)snprintf(line + n, size - (size_t)n, " slow=%d:0.%d", (int)hec_test_below(seed, (uint64_t)(nodes * per_node)),
                   speed);
  }
}

static hec_moe random_moe(uint64_t *seed) {
  int32_t experts = chance(seed, 8) ? 1 : 1 + (int32_t)hec_test_below(seed, 12);
  int32_t layers = 1 + (int32_t)hec_test_below(seed, 3);
  hec_moe moe = {.name = "random",
                 .n_layers = layers + (chance(seed, 3) ? 2 : 0),
                 .n_moe_layers = layers,
                 .d_model = 32 << hec_test_below(seed, 3),
                 .d_ffn = 48 + (int32_t)hec_test_below(seed, 300),
                 .d_ffn_dense = 128,
                 .n_ffn_matrices = 2 + (int32_t)hec_test_below(seed, 2),
                 .n_experts = experts,
                 .top_k = experts > 1 ? 1 + (int32_t)hec_test_below(seed, 2) : 1,
                 .n_shared_experts = chance(seed, 3) ? 1 : 0,
                 .d_ffn_shared = 96,
                 .n_heads = 4,
                 .n_kv_heads = 4,
                 .d_head = 8,
                 .vocabulary = chance(seed, 3) ? 1000 : 0,
                 .seq_len = 64,
                 .tokens_per_rank = 1 + (int32_t)hec_test_below(seed, 300),
                 .micro_batches = 1,
                 .dtype_bytes = 2,
                 .grad_bytes = chance(seed, 2) ? 2 : 4,
                 .optimizer_bytes = 12,
                 .recompute = chance(seed, 4),
                 .fused_attention = true,
                 .nonmoe_scale = 1};
  if (moe.tokens_per_rank % 2 == 0) {
    moe.attention = HEC_ATTENTION_S2;
    moe.s2 = (hec_s2){.shards = 4, .local = 8, .block = 8, .dense = moe.tokens_per_rank % 3};
  }
  return moe;
}

hec_test_case *hec_test_random_case(hec_arena *arena, uint64_t *seed, hec_test_wish wish) {
  hec_test_case *c = HEC_NEW(arena, hec_test_case, 1);
  c->turn = (int32_t)(*seed % 8);
  random_line(c->line, sizeof c->line, seed, wish);
  c->moe = random_moe(seed);
  if (wish.heavy_state) {
    c->moe.d_ffn = 20000;
    c->moe.tokens_per_rank = 1;
    size_t n = strlen(c->line);
    for (char *at = strstr(c->line, "nvlink="); at && *at; at++) /* later words win: none may be given twice */
      if (*at == 'G' && (at[1] == '@'))
        *at = 'P';
    ck_assert_uint_eq(strlen(c->line), n);
  }
  if (hec_cluster_parse_line(c->line, arena, &c->cluster) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  int32_t max = wish.ranks_max > 0 && wish.ranks_max < c->cluster.n_devices ? wish.ranks_max : c->cluster.n_devices;
  int32_t ranks = chance(seed, 3) ? 1 + (int32_t)hec_test_below(seed, (uint64_t)max) : max;
  bool train = !chance(seed, 4);
  if (hec_problem_make(&c->moe, &c->cluster, train, ranks, c->moe.tokens_per_rank, &c->problem) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  if (chance(seed, 3))
    c->problem.m = (int32_t)hec_test_below(seed, 4);
  if (chance(seed, 3))
    c->problem.t = (int32_t)hec_test_below(seed, 6);
  c->problem.period = 1 + (int32_t)hec_test_below(seed, 2);
  c->problem.head_late = c->turn % 4 == 0;
  c->n_iterations = 2 + (int32_t)hec_test_below(seed, 2);
  c->n_micro_batches = chance(seed, 3) ? 2 + (int32_t)hec_test_below(seed, 2) : 1;
  c->loads = HEC_NEW(arena, hec_load, c->n_iterations * c->n_micro_batches);
  for (int32_t i = 0; i < c->n_iterations * c->n_micro_batches; i++)
    c->loads[i] = hec_test_random_load(arena, &c->problem, seed);
  int32_t n_collectives = 0;
  while (hec_collectives[n_collectives])
    n_collectives++;
  c->collective = chance(seed, 2) ? NULL : hec_collectives[hec_test_below(seed, (uint64_t)n_collectives)];
  return c;
}

void hec_test_recluster(hec_test_case *c, const char *line, hec_arena *arena) {
  hec_problem old = c->problem;
  (void)snprintf(c->line, sizeof c->line, "%s", line);
  if (hec_cluster_parse_line(c->line, arena, &c->cluster) != HEC_OK ||
      hec_problem_make(&c->moe, &c->cluster, old.train, old.n_ranks, old.tokens, &c->problem) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  c->problem.t = old.t;
  c->problem.m = old.m;
  c->problem.period = old.period;
  c->problem.head_late = old.head_late;
}

static bool allowed(const hec_policy *policy, const hec_schedule *schedule) {
  if (policy->only_schedule)
    return strcmp(policy->only_schedule, schedule->name) == 0;
  const hec_schedule *found;
  return hec_schedule_of(policy, schedule->name, &found) == HEC_OK && found == schedule;
}

static bool in_turn(const hec_test_case *c, int32_t p, int32_t s) {
  const hec_policy *policy = hec_policies[p];
  const hec_schedule *schedule = hec_schedules[s];
  if ((c->only_policy && strcmp(policy->name, c->only_policy) != 0) ||
      (c->only_schedule && strcmp(schedule->name, c->only_schedule) != 0) || !allowed(policy, schedule))
    return false;
  if (c->only_policy || c->only_schedule || schedule->bound)
    return true;
  if (schedule->chunked)
    return (p + s + c->turn) % 8 == 0;
  return strcmp(policy->schedule, schedule->name) == 0 || (p + s + c->turn) % 2 == 0;
}

void hec_test_each(const hec_test_case *c, bool per_item, hec_test_visit *visit, void *context) {
  for (int32_t p = 0; hec_policies[p]; p++)
    for (int32_t s = 0; hec_schedules[s]; s++) {
      if (!in_turn(c, p, s))
        continue;
      HEC_SCOPED(hec_arena) arena = {0};
      HEC_OPENED(hec_lowering) *low =
          hec_lowering_new(&c->problem, hec_policies[p], hec_schedules[s], c->collective, &arena);
      low->in->shared->answer[0].plan.per_item = low->in->shared->answer[1].plan.per_item =
          low->in->shared->other.per_item = per_item;
      if (c->detail)
        hec_lowering_detail(low);
      for (int32_t i = 0; i < c->n_iterations; i++) {
        const hec_load *loads = c->loads + (ptrdiff_t)i * c->n_micro_batches;
        hec_lower_iteration(low, 10 + i, loads, c->n_micro_batches, c->n_micro_batches);
        visit(&(hec_test_step){.c = c,
                               .policy = hec_policies[p],
                               .schedule = hec_schedules[s],
                               .low = low,
                               .program = hec_lowering_program(low),
                               .iteration = i,
                               .loads = loads},
              context);
      }
    }
}

const char *hec_test_step_name(const hec_test_step *step) {
  static char name[512];
  (void)snprintf(
      name, sizeof name, "%s under %s, iteration %d, %s, %s; %d ranks on %s; %d layers, %d experts, %d micro-batches",
      step->policy->name, step->schedule->name, step->iteration, step->c->problem.train ? "train" : "forward",
      step->c->collective ? step->c->collective->name : "by cost", step->c->problem.n_ranks, step->c->line,
      step->c->problem.n_layers, step->c->problem.n_experts, step->c->n_micro_batches);
  return name;
}

hec_load hec_test_actual_load(const hec_test_step *step, int32_t micro_batch, hec_arena *arena) {
  const hec_load *given = &step->loads[micro_batch];
  hec_load load = hec_load_new(arena, given->n_layers, given->n_sources, given->n_experts);
  memcpy(load.counts, given->counts,
         (size_t)load.n_layers * (size_t)load.n_sources * (size_t)load.n_experts * sizeof *load.counts);
  if (step->policy->rewrite) {
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(step->policy, &step->c->problem, arena);
    hec_policy_rewrite(&run, &load);
  }
  return load;
}

int64_t hec_test_rows(const hec_program *program, const hec_op *op, int32_t rank, int32_t item) {
  int64_t rows = 0;
  for (int32_t i = program->work_index[op->compute.work_at + rank];
       i < program->work_index[op->compute.work_at + rank + 1]; i++)
    rows += program->work[i].item == item ? program->work[i].rows : 0;
  return rows;
}

int64_t *hec_test_random_ps(const hec_program *program, uint64_t *seed, hec_arena *arena) {
  size_t n = program->n_ops * (size_t)program->n_ranks;
  int64_t *ps = HEC_NEW(arena, int64_t, n);
  for (size_t i = 0; i < n; i++) {
    uint64_t kind = hec_test_below(seed, 8);
    ps[i] = kind == 0   ? 0
            : kind <= 2 ? 1000000 * (int64_t)(1 + hec_test_below(seed, 3))
                        : (int64_t)hec_test_below(seed, 1000000000);
  }
  return ps;
}
