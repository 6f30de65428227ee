/* See set_up.h. */
#include "tools/front/training/set_up.h"

#include "models/hf_config.h"
#include "models/preset_data.h"
#include "sim/training_fit.h"
#include "tools/front/job_make.h"
#include "tools/front/options.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MICRO_BATCHES_A_STAGE = 4 }; /* of a step, where the batch is not said: a bubble of 25 % at most */

typedef struct {
  const hec_training_args *args;
  const hec_job_options *options;
  hec_trace_reader *reader;
  hec_arena *arena;
  hec_set_up *to;
  const char *device; /* what names it */
} maker;

__attribute__((format(printf, 2, 3))) static void say(maker *m, const char *format, ...) {
  va_list list;
  HEC_ASSERT(m->to->n_assumed < HEC_ASSUMED_MAX);
  va_start(list, format);
  m->to->assumed[m->to->n_assumed++] = hec_arena_vprintf(m->arena, format, list);
  va_end(list);
}

/* ---- Options against the file ---- */

static bool same(const hec_run_option *row, const void *a, const void *b) {
  const void *x = (const char *)a + row->offset, *y = (const char *)b + row->offset;
  if (row->kind == HEC_RUN_WHOLE || row->kind == HEC_RUN_PAPER)
    return *(const int32_t *)x == *(const int32_t *)y;
  if (row->kind == HEC_RUN_REAL)
    return !(*(const double *)x < *(const double *)y) && !(*(const double *)x > *(const double *)y);
  const char *s = *(const char *const *)x, *t = *(const char *const *)y;
  return s == t || (s && t && strcmp(s, t) == 0);
}

static hec_status flag_means_nothing(const char *key, const char *why) {
  HEC_SCOPED(hec_text) flag = {0};
  hec_text_printf(&flag, "--%s", key);
  for (char *at = flag.data; *at; at++)
    *at = *at == '_' ? '-' : *at;
  return hec_fail(HEC_BAD_INPUT, "%s: %s", flag.data, why);
}

/* Options of an iteration of one expert-parallel group. An option without a row is refused. */
const char *hec_set_up_refuses(const char *key) {
  static const struct {
    const char *key, *why; /* why: NULL: taken */
  } rules[] = {
      {"model", NULL},
      {"cluster", NULL},
      {"policy", NULL},
      {"t", NULL},
      {"m", NULL},
      {"period", NULL},
      {"slots", NULL},
      {"warmup", NULL},
      {"placement", NULL},
      {"first_layer", NULL},
      {"dispatcher", NULL},
      {"dispatch_sms", "means nothing beside --layout: kernels of a step have 24"},
      {"dispatch_precision", NULL},
      {"ranks", "means nothing beside --layout; --gpus says how many there are"},
      {"tokens", "means nothing beside --layout; --seq and --micro-batch say it"},
      {"micro_batches", "means nothing beside --layout; they follow from --global-batch"},
      {"ep", "means nothing beside --layout, which has ep= in it"},
      {"esp", "means nothing beside --layout; etp= cuts experts"},
      {"mp", "means nothing beside --layout; tp= cuts the dense part"},
      {"layers", "means nothing beside --layout: a step has all layers of the model"},
      {"head_gradients", "means nothing beside --layout; dp-overlap= in --recipe says it"},
      {"phase", "means nothing beside --layout: a step is forward and backward"},
      {"slow", "slow ranks are not modelled with --layout"},
      {"skew", "late ranks are not modelled with --layout"},
      {"attention", "kinds of attention are not compared with --layout"},
      {"schedule", "means nothing beside --layout; recipe and --pipeline order a step"},
      {"collective", "means nothing beside --layout: gathers of copies are not modelled there"},
      {"law", "network laws of flows are not used with --layout"},
  };
  for (size_t k = 0; k < sizeof rules / sizeof rules[0]; k++)
    if (strcmp(rules[k].key, key) == 0)
      return rules[k].why;
  return "means nothing beside --layout";
}

static hec_status refuse_others(const hec_job_options *options) {
  const hec_job_options none = HEC_JOB_OPTIONS;
  for (int32_t i = 0; i < HEC_N_OPTIONS; i++) {
    const hec_run_option *row = &hec_run_rows[i];
    const char *why = hec_set_up_refuses(row->key);
    if (why && !same(row, options, &none))
      return flag_means_nothing(row->key, why);
  }
  return HEC_OK;
}

