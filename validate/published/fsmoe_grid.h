/* FSMoE's grid of 1,458 layers, walked under every schedule of its comparison. */
#ifndef HEC_VALIDATE_PUBLISHED_FSMOE_GRID_H
#define HEC_VALIDATE_PUBLISHED_FSMOE_GRID_H
#include "validate/published/fsmoe_program.h"

typedef struct {
  int32_t layers; /* that follow each other */
  bool table;     /* attention by Table 2 instead of the artifact's line */
  int32_t stride; /* every stride-th configuration; 1: all */
  void (*each)(int32_t i, const double ms[HEC_N_FSMOE_SYSTEMS], void *context); /* NULL: none */
  void *context;
} hec_fsmoe_grid_options;

typedef struct {
  int32_t n;                                                 /* configurations */
  double mean[HEC_N_FSMOE_SYSTEMS];                          /* of Tutel's time over the system's */
  double min[HEC_N_FSMOE_SYSTEMS], max[HEC_N_FSMOE_SYSTEMS]; /* of the same */
  int32_t slower[HEC_N_FSMOE_SYSTEMS];                       /* configurations in which Tutel is faster */
  int32_t two_degrees; /* configurations whose best degrees of forward and backward differ, by the planner's formula */
} hec_fsmoe_grid_result;

hec_fsmoe_grid_result hec_fsmoe_grid(const hec_fsmoe_testbed *testbed, hec_fsmoe_grid_options options);

#endif
