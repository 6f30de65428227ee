/* The shape of an MoE model: everything that the compute, traffic and memory laws need, nothing of its weights.
 *
 * As JSON (presets/moe-NAME.json and files of the user), keys are the fields below without "n_":
 *     required  name, layers, d_model, d_ffn, ffn_matrices, experts, top_k, heads, seq_len
 *     optional  moe_layers (layers), d_ffn_dense (d_ffn), shared_experts (0), token_nodes (0), d_ffn_shared (d_ffn), kv_heads (heads),
 *               d_head (d_model / heads), attention_params (0), gate_params (0), vocabulary (0),
 *               tokens_per_rank (seq_len), micro_batches (1), dtype_bytes (2), grad_bytes (2), optimizer_bytes (12),
 *               attention ("full", "causal", "s2" or "s2:shards=8,local=1024,block=64,dense=2" or "window:local=128,dense=2", attention.h; default
 *               "causal"), fused_attention (true), capacity_factor (0), recompute (false), nonmoe_scale (1), notes,
 *               sources */
#pragma once
#include "models/attention.h"
#include "runtime/base/arena.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  char name[64];
  int32_t n_layers;         /* transformer blocks */
  int32_t n_moe_layers;     /* of them with MoE instead of a dense FFN (the last n_moe_layers) */
  int32_t d_model, d_ffn;   /* width; inner width of one expert */
  int32_t d_ffn_dense;      /* inner width of the dense FFN of the other blocks */
  int32_t n_ffn_matrices;   /* 2: plain MLP, 3: gated (SwiGLU) */
  int32_t n_experts, top_k; /* routed experts of a layer; experts per token */
  int32_t token_nodes;      /* nodes that a token may go to, by the router's own limit; 0: any */
  int32_t n_shared_experts; /* always-on experts, on every rank; inner width d_ffn_shared */
  int32_t d_ffn_shared;
  int32_t n_heads, n_kv_heads, d_head;
  double attention_params; /* of one block; 0: q, k, v, o projections of these heads (given for low-rank forms: MLA) */
  double gate_params;      /* of one gate; 0: one matrix d_model x experts (given for low-rank forms: X-MoE) */
  int32_t vocabulary;      /* 0: embedding and head not counted */
  int32_t seq_len, tokens_per_rank, micro_batches;
  int32_t dtype_bytes;                /* bytes of a parameter or an activation on the wire and in compute */
  double grad_bytes, optimizer_bytes; /* per parameter */
  hec_attention attention;
  hec_s2 s2;              /* where attention is s2 */
  bool fused_attention;   /* scores stay on chip (FlashAttention); false: they are written, read and kept */
  double capacity_factor; /* 0: dropless */
  bool recompute;         /* activations recomputed in backward */
  double nonmoe_scale;    /* factor on the time of the non-MoE part of a block; 1 unless calibrated */
} hec_moe;

/* Looks `name` up among the compiled-in presets (models/presets/moe-NAME.json). Else reads it as a JSON file of the
 * same form, or as a config.json of Hugging Face (hf_config.h). Errors: unknown preset (the message lists those there
 * are), bad field (file, line, path, expected, found). */
hec_status hec_moe_load(const char *name, hec_moe *moe) HEC_MUST_USE;

/* Parses a preset's text; `origin` names it in messages. */
hec_status hec_moe_parse(const char *text, const char *origin, hec_moe *moe) HEC_MUST_USE;

/* The same two. `said`: appended to, what a config.json was taken for and what had to be assumed; NULL: nobody asks. */
hec_status hec_moe_load_said(const char *name, hec_moe *moe, hec_text *said) HEC_MUST_USE;
hec_status hec_moe_parse_said(const char *text, const char *origin, hec_moe *moe, hec_text *said) HEC_MUST_USE;

/* A document of our own form (hec_moe_load), not checked. */
struct hec_json;
hec_status hec_moe_read(const struct hec_json *json, hec_moe *moe) HEC_MUST_USE;

/* Values must be positive where a law divides or multiplies by them, top_k <= n_experts, ...; says which is not. */
hec_status hec_moe_check(const hec_moe *moe, const char *origin) HEC_MUST_USE;

/* One line for people: "gpt-moe-s: 12 layers (12 MoE), 64 experts top-2, ..." */
void hec_moe_describe(const hec_moe *moe, hec_text *text);

/* Whether the attention of an MoE layer is dense although the model's is s2: causal. */
static inline bool hec_moe_dense_attention(const hec_moe *moe, int32_t layer) {
  return moe->attention == HEC_ATTENTION_S2 && moe->s2.dense > 0 &&
         (moe->n_moe_layers - 1 - layer) % moe->s2.dense == 0;
}
/* How many blocks have such attention: of all, and of those with MoE, which are the last. */
int32_t hec_moe_n_dense_attention(const hec_moe *moe, bool moe_layers_only);

/* Keys that one token sees in one head, mean (attention.h), in a block whose attention is dense or of the model's kind. */
double hec_moe_context(const hec_moe *moe, bool dense);

/* Parameters (not bytes). */
double hec_moe_attention_params(const hec_moe *moe); /* the projections of one block */
double hec_moe_expert_params(const hec_moe *moe);    /* one routed expert */
double hec_moe_gate_params(const hec_moe *moe);      /* the gate of one block */
double
hec_moe_block_params(const hec_moe *moe); /* dense part of one MoE block: attention, gate, norms, shared experts */
double hec_moe_dense_block_params(const hec_moe *moe); /* a block without MoE: attention, norms, dense FFN */
double hec_moe_embedding_params(const hec_moe *moe);   /* embedding and head */
