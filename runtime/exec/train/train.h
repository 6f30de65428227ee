/* Training: a small GPT-MoE language model on the characters of a text, under any policy, by the same executor and
 * programs as replay. The gate is real (gate.h: top-k of a softmax unless another is asked for). Every rank plans a layer once its gate has spoken and the
 * counts of all ranks have come.
 *
 * Loss of a step: the mean cross entropy over all tokens of all ranks and micro-batches, plus the balance losses of the
 * layers. Those are hec_assign_balance with the counts and probabilities of all ranks, mean over micro-batches. So runs
 * with the same global batch agree whatever the policy and the number of ranks, up to rounding. */
#pragma once
#include "runtime/exec/check.h"
#include "runtime/exec/runner.h"
#include "runtime/exec/train/checkpoint.h"

typedef struct {
  int64_t step;              /* from 1 */
  double loss, balance_loss; /* before the step's update */
  double iteration_s;        /* of the timeline: the slowest rank */
  /* Means over layers and micro-batches of busiest over mean, of ranks (by what they compute under the policy) and of
   * experts. Then the share of the T k assignments of a layer that a capacity took back, and the share of tokens
   * without any expert. */
  double overload, expert_overload, dropped, unrouted;
  const hec_timeline *timeline; /* valid during the call, as the two below */
  const hec_program *program;
  const char *note; /* the policy's */
} hec_train_measure;

typedef struct {
  const hec_problem *problem; /* moe: the model's own */
  const hec_model *model;     /* hec_language_make */
  const hec_corpus *corpus;
  int32_t n_steps, n_micro_batches; /* steps: those of a checkpoint included */
  const char *schedule;             /* "published" or a row */
  const hec_collective *collective; /* NULL: by cost */
  bool virtual_time, check;
  float aux;                        /* coefficient of the balance loss */
  float bias_rate;                  /* of the bias of the gates' choices (hec_bias_update); 0: none */
  double capacity;                  /* bytes of a rank, see hec_exec_options; 0: no limit */
  hec_record *record;               /* takes the loads; NULL: they are not kept. Has those of a checkpoint's steps */
  const hec_checkpoint *checkpoint; /* NULL: none is written. With a record; its step is where the run goes on from */
  /* A fault on purpose, for tests: in this step this rank's gradient of one expert a layer counts twice; 0: never. */
  int64_t double_step;
  /* After every step, on rank 0 only. */
  void (*measured)(void *context, const hec_train_measure *measure);
  void *context;
} hec_train;

/* HEC_BAD_INPUT for what cannot be trained: a policy that forces loads, tokens that are no whole sequences. */
hec_status hec_train_check(const hec_train *train, const hec_policy *policy) HEC_MUST_USE;
/* Bytes that each rank's region must have for this policy. */
size_t hec_train_bytes(const hec_train *train, const hec_policy *policy);
/* Called by every rank. `result` is filled in on rank 0 when check. */
hec_status hec_train_run(const hec_train *train, const hec_policy *policy, hec_rank *rank,
                         hec_check_result *result) HEC_MUST_USE;
