/* When each piece of a pipeline begins and ends (runtime/program/pipelines/pipeline_schedule.h). Micro-batches and parts cost
 * what they cost, so the bubble is found and not a formula.
 *
 * A device runs its pieces in order and one at a time. A piece begins as soon as the device is free and its inputs are there:
 *
 *   begin(piece) = max(device free, end(input) + send time)        end(piece) = begin(piece) + its cost
 *
 * Only max and + of costs, so no cost that shrinks can make the step longer. Transfers between stages do not slow each other
 * down. */
#pragma once
#include "runtime/program/pipelines/pipeline_schedule.h"

/* Picoseconds of one micro-batch in one part, by HEC_PIECE_FORWARD, HEC_PIECE_INPUT_GRADIENT, HEC_PIECE_WEIGHT_GRADIENT.
 * Alone, a piece takes compute + exchange: `exchange` is its expert-parallel communication that nothing of its own hides. */
typedef struct {
  int64_t compute_ps[3], exchange_ps[3];
} hec_piece_cost;

/* How long a pair takes. The costs are those of the forward and of the backward. */
typedef int64_t hec_pair_ps(void *context, const hec_piece_cost *forward, const hec_piece_cost *backward);
/* The default: the longest of all compute, all exchange, the forward alone and the backward alone. So communication hides
 * behind the other's compute, and neither half is faster than it is alone. `context` is not used. */
hec_pair_ps hec_pair_overlapped_ps;
hec_pair_ps hec_pair_serial_ps; /* no overlap: the sum */

typedef struct {
  const hec_piece_cost *piece; /* [n_parts][n_micro_batches], none below 0 */
  hec_pair_ps *pair_ps;        /* NULL: hec_pair_overlapped_ps */
  void *pair_context;
  const int64_t
      *send_ps;     /* [n_parts - 1] from part i to part i + 1, and of gradients back; NULL: 0. Within a device: 0 */
  bool send_blocks; /* the sender runs nothing else meanwhile; false: it goes on at once */
} hec_pipeline_costs;

typedef struct {
  int64_t begin_ps, end_ps; /* of its first and its last piece */
  int64_t busy_ps;          /* sum of its pieces */
  int64_t sending_ps;       /* blocked by its own sends, before another piece of it or the end of the step */
  int64_t waiting_ps;       /* idle for want of an input, between its first and its last piece */
  int64_t bubble_ps;        /* step - busy - sending: waiting, and idle before its first and after its last piece */
} hec_pipeline_device;

/* Owned by the arena it was made in. */
typedef struct {
  int64_t step_ps;             /* the last piece's end; sends behind it are counted if they block */
  int64_t *begin_ps, *end_ps;  /* [n_pieces] as order->piece */
  hec_pipeline_device *device; /* [n_stages] */
} hec_pipeline_run;

/* HEC_FAILED: devices wait for each other in a circle, a bug of the schedule; the message names one that waits, and for what.
 * O(pieces). */
hec_status hec_pipeline_run_make(const hec_pipeline_order *order, const hec_pipeline_costs *costs, hec_arena *arena,
                                 hec_pipeline_run *run) HEC_MUST_USE;

/* The most that a device holds, and when first. `held`: of hec_pipeline_order_held. */
typedef struct {
  int64_t held, at_ps;
  int32_t device, piece; /* the piece that the device begins then; an index of order->piece */
} hec_pipeline_peak;
hec_pipeline_peak hec_pipeline_peak_of(const hec_pipeline_order *order, const hec_pipeline_run *run,
                                       const int64_t *held,
                                       int32_t device /* -1: the worst of all, ties to the first */);
