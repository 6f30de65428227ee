/* One table of our fields and the keys that families of models have for them; the first key that is there counts. Then what
 * is more than a key: which blocks have experts, shared experts, low-rank attention.
 *
 * Blocks with experts, of blocks l = 0 .. L - 1:
 *   deepseek, kimi, glm   l >= first_k_dense_replace and l divisible by moe_layer_freq
 *   qwen                  l + 1 divisible by decoder_sparse_step, and l not in mlp_only_layers
 *   llama4                l in moe_layers; without it l + 1 divisible by interleave_moe_layer_step
 *   others                all
 * Our model has its dense blocks first, so where they alternate only their number is kept.
 *
 * Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): with n = qk_nope_head_dim, r = qk_rope_head_dim, v =
 * v_head_dim, h heads, width d, ranks q and c of the low-rank projections
 *
 *   parameters  d q + q h (n + r)  (without q_lora_rank: d h (n + r))  +  d (c + r)  +  c h (n + v)  +  h v d
 *   d_head      (n + r + v) / 2, so that QK^T and AV have their true FLOPs
 *
 * Source: the configuration classes of transformers 4.5x, and the config.json files of the models named in the presets. */
#include "models/hf_config.h"

#include <string.h>

enum { ASSUMED_SEQUENCE = 4096, COUNT_MAX = 1 << 16, WIDTH_MAX = 1 << 24 };

typedef struct {
  const char *name; /* ours */
  size_t offset;    /* in hec_moe */
  int64_t max;
  const char *keys[4]; /* theirs */
} field;

#define AT(name) offsetof(hec_moe, name)
/* Those that every model has. */
static const field wanted[] = {
    {"layers", AT(n_layers), COUNT_MAX, {"num_hidden_layers"}},
    {"d_model", AT(d_model), WIDTH_MAX, {"hidden_size"}},
    {"experts", AT(n_experts), COUNT_MAX, {"n_routed_experts", "num_local_experts", "num_experts"}},
    {"top_k", AT(top_k), COUNT_MAX, {"num_experts_per_tok", "moe_topk"}},
    {"d_ffn", AT(d_ffn), WIDTH_MAX, {"moe_intermediate_size", "intermediate_size"}},
    {"heads", AT(n_heads), COUNT_MAX, {"num_attention_heads"}},
};
/* Types, by how they begin, that have the first key of d_ffn: the second is the width of their dense blocks. */
static const char *const own_width[] = {"qwen", "deepseek", "kimi", "glm", "dots1", "bailing_moe"};
/* Those that have a default. */
static const field optional[] = {
    {"kv_heads", AT(n_kv_heads), COUNT_MAX, {"num_key_value_heads"}},
    {"d_head", AT(d_head), WIDTH_MAX, {"head_dim"}},
    {"d_ffn_dense", AT(d_ffn_dense), WIDTH_MAX, {"intermediate_size_mlp", "intermediate_size"}},
    {"vocabulary", AT(vocabulary), WIDTH_MAX, {"vocab_size"}},
};
enum { N_WANTED = sizeof wanted / sizeof *wanted, N_OPTIONAL = sizeof optional / sizeof *optional };

typedef struct {
  const hec_json *json;
  const hec_json_value *root; /* of the text model */
  hec_moe *moe;
  hec_text *said; /* or NULL */
} reader;

bool hec_hf_config_is(const hec_json_value *root) {
  return hec_json_is_object(root) && hec_json_get(root, "model_type") && !hec_json_get(root, "d_model");
}

/* A member that is there and is not null, as config.json writes what a model does without. */
static const hec_json_value *member(const hec_json_value *object, const char *key) {
  const hec_json_value *value = hec_json_get(object, key);
  return value && (hec_json_is_number(value) || hec_json_is_string(value) || hec_json_is_array(value)) ? value : NULL;
}

static hec_status whole(const reader *r, const char *key, int64_t min, int64_t max, int64_t otherwise, int64_t *value) {
  *value = otherwise;
  return member(r->root, key) ? hec_json_want_int(r->json, r->root, key, min, max, value) : HEC_OK;
}

/* Only where families differ: nobody asks where hidden_size went. */
static void say(const reader *r, const field *f, const char *key) {
  if (r->said && f->keys[1])
    hec_text_printf(r->said, ", %s from %s", f->name, key);
}

