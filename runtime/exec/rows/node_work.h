/* What permutes and unpermutes compute where rows travel once per node (node_rows.h). A rank's own tokens and those that it
 * is proxy for are two lists of assignments, each with its rows, its sums and its weights. */
#pragma once
#include "runtime/exec/exec.h"
#include "runtime/exec/model/model.h"

/* Of the rank: its assignments, and per row that it permutes (rows.h) where that stands. */
typedef struct {
  hec_assignments *assignments;
  float *h2, *x, *dx, *dh2; /* [T, d] */
  float **row, **returned;  /* [n] as in work.c; NULL where the operation has none */
  const hec_piece *staying; /* [n_staying] outputs computed here */
  int32_t n_staying;
} hec_node_places;

typedef struct hec_node_work hec_node_work;
/* While the operation, a permute or unpermute between nodes or inside them (op.by_node), is bound. */
hec_node_work *hec_node_work_bind(hec_exec *exec, const hec_exec_op *op, const hec_node_places *places);
void hec_node_work_run(hec_node_work *work, hec_processor *on, const hec_op *op);
