/* The factors of a step of Adam (math.h), for those that cannot call it: plug-ins take no symbol from the program. */
#ifndef HEC_EXEC_ADAM_STEP_H
#define HEC_EXEC_ADAM_STEP_H
#include "runtime/exec/math/math.h"

/* By repeated squaring, so that no libm decides it. */
static inline double hec_adam_power(double base, int64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent /= 2, base *= base)
    if (exponent % 2)
      power *= base;
  return power;
}

/* step counts from 1. */
static inline hec_adam_step hec_adam_step_of(const hec_adam *adam, int64_t step) {
  return (hec_adam_step){.rate = (float)((double)adam->rate / (1 - hec_adam_power((double)adam->beta1, step))),
                         .correct = (float)(1 / (1 - hec_adam_power((double)adam->beta2, step)))};
}

#endif
