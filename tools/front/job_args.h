/* The options that choose model, cluster, ranks and policies mean the same in every tool. */
#ifndef HEC_FRONT_JOB_ARGS_H
#define HEC_FRONT_JOB_ARGS_H
#include "runtime/base/paths.h"
#include "runtime/plan/collective.h"
#include "runtime/plan/policy.h"
#include "runtime/program/summary.h"
#include "sim/simulate.h"
#include "tools/front/args.h"
#include "tools/front/job_make.h"

typedef struct {
  const char *cluster, *model, *attention, *phase, *policies, *schedule, *law, *collective, *t;
  hec_stragglers stragglers;
  const char *placement;
  int64_t first_layer, ranks, tokens, micro_batches, warmup, m, period, slots, ep, esp, mp;
  double nonmoe_scale;
} hec_job_args;

extern const hec_job_args hec_job_args_default;

/* Rows of a table of options (args.h). */
/* clang-format off */
#define HEC_JOB_ARG_ROWS(a) \
  HEC_ARG_TITLE("What runs"), \
  HEC_ARG_WORD("--cluster", (a).cluster, "C", "preset (--list), JSON file or line, see Cluster below (default p4d-4x8, above 32 ranks h800)"), \
  HEC_ARG_WORD("--model", (a).model, "M", "preset (--list), JSON file, or a config.json of Hugging Face; layers, experts and top-k come from the trace"), \
  HEC_ARG_WHOLE("--ranks", (a).ranks, "R", "ranks, one per device (default: the trace's, else all devices)", 1, 65536), \
  HEC_ARG_WHOLE("--tokens", (a).tokens, "N", "tokens per rank and micro-batch; loads are scaled to it (default: the trace's)", 1, 100000000), \
  HEC_ARG_WHOLE("--micro-batches", (a).micro_batches, "N", "micro-batches of an iteration that has one record: it is repeated (default 1)", 1, 4096), \
  HEC_ARG_WORD("--phase", (a).phase, "P", "train or forward (default: from the trace)"), \
  HEC_ARG_WHOLE("--warmup", (a).warmup, "N", "iterations run but not reported (default 5; 0 below 12 iterations)", 0, 1000000000)

/* S, K: names of the values of --schedule and --attention: "S[,S...]" of commands that take several. */
#define HEC_POLICY_ARG_ROWS(a, S, K) \
  HEC_ARG_TITLE("Policies"), \
  HEC_ARG_WORD("--policy", (a).policies, "P[,P...]", "policies to compare, or all (default); see --list"), \
  HEC_ARG_WORD("--schedule", (a).schedule, S, "auto (default: each policy's own) or a schedule of --list for all"), \
  HEC_ARG_WORD("--collective", (a).collective, "K", "a sparse collective of --list (default: the cheapest by cost)"), \
  HEC_FSSDP_ARG_ROWS(a, K), \
  HEC_ARG_WHOLE("--ep", (a).ep, "N", "ranks of an expert-parallel group: a divisor of the ranks, at most the experts; the groups hold copies of the same experts (default: the largest)", 1, 65536), \
  HEC_ARG_WHOLE("--esp", (a).esp, "S", "ranks of an expert-sharding group inside a node: every expert in S shards (default 1; policies ep and ep-balanced)", 1, 65536), \
  HEC_ARG_WHOLE("--mp", (a).mp, "S", "ranks of a tensor-parallel group inside a node: attention and dense FFNs in S parts (default 1)", 1, 65536), \
  HEC_ARG_REAL("--nonmoe-scale", (a).nonmoe_scale, "F", "factor on the time of attention and the rest outside MoE (default 1)", 1e-6, 1e6)

/* Of commands that compare with what the user has. */
#define HEC_PLACEMENT_ARG_ROWS(a) \
  HEC_ARG_WORD("--placement", (a).placement, "FILE", "where experts stand now, as row \"given\": EPLB or vllm-ascend JSON, TensorRT-LLM YAML (told apart by content)"), \
  HEC_FIRST_LAYER_ARG_ROWS(a)
#define HEC_FIRST_LAYER_ARG_ROWS(a) \
  HEC_ARG_WHOLE("--first-layer", (a).first_layer, "N", "the model's layer that is the first MoE layer, in placements that number dense layers too (default: the file's first)", 0, 10000)

/* Of commands that simulate; an execution refuses what it cannot imitate. */
#define HEC_SLOW_ARG_ROW(a) \
  HEC_ARG_WORD("--slow", (a).slow, "S[,S...]", "rank=3:0.8 computes at that share of its speed; link=nic_out:node1:0.5 (port_in:device5, nic_in:node0.nic2, leaf_up:leaf0) carries that share")
#define HEC_STRAGGLER_ARG_ROWS(a) \
  HEC_SLOW_ARG_ROW(a), \
  HEC_ARG_WORD("--skew", (a).skew, "S[,S...]", "rank=2:500us begins its iteration that late")

