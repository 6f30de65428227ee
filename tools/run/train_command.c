/* From the command line to a training run and back. The curve lies in memory that the ranks share, because rank 0 may be
 * another process than the one that speaks. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "tools/run/run_commands.h"

#include "models/straggler.h"
#include "runtime/base/arena.h"
#include "runtime/base/progress.h"
#include "runtime/base/table.h"
#include "runtime/exec/model/gate.h"
#include "runtime/exec/train/train.h"
#include "runtime/plan/cbc/cbc.h"
#include "runtime/program/job.h"
#include "tools/front/args.h"
#include "tools/front/job_make.h"
#include "tools/front/machine.h"
#include "tools/front/options.h"
#include "tools/front/output.h"
#include "tools/front/target.h"
#include "tools/run/train_report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 4, STEPS_MAX = 1000000, PRINTED_STEPS = 20, NAME_BYTES = 320 }; /* a file name has 255 at most */

typedef struct {
  hec_job_options job;
  const char *text, *record, *name, *gate, *balance, *checkpoint;
  int64_t checkpoint_every, steps, layers, experts, top_k, d_model, d_ffn, heads, seq_len, seed, every;
  double rate, aux, memory;
  const hec_gate *gate_row;
  hec_gate_options gate_options;
  hec_balancing balancing; /* what --balance or --aux said */
  hec_target_args target;
  char **words; /* of the command line, [n_words] */
  int n_words;
  bool check, json, list, resume;
} settings;

typedef struct {
  const settings *s;
  hec_target target;
  hec_corpus corpus;
  hec_moe moe;
  hec_cluster cluster;
  hec_model model;
  hec_problem problem;
  const hec_policy *policy;
  const hec_schedule *schedule;
  hec_trace_header header;
  hec_text source, notes, shape;
  hec_train train;
  hec_record *record;
  hec_checkpoint checkpoint;
  hec_train_report report;
  hec_arena arena;
  bool launched;
} command;

static const settings defaults = {.gate = "softmax",
                                  .checkpoint_every = 100,
                                  .steps = 100,
                                  .layers = 4,
                                  .experts = 16,
                                  .top_k = 2,
                                  .d_model = 64,
                                  .d_ffn = 128,
                                  .heads = 4,
                                  .seq_len = 64,
                                  .seed = 1,
                                  .rate = 3e-3};

static hec_status parse_gate(settings *s) {
  HEC_TRY(hec_gate_parse(s->gate, &s->gate_row, &s->gate_options));
  if (s->balance && s->aux > 0)
    return hec_fail(HEC_BAD_INPUT, "--aux: expected --balance or --aux, found both");
  s->balancing.aux = s->aux;
  return s->balance ? hec_balancing_parse(s->balance, &s->balancing) : HEC_OK;
}

static void list_gates(void) {
  const hec_gate_options none = {0};
  printf("gates of --gate: NAME, or NAME:option=value,option=value\n");
  for (const hec_gate *const *g = hec_gates; *g; g++) {
    printf("  %-14s %s\n  %14s %s\n", (*g)->name, (*g)->summary, "", (*g)->source);
    hec_args_list_options((*g)->options, &none, 16);
    if ((*g)->caution)
      printf("    mind: %s\n", (*g)->caution);
  }
}

static const hec_run_option_words words[] = {
    {"ranks", NULL, "ranks (default 4; under mpirun: its processes)"},
    {"attention", NULL, "causal (default) or s2:shards=N,local=N,block=N,dense=N"},
    {"tokens", NULL, "characters per rank and micro-batch, whole sequences (default 256)"},
    {"micro_batches", NULL, "per step (default 1)"},
    {"policy", "P", "one policy (default hecate), with options as hecate:t=4; see --list"},
    {"schedule", NULL, "published (default: the policy's own) or a schedule"},
    {"ep", NULL, "ranks of an expert-parallel group (default: the largest that fits)"},
    {"esp", NULL, "every expert in shards on S ranks (default 1; policy ep)"},
    {"cluster", NULL, "what plans are made for (default: CPU cores, hosts as mpirun made them, assumed rates)"},
    {"backend", NULL, "cpu (default) or mpi"},
    {"transport", NULL, "of backend cpu: shm (default), emulated, paced"},
    {"threads", NULL, "ranks are threads of one process, not processes"},
    {"virtual", NULL, "one rank computes at a time; transfers take what the cluster's links would"},
    {.key = NULL},
};

