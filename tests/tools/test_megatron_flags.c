/* Flags of Megatron-LM against its own checks: what is written for random layouts passes or is said to be refused,
 * what is left out is said, and each check can fail. */
#include "tests/support/test.h"
#include "tools/front/training/megatron_flags.h"

#include <stdlib.h>
#include <string.h>

static hec_moe moe;
static hec_text flags, differs;

static hec_training job(const char *model, const char *layout, int32_t gpus, int32_t micro_batches,
                        const char *recipe) {
  hec_training t = {.moe = &moe, .seq = 4096, .micro_batch = 1, .recipe = hec_recipe_default()};
  ck_ok(hec_moe_load(model, &moe));
  ck_ok(hec_layout_read(layout, &t.layout));
  ck_ok(hec_layout_fit(&t.layout, gpus, &moe));
  ck_ok(hec_recipe_read(recipe, &t.recipe));
  t.global_batch = micro_batches * t.layout.dp;
  return t;
}

static void write(const hec_training *t, bool quoted) {
  hec_text_free(&flags);
  hec_text_free(&differs);
  hec_megatron_flags(t, NULL, quoted, &flags, &differs);
  hec_text_add(&differs, "");
}

static bool there(const char *flag) {
  const char *at = strstr(flags.data, flag);
  return at && strchr(" ", at[strlen(flag)]);
}

/* ---- What is written ---- */

static const struct {
  const char *model, *layout, *recipe, *there, *absent, *differs;
  int32_t gpus, mtp;
} written[] = {
    {"qwen3-235b-a22b", "ep=8 pp=2", "grads=fp32", "--overlap-grad-reduce --overlap-param-gather",
     "--grad-reduce-in-bf16", "", 64, 0},
    {"qwen3-235b-a22b", "ep=8 pp=2", "grads=bf16", "--grad-reduce-in-bf16", "--pipeline-model-parallel-layout", "", 64,
     0},
    {"qwen3-235b-a22b", "ep=8 pp=2", "dp-overlap=off", "--use-distributed-optimizer", "--overlap-grad-reduce", "", 64,
     0},
    {"qwen3-235b-a22b", "ep=8 pp=2", "zero=0", "--overlap-grad-reduce", "--overlap-param-gather", "", 64, 0},
    {"qwen3-235b-a22b", "ep=8", "zero=2",
     "--data-parallel-sharding-strategy optim_grads --no-gradient-accumulation-fusion",
     "--decoder-first-pipeline-num-layers", "", 64, 0},
    /* 94 layers in 48 stages: one less at both ends. In 8: the first stages have one more, so stages are listed. */
    {"qwen3-235b-a22b", "ep=4 pp=48", "", "--decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 1",
     "--pipeline-model-parallel-layout", "", 192, 0},
    {"qwen3-235b-a22b", "ep=4 pp=10", "",
     "--pipeline-model-parallel-layout "
     "Etttttttttt|tttttttttt|tttttttttt|tttttttttt|ttttttttt|ttttttttt|ttttttttt|ttttttttt|ttttttttt|tttttttttL",
     "--decoder-first-pipeline-num-layers", "", 40, 0},
    {"qwen3-235b-a22b", "ep=4 pp=4:24x3,22", "", "--decoder-last-pipeline-num-layers 22",
     "--decoder-first-pipeline-num-layers", "", 16, 0},
    {"deepseek-v3", "ep=8 pp=2", "", "--decoder-first-pipeline-num-layers 31 --mtp-num-layers 1",
     "--decoder-last-pipeline-num-layers", "", 64, 1},
    {"mixtral-8x7b", "ep=8 pp=4 vpp=2", "", "--num-virtual-stages-per-pipeline-rank 2",
     "--decoder-last-pipeline-num-layers", "", 32, 0},
    {"mixtral-8x7b", "ep=8 pp=3 vpp=2", "",
     "--pipeline-model-parallel-layout Etttttt|tttttt|ttttt|ttttt|ttttt|tttttmL --mtp-num-layers 1",
     "--num-virtual-stages-per-pipeline-rank", "", 24, 1},
    {"mixtral-8x7b", "ep=8 pp=2", "overlap=on", "--moe-grouped-gemm", "--overlap-moe-expert-parallel-comm",
     "virtual stages", 32, 0},
    {"mixtral-8x7b", "ep=8 pp=2 vpp=2", "overlap=on", "--overlap-moe-expert-parallel-comm", "--moe-router-dtype", "",
     32, 0},
    {"mixtral-8x7b", "ep=8", "overlap=on recompute=full", "--recompute-num-layers 1",
     "--overlap-moe-expert-parallel-comm", "full recomputation", 32, 0},
    {"mixtral-8x7b", "ep=8", "overlap=on dispatcher=allgather", "--moe-token-dispatcher-type allgather",
     "--overlap-moe-expert-parallel-comm", "all-to-all", 32, 0},
    {"mixtral-8x7b", "ep=1 tp=2", "dispatcher=deepep", "--moe-token-dispatcher-type alltoall",
     "--moe-flex-dispatcher-backend", "", 32, 0},
    {"mixtral-8x7b", "ep=1 tp=2 etp=2", "dispatcher=alltoall", "--moe-token-dispatcher-type allgather",
     "--moe-flex-dispatcher-backend", "", 32, 0},
    {"mixtral-8x7b", "ep=1 tp=2", "overlap=on dispatch=fp8 zero=1", "--moe-token-dispatcher-type alltoall",
     "--overlap-moe-expert-parallel-comm", "", 32, 0},
    {"mixtral-8x7b", "ep=8", "dispatcher=deepep", "--moe-flex-dispatcher-backend deepep --moe-router-dtype fp32",
     "--sequence-parallel", "", 32, 0},
    {"deepseek-v3", "ep=8", "recompute=norm+act+attention", "--recompute-modules layernorm moe_act mla_up_proj",
     "--bf16x", "up-projections", 64, 0},
    {"mixtral-8x7b", "ep=8", "recompute=attention+mlp", "--recompute-modules mlp core_attn", "--recompute-method",
     "its core", 32, 0},
    {"mixtral-8x7b", "ep=8", "graph=partial", "--cuda-graph-scope attn moe_router moe_preprocess",
     "--recompute-modules", "", 32, 0},
    {"mixtral-8x7b", "ep=8", "graph=full dispatch=fp8", "--bf16", "--cuda-graph-impl", "tokens in fp8", 32, 0},
    {"mixtral-8x7b", "tp=8 ep=8", "precision=mxfp8",
     "--fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather --reuse-grad-buf-for-mxfp8-param-ag", "--cuda-graph-impl",
     "", 32, 0},
};

