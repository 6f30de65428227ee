/* See job_make.h. A default is taken only where the user, then the trace's header, say nothing. */
#include "tools/front/job_make.h"

#include "models/gpu_compute.h"
#include "models/preset_data.h"
#include "models/straggler.h"
#include "runtime/plan/placement/placement.h"
#include "runtime/program/job.h"
#include "sim/simulate.h"
#include "tools/front/options.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TOTALS_TOKENS = 8192, TOTALS_TOKENS_ABOVE = 16384, WARMUP = 5, WARMUP_RECORDS_MIN = 12 };
enum { FEW_TOKENS = 512 };               /* per rank: fewer than any training step has */
enum { CPU_EXPERT_BYTES_MAX = 1 << 20 }; /* in float32, of a trace's own shape that CPUs execute unasked */
enum { TOKENS_MAX = 1 << 28 };           /* what a model allows */

/* Names that traces give to models whose shape is a preset. */
static const struct {
  const char *part, *preset;
} known_models[] = {{"DeepSeek-V3", "deepseek-v3"},     {"DeepSeek-R1", "deepseek-v3"},
                    {"gpt-oss-20b", "gpt-oss-20b"},     {"OLMoE", "olmoe"},
                    {"Mixtral-8x22B", "mixtral-8x22b"}, {"Mixtral-8x7B", "mixtral-8x7b"},
                    {"Qwen3-30B-A3B", "qwen3-30b-a3b"}, {"Qwen3-235B-A22B", "qwen3-235b-a22b"}};

void hec_job_assume(hec_job *job, hec_arena *arena, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char *sentence = hec_arena_vprintf(arena, format, arguments);
  va_end(arguments);
  hec_make_plain(sentence); /* names and paths in it are others' */
  if (job->n_defaults ==
      job->defaults_room) { /* doubles on the arena: what is left behind is as much as what is kept */
    int32_t room = job->defaults_room > 0 ? 2 * job->defaults_room : 16;
    const char **grown = HEC_NEW(arena, const char *, room);
    if (job->n_defaults > 0)
      memcpy(grown, job->defaults, (size_t)job->n_defaults * sizeof *grown);
    job->defaults = grown;
    job->defaults_room = room;
  }
  job->defaults[job->n_defaults++] = sentence;
}

void hec_job_mind(hec_job *job) {
  HEC_ASSERT(job->n_minds < HEC_JOB_MINDS && job->n_defaults > 0);
  job->minds[job->n_minds++] = job->defaults[job->n_defaults - 1];
}

/* The row whose name the trace's model contains; -1: none. */
static int32_t known_model(const char *model) {
  for (size_t i = 0; i < sizeof known_models / sizeof *known_models; i++)
    if (strstr(model, known_models[i].part))
      return (int32_t)i;
  return -1;
}

bool hec_job_names_model(const hec_trace_header *header) {
  return header->shape || known_model(header->model) >= 0;
}

/* The header's shape is the name of a preset in quotes, or an object in the form of a preset. */
static hec_status shape_from_header(hec_job *job, hec_arena *arena) {
  char *shape = job->header.shape;
  if (shape[0] != '"')
    return hec_moe_parse(shape, "the trace's \"shape\"", &job->moe);
  char *name = hec_arena_text(arena, shape + 1);
  char *quote = strchr(name, '"');
  if (quote)
    *quote = 0;
  if (!hec_preset_find("moe", name)) /* a trace names no file of this machine */
    return hec_fail(HEC_BAD_INPUT, "the trace's \"shape\": expected an object or a preset's name, found \"%.60s\"",
                    name);
  return hec_moe_load(name, &job->moe);
}

/* What CPUs execute of a shape. */
static void shape_executed(hec_job *job, hec_arena *arena) {
  hec_moe *moe = &job->moe;
  if (moe->dtype_bytes != 4 || moe->grad_bytes != 4 || moe->optimizer_bytes != 8)
    hec_job_assume(
        job, arena,
        "precision: float32 throughout, 4 bytes a parameter, 4 a gradient, 8 of moments (model %s: %d, %g, %g)",
        moe->name, moe->dtype_bytes, moe->grad_bytes, moe->optimizer_bytes);
  if (moe->n_layers > moe->n_moe_layers)
    hec_job_assume(job, arena, "blocks: the %d dense ones of model %s are not executed",
                   moe->n_layers - moe->n_moe_layers, moe->name);
  if (moe->vocabulary > 0)
    hec_job_assume(job, arena, "vocabulary: embedding and head of model %s are not executed", moe->name);
  if (moe->recompute)
    hec_job_assume(job, arena, "recomputation: off, activations are kept");
  moe->dtype_bytes = 4;
  moe->grad_bytes = 4;
  moe->optimizer_bytes = 8;
  moe->n_layers = moe->n_moe_layers;
  moe->vocabulary = 0;
  moe->recompute = false;
}

