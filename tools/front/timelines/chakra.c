/* MLCommons Chakra execution traces, a file per rank, for ASTRA-sim and other simulators of networks. A file is a sequence
 * of messages, each behind its length as a varint: GlobalMetadata, then Nodes (mlcommons/chakra,
 * schema/protobuf/et_def.proto). Fields used:
 *
 *   GlobalMetadata  version 1, attr 2
 *   Node            id 1, name 2, type 3 (COMP 4, COMM_SEND 5, COMM_RECV 6, COMM_COLL 7), data_deps 5 (packed),
 *                   start_time_micros 6, duration_micros 7, attr 10
 *   AttributeProto  name 1; int32 7, int64 9, uint64 13, bool 27, string 29
 *
 * Attributes are of the types that Chakra's converters give them. int64: num_ops, comm_size, comm_type. int32:
 * comm_src, comm_dst, comm_tag. uint64: tensor_size. bool: is_cpu_op. Ours is duration_ps, int64, because micros are
 * whole.
 *
 *   compute, local, plan  a COMP node: FLOPs, bytes (weights and rows, or what is moved), duration of the timeline
 *   exchange              a SEND for each transfer that leaves the rank and a RECV for each that arrives; the two ends have
 *                         equal comm_src, comm_dst, comm_tag and comm_size, and no other pair has that tag. Where there are
 *                         several, an empty COMP node behind them, so that what follows names one node, not hundreds
 *   all-reduce, counts    a COLL node: ALL_REDUCE 0 of the rank's bytes, ALL_GATHER 2 of the bytes that each gives; an
 *                         all-reduce among every S-th rank names its group in pg_name ("S:rank % S")
 *
 * data_deps: the operation's dependencies on the rank, and the operation before it on its lane. A transfer that forwards
 * another's chunks waits for the whole of it here: Chakra has no chunks. So a replay of chains takes longer than ours.
 * Waiting across ranks is in sends and receives alone, as in a program (program.h), so no replay can deadlock.
 * Ids rise along dependencies. O(nodes + transfers of all) per rank. */
#include "runtime/base/arena.h"
#include "runtime/base/protobuf.h"
#include "tools/front/timelines/timeline_format.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMP = 4, SEND = 5, RECV = 6, COLL = 7 };
enum { ALL_REDUCE = 0, ALL_GATHER = 2 };
enum { ATTR_INT32 = 7, ATTR_INT64 = 9, ATTR_UINT64 = 13, ATTR_BOOL = 27, ATTR_STRING = 29 };

/* One rank's file at work. */
typedef struct {
  const hec_program *program;
  const hec_timeline *timeline;
  int32_t rank;
  uint64_t id;                /* of the newest node; the first is 1 */
  uint64_t *tail;             /* [n_ops] the node that ends the operation; 0: the rank takes no part */
  uint64_t lane[HEC_N_LANES]; /* the same of the newest operation of each lane */
  int64_t tag;                /* of the operation's first transfer */
  uint64_t *received;         /* [most transfers] RECV nodes of the exchange at hand */
  int32_t *heard, *next; /* [most transfers] reversed chains: newest transfer that a sender waits for, and the list */
  hec_text deps, attr, node; /* packed deps of the operation; scratch */
  hec_text own;              /* deps of one node */
  hec_text *out;
} writer;

static void attribute(writer *w, const char *name, uint32_t field, uint64_t value) {
  w->attr.length = 0;
  hec_protobuf_string(&w->attr, 1, name);
  hec_protobuf_number(&w->attr, field, value);
  hec_protobuf_bytes(&w->node, 10, w->attr.data, w->attr.length);
}

static void attribute_text(writer *w, const char *name, const char *value) {
  w->attr.length = 0;
  hec_protobuf_string(&w->attr, 1, name);
  hec_protobuf_string(&w->attr, ATTR_STRING, value);
  hec_protobuf_bytes(&w->node, 10, w->attr.data, w->attr.length);
}

static uint64_t to_us(int64_t ps) {
  return (uint64_t)((ps + 500000) / 1000000);
}

/* A node of operation `op`; `took`: with the operation's times. Attributes may follow until node_end. */
static uint64_t node_begin(writer *w, int32_t op, const char *name, uint32_t type, const hec_text *deps, bool took) {
  size_t at = (size_t)op * (size_t)w->timeline->n_ranks + (size_t)w->rank;
  int64_t begin = w->timeline->begin_ps[at], end = w->timeline->end_ps[at];
  begin = took ? begin : end;
  w->node.length = 0;
  hec_protobuf_number(&w->node, 1, ++w->id);
  hec_protobuf_string(&w->node, 2, name);
  hec_protobuf_number(&w->node, 3, type);
  if (deps->length > 0)
    hec_protobuf_bytes(&w->node, 5, deps->data, deps->length);
  hec_protobuf_number(&w->node, 6, to_us(begin));
  hec_protobuf_number(&w->node, 7, to_us(end) - to_us(begin));
  attribute(w, "is_cpu_op", ATTR_BOOL, w->program->ops[op].kind == HEC_OP_PLAN);
  attribute(w, "duration_ps", ATTR_INT64, (uint64_t)(end - begin));
  return w->id;
}

