/* From the records of a trace to what routing costs a training step, for every placement policy.
 *
 * The G expert-parallel groups of a layer take the records in turn. Micro-batch m of group g has record m G + g, and
 * begins again at the end of the trace. Groups from HEC_TRAINING_GROUPS on repeat the loads of others, and no more than
 * HEC_TRAINING_RECORDS (or the micro-batches of one group) are taken. The first records are not in the step, for
 * policies have seen them before. A model with more or fewer MoE layers than the trace takes, for layer l of L, layer
 * floor(l L' / L) of its L'.
 *
 *   record --spread and scaled--> load --policy decides, refines, dispatches--> rows of each rank --> the busiest rank's
 *
 * A capacity is of a rank and an expert, as in GShard (arXiv 2006.16668) and Megatron Core: what one rank sends to one expert.
 *
 * A decision that is made once in several iterations falls on the beginning of the step, which bears its part of what it costs.
 * Gradients of copies that stay are added up where a rank has them until the step ends, or until other copies stay.
 * Each record is planned once, however often the step comes back to it. */
#pragma once
#include "models/training/step.h"
#include "runtime/plan/policy.h"
#include "runtime/program/job.h"
#include "runtime/program/summary.h"

enum { HEC_TRAINING_GROUPS = 16, HEC_TRAINING_RECORDS = 128 };

typedef struct {
  const hec_job *job;           /* of one expert-parallel group: a rank is a place with experts / ep experts */
  const hec_training *training; /* what a GPU sends of an expert (training_moves.h); NULL: all that the problem says */
  const hec_policy *const *policies;
  int32_t n_policies, n_threads;
  bool silent; /* no progress */
  double
      capacity; /* each rank drops its assignments to an expert above so many times its mean over experts, rounded up; 0: none */
  int32_t n_layers;   /* MoE layers of the model */
  int32_t n_micro;    /* micro-batches of a step */
  int32_t n_groups;   /* expert-parallel groups of a layer; 0: 1 */
  int32_t n_stages;   /* of the pipeline, each with its part of the layers */
  int32_t records;    /* at most so many in the step; 0: no such limit */
  int32_t warmup;     /* records before the step; below 0: at most `before_max`, at most half of the trace */
  int32_t before_max; /* 0: 5 */
} hec_training_loads_of;

/* Of one policy. */
typedef struct {
  hec_layer_load *loads; /* [n_groups][n_layers][n_micro] */
  double *
      gather_s; /* [n_groups][n_layers][n_micro][2] exposed, forward and backward; NULL: none anywhere. Not of `sharded` */
  int32_t sharded; /* experts of a layer that every rank gathers from all others for each pass, as FSDP does; 0: none */
  double moves_s;  /* of a step: experts that move, over the stages of the pipeline */
  double replicas_s;    /* likewise: gradients of copies that stay, added up; nothing hides it yet */
  hec_series overload;  /* busiest rank over mean, by (record, layer of the trace); free it */
  double dropped_share; /* of the assignments; 0: none */
} hec_training_routing;

typedef struct {
  int32_t n_groups;            /* with loads of their own */
  int32_t n_before, n_records; /* records that policies have seen before, and that the step takes */
  bool seen;                   /* the trace has one record, which is the one seen before */
  int64_t n_empty;             /* layers of the n_records records that have no tokens */
  hec_training_routing *of;    /* [n_policies] */
} hec_training_loads;

/* Reads the trace from its first record on. Results are on the arena. */
hec_status hec_training_loads_make(const hec_training_loads_of *of, hec_trace_reader *reader, hec_arena *arena,
                                   hec_training_loads *loads) HEC_MUST_USE;
void hec_training_loads_free(const hec_training_loads_of *of, hec_training_loads *loads);
