/* Forms of timelines in files: one file, one row each. A form is either one file for all that is drawn, or a file for every
 * rank of every drawing. */
#pragma once
#include "runtime/program/timeline.h"

/* One iteration of one row. */
typedef struct {
  const char *label;  /* for people: policy, schedule, iteration */
  const char *folder; /* of its files, where every rank has one: a word */
  int32_t index;      /* of the row */
  int64_t iter;
  const hec_program *program;
  const hec_timeline *timeline;
  bool executed; /* by hecate-run; else simulated */
  bool beside;   /* simulated, with the same executed beside it: operations have the names that they have there */
} hec_drawing;

typedef struct {
  const char *name, *summary;
  /* Of a rank's file: its name is PREFIX, the rank, SUFFIX. NULL: one file has all drawings, between `begin` and `end`. */
  const char *prefix, *suffix;
  void (*begin)(hec_text *out);
  void (*end)(hec_text *out);
  void (*append)(hec_text *out, const hec_text *part);                  /* drawings of a text with a begin of its own */
  void (*add)(const hec_drawing *drawing, int32_t rank, hec_text *out); /* rank's whole file; one file: rank is -1 */
} hec_timeline_format;

#define HEC_TIMELINE_FORMAT_LIST(X) X(chrome) X(kineto) X(chakra)
#define HEC_TIMELINE_FORMAT_DECLARE(name) extern const hec_timeline_format hec_timeline_##name;
HEC_TIMELINE_FORMAT_LIST(HEC_TIMELINE_FORMAT_DECLARE)
extern const hec_timeline_format *const hec_timeline_formats[];        /* NULL-terminated; the first is the default */
const hec_timeline_format *hec_timeline_format_find(const char *name); /* NULL: there is none */
static inline bool hec_timeline_by_rank(const hec_timeline_format *format) {
  return format->prefix != NULL;
}

/* Where drawings go. */
typedef struct {
  const hec_timeline_format *format;
  hec_text *text; /* the one file */
  /* Takes a rank's file; NULL only where one file has all. */
  hec_status (*put)(void *context, const char *folder, int32_t rank, const hec_text *file);
  void *context;
} hec_timeline_out;

/* Before the first drawing and after the last one. */
void hec_timeline_begin(const hec_timeline_out *out);
void hec_timeline_end(const hec_timeline_out *out);
/* Adds drawings made elsewhere: into a text begun with hec_timeline_begin, or packed there by a put. */
void hec_timeline_append(const hec_timeline_out *out, const hec_text *part);
/* Files of ranks are made one after the other, so memory holds one of them. */
hec_status hec_timeline_draw(const hec_timeline_out *out, const hec_drawing *drawing) HEC_MUST_USE;

/* ---- What forms have in common ---- */

/* NCCL's kernel that would carry the operation out; NULL: it does not communicate. */
const char *hec_op_kernel(const hec_op *op);
/* Its "cat" in trace events: a device's kernel, or planning, which is the host's. */
const char *hec_op_category(const hec_op *op);
/* "dispatch backward 2/4": role, direction, chunk. */
enum { HEC_OP_TITLE_BYTES = 96 };
void hec_op_title(const hec_op *op, char title[HEC_OP_TITLE_BYTES]);

/* What a rank's device did, in the terms of trace analysis: unions of intervals over all lanes. Communication: exchanges,
 * all-reduces, counts; computation: everything else but planning, which is the host's. From the first begin to the last
 * end of these; the time between that none of them covers is idle. */
typedef struct {
  int64_t first_ps, last_ps;
  int64_t compute_ps, communication_ps, both_ps, idle_ps; /* both_ps: in each of the two before it */
} hec_rank_time;
hec_rank_time hec_timeline_rank_time(const hec_timeline *timeline, const hec_program *program, int32_t rank);

/* Chrome trace events (opens in Perfetto). One process per rank, one thread per lane, complete events, times in
 * microseconds to the nanosecond. Argument names are Kineto's where they exist. The fullest rank's memory by class is a
 * counter. Opens nothing, closes nothing: several timelines may follow each other as processes pid_base + rank. Call
 * between hec_trace_events_begin and _end. `plain`: events of communication have the names of their roles, not those of
 * NCCL's kernels. */
void hec_trace_events_begin(hec_text *out);
void hec_trace_events_add(hec_text *out, const char *label, int32_t pid_base, const hec_program *program,
                          const hec_timeline *timeline, bool plain);
/* Appends the events of a text that was begun but not ended. */
void hec_trace_events_append(hec_text *out, const hec_text *part);
void hec_trace_events_end(hec_text *out);
