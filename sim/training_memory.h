/* Memory of a pipeline's devices over a step. A device has state, standing buffers, and the activations of the
 * micro-batches in flight, in the order of the schedule. The backward at work needs its own on top
 * (models/training/memory.h). The peak is that of the worst device at its worst moment; the busiest expert-parallel
 * rank's rows count where loads are given. */
#pragma once
#include "models/training/memory.h"
#include "sim/pipeline_run.h"

/* Bytes of one device at one moment. */
typedef struct {
  double parameters, gradients, optimizer;
  double activations; /* of all micro-batches in flight, and of the layer that is recomputed */
  double logits;      /* and their gradient */
  double copies;      /* of experts: replicas with their state, guests and their gradients */
  double buffers;     /* standing ones, gradients of a layer, the dispatcher's */
} hec_memory_parts;
double hec_memory_parts_sum(const hec_memory_parts *parts);

typedef struct {
  double peak;         /* allocated by tensors, of `device` */
  double reserved;     /* taken from the device: what the allocator loses is on top */
  double outside;      /* context and communication libraries, on top of it */
  double device_bytes; /* that a program sees; 0: unknown, then it fits */
  double margin;       /* device_bytes - reserved - outside; below 0: it does not fit */
  bool fits;
  int32_t device, in_flight; /* of the pipeline; micro-batches of its parts that it holds then */
  double at_s;               /* when that piece begins */
  hec_pipeline_piece piece;  /* that it runs then */
  hec_memory_parts parts;    /* sum: peak */
} hec_training_memory;

/* The order's parts are those of the layout. `loads`: as hec_training_job's, [n_moe_layers][micro-batches], or NULL. `peaks`: [n_stages] bytes of each device's own peak;
 * NULL: nobody asks. O(parts x micro-batches x layers of a part), without loads O(pieces). */
void hec_training_memory_of(const hec_training *t, const hec_layer_load *loads, const hec_pipeline_order *order,
                            const hec_pipeline_run *run, double *peaks, hec_training_memory *memory);
/* Of every piece, what its device holds while it runs: `over` [n_pieces]. */
void hec_training_memory_over(const hec_training *t, const hec_layer_load *loads, const hec_pipeline_order *order,
                              hec_memory_parts *over);

/* Experts that the fullest rank keeps of a layer beyond its own: the most that it has in any of [n_micro] micro-batches. */
double hec_training_replicas(const hec_layer_load *loads, int32_t layer, int32_t n_micro);
