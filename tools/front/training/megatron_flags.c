/* Option names are those of megatron/training/arguments.py. Rules are read from the assertions of Megatron Core
 * 0.16.0 (its package megatron-core) and of arguments.py, which is not in that package. They look at the text of
 * the flags, as Megatron-LM does, and not at what wrote it. */
#include "tools/front/training/megatron_flags.h"

#include "models/training/dispatcher.h"

#include <stdlib.h>
#include <string.h>

/* ---- Writing ---- */

typedef struct {
  const hec_training *t;
  const hec_pipeline_schedule *pipeline;
  bool quoted;
  hec_text *flags, *differs;
} writer;

/* Low-rank attention: its projections are given, and every head has its own keys. */
static bool has_latents(const hec_moe *moe) {
  return moe->attention_params > 0 && moe->n_kv_heads == moe->n_heads;
}

/* Stages beside the first and the last have as many layers each, and none is empty: two numbers say all. */
static bool add_ends(const writer *w) {
  const hec_layout *l = &w->t->layout;
  int32_t first, n[3] = {0}, last = l->pp - 1;
  for (int32_t p = 0; p < l->pp; p++) {
    int32_t layers = hec_layout_layers(l, w->t->moe, p, &first), *of = &n[p == 0 ? 0 : p == last ? 2 : 1];
    if (layers == 0 || (*of > 0 && *of != layers))
      return false;
    *of = layers;
  }
  if (n[0] != n[1])
    hec_text_printf(w->flags, " --decoder-first-pipeline-num-layers %d", (int)n[0]);
  if (n[2] != n[1] && l->pp > 2)
    hec_text_printf(w->flags, " --decoder-last-pipeline-num-layers %d", (int)n[2]);
  return true;
}

/* "Ett|tt|ttmL", with E the embedding, m multi-token prediction, L the head (pipeline_parallel_layer_layout.py,
 * since Megatron Core 0.13). Virtual stages follow from it. */
static void add_stages(const writer *w) {
  const hec_training *t = w->t;
  int32_t parts = t->layout.pp * t->layout.vpp, first;
  hec_text_printf(w->flags, " --pipeline-model-parallel-layout %sE", w->quoted ? "\"" : "");
  for (int32_t p = 0; p < parts; p++) {
    hec_text_add(w->flags, p > 0 ? "|" : "");
    for (int32_t n = hec_layout_layers(&t->layout, t->moe, p, &first); n > 0; n--)
      hec_text_add(w->flags, "t");
  }
  for (int32_t n = t->mtp; n > 0; n--)
    hec_text_add(w->flags, "m");
  hec_text_printf(w->flags, "L%s", w->quoted ? "\"" : "");
}

static bool is_even(const hec_training *t) {
  int32_t parts = t->layout.pp * t->layout.vpp, first;
  for (int32_t p = 0; p < parts; p++)
    if (hec_layout_layers(&t->layout, t->moe, p, &first) * parts != t->moe->n_layers)
      return false;
  return true;
}

static void add_layout(const writer *w) {
  const hec_training *t = w->t;
  const hec_layout *l = &t->layout;
  hec_text_printf(w->flags,
                  "--tensor-model-parallel-size %d --context-parallel-size %d --pipeline-model-parallel-size %d "
                  "--expert-model-parallel-size %d --expert-tensor-parallel-size %d --micro-batch-size %d "
                  "--global-batch-size %d --seq-length %d",
                  (int)l->tp, (int)l->cp, (int)l->pp, (int)l->ep, (int)l->etp, (int)t->micro_batch,
                  (int)t->global_batch, (int)t->seq);
  if (l->tp > 1)
    hec_text_add(w->flags, " --sequence-parallel");
  if (is_even(t)) {
    if (l->vpp > 1)
      hec_text_printf(w->flags, " --num-virtual-stages-per-pipeline-rank %d", (int)l->vpp);
  } else if (l->vpp > 1 || !add_ends(w)) {
    add_stages(w);
  }
  if (t->mtp > 0)
    hec_text_printf(w->flags, " --mtp-num-layers %d", (int)t->mtp);
  if (w->pipeline && w->pipeline != &hec_pipeline_1f1b_overlap && w->pipeline != hec_pipeline_default(l->pp, l->vpp))
    hec_text_printf(w->differs, "Megatron-LM has no schedule %s, it runs %s; ", w->pipeline->name,
                    hec_pipeline_default(l->pp, l->vpp)->name);
}

