/* Closed forms of memory: see memory.h. Sizes in bytes; bf16 has 2.
 *
 *   T = seq micro_batch / (tp cp) tokens of a rank, G = tp T those of its tensor-parallel group, d width, x bytes of what a
 *   product keeps of its input (2; fp8: 1)
 *
 *   layer of any kind   2 d T + 2 d T          its input, and the sum after attention
 *                       2 x d T                outputs of two norms, which are inputs of products
 *                       2 (2 h + 2 k) G / tp   q, k, v and the output of attention, h and k widths of all heads and key heads
 *                       4 heads G / tp         the sums of its softmax
 *   dense FFN of f      (2 (n - 1) + x) f G / tp    n matrices: before and after the activation
 *   experts             (x d + (2 (n - 1) + x) f / etp) rows, 8 experts T of the router
 *   head                (2 + x) d T, 2 V G / tp logits, and as much for their gradient
 *
 * Derived from what Transformer Engine's modules save for their backward pass. Korthikanti et al. (arXiv 2205.05198)
 * count the same with dropout, which no MoE model here has. Two choices were made with the peaks of SimuMax's four
 * DeepSeek layouts in sight. These are how many copies of rows the dispatcher has, and that the gradient of the logits
 * is a tensor of its own. The widths of latents of low-rank attention are not in a preset and left out: 4 % of a layer
 * of DeepSeek-V3's. */
#include "models/training/memory.h"

#include "models/training/dispatcher.h"

static const double master_bytes = 12; /* of a parameter: fp32 master, two moments (Adam) */
static const double weight_bytes =
    2; /* bf16; with fp8 parameters two copies of a byte, one transposed (Transformer Engine) */

/* SimuMax's runs on B200 publish both: 1.029 to 1.069 of what tensors took (docs/b200, release 1.2). */
const double hec_allocator_loss = 0.06;
/* Assumed: CUDA context, cuBLAS workspace and NCCL buffers, which no tensor has. */
const double hec_outside_bytes = 1.5e9;

/* Data sheets say GB where memory has GiB, and a hundredth is the driver's. A B200 of 180 GB has 178.4 GiB
 * (NousResearch/torchtitan pull 19: 167.93 GiB are 94.15 %). An H100 of 80 GB has 79.1 GiB (PyTorch's messages when it
 * runs out). */
static const double visible = 0.99 * 1.073741824;

double hec_visible_bytes(const hec_gpu_sheet *sheet) {
  return visible * sheet->memory_bytes;
}

double hec_reserved_bytes(double allocated) {
  return (1 + hec_allocator_loss) * allocated;
}

/* ---- State ---- */

hec_state_bytes hec_state_bytes_of(const hec_training *t, double dense, double expert) {
  double d = (double)t->layout.dp * (double)t->layout.cp, e = (double)t->layout.edp;
  double whole = dense + expert, share = dense / d + expert / e;
  int32_t zero = t->recipe.zero;
  return (hec_state_bytes){.parameters = weight_bytes * (zero >= 3 ? share : whole),
                           .gradients = (double)t->recipe.grads * (zero >= 2 ? share : whole),
                           .optimizer = master_bytes * (zero >= 1 ? share : whole)};
}

/* ---- Activations ---- */

typedef struct {
  double tokens, gathered, rows; /* rows: assignments that the rank computes */
  double width, input;           /* d; x */
  double heads, key_heads;       /* widths of all heads over tp */
  double ffn, shared, expert;    /* inner widths, over tp or etp */
  double matrices;               /* of an FFN */
} sizes;

