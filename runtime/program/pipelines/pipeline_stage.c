/* See pipeline_stage.h. */
#include "runtime/program/pipelines/pipeline_stage.h"

#include <string.h>

int32_t hec_pipeline_layers_of(hec_pipeline_parts parts, int32_t device) {
  int32_t n = 0;
  for (int32_t c = 0; c < parts.order->shape.n_chunks; c++) {
    int32_t part = hec_pipeline_part_of(parts.order, device, c);
    n += parts.layer_at[part + 1] - parts.layer_at[part];
  }
  return n;
}

static int32_t last_backward(const hec_pipeline_order *o, int32_t device) {
  int32_t last = 0;
  for (int32_t i = o->piece_at[device]; i < o->piece_at[device + 1]; i++)
    last = o->piece[i].kind == HEC_PIECE_BACKWARD ? o->piece[i].micro_batch : last;
  return last;
}

hec_status hec_pipeline_stage_make(hec_pipeline_parts parts, int32_t device, const hec_problem *whole, hec_arena *arena,
                                   hec_pipeline_stage *s) {
  const hec_pipeline_order *o = parts.order;
  int32_t n = 0;
  *s = (hec_pipeline_stage){.device = device,
                            .n_layers = hec_pipeline_layers_of(parts, device),
                            .last = last_backward(o, device),
                            .moe = *whole->moe};
  s->layer = HEC_NEW(arena, int32_t, s->n_layers);
  s->own_at = HEC_NEW(arena, int32_t, o->shape.n_chunks + 1);
  for (int32_t c = 0; c < o->shape.n_chunks; c++) {
    int32_t part = hec_pipeline_part_of(o, device, c);
    for (int32_t l = parts.layer_at[part]; l < parts.layer_at[part + 1]; l++)
      s->layer[n++] = l;
    s->own_at[c + 1] = n;
  }
  s->moe.n_layers = s->moe.n_moe_layers = s->n_layers;
  HEC_TRY(hec_problem_make(&s->moe, whole->cluster, whole->train, whole->n_ranks, whole->tokens, &s->problem));
  HEC_TRY(hec_problem_group(&s->problem, whole->ep));
  hec_problem_choose_as(&s->problem, whole);
  s->problem.transitions = NULL; /* those are between the first layers of the whole model */
  return HEC_OK;
}

void hec_pipeline_stage_load(const hec_pipeline_stage *s, const hec_load *whole, hec_load *own) {
  size_t row = (size_t)whole->n_sources * (size_t)whole->n_experts;
  for (int32_t l = 0; l < s->n_layers; l++)
    memcpy(hec_load_row(own, l, 0), hec_load_row(whole, s->layer[l], 0), row * sizeof(uint32_t));
}

/* ---- Lowering ---- */

static void forward(const hec_pipeline_stage *s, hec_lowering *low, const hec_pipeline_piece *p, const hec_load *load) {
  if (p->chunk == 0)
    hec_lower_micro_batch(low, p->micro_batch);
  hec_lower_resume(low, p->micro_batch);
  for (int32_t l = s->own_at[p->chunk]; l < s->own_at[p->chunk + 1]; l++) {
    hec_lower_to_gate(low, l);
    hec_lower_from_gate(low, l, load);
  }
}

static void backward(const hec_pipeline_stage *s, hec_lowering *low, const hec_pipeline_piece *p) {
  hec_lower_resume(low, p->micro_batch);
  for (int32_t l = s->own_at[p->chunk + 1] - 1; l >= s->own_at[p->chunk]; l--)
    hec_lower_backward(low, l);
}

void hec_pipeline_stage_lower(const hec_pipeline_stage *s, const hec_pipeline_order *o, hec_lowering *low, int64_t iter,
                              const hec_load *loads, int32_t *op_at) {
  int32_t first = o->piece_at[s->device], n = o->piece_at[s->device + 1] - first, last_chunk = o->shape.n_chunks - 1;
  bool train = s->problem.train;
  hec_lower_begin(low, iter, o->shape.n_micro_batches);
  for (int32_t i = 0; i < n; i++) {
    const hec_pipeline_piece *p = &o->piece[first + i];
    bool is_forward = p->kind == HEC_PIECE_FORWARD;
    if (is_forward)
      forward(s, low, p, &loads[p->micro_batch]);
    else if (train)
      backward(s, low, p);
    if (is_forward ? !train && p->chunk == last_chunk : train && p->chunk == 0) /* its last piece here */
      hec_lower_micro_batch_done(low, &loads[p->micro_batch]);
    op_at[i] = (int32_t)hec_lowering_program(low)->n_ops;
  }
  hec_lower_end(low);
  op_at[n] = (int32_t)hec_lowering_program(low)->n_ops;
}
