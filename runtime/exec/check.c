/* Everything is gathered on rank 0 in pieces. Per step these are the streams. At the end of a window it is, per layer,
 * the dense state of every rank and the expert parts that each rank keeps. Their list comes first, then their floats,
 * padded to the longest list. */
#include "runtime/exec/check.h"

#include "runtime/base/arena.h"
#include "runtime/exec/model/gate.h"
#include "runtime/exec/model/reference.h"
#include "runtime/plan/replicas.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hec_check {
  const hec_problem *problem;
  const hec_model *model;
  int32_t n_micro_batches;
  hec_rank *rank;
  hec_reference *reference; /* on rank 0 */
  hec_arena arena;          /* of a step */
  hec_replay_check result;
  hec_check_stages stages; /* layer NULL: one with all layers */
  double worst_share;      /* of its tolerance that the worst error has */
  int64_t steps, begin;    /* made; of them before the window */
  int64_t before;          /* made before the reference took over */
  bool takes_over;         /* what is there: nothing is compared */
};

int32_t hec_check_steps(const hec_model *model) {
  const hec_moe *moe = &model->moe;
  double width = (double)(moe->d_model > moe->d_ffn ? moe->d_model : moe->d_ffn);
  double sharp = model->gate && model->gate->sharpness ? model->gate->sharpness(model) : 1;
  double steps = fmin(HEC_CHECK_WINDOW, HEC_CHECK_MOVED / ((double)model->adam.rate * sqrt(width)));
  steps *= fmin(1, HEC_CHECK_SHARP / sharp);
  return steps >= HEC_CHECK_WINDOW ? HEC_CHECK_WINDOW : steps > 1 ? (int32_t)steps : 1;
}

hec_check *hec_check_new(const hec_problem *problem, const hec_model *model, int32_t n_micro_batches, hec_rank *rank) {
  hec_check *check = hec_malloc(1, sizeof *check);
  *check = (hec_check){.problem = problem,
                       .model = model,
                       .n_micro_batches = n_micro_batches,
                       .rank = rank,
                       .stages = {.n_stages = 1, .n_local = problem->n_layers},
                       .result = {.passed = true},
                       .worst_share = -1};
  if (rank->rank == 0)
    check->reference = hec_reference_new(model, problem->n_ranks, problem->tokens, problem->train);
  return check;
}

void hec_check_stages_are(hec_check *check, const hec_check_stages *stages) {
  check->stages = *stages;
}

/* The number in the model of a rank's own layer; -1: it has fewer. */
static int32_t layer_of(const hec_check *check, int32_t rank, int32_t own) {
  const hec_check_stages *s = &check->stages;
  return s->layer && own >= 0 ? s->layer[rank / check->problem->n_ranks * s->n_local + own] : own;
}

void hec_check_free(hec_check *check) {
  if (!check)
    return;
  hec_reference_free(check->reference);
  hec_arena_free(&check->arena);
  free(check);
}

static double norm(const float *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += (double)x[i] * (double)x[i];
  return sqrt(sum);
}

/* `n` numbers, which are a part of a tensor `whole`: a part's error is relative to the whole, as rounding is. */
typedef struct {
  const float *whole;
  int64_t whole_n;
  const float *part;
  int64_t n;
} expectation;

static expectation all_of(const float *whole, int64_t n) {
  return (expectation){whole, n, whole, n};
}

static double error_of(const float *found, expectation e) {
  const float *expected = e.part;
  double error = hec_relative_error(found, expected, e.n);
  if (e.n == e.whole_n)
    return error;
  double part = norm(expected, e.n), whole = norm(e.whole, e.whole_n);
  return part == 0 || whole == 0 ? error : error * part / whole;
}

