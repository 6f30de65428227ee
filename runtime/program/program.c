/* The program's arrays and the laws on them. Appending is amortised O(1); checks and digests are linear.
 * Memory: holds are intervals of operation ids. A sweep over 2*n_holds end points in id order gives the running sum per
 * rank, O(n_holds * (log n_holds + ranks)). */
#include "runtime/program/program.h"

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stdlib.h>
#include <string.h>

#define LANE_NAME(name, text) [HEC_LANE_##name] = (text),
const char *const hec_lane_name[HEC_N_LANES] = {HEC_LANE_LIST(LANE_NAME)};
#define ROLE_NAME(name, text, book, bytes, curve) [HEC_ROLE_##name] = (text),
const char *const hec_role_name[HEC_N_ROLES] = {HEC_ROLE_LIST(ROLE_NAME)};
#define ROLE_BOOK(name, text, book, bytes, curve) [HEC_ROLE_##name] = HEC_BOOK_##book,
const hec_book hec_role_book[HEC_N_ROLES] = {HEC_ROLE_LIST(ROLE_BOOK)};
#define ROLE_TRAFFIC(name, text, book, bytes, curve) [HEC_ROLE_##name] = HEC_TRAFFIC_##bytes,
#define ROLE_CURVE(name, text, book, bytes, curve) HEC_CURVE_##curve,
const hec_traffic hec_role_traffic[HEC_N_ROLES] = {HEC_ROLE_LIST(ROLE_TRAFFIC)};

static const hec_curve_kind role_curve[HEC_N_ROLES] = {HEC_ROLE_LIST(ROLE_CURVE)};

hec_op hec_op_new(hec_op_kind kind, hec_lane lane, hec_role role, int32_t layer) {
  hec_op op = {.kind = kind, .lane = lane, .role = role, .layer = layer, .degree = 1};
  if (kind == HEC_OP_COMPUTE)
    op.compute.work_at = -1;
  else if (kind == HEC_OP_LOCAL)
    op.local = (hec_op_local){-1, -1};
  else if (kind == HEC_OP_EXCHANGE)
    op.exchange = (hec_op_exchange){.n_chunks = 1, .part_at = -1, .parcel_at = -1};
  return op;
}

hec_curve_kind hec_op_curve(const hec_op *op) {
  hec_curve_kind kind = role_curve[op->role];
  if (!op->sliced)
    return kind;
  return kind == HEC_CURVE_GATHER    ? HEC_CURVE_SLICED_GATHER
         : kind == HEC_CURVE_SCATTER ? HEC_CURVE_SLICED_SCATTER
         : kind == HEC_CURVE_REDUCE  ? HEC_CURVE_SLICED_REDUCE
                                     : kind;
}
#define TRAFFIC_NAME(name, text) [HEC_TRAFFIC_##name] = (text),
const char *const hec_traffic_name[HEC_N_TRAFFIC] = {HEC_TRAFFIC_LIST(TRAFFIC_NAME)};
#define MEMORY_NAME(name, text) [HEC_MEMORY_##name] = (text),
const char *const hec_memory_name[HEC_N_MEMORY] = {HEC_MEMORY_LIST(MEMORY_NAME)};

void hec_program_clear(hec_program *program, int32_t n_ranks) {
  program->n_ranks = n_ranks;
  program->n_ops = program->n_deps = program->n_shapes = program->n_work_index = program->n_work = 0;
  program->n_local_bytes = program->n_transfers = program->n_parts = program->n_holds = 0;
  program->n_parcels = program->n_parcel_index = program->n_own = program->n_cells = 0;
  program->n_item_index = program->n_items = 0;
}

void hec_program_free(hec_program *program) {
  free(program->ops);
  free(program->deps);
  free(program->shapes);
  free(program->work_index);
  free(program->work);
  free(program->local_bytes);
  free(program->transfers);
  free(program->parts);
  free(program->holds);
  free(program->parcels);
  free(program->parcel_index);
  free(program->own);
  free(program->cells);
  free(program->item_index);
  free(program->items);
  *program = (hec_program){0};
}

