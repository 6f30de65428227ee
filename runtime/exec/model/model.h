/* The mathematics of one rank's share of the model: what attention, gate, experts and the rest compute. It is made of
 * calls of a processor (processor.h) on its memory, which the caller brings. Knows nothing of plans, programs, ranks or
 * time. The executor's work table (work.c) and the dense reference (reference.c) both call it, the first on pieces, the
 * second on everything at once.
 *
 * A block, for the tokens x [T, d] of one rank and micro-batch (pre-norm, no biases, no positional encoding):
 *     h1 = rmsnorm(x; g1)   q,k,v = h1 Wq, h1 Wk, h1 Wv   a = attention(q, k, v)   x += a Wo
 *     h2 = rmsnorm(x; g2)   p = gate(h2)   y = sum over assignments j of w_j * expert_j(h2)  (+ shared experts)   x += y
 * The gate (gate.h) is softmax(h2 Wg) unless training asks for another: w_j = p of the assignment's expert (not
 * renormalised over the chosen ones). Sequences of seq_len tokens stand one after
 * the other (the last may be shorter); heads share keys and values where n_kv_heads < n_heads.
 *
 * Exact mode (`exact`): every intermediate is an integer times a power of two below 24 significant bits. So float
 * arithmetic is exact in any order. There are no norms (h = x). Attention is linear, a = (q k^T) v without softmax or
 * scale. Experts use ReLU. w_j is a power of two that depends on (token, place) only and has no gradient. Parameters
 * are sparse small integers.
 * Measured (hec_reference_bits): at most 23 bits at d 8..64, f 8..128, E <= 64, top-k <= 8, seq <= 128 and 8192 tokens
 * over ranks and micro-batches. */
#pragma once
#include "models/load.h"
#include "models/moe.h"
#include "runtime/base/arena.h"
#include "runtime/exec/math/processor.h"
#include "runtime/plan/token_sets.h"

typedef struct hec_gate hec_gate;
/* What a gate may be told, see the rows; 0: its own default. */
typedef struct {
  double capacity;    /* factor on the assignments that an expert takes of a group when all get the same; */
  int32_t group;      /* tokens that a capacity is of, neighbours of one rank and micro-batch; 0: all of these */
  int32_t rank;       /* width of a low-rank gate */
  double temperature; /* fixed */
  uint32_t given;     /* bits of the gate's options that were said */
} hec_gate_options;

/* Which blocks of a whole model these are: those of a pipeline stage. */
typedef struct {
  int32_t n_blocks;     /* of the whole model */
  const int32_t *block; /* [n_blocks of the cut] in the whole model */
} hec_model_cut;

typedef struct {
  hec_moe moe; /* dtype 4 bytes, n_layers == n_moe_layers; vocabulary 0 in replay */
  int32_t n_experts, top_k, n_blocks;
  bool exact;
  int32_t
      parts; /* ranks whose rows attention is over, with as many heads as a part has (dense_part.h); 0, 1: its own */
  hec_activation activation;
  uint64_t seed;
  hec_adam adam;
  const hec_gate *gate; /* softmax; another: hec_gate_set */
  hec_gate_options gate_options;
  const hec_model_cut *cut; /* NULL: all of it is here */
} hec_model;

/* The number of a block in the whole model: what initial values, choices and kinds of attention go by. */
static inline int32_t hec_model_whole_block(const hec_model *model, int32_t block) {
  return model->cut ? model->cut->block[block] : block;
}
static inline int32_t hec_model_whole_blocks(const hec_model *model) {
  return model->cut ? model->cut->n_blocks : model->n_blocks;
}

/* Fills in what follows from the shape: the MoE blocks alone, 4 bytes for everything, no vocabulary (train sets its own).
 * HEC_BAD_INPUT for shapes that cannot be executed, saying why. They are: attention given as a bare parameter count, a
 * capacity factor, d_model below 4. Also kv heads that do not divide the heads, and several blocks in exact mode. */
hec_status hec_model_make(const hec_moe *moe, bool exact, uint64_t seed, hec_model *model) HEC_MUST_USE;

static inline int32_t hec_model_parts(const hec_model *model) {
  return model->parts > 1 ? model->parts : 1;
}