/* Memory is predicted with parameters in fp8, and no bf16 beside the optimizer's fp32. */
static void add_precision(const writer *w) {
  static const char *const formats[] = {[HEC_PRECISION_BF16] = "",
                                        [HEC_PRECISION_FP8] = " --fp8-format hybrid --fp8-recipe tensorwise",
                                        [HEC_PRECISION_FP8_BLOCK] = " --fp8-format e4m3 --fp8-recipe blockwise",
                                        [HEC_PRECISION_MXFP8] = " --fp8-format e4m3 --fp8-recipe mxfp8"};
  const hec_recipe *r = &w->t->recipe;
  hec_text_printf(w->flags, " --bf16%s", formats[r->precision]);
  if (r->precision == HEC_PRECISION_BF16)
    return;
  if (r->zero > 0)
    hec_text_printf(w->flags, " --fp8-param-gather%s",
                    r->precision == HEC_PRECISION_MXFP8 ? " --reuse-grad-buf-for-mxfp8-param-ag" : "");
  else
    hec_text_add(w->differs, "parameters in fp8 need a distributed optimizer, so bf16 ones stay beside them; ");
}

/* Megatron-LM adds and reduces gradients in fp32 unless it is told otherwise. ZeRO 2 and 3 are Megatron-FSDP,
 * whose guide asks for the flags beside it. */
static void add_data_parallel(const writer *w) {
  const hec_recipe *r = &w->t->recipe;
  if (r->grads == 2)
    hec_text_add(w->flags, " --grad-reduce-in-bf16");
  if (r->zero > 0)
    hec_text_add(w->flags, " --use-distributed-optimizer");
  if (r->zero > 1)
    hec_text_printf(w->flags,
                    " --use-megatron-fsdp --data-parallel-sharding-strategy %s --no-gradient-accumulation-fusion "
                    "--ckpt-format fsdp_dtensor",
                    r->zero > 2 ? "optim_grads_params" : "optim_grads");
  if (r->dp_overlap)
    hec_text_printf(w->flags, " --overlap-grad-reduce%s", r->zero > 0 ? " --overlap-param-gather" : "");
  if (r->dp_overlap > 1)
    hec_text_add(w->differs, "how much data-parallel traffic is hidden (dp-overlap=full) is not a setting; ");
}

/* transformer_config.py: what overlap_moe_expert_parallel_comm asks for. NULL: all of it is there. */
static const char *no_overlap(const hec_training *t) {
  const char *type = hec_dispatchers[t->recipe.dispatcher]->megatron_type;
  return t->layout.ep == 1                                            ? "needs ep=2 or more"
         : strcmp(type, "alltoall") != 0 && strcmp(type, "flex") != 0 ? "needs an all-to-all or flex dispatcher"
         : t->recipe.recompute & HEC_RECOMPUTE_FULL                   ? "excludes full recomputation"
         : t->layout.pp > 1 && t->layout.vpp == 1                     ? "needs virtual stages in a pipeline"
         : t->mtp > 1                       ? "takes one layer of multi-token prediction at most"
         : t->mtp == 1 && t->layout.pp == 1 ? "needs a pipeline beside multi-token prediction"
                                            : NULL;
}

/* One group that has all experts, cut: a step gathers tokens there, which the all-gather does (models/training/step.c). */
static const hec_dispatcher *dispatcher_of(const hec_training *t) {
  int32_t without = t->layout.etp > 1 ? HEC_DISPATCHER_ALLGATHER : HEC_DISPATCHER_ALLTOALL;
  return hec_dispatchers[t->layout.ep > 1 ? t->recipe.dispatcher : without];
}