/* Who takes part in an exchange, and its bytes. */
static void mark_parts(hec_program *program, hec_op *op) {
  size_t at = program->n_parts, n = (size_t)program->n_ranks;
  HEC_RESERVE(program->parts, program->parts_capacity, at + n);
  memset(program->parts + at, 0, n);
  program->n_parts = at + n;
  int64_t sum = 0;
  uint8_t *part = program->parts + at;
  const hec_transfer *t = program->transfers + op->exchange.transfer_at, *end = t + op->exchange.n_transfers;
  for (; t != end; t++) {
    part[t->source] = 1;
    part[t->destination] = 1;
    sum += t->bytes;
  }
  op->exchange.part_at = (int32_t)at;
  op->bytes = (double)sum;
}

int32_t hec_program_add(hec_program *program, hec_op op, const int32_t *deps, int32_t n_deps) {
  int32_t id = (int32_t)program->n_ops;
  HEC_RESERVE(program->deps, program->deps_capacity, program->n_deps + (size_t)n_deps);
  op.dep_at = (int32_t)program->n_deps;
  for (int32_t i = 0; i < n_deps; i++) {
    HEC_ASSERT(deps[i] < id);
    if (deps[i] >= 0)
      program->deps[program->n_deps++] = deps[i];
  }
  op.n_deps = (int32_t)program->n_deps - op.dep_at;
  if (op.kind == HEC_OP_EXCHANGE && op.exchange.part_at < 0)
    mark_parts(program, &op);
  HEC_RESERVE(program->ops, program->ops_capacity, program->n_ops + 1);
  program->ops[program->n_ops++] = op;
  return id;
}

int32_t hec_program_local_bytes(hec_program *program, int32_t n) {
  size_t at = program->n_local_bytes;
  HEC_RESERVE(program->local_bytes, program->local_bytes_capacity, at + (size_t)n);
  memset(program->local_bytes + at, 0, (size_t)n * sizeof *program->local_bytes);
  program->n_local_bytes = at + (size_t)n;
  return (int32_t)at;
}

int32_t hec_program_hold(hec_program *program, hec_hold hold) {
  HEC_RESERVE(program->holds, program->holds_capacity, program->n_holds + 1);
  program->holds[program->n_holds] = hold;
  return (int32_t)program->n_holds++;
}

static void check_exchange(const hec_program *program, const hec_op *op) {
  HEC_ASSERT(op->exchange.transfer_at >= 0 && op->exchange.n_transfers > 0);
  HEC_ASSERT((size_t)op->exchange.transfer_at + (size_t)op->exchange.n_transfers <= program->n_transfers);
  HEC_ASSERT(op->exchange.part_at >= 0 && (size_t)op->exchange.part_at + (size_t)program->n_ranks <= program->n_parts);
  HEC_ASSERT(op->exchange.n_chunks >= 1);
  HEC_ASSERT(op->exchange.seconds == 0 ||
             (size_t)op->exchange.seconds - 1 + (size_t)program->n_ranks <= program->n_local_bytes);
  for (int32_t i = 0; i < op->exchange.n_transfers; i++) {
    const hec_transfer *t = &program->transfers[op->exchange.transfer_at + i];
    HEC_ASSERT(t->source >= 0 && t->source < program->n_ranks);
    HEC_ASSERT(t->destination >= 0 && t->destination < program->n_ranks);
    HEC_ASSERT(t->source != t->destination && t->bytes > 0);
    HEC_ASSERT(t->after >= -1 && t->after < i);
    HEC_ASSERT(t->after < 0 || (op->exchange.n_chunks > 1 && !op->reverse));
    HEC_ASSERT(program->parts[op->exchange.part_at + t->source] &&
               program->parts[op->exchange.part_at + t->destination]);
  }
}

