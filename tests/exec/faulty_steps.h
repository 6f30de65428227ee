/* Training steps on model.h as a distributed run orders them, with one fault built in on demand. An expert computes
 * the rows of all ranks at once, ranks from last to first. What a comparison with the reference must bear and must
 * see. */
#pragma once
#include "runtime/exec/model/reference.h"

typedef enum {
  HEC_NO_FAULT,
  HEC_DROPPED,      /* an assignment is not computed */
  HEC_DOUBLED,      /* a rank's part of an expert's gradient counts twice */
  HEC_STALE,        /* a rank computes with the expert's parameters of the step before */
  HEC_WRONG_WEIGHT, /* an assignment has its neighbour's weight */
  HEC_N_FAULTS
} hec_fault_kind;

/* In the last step. `assignment` of (micro_batch, rank, layer); its expert is the one of DOUBLED and STALE. */
typedef struct {
  hec_fault_kind kind;
  int32_t micro_batch, rank, layer, assignment;
} hec_fault;

typedef struct {
  const hec_model *model;
  int32_t n_ranks, tokens, n_micro_batches, n_steps;
  const hec_load *loads; /* [n_micro_batches], the same every step */
} hec_steps;

/* Runs the steps with the fault in the last. The largest relative error against `reference`, which has made the same
 * steps. It is over every output, input gradient, and every block's and expert's parameters, gradients and moments. */
double hec_faulty_error(const hec_steps *steps, const hec_fault *fault, const hec_reference *reference);
/* Makes the steps, with hec_math_open. Free with hec_reference_free. */
hec_reference *hec_reference_of_steps(const hec_steps *steps);