/* Dense parameters of a block, offsets in floats: Wq[d, heads*dh] Wk[d, kv*dh] Wv[d, kv*dh] Wo[heads*dh, d] g1[d] g2[d]
 * the gate's (Wg[d, E]) shared experts. size == hec_moe_block_params. */
typedef struct {
  int64_t q, k, v, o, norm1, norm2, gate, shared, size;
} hec_block_layout;
hec_block_layout hec_model_block(const hec_model *model);
/* One expert: two matrices W1[d, f] W2[f, d], three: Wgate[d, f] Wup[d, f] Wdown[f, d]. */
int64_t hec_model_expert_size(const hec_model *model);

/* Initial values and data (`layer` of the whole model), functions of (seed, what, where) alone: any rank makes any of them without the others. */
void hec_model_init_block(const hec_model *model, int32_t layer, float *params);
void hec_model_init_expert(const hec_model *model, int32_t layer, int32_t expert, float *params);
/* Token t of rank r is token r * tokens + t of the step. So R ranks have the data of one rank with R times the tokens.
 * */
void hec_model_input(const hec_model *model, int64_t step, int32_t micro_batch, int32_t rank, int32_t tokens, float *x);
/* The gradient of the loss by the output of the last block (replay's loss is linear in the output). */
void hec_model_output_gradient(const hec_model *model, int64_t step, int32_t micro_batch, int32_t rank, int32_t tokens,
                               float *dx);

/* Which experts a rank's tokens go to, sorted by expert: assignment j goes to expert[j], is of token[j], weighs
 * weight[j]. expert_at [E + 1]. */
struct hec_assignments {
  int32_t n, n_tokens, capacity;
  int32_t n_dropped; /* assignments that the gate made and a capacity took back */
  int32_t *expert_at, *token;
  int32_t *expert_first; /* scratch [E] */
  float *weight, *weight_grad;
  float *balance; /* [E] gradient of a balance loss by each token's probability of e; NULL: there is none */
};
/* weights: where weight and weight_grad go, [2 * capacity] of the processor's memory; NULL: on the arena, for the CPU. */
hec_assignments hec_assignments_new(hec_arena *arena, const hec_model *model, int32_t capacity, float *weights);
/* Forced: which tokens the counts of a source in a layer are of is inferred, as everywhere (runtime/plan/token_sets.h).
 * n > capacity: HEC_ASSERT. */
void hec_assign_forced(const hec_token_row *row, hec_assignments *out);
/* The top-k experts of each token by probability, plus bias [E] where there is one (ties to the lower expert). */
void hec_assign_top_k(const hec_model *model, const float *probabilities, const float *bias, int32_t tokens,
                      hec_assignments *out);
/* Weights from what the gate gave [T, E] (exact: the fixed powers of two, it is not looked at). */
void hec_assign_weights(hec_processor *on, const hec_model *model, const float *probabilities,
                        hec_assignments *assignments);

/* Auxiliary balance loss of a layer and micro-batch (GShard, Switch: Fedus et al., JMLR 2022, eq. 4):
 *     coefficient * E * sum_e f_e p_e over the tokens of all ranks
 * f_e = share of the assignments (no gradient). p_e = mean probability, or share of the token's affinities where these
 * do not sum to 1. counts [n_ranks][E] of all ranks. Fills in balance. Returns the share of this rank's tokens:
 * ranks add up. */
typedef struct {
  const uint32_t *counts;
  int32_t n_ranks;
  float coefficient;
} hec_balance;
double hec_assign_balance(const hec_model *model, const hec_balance *balance, const float *probabilities,
                          hec_assignments *assignments);

/* Loss-free balancing (Wang et al., arXiv:2408.15664, algorithm 1). After a step, for every expert of every block:
 * bias += rate * sign(mean load - load of the expert), loads of all ranks and micro-batches [n]. bias [n_blocks][E] is
 * added to what experts are chosen by and to nothing else: no gradient flows, every rank has the same. */
void hec_bias_update(const hec_model *model, float rate, const hec_load *loads, int32_t n, float *bias);