hec_status hec_set_up_unwanted(const hec_training_args *args) {
  const hec_training_args none = HEC_TRAINING_ARGS;
  for (int32_t i = 0; i < HEC_N_TRAINING_OPTIONS; i++)
    if (!same(&hec_training_rows[i], args, &none))
      return flag_means_nothing(
          hec_training_rows[i].key,
          "expected --layout or --setup beside it, which make the run a training job; found neither");
  return HEC_OK;
}

/* The file, and what options say of it. */
static hec_status merge(maker *m) {
  const hec_training_args *a = m->args;
  hec_setup *to = &m->to->file;
  *to = (hec_setup){.name = ""};
  if (a->setup)
    HEC_TRY(a->setup_text ? hec_setup_parse(a->setup_text, strlen(a->setup_text), a->setup, m->arena, to)
                          : hec_setup_load(a->setup, m->arena, to));
  const hec_setup file = *to;
  if (m->options->model)
    to->model = m->options->model;
  if (m->options->cluster) {
    to->cluster = m->options->cluster;
    to->device = NULL;
    to->gpus = 0;
  }
  to->layout = a->layout ? a->layout : to->layout;
  to->pipeline = a->pipeline ? a->pipeline : to->pipeline;
  to->gpus = a->gpus > 0 ? a->gpus : to->gpus;
  to->seq = a->seq > 0 ? a->seq : to->seq;
  to->global_batch = a->global_batch > 0 ? a->global_batch : to->global_batch;
  to->micro_batch = a->micro_batch > 0 ? a->micro_batch : to->micro_batch;
  to->mtp = a->mtp >= 0 ? a->mtp : to->mtp;
  to->capacity = a->capacity > 0 ? a->capacity : to->capacity;
  if (a->layout || a->recipe || a->precision || m->options->dispatcher || m->options->dispatch_precision ||
      a->recompute || a->zero >= 0 || a->pipeline || to->gpus != file.gpus || m->options->cluster ||
      to->seq != file.seq || to->global_batch != file.global_batch || to->micro_batch != file.micro_batch ||
      to->mtp != file.mtp || a->capacity > 0 || m->options->model)
    memset(&to->published, 0, sizeof to->published); /* it is another job */
  return HEC_OK;
}

/* ---- Model, GPUs ---- */

static hec_status check_experts(const maker *m) {
  const hec_trace_header *header = hec_trace_header_of(m->reader);
  if (header->n_experts == m->to->moe.n_experts)
    return HEC_OK;
  return hec_fail(
      HEC_BAD_INPUT,
      "%s: expected records of %d experts, as model %s has, found %d; choose a --model or --setup with %d, or "
      "try a made-up trace (hecate-trace synth --experts %d)",
      hec_trace_origin(m->reader), (int)m->to->moe.n_experts, m->to->moe.name, (int)header->n_experts,
      (int)header->n_experts, (int)m->to->moe.n_experts);
}

/* Of a config.json, the keys of its shape; what it leaves open the recipe says here. */
static hec_status load_model(maker *m) {
  hec_set_up *to = m->to;
  HEC_SCOPED(hec_text) said = {0};
  const char *text = m->options->model ? m->options->model_text : NULL;
  HEC_TRY(text ? hec_moe_parse_said(text, to->file.model, &to->moe, &said)
               : hec_moe_load_said(to->file.model, &to->moe, &said));
  if (said.length > 0) {
    const char *end = strstr(said.data, HEC_HF_ASSUMED);
    say(m, "model shape: %.*s", (int)(end ? end - said.data : (ptrdiff_t)said.length), said.data);
  }
  return check_experts(m);
}

/* A model that is named has its own layers, experts and top-k. One that follows from the trace has the trace's, unless it is a
 * preset with as many experts. */
static hec_status choose_model(maker *m) {
  hec_set_up *to = m->to;
  if (to->file.model)
    return load_model(m);
  hec_job job;
  HEC_TRY(hec_job_make_model(m->options, m->reader, m->arena, &job));
  to->moe = job.moe;
  if (hec_preset_find("moe", job.moe.name)) {
    hec_moe preset;
    HEC_TRY(hec_moe_load(job.moe.name, &preset));
    to->moe = preset.n_experts == job.moe.n_experts ? preset : job.moe;
  }
  say(m, "model %s, by what the trace says", to->moe.name);
  return HEC_OK;
}