static void node_end(writer *w) {
  hec_protobuf_varint(w->out, w->node.length);
  hec_text_add_bytes(w->out, w->node.data, w->node.length);
}

/* FLOPs and bytes of the rank's share of an operation that does not communicate. */
static void work_of(const writer *w, const hec_op *op, double *flops, double *bytes) {
  const hec_program *p = w->program;
  *flops = 0;
  *bytes = 0;
  if (op->kind == HEC_OP_LOCAL)
    *bytes = op->local.bytes_at < 0 ? op->bytes : op->bytes * p->local_bytes[op->local.bytes_at + w->rank];
  if (op->kind != HEC_OP_COMPUTE)
    return;
  const hec_work_shape *shape = &p->shapes[op->compute.shape];
  double rows = op->compute.work_at < 0 ? op->compute.rows : 0;
  int32_t items = op->compute.work_at < 0 && rows > 0 ? 1 : 0;
  if (op->compute.work_at >= 0)
    for (int32_t i = p->work_index[op->compute.work_at + w->rank]; i < p->work_index[op->compute.work_at + w->rank + 1];
         i++) {
      rows += p->work[i].rows;
      items += p->work[i].rows > 0;
    }
  *flops = rows * shape->flops_per_row;
  *bytes = rows * shape->bytes_per_row + items * shape->weight_bytes;
}

static uint64_t add_work(writer *w, int32_t id, const char *name) {
  double flops, bytes;
  work_of(w, &w->program->ops[id], &flops, &bytes);
  uint64_t node = node_begin(w, id, name, COMP, &w->deps, true);
  attribute(w, "num_ops", ATTR_INT64, (uint64_t)(flops + 0.5));
  attribute(w, "tensor_size", ATTR_UINT64, (uint64_t)(bytes + 0.5));
  node_end(w);
  return node;
}

static uint64_t add_collective(writer *w, int32_t id, const char *name) {
  const hec_op *op = &w->program->ops[id];
  uint64_t node = node_begin(w, id, name, COLL, &w->deps, true);
  attribute(w, "comm_type", ATTR_INT64, op->kind == HEC_OP_COUNTS ? ALL_GATHER : ALL_REDUCE);
  attribute(w, "comm_size", ATTR_INT64, (uint64_t)(op->bytes + 0.5));
  if (op->kind == HEC_OP_ALLREDUCE && op->allreduce.stride > 1) {
    char group[32];
    (void)snprintf(group, sizeof group, "%" PRId32 ":%" PRId32, op->allreduce.stride, w->rank % op->allreduce.stride);
    attribute_text(w, "pg_name", group);
  }
  node_end(w);
  return node;
}

/* One end of transfer k. */
static uint64_t add_end(writer *w, int32_t id, const char *name, int32_t k, const hec_text *deps) {
  const hec_op *op = &w->program->ops[id];
  const hec_transfer *t = &w->program->transfers[op->exchange.transfer_at + k];
  int32_t source = op->reverse ? t->destination : t->source, destination = op->reverse ? t->source : t->destination;
  uint64_t node = node_begin(w, id, name, source == w->rank ? SEND : RECV, deps, true);
  attribute(w, "comm_size", ATTR_INT64, (uint64_t)t->bytes);
  attribute(w, "comm_src", ATTR_INT32, (uint64_t)source);
  attribute(w, "comm_dst", ATTR_INT32, (uint64_t)destination);
  attribute(w, "comm_tag", ATTR_INT32, (uint64_t)(w->tag + k));
  node_end(w);
  return node;
}

/* What a SEND of transfer k waits for: the operation's dependencies, and what it forwards. */
static const hec_text *send_deps(writer *w, const hec_op *op, const hec_transfer *t, int32_t k) {
  bool forwards = op->reverse ? w->heard[k] >= 0 : t->after >= 0 && w->received[t->after] > 0;
  if (!forwards)
    return &w->deps;
  w->own.length = 0;
  hec_text_add_bytes(&w->own, w->deps.data, w->deps.length);
  if (op->reverse)
    for (int32_t i = w->heard[k]; i >= 0; i = w->next[i])
      hec_protobuf_varint(&w->own, w->received[i]);
  else
    hec_protobuf_varint(&w->own, w->received[t->after]);
  return &w->own;
}