#define HEC_FSSDP_ARG_ROWS(a, K) \
  HEC_ARG_WORD("--t", (a).t, "N|paper", "FSSDP: hottest experts copied per layer before the gate (default: what hides)"), \
  HEC_ARG_WHOLE("--m", (a).m, "N", "FSSDP: most copies per rank and layer (default: what memory allows)", 0, 1000000), \
  HEC_ARG_WHOLE("--period", (a).period, "N", "iterations between decisions of periodic policies (default: each policy's own)", 1, 1000000000), \
  HEC_ARG_WHOLE("--slots", (a).slots, "N", "expert slots per rank and layer of policies that reserve some: at least experts / ranks (default: their own)", 1, 1000000), \
  HEC_ARG_WORD("--attention", (a).attention, K, "full, causal, s2 or s2:shards=N,local=N,block=N,dense=N (default: the model's)")
/* clang-format on */

hec_status hec_job_args_options(const hec_job_args *args, hec_job_options *options) HEC_MUST_USE;

/* What TRACE and the line of --cluster look like, for the end of a help text. */
#define HEC_JOB_ARGS_FORMS                                                                                             \
  "TRACE: JSON Lines, one JSON object or gzip of either; - is standard input. The form: traces/README.md.\n"           \
  "Cluster line: NODESxDEVICES flops=F mem=B [nvlink=RATE@LATENCY] [nic=RATE@LATENCY] ..., with K M G T P and ns us "  \
  "ms s:\n"                                                                                                            \
  "  nvlink and hbm of a device, nic of a node, uplink of a leaf: bytes/s; flops: FLOP/s, mem: bytes of a device;\n"   \
  "  eff, nvlink_eff, nic_eff: share of flops (0.8), nvlink and nic (1) that is reached; nics per node (1);\n"         \
  "  leaf: nodes per leaf; p2p=CHANNELS:PER_PEER of law nccl_rounds (32:4);\n"                                         \
  "  slow=DEVICE:SPEED, and tile, a, c, launch (GEMM, kernels), sm, pxn, through, plan: models/cluster_spec.h,\n"      \
  "  as in models/presets/.\n"                                                                                          \
  "Model file: JSON with name, layers, d_model, d_ffn, ffn_matrices, experts, top_k, heads, seq_len, and what stands\n" \
  "  in models/moe.h; hecate-sim --preset NAME prints one to begin with."

/* The kinds of attention in a list "K,K,...", where parameters of s2 stand between the same commas: copies on the arena.
 * NULL text: n = 1, kind[0] = NULL. HEC_BAD_INPUT: more than HEC_ATTENTIONS_MAX, an empty one, one twice. */
hec_status hec_job_args_attentions(const char *text, hec_arena *arena, const char *kind[HEC_ATTENTIONS_MAX],
                                   int32_t *n) HEC_MUST_USE;

/* What a command with these options reads, for hec_paths_check. `trace` may be NULL. */
enum { HEC_JOB_READS = 4 };
void hec_job_args_reads(const hec_job_args *args, const char *trace, hec_path_use reads[HEC_JOB_READS]);

/* Opens a trace that will be read more than once: "-" is standard input, kept in *kept (free it after closing). */
hec_status hec_job_args_open(const char *path, hec_text *kept, hec_trace_reader **reader) HEC_MUST_USE;

enum { HEC_POLICIES_MAX = 64 };
/* "all" (but those that stand by a placement) or a comma-separated list; unknown or double names are errors that list the
 * rows. */
hec_status hec_job_args_policies(const char *list, const hec_policy *policies[HEC_POLICIES_MAX],
                                 int32_t *n) HEC_MUST_USE;
/* --policy; with --placement, those that stand by it come first, named or not. --first-layer without it is refused. */
hec_status hec_job_args_chosen(const hec_job_args *args, const hec_policy *policies[HEC_POLICIES_MAX],
                               int32_t *n) HEC_MUST_USE;
/* Every policy under every schedule of a list "S,S,...": policy by policy, a pair that stands already left out (rows that
 * run under one schedule only). On the arena. Unknown or double names are errors. */
typedef struct {
  const hec_policy **policies; /* [n] */
  const char **schedules;      /* [n] */
  int32_t n;
} hec_job_rows;
hec_status hec_job_args_rows(const hec_policy *const *policies, int32_t n_policies, const char *schedules,
                             hec_arena *arena, hec_job_rows *rows) HEC_MUST_USE;
hec_status hec_job_args_collective(const char *name,
                                   const hec_collective **collective) HEC_MUST_USE; /* NULL name: NULL */
hec_status hec_job_args_law(const char *name, const hec_law **law) HEC_MUST_USE;

/* Prints policies, schedules, collectives, laws and presets. */
void hec_job_args_list(void);
/* Prints the preset of a model or cluster, as its file stands in models/presets/. HEC_BAD_INPUT: there is none. */
hec_status hec_job_args_print_preset(const char *name) HEC_MUST_USE;

#endif
