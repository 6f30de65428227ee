/* Negative controls: prediction laws that are broken on purpose. A gate that cannot tell them from the real law proves
 * nothing (reference measuring.md 4.4), so it counts only where they fail it. */
#pragma once
#include "runtime/program/walk.h"

typedef struct hec_problem hec_problem; /* runtime/plan/problem.h */

typedef struct {
  const char *name, *summary;
  /* Picoseconds that each rank's own operations take (walk.h); context: hec_control_context. NULL: the law's. */
  hec_walk_own *own;
  /* Factor on the bytes of an exchange's transfers; NULL: 1. */
  double (*bytes)(const hec_program *program, const hec_op *op);
} hec_control;

enum { HEC_CONTROLS_MAX = 8 };
extern const hec_control hec_controls[]; /* ends with a row without name */

/* A control is tried on configurations where it changes the prediction by at least this share. */
#define HEC_CONTROL_TERM 0.05

/* Iteration time in seconds under the control, all else as the closed-form law of the simulator has it; control NULL:
 * the simulator's own. `broken`: scratch program, kept by the caller between calls (hec_program_free). */
double hec_control_predict(const hec_control *control, const hec_problem *problem, const hec_program *program,
                           hec_link_cost *cost, hec_program *broken);