/* "": it has none. */
static const char *type_of(const reader *r) {
  const hec_json_value *type = hec_json_get(r->root, "model_type");
  return type && hec_json_is_string(type) ? hec_json_text(type) : "";
}

static bool has_own_width(const reader *r) {
  for (size_t i = 0; i < sizeof own_width / sizeof *own_width; i++)
    if (strncmp(type_of(r), own_width[i], strlen(own_width[i])) == 0)
      return true;
  return false;
}

static const char *key_of(const reader *r, const field *f) {
  size_t n = f->offset == AT(d_ffn) && has_own_width(r) ? 1 : sizeof f->keys / sizeof *f->keys;
  for (size_t k = 0; k < n && f->keys[k]; k++)
    if (member(r->root, f->keys[k]))
      return f->keys[k];
  return NULL;
}

static hec_status read_field(const reader *r, const field *f, bool needed) {
  const char *key = key_of(r, f);
  if (!key && !needed)
    return HEC_OK;
  int64_t value;
  HEC_TRY(hec_json_want_int(r->json, r->root, key ? key : f->keys[0], 1, f->max, &value));
  *(int32_t *)(void *)((char *)r->moe + f->offset) = (int32_t)value;
  say(r, f, key);
  return HEC_OK;
}

static bool listed(const hec_json_value *list, int32_t block) {
  for (const hec_json_value *v = list ? hec_json_first(list) : NULL; v; v = hec_json_next(v))
    if (hec_json_is_number(v) && hec_json_number(v) == block)
      return true;
  return false;
}

static hec_status count_moe_layers(const reader *r) {
  hec_moe *moe = r->moe;
  int64_t dense, every, sparse, interleave;
  HEC_TRY(whole(r, "first_k_dense_replace", 0, COUNT_MAX, 0, &dense));
  HEC_TRY(whole(r, "moe_layer_freq", 1, COUNT_MAX, 1, &every));
  HEC_TRY(whole(r, "decoder_sparse_step", 1, COUNT_MAX, 1, &sparse));
  HEC_TRY(whole(r, "interleave_moe_layer_step", 1, COUNT_MAX, 1, &interleave));
  const hec_json_value *with = member(r->root, "moe_layers"), *without = member(r->root, "mlp_only_layers");
  with = with && hec_json_is_array(with) ? with : NULL;
  without = without && hec_json_is_array(without) ? without : NULL;
  bool alternate = false, behind = false; /* behind: a block with experts came before */
  moe->n_moe_layers = 0;
  for (int32_t l = 0; l < moe->n_layers; l++) {
    bool has = with ? listed(with, l)
                    : l >= dense && l % every == 0 && (l + 1) % sparse == 0 && (l + 1) % interleave == 0 &&
                          !listed(without, l);
    moe->n_moe_layers += has;
    alternate |= behind && !has;
    behind |= has;
  }
  if (moe->n_moe_layers == 0)
    return hec_json_error(r->json, r->root, "at least one block with experts");
  if (r->said && moe->n_moe_layers < moe->n_layers)
    hec_text_printf(r->said, ", %d of %d blocks have experts%s", (int)moe->n_moe_layers, (int)moe->n_layers,
                    alternate ? " (dense ones alternate with them; modelled as if they came first)" : "");
  return HEC_OK;
}

static hec_status read_shared(const reader *r) {
  int64_t n, width;
  HEC_TRY(whole(r, "n_shared_experts", 0, COUNT_MAX, 0, &n));
  HEC_TRY(whole(r, "shared_expert_intermediate_size", 0, WIDTH_MAX, 0, &width));
  if (n == 0 && width > 0)
    n = 1; /* qwen2_moe: one, of a width of its own */
  if (n == 0 && strncmp(type_of(r), "llama4", 6) == 0)
    n = 1; /* always one, as wide as the others; no key says so */
  r->moe->n_shared_experts = (int32_t)n;
  r->moe->d_ffn_shared = (int32_t)(width > 0 ? width : r->moe->d_ffn);
  if (r->said && n > 0)
    hec_text_printf(r->said, ", %d shared expert%s of width %d", (int)n, n == 1 ? "" : "s", (int)r->moe->d_ffn_shared);
  return HEC_OK;
}