static void add_experts(const writer *w) {
  const hec_training *t = w->t;
  const hec_recipe *r = &t->recipe;
  const hec_dispatcher *dispatcher = dispatcher_of(t);
  bool dispatches = t->layout.ep > 1; /* else overlap and fp8 of the dispatch change nothing */
  hec_text_printf(w->flags, " --moe-grouped-gemm --moe-token-dispatcher-type %s", dispatcher->megatron_type);
  if (dispatcher->megatron_backend) /* which take the router's weights in fp32 */
    hec_text_printf(w->flags, " --moe-flex-dispatcher-backend %s --moe-router-dtype fp32",
                    dispatcher->megatron_backend);
  if (t->capacity > 0)
    hec_text_printf(w->flags, " --moe-expert-capacity-factor %.6g", t->capacity);
  if (r->fused)
    hec_text_add(w->flags, " --moe-permute-fusion");
  if (r->fused && r->precision != HEC_PRECISION_BF16)
    hec_text_add(w->differs, "attention in fp8 (fused=on) is not among the flags; ");
  if ((dispatches && r->overlap) || w->pipeline == &hec_pipeline_1f1b_overlap) {
    const char *why = no_overlap(t);
    if (why)
      hec_text_printf(w->differs, "dispatch was predicted beside compute, but --overlap-moe-expert-parallel-comm %s; ",
                      why);
    else
      hec_text_add(w->flags, " --overlap-moe-expert-parallel-comm");
  }
  if (dispatches && r->dispatch)
    hec_text_add(w->differs, "tokens in fp8 on the way to their experts have no flag; ");
  if (r->head && t->layout.pp > 1)
    hec_text_add(w->differs, "a head that is shared out over the stages has no flag; ");
}

/* Its modules, and where they keep more than was predicted. */
static void add_recomputed(const writer *w) {
  static const struct {
    int32_t bit;
    const char *module;
  } modules[] = {{HEC_RECOMPUTE_NORM, "layernorm"},
                 {HEC_RECOMPUTE_ACT, "moe_act"},
                 {HEC_RECOMPUTE_MLP, "mlp"},
                 {HEC_RECOMPUTE_MOE, "moe"}};
  int32_t what = w->t->recipe.recompute;
  if (what & HEC_RECOMPUTE_FULL)
    hec_text_add(w->flags, " --recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
  if (what == 0 || what & HEC_RECOMPUTE_FULL)
    return;
  hec_text_add(w->flags, " --recompute-granularity selective --recompute-modules");
  for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++)
    if (what & modules[i].bit)
      hec_text_printf(w->flags, " %s", modules[i].module);
  if (what & HEC_RECOMPUTE_ATTENTION) {
    bool latents = has_latents(w->t->moe);
    hec_text_add(w->flags, latents ? " mla_up_proj" : " core_attn");
    hec_text_printf(w->differs, "the whole attention was predicted as recomputed, and there is a module for %s alone; ",
                    latents ? "the up-projections of MLA" : "its core");
  }
}

/* Graphs of what no routing changes. Recomputation may not have a graph inside. */
static void add_graphs(const writer *w) {
  const hec_training *t = w->t;
  bool router = !(t->recipe.recompute & HEC_RECOMPUTE_MOE);
  if (t->recipe.graph == HEC_GRAPH_NONE)
    return;
  if (t->recipe.graph == HEC_GRAPH_FULL || t->recipe.recompute & HEC_RECOMPUTE_FULL) {
    hec_text_printf(w->differs, "CUDA graphs (graph=%s) have no flags here: Megatron-LM refuses them %s; ",
                    t->recipe.graph == HEC_GRAPH_FULL ? "full" : "partial",
                    t->recipe.recompute & HEC_RECOMPUTE_FULL ? "beside full recomputation"
                                                             : "for experts whose inputs are not padded");
    return;
  }
  hec_text_printf(w->flags, " --te-rng-tracker --cuda-graph-impl transformer_engine --cuda-graph-scope attn%s%s",
                  router ? " moe_router" : "", router && t->capacity <= 0 ? " moe_preprocess" : "");
  if (!router)
    hec_text_add(w->differs, "the graphs (graph=partial) leave out the router, which is recomputed; ");
}

void hec_megatron_flags(const hec_training *t, const hec_pipeline_schedule *pipeline, bool quoted, hec_text *flags,
                        hec_text *differs) {
  const writer w = {t, pipeline, quoted, flags, differs};
  static void (*const parts[])(const writer *) = {add_layout,  add_precision,  add_data_parallel,
                                                  add_experts, add_recomputed, add_graphs};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    parts[i](&w);
  const hec_megatron_rule *broken = hec_megatron_broken(flags->data, t);
  if (broken)
    hec_text_printf(differs, "Megatron-LM refuses these flags, for it wants: %s (%s); ", broken->what, broken->source);
}

/* ---- Rules ---- */

/* Behind "--name"; NULL: it is not there. */
static const char *behind(const char *flags, const char *name) {
  size_t n = strlen(name);
  for (const char *at = strstr(flags, name); at; at = strstr(at + 1, name))
    if ((at == flags || at[-1] == ' ') && strchr(" ", at[n]))
      return at + n + (at[n] == ' ');
  return NULL;
}