/* Where an expert of the trace's own shape would keep CPUs busy for long: a small one instead. */
static hec_status small_instead(hec_job *job, hec_arena *arena, bool *replaced) {
  double bytes = 4 * hec_moe_expert_params(&job->moe);
  *replaced = bytes > CPU_EXPERT_BYTES_MAX;
  if (!*replaced)
    return HEC_OK;
  hec_job_assume(
      job, arena,
      "model shape: preset tiny (made for CPUs), not the trace's own (%s: an expert of %.3g MB in float32); choose "
      "with --model",
      job->moe.name, bytes * 1e-6);
  return hec_moe_load("tiny", &job->moe);
}

/* The user names no shape. */
static hec_status shape_by_default(hec_job *job, bool executed, hec_arena *arena) {
  int32_t known = known_model(job->header.model);
  const char *preset = executed ? "tiny" : "gpt-moe-s";
  bool replaced = false;
  if (!job->header.shape && known < 0) {
    hec_job_assume(job, arena, "model shape: preset %s (%sthe trace records no hidden sizes); choose with --model",
                   preset, executed ? "made for CPUs; " : "");
    return hec_moe_load(preset, &job->moe);
  }
  HEC_TRY(job->header.shape ? shape_from_header(job, arena) : hec_moe_load(known_models[known].preset, &job->moe));
  if (executed)
    HEC_TRY(small_instead(job, arena, &replaced));
  if (!replaced && job->header.shape)
    hec_job_assume(job, arena, "model shape: from the trace's header (%s)", job->moe.name);
  else if (!replaced)
    hec_job_assume(job, arena, "model shape: preset %s, because the trace names %s", known_models[known].preset,
                   known_models[known].part);
  return HEC_OK;
}

static hec_status choose_attention(const hec_job_options *options, hec_moe *moe) {
  const char *text = options->attention;
  const char *wrong = text ? hec_attention_read(text, &moe->attention, &moe->s2) : NULL;
  if (wrong)
    return hec_fail(HEC_BAD_INPUT, "--attention: expected %s, found \"%s\"", wrong, text);
  wrong = text && moe->attention == HEC_ATTENTION_S2 ? hec_s2_wrong(moe->s2, moe->n_heads) : NULL;
  return wrong ? hec_fail(HEC_BAD_INPUT, "--attention %s: %s (%s has %" PRId32 " heads)", text, wrong,
                          options->model ? options->model : moe->name, moe->n_heads)
               : HEC_OK;
}

static hec_status load_model(hec_job *job, const hec_job_options *options, hec_arena *arena) {
  HEC_SCOPED(hec_text) said = {0};
  hec_status status = options->model_text ? hec_moe_parse_said(options->model_text, options->model, &job->moe, &said)
                                          : hec_moe_load_said(options->model, &job->moe, &said);
  if (status == HEC_OK && said.length > 0)
    hec_job_assume(job, arena, "model shape: %s", said.data);
  return status;
}