static void compare(hec_check *check, const float *found, expectation e, const char *what) {
  bool exact = check->model->exact;
  if (check->takes_over)
    return;
  const float *expected = e.part;
  int64_t n = e.n;
  double error = error_of(found, e);
  if (exact && memcmp(found, expected, (size_t)n * sizeof *found) != 0)
    error = error > 0 ? error : INFINITY; /* a zero of the other sign counts too: bit for bit */
  if (isnan(error))
    error = INFINITY;
  hec_replay_check *result = &check->result;
  double tolerance = exact ? 0 : hec_reference_tolerance(check->reference, check->steps - check->begin);
  double share = exact ? error : error / tolerance;
  result->compared += n;
  if (share > check->worst_share) {
    check->worst_share = share;
    result->worst = error;
    result->tolerance = tolerance;
    (void)snprintf(result->worst_at, sizeof result->worst_at, "%s, step %" PRId64, what, check->steps);
  }
  if (error <= tolerance)
    return;
  if (result->passed) {
    result->failed_step = check->steps;
    result->failed_error = error;
    result->failed_tolerance = tolerance;
    (void)snprintf(result->failed_at, sizeof result->failed_at, "%s", what);
  }
  result->passed = false;
}

/* On rank 0, until a run diverged. */
static bool compares(const hec_check *check) {
  return check->reference && check->result.diverged_step == 0;
}

static hec_status gather(hec_check *check, const float *data, int64_t n, float **all) {
  *all = check->rank->rank == 0 ? HEC_NEW(&check->arena, float, n * check->rank->n_ranks) : NULL;
  return hec_rank_gather(check->rank, data, (size_t)n * sizeof *data, *all);
}

/* The same of what the ranks' processors have there; NULL: this rank has nothing. */
static hec_status gather_from(hec_check *check, const float *data, int64_t n, float **all) {
  hec_processor *on = check->rank->processor;
  float *host = HEC_NEW(&check->arena, float, n);
  if (data)
    on->math->to_host(on, host, data, n);
  return gather(check, host, n, all);
}

static void at(hec_check *check) {
  hec_rank_at_phase(check->rank, check->steps, "checking");
}

/* ---- A language model's step ---- */

/* From the first step on that has no loss to speak of there is nothing to compare: numbers beyond float say nothing. */
static bool diverged(hec_check *check, double loss) {
  hec_replay_check *result = &check->result;
  if (check->steps == check->before + 1)
    result->first_loss = loss;
  if (result->diverged_step == 0 && !(isfinite(loss) && loss <= HEC_CHECK_EXPLODED * result->first_loss)) {
    result->passed = false;
    result->diverged_step = check->steps;
    result->diverged_loss = loss;
  }
  return result->diverged_step > 0;
}

/* The tokens of the assignments of all ranks, room for T k in each list, and what they were chosen by. NULL but on
 * rank 0. */
static hec_status gather_choices(hec_check *check, const hec_work_state *work, hec_reference_text *batch) {
  int32_t n = work->tokens * work->model->top_k, lists = check->n_micro_batches * work->model->n_blocks;
  int64_t affinities = (int64_t)lists * work->tokens * work->model->n_experts;
  int32_t *own = HEC_NEW(&check->arena, int32_t, (size_t)n * (size_t)lists), *choices = NULL;
  float *all;
  for (int32_t i = 0; i < lists; i++) {
    HEC_ASSERT(work->assignments[i]->n <= n);
    memcpy(own + (size_t)i * (size_t)n, work->assignments[i]->token, (size_t)work->assignments[i]->n * sizeof *own);
  }
  size_t size = (size_t)n * (size_t)lists;
  if (check->reference)
    choices = HEC_NEW(&check->arena, int32_t, size * (size_t)check->problem->n_ranks);
  batch->choices = choices;
  HEC_TRY(hec_rank_gather(check->rank, own, size * sizeof *own, choices));
  HEC_ASSERT(work->affinities);
  HEC_TRY(gather(check, work->affinities, affinities, &all));
  batch->affinities = all;
  return HEC_OK;
}

static void compare_number(hec_check *check, double found, double expected, const char *what) {
  float of[2] = {(float)found, (float)expected};
  compare(check, of, all_of(of + 1, 1), what);
}