static hec_status check(settings *s) {
  if (!s->text)
    return hec_fail(HEC_BAD_INPUT, "expected --text FILE; see hecate-run train --help");
  if (s->heads > s->d_model || s->d_model % s->heads != 0)
    return hec_fail(HEC_BAD_INPUT, "--heads: expected a divisor of --d-model (%" PRId64 "), found %" PRId64, s->d_model,
                    s->heads);
  HEC_TRY(parse_gate(s));
  if (s->resume && !s->checkpoint)
    return hec_fail(HEC_BAD_INPUT, "--resume: expected --checkpoint DIR beside it, found none");
  if (s->name && !s->record)
    return hec_fail(HEC_BAD_INPUT, "--name: expected --record FILE beside it, found none");
  return HEC_OK;
}

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = defaults;
  s->job = HEC_JOB_OPTIONS;
  s->job.schedule = "published";
  s->job.attention = "causal";
  s->job.tokens = 256;
  s->job.micro_batches = 1;
  s->target = HEC_TARGET_ARGS;
  s->job.policy = "hecate";
  const hec_arg args[] = {
      HEC_ARG_TITLE("What is learned"),
      HEC_ARG_WORD("--text", s->text, "FILE", "what to learn; its distinct bytes are the vocabulary (required)"),
      HEC_ARG_TITLE("Model"),
      HEC_ARG_WHOLE("--layers", s->layers, "N", "blocks, each with MoE (default 4)", 1, 1000),
      HEC_ARG_WHOLE("--experts", s->experts, "N", "experts of a layer (default 16)", 1, 65536),
      HEC_ARG_WHOLE("--top-k", s->top_k, "N", "experts of a token (default 2)", 1, 65536),
      HEC_ARG_WHOLE("--d-model", s->d_model, "N", "width (default 64)", 4, 65536),
      HEC_ARG_WHOLE("--d-ffn", s->d_ffn, "N", "inner width of an expert (default 128)", 1, 65536),
      HEC_ARG_WHOLE("--heads", s->heads, "N", "attention heads, a divisor of the width (default 4)", 1, 65536),
      HEC_ARG_WHOLE("--seq-len", s->seq_len, "N", "characters of a sequence (default 64)", 1, 65536),
      HEC_ARG_JOB("", s->job, "attention", words),
      HEC_ARG_JOB("Training", s->job, "ranks tokens micro_batches", words),
      HEC_ARG_WHOLE("--steps", s->steps, "N", "optimizer steps (default 100)", 1, STEPS_MAX),
      HEC_ARG_REAL("--lr", s->rate, "X", "learning rate of Adam (default 0.003)", 1e-9, 1),
      HEC_ARG_WORD("--gate", s->gate, "G",
                   "how experts are chosen: NAME or NAME:key=value,.. (default softmax), or list: which there are"),
      HEC_ARG_WORD("--balance", s->balance, "B",
                   "none (default), aux=COEFFICIENT of an auxiliary loss, bias=RATE of a bias of the choice, or both"),
      HEC_ARG_REAL("--aux", s->aux, "X", "the same as --balance aux=X", 0, 1000),
      HEC_ARG_WHOLE("--seed", s->seed, "N", "of weights and batches (default 1)", 0, HEC_ITER_MAX),
      HEC_ARG_JOB("Execution", s->job, "policy schedule " HEC_OPTIONS_HEAD " ep esp cluster", words),
      HEC_ARG_TARGET("", s->target, "backend transport threads virtual timeout", words),
      HEC_ARG_SIZE("--memory", s->memory, "BYTES",
                   "capacity of a rank for state and planned buffers, as 64M; more is an error (default: no limit)", 1,
                   1e18),
      {"--check", HEC_ARG_FLAG, &s->check, NULL,
       "compare everything with a dense reference on one rank; exit 1 where it differs. It takes over the run's state "
       "every 10 steps (fewer at a high --lr), because training amplifies rounding.",
       0, 0},
      HEC_ARG_TITLE("Output"),
      HEC_ARG_WORD("--record", s->record, "FILE",
                   "write the expert loads as a trace at the end (.gz: compressed); where a rank dies, those of the "
                   "finished steps"),
      HEC_ARG_WORD("--name", s->name, "NAME",
                   "with --record: name in the trace (default: made of model, text and steps)"),
      HEC_ARG_WORD("--checkpoint", s->checkpoint, "DIR",
                   "save the run there, to go on from after its end or a failure"),
      HEC_ARG_WHOLE("--checkpoint-every", s->checkpoint_every, "N",
                    "save it every N steps (default 100) and after the last", 1, STEPS_MAX),
      {"--resume", HEC_ARG_FLAG, &s->resume, NULL,
       "go on from the checkpoint in --checkpoint DIR, with the same losses; --steps counts its steps, too. Without "
       "one "
       "begin with step 1",
       0, 0},
      HEC_ARG_WHOLE("--print-every", s->every, "N", "print the loss every N steps (default: about 20 lines)", 1,
                    STEPS_MAX),
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document on stdout and nothing else", 0, 0},
      {"--list", HEC_ARG_FLAG, &s->list, NULL, "list backends, transports, policies, schedules and presets", 0, 0},
      {.name = NULL}};
  const hec_command text = {
      .program = "hecate-run train",
      .usage = "hecate-run train --text FILE [options]",
      .summary = "Trains a small GPT-MoE language model on the characters of a text, distributed under any policy, and "
                 "records the\nexpert loads of its gates.",
      .examples = "  hecate-run train --text README.md --ranks 4 --policy hecate --check --steps 5\n"
                  "  hecate-run train --text book.txt --ranks 8 --aux 0.01 --steps 500 --record loads.jsonl.gz\n"
                  "  hecate-run train --text book.txt --gate sigmoid --balance bias=0.001",
      .first = "--text --ranks --steps --layers --experts --policy --gate --balance --check --record",
      .args = args};
  HEC_TRY(hec_args_options(&text, argc, argv, done));
  s->target.ranks = s->job.ranks;
  s->list = s->list || strcmp(s->target.backend, "list") == 0;
  if (*done || s->list || strcmp(s->gate, "list") == 0)
    return HEC_OK;
  s->words = argv;
  s->n_words = argc;
  return check(s);
}

