/* The dense reference: for every micro-batch and rank, forward and backward through all blocks, all experts here.
 *
 * Forced routing makes the tokens of different ranks strangers to each other, so one (micro-batch, rank) at a time is
 * enough memory. Gradients add up over them, then one Adam step. O(tokens * parameters used), no allocation once the
 * largest step has been seen.
 *
 * Tolerance. Float32 rounds to nearest with unit roundoff u = 2^-24. Take a sum of n terms of random sign, added one
 * after the other. Relative to its own size, its roundings make u sqrt(n / 2) (Higham, Accuracy and Stability, ch. 4).
 * BLAS and math.c keep at least 16 partial sums: u sqrt(n / 32), beside the few roundings of whatever is not a sum.
 * Two orders of the same sum differ by as much. With n = the longest sum (a width, a sequence, the tokens that meet in
 * a weight's gradient):
 *     one pass     about 20 such sums in a chain per block, forward and backward, whose independent errors add in
 *                  squares:  pass = u sqrt(20 blocks (4 + n / 32))
 *     Adam         A gradient g has the error delta = pass * G, G its root mean square. The first update of an element,
 *                  g / (|g| + epsilon), turns it into delta epsilon / (|g| + epsilon)^2: large only where g nearly
 *                  vanishes. Over the density 1 / G of small g the root mean square is delta / sqrt(1.5 epsilon G); a
 *                  tensor of N elements may also have one that is hit in full, delta / epsilon, which its norm divides
 *                  by sqrt(N). The parameters, of size 1 / sqrt(width), get the relative error
 *                      update = rate sqrt(width) pass (sqrt(G / (1.5 epsilon)) + G / (epsilon sqrt(N))),
 *                  with G = sqrt(n) for output gradients of 1, measured where there is a loss.
 *                  Later updates divide by the root of a mean over steps, which is small only where all of them were:
 *                  they add rate sqrt(width) pass each.
 * Together MARGIN * pass * (1 + update / pass + steps rate sqrt(width)). The tests hold both ends: other orders and the
 * other library stay below, every injected fault is above. */
#include "runtime/exec/model/reference.h"

#include "runtime/exec/model/gate.h"
#include "runtime/exec/model/reference_bits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  PARAMS = HEC_REFERENCE_PARAMS,
  GRADS = HEC_REFERENCE_GRADS,
  FIRST = HEC_REFERENCE_FIRST,
  SECOND = HEC_REFERENCE_SECOND,
  N_STATES
};

/* What one (micro-batch, rank) needs; [n_blocks] where it must last from forward to backward. */
typedef struct {
  float *memory, *rows;
  size_t memory_capacity, rows_capacity;
  float **row;
  size_t row_capacity;
  hec_assignments *assignments; /* [n_blocks] */
  int32_t capacity;             /* assignments per block that there is room for */
  hec_arena arena;              /* theirs */
} workspace;

struct hec_reference {
  hec_model model;
  int32_t n_ranks, tokens, n_micro_batches, bits;
  bool train;
  int64_t block_size, expert_size, longest;
  float *block[N_STATES], *expert[N_STATES]; /* [n_blocks][size], [n_blocks][E][size] */
  float *outputs, *input_grads;              /* [micro_batches][n_ranks][T, d] */
  size_t outputs_capacity, input_grads_capacity;
  workspace work;
  /* A language model's. */
  int64_t ends_size;
  float *ends[N_STATES], *ends_kept, *balance; /* [V d, d V]; between head and its backward; [E] */
  float *bias;                                 /* [n_blocks][E] of the gates' choices */
  const hec_reference_text *text;              /* of the step; NULL: forced routing, linear loss */
  const hec_load *loads;
  int32_t micro_batch, rank; /* of the pass */
  hec_reference_loss loss;
  double gradient; /* root mean square of all gradients, the largest since the state was taken over; 0: no text */
  bool adopted;    /* a state was taken over since the last step */
};

/* ---- State ---- */