static hec_status read_latent_attention(const reader *r) {
  hec_moe *moe = r->moe;
  int64_t q, c, nope, rope, v;
  HEC_TRY(whole(r, "kv_lora_rank", 1, WIDTH_MAX, 0, &c));
  if (c == 0)
    return HEC_OK;
  HEC_TRY(whole(r, "q_lora_rank", 1, WIDTH_MAX, 0, &q));
  HEC_TRY(hec_json_want_int(r->json, r->root, "qk_nope_head_dim", 1, WIDTH_MAX, &nope));
  HEC_TRY(hec_json_want_int(r->json, r->root, "qk_rope_head_dim", 0, WIDTH_MAX, &rope));
  HEC_TRY(hec_json_want_int(r->json, r->root, "v_head_dim", 1, WIDTH_MAX, &v));
  double d = moe->d_model, h = moe->n_heads, queries = h * (double)(nope + rope);
  moe->attention_params = (q > 0 ? d * (double)q + (double)q * queries : d * queries) + d * (double)(c + rope) +
                          (double)c * h * (double)(nope + v) + h * (double)v * d;
  moe->d_head = (int32_t)((nope + rope + v) / 2);
  if (r->said)
    hec_text_printf(r->said, ", multi-head latent attention from kv_lora_rank, q_lora_rank and the head dims");
  return HEC_OK;
}

/* Layers of multi-token prediction, by any of their names. */
static hec_status count_predicted(const reader *r, int64_t *n) {
  static const char *const keys[] = {"num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers"};
  *n = 0;
  for (size_t k = 0; k < sizeof keys / sizeof *keys && *n == 0; k++)
    HEC_TRY(whole(r, keys[k], 0, COUNT_MAX, 0, n));
  return HEC_OK;
}

/* Blocks whose attention is linear: qwen3_next names each in layer_types or says which is not; minimax writes 0 for them. */
static hec_status count_linear(const reader *r, int32_t *n) {
  int64_t every;
  HEC_TRY(whole(r, "full_attention_interval", 1, COUNT_MAX, 1, &every));
  const hec_json_value *types = member(r->root, "layer_types"), *zeros = member(r->root, "attn_type_list"),
                       *list = types ? types : zeros;
  *n = list ? 0 : r->moe->n_layers - r->moe->n_layers / (int32_t)every;
  for (const hec_json_value *v = list && hec_json_is_array(list) ? hec_json_first(list) : NULL; v; v = hec_json_next(v))
    *n += types ? hec_json_is_string(v) && strcmp(hec_json_text(v), "linear_attention") == 0
                : hec_json_is_number(v) && hec_json_number(v) == 0;
  return HEC_OK;
}

static bool sees_all(const hec_json_value *type) {
  return !hec_json_is_string(type) || strcmp(hec_json_text(type), "sliding_attention") != 0;
}

/* Blocks whose attention sees a sliding window: those that layer_types names; without it every second of gpt_oss, the last not,
 * and all of other models. Our model counts full ones from the last: every dense-th. */
static hec_status read_window(const reader *r, int64_t longest) {
  hec_moe *moe = r->moe;
  const hec_json_value *types = member(r->root, "layer_types");
  int64_t window;
  bool windowed, kept = true;
  int32_t every = strcmp(type_of(r), "gpt_oss") == 0 ? 2 : 0, n_full = 0, i = 0;
  HEC_TRY(whole(r, "sliding_window", 1, HEC_S2_TOKENS_MAX, 0, &window));
  HEC_TRY(hec_json_bool_or(r->json, r->root, "use_sliding_window", true, &windowed));
  types = types && hec_json_is_array(types) ? types : NULL;
  for (const hec_json_value *v = types ? hec_json_first(types) : NULL; v; v = hec_json_next(v))
    n_full += sees_all(v);
  if (types)
    every = n_full > 0 ? (moe->n_layers + n_full - 1) / n_full : 0;
  for (const hec_json_value *v = types ? hec_json_first(types) : NULL; v; v = hec_json_next(v), i++)
    kept = kept && sees_all(v) == (every > 0 && (moe->n_layers - 1 - i) % every == 0);
  if (!windowed || window == 0 || window >= longest || (types && n_full == i))
    return HEC_OK;
  moe->attention = HEC_ATTENTION_S2;
  moe->s2 = (hec_s2){.shards = HEC_S2_NO_SHARDS, .local = (int32_t)window, .block = 1, .dense = every};
  if (!r->said)
    return HEC_OK;
  hec_text_printf(r->said, "; attention of a window of %lld tokens", (long long)window);
  if (every > 0)
    hec_text_printf(r->said, " but in every %d%s block%s", (int)every,
                    every == 2   ? "nd"
                    : every == 3 ? "rd"
                                 : "th",
                    kept ? "" : " (the file's pattern is another)");
  return HEC_OK;
}