static hec_status train_reference(hec_check *check, const hec_work_state *work, const hec_load *loads,
                                  const hec_check_text *text) {
  hec_arena_rewind(&check->arena, (hec_arena_mark){0});
  int32_t n_ranks = check->problem->n_ranks;
  hec_reference_text batch = {.balance = text->balance, .bias_rate = text->bias_rate};
  HEC_TRY(gather_choices(check, work, &batch));
  if (!check->reference || diverged(check, text->loss))
    return HEC_OK;
  size_t all = (size_t)check->n_micro_batches * (size_t)n_ranks * (size_t)work->tokens, at = 0;
  uint8_t *ids = HEC_NEW(&check->arena, uint8_t, all), *next = HEC_NEW(&check->arena, uint8_t, all);
  for (int32_t mb = 0; mb < check->n_micro_batches; mb++)
    for (int32_t r = 0; r < n_ranks; r++, at += (size_t)work->tokens)
      hec_corpus_batch(text->corpus, work->model, (hec_corpus_place){check->steps, mb, r, n_ranks, work->tokens},
                       ids + at, next + at);
  batch.ids = ids;
  batch.next = next;
  hec_reference_loss loss = hec_reference_train(check->reference, check->steps, loads, check->n_micro_batches, &batch);
  check->result.flips += loss.flips;
  compare_number(check, 1 + loss.affined, 1, "affinities of the gates");
  compare_number(check, (double)loss.wrong, 0, "choices of the gates by their affinities");
  compare_number(check, text->loss, loss.loss, "loss");
  compare_number(check, text->balance_loss, loss.balance, "balance loss");
  return HEC_OK;
}

hec_status hec_check_step(hec_check *check, const hec_work_state *work, int64_t index, const hec_load *loads,
                          const hec_check_text *text) {
  int64_t n = (int64_t)work->tokens * work->model->moe.d_model;
  bool train = check->problem->train;
  check->steps = index + 1;
  at(check);
  if (text)
    HEC_TRY(train_reference(check, work, loads, text));
  else if (check->reference)
    hec_reference_step(check->reference, check->steps, loads, check->n_micro_batches);
  for (int32_t mb = 0; mb < check->n_micro_batches; mb++) {
    float *x, *dx = NULL;
    hec_arena_rewind(&check->arena, (hec_arena_mark){0});
    HEC_TRY(gather_from(check, hec_work_stream(work, work->x, mb), n, &x));
    if (train)
      HEC_TRY(gather_from(check, hec_work_stream(work, work->dx, mb), n, &dx));
    for (int32_t r = 0; compares(check) && r < check->problem->n_ranks; r++) {
      char what[64];
      int32_t at_end = check->stages.last * check->problem->n_ranks + r;
      int32_t at_begin = check->stages.first * check->problem->n_ranks + r;
      (void)snprintf(what, sizeof what, "outputs of rank %d, micro-batch %d", at_end, mb);
      compare(check, x + at_end * n, all_of(hec_reference_output(check->reference, mb, r), n), what);
      if (!dx)
        continue;
      (void)snprintf(what, sizeof what, "input gradients of rank %d, micro-batch %d", at_begin, mb);
      compare(check, dx + at_begin * n, all_of(hec_reference_input_gradient(check->reference, mb, r), n), what);
    }
  }
  return HEC_OK;
}

/* ---- The whole state ---- */

static const char *const array_names[] = {"parameters", "gradients", "first moments", "second moments"};

static const float *reference_array(const hec_reference_state *state, int32_t array) {
  const float *const of[] = {state->params, state->grads, state->first, state->second};
  return of[array];
}

/* What the next window begins with; gradients are made anew. */
static void adopt(hec_check *check, const hec_reference_part *part, const float *values) {
  if (part->array != HEC_REFERENCE_GRADS)
    hec_reference_adopt(check->reference, part, values);
}

