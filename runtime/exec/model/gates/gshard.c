/* GShard's top-2 gate (Lepikhin et al., arXiv:2006.16668, algorithm 1):
 *
 *     p = softmax(h2 Wg)   e1, e2 = the two best   g1 = p1 / (p1 + p2), g2 = p2 / (p1 + p2)
 *     C = ceil(capacity 2 S / E) assignments that an expert takes from a group of S tokens
 *     first by ascending token, e1 where it has room; then by ascending token, e2 where 2 g2 > u and it has room,
 *     u uniform in [0, 1): a function of (seed, step, layer, token in the step), so no rank, thread or policy matters
 *
 * capacity: 1 unless said, GShard's 2 N / (G E) for N tokens in G groups; group: the tokens of a rank and micro-batch
 * unless said. With a group that divides these of every number of ranks, the result is the same for all of them.
 *
 * Decided here: a second expert that chance leaves out takes no room. Algorithm 1 counts it; the authors' code,
 * lingvo's moe_layers.py, does not, and neither do those who followed it. The weights do not change when one of the two
 * is dropped (algorithm 1). What chance left out is not called dropped. The balance loss sees what was kept (algorithm
 * 1: the first choices): see model_balance.c.
 *
 * A weight is p_e / (p_e + p_o), o the best expert but e, so that it needs no memory of e1 and e2:
 *     D = p_e + p_o    dp_e += dw p_o / D^2    dp_o -= dw p_e / D^2
 * and then as for any softmax. O(T d E). */
#include "runtime/exec/model/gate.h"

static int32_t best_but(const float *p, int32_t n, int32_t but) {
  int32_t best = but == 0 ? 1 : 0;
  for (int32_t e = best + 1; e < n; e++)
    if (e != but && p[e] > p[best])
      best = e;
  return best;
}

static int32_t capacity_of(const hec_model *model, int32_t group) {
  double factor = model->gate_options.capacity > 0 ? model->gate_options.capacity : 1;
  double exact = factor * 2 * group / model->n_experts;
  int32_t whole = exact < group ? (int32_t)exact : group;
  return whole < exact && whole < group ? whole + 1 : whole;
}

typedef struct {
  const hec_model *model;
  const hec_gate_call *call;
  const float *p; /* of the group's first token */
  int64_t first;  /* token in the step */
  uint8_t *chosen;
  int32_t *taken; /* [E] */
  int32_t tokens, capacity, n_dropped;
} group;

static void take(group *g, int32_t token, int32_t expert) {
  bool room = g->taken[expert] < g->capacity;
  g->taken[expert] += room;
  g->n_dropped += !room;
  g->chosen[(int64_t)token * g->model->n_experts + expert] = room;
}

static void choose_group(group *g) {
  int32_t experts = g->model->n_experts;
  for (int32_t e = 0; e < experts; e++)
    g->taken[e] = 0;
  for (int32_t t = 0; t < g->tokens; t++)
    take(g, t, best_but(g->p + (int64_t)t * experts, experts, -1));
  for (int32_t t = 0; t < g->tokens; t++) {
    const float *p = g->p + (int64_t)t * experts;
    int32_t one = best_but(p, experts, -1), two = best_but(p, experts, one);
    float u = hec_gate_random(g->model, g->call->step, g->call->layer, g->first + t);
    if (2 * (p[two] / (p[one] + p[two])) > u)
      take(g, t, two);
  }
}

static void choose(const hec_model *model, const hec_gate_call *call, const float *affinity, int32_t tokens,
                   hec_assignments *out) {
  int64_t n = model->n_experts;
  int32_t size = hec_gate_group(model, tokens), n_dropped = 0;
  uint8_t *chosen = HEC_NEW(call->arena, uint8_t, tokens * n);
  int32_t *taken = HEC_NEW(call->arena, int32_t, n);
  for (int32_t at = 0; at < tokens; at += size) {
    group g = {.model = model,
               .call = call,
               .p = affinity + at * n,
               .first = call->first + at,
               .chosen = chosen + at * n,
               .taken = taken,
               .tokens = size,
               .capacity = capacity_of(model, size)};
    choose_group(&g);
    n_dropped += g.n_dropped;
  }
  hec_gate_list(model, chosen, tokens, out);
  out->n_dropped = n_dropped;
}

static void weigh(const hec_model *model, const float *affinity, hec_assignments *a) {
  for (int32_t e = 0; e < model->n_experts; e++)
    for (int32_t j = a->expert_at[e]; j < a->expert_at[e + 1]; j++) {
      const float *p = affinity + (int64_t)a->token[j] * model->n_experts;
      a->weight[j] = p[e] / (p[e] + p[best_but(p, model->n_experts, e)]);
      a->weight_grad[j] = 0;
    }
}

static void backward(const hec_gate_pass *pass, const hec_assignments *a, float *grads, float *dh2) {
  int32_t n = pass->model->n_experts;
  float *d = pass->scratch;
  for (int32_t t = 0; t < pass->tokens; t++)
    for (int32_t e = 0; e < n; e++)
      d[(int64_t)t * n + e] = a->balance ? a->balance[e] : 0;
  for (int32_t e = 0; e < n; e++)
    for (int32_t j = a->expert_at[e]; j < a->expert_at[e + 1]; j++) {
      int64_t row = (int64_t)a->token[j] * n;
      const float *p = pass->affinity + row;
      int32_t other = best_but(p, n, e);
      float scale = a->weight_grad[j] / ((p[e] + p[other]) * (p[e] + p[other]));
      d[row + e] += scale * p[other];
      d[row + other] -= scale * p[e];
    }
  hec_gate_softmax_back(pass, d);
  hec_gate_linear_backward(pass, d, grads, dh2);
}

static hec_status check(const hec_model *model, int32_t tokens) {
  (void)tokens;
  if (model->top_k != 2 || model->n_experts < 2)
    return hec_fail(HEC_BAD_INPUT, "`gate` gshard: expected top-k 2 of at least 2 experts, found %d of %d",
                    (int)model->top_k, (int)model->n_experts);
  return HEC_OK;
}

const hec_gate hec_gate_gshard = {
    .name = "gshard",
    .summary = "top-2, the second by chance in proportion to its weight; a capacity drops what exceeds it",
    .source = "GShard, arXiv:2006.16668",
    .options = hec_gate_capacity_options,
    .varies = true,
    .drops = true,
    .check = check,
    .score = hec_gate_softmax_score,
    .choose = choose,
    .weigh = weigh,
    .backward = backward,
};