/* ---- Where and what ---- */

static hec_moe shape_of(const settings *s) {
  return (hec_moe){.name = "charlm",
                   .n_layers = (int32_t)s->layers,
                   .n_moe_layers = (int32_t)s->layers,
                   .d_model = (int32_t)s->d_model,
                   .d_ffn = (int32_t)s->d_ffn,
                   .d_ffn_dense = (int32_t)s->d_ffn,
                   .d_ffn_shared = (int32_t)s->d_ffn,
                   .n_ffn_matrices = 2,
                   .n_experts = (int32_t)s->experts,
                   .top_k = (int32_t)s->top_k,
                   .n_heads = (int32_t)s->heads,
                   .n_kv_heads = (int32_t)s->heads,
                   .d_head = (int32_t)(s->d_model / s->heads),
                   .seq_len = (int32_t)s->seq_len,
                   .tokens_per_rank = s->job.tokens,
                   .micro_batches = s->job.micro_batches,
                   .dtype_bytes = 4,
                   .grad_bytes = 4,
                   .optimizer_bytes = 8,
                   .attention = HEC_ATTENTION_CAUSAL,
                   .fused_attention = true,
                   .nonmoe_scale = 1};
}

/* Not full: the next character would be seen. */
static hec_status choose_attention(const settings *s, hec_moe *moe) {
  if (s->top_k > s->experts)
    return hec_fail(HEC_BAD_INPUT, "--top-k: expected at most the --experts (%" PRId64 "), found %" PRId64, s->experts,
                    s->top_k);
  const char *wrong = hec_attention_read(s->job.attention, &moe->attention, &moe->s2);
  if (!wrong && moe->attention == HEC_ATTENTION_FULL)
    wrong = "causal or s2, because the next character must not be seen";
  if (wrong)
    return hec_fail(HEC_BAD_INPUT, "--attention: expected %s, found \"%s\"", wrong, s->job.attention);
  wrong = moe->attention == HEC_ATTENTION_S2 ? hec_s2_wrong(moe->s2, moe->n_heads) : NULL;
  if (wrong)
    return hec_fail(HEC_BAD_INPUT, "--attention %s: %s (--heads %" PRId32 ")", s->job.attention, wrong, moe->n_heads);
  return hec_moe_check(moe, "the model");
}