/* What a block keeps from forward to backward, in floats; fits in memory_cost's activation_layer (asserted). x0: input
 * (of all parts, first of all, as is its scale). qkv. attended: input of Wo. x1: between attention and MoE. h2.
 * probabilities [T, E]: what the gate gave. */
typedef struct {
  int32_t layer; /* of the block: some layers beside s2 attention are dense */
  float *x0, *scale1, *q, *k, *v, *attended, *x1, *scale2, *h2, *probabilities;
} hec_block_kept;
int64_t hec_block_kept_size(const hec_model *model, int32_t tokens); /* floats */
hec_block_kept hec_block_kept_at(const hec_model *model, int32_t layer, int32_t tokens, float *memory);

/* Scratch that any one call below needs, in floats. */
int64_t hec_model_scratch_size(const hec_model *model, int32_t tokens);

/* Attention with residual: stream x [T, d] in place; fills kept.x0 .. attended. Backward: dx [T, d] in place, grads +=. */
void hec_block_attention(hec_processor *on, const hec_model *model, const float *params, int32_t tokens, float *x,
                         const hec_block_kept *kept, float *scratch);
void hec_block_attention_backward(hec_processor *on, const hec_model *model, const float *params, float *grads,
                                  int32_t tokens, float *dx, const hec_block_kept *kept, float *scratch);
/* The same for a part's heads over the rows of all `parts` ranks, tokens each, which stand in kept.x0 (tensor
 * parallelism). partial [parts T, d] is this part of what attention adds to the stream. Backward, from the gradients dx
 * [parts T, d] of all, it is that of the gradient of the norm's output. Then, of the rank's own rows, once partial sums
 * are added up: x [T, d] +=, or dx [T, d] += and the norm's gradient. `member`: the rank in its group. */
void hec_block_part_attention(hec_processor *on, const hec_model *model, const float *params, int32_t tokens,
                              float *partial, const hec_block_kept *kept, float *scratch);
typedef struct {
  const float *params;
  float *grads;
  int32_t tokens, member;
} hec_block_part;
void hec_block_part_attention_backward(hec_processor *on, const hec_model *model, const hec_block_part *part,
                                       const float *dx, float *partial, const hec_block_kept *kept, float *scratch);
void hec_block_part_attention_end(hec_processor *on, const hec_model *model, const hec_block_part *part, bool backward,
                                  const float *partial, float *x, const hec_block_kept *kept);
/* Norm and gate: fills kept.x1, scale2, h2, probabilities from the stream. Backward: dh2 [T, d] (what dispatch brought
 * back, shared experts included) plus the gate's own through weight_grad, into dx +=. */
void hec_block_gate(hec_processor *on, const hec_model *model, const float *params, int32_t tokens, const float *x,
                    const hec_block_kept *kept, float *scratch);
void hec_block_gate_backward(hec_processor *on, const hec_model *model, const float *params, float *grads,
                             int32_t tokens, float *dh2, float *dx, const hec_assignments *assignments,
                             const hec_block_kept *kept, float *scratch);
/* Shared experts: x += shared(h2); their inner values are recomputed in backward: dh2 += ..., from dx [T, d], which stays.
 * No-op without. */
void hec_block_shared(hec_processor *on, const hec_model *model, const float *params, int32_t tokens, const float *h2,
                      float *x, float *scratch);
void hec_block_shared_backward(hec_processor *on, const hec_model *model, const float *params, float *grads,
                               int32_t tokens, const float *h2, float *dx, float *dh2, float *scratch);

/* Experts on their rows, several at once: they are independent. */
typedef struct {
  const float *params;
  float *grads; /* backward: += */
  bool first;   /* backward: grads = instead, n == 0 too */
  int32_t n;
  const float *in;  /* [n, d] */
  float *inner;     /* [n, n_matrices * f] kept from forward to backward, which overwrites it */
  float *out, *din; /* [n, d] forward: out is written; backward: out is its gradient, din is written */
} hec_expert_rows;
void hec_experts_forward(hec_processor *on, const hec_model *model, const hec_expert_rows *list, int32_t n);
void hec_experts_backward(hec_processor *on, const hec_model *model, const hec_expert_rows *list, int32_t n);