static int64_t n_block_params(const hec_reference *r) {
  return r->model.n_blocks * r->block_size;
}
static int64_t n_expert_params(const hec_reference *r) {
  return r->model.n_blocks * (int64_t)r->model.n_experts * r->expert_size;
}
static float *block_at(const hec_reference *r, int state, int32_t layer) {
  if (layer < 0)
    return r->ends[state];
  return r->block[state] ? r->block[state] + layer * r->block_size : NULL;
}
static float *expert_at(const hec_reference *r, int state, int32_t layer, int32_t expert) {
  return r->expert[state] ? r->expert[state] + ((int64_t)layer * r->model.n_experts + expert) * r->expert_size : NULL;
}

static float *zeros(int64_t n) {
  float *x = hec_malloc((size_t)n + 1, sizeof *x);
  memset(x, 0, (size_t)n * sizeof *x);
  return x;
}

hec_reference *hec_reference_new(const hec_model *model, int32_t n_ranks, int32_t tokens, bool train) {
  HEC_ASSERT(n_ranks > 0 && tokens >= 0);
  hec_reference *r = hec_malloc(1, sizeof *r);
  *r = (hec_reference){.model = *model, .n_ranks = n_ranks, .tokens = tokens, .train = train, .bits = -1};
  r->block_size = hec_model_block(model).size;
  r->expert_size = hec_model_expert_size(model);
  r->ends_size = hec_language_size(model);
  for (int state = 0; state < (train ? N_STATES : 1); state++) {
    r->block[state] = zeros(n_block_params(r));
    r->expert[state] = zeros(n_expert_params(r));
    r->ends[state] = zeros(r->ends_size);
  }
  if (r->ends_size > 0)
    hec_language_init(model, r->ends[PARAMS]);
  r->ends_kept = zeros(hec_language_kept(model, tokens));
  r->balance = zeros(model->n_experts);
  r->bias = zeros((int64_t)model->n_blocks * model->n_experts);
  for (int32_t layer = 0; layer < model->n_blocks; layer++) {
    hec_model_init_block(model, layer, block_at(r, PARAMS, layer));
    for (int32_t e = 0; e < model->n_experts; e++)
      hec_model_init_expert(model, layer, e, expert_at(r, PARAMS, layer, e));
  }
  r->work.assignments = hec_malloc((size_t)model->n_blocks, sizeof *r->work.assignments);
  return r;
}

void hec_reference_free(hec_reference *r) {
  if (!r)
    return;
  for (int state = 0; state < N_STATES; state++) {
    free(r->block[state]);
    free(r->expert[state]);
    free(r->ends[state]);
  }
  free(r->ends_kept);
  free(r->balance);
  free(r->bias);
  free(r->outputs);
  free(r->input_grads);
  free(r->work.memory);
  free(r->work.rows);
  free(r->work.row);
  free(r->work.assignments);
  hec_arena_free(&r->work.arena);
  free(r);
}

/* ---- Room ---- */

static int64_t count_of(const uint32_t *counts, int32_t n_experts) {
  int64_t n = 0;
  for (int32_t e = 0; e < n_experts; e++)
    n += counts[e];
  return n;
}

/* The most assignments of a rank in a block; the longest sum over tokens, for the tolerance. */
static int32_t max_assignments(hec_reference *r, const hec_load *loads, int32_t n_micro_batches) {
  int64_t max = 0;
  for (int32_t mb = 0; mb < n_micro_batches; mb++) {
    HEC_ASSERT(loads[mb].n_layers == r->model.n_blocks && loads[mb].n_sources == r->n_ranks &&
               loads[mb].n_experts == r->model.n_experts);
    for (int32_t layer = 0; layer < r->model.n_blocks; layer++)
      for (int32_t rank = 0; rank < r->n_ranks; rank++) {
        int64_t n = count_of(hec_load_row(&loads[mb], layer, rank), r->model.n_experts);
        max = n > max ? n : max;
      }
  }
  int64_t all = (int64_t)n_micro_batches * r->n_ranks * r->tokens;
  r->longest = all > r->longest ? all : r->longest;
  HEC_ASSERT(max <= INT32_MAX);
  return (int32_t)max;
}

/* Floats per (micro-batch, rank): stream, its gradient, dh2, scratch, then per block kept values. Beside that, per assignment
 * and block inner row and output, and two rows more for all blocks together. */
