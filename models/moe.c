/* MoE shapes: reading, checks and parameter counts.
 *
 * Parameters of a block: attention 2*d*h*dh + 2*d*kv*dh (q, o; k, v), gate d*E, two norms of d; an expert is
 * n_ffn_matrices * d * f. Biases are not counted: they are below 0.1 % and no law depends on them. */
#include "models/moe.h"

#include "models/json.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* One row per integer field: key, least and largest value, offset in hec_moe. */
typedef struct {
  const char *key;
  int64_t min, max;
  size_t offset;
  bool required;
} int_field;

#define FIELD(name) offsetof(hec_moe, name)
enum { WIDTH_MAX = 1 << 24, COUNT_MAX = 1 << 16, TOKENS_MAX = 1 << 28 };

static const int_field int_fields[] = {
    {"layers", 1, COUNT_MAX, FIELD(n_layers), true},
    {"moe_layers", 1, COUNT_MAX, FIELD(n_moe_layers), false},
    {"d_model", 1, WIDTH_MAX, FIELD(d_model), true},
    {"d_ffn", 1, WIDTH_MAX, FIELD(d_ffn), true},
    {"d_ffn_dense", 0, WIDTH_MAX, FIELD(d_ffn_dense), false},
    {"ffn_matrices", 2, 3, FIELD(n_ffn_matrices), true},
    {"experts", 1, COUNT_MAX, FIELD(n_experts), true},
    {"top_k", 1, COUNT_MAX, FIELD(top_k), true},
    {"shared_experts", 0, COUNT_MAX, FIELD(n_shared_experts), false},
    {"d_ffn_shared", 0, WIDTH_MAX, FIELD(d_ffn_shared), false},
    {"heads", 1, COUNT_MAX, FIELD(n_heads), true},
    {"kv_heads", 1, COUNT_MAX, FIELD(n_kv_heads), false},
    {"d_head", 1, WIDTH_MAX, FIELD(d_head), false},
    {"token_nodes", 0, COUNT_MAX, FIELD(token_nodes), false},
    {"vocabulary", 0, WIDTH_MAX, FIELD(vocabulary), false},
    {"seq_len", 1, TOKENS_MAX, FIELD(seq_len), true},
    {"tokens_per_rank", 1, TOKENS_MAX, FIELD(tokens_per_rank), false},
    {"micro_batches", 1, COUNT_MAX, FIELD(micro_batches), false},
    {"dtype_bytes", 1, 8, FIELD(dtype_bytes), false},
};
enum { N_INT_FIELDS = sizeof int_fields / sizeof *int_fields };

static const char *const known_fields[] = {"name",
                                           "layers",
                                           "moe_layers",
                                           "d_model",
                                           "d_ffn",
                                           "d_ffn_dense",
                                           "ffn_matrices",
                                           "experts",
                                           "top_k",
                                           "shared_experts",
                                           "token_nodes",
                                           "d_ffn_shared",
                                           "heads",
                                           "kv_heads",
                                           "d_head",
                                           "attention_params",
                                           "gate_params",
                                           "vocabulary",
                                           "seq_len",
                                           "tokens_per_rank",
                                           "micro_batches",
                                           "dtype_bytes",
                                           "grad_bytes",
                                           "optimizer_bytes",
                                           "attention",
                                           "fused_attention",
                                           "capacity_factor",
                                           "recompute",
                                           "nonmoe_scale",
                                           NULL};

/* Integer fields that are absent keep what they have. */
static hec_status read_ints(const hec_json *json, const hec_json_value *root, bool required, hec_moe *moe) {
  for (int i = 0; i < N_INT_FIELDS; i++) {
    const int_field *field = &int_fields[i];
    int32_t *target = (int32_t *)((char *)moe + field->offset);
    int64_t value = 0;
    if (field->required != required)
      continue;
    if (required)
      HEC_TRY(hec_json_want_int(json, root, field->key, field->min, field->max, &value));
    else
      HEC_TRY(hec_json_int_or(json, root, field->key, field->min, field->max, *target, &value));
    *target = (int32_t)value;
  }
  return HEC_OK;
}

