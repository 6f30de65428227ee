/* Compute of a layer under a layout: see step.h. Bytes of memory-bound work are counted read and written. */
#include "models/training/step.h"

#include "models/compute_cost.h"
#include "models/training/dispatcher.h"

#include <string.h>

const hec_step_constants hec_step_constants_fitted = {
    .in_step = 1.39, .nic = 0.76, .hidden = 0.64, .host_s = 4.1e-3, .overlapped = 0.45};

hec_status hec_step_constants_read(const char *text, hec_step_constants *constants) {
  const struct {
    const char *name;
    double *to;
  } all[] = {{"in_step", &constants->in_step},
             {"nic", &constants->nic},
             {"hidden", &constants->hidden},
             {"host", &constants->host_s},
             {"overlapped", &constants->overlapped}};
  for (const char *at = text; *(at += strspn(at, " "));) {
    size_t n = strcspn(at, "="), i = 0;
    while (i < 5 && (strlen(all[i].name) != n || strncmp(at, all[i].name, n) != 0))
      i++;
    const char *end = at;
    if (i == 5 || !at[n] || !hec_number_read(at + n + 1, &end, all[i].to) || *all[i].to < 0 || !strchr(" ", *end))
      return hec_fail(HEC_BAD_INPUT,
                      "constants: expected in_step, nic, hidden, host (s) or overlapped with =NUMBER, found \"%.40s\"",
                      at);
    at = end;
  }
  return HEC_OK;
}

static const double graph_host[] = {[HEC_GRAPH_NONE] = 1, [HEC_GRAPH_PARTIAL] = 0.55, [HEC_GRAPH_FULL] = 0};
/* On EFA a layer takes as long with 512 tokens a rank as with 2048: its host, not its bytes or math, decides. Fitted to the six
 * rows with NCCL of awslabs' table (awsome-distributed-ai, Qwen3-30B on 64 H100); a CPU drives these NICs. */
static const double fabric_host[] = {[HEC_FABRIC_INFINIBAND] = 1, [HEC_FABRIC_ROCE] = 1, [HEC_FABRIC_EFA] = 1.85};

double hec_step_fabric_host(hec_fabric fabric) {
  return fabric_host[fabric];
}

static const double backward_host = 1.3;  /* launches of the backward pass over those of the forward */
static const double fused_bytes = 0.4;    /* of permutation and activation, fused into their neighbours over plain */
static const double fp8_attention = 0.65; /* its core over that in bf16. Both are assumed: no published kernel times */
/* Adding up a weight gradient in fp32: written and read in bf16, fp32 read and written; or by the product itself. */
static const double accumulate_bytes[] = {12, 8};
/* Of a parameter, fp32: Adam reads gradient, master and two moments, writes three of them (28); the gradient is read for
 * its norm, clipped and cleared (16); the master is read and written in bf16 (6). Source: Megatron Core's optimizer. */
static const double optimizer_bytes = 50;
static const double loss_bytes = 8; /* of a logit: written by the product, read by the loss, in fp32 between */

typedef struct {
  double tokens, gathered; /* of a rank; of its tensor-parallel group (one sequence part) */
  double rows, local;      /* assignments of the rank's tokens; experts that it holds */
  int32_t experts;         /* local */
} sizes;

static sizes sizes_of(const hec_training *t) {
  const hec_layout *l = &t->layout;
  sizes s = {.experts = t->moe->n_experts / l->ep};
  s.gathered = (double)t->seq * (double)t->micro_batch / (double)l->cp;
  s.tokens = hec_training_tokens(t);
  s.rows = s.tokens * (double)t->moe->top_k;
  s.local = (double)s.experts;
  return s;
}

static double bytes_s(const hec_training *t, double bytes) {
  return bytes > 0 ? t->laws->norm.launch_s + bytes * t->laws->norm.byte_s : 0;
}

/* Memory binds most kernels, and in a step they take `in_step` times as long as alone: caches are cold, copies and
 * collectives share HBM. Products load their operands from there too, and feel a quarter of that. Attention's core works
 * inside an SM and feels nothing: with a factor of its own, sequences of 128K tokens are 12 % too slow. The quarter is
 * chosen, not derived. Divided by in_step because that is applied to the sum. */
static double of_core(const hec_training *t) {
  return 1 / t->constants.in_step;
}

static double of_products(const hec_training *t) {
  return (1 + 0.25 * (t->constants.in_step - 1)) / t->constants.in_step;
}

static int32_t gemm_bytes(const hec_training *t) {
  return t->recipe.precision == HEC_PRECISION_BF16 ? 2 : 1;
}