/* What training adds, and what is in the file but not in our model. */
static hec_status assume(const reader *r) {
  hec_moe *moe = r->moe;
  int64_t longest, predicted;
  int32_t linear;
  HEC_TRY(whole(r, "max_position_embeddings", 1, 1 << 28, ASSUMED_SEQUENCE, &longest));
  HEC_TRY(count_predicted(r, &predicted));
  HEC_TRY(count_linear(r, &linear));
  HEC_TRY(read_window(r, longest));
  moe->seq_len = moe->tokens_per_rank = (int32_t)(longest < ASSUMED_SEQUENCE ? longest : ASSUMED_SEQUENCE);
  if (!r->said)
    return HEC_OK;
  if (linear > 0)
    hec_text_printf(r->said, "; not modelled: linear attention, in %d of %d blocks (counted as the others')",
                    (int)linear, (int)moe->n_layers);
  if (predicted > 0)
    hec_text_printf(r->said, "; not counted: %lld layer%s of multi-token prediction", (long long)predicted,
                    predicted == 1 ? "" : "s");
  hec_text_printf(r->said,
                  HEC_HF_ASSUMED
                  " gated FFN (3 matrices), causal attention, sequences of %d tokens, bf16 parameters and gradients, "
                  "12 bytes of optimizer state per parameter",
                  (int)moe->seq_len);
  return HEC_OK;
}

static hec_status read_name(const reader *r) {
  static const char *const keys[] = {"_name_or_path", "model_type"};
  const char *name = "";
  for (size_t k = 0; k < 2 && name[0] == 0; k++) {
    const hec_json_value *value = member(r->root, keys[k]);
    if (value && !hec_json_is_string(value))
      return hec_json_error(r->json, value, "a text");
    name = value ? hec_json_text(value) : "";
  }
  hec_name_copy(r->moe->name, sizeof r->moe->name, name[0] ? name : "config.json");
  hec_make_plain(r->moe->name);
  return HEC_OK;
}

static hec_status want_experts(const reader *r) {
  if (key_of(r, &wanted[2]))
    return HEC_OK;
  return hec_json_error(
      r->json, r->root,
      "the config.json of a Mixture-of-Experts model (n_routed_experts, num_local_experts or num_experts)");
}

hec_status hec_hf_config_read(const hec_json *json, const char *origin, hec_moe *moe, hec_text *said) {
  const hec_json_value *root = hec_json_root(json), *text = hec_json_get(root, "text_config");
  reader r = {json, text && hec_json_is_object(text) ? text : root, moe, said};
  *moe = (hec_moe){.n_ffn_matrices = 3,
                   .micro_batches = 1,
                   .dtype_bytes = 2,
                   .grad_bytes = 2,
                   .optimizer_bytes = 12,
                   .attention = HEC_ATTENTION_CAUSAL,
                   .fused_attention = true,
                   .nonmoe_scale = 1};
  HEC_TRY(read_name(&r));
  if (said)
    hec_text_printf(said, "from %s of Hugging Face (%s)", origin, moe->name);
  HEC_TRY(want_experts(&r));
  for (int i = 0; i < N_WANTED; i++)
    HEC_TRY(read_field(&r, &wanted[i], true));
  moe->n_kv_heads = moe->n_heads;
  moe->d_head = moe->d_model / moe->n_heads;
  moe->d_ffn_dense = moe->d_ffn;
  for (int i = 0; i < N_OPTIONAL; i++)
    HEC_TRY(read_field(&r, &optional[i], false));
  HEC_TRY(count_moe_layers(&r));
  HEC_TRY(read_shared(&r));
  HEC_TRY(read_latent_attention(&r));
  return assume(&r);
}