static void make_room(hec_reference *r, int32_t n) {
  const hec_model *m = &r->model;
  workspace *w = &r->work;
  int64_t stream = (int64_t)r->tokens * m->moe.d_model, width = (int64_t)m->moe.n_ffn_matrices * m->moe.d_ffn;
  int64_t memory = 3 * stream + hec_model_scratch_size(m, r->tokens) + m->n_blocks * hec_block_kept_size(m, r->tokens);
  int64_t rows = n * (m->n_blocks * (width + m->moe.d_model) + 2 * (int64_t)m->moe.d_model);
  HEC_RESERVE(w->memory, w->memory_capacity, memory + 1);
  HEC_RESERVE(w->rows, w->rows_capacity, rows + 1);
  HEC_RESERVE(w->row, w->row_capacity, 2 * (int64_t)n + 1);
  if (n > w->capacity || !w->arena.newest) {
    hec_arena_free(&w->arena);
    w->capacity = n;
    for (int32_t layer = 0; layer < m->n_blocks; layer++)
      w->assignments[layer] = hec_assignments_new(&w->arena, m, n, NULL);
  }
  size_t outputs = (size_t)r->n_micro_batches * (size_t)r->n_ranks * (size_t)stream;
  HEC_RESERVE(r->outputs, r->outputs_capacity, outputs + 1);
  HEC_RESERVE(r->input_grads, r->input_grads_capacity, outputs + 1);
}

/* Places in the workspace. */
static float *stream_at(const hec_reference *r, int which) {
  return r->work.memory + which * (int64_t)r->tokens * r->model.moe.d_model;
}
static float *scratch_at(const hec_reference *r) {
  return stream_at(r, 3);
}
static hec_block_kept kept_at(const hec_reference *r, int32_t layer) {
  float *memory = scratch_at(r) + hec_model_scratch_size(&r->model, r->tokens);
  return hec_block_kept_at(&r->model, layer, r->tokens, memory + layer * hec_block_kept_size(&r->model, r->tokens));
}
/* Rows of a block: inner, outputs; rows that all blocks share: in, din (or dout). */
static float *inner_at(const hec_reference *r, int32_t layer) {
  const hec_moe *moe = &r->model.moe;
  int64_t width = (int64_t)moe->n_ffn_matrices * moe->d_ffn + moe->d_model;
  return r->work.rows + r->work.capacity * (2 * (int64_t)moe->d_model + layer * width);
}
static float *outputs_at(const hec_reference *r, int32_t layer) {
  return inner_at(r, layer) + (int64_t)r->work.capacity * r->model.moe.n_ffn_matrices * r->model.moe.d_ffn;
}

/* Pointers to the rows of [n, d] in the order of the assignments; `which`: one of two lists. */
static float **rows_of(const hec_reference *r, int which, float *rows, int32_t n) {
  float **row = r->work.row + which * (int64_t)r->work.capacity;
  for (int32_t j = 0; j < n; j++)
    row[j] = rows + (int64_t)j * r->model.moe.d_model;
  return row;
}

/* ---- What a language model adds ---- */

static hec_language language_of(const hec_reference *r) {
  return (hec_language){.model = &r->model,
                        .tokens = r->tokens,
                        .params = r->ends[PARAMS],
                        .grads = r->ends[GRADS],
                        .kept = r->ends_kept};
}

static const uint8_t *symbols_at(const hec_reference *r, const uint8_t *symbols) {
  return symbols + ((int64_t)r->micro_batch * r->n_ranks + r->rank) * r->tokens;
}

/* Assignments of `a` that are not in `own`; tokens ascend within an expert. */
static int64_t count_others(const hec_assignments *a, const hec_assignments *own, int32_t n_experts) {
  int64_t n = 0;
  for (int32_t e = 0; e < n_experts; e++) {
    int32_t i = own->expert_at[e], end = own->expert_at[e + 1];
    for (int32_t j = a->expert_at[e]; j < a->expert_at[e + 1]; j++) {
      while (i < end && own->token[i] < a->token[j])
        i++;
      n += i == end || own->token[i] != a->token[j];
    }
  }
  return n;
}