/* Of a block: what the rank has of it (dense_part.h), or updates of it; of the rest: all. */
static void compare_dense(hec_check *check, const float *found, int64_t n, int32_t layer, int32_t array, int32_t rank) {
  hec_reference_state state = hec_reference_block(check->reference, layer);
  const float *whole = reference_array(&state, array), *expected = whole;
  int32_t mp = layer < 0 ? 1 : check->problem->mp;
  char what[64];
  (void)snprintf(what, sizeof what, "%s of dense block %d on rank %d", array_names[array], layer, rank);
  hec_arena_mark mark = hec_arena_save(&check->arena);
  if (mp > 1) {
    float *part = HEC_NEW(&check->arena, float, n);
    hec_dense_part_take(&(hec_dense_part){check->model, rank % mp, mp}, whole, part);
    expected = part;
  }
  hec_problem_part own = hec_problem_dense_part(check->problem, rank % check->problem->n_ranks);
  if (array == 0) /* gradients are summed and moments kept in the rank's own part alone, with ZeRO-1 */
    own = (hec_problem_part){0, 1};
  int64_t begin = hec_part_begin(n, own.place, own.of), end = hec_part_begin(n, own.place + 1, own.of);
  compare(check, found + begin, (expectation){whole, state.n, expected + begin, end - begin}, what);
  hec_arena_rewind(&check->arena, mark);
}

/* The parts of the first group, which were compared like all. */
static void adopt_dense(hec_check *check, const float *all, int64_t n, int32_t layer, int32_t array) {
  hec_reference_part part = {(hec_reference_array)array, layer, -1, 0, n};
  int32_t mp = layer < 0 ? 1 : check->problem->mp;
  if (mp == 1)
    adopt(check, &part, all);
  for (int32_t r = 0; mp > 1 && r < mp; r++) {
    hec_dense_part own = {check->model, r, mp};
    for (int32_t i = 0; i < hec_dense_part_runs(&own); i++) {
      hec_shard_run run = hec_dense_part_run(&own, i);
      part.begin = run.whole;
      part.n = run.n;
      adopt(check, &part, all + r * n + run.shard);
    }
  }
}

static hec_status check_dense(hec_check *check, hec_exec *exec, int32_t layer, bool goes_on) {
  hec_dense dense = hec_exec_dense(exec, layer < hec_exec_problem(exec)->n_layers ? layer : 0);
  const float *const arrays[] = {dense.params, dense.grads, dense.first, dense.second};
  bool has = layer_of(check, check->rank->rank, layer) >= 0 || layer < 0;
  for (int32_t a = 0; a < (hec_exec_train(exec) ? 4 : 1); a++) {
    float *all;
    hec_arena_rewind(&check->arena, (hec_arena_mark){0});
    HEC_TRY(gather_from(check, has ? arrays[a] : NULL, dense.n, &all));
    for (int32_t r = 0; all && compares(check) && r < check->rank->n_ranks; r++)
      if (layer < 0 || layer_of(check, r, layer) >= 0)
        compare_dense(check, all + r * dense.n, dense.n, layer_of(check, r, layer), a, r);
    if (all && goes_on && compares(check))
      adopt_dense(check, all, dense.n, layer, a);
  }
  return HEC_OK;
}

/* The parts of the layer that this rank keeps, as expert * n_slices + part, and one array of them packed. */
static int32_t pack(hec_exec *exec, int32_t layer, int32_t array, int32_t *parts, float *floats) {
  hec_processor *on = hec_exec_processor(exec);
  const hec_problem *p = hec_exec_problem(exec);
  const hec_store *store = hec_exec_store(exec);
  int32_t n = 0;
  for (int32_t e = 0; layer < p->n_layers && e < p->n_experts; e++)
    for (int32_t part = 0; part < store->n_parts; part++) {
      if (!hec_exec_keeps(exec, layer, e, part))
        continue;
      hec_store_part at_part = hec_store_at(store, layer * p->n_experts + e, part);
      const float *const of[] = {at_part.params, at_part.grads, at_part.first, at_part.second};
      on->math->to_host(on, floats, of[array], at_part.n);
      floats += at_part.n;
      parts[n++] = e * store->n_parts + part;
    }
  return n;
}

