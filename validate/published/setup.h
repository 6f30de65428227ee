/* The set-up behind a number: cluster, model, policy, loads. Its fields are named in setup.c, and a row of a system's file may
 * name any of them.
 *
 *   model       a preset, whose fields the following change: layers (all of them MoE), experts, top_k, shared_experts;
 *               d_model, d_ffn, d_ffn_dense, heads (key and value heads too), d_head, seq_len, ffn_matrices;
 *               dtype_bytes, grad_bytes, optimizer_bytes; capacity_factor, nonmoe_scale, recompute
 *   run         cluster, ranks, tokens (per rank and micro-batch), ep (ranks of an expert-parallel group), period;
 *               slots, t, m, micro_batches, warmup (iterations not reported), forward (alone); nic_share (of the rate
 *               between nodes)
 *   loads       "lognormal": popularity with sigma, or the sigma under which contiguous experts on imbalance_ep ranks have
 *               this imbalance (busiest over mean); drift as in training. "hot": share of the assignments to the first `hot`
 *               experts. "recorded": file, below the folder of recorded data; record: that record alone, standing still.
 *               "series": as the FSSDP paper's rows take them (loads.h). iterations: how many
 *   of FSMoE    testbed, length, batch, factor, attention_table, and layers, d_model, d_ffn, heads, ffn_matrices */
#pragma once
#include "models/moe.h"
#include "validate/published/scope.h"

/* Texts live as long as the file. */
typedef struct {
  const char *cluster, *model, *policy, *setting, *loads, *file, *testbed;
  hec_moe moe;
  int32_t ranks, tokens, ep, period, slots, t, m, micro_batches, warmup; /* ep, period, slots: 0 for the policy's own */
  int32_t iterations, imbalance_ep, hot, record;                         /* record -1: all of them */
  int32_t layer;                                                         /* of a cell's field "layer" */
  int32_t length, batch;
  double nic_share, sigma, imbalance, share, factor;
  bool forward, drift, beyond, attention_table; /* beyond: t is half as large again as Hecate's own */
} hec_setup;

hec_setup hec_setup_default(void);
bool hec_setup_has(const char *field);
/* What the scope says over `base`, whose nonmoe_scale, if it has one, counts for every preset. */
hec_status hec_setup_read(const hec_scope *scope, const hec_setup *base, hec_setup *setup) HEC_MUST_USE;
/* A field that is a number or a flag (0 or 1), by its name; false: there is none. */
bool hec_setup_get(const hec_setup *setup, const char *field, double *value);
void hec_setup_set(hec_setup *setup, const char *field, double value);
/* Two set-ups with one text are one. `loads`: only what decides loads. */
void hec_setup_key(const hec_setup *setup, bool loads, hec_text *key);