HEC_TEST_ROWS(flags_say_what_was_predicted, written) {
  hec_training t = job(written[_i].model, written[_i].layout, written[_i].gpus, 24, written[_i].recipe);
  t.mtp = written[_i].mtp;
  write(&t, false);
  ck_assert_msg(there(written[_i].there), "expected %s in %s", written[_i].there, flags.data);
  ck_assert_msg(!there(written[_i].absent), "unexpected %s in %s", written[_i].absent, flags.data);
  if (*written[_i].differs)
    ck_assert_msg(strstr(differs.data, written[_i].differs), "expected %s in %s", written[_i].differs, differs.data);
  else
    ck_assert_str_eq(differs.data, "");
}

HEC_TEST(environment) {
  static const struct {
    const char *layout, *recipe, *environment;
  } cases[] = {{"ep=8 pp=2", "", ""},
               {"ep=8 tp=2", "", "CUDA_DEVICE_MAX_CONNECTIONS=1"},
               {"ep=8 cp=2", "", "CUDA_DEVICE_MAX_CONNECTIONS=1"},
               {"ep=8 tp=2", "overlap=on", ""},
               {"ep=8 tp=2", "zero=3", "not 1"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    hec_training t = job("mixtral-8x7b", cases[i].layout, 32, 8, cases[i].recipe);
    write(&t, false);
    const char *said = hec_megatron_environment(flags.data);
    ck_assert_msg(said ? *cases[i].environment && strstr(said, cases[i].environment) : !*cases[i].environment, "%s: %s",
                  flags.data, said ? said : "");
  }
}

/* ---- Rules ---- */

static int32_t any(uint64_t *seed, int32_t n) {
  return (int32_t)hec_test_below(seed, (uint64_t)n);
}

static const char *const models[] = {"mixtral-8x7b", "deepseek-v3", "qwen3-235b-a22b", "gpt-oss-120b", "qwen3-30b-a3b"};

/* Layouts as a search has them, with recipes of all kinds. Megatron-LM takes what is written, or the text says
 * that it does not. */
HEC_TEST_LOOP(random_layouts, 40) {
  static const char *const recipes[] = {"overlap=on",
                                        "recompute=full",
                                        "recompute=norm+act",
                                        "recompute=norm+moe graph=partial",
                                        "graph=full",
                                        "zero=3 recompute=attention",
                                        "precision=mxfp8 recompute=act",
                                        "dispatcher=deepep overlap=on",
                                        "dispatcher=hybridep",
                                        "dispatcher=allgather",
                                        "grads=fp32 dp-overlap=off",
                                        "graph=partial overlap=on fused=on",
                                        "recompute=norm+act+mlp+moe zero=2"};
  uint64_t seed = (uint64_t)_i + 1;
  int32_t n = 0, n_refused = 0;
  for (int32_t tries = 0; tries < 20000 && n < 200; tries++) {
    hec_training t = {
        .moe = &moe, .seq = 4096 << any(&seed, 3), .micro_batch = 1 << any(&seed, 2), .recipe = hec_recipe_default()};
    ck_ok(hec_moe_load(models[any(&seed, 5)], &moe));
    t.layout = (hec_layout){.tp = 1 << any(&seed, 4),
                            .cp = 1 << any(&seed, 2),
                            .pp = 1 + any(&seed, 16),
                            .vpp = 1 + any(&seed, 3),
                            .ep = 1 << any(&seed, 6),
                            .etp = 1 << any(&seed, 2)};
    t.layout.vpp = t.layout.pp > 1 ? t.layout.vpp : 1;
    if (hec_layout_fit(&t.layout, t.layout.pp * (1 << (3 + any(&seed, 5))), &moe) != HEC_OK)
      continue;
    ck_ok(hec_recipe_read(recipes[any(&seed, 13)], &t.recipe));
    t.mtp = any(&seed, 3) == 0;
    int32_t micro = t.layout.pp * (1 + any(&seed, 3)) + (any(&seed, 8) == 0 && t.layout.vpp > 1);
    t.global_batch = micro * t.layout.dp * t.micro_batch;
    write(&t, any(&seed, 2));
    n++;
    bool refused = hec_megatron_broken(flags.data, &t) != NULL;
    ck_assert_msg(refused == (strstr(differs.data, "refuses these flags") != NULL), "%s: %s", flags.data, differs.data);
    n_refused += refused;
    if (refused) /* nothing that the layout itself does not bring: micro-batches of virtual stages, key heads */
      ck_assert_msg((t.layout.vpp > 1 && micro % t.layout.pp != 0) ||
                        (moe.n_kv_heads % t.layout.tp != 0 && t.layout.tp % moe.n_kv_heads != 0),
                    "%s: %s", flags.data, differs.data);
  }
  ck_assert_int_ge(n, 100);
  ck_assert_int_lt(n_refused, n / 4);
}

/* A flag exchanged or left out, and the rule that then fails (none: 32 layers divide by 4). */
static const struct {
  const char *layout, *recipe, *from, *to, *what;
} broken[] = {
    {"ep=8 pp=2", "", "--pipeline-model-parallel-size 2", "--pipeline-model-parallel-size 5", "GPUs that divide"},
    {"ep=8 pp=2", "", "--expert-tensor-parallel-size 1", "--expert-tensor-parallel-size 32", "GPUs that divide"},
    {"ep=8 pp=2", "", "--micro-batch-size 1", "--micro-batch-size 7", "global batch"},
    {"ep=8 tp=4", "", "--tensor-model-parallel-size 4", "--tensor-model-parallel-size 64", "heads that divide"},
    {"ep=8 pp=2", "", "--expert-model-parallel-size 8", "--expert-model-parallel-size 16", "experts that divide"},
    {"ep=8 cp=2", "", "--seq-length 4096", "--seq-length 4094", "a sequence"},
    {"ep=8 tp=2", "", " --sequence-parallel", "", "sequence parallelism"},
    {"ep=8 pp=2 vpp=2", "", "--bf16", "--pipeline-model-parallel-layout Et|t|t|tL", "one way"},
    {"ep=8 pp=4:9,9,9,5", "", "--decoder-last-pipeline-num-layers 5", "--decoder-last-pipeline-num-layers 6",
     "layers that divide"},
    {"ep=8 pp=4:9,9,9,5", "", "--decoder-last-pipeline-num-layers 5", "--decoder-last-pipeline-num-layers 0",
     "layers that divide"},
    {"ep=8 pp=4:9,9,9,5", "", " --decoder-last-pipeline-num-layers 5", "", ""},
    {"ep=8 pp=2 vpp=2", "", "-rank 2", "-rank 3", "layers that divide"},
    {"ep=8 pp=4:9,8,9,6", "", "|", "|t", "E, all layers"},
    {"ep=8 pp=4:9,8,9,6", "", " Et", " tE", "E, all layers"},
    {"ep=8 pp=4:9,8,9,6", "", "tL", "tmL", "E, all layers"},
    {"ep=8 pp=4:9,8,9,6", "", "tL", "t|L", "E, all layers"},
    {"ep=8 pp=2 vpp=2", "", "--global-batch-size", "--global-batch-size 144 --x", "micro-batches for virtual stages"},
    {"ep=8", "", " --overlap-grad-reduce", "", "--overlap-param-gather"},
    {"ep=8", "", " --use-distributed-optimizer", "", "--overlap-param-gather"},
    {"ep=8", "zero=3", " --ckpt-format fsdp_dtensor", "", "--ckpt-format"},
    {"ep=8", "overlap=on", "--moe-token-dispatcher-type alltoall", "--moe-token-dispatcher-type allgather",
     "what --overlap"},
    {"ep=8", "overlap=on", "--bf16", "--bf16 --mtp-num-layers 1", "what --overlap"},
    {"ep=8 pp=2 vpp=2", "overlap=on", " --num-virtual-stages-per-pipeline-rank 2", "", "what --overlap"},
    {"ep=8", "recompute=full", " --recompute-num-layers 1", "", "a method"},
    {"ep=8", "recompute=act", " --moe-grouped-gemm", "", "a method"},
    {"ep=8", "recompute=act", "moe_act", "mla_up_proj", "a method"},
    {"ep=8", "recompute=act", "moe_act", "moe_activation", "modules of"},
    {"ep=8", "recompute=act precision=fp8", " --fp8-recipe tensorwise", "", "delayed"},
    {"ep=8", "precision=fp8", " --fp8-format hybrid", "", "parameters in fp8"},
    {"ep=8", "precision=fp8 dp-overlap=off", " --use-distributed-optimizer", "", "parameters in fp8"},
    {"ep=8", "precision=mxfp8", " --fp8-param-gather", "", "parameters in fp8"},
    {"ep=8", "dispatcher=deepep", " --moe-flex-dispatcher-backend deepep", "", "flex"},
    {"ep=8", "graph=partial", " moe_router", "", "CUDA graphs"},
};

HEC_TEST_ROWS(each_rule_can_fail, broken) {
  hec_training t = job("mixtral-8x7b", broken[_i].layout, 32, 8, broken[_i].recipe);
  write(&t, false);
  ck_assert_ptr_null(hec_megatron_broken(flags.data, &t));
  char *at = strstr(flags.data, broken[_i].from);
  ck_assert_msg(at, "%s is not in %s", broken[_i].from, flags.data);
  HEC_SCOPED(hec_text) changed = {0};
  hec_text_add_bytes(&changed, flags.data, (size_t)(at - flags.data));
  hec_text_printf(&changed, "%s%s", broken[_i].to, at + strlen(broken[_i].from));
  ck_assert((hec_megatron_broken(changed.data, &t) != NULL) == (*broken[_i].what != 0));
  for (int32_t r = 0; r < hec_n_megatron_rules; r++)
    if (*broken[_i].what && strstr(hec_megatron_rules[r].what, broken[_i].what))
      ck_assert_msg(!hec_megatron_rules[r].holds(changed.data, &t), "%s holds of %s", hec_megatron_rules[r].what,
                    changed.data);
}

/* All of them are tried above. */
HEC_TEST(no_rule_is_left_out) {
  for (int32_t r = 0; r < hec_n_megatron_rules; r++) {
    bool tried = false;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
      tried = tried || (*broken[i].what && strstr(hec_megatron_rules[r].what, broken[i].what));
    ck_assert_msg(tried, "nothing breaks: %s", hec_megatron_rules[r].what);
  }
}