/* One array of what a rank keeps of a layer, as packed. */
typedef struct {
  const hec_store *store;
  int32_t layer, array, rank;
  const int32_t *parts; /* -1 ends */
  const float *floats;
} kept_parts;

static hec_expert_shard shard_of(const hec_check *check, int32_t rank) {
  int32_t esp = check->problem->esp;
  return (hec_expert_shard){.model = check->model, .member = rank % esp, .of = esp};
}

static void compare_parts(hec_check *check, const kept_parts *kept, int32_t *seen) {
  const hec_store *store = kept->store;
  const float *floats = kept->floats;
  hec_expert_shard shard = shard_of(check, kept->rank);
  hec_arena_mark mark = hec_arena_save(&check->arena);
  float *expected = HEC_NEW(&check->arena, float, store->expert_size);
  for (const int32_t *parts = kept->parts; *parts >= 0; parts++) {
    int32_t expert = *parts / store->n_parts, part = *parts % store->n_parts;
    int64_t begin = hec_part_begin(store->expert_size, part, store->n_parts);
    int64_t n = hec_part_begin(store->expert_size, part + 1, store->n_parts) - begin;
    hec_reference_state state = hec_reference_expert(check->reference, kept->layer, expert);
    const float *whole = reference_array(&state, kept->array);
    char what[64];
    (void)snprintf(what, sizeof what, "%s of expert %d of layer %d on rank %d", array_names[kept->array], expert,
                   kept->layer, kept->rank);
    hec_expert_shard_take(&shard, whole, expected);
    hec_replica_own own = hec_replica_own_of(check->problem, expert, kept->rank % check->problem->n_ranks);
    if (kept->array == 0)
      own = (hec_replica_own){0, 1, 1, 1};
    for (int32_t i = 0; i < own.n; i++) {
      int32_t at_part = own.first + i * own.stride;
      int64_t from = hec_part_begin(n, at_part, own.n_parts), to = hec_part_begin(n, at_part + 1, own.n_parts);
      compare(check, floats + from, (expectation){whole, state.n, expected + begin + from, to - from}, what);
    }
    floats += n;
    seen[*parts]++;
  }
  hec_arena_rewind(&check->arena, mark);
}

/* Part `slice` of the expert, or the rank's shard of it: slices are of whole experts. Where several ranks keep a part, the
 * last one's is taken over: all were compared. */
static void adopt_part(hec_check *check, const kept_parts *kept, int32_t expert, int32_t slice, const float *floats) {
  const hec_store *store = kept->store;
  hec_reference_part part = {.array = (hec_reference_array)kept->array, .layer = kept->layer, .expert = expert};
  hec_expert_shard shard = shard_of(check, kept->rank);
  if (shard.of == 1) {
    part.begin = hec_part_begin(store->expert_size, slice, store->n_parts);
    part.n = hec_part_begin(store->expert_size, slice + 1, store->n_parts) - part.begin;
    adopt(check, &part, floats);
    return;
  }
  for (int32_t i = 0, n = hec_expert_shard_runs(&shard); i < n; i++) {
    hec_shard_run run = hec_expert_shard_run(&shard, i);
    part.begin = run.whole;
    part.n = run.n;
    adopt(check, &part, floats + run.shard);
  }
}

static void adopt_parts(hec_check *check, const kept_parts *kept) {
  const hec_store *store = kept->store;
  const float *floats = kept->floats;
  for (const int32_t *parts = kept->parts; *parts >= 0; parts++) {
    int32_t slice = *parts % store->n_parts;
    adopt_part(check, kept, *parts / store->n_parts, slice, floats);
    floats += hec_part_begin(store->expert_size, slice + 1, store->n_parts) -
              hec_part_begin(store->expert_size, slice, store->n_parts);
  }
}