/* The choices are those that the gate makes of the affinities that are said to be behind them, and these are what they
 * should be. So nothing depends on which of two nearly equal ones is larger here. */
static void verify(hec_reference *r, int64_t list, const hec_gate_call *call, const float *p,
                   const hec_assignments *a) {
  const hec_model *m = &r->model;
  int64_t n = (int64_t)r->tokens * m->n_experts;
  const float *given = r->text->affinities ? r->text->affinities + list * n : p;
  hec_assignments own = hec_assignments_new(call->arena, m, r->tokens * m->top_k, NULL);
  m->gate->choose(m, call, given, r->tokens, &own);
  bool same = own.n == a->n &&
              memcmp(own.expert_at, a->expert_at, ((size_t)m->n_experts + 1) * sizeof *own.expert_at) == 0 &&
              memcmp(own.token, a->token, (size_t)own.n * sizeof *own.token) == 0;
  r->loss.wrong += !same;
  if (given != p)
    m->gate->choose(m, call, p, r->tokens, &own);
  r->loss.flips += count_others(a, &own, m->n_experts);
  double error = hec_relative_error(given, p, n);
  if (!(error <= r->loss.affined)) /* not a number too */
    r->loss.affined = isnan(error) ? (double)INFINITY : error;
}

/* Takes the choices over. */
static void assign_given(hec_reference *r, int64_t step, int32_t layer, const uint32_t *counts, const float *p,
                         hec_assignments *a) {
  const hec_model *m = &r->model;
  int64_t n = (int64_t)r->tokens * m->top_k, place = (int64_t)r->rank * r->n_micro_batches + r->micro_batch;
  int64_t list = place * m->n_blocks + layer;
  hec_assign_forced(&(hec_token_row){counts, m->n_experts, r->tokens, layer, r->rank}, a);
  HEC_ASSERT(a->n <= n);
  memcpy(a->token, r->text->choices + list * n, (size_t)a->n * sizeof *a->token);
  for (int32_t j = 0; j < a->n; j++)
    HEC_ASSERT(a->token[j] >= 0 && a->token[j] < r->tokens);
  HEC_SCOPED(hec_arena) arena = {0};
  const hec_gate_call call = {.step = step,
                              .first = ((int64_t)r->micro_batch * r->n_ranks + r->rank) * r->tokens,
                              .layer = layer,
                              .bias = r->text->bias_rate > 0 ? r->bias + (int64_t)layer * m->n_experts : NULL,
                              .arena = &arena};
  verify(r, list, &call, p, a);
}

static void add_balance(hec_reference *r, int32_t layer, const float *p, hec_assignments *a) {
  a->balance = NULL;
  if (!r->text || r->text->balance <= 0)
    return;
  a->balance = r->balance;
  hec_balance of_all = {.counts = hec_load_row(&r->loads[r->micro_batch], layer, 0),
                        .n_ranks = r->n_ranks,
                        .coefficient = r->text->balance / (float)r->n_micro_batches};
  r->loss.balance += hec_assign_balance(&r->model, &of_all, p, a);
}

static void input(hec_reference *r, int64_t step, float *x) {
  hec_language language = language_of(r);
  if (r->text)
    hec_language_embed(&language, symbols_at(r, r->text->ids), x);
  else
    hec_model_input(&r->model, step, r->micro_batch, r->rank, r->tokens, x);
}

static void output_gradient(hec_reference *r, int64_t step, const float *x, float *dx) {
  if (!r->text) {
    hec_model_output_gradient(&r->model, step, r->micro_batch, r->rank, r->tokens, dx);
    return;
  }
  hec_language language = language_of(r);
  double all = (double)r->n_ranks * r->n_micro_batches * r->tokens;
  r->loss.loss += hec_language_head(&language, symbols_at(r, r->text->next), x) / all;
  hec_language_head_backward(&language, symbols_at(r, r->text->next), (float)(1 / all), dx);
}