static hec_status read_attention(const hec_json *json, const hec_json_value *root, hec_moe *moe) {
  const hec_json_value *value = hec_json_get(root, "attention");
  moe->attention = HEC_ATTENTION_CAUSAL;
  if (!value)
    return HEC_OK;
  const char *expected =
      hec_attention_read(hec_json_is_string(value) ? hec_json_text(value) : "", &moe->attention, &moe->s2);
  return expected ? hec_json_error(json, value, expected) : HEC_OK;
}

hec_status hec_moe_read(const hec_json *json, hec_moe *moe) {
  const hec_json_value *root = hec_json_root(json);
  const char *name;
  HEC_TRY(hec_json_only(json, root, known_fields));
  HEC_TRY(hec_json_want_text(json, root, "name", &name));
  hec_name_copy(moe->name, sizeof moe->name, name);
  hec_make_plain(moe->name);
  HEC_TRY(read_ints(json, root, true, moe));
  moe->n_moe_layers = moe->n_layers;
  moe->d_ffn_dense = moe->d_ffn_shared = moe->d_ffn;
  moe->n_kv_heads = moe->n_heads;
  moe->d_head = moe->d_model / moe->n_heads;
  moe->tokens_per_rank = moe->seq_len;
  moe->micro_batches = 1;
  moe->dtype_bytes = 2;
  HEC_TRY(read_ints(json, root, false, moe));
  HEC_TRY(hec_json_double_or(json, root, "attention_params", 0, 1e15, 0, &moe->attention_params));
  HEC_TRY(hec_json_double_or(json, root, "gate_params", 0, 1e15, 0, &moe->gate_params));
  HEC_TRY(hec_json_double_or(json, root, "grad_bytes", 0, 64, 2, &moe->grad_bytes));
  HEC_TRY(hec_json_double_or(json, root, "optimizer_bytes", 0, 64, 12, &moe->optimizer_bytes));
  HEC_TRY(read_attention(json, root, moe));
  HEC_TRY(hec_json_bool_or(json, root, "fused_attention", true, &moe->fused_attention));
  HEC_TRY(hec_json_double_or(json, root, "capacity_factor", 0, 1e6, 0, &moe->capacity_factor));
  HEC_TRY(hec_json_bool_or(json, root, "recompute", false, &moe->recompute));
  HEC_TRY(hec_json_double_or(json, root, "nonmoe_scale", 0, 1e6, 1, &moe->nonmoe_scale));
  return HEC_OK;
}

/* The integer fields within their limits; zero is allowed where a row of the table allows it. */
static hec_status check_ints(const hec_moe *moe, const char *origin) {
  for (int i = 0; i < N_INT_FIELDS; i++) {
    int32_t value = *(const int32_t *)((const char *)moe + int_fields[i].offset);
    if (value < int_fields[i].min || value > int_fields[i].max)
      return hec_fail(HEC_BAD_INPUT, "%s: %s: expected an integer from %lld to %lld, found %d", origin,
                      int_fields[i].key, (long long)int_fields[i].min, (long long)int_fields[i].max, (int)value);
  }
  return HEC_OK;
}

hec_status hec_moe_check(const hec_moe *moe, const char *origin) {
  HEC_TRY(check_ints(moe, origin));
  if (moe->top_k > moe->n_experts)
    return hec_fail(HEC_BAD_INPUT, "%s: top_k: expected at most the number of experts (%d), found %d", origin,
                    (int)moe->n_experts, (int)moe->top_k);
  if (moe->n_moe_layers > moe->n_layers)
    return hec_fail(HEC_BAD_INPUT, "%s: moe_layers: expected at most the number of layers (%d), found %d", origin,
                    (int)moe->n_layers, (int)moe->n_moe_layers);
  if (moe->n_kv_heads > moe->n_heads)
    return hec_fail(HEC_BAD_INPUT, "%s: kv_heads: expected at most the number of heads (%d), found %d", origin,
                    (int)moe->n_heads, (int)moe->n_kv_heads);
  if (moe->n_shared_experts > 0 && moe->d_ffn_shared < 1)
    return hec_fail(HEC_BAD_INPUT, "%s: d_ffn_shared: expected at least 1 with shared experts, found 0", origin);
  const char *wrong = moe->attention == HEC_ATTENTION_S2 ? hec_s2_wrong(moe->s2, moe->n_heads) : NULL;
  if (wrong)
    return hec_fail(HEC_BAD_INPUT, "%s: attention: %s", origin, wrong);
  const double values[] = {moe->grad_bytes,   moe->optimizer_bytes,  moe->capacity_factor,
                           moe->nonmoe_scale, moe->attention_params, moe->gate_params};
  static const char *const keys[] = {"grad_bytes",   "optimizer_bytes",  "capacity_factor",
                                     "nonmoe_scale", "attention_params", "gate_params"};
  for (int i = 0; i < 6; i++)
    if (!(values[i] >= 0 && values[i] <= 1e15))
      return hec_fail(HEC_BAD_INPUT, "%s: %s: expected a number from 0 to 1e15, found %g", origin, keys[i], values[i]);
  return HEC_OK;
}