static hec_status choose_model(hec_job *job, const hec_job_options *options, hec_arena *arena) {
  if (options->model)
    HEC_TRY(load_model(job, options, arena));
  else
    HEC_TRY(shape_by_default(job, options->executed, arena));
  hec_moe *moe = &job->moe;
  const hec_trace_header *header = &job->header;
  if (moe->n_moe_layers != header->n_layers || moe->n_experts != header->n_experts || moe->top_k != header->top_k) {
    hec_job_assume(job, arena,
                   "layers, experts, top-k: %" PRId32 ", %" PRId32 ", %" PRId32 " from the trace (model: %" PRId32
                   ", %" PRId32 ", %" PRId32 ")",
                   header->n_layers, header->n_experts, header->top_k, moe->n_moe_layers, moe->n_experts, moe->top_k);
    hec_job_mind(job);
  }
  int32_t dense = moe->n_moe_layers == header->n_layers ? moe->n_layers - moe->n_moe_layers : 0;
  moe->n_moe_layers = options->layers > 0 ? options->layers : header->n_layers;
  moe->n_layers = moe->n_moe_layers + dense;
  moe->n_experts = header->n_experts;
  moe->top_k = header->top_k;
  if (options->nonmoe_scale > 0)
    moe->nonmoe_scale = options->nonmoe_scale;
  HEC_TRY(choose_attention(options, moe));
  if (options->executed)
    shape_executed(job, arena);
  return HEC_OK;
}

const char *hec_job_cluster_default(int32_t ranks_wanted) {
  return ranks_wanted > 32 ? "h800" : "p4d-4x8";
}

static bool line_has(const char *line, const char *key) {
  const char *at = strstr(line, key);
  return at && (at == line || at[-1] == ' ' || at[-1] == '\t');
}

static hec_status choose_cluster(hec_job *job, const hec_job_options *options, int32_t wanted_ranks, hec_arena *arena) {
  const char *name = options->cluster;
  if (!name) {
    name = hec_job_cluster_default(wanted_ranks);
    hec_job_assume(job, arena, "cluster: preset %s%s; choose with --cluster", name,
                   wanted_ranks > 32 ? " (more ranks than the 32 devices of p4d-4x8)" : "");
  }
  HEC_TRY(options->cluster_text ? hec_cluster_parse_json(options->cluster_text, name, arena, &job->cluster)
                                : hec_cluster_load(name, arena, &job->cluster));
  job->cluster_spec = hec_arena_text(arena, name);
  const hec_cluster *cluster = &job->cluster;
  const hec_gpu_laws *laws = cluster->devices[0].gpu;
  if (laws && laws->gpu.absent)
    hec_job_assume(job, arena, HEC_GPU_ABSENT, laws->gpu.name, laws->gpu.absent);
  if (!hec_cluster_is_line(name))
    return HEC_OK;
  HEC_SCOPED(hec_text) fast = {0};
  hec_cluster_doubt(cluster, name, &fast);
  if (fast.length > 0)
    hec_job_assume(job, arena, "%s", fast.data);
  if (cluster->n_nodes > 1 && !line_has(name, "nics="))
    hec_job_assume(job, arena, "NICs: one a node; choose with nics= in the cluster's line");
  if (cluster->n_nodes > 1 && cluster->nics > 1 && !line_has(name, "pxn="))
    hec_job_assume(job, arena,
                   "PXN: off, no transfer goes over NVLink to another GPU's NIC; choose with pxn= in the "
                   "cluster's line");
  if (!line_has(name, "tile="))
    hec_job_assume(job, arena, "GEMM tile: %" PRId32 " rows, as on GPUs; choose with tile= in the cluster's line%s",
                   job->cluster.devices[0].gemm_tile,
                   options->executed && !options->like ? " (8 suits CPU cores)" : "");
  return HEC_OK;
}

/* After the ranks are known: the options name these only. */
static hec_status add_stragglers(hec_job *job, const hec_job_options *options, int32_t ranks, hec_arena *arena) {
  HEC_SCOPED(hec_text) said = {0};
  hec_status status = hec_stragglers_apply(&(hec_stragglers){options->slow, options->skew}, ranks, &job->cluster, arena,
                                           &job->cluster, &said);
  if (status == HEC_OK && said.length > 0)
    hec_job_assume(job, arena, "stragglers: %s", said.data);
  return status;
}

int32_t hec_job_ranks_wanted(int32_t ranks, const hec_trace_header *header) {
  return ranks > 0 ? ranks : header->ranks > 0 ? header->ranks : header->n_sources > 1 ? header->n_sources : 0;
}