/* What plans are made for: the memory that is stated is the memory that they may use. */
static hec_status choose_cluster(command *c, int32_t ranks) {
  char line[HEC_CPU_LINE_BYTES];
  hec_job_cpu_line(ranks, hec_target_per_host(&c->target, ranks), c->s->memory > 0 ? c->s->memory : 4e9, line);
  c->report.cluster = hec_arena_text(&c->arena, c->s->job.cluster ? c->s->job.cluster : line);
  HEC_TRY(hec_cluster_load(c->report.cluster, &c->arena, &c->cluster));
  return hec_stragglers_none_late(&c->cluster, c->cluster.n_devices);
}

static const char *file_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* The model's shape as JSON, for the header of what is recorded. */
static void add_shape(const hec_moe *m, hec_text *out) {
  const struct {
    const char *key;
    int32_t value;
  } sizes[] = {{"layers", m->n_layers},
               {"d_model", m->d_model},
               {"d_ffn", m->d_ffn},
               {"ffn_matrices", 2},
               {"experts", m->n_experts},
               {"top_k", m->top_k},
               {"heads", m->n_heads},
               {"seq_len", m->seq_len},
               {"vocabulary", m->vocabulary},
               {"tokens_per_rank", m->tokens_per_rank},
               {"dtype_bytes", 4},
               {"grad_bytes", 4},
               {"optimizer_bytes", 8}};
  hec_json_out json = hec_json_begin(out, 0);
  hec_json_object(&json, NULL);
  hec_json_string(&json, "name", "charlm");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    hec_json_int(&json, sizes[i].key, sizes[i].value);
  if (m->attention != HEC_ATTENTION_CAUSAL) { /* the default */
    HEC_SCOPED(hec_text) kind = {0};
    hec_attention_write(m->attention, m->s2, m->n_heads, &kind);
    hec_json_string(&json, "attention", kind.data);
  }
  hec_json_close(&json);
  out->data[--out->length] = 0; /* the line's end: it becomes a member */
}

/* What the trace says of itself. Paths of this machine mean nothing elsewhere: names of files only. */
static void describe(command *c) {
  const settings *s = c->s;
  const hec_moe *m = &c->model.moe;
  hec_text_printf(&c->source,
                  "own training run of a character-level GPT-MoE language model (hecate-run train) on the text %s: "
                  "%" PRId64 " bytes, %" PRId32 " distinct; recorded, not synthetic",
                  file_name(s->text), c->corpus.n, c->corpus.vocabulary);
  hec_text_printf(&c->notes,
                  "%" PRId64 " steps of %" PRId32 " ranks x %" PRId32 " tokens x %" PRId32
                  " micro-batches, Adam with rate %g, auxiliary balance loss %g, seed %" PRId64
                  ", backend %s, %s. Gate ",
                  s->steps, c->problem.n_ranks, m->tokens_per_rank, s->job.micro_batches, s->rate, s->balancing.aux,
                  s->seed, c->target.backend->name, hec_math_library());
  hec_gate_describe(&c->model, &c->notes);
  hec_text_printf(&c->notes,
                  ", bias of the choice by %g a step. transitions[l][a][b]: number of (token, expert a in layer l, "
                  "expert b in layer l + 1) over all steps%s. Command: hecate-run",
                  s->balancing.bias, c->model.gate->varies ? "" : ", top_k * top_k pairs a token");
  for (int i = 0; i < s->n_words; i++) { /* --option=VALUE: the value alone may be a path */
    const char *word = s->words[i], *equals = strchr(word, '=');
    const char *value = word[0] == '-' && equals ? equals + 1 : word;
    hec_text_printf(&c->notes, " %.*s%s", (int)(value - word), word, file_name(value));
  }
  add_shape(m, &c->shape);
  char name[NAME_BYTES];
  const char *text = file_name(s->text);
  (void)snprintf(name, sizeof name, "charlm-e%" PRId32 "-%s%.*s-%" PRId64, m->n_experts,
                 s->balancing.aux > 0 ? "aux-" : "", (int)strcspn(text, "."), text, s->steps);
  c->header = (hec_trace_header){.name = hec_arena_text(&c->arena, s->name ? s->name : name),
                                 .source = c->source.data,
                                 .notes = c->notes.data,
                                 .shape = c->shape.data,
                                 .phase = HEC_PHASE_TRAIN};
}