static bool has(const char *flags, const char *name) {
  return behind(flags, name) != NULL;
}

static int32_t number(const char *flags, const char *name, int32_t absent) {
  const char *at = behind(flags, name);
  return at ? (int32_t)strtol(at, NULL, 10) : absent;
}

/* Whether one of the words behind "--name", up to the next flag, is `word`. */
static bool says(const char *flags, const char *name, const char *word) {
  const char *at = behind(flags, name);
  for (size_t n; at && *at && strncmp(at, "--", 2) != 0; at += n + (at[n] == ' ')) {
    n = strcspn(at, " ");
    if (n == strlen(word) && strncmp(at, word, n) == 0)
      return true;
  }
  return false;
}

static bool divides(int32_t part, int32_t whole) {
  return part > 0 && whole % part == 0;
}

static int32_t tp_of(const char *f) {
  return number(f, "--tensor-model-parallel-size", 1);
}
static int32_t cp_of(const char *f) {
  return number(f, "--context-parallel-size", 1);
}
static int32_t pp_of(const char *f) {
  return number(f, "--pipeline-model-parallel-size", 1);
}
static int32_t ep_of(const char *f) {
  return number(f, "--expert-model-parallel-size", 1);
}
static int32_t etp_of(const char *f) {
  return number(f, "--expert-tensor-parallel-size", tp_of(f));
}

/* "Ett|ttL" without its quotes; NULL: it is not there. */
static const char *stages_of(const char *f) {
  const char *at = behind(f, "--pipeline-model-parallel-layout");
  return at ? at + (*at == '"') : NULL;
}

static int32_t count(const char *stages, char what) {
  int32_t n = 0;
  for (; *stages && !strchr("\" ", *stages); stages++)
    n += *stages == what;
  return n;
}

/* 1: none. */
static int32_t vpp_of(const char *f) {
  const char *stages = stages_of(f);
  return stages ? (count(stages, '|') + 1) / pp_of(f) : number(f, "--num-virtual-stages-per-pipeline-rank", 1);
}

static int32_t micro_batches_of(const char *f, const hec_training *t) {
  int32_t dp = t->layout.gpus / (tp_of(f) * cp_of(f) * pp_of(f));
  return number(f, "--global-batch-size", 0) / (number(f, "--micro-batch-size", 1) * (dp > 0 ? dp : 1));
}

static bool gpus_divide(const char *f, const hec_training *t) {
  return divides(tp_of(f) * cp_of(f) * pp_of(f), t->layout.gpus) &&
         divides(etp_of(f) * ep_of(f) * pp_of(f), t->layout.gpus);
}

static bool batch_divides(const char *f, const hec_training *t) {
  int32_t dp = t->layout.gpus / (tp_of(f) * cp_of(f) * pp_of(f));
  return divides(number(f, "--micro-batch-size", 1) * dp, number(f, "--global-batch-size", 0));
}

static bool heads_divide(const char *f, const hec_training *t) {
  return divides(tp_of(f), t->moe->n_heads) &&
         (divides(tp_of(f), t->moe->n_kv_heads) || divides(t->moe->n_kv_heads, tp_of(f)));
}

static bool experts_divide(const char *f, const hec_training *t) {
  return divides(ep_of(f), t->moe->n_experts) && divides(etp_of(f), t->moe->d_ffn);
}

static bool sequence_divides(const char *f, const hec_training *t) {
  int32_t seq = number(f, "--seq-length", t->seq), cp = cp_of(f);
  return divides(cp > 1 ? 2 * cp : 1, seq) && (!has(f, "--sequence-parallel") || divides(tp_of(f), seq / cp));
}

static bool sequence_parallel(const char *f, const hec_training *t) {
  return t->moe->n_experts == 0 || tp_of(f) == 1 || has(f, "--sequence-parallel");
}

static bool one_split(const char *f, const hec_training *t) {
  bool ends = has(f, "--decoder-first-pipeline-num-layers") || has(f, "--decoder-last-pipeline-num-layers");
  (void)t;
  return has(f, "--pipeline-model-parallel-layout") + has(f, "--num-virtual-stages-per-pipeline-rank") <= 1 &&
         !(ends && has(f, "--pipeline-model-parallel-layout"));
}

