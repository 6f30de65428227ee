/* Options that describe a run, a row each: the one place that knows them. A row makes the member of hec_job_options and
 * the option of every command that takes it, with its help, manual page and completion. It also makes the key of JSON
 * and of the spec of a sweep, and the column of its results. What the member means is job_make.c's.
 *
 *   X(name, kind, absent, value, help, min, max, values)
 *
 *     name     of the member and the key, micro_batches; its flag is --micro-batches
 *     kind     FLAG; TEXT a word; MAYBE a word, where a sweep may also vary whether there is one; WHOLE a number; REAL; PAPER a whole
 *              number or "paper"; ROW the name of a row of a table, which chooses what is compared, not the job
 *     absent   the member without the option
 *     value    name of the value in the help
 *     min, max     of numbers
 *     values   what completion offers: a table of options.c, or none
 *
 * Which commands take a row, and in which order their help has it, say the groups below. */
#pragma once
#include "runtime/base/option.h"
#include "traces/trace.h"

#include <stdint.h>

/* clang-format off */
/* Axes of a sweep, the first turning slowest: of the job, then (below) of a training job, then rows to be compared. */
#define HEC_JOB_AXIS_LIST(X) \
  X(model, TEXT, NULL, "M", "preset (--list), JSON file, or a config.json of Hugging Face; layers, experts and top-k come from the trace", 0, 0, models) \
  X(cluster, TEXT, NULL, "C", "preset (--list), JSON file, or a line as \"4x8 gpu=h100 nics=8\" (default p4d-4x8, above 32 ranks h800)", 0, 0, clusters) \
  X(slow, MAYBE, NULL, "S[,S...]", "rank=3:0.8 computes at that share of its speed; link=nic_out:node1:0.5 (port_in:device5, nic_in:node0.nic2, leaf_up:leaf0) carries that share", 0, 0, none) \
  X(skew, MAYBE, NULL, "S[,S...]", "rank=2:500us begins its iteration that late", 0, 0, none) \
  X(ranks, WHOLE, 0, "R", "ranks, one per device (default: the trace's, else all devices)", 1, 65536, none) \
  X(tokens, WHOLE, 0, "N", "tokens per rank and micro-batch; loads are scaled to it (default: the trace's)", 1, 100000000, none) \
  X(micro_batches, WHOLE, 0, "N", "micro-batches of an iteration that has one record: it is repeated (default 1)", 1, HEC_MICRO_BATCHES_MAX, none) \
  X(layers, WHOLE, 0, "N", "the first N MoE layers of the trace (default: all)", 1, 65536, none) \
  X(phase, TEXT, NULL, "P", "train or forward (default: from the trace)", 0, 0, phases) \
  X(attention, TEXT, NULL, "K", "full, causal, s2, s2:shards=N,local=N,block=N,dense=N or window:local=N,dense=N (default: the model's)", 0, 0, attentions) \
  X(nonmoe_scale, REAL, 0, "F", "factor on the time of attention and the rest outside MoE (default 1)", 1e-6, 1e6, none) \
  X(ep, WHOLE, 0, "N", "ranks of an expert-parallel group: a divisor of the ranks, at most the experts; the groups hold copies of the same experts (default: the largest)", 1, 65536, none) \
  X(esp, WHOLE, 0, "S", "ranks of an expert-sharding group inside a node: every expert in S shards (default 1; policies ep and ep-balanced)", 1, 65536, none) \
  X(mp, WHOLE, 0, "S", "ranks of a tensor-parallel group inside a node: attention and dense FFNs in S shards (default 1)", 1, 65536, none) \
  X(head_gradients, TEXT, NULL, "WHEN", "dense gradients of the language-model head are all-reduced beside the backward of the layers (default, as with gradient buckets) or after it", 0, 0, heads) \
  X(dispatcher, TEXT, NULL, "D", "how tokens travel (--list): alltoall (default), allgather, deepep, hybridep; with --layout short for dispatcher= in --recipe", 0, 0, dispatchers) \
  X(dispatch_sms, WHOLE, 0, "N", "SMs that copy tokens, of dispatcher deepep (default 24)", 1, 1024, none) \
  X(dispatch_precision, TEXT, NULL, "P", "of tokens on the way to their experts: bf16 (default) or fp8; they come back in bf16", 0, 0, travels) \
  X(t, PAPER, HEC_AUTO, "N|paper", "FSSDP: hottest experts copied per layer before the gate (default: what hides)", 0, 1000000, degrees) \
  X(m, WHOLE, HEC_AUTO, "N", "FSSDP: max copies per rank and layer (default: what memory allows)", 0, 1000000, none) \
  X(period, WHOLE, HEC_AUTO, "N", "iterations between decisions of periodic policies (default: each policy's own)", 1, 1000000000, none) \
  X(slots, WHOLE, HEC_AUTO, "N", "expert slots per rank and layer of policies that reserve some: at least experts / ranks (default: their own)", 1, 1000000, none) \
  X(warmup, WHOLE, -1, "N", "iterations run but not reported (default 5; 0 below 12 iterations)", 0, 1000000000, none)