/* ---- Checkpoints ---- */

static void add_setting(command *c, const char *option, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void add_setting(command *c, const char *option, const char *format, ...) {
  va_list arguments;
  HEC_ASSERT(c->checkpoint.n_settings < HEC_CHECKPOINT_SETTINGS_MAX);
  va_start(arguments, format);
  c->checkpoint.setting[c->checkpoint.n_settings++] =
      (hec_checkpoint_setting){option, hec_arena_vprintf(&c->arena, format, arguments)};
  va_end(arguments);
}

static uint64_t digest_of(const hec_corpus *corpus) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (int64_t i = 0; i < corpus->n; i++)
    hash = (hash ^ corpus->byte_of[corpus->ids[i]]) * 0x100000001b3u;
  return hash;
}

/* All that losses depend on, but for the number of steps. Where ranks run does not count: a run may move to mpirun. */
static void add_settings(command *c) {
  const settings *s = c->s;
  const hec_moe *m = &c->model.moe;
  HEC_SCOPED(hec_text) attention = {0}, gate = {0};
  hec_attention_write(m->attention, m->s2, m->n_heads, &attention);
  hec_gate_describe(&c->model, &gate);
  add_setting(c, "--text", "%" PRId64 " characters with check sum %016" PRIx64, c->corpus.n, digest_of(&c->corpus));
  add_setting(c, "--ranks", "%" PRId32, c->problem.n_ranks);
  add_setting(c, "--tokens", "%" PRId32, s->job.tokens);
  add_setting(c, "--micro-batches", "%" PRId32, s->job.micro_batches);
  add_setting(c, "--layers", "%" PRId64, s->layers);
  add_setting(c, "--experts", "%" PRId64, s->experts);
  add_setting(c, "--top-k", "%" PRId64, s->top_k);
  add_setting(c, "--d-model", "%" PRId64, s->d_model);
  add_setting(c, "--d-ffn", "%" PRId64, s->d_ffn);
  add_setting(c, "--heads", "%" PRId64, s->heads);
  add_setting(c, "--seq-len", "%" PRId64, s->seq_len);
  add_setting(c, "--attention", "%s", attention.data);
  add_setting(c, "--gate", "%s", gate.data);
  add_setting(c, "--balance", "aux=%g,bias=%g", s->balancing.aux, s->balancing.bias);
  add_setting(c, "--lr", "%g", s->rate);
  add_setting(c, "--seed", "%" PRId64, s->seed);
  add_setting(c, "--policy", "%s", c->policy->name);
  add_setting(c, "--schedule", "%s", c->schedule->name);
  add_setting(c, "--ep", "%" PRId32, c->problem.ep);
  add_setting(c, "--esp", "%" PRId32, c->problem.esp);
  add_setting(c, "--cluster", "%s", c->report.cluster);
}

/* The checkpoint to go on from, if there is one, and the loads of its steps. */
static hec_status find_checkpoint(command *c) {
  const settings *s = c->s;
  const hec_checkpoint *found = &c->checkpoint;
  add_settings(c);
  HEC_TRY(hec_checkpoint_find(&c->checkpoint));
  if (found->step > 0 && !s->resume)
    return hec_fail(HEC_BAD_INPUT,
                    "--checkpoint %s: it has step %" PRId64
                    " of a run; add --resume to go on from there, or choose another folder",
                    s->checkpoint, found->step);
  if (found->step > s->steps)
    return hec_fail(HEC_BAD_INPUT, "--steps: expected at least the %" PRId64 " of the checkpoint in %s, found %" PRId64,
                    found->step, s->checkpoint, s->steps);
  return found->step > 0 ? hec_checkpoint_loads(found, c->record) : HEC_OK;
}

