/* Traces as PyTorch's profiler (Kineto) writes them, a file per rank, for HolisticTraceAnalysis (HTA):
 *
 *   {"schemaVersion": 1, "distributedInfo": {"backend": B, "rank": r, "world_size": n}, ..., "traceEvents": [...]}
 *
 * Fields and arguments are those that HTA 0.5.0 reads (its trace_parser, trace_file and event arguments; release of
 * PyPI). The rank is looked for line by line as "rank": N, blank included. What it makes of them:
 *   a kernel    an event with an argument "stream"; its class comes from its name alone: ^nccl.*Kernel communicates,
 *               ^Memcpy or ^Memset moves memory, the rest computes. So exchanges, all-reduces and counts have the names of
 *               NCCL's kernels, on CPUs too, and lanes are streams from 7 on, where PyTorch's own begins.
 *   breakdown   compute = union of computing kernels; idle = gaps in the union of all kernels, from the first begin to the
 *               last end; non-compute = the rest. Overlap = time with both over the union of communication.
 * Its numbers are hec_timeline_rank_time's, which stand in the file beside them ("hecate", in picoseconds).
 *
 * Times are whole microseconds. Begin and end are each rounded to the nearest, so that neighbours stay neighbours and
 * errors do not add up. With fractions HTA rounds begins up and ends down (its round_down_time_stamps; for the order
 * of PyTorch's events). That takes up to 2 us off every kernel, always the same way. Exact times are arguments of our
 * own: "begin ps", "length ps".
 *
 * Planning is the host's: a cpu_op without a stream, as is the iteration, "ProfilerStep#N". Nothing here models how kernels
 * are launched, so there are no cuda_runtime events, and HTA's launch statistics have nothing to say. Split sizes are whole
 * lists (Kineto cuts them at 30). Inferred: "Group size" of an exchange is its participants. O(transfers) per rank. */
#include "runtime/base/arena.h"
#include "tools/front/timelines/timeline_format.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_STREAM = 7, HOST = 1000000 }; /* host processes of ranks: HOST + rank */

static int64_t to_us(int64_t ps) {
  return (ps + 500000) / 1000000;
}

static void name_event(hec_text *out, const char *what, int64_t pid, int64_t tid, const char *name, int32_t number) {
  hec_text_printf(out,
                  "{\"ph\": \"M\", \"name\": \"%s\", \"pid\": %" PRId64 ", \"tid\": %" PRId64
                  ", \"ts\": 0, \"args\": {\"name\": \"%s %" PRId32 "\"}},\n",
                  what, pid, tid, name, number);
}

static void add_head(const hec_drawing *d, int32_t rank, hec_text *out) {
  hec_rank_time t = hec_timeline_rank_time(d->timeline, d->program, rank);
  hec_text_printf(
      out,
      "{\n\"schemaVersion\": 1,\n\"deviceProperties\": [],\n\"distributedInfo\": {\"backend\": \"%s\", \"rank\": "
      "%" PRId32 ", \"world_size\": %" PRId32
      "},\n\"displayTimeUnit\": \"ms\",\n\"baseTimeNanoseconds\": 0,\n\"traceName\": \"%s\",\n",
      d->executed ? "hecate-run" : "nccl", rank, d->timeline->n_ranks, d->label);
  hec_text_printf(out,
                  "\"hecate\": {\"first_ps\": %" PRId64 ", \"last_ps\": %" PRId64 ", \"compute_ps\": %" PRId64
                  ", \"communication_ps\": %" PRId64 ", \"both_ps\": %" PRId64 ", \"idle_ps\": %" PRId64 "},\n",
                  t.first_ps, t.last_ps, t.compute_ps, t.communication_ps, t.both_ps, t.idle_ps);
  hec_text_add(out, "\"traceEvents\": [\n");
  name_event(out, "process_name", rank, 0, hec_program_rank_word(d->program), rank);
  for (int32_t lane = 0; lane < HEC_N_LANES; lane++)
    name_event(out, "thread_name", rank, FIRST_STREAM + lane, hec_program_lane_name(d->program, lane),
               FIRST_STREAM + lane);
  name_event(out, "process_name", HOST + rank, 0, "host of rank", rank);
  hec_text_printf(out,
                  "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#%" PRId64 "\", \"pid\": %d, "
                  "\"tid\": %d, \"ts\": 0, \"dur\": %" PRId64 ", \"args\": {}}",
                  d->iter, HOST + rank, HOST + rank, to_us(hec_timeline_end_ps(d->timeline)));
}

static void add_list(hec_text *out, const char *name, const int64_t *values, int32_t n) {
  hec_text_printf(out, ", \"%s\": \"[", name);
  for (int32_t i = 0; i < n; i++)
    hec_text_printf(out, "%s%" PRId64, i ? ", " : "", values[i]);
  hec_text_add(out, "]\"");
}