/* The laws of its GPU, and `sheet` with the rates of its own links. */
static hec_status take_cluster(maker *m, const char *spec, const hec_gpu_laws **laws, hec_gpu_sheet *sheet) {
  hec_cluster cluster;
  const char *text = m->options->cluster ? m->options->cluster_text : NULL;
  HEC_TRY(text ? hec_cluster_parse_json(text, spec, m->arena, &cluster) : hec_cluster_load(spec, m->arena, &cluster));
  *laws = cluster.devices[0].gpu;
  if (!*laws)
    return hec_fail(HEC_BAD_INPUT,
                    "cluster %.200s: expected gpu=NAME of a GPU with measured or scaled laws (hecate-sim --list "
                    "devices), found the rates of a data sheet alone",
                    spec);
  *sheet = (*laws)->gpu.sheet;
  HEC_TRY(hec_set_up_take_cluster(&cluster, spec, &m->to->training, sheet));
  if (hec_cluster_is_line(spec) && !strstr(spec, "nics=") && cluster.n_nodes > 1 && cluster.devices_per_node > 1)
    say(m, "one NIC a node, for all its %d GPUs; choose with nics= in the cluster's line",
        (int)cluster.devices_per_node);
  HEC_SCOPED(hec_text) fast = {0};
  hec_cluster_doubt(&cluster, spec, &fast);
  if (fast.length > 0)
    say(m, "%s", fast.data);
  if (m->to->file.gpus == 0)
    m->to->file.gpus = cluster.n_devices;
  else if (m->to->file.gpus > cluster.n_devices)
    say(m, "%d GPUs in nodes like those of cluster %s, which has %d", (int)m->to->file.gpus, cluster.name,
        (int)cluster.n_devices);
  if (m->to->training.leaf_gpus > 0)
    say(m, "flows spread evenly over the uplinks of a leaf, and all groups below it send at the same time");
  return HEC_OK;
}

static hec_status choose_gpus(maker *m) {
  hec_set_up *to = m->to;
  const hec_gpu_laws *laws = NULL;
  const hec_gpu *gpu;
  hec_gpu_sheet sheet;
  if (to->file.cluster) {
    HEC_TRY(take_cluster(m, to->file.cluster, &laws, &sheet));
    m->device = laws->gpu.spec;
  } else {
    m->device = to->file.device ? to->file.device : "h100";
    if (!to->file.device)
      say(m, "GPUs: h100; choose with --cluster, for instance \"16x8 gpu=b200\"");
    HEC_TRY(hec_gpu_laws_load(m->device, m->arena, &gpu, &laws));
    if (!laws)
      return hec_fail(HEC_BAD_INPUT,
                      "device %.200s: expected one with measured laws (hecate-sim --list devices), found "
                      "its data sheet alone",
                      m->device);
    sheet = laws->gpu.sheet;
  }
  if (laws->gemm[HEC_LAW_BF16]->scaled)
    say(m, "GPU %s: costs measured on %s, scaled by data sheets", laws->gpu.name, laws->gemm[HEC_LAW_BF16]->device);
  if (laws->gpu.absent)
    say(m, HEC_GPU_ABSENT, laws->gpu.name, laws->gpu.absent);
  to->laws = hec_training_laws(laws);
  to->laws.gpu.sheet = sheet;
  to->training.laws = &to->laws;
  return HEC_OK;
}

/* ---- Layout, batch, recipe ---- */

/* Where layers do not divide, the stages that were chosen. */
static void say_stages(maker *m, const hec_layout *layout) {
  int32_t parts = layout->pp * layout->vpp, first;
  hec_layout chosen = *layout;
  HEC_SCOPED(hec_text) stages = {0};
  if (layout->n_given > 0 || m->to->moe.n_layers % parts == 0)
    return;
  for (int32_t p = 0; p < parts; p++)
    chosen.given[p] = hec_layout_layers(layout, &m->to->moe, p, &first);
  chosen.n_given = parts;
  hec_layout_write_given(&chosen, &stages);
  say(m, "%d layers in stages of pp=%d%s", (int)m->to->moe.n_layers, (int)layout->pp, stages.data);
}

static hec_status choose_layout(maker *m) {
  hec_set_up *to = m->to;
  hec_layout *layout = &to->training.layout;
  const char *text = to->file.layout ? to->file.layout : "";
  HEC_TRY(hec_layout_read(text, layout));
  if (layout->tp > 1 && !strstr(text, "etp")) /* Megatron-LM: --expert-tensor-parallel-size is tp unless it is given */
    say(m, "etp=1 (Megatron-LM's own default is tp, here %d)", (int)layout->tp);
  if (to->file.gpus == 0) {
    to->file.gpus = layout->pp * (layout->tp * layout->cp > layout->ep * layout->etp ? layout->tp * layout->cp
                                                                                     : layout->ep * layout->etp);
    say(m, "GPUs: %d, as few as the layout can have; choose with --gpus", (int)to->file.gpus);
  }
  HEC_TRY(hec_layout_fit(layout, to->file.gpus, &to->moe));
  say_stages(m, layout);
  return HEC_OK;
}

