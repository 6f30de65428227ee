/* A rank at work on one policy: what replay and training share. Planning, lowering, posting and waiting of an iteration;
 * where loads and inputs come from is the driver's.
 *
 * An iteration: to the gate of a layer, the driver's load of it, plan, the rest of the layer, ..., backward, optimizer
 * (lower.h). Time stamps of planning are the host's: what deciding and lowering took (virtual time: of the processor). */
#pragma once
#include "runtime/exec/work.h"
#include "runtime/program/lower.h"

typedef struct {
  const hec_problem *problem; /* fp32: 4 bytes a parameter, 4 a gradient, 8 of moments */
  const hec_model *model;
  int32_t n_micro_batches, assigned;      /* assigned: see work.h */
  const char *schedule;                   /* "published" or a row */
  const hec_collective *collective;       /* NULL: by cost */
  bool virtual_time, keep_grads, watched; /* watched: hec_exec_options */
  bool gated;                             /* gates choose, loads are not given */
  double capacity;                        /* bytes of a rank, see hec_exec_options; 0: no limit */
} hec_runner_options;

typedef struct hec_runner hec_runner;
struct hec_runner {
  hec_runner_options options;
  hec_rank *rank;
  hec_arena arena; /* of the policy */
  hec_lowering *low;
  hec_exec *exec;
  hec_work_state work;
  hec_load *loads;       /* [n_micro_batches] of the iteration: forced, or what the gates chose so far */
  hec_timeline timeline; /* of the last iteration, on rank 0 */
  int64_t iter;
  /* The load to plan the rest of the layer with; its gate has been posted. */
  hec_status (*load_of)(hec_runner *runner, int32_t micro_batch, int32_t layer, const hec_load **load);
  /* The run goes on from a checkpoint: lowers what was done before with the loads of then, in `loads`. So the policy and the
   * schedule remember what they would. Called by hec_runner_open before there is an executor. NULL: nothing was done. */
  hec_status (*past)(hec_runner *runner);
  void *context; /* the driver's */
};

/* Bytes that each rank's region must have for this policy. */
size_t hec_runner_bytes(const hec_runner_options *options, const hec_policy *policy);
/* The initial model in place, the first plan in force, or the last of the past. `work` members of the driver's choice are set afterwards. In every
 * case to be closed. */
hec_status hec_runner_open(hec_runner *runner, const hec_policy *policy) HEC_MUST_USE;
void hec_runner_close(hec_runner *runner);
/* One iteration with what the driver prepared. */
hec_status hec_runner_iterate(hec_runner *runner, int64_t iter) HEC_MUST_USE;

/* Its pieces, for drivers that have an order of their own: begin; of each micro-batch start, then forward and backward of
 * layers [first, end); end. After hec_lowering_interleave they may be of several micro-batches in turn. A piece is posted
 * when its function returns; hec_exec_drain waits for it. */
hec_status hec_runner_begin(hec_runner *runner, int64_t iter) HEC_MUST_USE;
hec_status hec_runner_start(hec_runner *runner, int32_t micro_batch) HEC_MUST_USE;
typedef struct {
  int32_t micro_batch, first, end; /* layers */
} hec_runner_piece;
hec_status hec_runner_forward(hec_runner *runner, hec_runner_piece piece) HEC_MUST_USE;
hec_status hec_runner_backward(hec_runner *runner, hec_runner_piece piece) HEC_MUST_USE;
hec_status hec_runner_end(hec_runner *runner) HEC_MUST_USE;
/* Waits for the counts of the layer's gate and copies those of all ranks into `load`. */
hec_status hec_runner_counts(hec_runner *runner, int32_t micro_batch, int32_t layer, hec_load *load) HEC_MUST_USE;