#define HEC_ROW_AXIS_LIST(X) \
  X(collective, ROW, NULL, "K", "a sparse collective of --list (default: the cheapest by cost)", 0, 0, collectives) \
  X(law, ROW, "alpha_beta", "L", "network law of --list: alpha_beta (default), max_min (exact sharing, slower), nccl_rounds (bounded as in NCCL)", 0, 0, laws) \
  X(schedule, ROW, NULL, "S", "published (default: each policy's own) or a schedule of --list for all", 0, 0, schedules) \
  X(policy, ROW, "all", "P[,P...]", "policies to compare, or all (default); with options: llep:cap=1.5; see --list", 0, 0, policies)
#define HEC_OTHER_OPTION_LIST(X) \
  X(placement, TEXT, NULL, "FILE", "where experts stand now, as row \"given\": EPLB or vllm-ascend JSON, TensorRT-LLM YAML (told apart by content)", 0, 0, none) \
  X(first_layer, WHOLE, -1, "N", "the model's layer that is the first MoE layer, in placements that number dense layers too (default: the file's first)", 0, 10000, none)
#define HEC_OPTION_LIST(X) HEC_JOB_AXIS_LIST(X) HEC_ROW_AXIS_LIST(X) HEC_OTHER_OPTION_LIST(X)

/* Where ranks run, of commands that execute: members of hec_target_args. */
#define HEC_TARGET_OPTION_LIST(X) \
  X(backend, TEXT, "cpu", "B", "cpu (default), mpi, nccl, or list: which there are, and why not", 0, 0, backends) \
  X(transport, TEXT, NULL, "T", "of backend cpu: shm (default), emulated, paced; of nccl: nccl, local; see --list", 0, 0, transports) \
  X(precision, TEXT, NULL, "P", "of backend nccl: products in fp32 (default), tf32 or bf16; all else is float32", 0, 0, precisions) \
  X(threads, FLAG, false, NULL, "ranks are threads of one process, not processes (of backend nccl they are)", 0, 0, none) \
  X(virtual, FLAG, false, NULL, "one rank computes at a time; transfers take what the cluster's links would: for more ranks than cores or devices", 0, 0, none) \
  X(pin, FLAG, false, NULL, "each rank (of backend nccl: its host thread) on a core of its own", 0, 0, none) \
  X(timeout, REAL, 0, "S", "longest wait for a peer, s (default 60)", 0.01, 1e6, none)