static hec_status choose_ranks(hec_job *job, const hec_job_options *options, hec_arena *arena, int32_t *ranks) {
  const hec_trace_header *header = &job->header;
  int32_t wanted = hec_job_ranks_wanted(options->ranks, header);
  HEC_TRY(choose_cluster(job, options, wanted, arena));
  *ranks = wanted > 0 ? wanted : job->cluster.n_devices;
  if (options->ranks == 0)
    hec_job_assume(job, arena, "ranks: %" PRId32 " (%s)", *ranks,
                   header->ranks > 0       ? "the trace's \"ranks\""
                   : header->n_sources > 1 ? "the trace's sources"
                                           : "all devices of the cluster");
  int32_t of_all = options->n_stages > 0 ? options->n_stages * *ranks : *ranks;
  if (of_all > job->cluster.n_devices)
    return hec_fail(HEC_BAD_INPUT,
                    "ranks: expected at most the %" PRId32 " devices of cluster %s, found %" PRId32
                    "%s; choose --ranks %" PRId32 " or a larger --cluster",
                    job->cluster.n_devices, job->cluster.name, of_all,
                    options->ranks > 0  ? ""
                    : header->ranks > 0 ? " (the trace's \"ranks\")"
                                        : " (the trace's sources)",
                    job->cluster.n_devices);
  if (header->n_sources > 1 && header->n_sources != *ranks)
    hec_job_assume(job, arena, "sources: the trace's %" PRId32 " spread over %" PRId32 " rank%s", header->n_sources,
                   *ranks, *ranks == 1 ? "" : "s");
  HEC_TRY(add_stragglers(job, options, *ranks, arena));
  if (header->n_sources == 1 && *ranks > 1)
    hec_job_assume(job, arena, "sources: the trace has totals only; split evenly over %" PRId32 " ranks", *ranks);
  return HEC_OK;
}

/* Tokens per rank: attention time and, when scaling, the loads. Those of the first record that has any. */
static hec_status choose_tokens(hec_job *job, const hec_job_options *options, hec_trace_reader *reader, int32_t ranks,
                                hec_arena *arena, int32_t *tokens) {
  const hec_trace_record *record;
  uint64_t total = 0, per_token = (uint64_t)ranks * (uint64_t)job->header.top_k;
  int64_t n_empty = -1;
  do {
    HEC_TRY(hec_trace_next(reader, &record));
    for (int32_t l = 0; record && l < job->moe.n_moe_layers; l++) {
      uint64_t layer = hec_load_layer_total(&record->load, l);
      total = layer > total ? layer : total;
    }
    n_empty++;
  } while (record && total == 0);
  uint64_t own = (total + per_token - 1) / per_token;
  if (options->tokens > 0) {
    *tokens = options->tokens;
    job->scale_to = (uint64_t)*tokens * per_token;
  } else if (job->header.n_sources == 1 && own > TOTALS_TOKENS_ABOVE) {
    *tokens = TOTALS_TOKENS;
    job->scale_to = (uint64_t)*tokens * per_token;
    hec_job_assume(job, arena,
                   "tokens per rank: %d, every layer scaled to it (the trace's totals would be %" PRIu64
                   "); choose with --tokens",
                   TOTALS_TOKENS, own);
  } else {
    if (own > TOKENS_MAX)
      return hec_fail(HEC_BAD_INPUT, "tokens per rank: expected at most %d, found %" PRIu64 "; choose with --tokens",
                      TOKENS_MAX, own);
    *tokens = own > 0 ? (int32_t)own : 1;
    const char *exact = job->header.counted == HEC_COUNTED_AFTER_DROP
                            ? ", counted after dropping: what the gate dropped is in neither loads nor tokens"
                        : total == 0             ? ", as no record has any"
                        : n_empty > 0            ? ", of the first record that has any"
                        : total % per_token == 0 ? ""
                                                 : ", of the first record, rounded up";
    if (job->header.n_sources == ranks)
      hec_job_assume(job, arena, "tokens per rank: %" PRId32 " (the trace's own number%s)", *tokens, exact);
    else
      hec_job_assume(job, arena, "tokens per rank: %" PRId32 " (the trace's total over %" PRId32 " rank%s%s)", *tokens,
                     ranks, ranks == 1 ? "" : "s", exact);
    if (*tokens < FEW_TOKENS)
      hec_job_mind(job);
  }
  return HEC_OK;
}