static bool layers_divide(const char *f, const hec_training *t) {
  int32_t n = t->moe->n_layers, stages = pp_of(f), vpp = vpp_of(f);
  static const char *const ends[] = {"--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"};
  if (stages_of(f))
    return true;
  for (int i = 0; i < 2; i++) {
    int32_t of = number(f, ends[i], -1);
    if (of == -1)
      continue;
    if (of <= 0 || of % vpp != 0)
      return false;
    n -= of;
    stages--;
  }
  return stages > 0 ? n > 0 && divides(stages * vpp, n) : n == 0;
}

static bool stages_are_whole(const char *f, const hec_training *t) {
  const char *s = stages_of(f);
  if (!s)
    return true;
  size_t length = strcspn(s, "\" ");
  const char *m = memchr(s, 'm', length), *last = memchr(s, '|', length);
  int32_t mtp = number(f, "--mtp-num-layers", 0), n = count(s, '|') + 1, from = n - pp_of(f);
  for (int32_t p = 1; p < from && last; p++) /* `last`: where the last virtual stage of every rank begins */
    last = memchr(last + 1, '|', length - (size_t)(last + 1 - s));
  bool late = !m || ((from == 0 || (last && m > last)) && count(m, '|') == 0 && count(m, 't') == 0);
  return n % pp_of(f) == 0 && s[0] == 'E' && s[length - 1] == 'L' && count(s, 'E') == 1 && count(s, 'L') == 1 &&
         count(s, 't') == t->moe->n_layers && count(s, 'm') == mtp && late;
}

static bool interleaves(const char *f, const hec_training *t) {
  return vpp_of(f) == 1 || (pp_of(f) > 1 && divides(pp_of(f), micro_batches_of(f, t)));
}

static bool gathers_beside(const char *f, const hec_training *t) {
  (void)t;
  return !has(f, "--overlap-param-gather") ||
         (has(f, "--overlap-grad-reduce") && (has(f, "--use-distributed-optimizer") || has(f, "--use-megatron-fsdp")));
}

static bool fsdp_checkpoints(const char *f, const hec_training *t) {
  (void)t;
  return has(f, "--use-megatron-fsdp") == says(f, "--ckpt-format", "fsdp_dtensor");
}

static bool overlap_is_whole(const char *f, const hec_training *t) {
  int32_t mtp = number(f, "--mtp-num-layers", 0);
  (void)t;
  return !has(f, "--overlap-moe-expert-parallel-comm") ||
         (ep_of(f) > 1 && (pp_of(f) == 1 || vpp_of(f) > 1) &&
          (says(f, "--moe-token-dispatcher-type", "alltoall") || says(f, "--moe-token-dispatcher-type", "flex")) &&
          !says(f, "--recompute-granularity", "full") && mtp <= 1 && (mtp == 0 || pp_of(f) > 1) &&
          (has(f, "--bf16") || has(f, "--fp16")));
}

static bool recomputes(const char *f, const hec_training *t) {
  bool selective = says(f, "--recompute-granularity", "selective"), full = says(f, "--recompute-granularity", "full");
  bool how = has(f, "--recompute-method") && has(f, "--recompute-num-layers");
  if (has(f, "--recompute-granularity") && !selective && !full)
    return false;
  if (full != how || (has(f, "--recompute-modules") && !selective))
    return false;
  return (!says(f, "--recompute-modules", "moe_act") || has(f, "--moe-grouped-gemm")) &&
         (!says(f, "--recompute-modules", "mla_up_proj") || has_latents(t->moe));
}

static bool modules_are_known(const char *f, const hec_training *t) {
  static const char *const known[] = {"core_attn", "moe_act", "layernorm",     "mla_up_proj",
                                      "mlp",       "moe",     "shared_experts"};
  const char *at = behind(f, "--recompute-modules");
  (void)t;
  for (size_t n; at && *at && strncmp(at, "--", 2) != 0; at += n + (at[n] == ' ')) {
    bool found = false;
    n = strcspn(at, " ");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
      found = found || (strlen(known[i]) == n && strncmp(known[i], at, n) == 0);
    if (!found)
      return false;
  }
  return true;
}

static bool fp8_gathers(const char *f, const hec_training *t) {
  bool gathers = has(f, "--fp8-param-gather");
  (void)t;
  return (!has(f, "--reuse-grad-buf-for-mxfp8-param-ag") || gathers) &&
         (!gathers ||
          (has(f, "--fp8-format") && (has(f, "--use-distributed-optimizer") || has(f, "--use-megatron-fsdp"))));
}

