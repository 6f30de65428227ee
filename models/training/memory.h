/* What a training step keeps in a device's memory: closed forms, bytes, of one rank. Who adds them up over time is
 * sim/training_memory.h.
 *
 *   state         parameters, gradients and optimizer, shared out by the ZeRO level
 *   activations   of one micro-batch in one layer, from its forward to its backward, without what the recipe recomputes
 *   working       what the backward of one layer needs on top: what is recomputed, gradients, buffers of the dispatcher
 *   standing      buffers that are there all the time: weight gradients before they are added up; FSDP's gathered layers
 *
 * Attention never keeps its scores (FlashAttention). Experts count the rows that the rank really receives. */
#pragma once
#include "models/training/step.h"

typedef struct {
  double parameters, gradients, optimizer;
} hec_state_bytes;

/* Of a device with so many parameters, as hec_training_params counts them. Level 1 divides the optimizer, 2 the gradients too,
 * 3 the parameters too: the dense part by dp x cp, experts by edp. */
hec_state_bytes hec_state_bytes_of(const hec_training *t, double dense, double expert);

typedef struct {
  double activations;    /* kept from forward to backward */
  double weight;         /* what is kept of a split backward, from the input gradient to the weight gradient */
  double logits;         /* HEC_LAYER_HEAD alone: kept from forward to backward */
  double recomputed;     /* while its backward runs */
  double working;        /* while its backward runs: gradients and dispatcher buffers */
  double guests;         /* copies of experts, kept from forward to backward */
  double guests_working; /* while its backward runs: their gradients, those gathered again, and the next layer's */
} hec_layer_bytes;

/* `load`: NULL if balanced. */
hec_layer_bytes hec_layer_bytes_of(const hec_training *t, hec_layer_kind kind, const hec_layer_load *load);

/* Standing buffers of a device that has these kinds of layers; head or embedding: the first or the last part of the model. */
typedef struct {
  bool dense, moe;
  int32_t embeddings; /* embedding, head: 0 to 2 */
} hec_device_layers;
double hec_standing_bytes_of(const hec_training *t, const hec_device_layers *has);

/* What the allocator takes from the device over what tensors take, and what is taken outside of it. */
extern const double hec_allocator_loss, hec_outside_bytes;
/* Taken from the device where tensors take `allocated`. */
double hec_reserved_bytes(double allocated);
/* What a program sees of a device's memory. */
double hec_visible_bytes(const hec_gpu_sheet *sheet);
