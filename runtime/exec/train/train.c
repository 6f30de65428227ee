/* The driver of training. A step of a rank is a batch, an iteration of the runner, and a word with the others about the
 * loss. */
#include "runtime/exec/train/train.h"

#include "runtime/base/arena.h"
#include "runtime/exec/model/gate.h"
#include "runtime/plan/problem.h"

#include <stdlib.h>
#include <string.h>

/* What a rank has of a step's measure: losses; assignments that were dropped; tokens of all layers without an expert. */
typedef struct {
  double loss, balance_loss, dropped, unrouted;
} share;

/* The runner's context. */
typedef struct {
  const hec_train *train;
  hec_runner *runner;
  hec_check *check;
  uint8_t *ids, *next; /* [n_micro_batches][T] of this rank */
  float *kept;         /* the head's */
  float factor;        /* of a token's loss in the mean */
  double loss;         /* of this rank's tokens, as their share of the mean */
  share *shares;       /* on rank 0: [n_ranks] */
  float *bias;         /* [n_blocks][E] */
  bool *routed;        /* [T] */
} state;

static hec_runner_options options_of(const hec_train *train) {
  return (hec_runner_options){.problem = train->problem,
                              .model = train->model,
                              .n_micro_batches = train->n_micro_batches,
                              .assigned = train->problem->tokens * train->model->top_k,
                              .schedule = train->schedule,
                              .collective = train->collective,
                              .virtual_time = train->virtual_time,
                              .keep_grads = train->check,
                              .gated = true,
                              .capacity = train->capacity};
}

hec_status hec_train_check(const hec_train *train, const hec_policy *policy) {
  const hec_schedule *schedule;
  HEC_TRY(hec_schedule_of(policy, train->schedule, &schedule));
  HEC_TRY(hec_policy_suits(policy, train->problem));
  if (policy->rewrite || schedule->bound)
    return hec_fail(HEC_BAD_INPUT, "policy %s cannot train: it %s", policy->name,
                    schedule->bound ? "is a bound, no system" : "forces loads, and in training the gate chooses them");
  const hec_gate *gate = train->model->gate;
  if (train->bias_rate > 0 && !gate->biased)
    return hec_fail(HEC_BAD_INPUT, "`balance` bias: gate %s does not choose by adding a bias to affinities",
                    gate->name);
  if (train->aux > 0 && gate->balanced)
    return hec_fail(HEC_BAD_INPUT, "`balance` aux: gate %s is balanced by construction", gate->name);
  HEC_TRY(hec_gate_check(train->model, train->problem->tokens));
  return hec_corpus_check(train->corpus, train->model, train->problem->tokens);
}

size_t hec_train_bytes(const hec_train *train, const hec_policy *policy) {
  hec_runner_options options = options_of(train);
  return hec_runner_bytes(&options, policy);
}

/* ---- The ends of the model ---- */

static hec_language language_of(const state *s, const hec_work_end *at) {
  return (hec_language){.model = s->train->model,
                        .tokens = s->train->problem->tokens,
                        .params = at->dense.params,
                        .grads = at->dense.grads,
                        .kept = s->kept};
}

static void embedding(void *context, const hec_work_end *at) {
  state *s = context;
  hec_language language = language_of(s, at);
  const uint8_t *ids = s->ids + (size_t)at->micro_batch * (size_t)language.tokens;
  if (at->backward)
    hec_language_embed_backward(&language, ids, at->dx);
  else
    hec_language_embed(&language, ids, at->x);
}

static void head(void *context, const hec_work_end *at) {
  state *s = context;
  hec_language language = language_of(s, at);
  const uint8_t *next = s->next + (size_t)at->micro_batch * (size_t)language.tokens;
  if (at->backward)
    hec_language_head_backward(&language, next, s->factor, at->dx);
  else
    s->loss += hec_language_head(&language, next, at->x) * (double)s->factor;
}

/* ---- A step ---- */

static hec_status load_of(hec_runner *r, int32_t micro_batch, int32_t layer, const hec_load **load) {
  *load = &r->loads[micro_batch];
  return hec_runner_counts(r, micro_batch, layer, &r->loads[micro_batch]);
}