void hec_job_note_tokens(hec_job *job, hec_token_range of_records, hec_arena *arena) {
  int32_t own = job->problem.tokens;
  if (of_records.max > 0 && (of_records.min != own || of_records.max != own))
    hec_job_assume(job, arena,
                   "tokens per rank: %" PRId32 " to %" PRId32 " in the records; attention and all else that is not of "
                   "experts count %" PRId32 " in each (--tokens N scales every record to N)",
                   of_records.min, of_records.max, own);
}

static hec_status choose_warmup(hec_job *job, const hec_job_options *options, hec_trace_reader *reader,
                                hec_arena *arena) {
  int64_t last = -1, n = 0, first = 0, second = 0, by_default = 0;
  const hec_trace_record *record;
  HEC_TRY(hec_trace_rewind(reader));
  while (n < WARMUP_RECORDS_MIN || n <= options->warmup) {
    HEC_TRY(hec_trace_next(reader, &record));
    if (!record)
      break;
    if (n == 0 || record->iter != last) {
      first = n == 0 ? record->iter : first;
      second = n == 1 ? record->iter : second;
      by_default = n == WARMUP ? record->iter : by_default;
      job->first_reported = n == options->warmup ? record->iter : job->first_reported;
      n++;
    }
    last = record->iter;
  }
  if (n == 0)
    return hec_fail(HEC_BAD_INPUT, "the trace has no record");
  if (n > 1 && second - first > 1)
    hec_job_assume(job, arena,
                   "stride: records are %" PRId64 " iterations apart; history counts records, periods count iterations",
                   second - first);
  job->warmup = options->warmup >= 0 ? options->warmup : n < WARMUP_RECORDS_MIN ? 0 : WARMUP;
  if (options->warmup < 0)
    job->first_reported = job->warmup == 0 ? first : by_default;
  if (options->warmup < 0 && job->warmup > 0)
    hec_job_assume(job, arena, "warm-up: the first %d iterations run but are not reported", WARMUP);
  if (options->warmup >= n && n < WARMUP_RECORDS_MIN)
    return hec_fail(HEC_BAD_INPUT, "--warmup: expected less than the trace's %" PRId64 " iterations, found %" PRId32, n,
                    options->warmup);
  return hec_trace_rewind(reader);
}

static hec_status choose_phase(const hec_job_options *options, hec_job *job, hec_arena *arena, bool *train) {
  if (job->header.misspelt && job->header.misspelt[0])
    hec_job_assume(job, arena, "nothing reads the trace's key %s", job->header.misspelt);
  if (!options->phase) {
    *train = job->header.phase == HEC_PHASE_TRAIN;
    if (job->header.phase_text[0] == 0)
      hec_job_assume(job, arena, "phase: train (the trace does not say)");
    else if (!*train)
      hec_job_assume(job, arena, "phase: forward only, because the trace records %s (--phase train: backward too)",
                     job->header.phase_text);
    return HEC_OK;
  }
  int32_t which;
  HEC_TRY(hec_run_option_word("--phase", options->phase, &which));
  *train = which == 0;
  return HEC_OK;
}

hec_status hec_job_choose_head(const char *text, bool *after) {
  int32_t which = 0;
  if (text)
    HEC_TRY(hec_run_option_word("--head-gradients", text, &which));
  *after = which == 1;
  return HEC_OK;
}

static void say_head(const hec_job_options *options, hec_arena *arena, hec_job *job) {
  if (!options->head_gradients && hec_problem_head_gradients(&job->problem) > 0)
    hec_job_assume(job, arena,
                   "gradients of the language-model head: all-reduced beside the backward of the layers, as frameworks "
                   "with gradient buckets do; choose with --head-gradients");
}

/* More than an iteration should ever take. All assignments of a layer are on the slowest device, and every byte takes
 * the slowest link and the slowest memory. One follows the other, and some of it counts several times. */