/* A training job of many GPUs: members of hec_training_args; axes of a sweep, too. */
#define HEC_TRAINING_OPTION_LIST(X) \
  X(setup, TEXT, NULL, "NAME|FILE", "a training job as a file: model, GPUs, layout, batch, recipe; preset (--list) or JSON file; the other options change what they name", 0, 0, setups) \
  X(layout, TEXT, NULL, "TEXT", "how the GPUs are shared out: \"tp=2 pp=8 vpp=2 ep=32 etp=1 cp=1\"; what is not named is 1. Predicts a training step instead of an iteration of one group.", 0, 0, none) \
  X(gpus, WHOLE, 0, "N", "GPUs of the job (default: the set-up's, else all of the cluster)", 1, 1048576, none) \
  X(global_batch, WHOLE, 0, "N", "sequences of a step, all GPUs together", 1, 1073741824, none) \
  X(seq, WHOLE, 0, "N", "tokens of a sequence", 1, 1073741824, none) \
  X(micro_batch, WHOLE, 0, "N", "sequences of a micro-batch of one data-parallel rank", 1, 1048576, none) \
  X(mtp, WHOLE, -1, "N", "multi-token prediction layers", 0, 64, none) \
  X(capacity, REAL, 0, "F", "each rank drops its assignments to an expert above F times its mean over experts (default: none is dropped)", 1, 1e6, none) \
  X(recipe, TEXT, NULL, "TEXT", "what else decides the time: \"precision=mxfp8 dispatcher=deepep overlap=on recompute=norm+act zero=1\", with dispatch, graph, fused, grads, dp-overlap, head, fabric; or a preset (--list). What is not stated is assumed, and said.", 0, 0, recipes) \
  X(precision, TEXT, NULL, "P", "short for precision= in --recipe: of the GEMMs", 0, 0, gemms) \
  X(recompute, TEXT, NULL, "R[+R...]", "short for recompute= in --recipe: none, norm, act, mlp, attention, moe, full", 0, 0, recomputed) \
  X(zero, WHOLE, -1, "N", "short for zero= in --recipe: 0 to 3, where 3 is FSDP", 0, 3, zeros) \
  X(pipeline, TEXT, NULL, "NAME", "pipeline schedule (default 1f1b, with virtual stages interleaved)", 0, 0, pipelines) \
  X(measured, TEXT, NULL, "TEXT", "\"step=19.7s\": the time of a step of your own run of this layout; one factor is fitted to it. \"factor=1.1\": that of an earlier fit, for other layouts", 0, 0, none)

/* Of synthetic traces, X(name, kind, member of hec_synth_options, value, help, min, max): options of hecate-trace synth,
 * keys of "synth" in the spec of a sweep. LONG: a whole number of 64 bits. Further bounds are hec_synth_check's. */
#define HEC_SYNTH_OPTION_LIST(X) \
  X(workload, TEXT, workload, "W", "name or number from the list above (required)", 0, 0) \
  X(layers, WHOLE, n_layers, "N", "MoE layers (default 12)", 0, INT32_MAX) \
  X(experts, WHOLE, n_experts, "N", "experts of a layer (default 64)", 0, INT32_MAX) \
  X(top_k, WHOLE, top_k, "N", "different experts of a token (default 2)", 0, INT32_MAX) \
  X(source_ranks, WHOLE, n_sources, "N", "data-parallel ranks that send tokens (default 32)", 0, INT32_MAX) \
  X(ranks, WHOLE, ranks, "R", "ranks the hot ones are among; written to the header (default: source ranks if above 1, else 8)", 0, INT32_MAX) \
  X(hot_experts, WHOLE, n_hot, "N", "W1: how many (default: as many as a rank holds)", 0, INT32_MAX) \
  X(period, WHOLE, period, "N", "W6, W7: iterations (default 20)", 0, INT32_MAX) \
  X(tokens, LONG, tokens, "N", "tokens per source rank and layer; every row sums to N * top-k (default 2048)", 0, HEC_LONG_MAX) \
  X(iterations, LONG, n_iterations, "N", "records (default 100)", 0, HEC_LONG_MAX) \
  X(switch, LONG, switch_iter, "I", "popularity is drawn anew at iteration I", 0, HEC_LONG_MAX) \
  X(seed, LONG, seed, "N", "(default 1)", 0, HEC_LONG_MAX) \
  X(sigma, REAL, sigma, "X", "lognormal: standard deviation of the log popularity (default 1)", 0, 20) \
  X(exponent, REAL, exponent, "X", "zipf: popularity of the k-th expert is k^-X (default 1)", 0, 20) \
  X(hot_share, REAL, hot_share, "X", "W1 W2 W3 W6 W7: share of the assignments for the hot experts (default 0.5)", 0, 1) \
  X(idle_share, REAL, idle_share, "X", "W5: share of the experts without tokens (default 0.25)", 0, 1) \
  X(affinity, REAL, affinity, "X", "transitions between layers, written to the header (default: none). 0: the next layer's experts do not depend on this one's; 1: as much as can be.", 0, 1) \
  X(name, TEXT, name, "TEXT", "name of the trace", 0, 0) \
  X(shape, TEXT, shape, "NAME", "model preset for the simulator, written to the header", 0, 0)
