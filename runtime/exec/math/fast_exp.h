/* exp in float32, in plain C that a compiler turns into vector code, the same bits on every machine (libm's is neither).
 *
 *     exp(x) = 2^n exp(r),   n = round(x / ln 2),   r = x - n ln 2 in [-ln2 / 2, ln2 / 2]
 *
 * r with ln 2 in two parts (Cody and Waite); exp(r) by Cephes' polynomial of degree 6 (Moshier, expf.c: relative error
 * below 2e-7 with rounding). x is held to [-87, 88]: no infinity, no denormal. */
#pragma once
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__ /* the same text on devices: the same bits there */
#define HEC_FAST_EXP static __host__ __device__ inline
#else
#define HEC_FAST_EXP static inline
#endif

HEC_FAST_EXP float hec_fast_exp(float x) {
  const float shift = 12582912.0F; /* 1.5 * 2^23: adding it rounds to an integer, which its low bits then hold */
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  float shifted = x * 1.44269504F + shift, n = shifted - shift;
  float r = x - n * 0.693359375F - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  uint32_t bits, power;
  memcpy(&bits, &shifted, sizeof bits);
  power = (bits - 0x4B400000U + 127U) << 23;
  float scale;
  memcpy(&scale, &power, sizeof scale);
  return p * scale;
}

/* 1 / (1 + exp(-x)). */
HEC_FAST_EXP float hec_fast_sigmoid(float x) {
  return 1.0F / (1.0F + hec_fast_exp(-x));
}