/* A shape cut for tensor parallelism, in the precision of the GEMMs. */
static hec_work_dims dims_of(const hec_training *t, hec_work_shape shape, int32_t parts) {
  hec_work_dims dims = hec_work_cut(shape, parts).dims;
  dims.kv_heads = dims.heads > 0 && dims.kv_heads == 0 ? 1 : dims.kv_heads;
  dims.dtype_bytes = gemm_bytes(t);
  dims.again = false;
  dims.quantised = t->recipe.fused;
  return dims;
}

static double work_s(const hec_training *t, const hec_work_dims *dims, double rows, bool backward) {
  return hec_gpu_work_s(t->laws, dims, 0, rows, backward);
}

/* Keys that a query sees in a block whose attention is dense or of the model's kind. */
static double context_of(const hec_training *t, bool dense) {
  const hec_moe *moe = t->moe;
  hec_attention kind = dense && moe->attention == HEC_ATTENTION_S2 ? HEC_ATTENTION_CAUSAL : moe->attention;
  return hec_attention_context(kind, moe->s2, moe->n_heads, t->seq);
}

/* Of the blocks, those whose attention is dense although the model's is s2 or a window. */
static double dense_share(const hec_training *t) {
  return (double)hec_moe_n_dense_attention(t->moe, false) / (double)t->moe->n_layers;
}

static double attention_of_s(const hec_training *t, const sizes *z, bool dense, bool backward) {
  hec_work_shape shape = dense ? hec_work_dense_attention(t->moe) : hec_work_attention(t->moe);
  hec_work_dims dims = dims_of(t, shape, t->layout.tp);
  dims.seq = t->seq;
  dims.context = context_of(t, dense);
  dims.context_parts = t->layout.cp;
  dims.core = of_core(t) * (t->recipe.fused && t->recipe.precision != HEC_PRECISION_BF16 ? fp8_attention : 1);
  dims.projections *= of_products(t);
  return work_s(t, &dims, z->gathered, backward);
}

/* The mean over the blocks: where dense ones and others take turns, as in GPT-OSS, every stage has both. */
static double attention_s(const hec_training *t, const sizes *z, bool backward) {
  double dense = dense_share(t), s = 0;
  if (dense > 0)
    s += dense * attention_of_s(t, z, true, backward);
  return dense < 1 ? s + (1 - dense) * attention_of_s(t, z, false, backward) : s;
}

static double ffn_s(const hec_training *t, const sizes *z, hec_work_shape shape, bool backward) {
  hec_work_dims dims = dims_of(t, shape, t->layout.tp);
  return of_products(t) * work_s(t, &dims, z->gathered, backward);
}

/* Seconds below which no expert layer of so many rows is: the law of grouped products was fitted to smaller ones and
 * would let large ones reach the peak. They are no faster than the best tile of a dense product. */
static double experts_min_s(const hec_training *t, const hec_work_dims *dims, double rows) {
  double factor;
  hec_law_precision precision = hec_gpu_precision(t->laws, dims->dtype_bytes, &factor);
  double flops = 2 * (double)dims->n_matrices * (double)dims->inter * (double)dims->hidden * rows;
  return factor * (flops / hec_gpu_dense_flops(t->laws, precision) +
                   dims->core * hec_gpu_activation_s(t->laws, dims, precision, rows));
}

/* Each expert's rows are fp8 numbers of their own. Beside the kernel that quantises them, which the law of products holds, a
 * product has two more: with MXFP8 those put the scales of both operands in the order that it reads, with one scale a tensor
 * they find it. Counted in the grouped linear layer of Transformer Engine. Fused kernels do all experts at once. */
static double own_launches_s(const hec_training *t) {
  static const double launches = 2 * 2;
  bool each = t->recipe.precision != HEC_PRECISION_BF16 && !t->recipe.fused;
  return each ? launches * t->laws->gpu.sheet.launch_s : 0;
}

/* Forward; backward takes twice as long. */
static double experts_s(const hec_training *t, const sizes *z, const hec_layer_load *load) {
  int32_t even[HEC_RANK_EXPERTS_MAX], n = load->rows ? load->n : z->experts;
  const int32_t *rows = load->rows ? load->rows : even;
  hec_work_dims dims = hec_work_expert(t->moe).dims;
  dims.inter /= t->layout.etp;
  dims.dtype_bytes = gemm_bytes(t);
  dims.again = false;
  dims.quantised = t->recipe.fused;
  dims.core = t->recipe.fused ? fused_bytes : 1;
  double each = z->rows * (double)t->layout.etp / z->local;
  for (int32_t e = 0; !load->rows && e < n; e++)
    even[e] = (int32_t)(each * (double)(e + 1)) - (int32_t)(each * (double)e);
  double s = hec_gpu_experts_s(t->laws, &dims, rows, n, 1, false), all = 0, busy = 0;
  for (int32_t e = 0; e < n; e++) {
    all += (double)rows[e];
    busy += rows[e] > 0;
  }
  double min_s = experts_min_s(t, &dims, all);
  return of_products(t) * (s > min_s ? s : min_s) + busy * own_launches_s(t);
}

