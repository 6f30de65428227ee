/* See the header. */
#include "tests/exec/stages_case.h"

#include "tests/support/checks.h"

static const hec_moe shape = {.name = "case",
                              .d_model = 16,
                              .d_ffn = 12,
                              .n_ffn_matrices = 3,
                              .top_k = 2,
                              .n_heads = 2,
                              .n_kv_heads = 1,
                              .d_head = 8,
                              .seq_len = 6,
                              .tokens_per_rank = 12,
                              .micro_batches = 1,
                              .dtype_bytes = 4,
                              .grad_bytes = 4,
                              .optimizer_bytes = 8,
                              .attention = HEC_ATTENTION_CAUSAL,
                              .nonmoe_scale = 1};

void hec_test_stages_make(hec_test_stages *s, hec_test_stages_wish w, hec_arena *arena) {
  s->moe = shape;
  s->moe.n_layers = s->moe.n_moe_layers = w.layers;
  s->moe.n_experts = w.experts;
  ck_ok(hec_cluster_load(w.cluster, arena, &s->cluster));
  ck_ok(hec_layout_read(w.layout, &s->layout));
  ck_ok(hec_layout_fit(&s->layout, w.gpus, &s->moe));
  ck_ok(hec_problem_make(&s->moe, &s->cluster, !w.forward, s->layout.dp, s->moe.tokens_per_rank, &s->problem));
  ck_ok(hec_problem_group(&s->problem, s->layout.ep));
  s->problem.period = 1;
  if (w.zero)
    hec_problem_share_optimizer(&s->problem);
  ck_ok(hec_model_make(&s->moe, false, 7, &s->model));
  hec_pipeline_shape sizes = {s->layout.pp, s->layout.vpp, w.micro_batches, 0};
  ck_ok(hec_pipeline_order_make(hec_pipeline_find(w.pipeline), &sizes, arena, &s->order));
  s->layer_at = HEC_NEW(arena, int32_t, s->order.n_parts + 1);
  for (int32_t part = 0; part < s->order.n_parts; part++)
    s->layer_at[part + 1] = s->layer_at[part] + hec_layout_layers(&s->layout, &s->moe, part, &(int32_t){0});
}
