/* Pipeline schedules: in which order the devices of a pipeline run the micro-batches of a step.
 *
 * The model is cut into parts, numbered from the embedding to the head. A device holds one part or several; each of its parts
 * is a chunk of the device (Megatron's "virtual stage"). A micro-batch goes forward through all parts, then backward through
 * all parts. What a device does for one micro-batch and one part is a piece. A schedule is a row that lists the pieces of each
 * device in order. The order is data: `sim/pipeline_run.h` prices it, an executor can follow it.
 *
 *   1f1b, 2 stages, 3 micro-batches      stage 0:  F0 F1 B0 F2 B1 B2        stage 1:  F0 B0 F1 B1 F2 B2
 *
 * Dependencies follow from the order. A forward waits for the forward of the part before it, a gradient for that of the
 * part behind it. A device runs one piece at a time. */
#pragma once
#include "runtime/base/arena.h"
#include "runtime/base/status.h"
#include "runtime/base/table.h"

#include <stdbool.h>

typedef enum {
  HEC_PIECE_FORWARD,
  HEC_PIECE_INPUT_GRADIENT,
  HEC_PIECE_WEIGHT_GRADIENT,
  HEC_PIECE_BACKWARD, /* both gradients; the device before gets its gradient when both are done */
  HEC_PIECE_PAIR, /* a forward beside a backward of another micro-batch or chunk; each hides the other's communication */
} hec_piece_kind;

typedef struct {
  hec_piece_kind kind;
  int32_t chunk, micro_batch;               /* of a pair: its forward */
  int32_t beside_chunk, beside_micro_batch; /* of a pair: its backward; otherwise -1 */
} hec_pipeline_piece;

typedef struct {
  int32_t n_stages; /* devices in a pipeline; at least 1 */
  int32_t n_chunks; /* parts that a device holds; 0: as few as the schedule can have */
  int32_t n_micro_batches;
  int32_t group; /* interleaved: micro-batches that follow each other in one chunk; at least n_stages; 0: n_stages */
} hec_pipeline_shape;

/* Owned by the arena it was made in. */
typedef struct {
  const struct hec_pipeline_schedule *schedule;
  hec_pipeline_shape shape; /* with n_chunks and group filled in */
  int32_t n_parts;          /* of the model */
  int32_t n_pieces;
  int32_t *part; /* [n_stages][n_chunks] the part that a chunk of a device is */
  int32_t
      *device; /* [n_parts][n_micro_batches] who runs that part for that micro-batch (dualpipe: two devices hold it) */
  int32_t *piece_at;         /* [n_stages + 1] CSR offsets into `piece` */
  hec_pipeline_piece *piece; /* [n_pieces] device after device, each in the order in which it runs them */
} hec_pipeline_order;

typedef struct hec_pipeline_schedule {
  const char *name, *summary, *source;
  /* Idle time if all micro-batches cost the same, of the device that idles longest. F, B, W: the forward, input
   * gradient and weight gradient of a micro-batch in all parts of a device that it passes. F&B: the same as pairs. p
   * devices, v chunks. */
  const char *bubble;
  int32_t min_chunks, max_chunks; /* parts that a device can hold */
  int32_t copies;                 /* devices that hold each part: 2 of dualpipe, else 1 */
  bool splits;                    /* input and weight gradients can be pieces of their own */
  bool pairs;                     /* it has pairs */
  /* What else it asks of the sizes; min_chunks and max_chunks are checked before. NULL: nothing. */
  hec_status (*fits)(const hec_pipeline_shape *shape);
  int32_t (*part)(const hec_pipeline_shape *shape, int32_t device, int32_t chunk); /* NULL: chunk * n_stages + device */
  void (*order)(hec_pipeline_order *order, int32_t device);                        /* appends the device's pieces */
} hec_pipeline_schedule;

#define HEC_PIPELINE_LIST(X) X(gpipe) X(1f1b) X(interleaved) X(1f1b_overlap) X(zb_h1) X(dualpipe) X(dualpipev)
#define HEC_PIPELINE_DECLARE(name) extern const hec_pipeline_schedule hec_pipeline_##name;
HEC_PIPELINE_LIST(HEC_PIPELINE_DECLARE)
extern const hec_pipeline_schedule *const hec_pipeline_schedules[]; /* NULL-terminated */
extern const hec_table hec_pipeline_table;
const hec_pipeline_schedule *hec_pipeline_find(const char *name); /* NULL: there is none */
/* Where none is named: interleaved for several stages of several parts each, else 1f1b. */
const hec_pipeline_schedule *hec_pipeline_default(int32_t n_stages, int32_t n_chunks);

/* The order of all devices. Sizes that the schedule cannot have: HEC_BAD_INPUT, with sizes that fit:
 * "pipeline dualpipe: expected an even number of stages, found 3; use 2 or 4". O(pieces). */
hec_status hec_pipeline_order_make(const hec_pipeline_schedule *schedule, const hec_pipeline_shape *shape,
                                   hec_arena *arena, hec_pipeline_order *order) HEC_MUST_USE;

/* Whether the order is a right one. Every micro-batch must pass every part once in each direction. All its pieces of a
 * part are on one device, and each gradient comes after what it needs there. HEC_FAILED: the order is wrong, which is
 * a bug; the message names the first fault. That devices do not wait for each other in a circle is found by running it
 * (sim/pipeline_run.h). */
hec_status hec_pipeline_order_check(const hec_pipeline_order *order) HEC_MUST_USE;

/* Memory that a micro-batch holds on the device of a part. */
typedef struct {
  int64_t activation; /* from the begin of its forward to the end of its input gradient or backward */
  int64_t weight;     /* what a weight gradient still needs: from the end of the input gradient to its own end */
} hec_piece_held;
/* held[i] = what the device holds while it runs piece i: that of all its micro-batches (chunk -1) or of those of one chunk.
 * `each` [n_parts][n_micro_batches]; NULL: 1 per activation and 0 per weight, so that micro-batches are counted.
 * held: [n_pieces]. Time plays no part, for a device runs its pieces in order. O(pieces). */
void hec_pipeline_order_held(const hec_pipeline_order *order, const hec_piece_held *each, int32_t chunk, int64_t *held);

/* What a piece does, as indices of [n_parts][n_micro_batches]; -1: it does none of that kind. */
typedef struct {
  int32_t forward, input, weight; /* the gradients of a backward are of the same part and micro-batch */
} hec_piece_work;
hec_piece_work hec_piece_work_of(const hec_pipeline_order *order, int32_t device, const hec_pipeline_piece *piece);

/* For rows: appends a piece to the device that is being written. */
void hec_pipeline_add(hec_pipeline_order *order, hec_piece_kind kind, int32_t chunk, int32_t micro_batch);
void hec_pipeline_add_pair(hec_pipeline_order *order, int32_t chunk, int32_t micro_batch, int32_t beside_chunk,
                           int32_t beside_micro_batch);
/* HEC_BAD_INPUT: "pipeline NAME: expected EXPECTED, found FOUND; use USE". */
hec_status hec_pipeline_refuse(const char *name, const char *expected, int32_t found, const char *use, ...)
    __attribute__((format(printf, 4, 5))) HEC_MUST_USE;

/* "forward of micro-batch 3, virtual stage 2": for messages. Valid until the caller frees the text. */
void hec_piece_describe(const hec_pipeline_order *order, int32_t device, const hec_pipeline_piece *piece,
                        hec_text *text);