static sizes sizes_of(const hec_training *t, const hec_layer_load *load) {
  const hec_moe *moe = t->moe;
  int32_t tp = t->layout.tp, key_parts = moe->n_kv_heads < tp ? moe->n_kv_heads : tp; /* fewer are copied */
  sizes z = {.width = (double)moe->d_model, .matrices = (double)moe->n_ffn_matrices};
  z.input = t->recipe.precision == HEC_PRECISION_BF16 ? 2 : 1;
  z.gathered = (double)t->seq * (double)t->micro_batch / (double)t->layout.cp;
  z.tokens = z.gathered / (double)tp;
  z.rows = hec_layer_rows(t, load);
  z.heads = (double)moe->n_heads * (double)moe->d_head / (double)tp;
  z.key_heads = (double)moe->n_kv_heads * (double)moe->d_head / (double)key_parts;
  z.ffn = (double)moe->d_ffn_dense / (double)tp;
  z.shared = (double)moe->n_shared_experts * (double)moe->d_ffn_shared / (double)tp;
  z.expert = (double)moe->d_ffn / (double)t->layout.etp;
  return z;
}

/* Before and after the activation, of a row of an FFN. */
static double inner_bytes(const sizes *z, double f) {
  return (2 * (z->matrices - 1) + z->input) * f;
}

static double attention_bytes(const hec_training *t, const sizes *z) {
  double softmax = 4 * (double)t->moe->n_heads / (double)t->layout.tp;
  double projected = z->input < 2 ? z->input * z->heads : 0; /* the projection keeps its own form of the output */
  return z->gathered * (2 * (2 * z->heads + 2 * z->key_heads) + projected + softmax);
}

/* Inputs and output gradients of all products of a layer, as products take them: what its weight gradients need. */
static double weight_gradient_bytes(const sizes *z, bool moe) {
  double attention = 2 * z->width * z->tokens + z->gathered * (2 * z->heads + 2 * z->key_heads);
  double ffn = 2 * z->width * z->tokens + z->gathered * z->matrices * (moe ? z->shared : z->ffn);
  double experts = moe ? z->rows * (2 * z->width + z->matrices * z->expert) : 0;
  return z->input * (attention + ffn + experts);
}

/* Backward of the FFN: the gradient of what is inside of it, in bf16. Dispatcher: rows are copied when they are permuted, sent,
 * received and sorted by expert; without ranks to send to, permuted and sorted. All-gather: the tokens of all ranks instead of
 * those sent and received. Without expert parallelism the ranks of etp gather, whatever the dispatcher. Sequence
 * parallelism: the whole sequence at the input of a product, and its gradient. */
static double working_bytes(const hec_training *t, const sizes *z, bool moe) {
  double rows = 2 * z->width * z->rows;
  double sequence = t->layout.tp > 1 ? 2 * 2 * z->width * z->gathered : 0;
  if (!moe)
    return sequence + 2 * z->matrices * z->ffn * z->gathered;
  int32_t ranks = t->layout.ep > 1 ? t->layout.ep : t->layout.etp;
  bool gathers = t->layout.ep == 1 || hec_dispatchers[t->recipe.dispatcher]->gathers;
  double sent = gathers ? 2 * 2 * z->width * z->tokens * (double)ranks : 2 * rows;
  return sequence + 2 * rows + (ranks > 1 ? sent : 0) + 2 * z->matrices * z->expert * z->rows;
}

enum { N_KEPT = 7 };
typedef struct {
  double bytes;
  int32_t dropped_by; /* HEC_RECOMPUTE_*: any of them */
} kept;