#define HEC_LONG_MAX 9007199254740992.0 /* exact as a double */
/* clang-format on */

/* Groups of keys, in the order of the help. A command takes groups; an option that it would refuse is in none of them.
 *
 *   JOB         every command that reads a trace       POLICY      hecate-sim, hecate-run, compare
 *   DENSE       hecate-sim, hecate-run                 PLACEMENT   hecate-sim, plan, hecate-run
 *   STRAGGLERS  hecate-sim, plan                       PLANNING    plan; part of POLICY
 *   DISPATCH    hecate-sim                             TRAINING    hecate-sim, recommend
 *   HEAD        hecate-sim, train: what else executes has no head */
#define HEC_OPTIONS_JOB "cluster model ranks tokens micro_batches phase warmup"
#define HEC_OPTIONS_STRAGGLERS "slow skew"
#define HEC_OPTIONS_PLANNING "t m period slots attention"
#define HEC_OPTIONS_POLICY "policy schedule collective " HEC_OPTIONS_PLANNING " ep esp"
#define HEC_OPTIONS_DENSE "mp nonmoe_scale"
#define HEC_OPTIONS_HEAD "head_gradients"
#define HEC_OPTIONS_PLACEMENT "placement first_layer"
#define HEC_OPTIONS_TRAINING                                                                                           \
  "setup layout gpus global_batch seq micro_batch mtp capacity recipe precision recompute zero pipeline measured"
#define HEC_OPTIONS_DISPATCH "dispatcher dispatch_sms dispatch_precision"

#define HEC_OPTION_TYPE_FLAG bool
#define HEC_OPTION_TYPE_TEXT const char *
#define HEC_OPTION_TYPE_MAYBE const char *
#define HEC_OPTION_TYPE_ROW const char *
#define HEC_OPTION_TYPE_WHOLE int32_t
#define HEC_OPTION_TYPE_PAPER int32_t
#define HEC_OPTION_TYPE_REAL double
#define HEC_OPTION_MEMBER(name, kind, ...) HEC_OPTION_TYPE_##kind name;

typedef struct {
  HEC_OPTION_LIST(HEC_OPTION_MEMBER)
  /* What no option says: */
  const char *cluster_text, *model_text; /* content of the JSON file that is named so; NULL: read when it is needed */
  const char *like; /* executed on devices: a preset with such devices, when there is no cluster; NULL: CPUs */
  int32_t per_host; /* executed: ranks of each host, when there is no cluster; 0: all are on one */
  const struct hec_solver *solver; /* of integer programmes, for planners; NULL: none */
  int32_t n_stages; /* executed: `ranks` and `ep` are those of one of so many pipeline stages; 0: there are none */
  bool executed;    /* the shape as CPUs compute it: float32, no blocks but MoE, no vocabulary, no recomputation */
} hec_job_options;

typedef struct {
  HEC_TARGET_OPTION_LIST(HEC_OPTION_MEMBER)
  int32_t ranks; /* asked for; 0: not */
} hec_target_args;

typedef struct {
  HEC_TRAINING_OPTION_LIST(HEC_OPTION_MEMBER)
  const char *setup_text; /* content of the JSON file that `setup` names; NULL: read when it is needed */
  const char *assumed; /* parts of a recipe that are assumed otherwise than hec_recipe_default has them; NULL: none */
} hec_training_args;

#define HEC_OPTION_ABSENT(name, kind, absent, ...) .name = absent,
#define HEC_TARGET_ARGS ((hec_target_args){HEC_TARGET_OPTION_LIST(HEC_OPTION_ABSENT).ranks = 0})
#define HEC_TRAINING_ARGS ((hec_training_args){HEC_TRAINING_OPTION_LIST(HEC_OPTION_ABSENT).setup_text = NULL})
#define HEC_JOB_OPTIONS ((hec_job_options){HEC_OPTION_LIST(HEC_OPTION_ABSENT).solver = NULL})