/* Every transfer's parcels add up to its bytes; only whole-parameter parts, no empty ones. */
static void check_parcels(const hec_program *program, const hec_op *op) {
  if (program->n_parcel_index == 0 || op->exchange.parcel_at < 0)
    return;
  HEC_ASSERT((size_t)op->exchange.parcel_at + (size_t)op->exchange.n_transfers < program->n_parcel_index);
  for (int32_t i = 0; i < op->exchange.n_transfers; i++) {
    const int32_t *at = program->parcel_index + op->exchange.parcel_at + i;
    HEC_ASSERT(at[0] >= 0 && at[0] < at[1] && (size_t)at[1] <= program->n_parcels);
  }
}

static void check_work(const hec_program *program, const hec_op *op) {
  HEC_ASSERT(op->compute.shape >= 0 && (size_t)op->compute.shape < program->n_shapes);
  HEC_ASSERT(op->compute.work_at < 0 || (size_t)op->compute.work_at + (size_t)program->n_ranks < program->n_work_index);
  for (int32_t r = 0; op->compute.work_at >= 0 && r < program->n_ranks; r++) {
    HEC_ASSERT(program->work_index[op->compute.work_at + r] <= program->work_index[op->compute.work_at + r + 1]);
    HEC_ASSERT((size_t)program->work_index[op->compute.work_at + r + 1] <= program->n_work);
  }
}

void hec_program_check(const hec_program *program) {
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    HEC_ASSERT(op->lane < HEC_N_LANES && op->role < HEC_N_ROLES);
    HEC_ASSERT(op->degree <= 1 || (op->chunk >= -1 && op->chunk < op->degree));
    for (int32_t d = 0; d < op->n_deps; d++) {
      int32_t dep = program->deps[op->dep_at + d];
      HEC_ASSERT(dep >= 0 && (size_t)dep < i);
    }
    if (op->kind == HEC_OP_EXCHANGE) {
      check_exchange(program, op);
      check_parcels(program, op);
    }
    if (op->kind == HEC_OP_COMPUTE)
      check_work(program, op);
    if (op->kind == HEC_OP_ALLREDUCE && op->allreduce.stride > 1)
      HEC_ASSERT(program->n_ranks % op->allreduce.stride == 0);
    if (op->kind == HEC_OP_LOCAL) {
      HEC_ASSERT(op->local.bytes_at < 0 ||
                 (size_t)op->local.bytes_at + (size_t)program->n_ranks <= program->n_local_bytes);
      HEC_ASSERT(op->local.part_at < 0 || (size_t)op->local.part_at + (size_t)program->n_ranks <= program->n_parts);
    }
  }
  for (size_t i = 0; i < program->n_holds; i++) {
    const hec_hold *hold = &program->holds[i];
    HEC_ASSERT(hold->first >= -1 && hold->first < (int32_t)program->n_ops && hold->last < (int32_t)program->n_ops);
    HEC_ASSERT(hold->last == -1 || hold->last >= hold->first); /* also: no end is still open */
    HEC_ASSERT(hold->bytes_at < 0 || (size_t)hold->bytes_at + (size_t)program->n_ranks <= program->n_local_bytes);
  }
}

static bool same_bytes(const void *a, const void *b, size_t n_a, size_t n_b, size_t size) {
  return n_a == n_b && (n_a == 0 || memcmp(a, b, n_a * size) == 0);
}

/* Small arrays first. Rows of operations have no meaning in their padding: programs that differ only there count as
 * different, which costs time and nothing else. */
bool hec_program_same(const hec_program *a, const hec_program *b) {
#define SAME(field) same_bytes(a->field, b->field, a->n_##field, b->n_##field, sizeof *a->field)
  return a->n_ranks == b->n_ranks && a->names == b->names && a->n_transfers == b->n_transfers && SAME(ops) &&
         SAME(deps) && SAME(shapes) && SAME(work_index) && SAME(holds) && SAME(parts) && SAME(local_bytes) &&
         SAME(work) && SAME(transfers);
#undef SAME
}

