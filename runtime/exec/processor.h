/* What a rank computes with: the arithmetic of one device on the memory of that device. The model (model.h) is written
 * once, in these calls; the CPU is the first row and the oracle of every other one.
 *
 * Calls are carried out in the order in which they are made, on the CPU before they return, elsewhere perhaps later: what
 * they read must stay until then, and the host must not look at what they write. Arrays of floats are on the device,
 * lists that describe the work (hec_gemm, hec_assignments' tokens, row pointers) on the host. Sizes of zero are fine,
 * with NULL for what is empty. Arrays of one call do not overlap unless it says so.
 *
 * Same input, same bytes on one device: sums have a fixed order. Between devices results differ by rounding. */
#ifndef HEC_EXEC_PROCESSOR_H
#define HEC_EXEC_PROCESSOR_H
#include "runtime/exec/math.h"

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
  int32_t batch; /* heads of attention that one call of `gemm` should get, at most HEC_BATCH_MOST */
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

enum { HEC_BATCH_MOST = 64 };

struct hec_processor {
  const hec_arithmetic *math;
  void *own; /* of the row */
};

extern hec_processor hec_processor_cpu; /* has no state: any thread may use it; hec_math_open first */

#endif
