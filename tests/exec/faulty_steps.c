/* See faulty_steps.h. O(tokens * parameters used); memory from one arena per run. */
#include "tests/exec/faulty_steps.h"
#include "tests/support/check_main.h"

#include <math.h>
#include <string.h>

typedef struct {
  hec_block_kept kept;
  hec_assignments a;
  float **row_in, **row_out, **row_din; /* [n] */
} rank_part;

/* One layer of one micro-batch: rows of an expert stand together, ranks from last to first. */
typedef struct {
  rank_part *part; /* [n_ranks] */
  int32_t *at;     /* [E + 1] rows */
  int32_t *own;    /* [E][n_ranks] first row of a rank */
  float *in, *inner, *out, *din;
} layer_rows;

typedef struct {
  const hec_steps *s;
  const hec_fault *fault; /* NULL: not in this step */
  hec_arena arena;
  int64_t block, expert;
  float *blocks, *block_grads, *block_moments; /* moments: first, then second */
  float *experts, *expert_grads, *expert_moments, *stale;
  float *scratch, *dh2;
  float **x, **dx;   /* [micro_batches * n_ranks] */
  layer_rows *layer; /* [n_blocks] */
} run;

static float *new_floats(run *r, int64_t n) {
  return HEC_NEW(&r->arena, float, n + 1);
}

static bool is_fault(const run *r, hec_fault_kind kind, int32_t micro_batch, int32_t layer, int32_t rank) {
  const hec_fault *f = r->fault;
  return f && f->kind == kind && f->micro_batch == micro_batch && f->layer == layer && f->rank == rank;
}

static int32_t fault_expert(const run *r, const hec_assignments *a) {
  int32_t e = 0;
  while (a->expert_at[e + 1] <= r->fault->assignment)
    e++;
  return e;
}

/* Rows of every (expert, rank), and pointers to them in the order of each rank's assignments. */
static void place_rows(run *r, layer_rows *l) {
  const hec_model *m = r->s->model;
  int32_t n = 0, d = m->moe.d_model, ranks = r->s->n_ranks;
  l->at = HEC_NEW(&r->arena, int32_t, m->n_experts + 1);
  l->own = HEC_NEW(&r->arena, int32_t, m->n_experts * ranks);
  for (int32_t e = 0; e < m->n_experts; e++) {
    l->at[e] = n;
    for (int32_t rank = ranks - 1; rank >= 0; rank--) {
      l->own[e * ranks + rank] = n;
      n += l->part[rank].a.expert_at[e + 1] - l->part[rank].a.expert_at[e];
    }
  }
  l->at[m->n_experts] = n;
  l->in = new_floats(r, (int64_t)n * d);
  l->out = new_floats(r, (int64_t)n * d);
  l->din = new_floats(r, (int64_t)n * d);
  l->inner = new_floats(r, (int64_t)n * m->moe.n_ffn_matrices * m->moe.d_ffn);
  for (int32_t rank = 0; rank < ranks; rank++) {
    rank_part *p = &l->part[rank];
    p->row_in = HEC_NEW(&r->arena, float *, p->a.n + 1);
    p->row_out = HEC_NEW(&r->arena, float *, p->a.n + 1);
    p->row_din = HEC_NEW(&r->arena, float *, p->a.n + 1);
    for (int32_t e = 0; e < m->n_experts; e++)
      for (int32_t j = p->a.expert_at[e]; j < p->a.expert_at[e + 1]; j++) {
        int64_t row = l->own[e * ranks + rank] + j - p->a.expert_at[e];
        p->row_in[j] = l->in + row * d;
        p->row_out[j] = l->out + row * d;
        p->row_din[j] = l->din + row * d;
      }
  }
}

