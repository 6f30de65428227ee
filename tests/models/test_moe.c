/* MoE shapes: defaults, limits, messages, and look-up by preset or path. */
#include "models/moe.h"
#include "tests/support/test.h"

#include <string.h>
#include <unistd.h>

#define BASE                                                                                                           \
  "\"name\": \"x\", \"layers\": 4, \"d_model\": 32, \"d_ffn\": 48, \"ffn_matrices\": 3, \"experts\": 8,\n"             \
  "\"top_k\": 2, \"heads\": 4, \"seq_len\": 10"

HEC_TEST(defaults) {
  hec_moe moe;
  ck_ok(hec_moe_parse("{" BASE "}", "x.json", &moe));
  ck_assert_int_eq(moe.n_moe_layers, 4);
  ck_assert_int_eq(moe.d_ffn_dense, 48);
  ck_assert_int_eq(moe.d_ffn_shared, 48);
  ck_assert_int_eq(moe.n_kv_heads, 4);
  ck_assert_int_eq(moe.d_head, 8);
  ck_assert_int_eq(moe.tokens_per_rank, 10);
  ck_assert_int_eq(moe.micro_batches, 1);
  ck_assert_int_eq(moe.dtype_bytes, 2);
  ck_assert(moe.grad_bytes == 2 && moe.optimizer_bytes == 12 && moe.nonmoe_scale == 1 && moe.capacity_factor == 0);
  ck_assert(moe.attention == HEC_ATTENTION_CAUSAL && moe.fused_attention && !moe.recompute);
  ck_assert(hec_moe_context(&moe, false) == 5);
  moe.attention = HEC_ATTENTION_FULL;
  ck_assert(hec_moe_context(&moe, false) == 10);
  moe.attention = HEC_ATTENTION_S2;
  moe.s2 = (hec_s2){.shards = 2, .local = 1, .block = 1};
  /* keys before the query's own, 45 pairs in all: half of them, 25 or 20 by the head's parity */
  ck_assert(hec_moe_context(&moe, false) == (22.5 + 10) / 10 - 0.5);
  ck_assert(hec_moe_context(&moe, true) == 5);
}

HEC_TEST(parameters) {
  hec_moe moe;
  ck_ok(hec_moe_parse("{" BASE
                      ", \"moe_layers\": 3, \"d_ffn_dense\": 100, \"shared_experts\": 2, \"d_ffn_shared\": 20,\n"
                      "\"kv_heads\": 2, \"d_head\": 16, \"vocabulary\": 1000, \"attention\": \"s2\"}",
                      "x.json", &moe));
  double attention = 2 * 32 * 64 + 2 * 32 * 32;
  ck_assert(hec_moe_expert_params(&moe) == 3 * 32 * 48);
  ck_assert(hec_moe_attention_params(&moe) == attention);
  ck_assert(hec_moe_block_params(&moe) == attention + 64 + 32 * 8 + 2 * 3 * 32 * 20);
  ck_assert(hec_moe_dense_block_params(&moe) == attention + 64 + 3 * 32 * 100);
  ck_assert(hec_moe_embedding_params(&moe) == 64000);
  moe.attention_params = 77;
  ck_assert(hec_moe_block_params(&moe) == 77 + 64 + 32 * 8 + 2 * 3 * 32 * 20);
  ck_ok(hec_moe_parse("{" BASE ", \"gate_params\": 33}", "x.json", &moe));
  ck_assert(hec_moe_gate_params(&moe) == 33);
  moe.attention_params = 77;
  ck_assert(hec_moe_block_params(&moe) == 77 + 64 + 33);
}

