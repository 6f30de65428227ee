/* The work table of one rank: what compute and local operations of a program do, with the model's mathematics on the
 * executor's buffers. Replay and training use the same table. They differ in two things. One is where assignments come
 * from: forced counts, or the gate's own choice. The other is what stands before the first and behind the last block.
 * */
#pragma once
#include "runtime/exec/exec.h"
#include "runtime/exec/model/dense_part.h"

/* What stands outside the MoE blocks: embedding and head, with the dense parameters of layer -1. Embedding: forward
 * writes x, backward reads dx. Head: forward reads x, backward writes dx. NULL where the model has no vocabulary. */
typedef struct {
  int32_t micro_batch;
  bool backward;
  hec_dense dense;
  float *x, *dx; /* [T, d] */
} hec_work_end;

typedef struct {
  void (*embedding)(void *context, const hec_work_end *at);
  void (*head)(void *context, const hec_work_end *at);
  void *context;
} hec_work_ends;

typedef struct {
  const hec_model *model;
  int32_t tokens, n_micro_batches; /* per rank; at most */
  int32_t assigned;                /* assignments of a rank's tokens in a layer and micro-batch, at most */
  const hec_load *loads;           /* [n_micro_batches] forced counts; NULL: the gate chooses */
  hec_work_ends ends;
  int64_t step;      /* optimizer step, from 1 */
  bool keep_grads;   /* gradients stay until hec_work_zero_grads (for checks), else the optimizer zeroes them */
  float balance;     /* coefficient of the balance loss of a layer and micro-batch (hec_assign_balance); 0: none */
  const float *bias; /* [n_blocks][E] of the gate's choice (hec_bias_update); NULL: none */
  float *affinities; /* [n_micro_batches * n_blocks][T, E] what gates gave, on the host; NULL: not kept */
  /* Faults on purpose, with parts of the optimizer (problem.zero): it updates another rank's part; it updates nothing. */
  bool update_another, update_nothing;
  bool double_gradient; /* a fault on purpose: the first expert of a backward operation */
  int64_t updated;      /* numbers whose moments the last optimizer step had: this rank's */
  double balance_loss;  /* this rank's share: backward gates add to it, the driver zeroes it */
  int32_t rank;
  hec_model shards; /* the model with experts as wide as they are here */
  hec_model parts;  /* the model with blocks as they are here */
  float *x, *dx;  /* [n_micro_batches * T * d] streams: input, then output; gradient of the output, then of the input */
  float *dh2;     /* [T * d] */
  float *weights; /* [n_micro_batches * n_blocks * 2 * assigned] of the assignments */
  float *scratch;
  hec_assignments **assignments; /* [n_micro_batches * n_blocks] of the iteration, on the step arena */
} hec_work_state;

/* Floats of workspace that it needs in the rank's region. */
int64_t hec_work_workspace(const hec_model *model, int32_t tokens, int32_t n_micro_batches, int32_t assigned);
/* Over the executor's workspace; `work.model`, tokens, n_micro_batches, assigned, rank set. */
void hec_work_open(hec_work_state *work, hec_exec *exec, hec_arena *arena);
/* The initial model, of what this rank keeps: parameters, zero gradients and moments. */
void hec_work_init(hec_work_state *work, hec_exec *exec, hec_arena *arena);
void hec_work_zero_grads(hec_work_state *work, hec_exec *exec);
hec_work_table hec_work_table_of(hec_work_state *work);

static inline float *hec_work_stream(const hec_work_state *work, float *streams, int32_t micro_batch) {
  return streams + (size_t)micro_batch * (size_t)work->tokens * (size_t)work->model->moe.d_model;
}
