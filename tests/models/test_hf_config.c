/* Shapes from config.json of Hugging Face: families by their own keys, against the presets where there is one. What is not a
 * Mixture-of-Experts model, wrong values; what is said. */
#include "models/hf_config.h"
#include "tests/support/test.h"

#include <string.h>

typedef struct {
  const char *preset; /* the same model; NULL: none */
  int32_t layers, moe_layers, experts, top_k, d_ffn, d_ffn_dense, shared, d_ffn_shared, heads, kv_heads, d_head;
  const char *text;
} family;

static const family families[] = {
    {"mixtral-8x7b", 32, 32, 8, 2, 14336, 14336, 0, 14336, 32, 8, 128,
     "{`architectures`: [`MixtralForCausalLM`], `model_type`: `mixtral`, `hidden_size`: 4096, `sliding_window`: "
     "null,`intermediate_size`: 14336, `num_attention_heads`: 32, `num_hidden_layers`: 32, `num_key_value_heads`: "
     "8,`num_local_experts`: 8, `num_experts_per_tok`: 2, `vocab_size`: 32000, `max_position_embeddings`: 32768}"},
    {"deepseek-v3", 61, 58, 256, 8, 2048, 18432, 1, 2048, 128, 128, 160,
     "{`model_type`: `deepseek_v3`, `hidden_size`: 7168, `intermediate_size`: 18432, `moe_intermediate_size`: "
     "2048,`num_attention_heads`: 128, `num_key_value_heads`: 128, `num_hidden_layers`: 61, `n_routed_experts`: "
     "256,`n_shared_experts`: 1, `num_experts_per_tok`: 8, `first_k_dense_replace`: 3, `moe_layer_freq`: "
     "1,`q_lora_rank`: 1536, `kv_lora_rank`: 512, `qk_nope_head_dim`: 128, `qk_rope_head_dim`: 64, `v_head_dim`: "
     "128,`num_nextn_predict_layers`: 1, `vocab_size`: 129280, `max_position_embeddings`: 163840}"},
    {"qwen3-30b-a3b", 48, 48, 128, 8, 768, 6144, 0, 768, 32, 4, 128,
     "{`model_type`: `qwen3_moe`, `hidden_size`: 2048, `intermediate_size`: 6144, `moe_intermediate_size`: "
     "768,`num_attention_heads`: 32, `num_key_value_heads`: 4, `head_dim`: 128, `num_hidden_layers`: 48,`num_experts`: "
     "128, `num_experts_per_tok`: 8, `decoder_sparse_step`: 1, `mlp_only_layers`: [],`vocab_size`: 151936, "
     "`max_position_embeddings`: 40960}"},
    {"olmoe", 16, 16, 64, 8, 1024, 1024, 0, 1024, 16, 16, 128,
     "{`model_type`: `olmoe`, `hidden_size`: 2048, `intermediate_size`: 1024, `num_attention_heads`: "
     "16,`num_key_value_heads`: 16, `num_hidden_layers`: 16, `num_experts`: 64, `num_experts_per_tok`: 8,`vocab_size`: "
     "50304, `max_position_embeddings`: 4096}"},
    {"gpt-oss-20b", 24, 24, 32, 4, 2880, 2880, 0, 2880, 64, 8, 64,
     "{`model_type`: `gpt_oss`, `hidden_size`: 2880, `intermediate_size`: 2880, `num_attention_heads`: "
     "64,`num_key_value_heads`: 8, `head_dim`: 64, `num_hidden_layers`: 24, `num_local_experts`: "
     "32,`num_experts_per_tok`: 4, `sliding_window`: 128, `vocab_size`: 201088, `max_position_embeddings`: 131072}"},
    {NULL, 61, 60, 384, 8, 2048, 18432, 1, 2048, 64, 64, 160,
     "{`model_type`: `kimi_k2`, `hidden_size`: 7168, `intermediate_size`: 18432, `moe_intermediate_size`: "
     "2048,`num_attention_heads`: 64, `num_key_value_heads`: 64, `num_hidden_layers`: 61, `n_routed_experts`: "
     "384,`n_shared_experts`: 1, `num_experts_per_tok`: 8, `first_k_dense_replace`: 1, `moe_layer_freq`: "
     "1,`q_lora_rank`: 1536, `kv_lora_rank`: 512, `qk_nope_head_dim`: 128, `qk_rope_head_dim`: 64, `v_head_dim`: "
     "128,`vocab_size`: 163840, `max_position_embeddings`: 131072}"},
    {NULL, 28, 27, 64, 6, 1408, 10944, 2, 1408, 16, 16, 160, /* deepseek v2 lite: queries without a low rank */
     "{`model_type`: `deepseek_v2`, `hidden_size`: 2048, `intermediate_size`: 10944, `moe_intermediate_size`: "
     "1408,`num_attention_heads`: 16, `num_key_value_heads`: 16, `num_hidden_layers`: 28, `n_routed_experts`: "
     "64,`n_shared_experts`: 2, `num_experts_per_tok`: 6, `first_k_dense_replace`: 1, `q_lora_rank`: "
     "null,`kv_lora_rank`: 512, `qk_nope_head_dim`: 128, `qk_rope_head_dim`: 64, `v_head_dim`: 128, `vocab_size`: "
     "102400}"},
    {NULL, 24, 24, 60, 4, 1408, 5632, 1, 5632, 16, 16, 128, /* one shared expert with a width of its own */
     "{`model_type`: `qwen2_moe`, `hidden_size`: 2048, `intermediate_size`: 5632, `moe_intermediate_size`: "
     "1408,`shared_expert_intermediate_size`: 5632, `num_attention_heads`: 16, `num_key_value_heads`: "
     "16,`num_hidden_layers`: 24, `num_experts`: 60, `num_experts_per_tok`: 4, `decoder_sparse_step`: "
     "1,`sliding_window`: 1024, `use_sliding_window`: false, `vocab_size`: 151936}"},
    {NULL, 92, 89, 160, 8, 1536, 12288, 1, 1536, 96, 8, 128,
     "{`model_type`: `glm4_moe`, `hidden_size`: 5120, `intermediate_size`: 12288, `moe_intermediate_size`: "
     "1536,`num_attention_heads`: 96, `num_key_value_heads`: 8, `head_dim`: 128, `num_hidden_layers`: "
     "92,`n_routed_experts`: 160, `n_shared_experts`: 1, `num_experts_per_tok`: 8, `first_k_dense_replace`: "
     "3,`vocab_size`: 151552}"},
    {NULL, 48, 24, 128, 1, 8192, 16384, 1, 8192, 40, 8, 128, /* the text model inside; every second block has experts */
     "{`model_type`: `llama4`, `text_config`: {`model_type`: `llama4_text`, `hidden_size`: 5120,`intermediate_size`: "
     "8192, `intermediate_size_mlp`: 16384, `interleave_moe_layer_step`: 2, `moe_layers`: null,`num_attention_heads`: "
     "40, `num_key_value_heads`: 8, `head_dim`: 128, `num_hidden_layers`: 48,`num_local_experts`: 128, "
     "`num_experts_per_tok`: 1, `vocab_size`: 202048}}"},
    {"minimax-m2", 62, 62, 256, 8, 1536, 1536, 0, 1536, 48, 8, 128,
     "{`model_type`: `minimax_m2`, `hidden_size`: 3072, `intermediate_size`: 1536, `num_attention_heads`: 48,"
     "`num_key_value_heads`: 8, `head_dim`: 128, `num_hidden_layers`: 62, `num_local_experts`: 256,"
     "`num_experts_per_tok`: 8, `attn_type_list`: [1, 1], `num_mtp_modules`: 3, `vocab_size`: 200064,"
     "`max_position_embeddings`: 196608}"},
    {"moonlight-16b-a3b", 27, 26, 64, 6, 1408, 11264, 2, 1408, 16, 16, 160,
     "{`model_type`: `deepseek_v3`, `hidden_size`: 2048, `intermediate_size`: 11264, `moe_intermediate_size`: 1408,"
     "`num_attention_heads`: 16, `num_key_value_heads`: 16, `num_hidden_layers`: 27, `n_routed_experts`: 64,"
     "`n_shared_experts`: 2, `num_experts_per_tok`: 6, `first_k_dense_replace`: 1, `moe_layer_freq`: 1,"
     "`q_lora_rank`: null, `kv_lora_rank`: 512, `qk_nope_head_dim`: 128, `qk_rope_head_dim`: 64, `v_head_dim`: 128,"
     "`num_nextn_predict_layers`: 0, `vocab_size`: 163840, `max_position_embeddings`: 8192}"},
    {NULL, 48, 48, 512, 10, 512, 5120, 1, 512, 16, 2, 256, /* its linear attention is not read */
     "{`model_type`: `qwen3_next`, `hidden_size`: 2048, `intermediate_size`: 5120, `moe_intermediate_size`: 512,"
     "`shared_expert_intermediate_size`: 512, `num_attention_heads`: 16, `num_key_value_heads`: 2, `head_dim`: 256,"
     "`num_hidden_layers`: 48, `num_experts`: 512, `num_experts_per_tok`: 10, `decoder_sparse_step`: 1,"
     "`mlp_only_layers`: [], `full_attention_interval`: 4, `vocab_size`: 151936, `max_position_embeddings`: 262144}"},
    {NULL, 4, 1, 8, 2, 16, 64, 0, 16, 4, 4, 8, /* steps, exceptions */
     "{`model_type`: `qwen3_moe`, `hidden_size`: 32, `intermediate_size`: 64, `moe_intermediate_size`: "
     "16,`num_attention_heads`: 4, `num_hidden_layers`: 4, `num_experts`: 8, `num_experts_per_tok`: "
     "2,`decoder_sparse_step`: 2, `mlp_only_layers`: [1]}"},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

HEC_TEST_LOOP(family_is_read, N_FAMILIES) {
  const family *f = &families[_i];
  hec_moe moe, preset;
  ck_ok(hec_moe_parse(hec_test_quoted(f->text), "config.json", &moe));
  const int32_t got[] = {moe.n_layers,    moe.n_moe_layers,     moe.n_experts,    moe.top_k,   moe.d_ffn,
                         moe.d_ffn_dense, moe.n_shared_experts, moe.d_ffn_shared, moe.n_heads, moe.n_kv_heads,
                         moe.d_head},
                want[] = {f->layers, f->moe_layers,   f->experts, f->top_k,    f->d_ffn, f->d_ffn_dense,
                          f->shared, f->d_ffn_shared, f->heads,   f->kv_heads, f->d_head};
  for (size_t i = 0; i < sizeof got / sizeof *got; i++)
    ck_assert_msg(got[i] == want[i], "number %zu: %d, expected %d", i, (int)got[i], (int)want[i]);
  if (!f->preset)
    return;
  ck_ok(hec_moe_load(f->preset, &preset));
  ck_assert(hec_moe_expert_params(&moe) == hec_moe_expert_params(&preset));
  ck_assert(hec_moe_block_params(&moe) == hec_moe_block_params(&preset));
  ck_assert(hec_moe_embedding_params(&moe) == hec_moe_embedding_params(&preset));
  ck_assert(moe.attention == preset.attention && memcmp(&moe.s2, &preset.s2, sizeof moe.s2) == 0);
  if (f->moe_layers < f->layers)
    ck_assert(hec_moe_dense_block_params(&moe) == hec_moe_dense_block_params(&preset));
}

/* 2048 x 16 x 192 queries; 2048 x 576 down; 512 x 16 x 256 up; 16 x 128 x 2048 out */
HEC_TEST(latent_attention_without_a_rank_of_queries) {
  hec_moe moe;
  ck_ok(hec_moe_parse(hec_test_quoted(families[6].text), "config.json", &moe));
  ck_assert(hec_moe_attention_params(&moe) == 6291456. + 1179648 + 2097152 + 4194304);
}

#define SMALL                                                                                                          \
  "\"model_type\": \"mixtral\", \"hidden_size\": 32, \"intermediate_size\": 64, \"num_attention_heads\": 4, "          \
  "\"num_hidden_layers\": 2, \"num_experts_per_tok\": 2"
/* Its intermediate_size is that of dense blocks. */
#define QWEN                                                                                                           \
  "{`model_type`: `qwen3_moe`, `hidden_size`: 32, `intermediate_size`: 64, `num_attention_heads`: 4, "                 \
  "`num_hidden_layers`: 2, `num_experts_per_tok`: 2, `num_experts`: 8, "
static const char *const wrong[][2] = {
    {"{" SMALL "}", "expected the config.json of a Mixture-of-Experts model"},
    {"{" SMALL ", `num_local_experts`: null}", "expected the config.json of a Mixture-of-Experts model"},
    {"{" SMALL ", `num_local_experts`: 0}", "num_local_experts: expected"},
    {"{" SMALL ", `num_local_experts`: `8`}", "num_local_experts: expected"},
    {"{" SMALL ", `num_local_experts`: 1}", "top_k: expected at most the number of experts (1), found 2"},
    {"{" SMALL ", `num_local_experts`: 8, `first_k_dense_replace`: 2}", "expected at least one block with experts"},
    {"{" SMALL ", `num_local_experts`: 8, `kv_lora_rank`: 4}", "qk_nope_head_dim"},
    {"{" SMALL ", `num_local_experts`: 8, `num_key_value_heads`: 8}", "kv_heads: expected at most"},
    {"{`model_type`: `mixtral`, `num_local_experts`: 8}", "num_hidden_layers"},
    {QWEN "`moe_intermdiate_size`: 16}",
     "expected a member \"moe_intermediate_size\", found none; the nearest there is "
     "\"moe_intermdiate_size\""},
    {QWEN "`hidden_act`: `silu`}", "expected a member \"moe_intermediate_size\", found none"},
    {QWEN "`moe_intermediate_size`: null}", "moe_intermediate_size: expected an integer"},
};

HEC_TEST_ROWS(wrong_is_refused, wrong) {
  hec_moe moe;
  ck_refused(hec_moe_parse(hec_test_quoted(wrong[_i][0]), "config.json", &moe), wrong[_i][1]);
  ck_assert_msg(strstr(hec_last_error(), "config.json") == hec_last_error(), "%s", hec_last_error());
}

static void said_of(int i, hec_text *said) {
  HEC_OPENED(hec_json) *json = NULL;
  hec_moe moe;
  ck_ok(hec_json_parse(hec_test_quoted(families[i].text), strlen(families[i].text), "config.json", &json));
  ck_assert(hec_hf_config_is(hec_json_root(json)));
  ck_ok(hec_hf_config_read(json, "config.json", &moe, said));
}

/* Which blocks see a window only: as the model's class has it, as layer_types says, as the preset does. */
static const struct {
  const char *more, *attention, *said;
} windows[] = {
    {"", "causal", "causal"},
    {", `sliding_window`: null", "causal", "causal"},
    {", `sliding_window`: 4096, `max_position_embeddings`: 4096", "causal", "causal"}, /* sees everything */
    {", `sliding_window`: 512", "window:local=512", "of 512 tokens;"},
    {", `sliding_window`: 512, `use_sliding_window`: false", "causal", "causal"},
    {", `sliding_window`: 8, `layer_types`: [`sliding_attention`, `full_attention`]", "window:local=8,dense=2",
     "every 2nd block;"},
    {", `sliding_window`: 8, `layer_types`: [`full_attention`, `sliding_attention`]", "window:local=8,dense=2",
     "(the file's pattern is another)"},
    {", `sliding_window`: 8, `layer_types`: [`full_attention`, `full_attention`]", "causal", "causal"},
    {", `sliding_window`: 8, `layer_types`: [`sliding_attention`, `sliding_attention`]", "window:local=8",
     "of 8 tokens;"},
};

HEC_TEST_ROWS(windows_are_read, windows) {
  HEC_SCOPED(hec_text) text = {0}, said = {0}, kind = {0};
  hec_moe moe;
  hec_text_printf(&text, "{" SMALL ", `num_local_experts`: 8%s}", windows[_i].more);
  ck_ok(hec_moe_parse_said(hec_test_quoted(text.data), "config.json", &moe, &said));
  hec_attention_write(moe.attention, moe.s2, moe.n_heads, &kind);
  ck_assert_str_eq(kind.data, windows[_i].attention);
  ck_assert_msg(strstr(said.data, windows[_i].said) != NULL, "%s", said.data);
}

HEC_TEST(says_what_it_took_and_assumed) {
  static const struct {
    int family;
    const char *there, *not_there;
  } cases[] = {{0, "experts from num_local_experts", "sliding"},
               {0, "assumed: gated FFN (3 matrices), causal attention, sequences of 4096 tokens", "not counted"},
               {0, "d_ffn from intermediate_size", "moe_intermediate_size"},
               {1, "d_ffn from moe_intermediate_size", "d_ffn from intermediate_size"},
               {1, "58 of 61 blocks have experts,", "alternate"},
               {1, "not counted: 1 layer of multi-token prediction", "sliding"},
               {4, "; attention of a window of 128 tokens but in every 2nd block;", "blocks have"},
               {7, "1 shared expert of width 5632", "sliding"},
               {9, "24 of 48 blocks have experts (dense ones alternate", "sliding"},
               {10, "not counted: 3 layers of multi-token prediction", "linear"},
               {11, "26 of 27 blocks have experts", "not counted"},
               {12, "not modelled: linear attention, in 36 of 48 blocks", "not counted"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    HEC_SCOPED(hec_text) said = {0};
    said_of(cases[i].family, &said);
    ck_assert_msg(strstr(said.data, cases[i].there) != NULL, "no \"%s\" in \"%s\"", cases[i].there, said.data);
    ck_assert_msg(!strstr(said.data, cases[i].not_there), "\"%s\" in \"%s\"", cases[i].not_there, said.data);
  }
}
