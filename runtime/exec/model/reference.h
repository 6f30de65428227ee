/* The dense single-rank reference: every block, every expert, all tokens of all ranks, in plain loops over model.h. It
 * has no plan, no program, no dispatch and no collective. What every policy must give.
 *
 * One step = forward and backward of every micro-batch (gradients add up over ranks and micro-batches), then Adam. The
 * gradient of the dense parameters is the sum over ranks, as the dense all-reduce makes it. */
#pragma once
#include "runtime/exec/train/language.h"

typedef struct hec_reference hec_reference;

hec_reference *hec_reference_new(const hec_model *model, int32_t n_ranks, int32_t tokens, bool train);
void hec_reference_free(hec_reference *reference);
HEC_OPENED_BY(hec_reference, hec_reference_free)

/* loads [n_micro_batches], each [n_blocks][n_ranks][E]: forced routing. */
void hec_reference_step(hec_reference *reference, int64_t step, const hec_load *loads, int32_t n_micro_batches);

/* A step of a language model (model.moe.vocabulary > 0), with the experts that somebody else's gates chose. The loss is
 * the mean over the tokens of all ranks and micro-batches. The balance losses of layers add up and are the mean over
 * micro-batches. */
typedef struct {
  const uint8_t *ids, *next; /* [n_micro_batches][n_ranks][T] */
  /* Of every rank, micro-batch and block: tokens of the assignments by expert, as many as the loads say, [.][T * k].
   * Then what they were chosen by, [.][T, E]; NULL: what the gates of the reference give. */
  const int32_t *choices;
  const float *affinities;
  float balance;   /* coefficient of the balance loss; 0: none */
  float bias_rate; /* of hec_bias_update, made here from the loads; 0: none */
} hec_reference_text;
typedef struct {
  double loss, balance;
  int64_t flips;  /* assignments that the gates would not have made here */
  int64_t wrong;  /* lists of choices that the gate does not make of these affinities */
  double affined; /* largest relative error of a list of affinities; 0 without */
} hec_reference_loss;
hec_reference_loss hec_reference_train(hec_reference *reference, int64_t step, const hec_load *loads,
                                       int32_t n_micro_batches, const hec_reference_text *text);

/* Of the last step; state after Adam. All belong to the reference. */
const float *hec_reference_output(const hec_reference *reference, int32_t micro_batch, int32_t rank); /* [T, d] */
const float *hec_reference_input_gradient(const hec_reference *reference, int32_t micro_batch, int32_t rank);
typedef struct {
  const float *params, *grads, *first, *second; /* [n] */
  int64_t n;
} hec_reference_state;
hec_reference_state hec_reference_block(const hec_reference *reference, int32_t layer); /* -1: embedding and head */
hec_reference_state hec_reference_expert(const hec_reference *reference, int32_t layer, int32_t expert);

/* Goes on from another run's state instead of its own: numbers `begin` to `begin + n` of one array. Once every array of
 * parameters and moments was taken over, steps of the tolerance count from here. */
typedef enum {
  HEC_REFERENCE_PARAMS,
  HEC_REFERENCE_GRADS,
  HEC_REFERENCE_FIRST,
  HEC_REFERENCE_SECOND
} hec_reference_array;
typedef struct {
  hec_reference_array array;
  int32_t layer, expert; /* expert -1: the dense block of the layer, as hec_reference_block */
  int64_t begin, n;
} hec_reference_part;
void hec_reference_adopt(hec_reference *reference, const hec_reference_part *part, const float *values);
void hec_reference_adopt_bias(hec_reference *reference, const float *bias); /* [n_blocks][E] of the gates' choices */

/* Largest number of significant bits that any product sum of the last step needed. Computed in double with absolute
 * values (exact mode: a test asserts at most 24). -1 in random mode. */
int32_t hec_reference_bits(const hec_reference *reference);

/* || a - b || / || b || (Euclidean, in double); 0 where both vanish, and the absolute norm where only b does. */
double hec_relative_error(const float *a, const float *b, int64_t n);
/* Largest relative error that summing in another order can explain after `steps` steps from the same state: derived in reference.c. */
double hec_reference_tolerance(const hec_reference *reference, int64_t steps);
