/* The shape of an MoE model: everything that the compute, traffic and memory laws need, nothing of its weights. */
#ifndef HEC_MODELS_MOE_H
#define HEC_MODELS_MOE_H
#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
  HEC_ATTENTION_FULL,   /* every token attends to the whole sequence */
  HEC_ATTENTION_CAUSAL, /* half of it */
  HEC_ATTENTION_S2,     /* sparsely sharded: each head its own context shard, seq_len / n_heads keys per token and head */
} hec_attention;

typedef struct {
  char name[64];
  int32_t n_layers;         /* transformer blocks */
  int32_t n_moe_layers;     /* of them with MoE instead of a dense FFN (the last n_moe_layers) */
  int32_t d_model, d_ffn;   /* width; inner width of one expert */
  int32_t d_ffn_dense;      /* inner width of the dense FFN of the other blocks */
  int32_t n_ffn_matrices;   /* 2: plain MLP, 3: gated (SwiGLU) */
  int32_t n_experts, top_k; /* routed experts of a layer; experts per token */
  int32_t n_shared_experts; /* always-on experts, on every rank; inner width d_ffn_shared */
  int32_t d_ffn_shared;
  int32_t n_heads, n_kv_heads, d_head;
  int32_t vocabulary; /* 0: embedding and head not counted */
  int32_t seq_len, tokens_per_rank, micro_batches;
  int32_t dtype_bytes;                      /* bytes of a parameter or an activation on the wire and in compute */
  double grad_bytes, optimizer_bytes;       /* per parameter */
  hec_attention attention;
  double capacity_factor; /* 0: dropless */
  bool recompute;         /* activations recomputed in backward */
  double nonmoe_scale;    /* factor on the time of the non-MoE part of a block; 1 unless calibrated */
} hec_moe;

/* Looks `name` up among the compiled-in presets (models/presets/moe-NAME.json), else reads it as a JSON file of the same
 * form. Errors: unknown preset (the message lists those there are), bad field (file, line, path, expected, found). */
hec_status hec_moe_load(const char *name, hec_moe *moe) HEC_MUST_USE;

/* Parses a preset's text; `origin` names it in messages. */
hec_status hec_moe_parse(const char *text, const char *origin, hec_moe *moe) HEC_MUST_USE;

/* Values must be positive where a law divides or multiplies by them, top_k <= n_experts, ...; says which is not. */
hec_status hec_moe_check(const hec_moe *moe, const char *origin) HEC_MUST_USE;

/* Parameters (not bytes). */
double hec_moe_expert_params(const hec_moe *moe);      /* one routed expert */
double hec_moe_block_params(const hec_moe *moe);       /* dense part of one MoE block: attention, gate, norms, shared experts */
double hec_moe_dense_block_params(const hec_moe *moe); /* a block without MoE: attention, norms, dense FFN */
double hec_moe_embedding_params(const hec_moe *moe);   /* embedding and head */

#endif