static hec_status make_record(command *c) {
  if (!c->s->record && !c->s->checkpoint)
    return HEC_OK;
  HEC_TRY(hec_record_new(&c->model, c->problem.n_ranks, c->s->job.micro_batches, &c->record));
  c->train.record = c->record;
  if (!c->s->checkpoint)
    return HEC_OK;
  c->checkpoint = (hec_checkpoint){.folder = c->s->checkpoint, .every = c->s->checkpoint_every};
  if (c->target.backend->speaks())
    HEC_TRY(hec_checkpoint_hold(&c->checkpoint));
  HEC_TRY(find_checkpoint(c));
  c->train.checkpoint = &c->checkpoint;
  return HEC_OK;
}

static void measured(void *context, const hec_train_measure *m) {
  command *c = context;
  hec_train_curve *curve = c->report.curve;
  curve->step[curve->n++] = *m;
  (void)snprintf(curve->note, sizeof curve->note, "%s", m->note);
  if (c->s->json)
    return;
  int error = hec_train_report_step(&c->report, m);
  if (error != 0) /* what was learned is worth more than this line: report says it at the end */
    curve->unwritten = error;
}

static hec_status make(command *c) {
  const settings *s = c->s;
  int32_t ranks;
  HEC_TRY(hec_target_open(&s->target, &c->target, &ranks));
  if (c->target.backend->link)
    return hec_fail(HEC_BAD_INPUT, "--backend %s: training on devices is not there yet", c->target.backend->name);
  if (ranks == 0)
    ranks = s->target.ranks > 0 ? s->target.ranks : RANKS;
  if (s->record && c->target.backend->speaks())
    HEC_TRY(hec_output_check_file("--record", s->record));
  HEC_TRY(hec_paths_check((const hec_path_use[]){{"--text", s->text, false},
                                                 {"--cluster", s->job.cluster, false},
                                                 {"--record", s->record, true}},
                          3));
  HEC_TRY(hec_corpus_load(s->text, &c->corpus));
  if (*hec_options_end(s->job.policy) || strcmp(s->job.policy, "all") == 0)
    return hec_fail(HEC_BAD_INPUT, "--policy: expected exactly one policy, found \"%s\"", s->job.policy);
  static const hec_table rows = {.rows = hec_policies, .list = "hecate-run --list"};
  HEC_TRY(hec_policy_read(s->job.policy, &rows, "--policy", &c->arena, &c->policy));
  c->moe = shape_of(s);
  HEC_TRY(choose_attention(s, &c->moe));
  HEC_TRY(hec_language_make(&c->moe, c->corpus.vocabulary, (float)s->rate, (uint64_t)s->seed, &c->model));
  HEC_TRY(hec_gate_set(&c->model, s->gate_row, &s->gate_options));
  HEC_TRY(choose_cluster(c, ranks));
  HEC_TRY(hec_problem_make(&c->model.moe, &c->cluster, true, ranks, s->job.tokens, &c->problem));
  HEC_TRY(hec_job_choose_head(s->job.head_gradients, &c->problem.head_late));
  HEC_TRY(hec_problem_group(&c->problem, s->job.ep));
  HEC_TRY(hec_problem_shard(&c->problem, s->job.esp > 0 ? s->job.esp : 1));
  c->problem.solver = hec_solver_cbc();
  c->train = (hec_train){.problem = &c->problem,
                         .model = &c->model,
                         .corpus = &c->corpus,
                         .n_steps = (int32_t)s->steps,
                         .n_micro_batches = s->job.micro_batches,
                         .schedule = s->job.schedule,
                         .virtual_time = s->target.virtual,
                         .check = s->check,
                         .aux = (float)s->balancing.aux,
                         .bias_rate = (float)s->balancing.bias,
                         .capacity = s->memory,
                         .measured = measured,
                         .context = c};
  HEC_TRY(hec_train_check(&c->train, c->policy));
  if (!c->target.backend->transport)
    HEC_TRY(hec_machine_check_memory(&c->problem, c->problem.n_ranks, s->check));
  HEC_TRY(hec_schedule_of(c->policy, s->job.schedule, &c->schedule));
  describe(c);
  c->report = (hec_train_report){
      .train = &c->train,
      .policy = c->policy,
      .schedule = c->schedule,
      .backend = c->target.backend,
      .transport = c->target.transport,
      .carrier = hec_target_carrier(&c->target),
      .ranks_are = hec_target_ranks_are(&c->target, &s->target),
      .text = s->text,
      .record = s->record,
      .trace_name = c->header.name,
      .cluster = c->report.cluster,
      .seed = s->seed,
      .every = s->every > 0 ? s->every : (s->steps + PRINTED_STEPS - 1) / PRINTED_STEPS,
  };
  hec_train_report_limits(&c->report);
  return make_record(c);
}