static double longest_s(const hec_job *job, const hec_device *device) {
  const hec_problem *p = &job->problem;
  double assignments = (double)p->tokens * (double)p->n_ranks * (double)p->top_k, slowest = 1e300, latency_s = 0;
  for (int32_t l = 0; l < job->cluster.n_links; l++) {
    const hec_link *link = &job->cluster.links[l];
    double rate = link->bandwidth * hec_link_share_of(link, 1);
    slowest = rate < slowest ? rate : slowest;
    latency_s += (double)link->latency_ps * 1e-12;
  }
  hec_work_shape shapes[] = {p->expert,
                             hec_work_dense_attention(p->moe), /* never less than the model's kind */
                             hec_work_gate(p->moe),
                             hec_work_shared(p->moe),
                             hec_work_dense_blocks(p->moe),
                             hec_work_embedding(p->moe),
                             hec_work_head(p->moe)};
  double layer_s = hec_work_s(device, &shapes[0], assignments), once_s = 0;
  for (size_t i = 1; i < sizeof shapes / sizeof *shapes; i++)
    once_s += hec_work_s(device, &shapes[i], (double)p->tokens);
  double expert = (double)p->n_experts * (p->bytes.expert_param + p->bytes.expert_grad + p->bytes.expert_optimizer);
  double dense = p->bytes.dense_param + p->bytes.dense_grad + p->bytes.dense_optimizer;
  double bytes = (double)p->n_layers * (assignments * p->bytes.token + expert) + dense;
  return 4 * (double)job->micro_batches *
         ((double)p->n_layers * (layer_s + once_s + latency_s) + bytes / slowest + bytes / device->hbm_bandwidth);
}

/* The clock counts picoseconds in 63 bits: 106 days. */
static hec_status check_clock(const hec_job *job) {
  for (int32_t r = 0; r < job->problem.n_ranks; r++) {
    double seconds = longest_s(job, &job->cluster.devices[r]);
    if (!(seconds < 1e6))
      return hec_fail(
          HEC_BAD_INPUT,
          "cluster %s: too slow for this model: an iteration may take %.3g s (rates are bytes/s and FLOP/s: "
          "300G, not 300)",
          job->cluster.name, seconds);
  }
  return HEC_OK;
}

/* Of a calibrated cluster: whether what was measured says anything of this model. */
static void say_measured(hec_job *job, hec_arena *arena) {
  const hec_device *device = &job->cluster.devices[0];
  const hec_work_shape *expert = &job->problem.expert;
  if (!device->measured || device->measured->n == 0)
    return;
  if (hec_curves_find(device->measured, expert->kind, false, expert->flops_per_row, 0))
    hec_job_assume(job, arena, "computing: measured curves of cluster %s, which fit this model's experts",
                   job->cluster.name);
  else
    hec_job_assume(
        job, arena,
        "computing: no measured curve of cluster %s fits this model's experts: the law's constants are used, "
        "which are coarse",
        job->cluster.name);
}

/* Those between the layers in use: [n_layers - 1] first of them. What is said of them, job_rows.c says. */
static void take_transitions(hec_job *job) {
  if (job->problem.n_layers > 1)
    job->problem.transitions = job->header.transitions;
}

/* Of all the trace's layers, whichever are in use. */
static hec_status read_placement(const hec_job_options *options, hec_arena *arena, hec_job *job) {
  if (!options->placement)
    return HEC_OK;
  hec_placement *placement = HEC_NEW(arena, hec_placement, 1);
  job->problem.placement = placement;
  HEC_TRY(hec_placement_read(options->placement,
                             (hec_placement_shape){.n_layers = job->header.n_layers,
                                                   .n_experts = job->problem.n_experts,
                                                   .n_ranks = job->problem.n_ranks,
                                                   .first_layer = options->first_layer},
                             arena, placement));
  if (options->ranks == 0)
    hec_job_assume(job, arena,
                   "ranks of the placement: %s was read as one of %" PRId32
                   " ranks; if your job has others, give --ranks",
                   options->placement, job->problem.n_ranks);
  return HEC_OK;
}

static int32_t shares(int32_t experts, int32_t ranks) {
  return (experts + ranks - 1) / ranks;
}

/* Fewer slots than hold all experts: no policy can. An expert-parallel group may have fewer ranks than there are. Then
 * policies whose every group holds all experts take more slots than were asked for, and it is said. */
static hec_status check_slots(hec_job *job, int32_t slots, hec_arena *arena) {
  const hec_problem *p = &job->problem;
  int32_t min = shares(p->n_experts, p->n_ranks), of_group = shares(p->n_experts, p->ep);
  if (slots == HEC_AUTO || slots >= of_group)
    return HEC_OK;
  if (slots < min)
    return hec_fail(HEC_BAD_INPUT,
                    "--slots: expected at least %" PRId32 ", so that %" PRId32 " rank%s can hold %" PRId32
                    " experts, found %" PRId32,
                    min, p->n_ranks, p->n_ranks == 1 ? "" : "s", p->n_experts, slots);
  hec_job_assume(job, arena,
                 "slots: at least %" PRId32 " a rank, not %" PRId32 ", of policies whose every group of %" PRId32
                 " ranks holds all %" PRId32 " experts",
                 of_group, slots, p->ep, p->n_experts);
  return HEC_OK;
}

