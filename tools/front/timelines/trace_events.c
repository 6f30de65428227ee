/* Chrome trace-event JSON. Layout: {"displayTimeUnit":"ms","traceEvents":[...]}; a "M" event names each process (rank)
 * and thread (lane), an "X" event stands for each (operation, rank).
 *
 * Times are microseconds with three places: whole nanoseconds, begin and end each rounded to the nearest, so that neighbours
 * stay neighbours. Perfetto counts in nanoseconds, rounds begins and lengths by themselves, and drops events that
 * overlap on their thread by even one (its slice_drop_overlapping_complete_event). With picoseconds it lost 3 % of
 * them. */
#include "tools/front/timelines/timeline_format.h"

#include "runtime/base/arena.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char head[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";

void hec_trace_events_begin(hec_text *out) {
  hec_text_add(out, head);
}

static int64_t to_ns(int64_t ps) {
  return (ps + 500) / 1000;
}

static void separate(hec_text *out) {
  if (out->data[out->length - 2] != '[')
    hec_text_add(out, ",\n");
}

static void name_event(hec_text *out, const char *what, int32_t pid, int32_t tid, const char *name) {
  separate(out);
  hec_text_printf(out, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%" PRId32 ",\"tid\":%" PRId32 ",\"args\":{\"name\":\"",
                  what, pid, tid);
  for (const char *c = name; *c; c++)
    hec_text_printf(out, (unsigned char)*c < 32 ? "\\u%04x" : *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
  hec_text_add(out, "\"}}");
}

typedef struct {
  const hec_program *program;
  const hec_timeline *timeline;
  bool plain;
} drawing;

/* Names of communication kernels as NCCL's, which analysis tools look for; the rest, and all where there is no GPU, under
 * their own. */
static void event_name(const drawing *d, const hec_op *op, char *name, size_t bytes) {
  const char *kernel = d->plain ? NULL : hec_op_kernel(op);
  char title[HEC_OP_TITLE_BYTES];
  hec_op_title(op, title);
  (void)snprintf(name, bytes, "%s%s%s", kernel ? kernel : "", kernel ? ": " : "", title);
}

static void rank_bytes(const hec_program *program, const hec_op *op, int32_t rank, int64_t *sent, int64_t *received) {
  *sent = *received = 0;
  if (op->kind != HEC_OP_EXCHANGE)
    return;
  for (int32_t i = 0; i < op->exchange.n_transfers; i++) {
    const hec_transfer *t = &program->transfers[op->exchange.transfer_at + i];
    int32_t source = op->reverse ? t->destination : t->source, destination = op->reverse ? t->source : t->destination;
    *sent += source == rank ? t->bytes : 0;
    *received += destination == rank ? t->bytes : 0;
  }
}

static void add_event(hec_text *out, const drawing *d, int32_t pid, int32_t id, int32_t rank) {
  const hec_program *program = d->program;
  const hec_timeline *timeline = d->timeline;
  const hec_op *op = &program->ops[id];
  size_t at = (size_t)id * (size_t)timeline->n_ranks + (size_t)rank;
  if (timeline->begin_ps[at] < 0 || timeline->end_ps[at] == timeline->begin_ps[at])
    return;
  int64_t begin = to_ns(timeline->begin_ps[at]), length = to_ns(timeline->end_ps[at]) - begin;
  char name[2 * HEC_OP_TITLE_BYTES];
  event_name(d, op, name, sizeof name);
  separate(out);
  hec_text_printf(out,
                  "{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%" PRId32 ",\"tid\":%d,\"ts\":%" PRId64
                  ".%03" PRId64 ",\"dur\":%" PRId64 ".%03" PRId64 ",\"args\":{\"op\":%" PRId32 ",\"layer\":%" PRId32
                  ",\"micro_batch\":%" PRId32 ",\"stream\":%d",
                  hec_op_category(op), name, pid, (int)op->lane, begin / 1000, begin % 1000, length / 1000,
                  length % 1000, id, op->layer, op->micro_batch, (int)op->lane);
  int64_t sent, received;
  rank_bytes(program, op, rank, &sent, &received);
  if (op->kind == HEC_OP_EXCHANGE)
    hec_text_printf(out,
                    ",\"Collective name\":\"all_to_allv\",\"dtype\":\"Byte\",\"In msg nelems\":%" PRId64
                    ",\"Out msg nelems\":%" PRId64,
                    sent, received);
  if (op->kind == HEC_OP_ALLREDUCE)
    hec_text_printf(
        out, ",\"Collective name\":\"allreduce\",\"dtype\":\"Byte\",\"In msg nelems\":%.0f,\"Out msg nelems\":%.0f",
        op->bytes, op->bytes);
  hec_text_add(out, "}}");
}

static void memory_event(hec_text *out, int32_t pid, int64_t time_ps, const double bytes[HEC_N_MEMORY]) {
  int64_t time = to_ns(time_ps);
  separate(out);
  hec_text_printf(out,
                  "{\"ph\":\"C\",\"name\":\"memory, bytes\",\"pid\":%" PRId32 ",\"tid\":0,\"ts\":%" PRId64 ".%03" PRId64
                  ",\"args\":{",
                  pid, time / 1000, time % 1000);
  for (int32_t k = 0; k < HEC_N_MEMORY; k++)
    hec_text_printf(out, "%s\"%s\":%.0f", k ? "," : "", hec_memory_name[k], bytes[k] > 0 ? bytes[k] : 0);
  hec_text_add(out, "}}");
}

/* Memory of one rank over time, by class, as counter events. */
static void add_memory(hec_text *out, int32_t pid, const hec_program *program, const hec_timeline *timeline,
                       int32_t rank) {
  int32_t n;
  hec_memory_change *changes = hec_timeline_memory(timeline, program, rank, &n);
  double bytes[HEC_N_MEMORY] = {0};
  for (int32_t i = 0; i < n; i++) {
    bytes[changes[i].memory] += changes[i].bytes;
    if (i + 1 == n || changes[i + 1].time_ps != changes[i].time_ps)
      memory_event(out, pid, changes[i].time_ps, bytes);
  }
  free(changes);
}

void hec_trace_events_add(hec_text *out, const char *label, int32_t pid_base, const hec_program *program,
                          const hec_timeline *timeline, bool plain) {
  const drawing d = {program, timeline, plain};
  for (int32_t r = 0; r < timeline->n_ranks; r++) {
    char name[160];
    (void)snprintf(name, sizeof name, "%s: %s %" PRId32, label, hec_program_rank_word(program), r);
    name_event(out, "process_name", pid_base + r, 0, name);
    for (int32_t lane = 0; lane < HEC_N_LANES; lane++)
      name_event(out, "thread_name", pid_base + r, lane, hec_program_lane_name(program, lane));
    for (int32_t i = 0; i < timeline->n_ops; i++)
      add_event(out, &d, pid_base + r, i, r);
  }
  int32_t fullest = hec_program_fullest_rank(program);
  add_memory(out, pid_base + fullest, program, timeline, fullest);
}

void hec_trace_events_append(hec_text *out, const hec_text *part) {
  size_t begin = sizeof head - 1;
  if (part->length == begin)
    return;
  separate(out);
  hec_text_add_bytes(out, part->data + begin, part->length - begin);
}

void hec_trace_events_end(hec_text *out) {
  hec_text_add(out, "\n]}\n");
}