static void add_collective(hec_text *out, const char *name, double in, double to, int32_t group) {
  hec_text_printf(
      out,
      ", \"Collective name\": \"%s\", \"dtype\": \"Byte\", \"In msg nelems\": %.0f, \"Out msg nelems\": %.0f, "
      "\"Group size\": %" PRId32,
      name, in, to, group);
}

/* bytes: [2 * n_ranks] scratch, to and from each peer. */
static void add_exchange(const hec_program *program, const hec_op *op, int32_t rank, int64_t *bytes, hec_text *out) {
  int32_t n = program->n_ranks, group = 0;
  int64_t sent = 0, received = 0;
  memset(bytes, 0, 2 * (size_t)n * sizeof *bytes);
  for (int32_t i = 0; i < op->exchange.n_transfers; i++) {
    const hec_transfer *t = &program->transfers[op->exchange.transfer_at + i];
    int32_t source = op->reverse ? t->destination : t->source, destination = op->reverse ? t->source : t->destination;
    if (source == rank)
      bytes[destination] += t->bytes, sent += t->bytes;
    if (destination == rank)
      bytes[n + source] += t->bytes, received += t->bytes;
  }
  for (int32_t r = 0; r < n; r++)
    group += program->parts[op->exchange.part_at + r] != 0;
  add_collective(out, "all_to_allv", (double)sent, (double)received, group);
  add_list(out, "In split size", bytes, n);
  add_list(out, "Out split size", bytes + n, n);
}

static void add_arguments(const hec_drawing *d, int32_t id, int32_t rank, int64_t *bytes, hec_text *out) {
  const hec_op *op = &d->program->ops[id];
  int32_t n = d->program->n_ranks,
          stride = op->kind == HEC_OP_ALLREDUCE && op->allreduce.stride > 1 ? op->allreduce.stride : 1;
  if (op->kind == HEC_OP_EXCHANGE)
    add_exchange(d->program, op, rank, bytes, out);
  if (op->kind == HEC_OP_ALLREDUCE)
    add_collective(out, "allreduce", op->bytes, op->bytes, (n - rank % stride + stride - 1) / stride);
  if (op->kind == HEC_OP_COUNTS)
    add_collective(out, "allgather", op->bytes, op->bytes * n, n);
  if (op->kind == HEC_OP_LOCAL && hec_op_kernel(op)) /* in groups that no rank of this file is in: no sizes */
    add_collective(out, "inside_stage", 0, 0, 0);
  if (hec_op_kernel(op))
    hec_text_printf(out, ", \"Process Group Name\": \"%s\", \"Rank\": %" PRId32,
                    hec_program_lane_name(d->program, (int32_t)op->lane), rank);
}

static void add_event(const hec_drawing *d, int32_t id, int32_t rank, int64_t *bytes, hec_text *out) {
  const hec_op *op = &d->program->ops[id];
  size_t at = (size_t)id * (size_t)d->timeline->n_ranks + (size_t)rank;
  int64_t begin = d->timeline->begin_ps[at], end = d->timeline->end_ps[at];
  if (begin < 0 || end == begin)
    return;
  bool host = op->kind == HEC_OP_PLAN;
  const char *kernel = hec_op_kernel(op);
  char title[HEC_OP_TITLE_BYTES];
  hec_op_title(op, title);
  hec_text_printf(out,
                  ",\n{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s%s%s\", \"pid\": %d, \"tid\": %d, \"ts\": %" PRId64
                  ", \"dur\": %" PRId64 ", \"args\": {\"External id\": %" PRId32,
                  hec_op_category(op), kernel ? kernel : "", kernel ? ": " : "", title, host ? HOST + rank : rank,
                  host ? HOST + rank : FIRST_STREAM + (int)op->lane, to_us(begin), to_us(end) - to_us(begin), id + 1);
  if (!host)
    hec_text_printf(out, ", \"correlation\": %" PRId32 ", \"device\": %" PRId32 ", \"stream\": %d", id + 1, rank,
                    FIRST_STREAM + (int)op->lane);
  add_arguments(d, id, rank, bytes, out);
  hec_text_printf(out,
                  ", \"layer\": %" PRId32 ", \"micro_batch\": %" PRId32 ", \"begin ps\": %" PRId64
                  ", \"length ps\": %" PRId64 "}}",
                  op->layer, op->micro_batch, begin, end - begin);
}

static void add(const hec_drawing *drawing, int32_t rank, hec_text *out) {
  int64_t *bytes = hec_malloc(2 * (size_t)drawing->program->n_ranks, sizeof *bytes);
  add_head(drawing, rank, out);
  for (int32_t i = 0; i < drawing->timeline->n_ops; i++)
    add_event(drawing, i, rank, bytes, out);
  hec_text_add(out, "\n]}\n");
  free(bytes);
}

const hec_timeline_format hec_timeline_kineto = {
    .name = "kineto",
    .summary = "as PyTorch's profiler, a file per rank: kineto/POLICY/rank0.json ..., for HolisticTraceAnalysis",
    .prefix = "rank",
    .suffix = ".json",
    .add = add,
};