static void measure_gradients(hec_reference *r) {
  const float *const of[] = {r->block[GRADS], r->expert[GRADS], r->ends[GRADS]};
  const int64_t n[] = {n_block_params(r), n_expert_params(r), r->ends_size};
  double sum = 0, all = 0;
  for (int k = 0; k < 3; k++) {
    all += (double)n[k];
    for (int64_t i = 0; i < n[k]; i++)
      sum += (double)of[k][i] * (double)of[k][i];
  }
  r->gradient = r->adopted || sqrt(sum / all) > r->gradient ? sqrt(sum / all) : r->gradient;
  r->adopted = false;
}

/* ---- Forward and backward of one block ---- */

static void forward(hec_reference *r, int64_t step, int32_t layer, const uint32_t *counts, float *x) {
  const hec_model *m = &r->model;
  const float *params = block_at(r, PARAMS, layer);
  hec_block_kept kept = kept_at(r, layer);
  hec_assignments *a = &r->work.assignments[layer];
  int64_t d = m->moe.d_model, width = (int64_t)m->moe.n_ffn_matrices * m->moe.d_ffn;
  float *in = r->work.rows, *inner = inner_at(r, layer), *out = outputs_at(r, layer);
  const hec_arithmetic *cpu = hec_processor_cpu.math;
  hec_block_attention(&hec_processor_cpu, m, params, r->tokens, x, &kept, scratch_at(r));
  hec_block_gate(&hec_processor_cpu, m, params, r->tokens, x, &kept, scratch_at(r));
  if (r->text)
    assign_given(r, step, layer, counts, kept.probabilities, a);
  else
    hec_assign_forced(&(hec_token_row){counts, m->n_experts, r->tokens, layer, r->rank}, a);
  hec_assign_weights(&hec_processor_cpu, m, kept.probabilities, a);
  cpu->permute(&hec_processor_cpu, a, kept.h2, m->moe.d_model, rows_of(r, 0, in, a->n));
  for (int32_t e = 0; e < m->n_experts; e++) {
    int32_t at = a->expert_at[e];
    hec_experts_forward(&hec_processor_cpu, m,
                        &(hec_expert_rows){.params = expert_at(r, PARAMS, layer, e),
                                           .n = a->expert_at[e + 1] - at,
                                           .in = in + at * d,
                                           .inner = inner + at * width,
                                           .out = out + at * d},
                        1);
  }
  hec_block_shared(&hec_processor_cpu, m, params, r->tokens, kept.h2, x, scratch_at(r));
  cpu->combine(&hec_processor_cpu, a, rows_of(r, 0, out, a->n), m->moe.d_model, x);
}

static void backward(hec_reference *r, int32_t layer, float *dx) {
  const hec_model *m = &r->model;
  const float *params = block_at(r, PARAMS, layer);
  float *grads = block_at(r, GRADS, layer), *scratch = scratch_at(r), *dh2 = stream_at(r, 2);
  hec_block_kept kept = kept_at(r, layer);
  hec_assignments *a = &r->work.assignments[layer];
  int32_t d = m->moe.d_model;
  int64_t width = (int64_t)m->moe.n_ffn_matrices * m->moe.d_ffn;
  float *in = r->work.rows, *din = in + (int64_t)r->work.capacity * d, *out = outputs_at(r, layer);
  float **row = rows_of(r, 0, out, a->n);
  const hec_arithmetic *cpu = hec_processor_cpu.math;
  cpu->uncombine(&hec_processor_cpu, a, dx, row, d, row); /* outputs make room for their gradients */
  cpu->permute(&hec_processor_cpu, a, kept.h2, d, rows_of(r, 1, in, a->n));
  for (int32_t e = 0; e < m->n_experts; e++) {
    int64_t at = a->expert_at[e];
    hec_experts_backward(&hec_processor_cpu, m,
                         &(hec_expert_rows){.params = expert_at(r, PARAMS, layer, e),
                                            .grads = expert_at(r, GRADS, layer, e),
                                            .n = a->expert_at[e + 1] - (int32_t)at,
                                            .in = in + at * d,
                                            .inner = inner_at(r, layer) + at * width,
                                            .out = out + at * d,
                                            .din = din + at * d},
                         1);
  }
  if (r->tokens > 0)
    memset(dh2, 0, (size_t)r->tokens * (size_t)d * sizeof *dh2);
  cpu->unpermute(&hec_processor_cpu, a, rows_of(r, 0, din, a->n), d, dh2);
  hec_block_shared_backward(&hec_processor_cpu, m, params, grads, r->tokens, kept.h2, dx, dh2, scratch);
  add_balance(r, layer, kept.probabilities, a);
  hec_block_gate_backward(&hec_processor_cpu, m, params, grads, r->tokens, dh2, dx, a, &kept, scratch);
  hec_block_attention_backward(&hec_processor_cpu, m, params, grads, r->tokens, dx, &kept, scratch);
}

