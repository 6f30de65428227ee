/* Recorded expert loads: the `hecate-trace` format, version 1, read and written as a stream.
 *
 *   header line   {"format":"hecate-trace","version":1,"name":..,"layers":24,"experts":32,"top_k":2,"source_ranks":16,
 *                  "layout":"layer x source_rank x expert","unit":"token-expert assignments",...}
 *   record line   {"iter":1,"layers":[[[0,3,..experts] x source_ranks] x layers]}
 *                 {"iter":1,"layers":[[0,3,..experts] x layers]}            (layout "layer x expert", source_ranks 1)
 * or one JSON object whose header fields precede "iterations":[record,...]; or gzip of either. Recognised by content.
 * Numbers are plain digits (1e3 and 5.0 are refused); unknown keys are ignored; a record may be repeated with the same
 * iter (micro-batches). Memory in use is one record and, where there are some, the header's transitions. Errors: FILE:LINE: JSON.PATH: expected X, found Y (exit code 2). */
#pragma once
#include "models/load.h"
#include "runtime/base/text.h"

#include <stdbool.h>
#include <stdint.h>

/* Max elements of one dimension, counts of one record and records of one iteration: more is an error, not an allocation. */
enum { HEC_TRACE_DIMENSION_MAX = 1 << 20, HEC_TRACE_COUNTS_MAX = 1 << 28, HEC_MICRO_BATCHES_MAX = 4096 };

typedef enum { HEC_PHASE_TRAIN, HEC_PHASE_FORWARD } hec_phase;
typedef enum { HEC_COUNTED_UNKNOWN, HEC_COUNTED_BEFORE_DROP, HEC_COUNTED_AFTER_DROP } hec_counted;

typedef struct {
  char *name, *source, *license, *model, *notes, *unit; /* "" when absent */
  char *phase_text;                                     /* as written */
  hec_phase phase;                                      /* prefill, decode or both: forward; absent or train: train */
  int32_t n_layers, n_experts, top_k, n_sources;
  bool per_source; /* layout "layer x source_rank x expert" */
  char *
      misspelt; /* "" or a key that is not known and looks like one that is absent: "phaes" (nearest known key: phase) */
  char *synthetic;                 /* raw JSON of the "synthetic" member, NULL when the loads were recorded */
  char *shape;                     /* raw JSON of "shape" (object or preset name), NULL when absent */
  int32_t ranks, devices_per_node; /* 0 when absent */
  hec_counted counted;
  uint64_t *transitions; /* [n_layers - 1][n_experts][n_experts] (token, expert a of a layer, expert b of the next);
                            NULL: none */
  bool transitions_over; /* the file says over which iterations they were counted: */
  int64_t transitions_first, transitions_last; /* these; else take it that over all there were */
} hec_trace_header;

typedef struct {
  int64_t iter;
  int32_t micro_batch;         /* -1 when absent */
  int64_t line;                /* where it stands in the file, 1-based */
  char label[128];             /* "" when absent; cut */
  uint64_t *tokens_per_source; /* [n_sources], or NULL when absent */
  hec_load load;               /* [n_layers][n_sources][n_experts]; overwritten by the next read */
} hec_trace_record;

/* Tokens per rank of the records, as recorded and rounded up; 0: of none that has any, or they are scaled. */
typedef struct {
  int32_t min, max;
} hec_token_range;

typedef struct hec_trace_reader hec_trace_reader;

/* Opens and reads the header; "-" is standard input. The header belongs to the reader. */
hec_status hec_trace_open(const char *path, hec_trace_reader **reader) HEC_MUST_USE;
/* The same over bytes in memory (tests, fuzzing); `origin` names them in messages. */
hec_status hec_trace_open_memory(const char *bytes, size_t length, const char *origin,
                                 hec_trace_reader **reader) HEC_MUST_USE;
/* Another reader of the same trace, for another thread; from standard input there is none. */
hec_status hec_trace_open_again(const hec_trace_reader *reader, hec_trace_reader **again) HEC_MUST_USE;
const hec_trace_header *hec_trace_header_of(const hec_trace_reader *reader);
bool hec_trace_is_object(const hec_trace_reader *reader);     /* records are elements of "iterations", not lines */
const char *hec_trace_origin(const hec_trace_reader *reader); /* its path, or what messages call it */
/* The next record, valid until the next call; *record is NULL at the end. A trace without any record, decreasing
 * `iter`, text cut in the middle: errors. */
hec_status hec_trace_next(hec_trace_reader *reader, const hec_trace_record **record) HEC_MUST_USE;
/* Back to the first record (a file is opened again; standard input cannot: error). */
hec_status hec_trace_rewind(hec_trace_reader *reader) HEC_MUST_USE;
/* How many records there are, up to `max`. Goes back to the first one, before and after. */
hec_status hec_trace_count(hec_trace_reader *reader, int32_t max, int32_t *n) HEC_MUST_USE;
void hec_trace_close(hec_trace_reader *reader);
HEC_OPENED_BY(hec_trace_reader, hec_trace_close)

/* Writing: a temporary name in the same folder, renamed by hec_trace_finish; hec_trace_abandon removes it. A path that
 * ends in .gz is compressed. "-" writes to standard output. */
typedef struct hec_trace_writer hec_trace_writer;
hec_status hec_trace_create(const char *path, const hec_trace_header *header, hec_trace_writer **writer) HEC_MUST_USE;
/* The same, added to `text` (at most `limit` bytes in all), which stays the caller's. */
hec_status hec_trace_create_memory(hec_text *text, size_t limit, const hec_trace_header *header,
                                   hec_trace_writer **writer) HEC_MUST_USE;
hec_status hec_trace_write(hec_trace_writer *writer, int64_t iter, const char *label,
                           const hec_load *load) HEC_MUST_USE;
hec_status hec_trace_finish(hec_trace_writer *writer) HEC_MUST_USE; /* frees the writer in every case */
void hec_trace_abandon(hec_trace_writer *writer);