static hec_layer_bytes layer_bytes(const hec_training *t, const sizes *z, bool moe) {
  enum { FULL = HEC_RECOMPUTE_FULL, MOE = HEC_RECOMPUTE_MOE | HEC_RECOMPUTE_FULL };
  double stream = 2 * z->width * z->tokens;
  const kept all[N_KEPT] = {
      {stream, 0},
      {stream, FULL},
      {2 * z->input * z->width * z->tokens, HEC_RECOMPUTE_NORM | FULL},
      {attention_bytes(t, z), HEC_RECOMPUTE_ATTENTION | FULL},
      {z->gathered * inner_bytes(z, moe ? z->shared : z->ffn), moe ? MOE : HEC_RECOMPUTE_MLP | FULL},
      {moe ? z->rows * (z->input * z->width + 2 * (z->matrices - 1) * z->expert) +
                 8 * (double)t->moe->n_experts * z->tokens
           : 0,
       MOE},
      {moe ? z->rows * z->input * z->expert : 0, HEC_RECOMPUTE_ACT | MOE},
  };
  hec_layer_bytes b = {.weight = weight_gradient_bytes(z, moe), .working = working_bytes(t, z, moe)};
  for (int i = 0; i < N_KEPT; i++)
    *(all[i].dropped_by & t->recipe.recompute ? &b.recomputed : &b.activations) += all[i].bytes;
  return b;
}

/* The gradient of the logits, and the weight gradient in bf16 before it is added to the others: the largest matrix of all. */
static hec_layer_bytes head_bytes(const hec_training *t, const sizes *z) {
  double dense, expert, logits = 2 * (double)t->moe->vocabulary / (double)t->layout.tp * z->gathered;
  hec_training_params(t, HEC_LAYER_HEAD, &dense, &expert);
  return (hec_layer_bytes){.activations = (2 + z->input) * z->width * z->tokens,
                           .weight = 2 * z->width * z->tokens + logits,
                           .logits = logits,
                           .working = logits + weight_bytes * dense};
}

static void add_guests(const hec_training *t, const hec_layer_load *load, hec_layer_bytes *b) {
  double params = hec_moe_expert_params(t->moe) / (double)t->layout.etp, guests = (double)load->guests;
  b->guests = weight_bytes * params * (double)load->guests_kept;
  double gathered = (load->guests_again ? weight_bytes : 0) + (load->guests_ahead ? weight_bytes : 0);
  b->guests_working = params * (gathered + (double)t->recipe.grads) * guests;
}

hec_layer_bytes hec_layer_bytes_of(const hec_training *t, hec_layer_kind kind, const hec_layer_load *load) {
  const sizes z = sizes_of(t, load);
  hec_layer_bytes b = kind == HEC_LAYER_HEAD ? head_bytes(t, &z) : layer_bytes(t, &z, kind == HEC_LAYER_MOE);
  if (kind == HEC_LAYER_MOE && load)
    add_guests(t, load, &b);
  return b;
}

/* ---- Standing buffers ---- */

/* Megatron adds weight gradients up inside the product; autograd still asks for one tensor, and Transformer Engine keeps one
 * of each shape (get_dummy_wgrad). FSDP (ZeRO-3): the layer at work and the next one, gathered, and the gradient of one before
 * it is reduced; embedding and head stay gathered. */
double hec_standing_bytes_of(const hec_training *t, const hec_device_layers *has) {
  const hec_moe *moe = t->moe;
  double dense = 0, expert = 0, none, moe_dense = 0, head;
  hec_training_params(t, HEC_LAYER_HEAD, &head, &none);
  if (has->dense)
    hec_training_params(t, HEC_LAYER_DENSE, &dense, &none);
  if (has->moe)
    hec_training_params(t, HEC_LAYER_MOE, &moe_dense, &expert);
  if (t->recipe.zero >= 3) {
    double layer = dense > moe_dense ? dense : moe_dense;
    double gathered = (t->layout.dp * t->layout.cp > 1 ? layer : 0) + (t->layout.edp > 1 ? expert : 0);
    double whole = t->layout.dp * t->layout.cp > 1 ? (double)has->embeddings * head : 0;
    return (2 * weight_bytes + (double)t->recipe.grads) * gathered + weight_bytes * whole;
  }
  double attention = hec_moe_attention_params(moe) / (double)t->layout.tp;
  double shapes = dense + moe_dense - (has->dense && has->moe ? attention : 0);
  return weight_bytes * (shapes + (has->moe ? hec_moe_expert_params(moe) / (double)t->layout.etp : 0));
}
