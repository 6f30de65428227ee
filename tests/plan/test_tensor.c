/* Tensor parallelism of the dense part: the problem's shapes, bytes and windows against the definition in
 * runtime/plan/problem.h, and what cannot be. */
#include "models/link_cost.h"
#include "runtime/plan/problem.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static const char *const box = "3x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G tile=64";

/* Two MoE blocks, two others, shared experts, a vocabulary: everything that is dense. */
static hec_problem *everything(bool recompute, bool train) {
  hec_problem *p = hec_test_problem(&arena, box, 12, 2, 16, 2, train);
  hec_moe *moe = HEC_NEW(&arena, hec_moe, 1);
  *moe = *p->moe;
  moe->n_layers = 4;
  moe->n_shared_experts = 1;
  moe->d_ffn_shared = 96;
  moe->d_ffn_dense = 200;
  moe->vocabulary = 1000;
  moe->recompute = recompute;
  ck_ok(hec_problem_make(moe, p->cluster, train, 12, 256, p));
  return p;
}

/* d_model 64, 4 heads and kv heads of 16, 2 bytes, gradients 2, optimizer 12; by hand. */
HEC_TEST(parts_by_hand) {
  const double attention = 4 * 64 * 64, ffn = 2 * 64 * 200, whole_block = 2 * 64 + 64 * 16 + 2 * 64 * 96;
  const double all = 4 * attention + 2 * ffn + 2 * whole_block + 2 * 2 * 64 + 2 * 1000 * 64;
  for (int i = 0; i < 12; i++) {
    bool recompute = i % 2 == 1, train = i % 4 < 2;
    int32_t mp = 1 << i / 4;
    hec_problem *whole = everything(recompute, train), p = *whole;
    ck_ok(hec_problem_tensor(&p, mp));
    ck_assert_int_eq(p.mp, mp);
    ck_assert(p.ep == whole->ep && p.dp == whole->dp && p.esp == 1);
    double own = all - (4 * attention + 2 * ffn) * (1 - 1.0 / mp), rows = (mp - 1) * 256.0 * 128;
    ck_assert_double_eq(p.bytes.dense_param, 2 * own);
    ck_assert_double_eq(p.bytes.dense_grad, train ? 2 * own : 0);
    ck_assert_double_eq(p.bytes.dense_optimizer, train ? 12 * own : 0);
    ck_assert_double_eq(p.bytes.expert_param, whole->bytes.expert_param);
    ck_assert_double_eq(p.bytes.activation_layer, whole->bytes.activation_layer + (recompute ? 0 : rows));
    ck_assert_double_eq(p.bytes.activation_rest,
                        whole->bytes.activation_rest + (recompute || !train ? 0 : 2 * 2 * rows));
    for (int dense = 0; dense < 2; dense++) {
      hec_work_shape shape = hec_problem_attention(&p, dense), before = hec_problem_attention(whole, dense);
      ck_assert_double_eq(shape.flops_per_row * mp, before.flops_per_row);
      ck_assert_double_eq(shape.weight_bytes * mp, before.weight_bytes);
      ck_assert_double_eq(shape.bytes_per_row * mp, before.bytes_per_row);
      ck_assert(shape.n_gemms == before.n_gemms && shape.kind == HEC_CURVE_ATTENTION);
    }
    if (!train)
      continue;
    double cut = mp == 1 ? 0 : 2 * attention / mp, block = 2 * (attention / mp + whole_block);
    ck_assert_double_eq(hec_problem_gradients(&p, 0), block);
    ck_assert_double_eq(hec_problem_gradients(&p, -1), 2 * own - 2 * block);
    ck_assert_double_eq(hec_problem_cut_gradients(&p, 1), cut);
    ck_assert_double_eq(hec_problem_cut_gradients(&p, -1), mp == 1 ? 0 : 2 * 2 * (attention + ffn) / mp);
    double reduce_s = mp == 1 ? hec_link_cost_allreduce(p.cluster, 12, block / 2)
                              : hec_link_cost_allreduce_strided(p.cluster, 12, mp, cut / 2) +
                                    hec_link_cost_allreduce(p.cluster, 12, (block - cut) / 2);
    ck_assert_double_eq_tol(hec_problem_reduce_s(&p, block / 2), reduce_s, 1e-15);
  }
}