hec_status hec_job_make_model(const hec_job_options *options, hec_trace_reader *reader, hec_arena *arena,
                              hec_job *job) {
  *job = (hec_job){.header = *hec_trace_header_of(reader), .origin = hec_trace_origin(reader)};
  return choose_model(job, options, arena);
}

hec_status hec_job_make(const hec_job_options *options, hec_trace_reader *reader, hec_arena *arena, hec_job *job) {
  *job = (hec_job){.header = *hec_trace_header_of(reader), .origin = hec_trace_origin(reader)};
  if (options->layers > job->header.n_layers)
    return hec_fail(HEC_BAD_INPUT, "--layers: expected at most the trace's %" PRId32 " MoE layers, found %" PRId32,
                    job->header.n_layers, options->layers);
  bool train = true;
  int32_t ranks = 0, tokens = 0;
  HEC_TRY(choose_phase(options, job, arena, &train));
  HEC_TRY(choose_model(job, options, arena));
  HEC_TRY(choose_ranks(job, options, arena, &ranks));
  HEC_TRY(choose_tokens(job, options, reader, ranks, arena, &tokens));
  HEC_TRY(hec_job_check_assignments("tokens per rank", job->scale_to));
  HEC_TRY(choose_warmup(job, options, reader, arena));
  job->n_stages = options->n_stages;
  job->micro_batches = options->micro_batches > 0 ? options->micro_batches : 1;
  if (job->micro_batches > 1)
    hec_job_assume(job, arena, "micro-batches: an iteration of one record is repeated %" PRId32 " times",
                   job->micro_batches);
  job->moe.tokens_per_rank = tokens;
  HEC_TRY(hec_moe_check(&job->moe, options->model ? options->model : job->moe.name));
  HEC_TRY(hec_problem_make(&job->moe, &job->cluster, train, ranks, tokens, &job->problem));
  HEC_TRY(hec_problem_group(&job->problem, options->ep));
  job->problem.t = options->t;
  job->problem.m = options->m;
  job->problem.period = options->period;
  job->problem.slots = options->slots;
  HEC_TRY(hec_job_choose_head(options->head_gradients, &job->problem.head_late));
  HEC_TRY(check_slots(job, options->slots, arena));
  job->problem.solver = options->solver;
  job->problem.pricer = hec_law_pricer(&hec_law_alpha_beta); /* a comparison of laws has its own */
  take_transitions(job);
  HEC_TRY(hec_problem_shard(&job->problem, options->esp > 0 ? options->esp : 1));
  HEC_TRY(hec_problem_tensor(&job->problem, options->mp > 0 ? options->mp : 1));
  HEC_TRY(hec_job_choose_dispatch(options, arena, job));
  HEC_TRY(check_clock(job));
  HEC_TRY(read_placement(options, arena, job));
  say_head(options, arena, job);
  say_measured(job, arena);
  if (job->problem.esp > 1)
    hec_job_assume(job, arena, "expert sharding: groups of %" PRId32 " ranks, every expert in as many shards",
                   job->problem.esp);
  if (job->problem.mp > 1)
    hec_job_assume(
        job, arena,
        "tensor parallelism: groups of %" PRId32
        " ranks, attention by heads over the rows of all; norms, gate, shared experts, embedding and head whole",
        job->problem.mp);
  if (job->problem.dp > 1)
    hec_job_assume(job, arena,
                   "groups: %" PRId32 " expert-parallel groups of %" PRId32 " ranks (%s), each with all %" PRId32
                   " experts; gradients are reduced between them",
                   job->problem.dp, job->problem.ep,
                   options->n_stages > 0 ? "of a stage, --layout"
                   : options->ep > 0     ? "--ep"
                                         : "the largest divisor of the ranks that is at most the experts",
                   job->problem.n_experts);
  return HEC_OK;
}