static uint64_t digest_add(uint64_t digest, const void *data, size_t n) {
  const unsigned char *bytes = data;
  for (size_t i = 0; i < n; i++)
    digest = (digest ^ bytes[i]) * 0x100000001b3u;
  return digest;
}

static uint64_t digest_shape(uint64_t digest, const hec_work_shape *shape) {
  double costs[] = {shape->flops_per_row, shape->weight_bytes, shape->bytes_per_row};
  int32_t counts[] = {shape->n_gemms, shape->exact};
  return digest_add(digest_add(digest, costs, sizeof costs), counts, sizeof counts);
}

/* Per rank: how many entries, then the entries. */
static uint64_t digest_work(uint64_t digest, const hec_program *program, const hec_op *op) {
  for (int32_t r = 0; r < program->n_ranks; r++) {
    const int32_t *at = program->work_index + op->compute.work_at + r;
    int32_t n = at[1] - at[0];
    digest = digest_add(digest, &n, sizeof n);
    digest = digest_add(digest, program->work + at[0], (size_t)n * sizeof *program->work);
  }
  return digest;
}

static uint64_t digest_transfers(uint64_t digest, const hec_program *program, const hec_op *op) {
  for (int32_t t = 0; t < op->exchange.n_transfers; t++) {
    const hec_transfer *x = &program->transfers[op->exchange.transfer_at + t];
    int64_t transfer[] = {x->bytes, x->source, x->destination, x->item, x->after};
    digest = digest_add(digest, transfer, sizeof transfer);
  }
  return digest;
}

static uint64_t digest_rank_bytes(uint64_t digest, const hec_program *program, int32_t bytes_at) {
  return bytes_at < 0 ? digest
                      : digest_add(digest, program->local_bytes + bytes_at, (size_t)program->n_ranks * sizeof(double));
}

static uint64_t digest_op(uint64_t digest, const hec_program *program, const hec_op *op) {
  bool exchange = op->kind == HEC_OP_EXCHANGE;
  double rows = op->kind == HEC_OP_COMPUTE ? op->compute.rows : 0;
  uint64_t units = op->kind == HEC_OP_PLAN ? op->plan.units : 0;
  int32_t fields[] = {(int32_t)op->kind,
                      (int32_t)op->lane,
                      (int32_t)op->role,
                      op->backward,
                      op->reverse,
                      op->one_off,
                      op->layer,
                      op->micro_batch,
                      op->n_deps,
                      exchange ? op->exchange.n_transfers : 0,
                      exchange ? op->exchange.n_chunks : 1};
  digest = digest_add(digest, fields, sizeof fields);
  if (op->degree > 1)
    digest = digest_add(digest, (const int32_t[]){op->chunk, op->degree}, 2 * sizeof(int32_t));
  if (op->route > 0)
    digest = digest_add(digest, &op->route, sizeof op->route);
  if (op->kind == HEC_OP_ALLREDUCE && op->allreduce.stride > 1)
    digest = digest_add(digest, &op->allreduce.stride, sizeof op->allreduce.stride);
  if (op->kind == HEC_OP_ALLREDUCE && op->allreduce.first_byte != 0)
    digest = digest_add(digest, &op->allreduce.first_byte, sizeof op->allreduce.first_byte);
  if (op->kind == HEC_OP_ALLREDUCE && op->allreduce.half != HEC_ALLREDUCE_WHOLE)
    digest = digest_add(digest, &(int32_t){(int32_t)op->allreduce.half}, sizeof(int32_t));
  digest = digest_add(digest, program->deps + op->dep_at, (size_t)op->n_deps * sizeof(int32_t));
  digest = digest_add(digest, &rows, sizeof rows);
  digest = digest_add(digest, &op->bytes, sizeof op->bytes);
  digest = digest_add(digest, &units, sizeof units);
  if (op->kind == HEC_OP_EXCHANGE)
    digest = digest_rank_bytes(digest_transfers(digest, program, op), program, op->exchange.seconds - 1);
  if (op->kind == HEC_OP_COMPUTE)
    digest = digest_shape(digest, &program->shapes[op->compute.shape]);
  if (op->kind == HEC_OP_COMPUTE && op->compute.work_at >= 0)
    digest = digest_work(digest, program, op);
  if (op->kind == HEC_OP_LOCAL && op->local.part_at >= 0)
    digest = digest_add(digest, program->parts + op->local.part_at, (size_t)program->n_ranks);
  return op->kind == HEC_OP_LOCAL ? digest_rank_bytes(digest, program, op->local.bytes_at) : digest;
}