double hec_layer_rows(const hec_training *t, const hec_layer_load *load) {
  double rows = 0;
  if (!load || !load->rows) {
    double balanced = sizes_of(t).rows * (double)t->layout.etp;
    return load ? balanced * load->received : balanced;
  }
  for (int32_t e = 0; e < load->n; e++)
    rows += (double)load->rows[e];
  return rows;
}

/* Router and both permutations; tokens are sorted by expert where a rank computes several. */
static double permute_s(const hec_training *t, const sizes *z, const hec_layer_load *load) {
  double width = (double)t->moe->d_model;
  bool several = z->experts > 1 || load->n > 1; /* copies, too */
  double bytes = 4 * width * (z->tokens + z->rows) + (several ? 8 * width * hec_layer_rows(t, load) : 0);
  return bytes_s(t, bytes * (t->recipe.fused ? fused_bytes : 1));
}

static double gate_s(const hec_training *t, const sizes *z, bool backward) {
  hec_work_dims dims = hec_work_gate(t->moe).dims;
  dims.dtype_bytes = 2;
  return work_s(t, &dims, z->tokens, backward) + bytes_s(t, 16 * z->tokens * (double)t->moe->n_experts);
}

/* ---- Communication ---- */

static double tensor_pair_s(const hec_training *t, const sizes *z) {
  double bytes = 2 * z->gathered * (double)t->moe->d_model;
  return t->layout.tp < 2 ? 0
                          : hec_group_collective_s(t, HEC_ALL_GATHER, t->layout.tp, 1, bytes) +
                                hec_group_collective_s(t, HEC_REDUCE_SCATTER, t->layout.tp, 1, bytes);
}

/* All rows of the group's experts go to each of its ranks, those that came from elsewhere and its own: Megatron-LM's all-to-all
 * dispatcher gathers what it has permuted, one row per assignment, even if none travelled. So copies that spare tokens their way
 * spare nothing here. Without expert parallelism the all-gather dispatcher gathers tokens before they are permuted. */
static double expert_tensor_s(const hec_training *t, const sizes *z, const hec_layer_load *load) {
  double rows = hec_layer_rows(t, load), tokens = z->tokens * (double)t->layout.etp;
  double bytes = 2 * (t->layout.ep == 1 ? tokens : rows) * (double)t->moe->d_model;
  return t->layout.etp < 2 ? 0
                           : hec_group_collective_s(t, HEC_ALL_GATHER, t->layout.etp, 1, bytes) +
                                 hec_group_collective_s(t, HEC_REDUCE_SCATTER, t->layout.etp, 1, bytes);
}

/* Keys and values around the ring of context parallelism. */
static double context_s(const hec_training *t, const sizes *z) {
  double bytes = 4 * z->gathered * (double)t->layout.cp * (double)(t->moe->n_kv_heads * t->moe->d_head) /
                 (double)(t->moe->n_kv_heads < t->layout.tp ? t->moe->n_kv_heads : t->layout.tp);
  return t->layout.cp < 2 ? 0 : hec_group_collective_s(t, HEC_ALL_GATHER, t->layout.cp, t->layout.tp, bytes);
}

/* ---- Layers ---- */

/* `experts`: seconds of the layer's experts forward, as in what follows. */
static hec_layer_pass moe_forward(const hec_training *t, const sizes *z, const hec_layer_load *load, double experts) {
  hec_layer_pass p = {.compute_s = attention_s(t, z, false) + gate_s(t, z, false) + permute_s(t, z, load) + experts,
                      .tensor_s = tensor_pair_s(t, z) + expert_tensor_s(t, z, load) + context_s(t, z),
                      .dispatch_s =
                          t->layout.ep < 2 ? 0 : hec_dispatchers[t->recipe.dispatcher]->seconds(t, load->received)};
  if (t->moe->n_shared_experts > 0) {
    p.compute_s += ffn_s(t, z, hec_work_shared(t->moe), false);
    p.tensor_s += tensor_pair_s(t, z);
  }
  return p;
}

/* Gradients of a layer's weights, of all experts that the rank computes: its own, and copies. Those of a guest are written, and packed
 * for the way home; those of a replica are added up until the step ends. Planners do not know that, and may copy where it does not
 * pay. */