static hec_status report(const command *c) {
  if (c->s->json) {
    HEC_SCOPED(hec_text) text = {0};
    hec_train_report_json(&c->report, &text);
    (void)fwrite(text.data, 1, text.length, stdout);
  } else {
    hec_train_report_tail(&c->report);
  }
  int error = fflush(stdout) != 0 ? errno : c->report.curve->unwritten;
  if (error != 0)
    return hec_fail(HEC_FAILED, "standard output: cannot be written: %s", strerror(error));
  return hec_train_report_verdict(&c->report);
}

/* ---- The run ---- */

static hec_status body(hec_rank *rank, void *context) {
  command *c = context;
  return hec_train_run(&c->train, c->policy, rank, rank->rank == 0 ? &c->report.curve->check : NULL);
}

/* A job that is started again and again until it exits with 0 is told that there is nothing left to do. */
static bool has_ended(const command *c) {
  bool ended = c->checkpoint.step > 0 && c->checkpoint.step == c->s->steps;
  if (ended && c->target.backend->speaks())
    fprintf(stderr, "hecate-run train: all %" PRId64 " steps are in %s: nothing to do\n", c->s->steps,
            c->s->checkpoint);
  return ended;
}

static hec_status run(command *c) {
  HEC_TRY(make(c));
  if (has_ended(c))
    return HEC_OK;
  const hec_launch_options options = {.n_ranks = c->problem.n_ranks,
                                      .threads = c->s->target.threads,
                                      .transport = c->target.transport,
                                      .cluster = &c->cluster,
                                      .memory_bytes = hec_train_bytes(&c->train, c->policy),
                                      .limit_s = c->s->target.timeout};
  size_t bytes = sizeof(hec_train_curve) + (size_t)c->s->steps * sizeof(hec_train_measure);
  hec_train_curve *curve = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (curve == MAP_FAILED)
    return hec_fail(HEC_FAILED, "no memory for the results");
  c->report.curve = curve;
  hec_status status = !c->s->json && c->target.backend->speaks() ? hec_train_report_head(&c->report) : HEC_OK;
  if (status == HEC_OK) {
    if (c->target.backend->speaks())
      hec_train_report_warn(&c->report);
    c->launched = true;
    hec_progress_end(); /* the losses come meanwhile */
    status = c->target.backend->launch(&options, body, c);
    if (c->s->record && c->target.backend->speaks())
      status = hec_record_end(c->record, status, c->s->record, &c->header);
  }
  if (status == HEC_OK && c->target.backend->speaks())
    status = report(c);
  (void)munmap(curve, bytes);
  return status;
}

int hec_train_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_status status = parse(argc, argv, &s, &done);
  if (status != HEC_OK || done)
    return hec_tool_exit("hecate-run train", status);
  if (strcmp(s.gate, "list") == 0 && !s.list) {
    list_gates();
    return hec_tool_exit("hecate-run train", HEC_OK);
  }
  if (s.list) /* replay's: they are the same */
    return hec_replay_command(2, (char *[]){"hecate-run", "--list", NULL});
  command c = {.s = &s};
  status = run(&c);
  hec_text_free(&c.source);
  hec_text_free(&c.notes);
  hec_text_free(&c.shape);
  hec_record_free(c.record);
  hec_corpus_free(&c.corpus);
  hec_arena_free(&c.arena);
  return hec_target_exit(&c.target, "hecate-run train", status, c.launched);
}