static hec_status check_experts(hec_check *check, hec_exec *exec, int32_t layer, int32_t array, bool goes_on) {
  const hec_store *store = hec_exec_store(exec);
  int32_t n_experts = hec_exec_problem(exec)->n_experts, n_ranks = check->rank->n_ranks;
  int32_t max = n_experts * store->n_parts + 1;
  int64_t floats_max = n_experts * store->expert_size;
  hec_arena_rewind(&check->arena, (hec_arena_mark){0});
  int32_t *parts = HEC_NEW(&check->arena, int32_t, max), *all_parts = NULL, *seen = NULL;
  float *floats = HEC_NEW(&check->arena, float, floats_max), *all;
  parts[pack(exec, layer, array, parts, floats)] = -1;
  if (check->reference) {
    all_parts = HEC_NEW(&check->arena, int32_t, max * n_ranks);
    seen = HEC_NEW(&check->arena, int32_t, max);
  }
  HEC_TRY(hec_rank_gather(check->rank, parts, (size_t)max * sizeof *parts, all_parts));
  HEC_TRY(gather(check, floats, floats_max, &all));
  for (int32_t stage = 0; all && stage < check->stages.n_stages; stage++) {
    int32_t first = stage * check->problem->n_ranks, of_model = layer_of(check, first, layer);
    memset(seen, 0, (size_t)max * sizeof *seen);
    for (int32_t adopts = 0; of_model >= 0 && adopts < (goes_on ? 2 : 1); adopts++)
      for (int32_t r = first; compares(check) && r < first + check->problem->n_ranks; r++) {
        kept_parts kept = {store, of_model, array, r, all_parts + r * max, all + r * floats_max};
        if (adopts)
          adopt_parts(check, &kept);
        else
          compare_parts(check, &kept, seen);
      }
    for (int32_t i = 0; of_model >= 0 && compares(check) && i < max - 1; i++)
      if (seen[i] < check->problem->esp)
        return hec_rank_fail(check->rank, "layer %d: nobody keeps expert %d%s", of_model, i / store->n_parts,
                             seen[i] > 0 ? " whole: shards are missing" : "");
  }
  return HEC_OK;
}

/* goes_on: another window follows, from the state of the run. */
static hec_status check_state(hec_check *check, hec_exec *exec, bool goes_on) {
  HEC_ASSERT(!goes_on || !check->problem->zero); /* nobody has whole moments to go on from */
  at(check);
  for (int32_t l = check->model->moe.vocabulary > 0 ? -1 : 0; l < check->stages.n_local; l++) {
    HEC_TRY(check_dense(check, exec, l, goes_on));
    for (int32_t a = 0; l >= 0 && a < (hec_exec_train(exec) ? 4 : 1); a++)
      HEC_TRY(check_experts(check, exec, l, a, goes_on));
  }
  check->result.windows += compares(check) && !check->takes_over;
  check->begin = check->steps;
  return HEC_OK;
}

hec_status hec_check_resume(hec_check *check, hec_exec *exec, int64_t steps, const float *bias) {
  check->steps = check->before = steps;
  check->takes_over = true;
  if (check->reference && bias)
    hec_reference_adopt_bias(check->reference, bias);
  HEC_TRY(check_state(check, exec, true));
  check->takes_over = false;
  return HEC_OK;
}

hec_status hec_check_window(hec_check *check, hec_exec *exec) {
  return check->steps - check->begin == hec_check_steps(check->model) ? check_state(check, exec, true) : HEC_OK;
}

hec_status hec_check_finish(hec_check *check, hec_exec *exec, int64_t n_steps, hec_replay_check *result) {
  check->steps = n_steps;
  if (n_steps == 0 || check->begin < n_steps)
    HEC_TRY(check_state(check, exec, false));
  if (check->reference && result) {
    *result = check->result;
    result->bits = hec_reference_bits(check->reference);
  }
  return HEC_OK;
}