static double params_s(const hec_training *t, hec_layer_kind kind, const hec_layer_load *load) {
  double dense, expert;
  hec_training_params(t, kind, &dense, &expert);
  if (kind == HEC_LAYER_MOE)
    expert += (double)(load->guests + load->replicas) * hec_moe_expert_params(t->moe) / (double)t->layout.etp;
  return accumulate_bytes[t->recipe.fused] * (dense + expert) * t->laws->add.byte_s;
}

static double recomputed_s(const hec_training *t, const sizes *z, const hec_layer_load *load, bool moe,
                           double experts) {
  int32_t what = t->recipe.recompute;
  double width = (double)t->moe->d_model, inner = (double)(t->moe->n_ffn_matrices * t->moe->d_ffn), s = 0;
  if (what & HEC_RECOMPUTE_NORM)
    s += bytes_s(t, 8 * width * z->tokens);
  if (what & HEC_RECOMPUTE_ATTENTION)
    s += attention_s(t, z, false);
  if (moe && what & HEC_RECOMPUTE_ACT)
    s += bytes_s(t, 2 * inner * z->rows);
  if (moe && what & HEC_RECOMPUTE_MOE)
    s += experts + permute_s(t, z, load);
  if (!moe && what & HEC_RECOMPUTE_MLP)
    s += ffn_s(t, z, hec_work_dense_ffn(t->moe), false);
  return s;
}

static hec_layer_pass dense_forward(const hec_training *t, const sizes *z) {
  return (hec_layer_pass){.compute_s = attention_s(t, z, false) + ffn_s(t, z, hec_work_dense_ffn(t->moe), false),
                          .tensor_s = 2 * tensor_pair_s(t, z) + context_s(t, z)};
}

static hec_layer_pass backward_of(const hec_training *t, const sizes *z, bool moe, const hec_layer_load *load,
                                  hec_layer_pass forward, double experts) {
  hec_layer_pass p = forward;
  double attention = attention_s(t, z, true), rest;
  if (moe)
    rest = gate_s(t, z, true) + permute_s(t, z, load) + 2 * experts +
           (t->moe->n_shared_experts > 0 ? ffn_s(t, z, hec_work_shared(t->moe), true) : 0);
  else
    rest = ffn_s(t, z, hec_work_dense_ffn(t->moe), true);
  double accumulate = params_s(t, moe ? HEC_LAYER_MOE : HEC_LAYER_DENSE, load);
  double weights = 0.5 * rest + accumulate; /* half of a backward pass are input gradients */
  p.compute_s = attention + 0.5 * rest + weights;
  p.weight_s = weights;
  if (t->recipe.recompute & HEC_RECOMPUTE_FULL) {
    p.compute_s += forward.compute_s;
    p.tensor_s += forward.tensor_s;
    p.dispatch_s += forward.dispatch_s;
  } else {
    p.compute_s += recomputed_s(t, z, load, moe, experts);
    if (moe && t->recipe.recompute & HEC_RECOMPUTE_MOE)
      p.dispatch_s += forward.dispatch_s;
  }
  return p;
}

static hec_layer_pass head_of(const hec_training *t, const sizes *z, bool backward) {
  hec_work_dims dims = hec_work_head(t->moe).dims;
  dims.inter = (dims.inter + t->layout.tp - 1) / t->layout.tp;
  dims.dtype_bytes = 2;
  double logits = z->gathered * (double)dims.inter;
  return (hec_layer_pass){.compute_s = of_products(t) * work_s(t, &dims, z->gathered, backward) +
                                       bytes_s(t, loss_bytes * logits),
                          .tensor_s = backward ? 0 : tensor_pair_s(t, z)};
}

void hec_layer_passes_of(const hec_training *t, hec_layer_kind kind, const hec_layer_load *load,
                         hec_layer_pass pass[2]) {
  static const hec_layer_load balanced = {.received = 1};
  const sizes z = sizes_of(t);
  bool moe = kind == HEC_LAYER_MOE, head = kind == HEC_LAYER_HEAD;
  load = load ? load : &balanced;
  double experts = moe ? experts_s(t, &z, load) : 0,
         fabric = hec_training_crosses(t) ? fabric_host[t->recipe.fabric] : 1;
  pass[0] = head ? head_of(t, &z, false) : moe ? moe_forward(t, &z, load, experts) : dense_forward(t, &z);
  pass[1] = head ? head_of(t, &z, true) : backward_of(t, &z, moe, load, pass[0], experts);
  for (int backward = 0; backward < 2; backward++) {
    double way = backward ? backward_host : 1;
    pass[backward].compute_s *= t->constants.in_step;
    pass[backward].weight_s *= t->constants.in_step;
    pass[backward].host_s = head ? 0 : t->constants.host_s * graph_host[t->recipe.graph] * fabric * way;
  }
}

