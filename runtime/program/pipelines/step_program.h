/* A step of pipeline stages as a program of its pieces, over the ranks of all stages. As with an iteration's program, a
 * step is predicted and measured by the same program. The operations inside a piece are those of the stage's own
 * program.
 *
 *   1f1b, 2 stages, 2 micro-batches     rank of stage 0   F0  F1  ~  B0  B1  E      F, B: local operations, one for each piece
 *                                       rank of stage 1     > F0 B0 > F1 B1  E      >, ~: exchanges between rank i of each stage
 *
 *   a piece      after the piece before it on its device, and the exchange that brings its input
 *   an exchange  once the sender has done the piece and the receiver the one before the piece that needs it
 *   a send       ends before the next piece but one of its sender begins: a device has one send of a kind on its way
 *                (runtime/exec/pipeline.c)
 *   E            what ends a step of a stage: what is left of the gradients' reduction, the optimizer
 *
 * Streams and their gradients have two lanes each, by whether the sender is an even or an odd stage, for a rank sends and receives. */
#pragma once
#include "runtime/program/pipelines/pipeline_schedule.h"
#include "runtime/program/timeline.h"

typedef struct {
  int32_t *piece; /* [n_pieces] its operation */
  int32_t *input; /* [n_pieces] the exchange that brings its input; -1: it is there */
  int32_t *end;   /* [n_stages] what ends a step */
} hec_step_ops;   /* of an arena */

/* `n_ranks` a stage, `bytes` of a micro-batch's stream on a rank. Without `train` there are no gradients: backward pieces are
 * there and take no input. The order has whole forwards and backwards alone. O(pieces * stages). */
void hec_step_program_make(const hec_pipeline_order *order, int32_t n_ranks, int64_t bytes, bool train,
                           hec_arena *arena, hec_program *program, hec_step_ops *ops);

/* When, from the begin of the step, in picoseconds: a rank had the input of one of its own pieces, and had done it. The last one of a
 * rank is what ends the step. */
typedef struct {
  int64_t input_ps, end_ps;
  int64_t lost_ps; /* of the piece, without a processor; for whoever mends timelines */
} hec_step_stamp;
/* stamps: [n_stages * n_ranks][n_own], n_own: pieces of a device at most, + 1. A time that is earlier than the program allows (two
 * clocks, a clock that is read late) is moved to when it is. */
void hec_step_timeline(const hec_pipeline_order *order, const hec_step_ops *ops, const hec_program *program,
                       const hec_step_stamp *stamps, int32_t n_own, hec_timeline *timeline);
/* Of the stages' own programs (hec_program_digest): one number for what a step executes. */
uint64_t hec_stages_digest(const uint64_t *digest, int32_t n_stages);
int32_t hec_step_own_max(const hec_pipeline_order *order); /* n_own */
