/* The text is the project's licence: there wherever the tests are. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "tests/exec/train_case.h"

#include "runtime/base/arena.h"
#include "runtime/exec/model/gate.h"
#include "runtime/plan/problem.h"
#include "sim/simulate.h"
#include "tests/support/check_main.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef struct {
  hec_train train;
  const hec_policy *policy;
  hec_corpus other;
  hec_train_outcome *outcome; /* shared with the ranks */
  bool other_text;
  int64_t double_step;
  hec_model other_model;
  float other_bias;
} job;

hec_moe hec_train_moe(hec_train_wish wish) {
  hec_moe moe = {.name = "letters",
                 .n_layers = wish.layers,
                 .n_moe_layers = wish.layers,
                 .d_model = 16,
                 .d_ffn = 24,
                 .d_ffn_shared = 8,
                 .n_ffn_matrices = 2,
                 .n_experts = wish.experts,
                 .top_k = wish.top_k,
                 .n_heads = 2,
                 .n_kv_heads = 2,
                 .d_head = 8,
                 .seq_len = 8,
                 .tokens_per_rank = wish.tokens,
                 .micro_batches = wish.micro_batches,
                 .dtype_bytes = 4,
                 .grad_bytes = 4,
                 .optimizer_bytes = 8,
                 .attention = HEC_ATTENTION_CAUSAL,
                 .fused_attention = true,
                 .nonmoe_scale = 1};
  return moe;
}

static void measured(void *context, const hec_train_measure *m) {
  hec_train_outcome *outcome = context;
  for (size_t i = 0; i < m->program->n_ops; i++)
    outcome->n_migrations += m->program->ops[i].role == HEC_ROLE_MIGRATE;
  outcome->first_step = outcome->n_steps == 0 ? m->step : outcome->first_step;
  outcome->overload[outcome->n_steps] = m->overload;
  outcome->expert_overload[outcome->n_steps] = m->expert_overload;
  outcome->dropped[outcome->n_steps] = m->dropped;
  outcome->unrouted[outcome->n_steps] = m->unrouted;
  outcome->loss[outcome->n_steps] = m->loss;
  outcome->balance_loss[outcome->n_steps++] = m->balance_loss;
}

static hec_status body(hec_rank *rank, void *context) {
  job *j = context;
  hec_train train = j->train;
  if (j->other_text && rank->rank == rank->n_ranks - 1)
    train.corpus = &j->other;
  if (rank->rank == rank->n_ranks - 1) {
    train.double_step = j->double_step;
    train.model = &j->other_model;
    train.bias_rate = j->other_bias > 0 ? j->other_bias : train.bias_rate;
  }
  return hec_train_run(&train, j->policy, rank, rank->rank == 0 ? &j->outcome->check : NULL);
}

static hec_status give_gate(hec_model *model, const char *text) {
  const hec_gate *gate;
  hec_gate_options options;
  ck_assert_msg(hec_gate_parse(text ? text : "softmax", &gate, &options) == HEC_OK, "%s", hec_last_error());
  return hec_gate_set(model, gate, &options);
}

/* Nine of ten characters are one of three; the others, and what follows what, by turns. */
static void make_skewed(hec_corpus *corpus) {
  static char text[20000];
  uint64_t random = 3;
  for (size_t i = 0; i < sizeof text; i++)
    text[i] = hec_test_below(&random, 10) > 0 ? "abc"[i % 3] : (char)('d' + hec_test_below(&random, 20));
  ck_assert_int_eq(hec_corpus_make(text, sizeof text, "skewed", corpus), HEC_OK);
}

static hec_status launch(hec_train_wish wish, job *j, const hec_cluster *cluster) {
  hec_launch_options options = {.n_ranks = wish.ranks,
                                .threads = wish.threads,
                                .transport = &hec_transport_shm,
                                .cluster = cluster,
                                .memory_bytes = hec_train_bytes(&j->train, j->policy),
                                .limit_s = 100};
  hec_status status = hec_train_check(&j->train, j->policy);
  return status == HEC_OK ? hec_launch(&options, body, j) : status;
}

/* With the record and the checkpoint that are wished for. */
static hec_status launch_kept(hec_train_wish wish, job *j, const hec_cluster *cluster) {
  static const hec_trace_header header = {.name = "test", .source = "tests"};
  char ranks[16];
  (void)snprintf(ranks, sizeof ranks, "%d", wish.ranks);
  hec_checkpoint checkpoint = {.folder = wish.checkpoint,
                               .every = wish.every > 0 ? wish.every : INT64_MAX,
                               .setting = {{"--ranks", ranks}, {"--policy", j->policy->name}},
                               .n_settings = 2};
  if (!wish.record && !wish.checkpoint)
    return launch(wish, j, cluster);
  hec_status status = hec_record_new(j->train.model, wish.ranks, wish.micro_batches, &j->train.record);
  if (wish.checkpoint) {
    j->train.checkpoint = &checkpoint;
    status = status == HEC_OK ? hec_checkpoint_find(&checkpoint) : status;
    status = status == HEC_OK && checkpoint.step > 0 ? hec_checkpoint_loads(&checkpoint, j->train.record) : status;
    status = status == HEC_OK ? hec_checkpoint_hold(&checkpoint) : status;
  }
  status = status == HEC_OK ? launch(wish, j, cluster) : status;
  status = wish.record ? hec_record_end(j->train.record, status, wish.record, &header) : status;
  hec_record_free(j->train.record);
  return status;
}