static hec_status choose_batch(maker *m) {
  hec_set_up *to = m->to;
  hec_training *t = &to->training;
  t->seq = to->file.seq > 0 ? to->file.seq : to->moe.seq_len;
  t->micro_batch = to->file.micro_batch > 0 ? to->file.micro_batch : 1;
  t->mtp = to->file.mtp;
  t->capacity = to->file.capacity;
  t->global_batch = to->file.global_batch;
  if (to->file.seq == 0)
    say(m, "sequences of %d tokens (--seq)", (int)t->seq);
  if (to->file.micro_batch == 0)
    say(m, "a micro-batch of 1 sequence (--micro-batch)");
  if (t->global_batch == 0) {
    t->global_batch = MICRO_BATCHES_A_STAGE * t->layout.pp * t->layout.dp * t->micro_batch;
    say(m, "a global batch of %d sequences, %d micro-batches a stage (--global-batch)", (int)t->global_batch,
        MICRO_BATCHES_A_STAGE);
  }
  HEC_TRY(hec_training_check(t));
  if (hec_training_micro_batches(t) > HEC_MICRO_BATCHES_MAX)
    return hec_fail(HEC_BAD_INPUT, "global batch: expected at most %d micro-batches of a rank, found %d",
                    HEC_MICRO_BATCHES_MAX, (int)hec_training_micro_batches(t));
  return HEC_OK;
}

/* The file's, then --recipe, then the options that are short for a part of it. */
static hec_status read_recipe(const maker *m, hec_recipe *recipe) {
  const hec_training_args *a = m->args;
  const char level[] = {(char)('0' + a->zero), 0};
  const struct {
    const char *part, *word;
  } shorts[] = {{"precision", a->precision},
                {"dispatcher", m->options ? m->options->dispatcher : NULL},
                {"dispatch", m->options ? m->options->dispatch_precision : NULL},
                {"recompute", a->recompute},
                {"zero", a->zero < 0 ? NULL : level}};
  char text[128];
  const char *whole[] = {m->to->file.recipe, a->recipe};
  for (int i = 0; i < 2; i++) {
    const char *parts = "";
    if (whole[i])
      HEC_TRY(hec_setup_recipe(whole[i], m->arena, &parts));
    HEC_TRY(hec_recipe_read(parts, recipe));
  }
  for (size_t i = 0; i < sizeof shorts / sizeof shorts[0]; i++) {
    if (!shorts[i].word)
      continue;
    (void)snprintf(text, sizeof text, "%s=%.80s", shorts[i].part, shorts[i].word);
    HEC_TRY(hec_recipe_read(text, recipe));
  }
  return HEC_OK;
}

static hec_status find_pipeline(const char *name, const hec_pipeline_schedule **pipeline) {
  *pipeline = name ? hec_pipeline_find(name) : NULL;
  return *pipeline || !name ? HEC_OK : hec_table_unknown(&hec_pipeline_table, "--pipeline", name);
}

/* A GPU without the form computes nothing in it. Of those with it the three forms of fp8 share a law. */
static hec_status check_precision(maker *m) {
  static const char *const names[] = {[HEC_PRECISION_BF16] = "bf16",
                                      [HEC_PRECISION_FP8] = "fp8",
                                      [HEC_PRECISION_FP8_BLOCK] = "fp8-block",
                                      [HEC_PRECISION_MXFP8] = "mxfp8"};
  const hec_gpu *gpu = &m->to->laws.gpu;
  int32_t of = m->to->training.recipe.precision;
  bool fp8 = gpu->sheet.flops[HEC_LAW_FP8] > 0, mx = fp8 && gpu->sheet.mx;
  if (of == HEC_PRECISION_BF16)
    return HEC_OK;
  if (of == HEC_PRECISION_MXFP8 ? !mx : !fp8)
    return hec_fail(HEC_BAD_INPUT, "recipe: precision: expected one that GPU %s has (bf16%s%s), found %s", gpu->name,
                    fp8 ? ", fp8, fp8-block" : "", mx ? ", mxfp8" : "", names[of]);
  if (m->to->laws.gemm[HEC_LAW_FP8])
    say(m, "precision %s: products by the one law of fp8 of GPU %s, which does not tell fp8, fp8-block and mxfp8 apart",
        names[of], gpu->name);
  else
    say(m, "precision %s: products take as long as in bf16, for nobody has measured fp8 on GPU %s", names[of],
        gpu->name);
  return HEC_OK;
}