static void prepare(state *s, int64_t step) {
  const hec_train *train = s->train;
  hec_runner *r = s->runner;
  int32_t tokens = train->problem->tokens;
  for (int32_t mb = 0; mb < train->n_micro_batches; mb++) {
    size_t at = (size_t)mb * (size_t)tokens;
    hec_corpus_batch(train->corpus, train->model, (hec_corpus_place){step, mb, r->rank->rank, r->rank->n_ranks, tokens},
                     s->ids + at, s->next + at);
  }
  s->loss = r->work.balance_loss = 0;
  r->work.step = step;
  r->work.double_gradient = train->double_step == step;
  if (r->work.keep_grads)
    hec_work_zero_grads(&r->work, r->exec);
}

/* Tokens of all layers and micro-batches without an expert; what capacities took back. */
static void count_losses(state *s, share *own) {
  hec_assignments *const *all = s->runner->work.assignments;
  int32_t tokens = s->train->problem->tokens, lists = s->train->n_micro_batches * s->train->model->n_blocks;
  for (int32_t i = 0; i < lists && s->train->model->gate->varies; i++) {
    memset(s->routed, 0, (size_t)tokens * sizeof *s->routed);
    for (int32_t j = 0; j < all[i]->n; j++)
      s->routed[all[i]->token[j]] = true;
    for (int32_t t = 0; t < tokens; t++)
      own->unrouted += !s->routed[t];
    own->dropped += all[i]->n_dropped;
  }
}

/* Busiest expert over the mean, of a layer's load; 1 when there are no tokens, as for ranks. */
static double expert_overload(const hec_load *load, int32_t layer) {
  double all = 0, max = 0;
  for (int32_t e = 0; e < load->n_experts; e++) {
    double n = 0;
    for (int32_t r = 0; r < load->n_sources; r++)
      n += hec_load_row(load, layer, r)[e];
    all += n;
    max = n > max ? n : max;
  }
  return all > 0 ? max * load->n_experts / all : 1;
}

static void measure_overload(const hec_runner *r, hec_train_measure *measure) {
  int32_t n, lists = 0;
  const double *of = hec_lowering_overload(r->low, &n);
  for (int32_t i = 0; i < n; i++)
    measure->overload += of[i] / n;
  for (int32_t mb = 0; mb < r->options.n_micro_batches; mb++)
    for (int32_t l = 0; l < r->loads[mb].n_layers; l++, lists++)
      measure->expert_overload += expert_overload(&r->loads[mb], l);
  measure->expert_overload /= lists;
}

/* Shares meet on rank 0 and are added in the order of ranks. */
static hec_status add_up(state *s, hec_train_measure *measure) {
  share own = {.loss = s->loss, .balance_loss = s->runner->work.balance_loss};
  const hec_train *train = s->train;
  double tokens =
      (double)train->n_micro_batches * train->model->n_blocks * train->problem->n_ranks * train->problem->tokens;
  count_losses(s, &own);
  HEC_TRY(hec_rank_gather(s->runner->rank, &own, sizeof own, s->shares));
  for (int32_t i = 0; s->shares && i < s->runner->rank->n_ranks; i++) {
    measure->loss += s->shares[i].loss;
    measure->balance_loss += s->shares[i].balance_loss;
    measure->dropped += s->shares[i].dropped / (tokens * train->model->top_k);
    measure->unrouted += s->shares[i].unrouted / tokens;
  }
  measure_overload(s->runner, measure);
  return HEC_OK;
}

static hec_status step(state *s, int64_t index) {
  const hec_train *train = s->train;
  hec_runner *r = s->runner;
  hec_train_measure measure = {.step = index + 1};
  prepare(s, measure.step);
  HEC_TRY(hec_runner_iterate(r, index));
  if (train->record)
    hec_record_choices(train->record, r->rank->rank, measure.step, r->work.assignments);
  HEC_TRY(add_up(s, &measure));
  if (train->record)
    HEC_TRY(hec_record_step(train->record, r->rank, r->loads));
  if (r->rank->rank == 0 && train->measured) {
    measure.timeline = &r->timeline;
    measure.program = hec_lowering_program(r->low);
    measure.note = hec_lowering_note(r->low);
    measure.iteration_s = (double)hec_timeline_end_ps(&r->timeline) * 1e-12;
    train->measured(train->context, &measure);
  }
  if (train->bias_rate > 0)
    hec_bias_update(train->model, train->bias_rate, r->loads, train->n_micro_batches, s->bias);
  hec_check_text text = {.corpus = train->corpus,
                         .balance = train->aux,
                         .bias_rate = train->bias_rate,
                         .loss = measure.loss,
                         .balance_loss = measure.balance_loss};
  if (!s->check)
    return HEC_OK;
  HEC_TRY(hec_check_step(s->check, &r->work, index, r->loads, &text));
  return hec_check_window(s->check, r->exec);
}

