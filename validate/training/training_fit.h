/* Global constants of a training step, fitted to published runs. */
#ifndef HEC_VALIDATE_TRAINING_FIT_H
#define HEC_VALIDATE_TRAINING_FIT_H
#include "validate/training/training.h"

/* in_step, nic and hidden, so that the mean |ln(predicted / measured)| of the rows whose id contains `part` is least: one constant
 * after the other on a grid of hundredths, until none moves. The same input gives the same constants. HEC_BAD_INPUT: no such
 * row can be predicted. *rows: how many counted. */
hec_status hec_training_fit(const char *path, const char *part, hec_step_constants *constants,
                            int32_t *rows) HEC_MUST_USE;

#endif