static hec_status choose_recipe(maker *m) {
  hec_set_up *to = m->to;
  HEC_SCOPED(hec_text) assumed = {0};
  to->training.recipe = hec_recipe_default();
  if (m->args->assumed)
    HEC_TRY(hec_recipe_read(m->args->assumed, &to->training.recipe));
  to->training.recipe.stated = 0;
  HEC_TRY(read_recipe(m, &to->training.recipe));
  HEC_TRY(check_precision(m));
  hec_recipe_assumed(&to->training.recipe, &assumed);
  if (assumed.length > 0)
    say(m, "recipe %s", assumed.data);
  return find_pipeline(to->file.pipeline, &to->pipeline);
}

/* ---- The policies' problem ---- */

/* A class of links, and what the job's cluster said of them; 0: nothing. */
static void add_link(hec_text *line, const char *name, double rate, double latency_s, double share) {
  hec_text_printf(line, " %s=%.9gM", name, 1e-6 * rate);
  if (latency_s > 0)
    hec_text_printf(line, "@%.9gs", latency_s);
  if (share > 0)
    hec_text_printf(line, " %s_eff=%.9g", name, share);
}

/* Nodes of `near` of the job's GPUs, `nodes` of them. */
static void add_nodes(const maker *m, int32_t nodes, int32_t near, hec_text *line) {
  const hec_training *t = &m->to->training;
  const hec_gpu_sheet *sheet = &t->laws->gpu.sheet;
  double fitted = hec_step_constants_fitted.nic;
  bool said = t->constants.nic < fitted || t->constants.nic > fitted;
  hec_text_printf(line, "%dx%d gpu=%s mem=%.9gM nics=%d", (int)nodes, (int)near, m->device, 1e-6 * sheet->memory_bytes,
                  (int)near);
  add_link(line, "nic", sheet->nic_bandwidth, t->nic_latency_s, said ? t->constants.nic : 0);
  add_link(line, "nvlink", sheet->nvlink_bandwidth, t->nvlink_latency_s, t->nvlink_share);
}

/* A rank has the layers of one of pp stages, so policies plan as if it had pp times the memory. They count what a job without ZeRO
 * and recomputation keeps; where that leaves less than the step with balanced loads does, copies have what the step leaves, but for what is too tight. */
static void give_memory(hec_set_up *to) {
  const hec_training_job balanced = {.training = &to->training, .pipeline = to->pipeline};
  hec_training_result result = {0};
  if (hec_training_run(&balanced, &result) != HEC_OK) /* of a search: it tries the schedule with other layouts */
    result.memory.margin = 0;
  double room = (result.memory.margin - hec_training_tight * result.memory.device_bytes) / (1 + hec_allocator_loss);
  double enough = hec_problem_bytes_without_copies(&to->job.problem) + (room > 0 ? room : 0);
  for (int32_t i = 0; i < to->job.cluster.n_devices; i++) {
    double *bytes = &to->job.cluster.devices[i].memory_bytes;
    *bytes *= (double)to->training.layout.pp;
    *bytes = *bytes > enough ? *bytes : enough;
  }
}