hec_status hec_train_launch(hec_train_wish wish, hec_train_outcome *outcome) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_corpus corpus;
  hec_cluster cluster;
  hec_moe moe = hec_train_moe(wish);
  hec_model model;
  hec_problem problem;
  if (wish.skewed)
    make_skewed(&corpus);
  else
    ck_assert_int_eq(hec_corpus_load(HEC_SOURCE_DIR "/LICENSE", &corpus), HEC_OK);
  ck_assert_int_eq(hec_cluster_load("2x4 nvlink=10G@2us nic=2G@5us flops=1T mem=1G", &arena, &cluster), HEC_OK);
  ck_assert_int_eq(hec_language_make(&moe, corpus.vocabulary, wish.rate > 0 ? wish.rate : 3e-3F, 7, &model), HEC_OK);
  ck_assert_msg(give_gate(&model, wish.gate) == HEC_OK, "%s", hec_last_error());
  ck_assert_int_eq(hec_problem_make(&model.moe, &cluster, true, wish.ranks, wish.tokens, &problem), HEC_OK);
  ck_assert_int_eq(hec_problem_shard(&problem, wish.esp > 0 ? wish.esp : 1), HEC_OK);
  problem.pricer = hec_law_pricer(&hec_law_alpha_beta);
  cluster.plan_a_s = cluster.plan_b_s = 0; /* comparisons of pairs end at once */
  hec_train_outcome *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert_ptr_ne(shared, MAP_FAILED);
  job j = {.train = {.problem = &problem,
                     .model = &model,
                     .corpus = &corpus,
                     .n_steps = wish.steps,
                     .n_micro_batches = wish.micro_batches,
                     .schedule = wish.schedule ? wish.schedule : "published",
                     .virtual_time = wish.virtual_time,
                     .check = wish.check,
                     .aux = wish.aux,
                     .bias_rate = wish.bias_rate,
                     .capacity = wish.capacity,
                     .measured = measured,
                     .context = shared},
           .policy = hec_policy_find(wish.policy ? wish.policy : "ep"),
           .other = corpus,
           .outcome = shared,
           .other_text = wish.other_text,
           .double_step = wish.double_step,
           .other_model = model,
           .other_bias = wish.other_bias};
  if (wish.other_gate)
    ck_assert_int_eq(give_gate(&j.other_model, wish.other_gate), HEC_OK);
  j.other.ids = hec_malloc((size_t)corpus.n, 1);
  for (int64_t i = 0; i < corpus.n; i++)
    j.other.ids[i] = corpus.byte_of[corpus.ids[i]] == 'e' ? 0 : corpus.ids[i];
  problem.period = wish.period > 0 ? wish.period : problem.period;
  hec_status status = launch_kept(wish, &j, &cluster);
  *outcome = *shared;
  (void)munmap(shared, sizeof *shared);
  hec_corpus_free(&j.other);
  hec_corpus_free(&corpus);
  return status;
}

hec_train_wish hec_train_small(int32_t ranks, int32_t steps) {
  return (hec_train_wish){.ranks = ranks,
                          .tokens = 64 / ranks,
                          .micro_batches = 2,
                          .steps = steps,
                          .layers = 2,
                          .experts = 6,
                          .top_k = 2,
                          .check = true};
}

hec_train_outcome hec_trained;

/* "hecate under published, gate softmax, 2 ranks" in a static buffer. */
static const char *name_of(hec_train_wish wish) {
  static char name[256];
  (void)snprintf(name, sizeof name, "%s under %s, gate %s, %d ranks", wish.policy ? wish.policy : "ep",
                 wish.schedule ? wish.schedule : "published", wish.gate ? wish.gate : "softmax", wish.ranks);
  return name;
}

void hec_train_ends(hec_train_wish wish) {
  ck_assert_msg(hec_train_launch(wish, &hec_trained) == HEC_OK, "%s: %s", name_of(wish), hec_last_error());
  ck_assert_int_eq(hec_trained.n_steps, wish.steps);
}

void hec_train_passes(hec_train_wish wish) {
  const hec_check_result *check = &hec_trained.check;
  hec_train_ends(wish);
  ck_assert_msg(check->passed, "%s: %s: error %g, tolerance %g", name_of(wish), check->worst_at, check->worst,
                check->tolerance);
}

void hec_train_refused(hec_train_wish wish, const char *words) {
  ck_assert_int_eq(hec_train_launch(wish, &hec_trained), HEC_BAD_INPUT);
  ck_assert_msg(strstr(hec_last_error(), words) != NULL, "%s", hec_last_error());
}
