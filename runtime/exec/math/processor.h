/* What a rank computes with: the arithmetic of one device on the memory of that device. The model (model.h) is written
 * once, in these calls; the CPU is the first row and the oracle of every other one.
 *
 * Calls are carried out in the order in which they are made: on the CPU before they return, elsewhere perhaps later
 * (see hec_streams). So the host must not look at what they write. Arrays of floats are on the device. What describes
 * the work is on the host and may go when the call returns. That is lists of hec_gemm and the like, row pointers, and
 * of hec_assignments all but weight and weight_grad. Sizes of zero are fine, with NULL for what is empty. Arrays of
 * one call do not overlap unless it says so.
 *
 * Same input, same bytes on one device: sums have a fixed order. Between devices results differ by rounding. */
#pragma once
#include "runtime/exec/math/math.h"

#include <stddef.h>

typedef struct hec_processor hec_processor;
typedef struct hec_assignments hec_assignments;

/* Numbers that go somewhere. */
typedef struct {
  float *to;
  const float *from;
  int64_t n;
} hec_piece;

/* RMS norm of rows [rows, d] (hec_math_norm); scale [rows] is written forward and read backward. */
typedef struct {
  const float *x, *gain;
  float *scale;
  int32_t rows, d;
} hec_norm;

/* What Adam changes, [n] each; grads are read, and zeroed afterwards where `clear`. */
typedef struct {
  float *params, *grads, *first, *second;
  int64_t n;
  bool clear;
} hec_moments;

/* Rows of scores [rows, n], one after the other: row i sees its first `visible` + (i % period) * `stride` columns (causal
 * attention: stride 1). linear: no softmax, its gradient is the identity (exact mode). */
typedef struct {
  float *x;
  int64_t rows;
  int32_t n, visible, stride, period;
  bool linear;
} hec_scores;

/* Inner rows of a FFN [rows, n_matrices * f]: before | after of two matrices, gate | up | product of three. */
typedef struct {
  float *x;
  int32_t rows, f, n_matrices;
  hec_activation kind;
} hec_inner_rows;

typedef struct {
  const char *name;
  int32_t batch; /* heads of attention that one call of `gemm` should get, at most HEC_BATCH_MAX */
  /* From and to the host's memory; when to_host returns, the numbers are there. */
  void (*to_device)(hec_processor *on, float *to, const float *from, int64_t n);
  void (*to_host)(hec_processor *on, float *to, const float *from, int64_t n);
  void (*zero)(hec_processor *on, float *at, int64_t n);
  void (*scale)(hec_processor *on, float *x, float factor, int64_t n);
  void (*copy)(hec_processor *on, const hec_piece *list, int32_t n); /* to different places */
  void (*add)(hec_processor *on, const hec_piece *list, int32_t n);  /* to += from, in the order of the list */
  /* Products that do not depend on each other and write different places. */
  void (*gemm)(hec_processor *on, const hec_gemm *list, int32_t n);
  void (*norm)(hec_processor *on, const hec_norm *norm, float *y);
  void (*norm_backward)(hec_processor *on, const hec_norm *norm, const float *dy, float *dx,
                        float *dgain); /* dx +=, dgain += */
  /* x = softmax over what is visible, 0 elsewhere. Backward, x as it came out: d = dx in place. */
  void (*softmax)(hec_processor *on, const hec_scores *scores);
  void (*softmax_backward)(hec_processor *on, const hec_scores *scores, float *d);
  /* Fills `after`, or `product` = act(gate) up. Backward: from their gradients, in place, those of the columns before;
   * what stood in the last place is lost. */
  void (*activate)(hec_processor *on, const hec_inner_rows *list, int32_t n);
  void (*activate_backward)(hec_processor *on, const hec_inner_rows *list, int32_t n);
  void (*adam)(hec_processor *on, const hec_adam *adam, int64_t step, const hec_moments *list, int32_t n);
  /* The weights of assignments from probabilities [T, n_experts], which exact models do not look at; weight_grad = 0. */
  void (*weigh)(hec_processor *on, hec_assignments *a, const float *probabilities, int32_t n_experts, bool exact);
  /* dp [T, n_experts] = a->balance or 0, plus the weights' gradients of each token's assignments. */
  void (*choice_gradient)(hec_processor *on, const hec_assignments *a, int32_t n_experts, float *dp);
  /* row[j] of assignment j, d floats each:
   *   permute    row = h2[token]                uncombine  row = weight dx[token], weight_grad = dx[token] . output
   *   combine    x[token] += weight row         unpermute  dh2[token] += row
   * Sums over the assignments of a token run by ascending j. `output` may be `row`. */
  void (*permute)(hec_processor *on, const hec_assignments *a, const float *h2, int32_t d, float *const *row);
  void (*combine)(hec_processor *on, const hec_assignments *a, float *const *row, int32_t d, float *x);
  void (*uncombine)(hec_processor *on, hec_assignments *a, const float *dx, float *const *output, int32_t d,
                    float *const *row);
  void (*unpermute)(hec_processor *on, const hec_assignments *a, float *const *row, int32_t d, float *dh2);
} hec_arithmetic;

enum { HEC_BATCH_MAX = 64 };

/* Products of a device. BF16: operands are rounded to bfloat16, sums are float32; TF32: the tensor cores' 19 bits.
 * Everything else is float32 in every mode; so are the products of CPUs. */
typedef enum { HEC_FP32, HEC_TF32, HEC_BF16, HEC_N_PRECISIONS } hec_precision;

/* Devices that carry out calls after they have returned. Every processor of this kind has HEC_STREAMS streams. The
 * calls of one stream are carried out in their order. Those of different streams run at the same time unless an event
 * orders them. One host thread uses a processor; none of these calls waits for the device, but for restart.
 *
 * Errors of the device are kept: `error` has the first. After it calls do nothing and every event is reached. */
typedef struct hec_event hec_event;
enum { HEC_STREAMS = 6 };

typedef struct {
  void (*select)(hec_processor *on, int32_t stream); /* what follows goes there; 0 after restart */
  /* What the selected stream was given so far; good until the next restart of its processor. */
  const hec_event *(*mark)(hec_processor *on);
  /* The selected stream goes on when the event is reached; of any processor of this process, marked before. */
  void (*after)(hec_processor *on, const hec_event *event);
  bool (*reached)(hec_processor *on, const hec_event *event); /* of this processor */
  int64_t (*when)(hec_processor *on, const hec_event *event); /* reached: on the clock of hec_clock_ns */
  /* Waits until everything is done, ends all events, and sets the device's clock by the host's. */
  void (*restart)(hec_processor *on);
  const char *(*error)(hec_processor *on); /* NULL: none */
  /* Memory of the host that the device reaches, until the processor is closed; zero at the start. NULL: none left. Then
   * copies from and to it on the selected stream: it must stay as it is until they are done. */
  void *(*host_memory)(hec_processor *on, size_t bytes);
  void (*put)(hec_processor *on, void *to, const void *from, size_t bytes);   /* host to device */
  void (*fetch)(hec_processor *on, void *to, const void *from, size_t bytes); /* device to host */
} hec_streams;

struct hec_processor {
  const hec_arithmetic *math;
  const hec_streams *streams; /* NULL: calls are carried out before they return */
  void *own;                  /* of the row */
};

extern hec_processor hec_processor_cpu; /* has no state: any thread may use it; hec_math_open first */
