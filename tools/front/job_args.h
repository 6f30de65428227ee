/* The options that choose model, cluster, ranks and policies mean the same in every tool. */
#pragma once
#include "runtime/base/paths.h"
#include "runtime/plan/collective.h"
#include "runtime/plan/policy.h"
#include "runtime/program/summary.h"
#include "sim/simulate.h"
#include "tools/front/job_make.h"
#include "tools/front/options.h"

/* What TRACE and the line of --cluster look like, for the end of a help text. */
#define HEC_JOB_ARGS_FORMS                                                                                             \
  "TRACE: JSON Lines, one JSON object or gzip of either; - is standard input. The form: traces/README.md.\n"           \
  "Cluster line: NODESxDEVICES gpu=NAME [KEY=VALUE ...], or NODESxDEVICES flops=F mem=B [KEY=VALUE ...].\n"            \
  "  Numbers take K M G T P, times ns us ms s. RATE may be RATE@LATENCY.\n"                                            \
  "  gpu: laws, links and memory of that GPU (hecate-sim --list devices).\n"                                           \
  "  flops: FLOP/s of a device. mem: its bytes. nvlink, hbm: its bytes/s.\n"                                           \
  "  nic: bytes/s of a network card. nics: cards of a node (1). uplink: bytes/s of a leaf. leaf: its nodes.\n"         \
  "  eff, nvlink_eff, nic_eff: share of flops (0.8), nvlink and nic (1) that is reached.\n"                            \
  "  p2p=CHANNELS:PER_PEER: of law nccl_rounds (32:4). slow=DEVICE:SPEED: a slower device.\n"                          \
  "  tile, a, c, launch, sm, pxn, through, plan: see models/cluster_spec.h and models/presets/.\n"                     \
  "Model file: JSON with name, layers, d_model, d_ffn, ffn_matrices, experts, top_k, heads, seq_len.\n"                \
  "  models/moe.h lists the other keys. hecate-sim --preset NAME prints one to begin with."

/* The kinds of attention in a list "K,K,...", where parameters of s2 stand between the same commas: copies on the arena.
 * NULL text: n = 1, kind[0] = NULL. HEC_BAD_INPUT: more than HEC_ATTENTIONS_MAX, an empty one, one twice. */
hec_status hec_job_args_attentions(const char *text, hec_arena *arena, const char *kind[HEC_ATTENTIONS_MAX],
                                   int32_t *n) HEC_MUST_USE;

/* What a command with these options reads, for hec_paths_check. `trace` may be NULL. */
enum { HEC_JOB_READS = 4 };
void hec_job_args_reads(const hec_job_options *options, const char *trace, hec_path_use reads[HEC_JOB_READS]);

/* Opens a trace that will be read more than once: "-" is standard input, kept in *kept (free it after closing). */
hec_status hec_job_args_open(const char *path, hec_text *kept, hec_trace_reader **reader) HEC_MUST_USE;

enum { HEC_POLICIES_MAX = 64 };
/* "all" (but those that stand by a placement) or a list "NAME,NAME:option=value,...", those with options on the arena;
 * unknown or double names are errors. */
hec_status hec_job_args_policies(const char *list, hec_arena *arena, const hec_policy *policies[HEC_POLICIES_MAX],
                                 int32_t *n) HEC_MUST_USE;
/* --policy; with --placement, those that stand by it come first, named or not. --first-layer without it is refused. */
hec_status hec_job_args_chosen(const hec_job_options *options, hec_arena *arena,
                               const hec_policy *policies[HEC_POLICIES_MAX], int32_t *n) HEC_MUST_USE;
/* Every policy under every schedule of a list "S,S,...", policy by policy. A pair that stands already is left out
 * (rows that run under one schedule only). "best" stands alone. On the arena. Unknown or double names are errors. */
typedef struct {
  const hec_policy **policies; /* [n] */
  const char **schedules;      /* [n] NULL: "best" for each */
  int32_t n;
} hec_job_rows;
hec_status hec_job_args_rows(const hec_policy *const *policies, int32_t n_policies, const char *schedules,
                             hec_arena *arena, hec_job_rows *rows) HEC_MUST_USE;
hec_status hec_job_args_collective(const char *name,
                                   const hec_collective **collective) HEC_MUST_USE; /* NULL name: NULL */
hec_status hec_job_args_law(const char *name, const hec_law **law) HEC_MUST_USE;

/* Prints policies, schedules, collectives, laws and presets. */
void hec_job_args_list(void);
void hec_job_args_list_policies(void); /* as a Markdown table: docs/policies.md has it */
/* Prints the preset of a model or cluster, as its file stands in models/presets/. HEC_BAD_INPUT: there is none. */
hec_status hec_job_args_print_preset(const char *name) HEC_MUST_USE;