static void forward_rank(run *r, int32_t mb, int32_t layer, int32_t rank) {
  const hec_model *m = r->s->model;
  rank_part *p = &r->layer[layer].part[rank];
  const uint32_t *counts = hec_load_row(&r->s->loads[mb], layer, rank);
  int32_t n = 0, tokens = r->s->tokens;
  for (int32_t e = 0; e < m->n_experts; e++)
    n += (int32_t)counts[e];
  p->kept = hec_block_kept_at(m, layer, tokens, new_floats(r, hec_block_kept_size(m, tokens)));
  p->a = hec_assignments_new(&r->arena, m, n, NULL);
  float *x = r->x[mb * r->s->n_ranks + rank];
  hec_block_attention(&hec_processor_cpu, m, r->blocks + layer * r->block, tokens, x, &p->kept, r->scratch);
  hec_block_gate(&hec_processor_cpu, m, r->blocks + layer * r->block, tokens, x, &p->kept, r->scratch);
  hec_assign_forced(&(hec_token_row){counts, m->n_experts, tokens, layer, rank}, &p->a);
  hec_assign_weights(&hec_processor_cpu, m, p->kept.probabilities, &p->a);
  if (is_fault(r, HEC_DROPPED, mb, layer, rank))
    p->a.weight[r->fault->assignment] = 0;
  if (is_fault(r, HEC_WRONG_WEIGHT, mb, layer, rank))
    p->a.weight[r->fault->assignment] = p->a.weight[(r->fault->assignment + 1) % n];
}

static void forward_expert(const hec_model *m, const float *params, int32_t n, const float *in, float *inner,
                           float *out) {
  hec_experts_forward(&hec_processor_cpu, m,
                      &(hec_expert_rows){.params = params, .n = n, .in = in, .inner = inner, .out = out}, 1);
}

static void backward_expert(const hec_model *m, const float *params, float *grads, int32_t n, const float *in,
                            float *inner, float *dout, float *din) {
  const hec_expert_rows rows = {params, grads, false, n, in, inner, dout, din};
  hec_experts_backward(&hec_processor_cpu, m, &rows, 1);
}

static void forward_experts(run *r, int32_t mb, int32_t layer) {
  const hec_model *m = r->s->model;
  layer_rows *l = &r->layer[layer];
  int64_t d = m->moe.d_model, width = (int64_t)m->moe.n_ffn_matrices * m->moe.d_ffn;
  place_rows(r, l);
  for (int32_t rank = 0; rank < r->s->n_ranks; rank++)
    hec_processor_cpu.math->permute(&hec_processor_cpu, &l->part[rank].a, l->part[rank].kept.h2, m->moe.d_model,
                                    l->part[rank].row_in);
  for (int32_t e = 0; e < m->n_experts; e++) {
    int64_t at = l->at[e], which = ((int64_t)layer * m->n_experts + e) * r->expert;
    forward_expert(m, r->experts + which, l->at[e + 1] - l->at[e], l->in + at * d, l->inner + at * width,
                   l->out + at * d);
    for (int32_t rank = 0; rank < r->s->n_ranks; rank++)
      if (is_fault(r, HEC_STALE, mb, layer, rank) && fault_expert(r, &l->part[rank].a) == e) {
        const hec_assignments *a = &l->part[rank].a;
        int64_t own = l->own[e * r->s->n_ranks + rank];
        forward_expert(m, r->stale + which, a->expert_at[e + 1] - a->expert_at[e], l->in + own * d,
                       l->inner + own * width, l->out + own * d);
      }
  }
  for (int32_t rank = 0; rank < r->s->n_ranks; rank++) {
    rank_part *p = &l->part[rank];
    float *x = r->x[mb * r->s->n_ranks + rank];
    hec_processor_cpu.math->combine(&hec_processor_cpu, &p->a, p->row_out, m->moe.d_model, x);
    hec_block_shared(&hec_processor_cpu, m, r->blocks + layer * r->block, r->s->tokens, p->kept.h2, x, r->scratch);
  }
}