/* ---- The step ---- */

static int64_t place_of(const hec_reference *r, int32_t micro_batch, int32_t rank) {
  HEC_ASSERT(micro_batch >= 0 && micro_batch < r->n_micro_batches && rank >= 0 && rank < r->n_ranks);
  return ((int64_t)micro_batch * r->n_ranks + rank) * r->tokens * r->model.moe.d_model;
}

static void save(float *to, const float *from, int64_t n) {
  if (n > 0)
    memcpy(to, from, (size_t)n * sizeof *to);
}

static void pass(hec_reference *r, int64_t step) {
  const hec_model *m = &r->model;
  float *x = stream_at(r, 0), *dx = stream_at(r, 1);
  int64_t n = (int64_t)r->tokens * m->moe.d_model;
  input(r, step, x);
  for (int32_t layer = 0; layer < m->n_blocks; layer++)
    forward(r, step, layer, hec_load_row(&r->loads[r->micro_batch], layer, r->rank), x);
  save(r->outputs + place_of(r, r->micro_batch, r->rank), x, n);
  if (!r->train)
    return;
  output_gradient(r, step, x, dx);
  for (int32_t layer = m->n_blocks - 1; layer >= 0; layer--)
    backward(r, layer, dx);
  save(r->input_grads + place_of(r, r->micro_batch, r->rank), dx, n);
  hec_language language = language_of(r);
  if (r->text)
    hec_language_embed_backward(&language, symbols_at(r, r->text->ids), dx);
}

void hec_reference_step(hec_reference *r, int64_t step, const hec_load *loads, int32_t n_micro_batches) {
  const hec_model *m = &r->model;
  HEC_ASSERT(n_micro_batches > 0);
  r->n_micro_batches = n_micro_batches;
  make_room(r, max_assignments(r, loads, n_micro_batches));
  if (r->train) {
    memset(r->block[GRADS], 0, (size_t)n_block_params(r) * sizeof(float));
    memset(r->expert[GRADS], 0, (size_t)n_expert_params(r) * sizeof(float));
    memset(r->ends[GRADS], 0, (size_t)r->ends_size * sizeof(float));
  }
  r->loads = loads;
  for (r->micro_batch = 0; r->micro_batch < n_micro_batches; r->micro_batch++)
    for (r->rank = 0; r->rank < r->n_ranks; r->rank++)
      pass(r, step);
  if (m->exact)
    r->bits = hec_bits_of_step(&(hec_bits_step){.model = m,
                                                .block = r->block[PARAMS],
                                                .experts = r->expert[PARAMS],
                                                .block_grads = r->block[GRADS],
                                                .expert_grads = r->expert[GRADS],
                                                .outputs = r->outputs,
                                                .input_grads = r->input_grads,
                                                .n_ranks = r->n_ranks,
                                                .tokens = r->tokens,
                                                .train = r->train,
                                                .step = step,
                                                .loads = loads,
                                                .n_micro_batches = n_micro_batches});
  if (!r->train)
    return;
  hec_math_adam(&m->adam, step, r->block[PARAMS], r->block[GRADS], r->block[FIRST], r->block[SECOND],
                n_block_params(r));
  hec_math_adam(&m->adam, step, r->expert[PARAMS], r->expert[GRADS], r->expert[FIRST], r->expert[SECOND],
                n_expert_params(r));
  hec_math_adam(&m->adam, step, r->ends[PARAMS], r->ends[GRADS], r->ends[FIRST], r->ends[SECOND], r->ends_size);
}