uint64_t hec_program_digest(const hec_program *program) {
  uint64_t digest = 0xcbf29ce484222325u;
  for (size_t i = 0; i < program->n_ops; i++)
    digest = digest_op(digest, program, &program->ops[i]);
  for (size_t i = 0; i < program->n_holds; i++) {
    const hec_hold *hold = &program->holds[i];
    int32_t fields[] = {(int32_t)hold->memory, hold->layer, hold->first, hold->last};
    digest = digest_add(digest, fields, sizeof fields);
    digest = digest_add(digest, &hold->bytes, sizeof hold->bytes);
    digest = digest_rank_bytes(digest, program, hold->bytes_at);
  }
  return digest;
}

uint64_t hec_program_times_digest(const hec_program *program) {
  uint64_t digest = 0xcbf29ce484222325u;
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    digest = digest_op(digest_add(digest, (const uint8_t[]){op->sliced, op->by_node}, 2), program, op);
  }
  return digest;
}

uint64_t hec_program_detail_digest(const hec_program *program) {
  uint64_t digest = hec_program_digest(program);
  for (size_t i = 0; i < program->n_cells; i++) {
    const hec_cell *c = &program->cells[i];
    int32_t cell[] = {c->source, c->rank, c->expert, c->rows};
    digest = digest_add(digest, cell, sizeof cell);
  }
  for (size_t i = 0; i < program->n_parcels; i++) {
    const hec_parcel *p = &program->parcels[i];
    int32_t parcel[] = {p->layer, p->expert, p->part, p->n_parts, (int32_t)p->state};
    digest = digest_add(digest, parcel, sizeof parcel);
  }
  return digest_add(digest, program->parcel_index, program->n_parcel_index * sizeof *program->parcel_index);
}

void hec_program_traffic(const hec_program *program, double ordinary[HEC_N_TRAFFIC], double one_off[HEC_N_TRAFFIC]) {
  for (int i = 0; i < HEC_N_TRAFFIC; i++)
    ordinary[i] = one_off[i] = 0;
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    hec_traffic traffic = hec_role_traffic[op->role];
    if (traffic == HEC_TRAFFIC_NONE)
      continue;
    double bytes = op->bytes;
    if (op->kind == HEC_OP_ALLREDUCE) /* each among n_ranks / stride */
      bytes *=
          (op->allreduce.half ? 1.0 : 2.0) * (program->n_ranks - (op->allreduce.stride > 1 ? op->allreduce.stride : 1));
    (op->one_off ? one_off : ordinary)[traffic] += bytes;
  }
}

/* One end of a hold: all starts at operation i count before i, all ends after it. */
typedef struct {
  int32_t position; /* 2 * op for a start, 2 * op + 1 for an end */
  int32_t hold;
} hold_end;

static int by_position(const void *a, const void *b) {
  const hold_end *x = a, *y = b;
  if (x->position != y->position)
    return x->position < y->position ? -1 : 1;
  return (x->hold > y->hold) - (x->hold < y->hold);
}

static double held(const hec_program *program, const hec_hold *hold, int32_t rank) {
  return hold->bytes_at < 0 ? hold->bytes : hold->bytes * program->local_bytes[hold->bytes_at + rank];
}