/* ---- The run ---- */

static int64_t steps_before(const hec_train *train) {
  return train->checkpoint ? train->checkpoint->step : 0;
}

/* Decisions follow from the loads alone, and so does the bias of gates: what a checkpoint need not have. */
static hec_status past(hec_runner *r) {
  state *s = r->context;
  const hec_train *train = s->train;
  for (int64_t i = 0; i < steps_before(train); i++) {
    hec_rank_at_phase(r->rank, i, "planning again");
    HEC_TRY(hec_rank_check(r->rank));
    HEC_TRY(hec_record_read(train->record, i, r->loads));
    hec_lower_iteration(r->low, i, r->loads, train->n_micro_batches, train->n_micro_batches);
    if (train->bias_rate > 0)
      hec_bias_update(train->model, train->bias_rate, r->loads, train->n_micro_batches, s->bias);
  }
  return HEC_OK;
}

static hec_status resume(state *s) {
  hec_runner *r = s->runner;
  HEC_TRY(hec_checkpoint_read(s->train->checkpoint, s->train->record, r->exec, r->rank));
  return s->check ? hec_check_resume(s->check, r->exec, steps_before(s->train), r->work.bias) : HEC_OK;
}

static hec_status save(const state *s, int64_t step) {
  const hec_checkpoint *c = s->train->checkpoint;
  hec_runner *r = s->runner;
  if (!c || (step % c->every != 0 && step != s->train->n_steps))
    return HEC_OK;
  return hec_checkpoint_write(c, step, s->train->record, r->exec, r->rank);
}

static hec_status open_state(state *s, const hec_policy *policy) {
  const hec_train *train = s->train;
  hec_runner *r = s->runner;
  size_t all = (size_t)train->n_micro_batches * (size_t)train->problem->tokens;
  s->bias = HEC_NEW(&r->arena, float, train->model->n_blocks * train->model->n_experts);
  HEC_TRY(hec_runner_open(r, policy));
  r->work.ends = (hec_work_ends){.embedding = embedding, .head = head, .context = s};
  r->work.balance = train->aux / (float)train->n_micro_batches;
  s->ids = HEC_NEW(&r->arena, uint8_t, all);
  s->next = HEC_NEW(&r->arena, uint8_t, all);
  s->kept = HEC_NEW(&r->arena, float, hec_language_kept(train->model, train->problem->tokens));
  s->factor = 1 / ((float)all * (float)r->rank->n_ranks);
  s->shares = r->rank->rank == 0 ? HEC_NEW(&r->arena, share, r->rank->n_ranks) : NULL;
  s->routed = HEC_NEW(&r->arena, bool, train->problem->tokens);
  r->work.bias = train->bias_rate > 0 ? s->bias : NULL;
  if (train->check)
    r->work.affinities = HEC_NEW(&r->arena, float, (int64_t)all * train->model->n_blocks * train->model->n_experts);
  if (train->check)
    s->check = hec_check_new(train->problem, train->model, train->n_micro_batches, r->rank);
  return steps_before(train) > 0 ? resume(s) : HEC_OK;
}

hec_status hec_train_run(const hec_train *train, const hec_policy *policy, hec_rank *rank, hec_check_result *result) {
  HEC_TRY(hec_train_check(train, policy));
  state s = {.train = train};
  hec_runner r = {.options = options_of(train), .rank = rank, .load_of = load_of, .past = past, .context = &s};
  s.runner = &r;
  hec_status status = open_state(&s, policy);
  for (int64_t i = steps_before(train); status == HEC_OK && i < train->n_steps; i++) {
    status = step(&s, i);
    status = status == HEC_OK ? save(&s, i + 1) : status;
  }
  if (status == HEC_OK && s.check)
    status = hec_check_finish(s.check, r.exec, train->n_steps, result);
  if (status == HEC_OK && train->record)
    status = hec_record_gather(train->record, rank);
  hec_check_free(s.check);
  hec_runner_close(&r);
  return status;
}