hec_reference_loss hec_reference_train(hec_reference *r, int64_t step, const hec_load *loads, int32_t n_micro_batches,
                                       const hec_reference_text *text) {
  HEC_ASSERT(r->train && r->ends_size > 0);
  r->text = text;
  r->loss = (hec_reference_loss){0};
  hec_reference_step(r, step, loads, n_micro_batches);
  measure_gradients(r);
  if (text->bias_rate > 0)
    hec_bias_update(&r->model, text->bias_rate, loads, n_micro_batches, r->bias);
  r->text = NULL;
  return r->loss;
}

/* ---- Answers ---- */

const float *hec_reference_output(const hec_reference *r, int32_t micro_batch, int32_t rank) {
  return r->outputs + place_of(r, micro_batch, rank);
}

const float *hec_reference_input_gradient(const hec_reference *r, int32_t micro_batch, int32_t rank) {
  HEC_ASSERT(r->train);
  return r->input_grads + place_of(r, micro_batch, rank);
}

hec_reference_state hec_reference_block(const hec_reference *r, int32_t layer) {
  return (hec_reference_state){.params = block_at(r, PARAMS, layer),
                               .grads = block_at(r, GRADS, layer),
                               .first = block_at(r, FIRST, layer),
                               .second = block_at(r, SECOND, layer),
                               .n = layer < 0 ? r->ends_size : r->block_size};
}

hec_reference_state hec_reference_expert(const hec_reference *r, int32_t layer, int32_t expert) {
  return (hec_reference_state){.params = expert_at(r, PARAMS, layer, expert),
                               .grads = expert_at(r, GRADS, layer, expert),
                               .first = expert_at(r, FIRST, layer, expert),
                               .second = expert_at(r, SECOND, layer, expert),
                               .n = r->expert_size};
}

void hec_reference_adopt(hec_reference *r, const hec_reference_part *part, const float *values) {
  float *to = part->expert < 0 ? block_at(r, (int)part->array, part->layer)
                               : expert_at(r, (int)part->array, part->layer, part->expert);
  int64_t size = part->expert >= 0 ? r->expert_size : part->layer < 0 ? r->ends_size : r->block_size;
  HEC_ASSERT(r->train && part->begin >= 0 && part->n >= 0 && part->begin + part->n <= size);
  save(to + part->begin, values, part->n);
  r->adopted = true;
}

void hec_reference_adopt_bias(hec_reference *r, const float *bias) {
  save(r->bias, bias, (int64_t)r->model.n_blocks * r->model.n_experts);
}

int32_t hec_reference_bits(const hec_reference *r) {
  return r->bits;
}

double hec_relative_error(const float *a, const float *b, int64_t n) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < n; i++) {
    double delta = (double)a[i] - (double)b[i];
    difference += delta * delta;
    norm += (double)b[i] * (double)b[i];
  }
  return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

enum { MARGIN = 4, SUMS_PER_BLOCK = 20, PARTIAL_SUMS = 16 };

double hec_reference_tolerance(const hec_reference *r, int64_t steps) {
  const hec_moe *moe = &r->model.moe;
  const int64_t lengths[] = {moe->d_model, (int64_t)moe->n_heads * moe->d_head, moe->d_ffn, moe->seq_len, r->longest};
  double n = 1, width = (double)(moe->d_model > moe->d_ffn ? moe->d_model : moe->d_ffn);
  for (int i = 0; i < 5; i++)
    n = (double)lengths[i] > n ? (double)lengths[i] : n;
  double pass_error = ldexp(1, -24) * sqrt(SUMS_PER_BLOCK * r->model.n_blocks * (4 + n / (2 * PARTIAL_SUMS)));
  double one = (double)r->model.adam.rate * sqrt(width), epsilon = (double)r->model.adam.epsilon;
  double size = r->gradient > 0 ? r->gradient : sqrt(n); /* G: a mean loss has small gradients, so they were measured */
  double smallest = fmin((double)r->block_size, (double)r->expert_size);
  double update = one * (sqrt(size / (1.5 * epsilon)) + size / (epsilon * sqrt(smallest)));
  return MARGIN * pass_error * (1 + (r->train ? update + (double)steps * one : 0));
}