/* One expert-parallel group: T etp tokens of each rank, in nodes as the layout puts them. */
static hec_status make_job(maker *m) {
  hec_set_up *to = m->to;
  const hec_layout *l = &to->training.layout;
  const hec_trace_header *header = hec_trace_header_of(m->reader);
  hec_job_options own = *m->options;
  own.dispatcher = own.dispatch_precision = NULL; /* the recipe's; a step prices them */
  int32_t near = hec_group_inside(&to->training, l->ep, l->etp);
  int32_t below = hec_group_below(&to->training, l->ep, l->etp);
  HEC_SCOPED(hec_text) line = {0};
  add_nodes(m, l->ep / near, near, &line);
  if (below < l->ep) /* the group's share of the uplinks */
    hec_text_printf(&line, " leaf=%d uplink=%.6gM", (int)(below > near ? below / near : 1),
                    1e-6 * to->training.uplink * (double)below / (double)to->training.leaf_gpus);
  own.cluster = hec_arena_text(m->arena, line.data);
  own.cluster_text = NULL;
  own.model = to->file.model;
  own.phase = "train";
  own.head_gradients = "beside"; /* for planners; a step has its own rule */
  own.ranks = l->ep;
  int64_t tokens = (int64_t)to->training.seq * to->training.micro_batch / (l->tp * l->cp) * l->etp;
  if (tokens > INT32_MAX)
    return hec_fail(HEC_BAD_INPUT, "seq x micro-batch: expected at most %d tokens of a rank, found %lld",
                    (int)INT32_MAX, (long long)tokens);
  own.tokens = (int32_t)tokens;
  own.warmup = -1;
  if (own.tokens < 1)
    return hec_fail(HEC_BAD_INPUT, "seq: expected at least tp x cp tokens (%d), found %d", (int)(l->tp * l->cp),
                    (int)to->training.seq);
  HEC_TRY(hec_job_make(&own, m->reader, m->arena, &to->job));
  to->job.scale_to = (uint64_t)own.ranks * (uint64_t)own.tokens * (uint64_t)to->moe.top_k;
  HEC_TRY(hec_job_check_assignments("tokens of an expert-parallel group", to->job.scale_to));
  give_memory(to);
  if (header->top_k != to->moe.top_k)
    say(m, "top-%d of model %s; the trace has top-%d, of which only the shares of the experts are taken",
        (int)to->moe.top_k, to->moe.name, (int)header->top_k);
  return HEC_OK;
}

/* ---- The user's own run ---- */

static hec_status bad_measured(const char *text) {
  return hec_fail(HEC_BAD_INPUT,
                  "--measured: expected \"step=19.7s\" (s, ms or min), with routing=balanced if that run forced it, or "
                  "\"factor=1.1\", found \"%.80s\"",
                  text);
}

static hec_status read_measured(maker *m) {
  static const struct {
    const char *unit;
    double s;
  } units[] = {{"s", 1}, {"ms", 1e-3}, {"min", 60}, {"", 1}};
  const char *text = m->args->measured;
  for (const char *at = text; at && *(at += strspn(at, " "));) {
    size_t length = strcspn(at, " ");
    const char *value = memchr(at, '=', length), *end = value;
    double number = 0, unit = 0;
    if (length == 16 && strncmp(at, "routing=balanced", length) == 0)
      m->to->measured_balanced = true;
    else if (!value || !hec_number_read(value + 1, &end, &number) || number <= 0)
      return bad_measured(text);
    else if (strncmp(at, "factor=", 7) == 0 && end == at + length)
      m->to->factor = number;
    else {
      for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strlen(units[i].unit) == (size_t)(at + length - end) &&
            strncmp(units[i].unit, end, strlen(units[i].unit)) == 0)
          unit = units[i].s;
      if (strncmp(at, "step=", 5) != 0 || unit <= 0)
        return bad_measured(text);
      m->to->measured_step_s = number * unit;
    }
    at += length;
  }
  if (text && (m->to->factor > 0) == (m->to->measured_step_s > 0))
    return bad_measured(text);
  return HEC_OK;
}

hec_status hec_set_up_check_texts(const hec_training_args *args, hec_arena *arena) {
  hec_layout layout;
  hec_recipe recipe = hec_recipe_default();
  maker m = {.args = args, .arena = arena, .to = HEC_NEW(arena, hec_set_up, 1)};
  if (args->layout)
    HEC_TRY(hec_layout_read(args->layout, &layout));
  HEC_TRY(read_recipe(&m, &recipe));
  HEC_TRY(find_pipeline(args->pipeline, &m.to->pipeline));
  return read_measured(&m);
}

hec_status hec_set_up_make(const hec_training_args *args, const hec_job_options *options, hec_trace_reader *reader,
                           hec_arena *arena, hec_set_up *set_up) {
  *set_up = (hec_set_up){.training = {.moe = &set_up->moe}};
  maker m = {.args = args, .options = options, .reader = reader, .arena = arena, .to = set_up};
  HEC_TRY(refuse_others(options));
  HEC_TRY(merge(&m));
  HEC_TRY(read_measured(&m));
  HEC_TRY(choose_model(&m));
  set_up->training.constants = hec_step_constants_fitted;
  HEC_TRY(choose_gpus(&m));
  HEC_TRY(choose_layout(&m));
  HEC_TRY(choose_batch(&m));
  HEC_TRY(choose_recipe(&m));
  return make_job(&m);
}
