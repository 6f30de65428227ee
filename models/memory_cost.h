/* Closed-form bytes per rank; the program (runtime/program) tracks the same classes over time. */
#pragma once
#include "models/moe.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  double expert_param, expert_grad, expert_optimizer; /* bytes of one routed expert */
  double dense_param, dense_grad, dense_optimizer;    /* bytes of everything replicated on each rank */
  double activation_layer; /* per MoE block, kept from forward to backward, without expert activations (recompute: input
                              only) */
  double activation_rest;  /* blocks without MoE, embedding and head */
  double token;            /* one assignment's activation row on the wire: d_model * dtype */
  double expert_row;       /* per assignment computed by an expert: input and inner activations (recompute: input) */
  double returned_row;     /* kept per assignment at its token's rank: the expert's output, for the gate's gradient */
} hec_memory_cost;

/* `tokens` per rank; forward only: no gradients or optimizer; activations live as long as their layer is computed. */
hec_memory_cost hec_memory_cost_of(const hec_moe *moe, int32_t tokens, bool train);