/* Parts that are no whole numbers are rounded up, on every rank. */
HEC_TEST(odd_parts) {
  hec_problem *p = everything(false, true);
  hec_moe moe = *p->moe;
  moe.attention_params = 1001;
  moe.n_layers = moe.n_moe_layers;
  ck_ok(hec_problem_make(&moe, p->cluster, true, 12, 256, p));
  double before = p->bytes.dense_param;
  ck_ok(hec_problem_tensor(p, 4));
  ck_assert_double_eq(hec_problem_cut_gradients(p, 0), 2 * 251);
  ck_assert_double_eq(before - p->bytes.dense_param, 2 * 2 * (1001 - 251));
  ck_assert_double_eq(p->n_layers * hec_problem_gradients(p, 0) + hec_problem_gradients(p, -1), p->bytes.dense_grad);
}

/* T: as many FLOPs, fewer tiles filled in vain, a part of the weights read: never longer, and with whole tiles the same. */
HEC_TEST(window) {
  for (int32_t tokens = 1; tokens < 400; tokens += 31) {
    hec_problem *p = everything(false, true), q;
    ck_ok(hec_problem_make(p->moe, p->cluster, true, 12, tokens, p));
    q = *p;
    ck_ok(hec_problem_tensor(&q, 4));
    ck_assert_double_le(q.window_s, p->window_s * (1 + 1e-12));
    ck_assert((tokens + 15) % 64 < 16 || q.window_s < p->window_s); /* else 4 T rows fill fewer tiles */
    hec_work_shape shape = hec_problem_attention(&q, false), gate = hec_work_gate(p->moe);
    const hec_device *device = &p->cluster->devices[0];
    ck_assert_double_eq(q.window_s, hec_work_s(device, &shape, 4.0 * tokens) + hec_work_s(device, &gate, tokens));
  }
  hec_problem *p = everything(false, true), q = *p; /* 256 tokens: four tiles */
  ck_ok(hec_problem_tensor(&q, 4));
  ck_assert_double_eq_tol(q.window_s, p->window_s, 1e-12);
}

HEC_TEST(room_for_copies) {
  hec_problem *p = everything(false, true), q = *p;
  ck_ok(hec_problem_tensor(&q, 4));
  double tokens = 2 * 256.0 * 2 * 128, flight = 8 * 256.0 * 128,
         state = 16 * (p->bytes.dense_param - q.bytes.dense_param) / 2;
  double kept =
      2 * 3 * 256.0 * 128 + 4 * 3 * 256.0 * 128; /* gathered rows: of two MoE blocks, twice of the two others */
  ck_assert_double_eq_tol(hec_problem_bytes_without_copies(p) - hec_problem_bytes_without_copies(&q),
                          state - kept + tokens - flight, 1e-6);
}

HEC_TEST(what_cannot_be) {
  hec_problem *p = everything(false, true);
  const struct {
    int32_t mp, heads, kv, ffn;
    const char *words;
  } bad[] = {{0, 4, 4, 200,
              "the 12 ranks, the 4 devices of a node, d_ffn_dense 200 and the model's 4 heads and 4 kv heads, found 0"},
             {3, 6, 6, 300, "found 3"},
             {-2, 4, 4, 200, "found -2"},
             {8, 8, 8, 200, "found 8"},
             {4, 6, 4, 200, "6 heads and 4 kv heads, found 4"},
             {4, 4, 2, 200, "4 heads and 2 kv heads, found 4"},
             {4, 4, 4, 202, "d_ffn_dense 202"},
             {5, 5, 5, 200, "found 5"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    hec_moe moe = *p->moe;
    moe.n_heads = bad[i].heads;
    moe.n_kv_heads = bad[i].kv;
    moe.d_ffn_dense = bad[i].ffn;
    hec_problem q;
    ck_ok(hec_problem_make(&moe, p->cluster, true, 12, 256, &q));
    hec_problem before = q;
    ck_refused(hec_problem_tensor(&q, bad[i].mp), "`mp`: expected a divisor of ");
    ck_assert_msg(strstr(hec_last_error(), bad[i].words) != NULL, "%d: %s", bad[i].mp, hec_last_error());
    ck_assert(q.mp == 1 && q.bytes.dense_param == before.bytes.dense_param && q.window_s == before.window_s);
    moe.n_layers = moe.n_moe_layers; /* without other blocks their width does not matter */
    ck_ok(hec_problem_make(&moe, p->cluster, true, 12, 256, &q));
    ck_assert((hec_problem_tensor(&q, bad[i].mp) == HEC_OK) == (bad[i].ffn == 202));
  }
}