/* Transfers in the order in which chains run: from the first, reversed from the last. */
static uint64_t add_exchange(writer *w, int32_t id, const char *name) {
  const hec_op *op = &w->program->ops[id];
  int32_t n = op->exchange.n_transfers;
  uint64_t before = w->id;
  memset(w->received, 0, (size_t)n * sizeof *w->received);
  memset(w->heard, 0xff, (size_t)n * sizeof *w->heard);
  for (int32_t i = 0; i < n; i++) {
    int32_t k = op->reverse ? n - 1 - i : i;
    const hec_transfer *t = &w->program->transfers[op->exchange.transfer_at + k];
    int32_t source = op->reverse ? t->destination : t->source, destination = op->reverse ? t->source : t->destination;
    if (source == w->rank)
      (void)add_end(w, id, name, k, send_deps(w, op, t, k));
    if (destination != w->rank)
      continue;
    w->received[k] = add_end(w, id, name, k, &w->deps);
    if (op->reverse && t->after >= 0) {
      w->next[k] = w->heard[t->after];
      w->heard[t->after] = k;
    }
  }
  if (w->id == before + 1)
    return w->id;
  w->own.length = 0; /* a rank that only takes part (no transfer) has its empty node too */
  for (uint64_t node = before + 1; node <= w->id; node++)
    hec_protobuf_varint(&w->own, node);
  uint64_t last = node_begin(w, id, name, COMP, w->own.length > 0 ? &w->own : &w->deps, false);
  attribute(w, "num_ops", ATTR_INT64, 0);
  attribute(w, "tensor_size", ATTR_UINT64, 0);
  node_end(w);
  return last;
}

static void gather_deps(writer *w, const hec_op *op) {
  w->deps.length = 0;
  if (w->lane[op->lane] > 0)
    hec_protobuf_varint(&w->deps, w->lane[op->lane]);
  for (int32_t d = 0; d < op->n_deps; d++) {
    uint64_t node = w->tail[w->program->deps[op->dep_at + d]];
    if (node > 0 && node != w->lane[op->lane])
      hec_protobuf_varint(&w->deps, node);
  }
}

static void add_op(writer *w, int32_t id) {
  const hec_op *op = &w->program->ops[id];
  char name[HEC_OP_TITLE_BYTES];
  hec_op_title(op, name);
  if (hec_program_takes_part(w->program, op, w->rank)) {
    gather_deps(w, op);
    bool collective = op->kind == HEC_OP_ALLREDUCE || op->kind == HEC_OP_COUNTS;
    w->tail[id] = op->kind == HEC_OP_EXCHANGE ? add_exchange(w, id, name)
                  : collective                ? add_collective(w, id, name)
                                              : add_work(w, id, name);
    w->lane[op->lane] = w->tail[id];
  }
  w->tag += op->kind == HEC_OP_EXCHANGE ? op->exchange.n_transfers : 0;
}

static void add_metadata(const hec_drawing *d, writer *w) {
  w->node.length = 0;
  hec_protobuf_string(&w->node, 1, "0.0.4"); /* of the schema, as Chakra's own generator writes it */
  w->attr.length = 0;
  hec_protobuf_string(&w->attr, 1, "hecate");
  hec_protobuf_string(&w->attr, ATTR_STRING, d->label);
  hec_protobuf_bytes(&w->node, 2, w->attr.data, w->attr.length);
  node_end(w);
}

static void add(const hec_drawing *drawing, int32_t rank, hec_text *out) {
  const hec_program *program = drawing->program;
  size_t max = 1;
  for (size_t i = 0; i < program->n_ops; i++)
    if (program->ops[i].kind == HEC_OP_EXCHANGE && (size_t)program->ops[i].exchange.n_transfers > max)
      max = (size_t)program->ops[i].exchange.n_transfers;
  writer w = {.program = program, .timeline = drawing->timeline, .rank = rank, .out = out};
  w.tail = hec_malloc(program->n_ops + 1, sizeof *w.tail);
  memset(w.tail, 0, (program->n_ops + 1) * sizeof *w.tail);
  w.received = hec_malloc(max, sizeof *w.received);
  w.heard = hec_malloc(max, sizeof *w.heard);
  w.next = hec_malloc(max, sizeof *w.next);
  add_metadata(drawing, &w);
  for (size_t i = 0; i < program->n_ops; i++)
    add_op(&w, (int32_t)i);
  HEC_ASSERT(w.tag <= INT32_MAX);
  hec_text *scratch[] = {&w.deps, &w.attr, &w.node, &w.own};
  for (size_t i = 0; i < sizeof scratch / sizeof *scratch; i++)
    hec_text_free(scratch[i]);
  free(w.tail);
  free(w.received);
  free(w.heard);
  free(w.next);
}

const hec_timeline_format hec_timeline_chakra = {
    .name = "chakra",
    .summary = "Chakra execution traces, a file per rank: chakra/POLICY/et.0.et ..., for ASTRA-sim",
    .prefix = "et.",
    .suffix = ".et",
    .add = add,
};
