/* Arithmetic on vectors and rows: sums in a fixed order, whatever the alignment.
 *
 * A sum of n terms goes into 16 partial sums (term i into i mod 16), which are then added pairwise. This gives vector
 * code without leave to reorder, and an error of about n u / 16 instead of n u. Everything is O(n). */
#include "runtime/exec/math/math.h"

#include "runtime/exec/math/fast_exp.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

void hec_math_add(float *restrict to, const float *restrict from, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    to[i] += from[i];
}

void hec_math_axpy(float *restrict to, float factor, const float *restrict from, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    to[i] += factor * from[i];
}

void hec_math_scale(float *x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    x[i] *= factor;
}

static float add_lanes(float *lane) {
  for (int width = LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++)
      lane[i] += lane[i + width];
  return lane[0];
}

float hec_math_dot(const float *a, const float *b, int64_t n) {
  float lane[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int j = 0; j < LANES; j++)
      lane[j] += a[i + j] * b[i + j];
  for (int j = 0; i < n; i++, j++)
    lane[j] += a[i] * b[i];
  return add_lanes(lane);
}

static float sum_of(const float *a, int64_t n) {
  float lane[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int j = 0; j < LANES; j++)
      lane[j] += a[i + j];
  for (int j = 0; i < n; i++, j++)
    lane[j] += a[i];
  return add_lanes(lane);
}

void hec_math_softmax(float *x, int32_t n) {
  if (n == 0)
    return;
  float max = x[0];
  for (int32_t i = 1; i < n; i++)
    max = x[i] > max ? x[i] : max;
  for (int32_t i = 0; i < n; i++)
    x[i] = hec_fast_exp(x[i] - max);
  hec_math_scale(x, 1 / sum_of(x, n), n);
}

void hec_math_norm(const float *x, const float *gain, float *y, float *scale, int32_t rows, int32_t d) {
  for (int32_t r = 0; r < rows; r++, x += d, y += d) {
    float s = 1 / sqrtf(hec_math_dot(x, x, d) / (float)d + 1e-6F);
    for (int32_t i = 0; i < d; i++)
      y[i] = gain[i] * (x[i] * s);
    scale[r] = s;
  }
}

/* With s = scale and c = sum_j gain_j dy_j x_j:  dx_i += s gain_i dy_i - x_i s^3 c / d,  dgain_i += dy_i x_i s. */
void hec_math_norm_backward(const float *x, const float *gain, const float *scale, const float *dy, float *dx,
                            float *dgain, int32_t rows, int32_t d) {
  for (int32_t r = 0; r < rows; r++, x += d, dy += d, dx += d) {
    float s = scale[r], lane[LANES] = {0};
    for (int32_t i = 0; i < d; i++)
      lane[i % LANES] += gain[i] * dy[i] * x[i];
    float shrink = add_lanes(lane) * s * s * s / (float)d;
    for (int32_t i = 0; i < d; i++) {
      dx[i] += s * gain[i] * dy[i] - x[i] * shrink;
      dgain[i] += dy[i] * x[i] * s;
    }
  }
}

/* first = b1 first + (1 - b1) g,  second = b2 second + (1 - b2) g^2,
 * param -= rate (first / (1 - b1^step)) / (sqrt(second / (1 - b2^step)) + epsilon). */
void hec_math_adam(const hec_adam *adam, int64_t step, float *restrict params, const float *restrict grads,
                   float *restrict first, float *restrict second, int64_t n) {
  HEC_ASSERT(step >= 1);
  hec_adam_step by = hec_adam_step_of(adam, step);
  float b1 = adam->beta1, b2 = adam->beta2, rest1 = 1 - b1, rest2 = 1 - b2, epsilon = adam->epsilon;
  float rate = by.rate, correct = by.correct;
  for (int64_t i = 0; i < n; i++) {
    first[i] = b1 * first[i] + rest1 * grads[i];
    second[i] = b2 * second[i] + rest2 * (grads[i] * grads[i]);
  }
  for (int64_t i = 0; i < n; i++)
    params[i] -= rate * first[i] / (sqrtf(second[i] * correct) + epsilon);
}