void hec_moe_describe(const hec_moe *moe, hec_text *text) {
  hec_text_printf(text, "%s: %d layers (%d MoE), %d experts top-%d", moe->name, (int)moe->n_layers,
                  (int)moe->n_moe_layers, (int)moe->n_experts, (int)moe->top_k);
  if (moe->n_shared_experts > 0)
    hec_text_printf(text, " + %d shared", (int)moe->n_shared_experts);
  double total = (double)moe->n_moe_layers * (hec_moe_block_params(moe) + moe->n_experts * hec_moe_expert_params(moe)) +
                 (double)(moe->n_layers - moe->n_moe_layers) * hec_moe_dense_block_params(moe) +
                 hec_moe_embedding_params(moe);
  hec_text_printf(text, ", d_model %d, d_ffn %d x %d matrices, ", (int)moe->d_model, (int)moe->d_ffn,
                  (int)moe->n_ffn_matrices);
  hec_attention_write(moe->attention, moe->s2, moe->n_heads, text);
  hec_text_printf(text, " attention, sequence %d, %.3g %s parameters", (int)moe->seq_len,
                  total < 1e9 ? total / 1e6 : total / 1e9, total < 1e9 ? "M" : "B");
}

int32_t hec_moe_n_dense_attention(const hec_moe *moe, bool moe_layers_only) {
  int32_t n = moe_layers_only ? moe->n_moe_layers : moe->n_layers, every = moe->s2.dense;
  return moe->attention == HEC_ATTENTION_S2 && every > 0 ? (n + every - 1) / every : 0;
}

double hec_moe_context(const hec_moe *moe, bool dense) {
  hec_attention kind = dense && moe->attention == HEC_ATTENTION_S2 ? HEC_ATTENTION_CAUSAL : moe->attention;
  return hec_attention_context(kind, moe->s2, moe->n_heads, moe->seq_len);
}

double hec_moe_expert_params(const hec_moe *moe) {
  return (double)moe->n_ffn_matrices * (double)moe->d_model * (double)moe->d_ffn;
}

double hec_moe_attention_params(const hec_moe *moe) {
  if (moe->attention_params > 0)
    return moe->attention_params;
  return 2 * (double)moe->d_model * ((double)moe->n_heads + (double)moe->n_kv_heads) * (double)moe->d_head;
}

static double norm_params(const hec_moe *moe) {
  return 2 * (double)moe->d_model;
}

double hec_moe_gate_params(const hec_moe *moe) {
  return moe->gate_params > 0 ? moe->gate_params : (double)moe->d_model * (double)moe->n_experts;
}

double hec_moe_block_params(const hec_moe *moe) {
  double gate = hec_moe_gate_params(moe);
  double shared =
      (double)moe->n_shared_experts * (double)moe->n_ffn_matrices * (double)moe->d_model * (double)moe->d_ffn_shared;
  return hec_moe_attention_params(moe) + norm_params(moe) + gate + shared;
}

double hec_moe_dense_block_params(const hec_moe *moe) {
  double ffn = (double)moe->n_ffn_matrices * (double)moe->d_model * (double)moe->d_ffn_dense;
  return hec_moe_attention_params(moe) + norm_params(moe) + ffn;
}

double hec_moe_embedding_params(const hec_moe *moe) {
  return 2 * (double)moe->vocabulary * (double)moe->d_model;
}