static void backward_experts(run *r, int32_t mb, int32_t layer) {
  const hec_model *m = r->s->model;
  layer_rows *l = &r->layer[layer];
  int64_t d = m->moe.d_model, width = (int64_t)m->moe.n_ffn_matrices * m->moe.d_ffn;
  for (int32_t rank = 0; rank < r->s->n_ranks; rank++) {
    rank_part *p = &l->part[rank];
    hec_processor_cpu.math->uncombine(&hec_processor_cpu, &p->a, r->dx[mb * r->s->n_ranks + rank], p->row_out,
                                      m->moe.d_model, p->row_out);
    if (is_fault(r, HEC_DROPPED, mb, layer, rank))
      p->a.weight_grad[r->fault->assignment] = 0;
  }
  for (int32_t e = 0; e < m->n_experts; e++) {
    int64_t at = l->at[e], which = ((int64_t)layer * m->n_experts + e) * r->expert;
    float *grads = r->expert_grads + which;
    for (int32_t rank = 0; rank < r->s->n_ranks; rank++)
      if (is_fault(r, HEC_DOUBLED, mb, layer, rank) && fault_expert(r, &l->part[rank].a) == e) {
        const hec_assignments *a = &l->part[rank].a;
        int32_t n = a->expert_at[e + 1] - a->expert_at[e];
        int64_t own = l->own[e * r->s->n_ranks + rank];
        float *inner = new_floats(r, n * width);
        memcpy(inner, l->inner + own * width, (size_t)(n * width) * sizeof *inner);
        backward_expert(m, r->experts + which, grads, n, l->in + own * d, inner, l->out + own * d, l->din + own * d);
      }
    backward_expert(m, r->experts + which, grads, l->at[e + 1] - l->at[e], l->in + at * d, l->inner + at * width,
                    l->out + at * d, l->din + at * d);
  }
}

static void backward_rank(run *r, int32_t mb, int32_t layer, int32_t rank) {
  const hec_model *m = r->s->model;
  rank_part *p = &r->layer[layer].part[rank];
  const float *params = r->blocks + layer * r->block;
  float *grads = r->block_grads + layer * r->block, *dx = r->dx[mb * r->s->n_ranks + rank];
  memset(r->dh2, 0, (size_t)r->s->tokens * (size_t)m->moe.d_model * sizeof(float));
  hec_block_shared_backward(&hec_processor_cpu, m, params, grads, r->s->tokens, p->kept.h2, dx, r->dh2, r->scratch);
  hec_processor_cpu.math->unpermute(&hec_processor_cpu, &p->a, p->row_din, m->moe.d_model, r->dh2);
  hec_block_gate_backward(&hec_processor_cpu, m, params, grads, r->s->tokens, r->dh2, dx, &p->a, &p->kept, r->scratch);
  hec_block_attention_backward(&hec_processor_cpu, m, params, grads, r->s->tokens, dx, &p->kept, r->scratch);
}

static void step(run *r, int64_t number) {
  const hec_steps *s = r->s;
  int64_t blocks = s->model->n_blocks * r->block,
          experts = (int64_t)s->model->n_blocks * s->model->n_experts * r->expert;
  memset(r->block_grads, 0, (size_t)blocks * sizeof(float));
  memset(r->expert_grads, 0, (size_t)experts * sizeof(float));
  for (int32_t mb = 0; mb < s->n_micro_batches; mb++) {
    hec_arena_mark mark = hec_arena_save(&r->arena);
    for (int32_t layer = 0; layer < s->model->n_blocks; layer++)
      r->layer[layer].part = HEC_NEW(&r->arena, rank_part, s->n_ranks);
    for (int32_t rank = 0; rank < s->n_ranks; rank++) {
      hec_model_input(s->model, number, mb, rank, s->tokens, r->x[mb * s->n_ranks + rank]);
      hec_model_output_gradient(s->model, number, mb, rank, s->tokens, r->dx[mb * s->n_ranks + rank]);
    }
    for (int32_t layer = 0; layer < s->model->n_blocks; layer++) {
      for (int32_t rank = s->n_ranks - 1; rank >= 0; rank--)
        forward_rank(r, mb, layer, rank);
      forward_experts(r, mb, layer);
    }
    for (int32_t layer = s->model->n_blocks - 1; layer >= 0; layer--) {
      backward_experts(r, mb, layer);
      for (int32_t rank = s->n_ranks - 1; rank >= 0; rank--)
        backward_rank(r, mb, layer, rank);
    }
    hec_arena_rewind(&r->arena, mark);
  }
  memcpy(r->stale, r->experts, (size_t)experts * sizeof(float));
  hec_math_adam(&s->model->adam, number, r->blocks, r->block_grads, r->block_moments, r->block_moments + blocks,
                blocks);
  hec_math_adam(&s->model->adam, number, r->experts, r->expert_grads, r->expert_moments, r->expert_moments + experts,
                experts);
}