void hec_program_memory_peak_with(const hec_program *program, hec_memory_scratch *scratch, double *peak,
                                  double by_class[HEC_N_MEMORY]) {
  int32_t n_ranks = program->n_ranks;
  size_t n = 2 * program->n_holds;
  scratch->ends = hec_reserve(scratch->ends, &scratch->ends_capacity, n, sizeof(hold_end));
  HEC_RESERVE(scratch->now, scratch->now_capacity, (size_t)n_ranks * (HEC_N_MEMORY + 1));
  hold_end *ends = scratch->ends;
  double *now = scratch->now; /* sums, then [rank][class] */
  double *classes = now + n_ranks, fullest = -1;
  for (int32_t i = 0; i < n_ranks * (HEC_N_MEMORY + 1); i++)
    now[i] = 0;
  for (int32_t r = 0; r < n_ranks; r++)
    peak[r] = 0;
  for (size_t i = 0; i < program->n_holds; i++) {
    const hec_hold *hold = &program->holds[i];
    ends[2 * i] = (hold_end){hold->first < 0 ? -1 : 2 * hold->first, (int32_t)i};
    ends[2 * i + 1] = (hold_end){hold->last < 0 ? INT32_MAX : 2 * hold->last + 1, (int32_t)i};
  }
  if (n > 0) /* else `ends` may be NULL, which qsort must not get */
    qsort(ends, n, sizeof *ends, by_position);
  for (size_t i = 0; i < n; i++) {
    const hec_hold *hold = &program->holds[ends[i].hold];
    bool start = ends[i].position < 0 || (ends[i].position != INT32_MAX && ends[i].position % 2 == 0);
    for (int32_t r = 0; r < n_ranks; r++) {
      double bytes = held(program, hold, r), change = start ? bytes : -bytes;
      now[r] += change;
      if (by_class)
        classes[r * HEC_N_MEMORY + (int32_t)hold->memory] += change;
      if (now[r] > peak[r])
        peak[r] = now[r];
      if (by_class && now[r] > fullest) {
        fullest = now[r];
        memcpy(by_class, classes + (size_t)r * HEC_N_MEMORY, HEC_N_MEMORY * sizeof *by_class);
      }
    }
  }
}

void hec_program_memory_peak(const hec_program *program, double *peak, double by_class[HEC_N_MEMORY]) {
  HEC_SCOPED(hec_memory_scratch) scratch = {0};
  hec_program_memory_peak_with(program, &scratch, peak, by_class);
}

void hec_memory_scratch_free(hec_memory_scratch *scratch) {
  free(scratch->ends);
  free(scratch->now);
}

int32_t hec_program_fullest_rank(const hec_program *program) {
  double *peak = hec_malloc((size_t)program->n_ranks, sizeof *peak);
  hec_program_memory_peak(program, peak, NULL);
  int32_t fullest = 0;
  for (int32_t r = 1; r < program->n_ranks; r++)
    fullest = peak[r] > peak[fullest] ? r : fullest;
  free(peak);
  return fullest;
}

hec_rank_memory hec_program_rank_memory(const hec_program *program, int32_t rank) {
  double of[HEC_N_MEMORY] = {0}, *peak = hec_malloc((size_t)program->n_ranks, sizeof *peak);
  hec_program_memory_peak(program, peak, NULL);
  for (size_t i = 0; i < program->n_holds; i++)
    if (program->holds[i].tensor == HEC_TENSOR_STATE)
      of[program->holds[i].memory] += held(program, &program->holds[i], rank);
  double state = of[HEC_MEMORY_PARAM] + of[HEC_MEMORY_GRAD] + of[HEC_MEMORY_OPTIMIZER];
  hec_rank_memory memory = {of[HEC_MEMORY_PARAM], of[HEC_MEMORY_GRAD], of[HEC_MEMORY_OPTIMIZER], peak[rank] - state};
  free(peak);
  return memory;
}
