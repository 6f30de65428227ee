/* A layer of FSMoE's comparison on one of its testbeds (arXiv 2501.10714; reference policies.md 1.6), whose linear laws and whose
 * grid of 1,458 layers are data: systems/fsmoe.json. All times in milliseconds, all sizes in elements of 4 bytes.
 *
 *   a set        per_node (experts, and ranks of a tensor and of an expert-sharding group), and lines [start, per size]:
 *                a2a, gather, scatter, reduce; simple, mixtral (experts of 2 and 3 matrices) and both with _backward;
 *                attention, and attention_L where L tokens have their own; table: attention of GPT2-XL and Mixtral in the
 *                paper's Table 2, the other reading and the only one where no line is
 *   grid         axes of set-ups (measure.h), the first one slowest */
#pragma once
#include "runtime/plan/planners/fsmoe.h"
#include "validate/published/measure.h"

/* What planners and programs are made from. */
typedef struct {
  hec_fsmoe_layer moe[2]; /* forward, backward */
  double dense[2];        /* attention, likewise */
  double gradient;        /* elements that are reduced between nodes */
  hec_fsmoe_reduce reduce;
} hec_fsmoe_case_study;

/* Opens the set that the set-up names as its testbed. */
hec_status hec_fsmoe_open_testbed(hec_scope *scope, const hec_setup *setup) HEC_MUST_USE;
/* On the open testbed. */
hec_status hec_fsmoe_study(const hec_scope *scope, const hec_setup *setup, hec_fsmoe_case_study *study) HEC_MUST_USE;

typedef struct {
  hec_fsmoe_case_study *study; /* [n] */
  int32_t n;
} hec_fsmoe_grid;

/* The grid of the open testbed; set-ups say what `base` does not. */
hec_status hec_fsmoe_grid_read(hec_scope *scope, const hec_setup *base, hec_arena *arena,
                               hec_fsmoe_grid *grid) HEC_MUST_USE;
/* That of testbed A or B in the compiled-in file. */
hec_status hec_fsmoe_grid_of(const char *testbed, hec_arena *arena, hec_fsmoe_grid *grid) HEC_MUST_USE;