static void begin(run *r) {
  const hec_model *m = r->s->model;
  int64_t stream = (int64_t)r->s->tokens * m->moe.d_model;
  r->block = hec_model_block(m).size;
  r->expert = hec_model_expert_size(m);
  int64_t blocks = m->n_blocks * r->block, experts = (int64_t)m->n_blocks * m->n_experts * r->expert;
  r->blocks = new_floats(r, blocks);
  r->block_grads = new_floats(r, blocks);
  r->block_moments = new_floats(r, 2 * blocks);
  r->experts = new_floats(r, experts);
  r->stale = new_floats(r, experts);
  r->expert_grads = new_floats(r, experts);
  r->expert_moments = new_floats(r, 2 * experts);
  r->scratch = new_floats(r, hec_model_scratch_size(m, r->s->tokens));
  r->dh2 = new_floats(r, stream);
  r->layer = HEC_NEW(&r->arena, layer_rows, m->n_blocks);
  int32_t n = r->s->n_micro_batches * r->s->n_ranks;
  r->x = HEC_NEW(&r->arena, float *, n);
  r->dx = HEC_NEW(&r->arena, float *, n);
  for (int32_t i = 0; i < n; i++) {
    r->x[i] = new_floats(r, stream);
    r->dx[i] = new_floats(r, stream);
  }
  for (int32_t layer = 0; layer < m->n_blocks; layer++) {
    hec_model_init_block(m, layer, r->blocks + layer * r->block);
    for (int32_t e = 0; e < m->n_experts; e++)
      hec_model_init_expert(m, layer, e, r->experts + ((int64_t)layer * m->n_experts + e) * r->expert);
  }
}

static double state_error(const hec_reference_state *want, const float *params, const float *grads,
                          const float *moments, int64_t all) {
  double error = hec_relative_error(params, want->params, want->n);
  error = fmax(error, hec_relative_error(grads, want->grads, want->n));
  error = fmax(error, hec_relative_error(moments, want->first, want->n));
  return fmax(error, hec_relative_error(moments + all, want->second, want->n));
}

static double compare(const run *r, const hec_reference *reference) {
  const hec_model *m = r->s->model;
  int64_t stream = (int64_t)r->s->tokens * m->moe.d_model, blocks = m->n_blocks * r->block;
  int64_t experts = (int64_t)m->n_blocks * m->n_experts * r->expert;
  double error = 0;
  for (int32_t mb = 0; mb < r->s->n_micro_batches; mb++)
    for (int32_t rank = 0; rank < r->s->n_ranks; rank++) {
      int32_t i = mb * r->s->n_ranks + rank;
      error = fmax(error, hec_relative_error(r->x[i], hec_reference_output(reference, mb, rank), stream));
      error = fmax(error, hec_relative_error(r->dx[i], hec_reference_input_gradient(reference, mb, rank), stream));
    }
  for (int32_t layer = 0; layer < m->n_blocks; layer++) {
    hec_reference_state want = hec_reference_block(reference, layer);
    int64_t at = layer * r->block;
    error = fmax(error, state_error(&want, r->blocks + at, r->block_grads + at, r->block_moments + at, blocks));
    for (int32_t e = 0; e < m->n_experts; e++) {
      want = hec_reference_expert(reference, layer, e);
      at = ((int64_t)layer * m->n_experts + e) * r->expert;
      error = fmax(error, state_error(&want, r->experts + at, r->expert_grads + at, r->expert_moments + at, experts));
    }
  }
  return error;
}

double hec_faulty_error(const hec_steps *steps, const hec_fault *fault, const hec_reference *reference) {
  run r = {.s = steps};
  begin(&r);
  for (int64_t number = 1; number <= steps->n_steps; number++) {
    r.fault = number == steps->n_steps ? fault : NULL;
    step(&r, number);
  }
  double error = compare(&r, reference);
  hec_arena_free(&r.arena);
  return error;
}

hec_reference *hec_reference_of_steps(const hec_steps *steps) {
  hec_math_open();
  hec_reference *reference = hec_reference_new(steps->model, steps->n_ranks, steps->tokens, true);
  for (int64_t number = 1; number <= steps->n_steps; number++)
    hec_reference_step(reference, number, steps->loads, steps->n_micro_batches);
  return reference;
}
