/* A training step as a program and its timeline: one rank for each stage of the pipeline. So all formats of timelines
 * and the page's picture of memory can take it.
 *
 *   lane       what stands on it
 *   compute    pieces: forward, backward, input and weight gradient of a micro-batch; the optimizer
 *   dispatch   dispatch and combine of a piece, all its layers together
 *   tensor     tensor- and context-parallel traffic of a piece
 *   forward    activations to the next stage; before the first piece, experts that move
 *   backward   gradients to the stage before; at the end, gradients of the data-parallel groups
 *
 * A piece alone is drawn as compute, then tensor, then dispatch: in truth they take turns in every layer. Of a pair, compute and
 * dispatch begin together. A stage's sends of a kind are drawn one after the other. */
#pragma once
#include "runtime/program/timeline.h"
#include "sim/training.h"
#include "tools/front/page/report.h"

typedef struct {
  hec_program program;
  hec_timeline timeline;
  hec_arena arena; /* titles, pieces */
  hec_report_piece *pieces;
  int32_t n_pieces;
} hec_pipeline_drawing; /* free it */

typedef struct {
  const hec_training *training;
  const hec_training_pieces *pieces;
  const hec_training_result *result; /* of the same run, without the factor */
  double moves_s;                    /* of its step, likewise */
  double factor;                     /* on every time */
} hec_pipeline_drawn;
void hec_pipeline_drawing_make(const hec_pipeline_drawn *of, hec_pipeline_drawing *drawing);
void hec_pipeline_drawing_free(hec_pipeline_drawing *drawing);
