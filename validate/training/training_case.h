/* One published run: what its row says, what it is predicted as. */
#ifndef HEC_VALIDATE_TRAINING_CASE_H
#define HEC_VALIDATE_TRAINING_CASE_H
#include "sim/training.h"

typedef struct {
  int32_t line; /* the header is line 1 */
  const char *id, *model, *gpu, *metric, *notes, *source;
  const char *why_not;        /* NULL: predicted */
  double measured, predicted; /* in the row's metric */
  double error;               /* of the step time: predicted over measured - 1 */
  hec_training set_up;
  hec_training_result result;
  double default_error; /* `error` with the default recipe in place of the row's, of its precision */
  int32_t family;
} hec_training_case;

#endif