double hec_layer_exposed_s(const hec_training *t, const hec_layer_pass *p) {
  return (t->recipe.overlap ? 1 - t->constants.overlapped : 1) * p->dispatch_s;
}

double hec_layer_waits_s(const hec_training *t, const hec_layer_pass *p) {
  double s = p->compute_s + p->tensor_s + hec_layer_exposed_s(t, p);
  return s > p->host_s ? 0 : p->host_s - s;
}

double hec_layer_pass_s(const hec_training *t, const hec_layer_pass *p) {
  return p->compute_s + p->tensor_s + hec_layer_exposed_s(t, p) + hec_layer_waits_s(t, p);
}

/* ---- Of a step ---- */

hec_gpu_laws hec_training_laws(const hec_gpu_laws *laws) {
  const hec_attention_work work = {
      .batch = 1, .seq = 4096, .heads = 32, .kv_heads = 32, .head_dim = 128, .head_dim_v = 128, .causal = true};
  hec_gpu_laws own = *laws;
  for (int32_t i = 0; i < laws->gpu.n_fits; i++) {
    const hec_law_fit *fit = &laws->gpu.fits[i];
    if (fit->law == laws->attention->law &&
        hec_law_fit_s(&laws->gpu, fit, &work) < hec_law_fit_s(&laws->gpu, own.attention, &work))
      own.attention = fit;
  }
  return own;
}

int32_t hec_training_micro_batches(const hec_training *t) {
  int64_t n = t->global_batch / ((int64_t)t->layout.dp * t->micro_batch);
  return n > 0 ? (int32_t)n : 1;
}

hec_status hec_training_check(const hec_training *t) {
  int64_t each = (int64_t)t->layout.dp * t->micro_batch;
  if (t->global_batch % each == 0 && t->seq % t->layout.cp == 0)
    return HEC_OK;
  if (t->seq % t->layout.cp != 0)
    return hec_fail(HEC_BAD_INPUT, "seq: expected a multiple of cp (%d), found %d", (int)t->layout.cp, (int)t->seq);
  return hec_fail(HEC_BAD_INPUT,
                  "global batch: expected a multiple of dp x micro-batch (%d x %d), found %d; %lld would fit",
                  (int)t->layout.dp, (int)t->micro_batch, (int)t->global_batch,
                  (long long)((t->global_batch + each - 1) / each * each));
}

void hec_training_params(const hec_training *t, hec_layer_kind kind, double *dense, double *expert) {
  const hec_moe *moe = t->moe;
  double tp = (double)t->layout.tp;
  *expert = 0;
  if (kind == HEC_LAYER_HEAD)
    *dense = (double)moe->vocabulary * (double)moe->d_model / tp;
  else if (kind == HEC_LAYER_DENSE)
    *dense = hec_moe_dense_block_params(moe) / tp;
  else {
    *dense = hec_moe_block_params(moe) / tp;
    *expert = hec_moe_expert_params(moe) * (double)(moe->n_experts / t->layout.ep) / (double)t->layout.etp;
  }
}

double hec_training_hidden(const hec_training *t) {
  const double hidden[] = {0, t->constants.hidden, 1};
  return hidden[t->recipe.dp_overlap];
}

double hec_training_optimizer_s(const hec_training *t, double dense, double expert) {
  if (t->recipe.zero > 0) {
    dense /= (double)(t->layout.dp * t->layout.cp);
    expert /= (double)t->layout.edp;
  }
  return bytes_s(t, optimizer_bytes * (dense + expert));
}

double hec_training_flops_per_token(const hec_training *t, double dropped) {
  const hec_moe *moe = t->moe;
  double dense = (double)(moe->n_layers - moe->n_moe_layers), blocks = (double)(moe->n_moe_layers + t->mtp);
  double width = (double)moe->d_model, heads = 1 + (double)t->mtp;
  double experts = (double)moe->top_k * hec_moe_expert_params(moe);
  double active = dense * hec_moe_dense_block_params(moe) + blocks * (hec_moe_block_params(moe) + experts) -
                  dropped * (double)moe->n_moe_layers * experts + heads * width * (double)moe->vocabulary +
                  (double)t->mtp * 2 * width * width;
  double share = dense_share(t), context = share * context_of(t, true) + (1 - share) * context_of(t, false);
  double scores = 12 * context * (double)(moe->n_heads * moe->d_head);
  return 6 * active + (dense + blocks) * scores;
}