/* Delayed scaling is the default, which may not be recomputed. */
static bool fp8_recomputes(const char *f, const hec_training *t) {
  (void)t;
  return !has(f, "--fp8-format") || (has(f, "--fp8-recipe") && !says(f, "--fp8-recipe", "delayed")) ||
         (!says(f, "--recompute-modules", "moe_act") && !says(f, "--recompute-modules", "layernorm"));
}

static bool flex_has_backend(const char *f, const hec_training *t) {
  (void)t;
  return !says(f, "--moe-token-dispatcher-type", "flex") ||
         (etp_of(f) * ep_of(f) > 1 &&
          (says(f, "--moe-flex-dispatcher-backend", "deepep") || says(f, "--moe-flex-dispatcher-backend", "hybridep")));
}

static bool graphs_are_outside(const char *f, const hec_training *t) {
  (void)t;
  return !has(f, "--cuda-graph-impl") ||
         (!says(f, "--recompute-granularity", "full") && !says(f, "--cuda-graph-scope", "moe") &&
          !(says(f, "--recompute-modules", "moe") && says(f, "--cuda-graph-scope", "moe_router")) &&
          !(says(f, "--cuda-graph-scope", "moe_preprocess") && !says(f, "--cuda-graph-scope", "moe_router")) &&
          !(says(f, "--cuda-graph-scope", "moe_preprocess") && has(f, "--moe-expert-capacity-factor")));
}

const char *hec_megatron_environment(const char *f) {
  if (has(f, "--use-megatron-fsdp"))
    return "CUDA_DEVICE_MAX_CONNECTIONS unset, or not 1";
  return tp_of(f) * cp_of(f) > 1 && !has(f, "--overlap-moe-expert-parallel-comm")
             ? "CUDA_DEVICE_MAX_CONNECTIONS=1 on Hopper and before"
             : NULL;
}

#define CONFIG "core/transformer/transformer_config.py"
#define ARGUMENTS "training/arguments.py"
const hec_megatron_rule hec_megatron_rules[] = {
    {"GPUs that divide by tp x cp x pp, and by etp x ep x pp", "core/parallel_state.py", gpus_divide},
    {"a global batch that divides by micro-batch x dp", "core/num_microbatches_calculator.py", batch_divides},
    {"heads that divide by tp, and key heads that do or divide it", CONFIG, heads_divide},
    {"experts that divide by ep, and their width by etp", ARGUMENTS, experts_divide},
    {"a sequence that divides by 2 cp and, its part, by tp", ARGUMENTS, sequence_divides},
    {"sequence parallelism of MoE layers beside tp", "core/transformer/moe/moe_layer.py", sequence_parallel},
    {"one way of splitting layers", ARGUMENTS, one_split},
    {"layers that divide by stages, or the stages of a layout", CONFIG, layers_divide},
    {"E, all layers, m and L in stages of a layout", "core/transformer/pipeline_parallel_layer_layout.py",
     stages_are_whole},
    {"a multiple of pp as micro-batches for virtual stages", "core/pipeline_parallel/schedules.py", interleaves},
    {"--overlap-grad-reduce and a distributed optimizer beside --overlap-param-gather", ARGUMENTS, gathers_beside},
    {"--ckpt-format fsdp_dtensor for Megatron-FSDP alone", ARGUMENTS, fsdp_checkpoints},
    {"what --overlap-moe-expert-parallel-comm needs", CONFIG, overlap_is_whole},
    {"a method for full recomputation, modules for selective", CONFIG, recomputes},
    {"modules of recomputation that it knows", CONFIG, modules_are_known},
    {"no recomputed norm or activation with delayed scaling", CONFIG, fp8_recomputes},
    {"fp8 and a distributed optimizer for parameters in fp8", ARGUMENTS, fp8_gathers},
    {"a backend and more than one rank for the flex dispatcher", "core/transformer/moe/token_dispatcher.py",
     flex_has_backend},
    {"no recomputation inside CUDA graphs, nor experts", CONFIG, graphs_are_outside},
};
const int32_t hec_n_megatron_rules = sizeof hec_megatron_rules / sizeof hec_megatron_rules[0];

const hec_megatron_rule *hec_megatron_broken(const char *flags, const hec_training *t) {
  for (int32_t i = 0; i < hec_n_megatron_rules; i++)
    if (!hec_megatron_rules[i].holds(flags, t))
      return &hec_megatron_rules[i];
  return NULL;
}