static const struct {
  const char *text, *error;
} bad[] = {
    {"[]", "x.json:1: the document: expected an object"},
    {"{`name`: `x`}", "expected a member `layers`"},
    {"{" BASE ", `top_k`: 9}", "every key once"},
    {"{" BASE ",\n`expert`: 9}", "x.json:3: expert: expected a known field"},
    {"{" BASE ",\n`moe_layers`: 5}", "moe_layers: expected at most the number of layers (4), found 5"},
    {"{" BASE ",\n`kv_heads`: 5}", "kv_heads: expected at most the number of heads"},
    {"{" BASE ",\n`d_head`: 0}", "x.json:3: d_head: expected an integer from 1"},
    {"{" BASE ",\n`nonmoe_scale`: -1}", "x.json:3: nonmoe_scale: expected a number from 0"},
    {"{" BASE ",\n`grad_bytes`: 1e308}", "x.json:3: grad_bytes:"},
    {"{" BASE ",\n`tokens_per_rank`: 1e9}", "x.json:3: tokens_per_rank:"},
    {"{" BASE ",\n`attention`: `half`}", "x.json:3: attention: expected `full`, `causal`, `s2` "
                                         "(s2:shards=N,local=N,block=N,dense=N) or `window:local=N,dense=N`, "
                                         "found `half`"},
    {"{" BASE ",\n`attention`: 1}", "x.json:3: attention:"},
    {"{" BASE ",\n`attention`: `s2:shards=0`}", "x.json:3: attention: expected shards= from 1 to 65536"},
    {"{" BASE ",\n`attention`: `s2:shards=5`}", "x.json: attention: shards: expected at most the heads"},
    {"{" BASE ",\n`recompute`: 1}", "x.json:3: recompute: expected true or false"},
    {"{" BASE ",\n`shared_experts`: 1, `d_ffn_shared`: 0}", "d_ffn_shared: expected at least 1"},
    {"{`name`: `x`, `layers`: 4, `d_model`: 2, `d_ffn`: 4, `ffn_matrices`: 4, `experts`: 8, `top_k`: 9, `heads`: 1, "
     "`seq_len`: 1}",
     "ffn_matrices: expected an integer from 2 to 3, found 4"},
    {"{`name`: `x`, `layers`: 4, `d_model`: 2, `d_ffn`: 4, `ffn_matrices`: 2, `experts`: 8, `top_k`: 9, `heads`: 1, "
     "`seq_len`: 1}",
     "top_k: expected at most the number of experts (8), found 9"},
    {"{`name`: `x`, `layers`: 4, `d_model`: 2, `d_ffn`: 4, `ffn_matrices`: 2, `experts`: 8, `top_k`: 1, `heads`: 3, "
     "`seq_len`: 1}",
     "d_head: expected an integer from 1"},
};

/* A name of more than 63 bytes ends with a whole character. */
HEC_TEST(long_name) {
  hec_moe moe;
  char text[1024] = BASE, letters[2 * 40 + 1] = "";
  for (int i = 0; i < 40; i++)
    memcpy(letters + 2 * (size_t)i, "\xc3\xa9", 3);
  char *name = strstr(text, "\"name\""), whole[2048];
  ck_assert_ptr_nonnull(name);
  name += strcspn(name, ":");
  name += strcspn(name, "\"") + 1;
  (void)snprintf(whole, sizeof whole, "{%.*s%s%s}", (int)(name - text), text, letters, name + strcspn(name, "\""));
  ck_ok(hec_moe_parse(whole, "x.json", &moe));
  ck_assert_uint_eq(strlen(moe.name), 62);
  ck_assert(strncmp(moe.name, letters, 62) == 0);
}

HEC_TEST_ROWS(rejects, bad) {
  hec_moe moe = {.n_layers = 123};
  ck_refused(hec_moe_parse(hec_test_quoted(bad[_i].text), "x.json", &moe), hec_test_quoted(bad[_i].error));
  ck_assert_int_eq(moe.n_layers, 123);
}

HEC_TEST(look_up) {
  hec_moe moe;
  char path[] = "/tmp/hecate-moe-XXXXXX";
  ck_refused(hec_moe_load("gpt-5", &moe), "expected a preset of hecate-sim `list` or");
  ck_assert(hec_moe_load("/tmp", &moe) == HEC_BAD_INPUT);
  int file = mkstemp(path);
  ck_assert(write(file, "{" BASE "}", strlen("{" BASE "}")) > 0);
  close(file);
  ck_ok(hec_moe_load(path, &moe));
  ck_assert_int_eq(moe.n_experts, 8);
  unlink(path);
  HEC_SCOPED(hec_text) text = {0};
  hec_moe_describe(&moe, &text);
  ck_assert_str_eq(text.data,
                   "x: 4 layers (4 MoE), 8 experts top-2, d_model 32, d_ffn 48 x 3 matrices, causal attention, "
                   "sequence 10, 0.165 M parameters");
}
