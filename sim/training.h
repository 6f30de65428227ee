/* A training step under a parallel layout. Every micro-batch passes every part of the model, in the order of a
 * pipeline schedule. Then come data-parallel traffic and optimizer. Layers cost what models/training/step.h says,
 * micro-batch by micro-batch where loads are given. So the bubble is simulated and not a formula.
 *
 * One pipeline of one expert-parallel group is simulated. Groups with other loads are runs of their own, and a step ends when the
 * slowest has ended. */
#pragma once
#include "models/training/step.h"
#include "runtime/program/pipelines/pipeline_schedule.h"
#include "sim/training_memory.h"

typedef struct {
  const hec_training *training;
  const hec_pipeline_schedule *pipeline; /* NULL: 1f1b; with virtual stages interleaved */
  const hec_layer_load *loads;           /* [n_moe_layers][micro-batches]; NULL: balanced */
  const double *gather_s; /* [n_moe_layers][micro-batches][2] on top of a layer, forward and backward; NULL: nothing */
  int32_t sharded; /* experts of a layer that every rank of the group gathers for each pass, as FSDP does; 0: none */
  double moves_s;  /* once a step */
  double
      replicas_s; /* once a step, with data-parallel traffic and beside what hides that: gradients of copies that stay */
  double dropped_share; /* of the assignments to experts: the loads are without them */
} hec_training_job;

typedef struct {
  double step_s;
  double busy_s;     /* of the busiest device: all its micro-batches */
  double bubble_s;   /* what that device waits for others */
  double dispatch_s; /* exposed dispatch and combine of it, in busy_s */
  double
      host_s; /* it waits for the host's launches, in busy_s; where dispatch is added by the schedule, before it is */
  double tensor_s;  /* tensor- and context-parallel traffic of it, in busy_s */
  double gather_s;  /* of the job's, in busy_s */
  double sharded_s; /* exposed gathers and reductions of FSDP of it, in busy_s: of ZeRO-3, and of `sharded` experts */
  double data_s;    /* exposed data-parallel traffic, once a step */
  double optimizer_s;
  double tokens_per_s_per_gpu, model_tflops_per_gpu; /* all tokens; FLOPs of what is not dropped */
  double mfu;                                        /* of the dense bf16 peak on the data sheet */
  double gpu_hours_per_1e12_tokens;
  int32_t device; /* the busiest, of the pipeline */
  hec_training_memory memory;
} hec_training_result;

/* What one direction of a micro-batch in a part waits for, in its cost. Where the schedule has pairs, dispatch is the cost's
 * exchange instead. */
typedef struct {
  double dispatch_s, tensor_s, host_s, gather_s;
} hec_piece_exposed;

/* A step piece by piece, for pictures. Owns its arena: free it. */
typedef struct {
  hec_pipeline_order order;
  hec_pipeline_run run;
  const hec_piece_cost *cost;       /* [n_parts][n_micro] */
  const hec_piece_exposed *exposed; /* [n_parts][n_micro][2] forward and backward */
  int64_t send_ps;                  /* from a stage to the next */
  hec_memory_parts *memory;         /* [n_pieces] what the device holds while it runs the piece */
  hec_arena arena;
} hec_training_pieces;

/* HEC_BAD_INPUT: the pipeline schedule refuses the sizes; the message says what fits. */
hec_status hec_training_run(const hec_training_job *job, hec_training_result *result) HEC_MUST_USE;
/* The same, piece by piece. `pieces`: NULL: nobody asks; untouched where it fails. */
hec_status hec_training_run_pieces(const hec_training_job *job, hec_training_pieces *pieces,
                                   hec_training_result *result) HEC_MUST_USE;
