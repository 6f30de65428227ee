/* A program: one iteration as operations on in-order lanes (streams) of ranks, with dependencies. The simulator and the
 * runtime are two interpreters of it; a program depends on neither, nor on any network law or backend.
 *
 * An operation is a row over ranks: (operation, rank) is the unit of execution. Compute, local, allreduce, counts and
 * plan rows run on every rank; a rank without work takes no time. An exchange runs on the ranks that have a transfer in
 * it. Only in a step of pipeline stages (pipelines/step_program.h) local operations run on the ranks of a stage alone.
 *
 *   in order    (op, r) starts after every earlier (smaller id) operation of the same lane on r
 *   local       (B, r) waits for (A, r) when B names A and r takes part in both; waiting across ranks happens only
 *               inside exchange, allreduce and counts
 *   backwards   dependencies name smaller ids, so executing ids in order on every rank never deadlocks: the smallest
 *               unfinished id has its lane predecessors and dependencies done at every participant
 *
 * Segments: ids only grow; a finished segment can be handed to an interpreter before the next is appended. */
#pragma once
#include "models/compute_cost.h"
#include "models/link_cost.h"
#include "runtime/plan/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
  HEC_OP_COMPUTE,
  HEC_OP_LOCAL,
  HEC_OP_EXCHANGE,
  HEC_OP_ALLREDUCE,
  HEC_OP_COUNTS,
  HEC_OP_PLAN
} hec_op_kind;

#define HEC_LANE_LIST(X)                                                                                               \
  X(COMPUTE, "compute") X(TOKEN, "token") X(INTRA, "intra-node") X(PARAM, "parameter") X(GRAD, "gradient")
#define HEC_LANE_ENUM(name, text) HEC_LANE_##name,
typedef enum { HEC_LANE_LIST(HEC_LANE_ENUM) HEC_N_LANES } hec_lane;
extern const char *const hec_lane_name[HEC_N_LANES];

/* What time is booked under; exposed communication is reported per kind. */
typedef enum {
  HEC_BOOK_COMPUTE,
  HEC_BOOK_PLAN,
  HEC_BOOK_TOKEN,
  HEC_BOOK_PARAM,
  HEC_BOOK_GRAD,
  HEC_BOOK_MIGRATION,
  HEC_N_BOOKS
} hec_book;

/* What an operation is for: name in timelines, book of its time, book of its bytes, curve that measures it (curve.h). */
#define HEC_ROLE_LIST(X)                                                                                               \
  X(EMBEDDING, "embedding", COMPUTE, NONE, NONE)                                                                       \
  X(HEAD, "head", COMPUTE, NONE, NONE)                                                                                 \
  X(DENSE_BLOCKS, "dense blocks", COMPUTE, NONE, NONE)                                                                 \
  X(ATTENTION, "attention", COMPUTE, NONE, ATTENTION)                                                                  \
  X(GATE, "gate", COMPUTE, NONE, GATE)                                                                                 \
  X(COUNTS, "counts", TOKEN, NONE, COUNTS)                                                                             \
  X(PLAN, "plan", PLAN, NONE, NONE)                                                                                    \
  X(PERMUTE, "permute", COMPUTE, NONE, PERMUTE)                                                                        \
  X(DISPATCH, "dispatch", TOKEN, DISPATCH, TOKENS)                                                                     \
  X(SHARED_EXPERTS, "shared experts", COMPUTE, NONE, SHARED)                                                           \
  X(EXPERTS, "experts", COMPUTE, NONE, EXPERT)                                                                         \
  X(COMBINE, "combine", TOKEN, COMBINE, TOKENS)                                                                        \
  X(UNPERMUTE, "unpermute", COMPUTE, NONE, UNPERMUTE)                                                                  \
  X(GATHER, "SparseAllGather", PARAM, GATHER, GATHER)                                                                  \
  X(CALIBRATE, "SparseAllGather (after the gate)", PARAM, GATHER, GATHER)                                                 \
  X(REGATHER, "SparseAllGather (re-materialisation)", PARAM, GATHER, GATHER)                                           \
  X(SCATTER, "SparseReduceScatter", GRAD, SCATTER, SCATTER)                                                            \
  X(REDUCE, "gradient reduction", GRAD, NONE, REDUCE)                                                                  \
  X(REPLICA_SCATTER, "replica reduce-scatter", GRAD, REPLICA, REPLICA_SCATTER)                                         \
  X(REPLICA_GATHER, "replica all-gather", GRAD, REPLICA, REPLICA_GATHER)                                               \
  X(DENSE_REDUCE, "dense all-reduce", GRAD, DENSE, ALLREDUCE)                                                          \
  X(MIGRATE, "migration", MIGRATION, MIGRATION, MIGRATION)                                                             \
  X(OPTIMIZER, "optimizer", COMPUTE, NONE, OPTIMIZER)                                                                  \
  X(SHARD_GATHER, "expert AllGather", TOKEN, DISPATCH, TOKENS)                                                         \
  X(SHARD_SCATTER, "expert ReduceScatter", TOKEN, COMBINE, SCATTER)                                                    \
  X(SHARD_REDUCE, "expert ReduceScatter (addition)", TOKEN, NONE, REDUCE)                                              \
  X(DISPATCH_INSIDE, "dispatch inside nodes", TOKEN, DISPATCH, TOKENS)                                                 \
  X(COMBINE_INSIDE, "combine inside nodes", TOKEN, COMBINE, TOKENS)                                                    \
  X(ALIGN, "relay alignment", TOKEN, NONE, NONE)                                                                       \
  X(NODE_PERMUTE, "node permute", COMPUTE, NONE, PERMUTE)                                                              \
  X(NODE_DISPATCH, "node dispatch", TOKEN, DISPATCH, TOKENS)                                                           \
  X(NODE_COMBINE, "node combine", TOKEN, COMBINE, TOKENS)                                                              \
  X(NODE_UNPERMUTE, "node unpermute", COMPUTE, NONE, UNPERMUTE)                                                        \
  X(TENSOR_GATHER, "tensor AllGather", TOKEN, TENSOR, TOKENS)                                                          \
  X(TENSOR_SCATTER, "tensor ReduceScatter", TOKEN, TENSOR, SCATTER)                                                    \
  X(TENSOR_REDUCE, "tensor ReduceScatter (addition)", TOKEN, NONE, REDUCE)                                             \
  X(STAGE_FORWARD, "forward of a stage", COMPUTE, NONE, NONE)                                                          \
  X(STAGE_BACKWARD, "backward of a stage", COMPUTE, NONE, NONE)                                                        \
  X(STAGE_SEND, "between stages", TOKEN, NONE, NONE)                                                                   \
  X(STAGE_END, "end of a step", COMPUTE, NONE, NONE)                                                                   \
  X(DENSE_GATHER, "dense all-gather", GRAD, DENSE, ALLREDUCE)
#define HEC_ROLE_ENUM(name, text, book, bytes, curve) HEC_ROLE_##name,
typedef enum { HEC_ROLE_LIST(HEC_ROLE_ENUM) HEC_N_ROLES } hec_role;
extern const char *const hec_role_name[HEC_N_ROLES];
extern const hec_book hec_role_book[HEC_N_ROLES];

/* Traffic classes of the report. */
#define HEC_TRAFFIC_LIST(X)                                                                                            \
  X(DISPATCH, "dispatch")                                                                                              \
  X(COMBINE, "combine")                                                                                                \
  X(GATHER, "gather")                                                                                                  \
  X(SCATTER, "scatter") X(REPLICA, "replica") X(DENSE, "dense") X(MIGRATION, "migration") X(TENSOR, "tensor")
#define HEC_TRAFFIC_ENUM(name, text) HEC_TRAFFIC_##name,
typedef enum { HEC_TRAFFIC_LIST(HEC_TRAFFIC_ENUM) HEC_N_TRAFFIC, HEC_TRAFFIC_NONE = HEC_N_TRAFFIC } hec_traffic;
extern const char *const hec_traffic_name[HEC_N_TRAFFIC];
extern const hec_traffic hec_role_traffic[HEC_N_ROLES];
/* Moves parameters to copies of a micro-batch, or their gradients back. */
static inline bool hec_role_is_sparse(hec_role role) {
  return hec_role_traffic[role] == HEC_TRAFFIC_GATHER || hec_role_traffic[role] == HEC_TRAFFIC_SCATTER;
}

/* What an operation of each kind is, beside what all have. */
typedef struct {
  int32_t shape; /* into program.shapes */
  /* Rank r does work[work_index[work_at + r] .. work_index[work_at + r + 1]); -1: `rows` each. */
  int32_t work_at;
  double rows; /* uniform; may be fractional (ideal) */
} hec_op_compute;

typedef struct {
  int32_t bytes_at; /* rank r moves op.bytes * local_bytes[bytes_at + r]; -1: op.bytes each */
  int32_t part_at;  /* rank r takes part when parts[part_at + r]; -1: every rank does */
} hec_op_local;

typedef struct {
  int32_t transfer_at, n_transfers, n_chunks; /* into program.transfers; chunks of chained transfers */
  int32_t part_at;                            /* rank r takes part when parts[part_at + r] */
  int32_t seconds; /* kernels of a dispatcher: hec_program_kernels_s; 0: the network prices it */
  int32_t
      parcel_at; /* its transfer k carries parcels[parcel_index[parcel_at + k] .. [parcel_at + k + 1]]; -1: no detail */
} hec_op_exchange;

/* An all-reduce is both halves, one after the other: rank i has part i of n of the sum (hec_part_begin), then all have all. */
typedef enum { HEC_ALLREDUCE_WHOLE, HEC_ALLREDUCE_SCATTER, HEC_ALLREDUCE_GATHER } hec_allreduce_half;

typedef struct {
  int64_t first_byte; /* of the layer's dense gradients (gather: parameters), from this byte on, op.bytes of them */
  int32_t stride;     /* above 1, that many at once, each among the ranks r, r + stride, r + 2 stride ... */
  hec_allreduce_half half;
} hec_op_allreduce;

typedef struct {
  uint64_t units; /* of work */
} hec_op_plan;

typedef struct {
  hec_op_kind kind;
  hec_lane lane;
  hec_role role;
  bool backward;
  bool
      reverse; /* exchange: source and destination of its transfers swapped (combine is dispatch reversed); so its alignment */
  bool sliced;   /* moves slices of experts: what a rank keeps of them is copied or added with it */
  bool by_node;  /* of a layer whose token rows travel once per node (nodes.h) */
  bool one_off;  /* paid when a placement changes, not in an ordinary iteration */
  int32_t layer; /* MoE layer, -1: none */
  int32_t micro_batch;
  int32_t dep_at, n_deps; /* into program.deps */
  /* The token work of a layer may be cut: chunk `chunk` of `degree`, -1: all of them; degree 0 or 1: it is not.
   * All-reduce: the same of a block's dense gradients, whole numbers each (hec_part_begin). */
  int32_t chunk, degree;
  int32_t route; /* permute, and what moves token rows: of hec_token_routes */
  double bytes;  /* local: moved; allreduce: reduced; counts: from each rank; exchange: sum, set by hec_program_add */
  union {        /* of its kind; counts have nothing more */
    hec_op_compute compute;
    hec_op_local local;
    hec_op_exchange exchange;
    hec_op_allreduce allreduce;
    hec_op_plan plan;
  };
  /* What an executor must know beyond sizes (hec_lowering_detail; else 0). */
  const char *title;     /* in timelines, instead of its role's name; NULL: that */
  int32_t alone;         /* of a drawing: rank + 1 that alone runs it; 0: all that have part */
  int32_t own_at, n_own; /* gather: copied, scatter (its last reduction): added on the spot; into program.own */
  /* permute, dispatch, experts, combine, unpermute: into program.cells. Those of a layer of degree r stand r times, chunk
   * by chunk, each time with the chunk's rows, possibly none. Where rows travel once
   * per node, a cell's source is the proxy; node permutes have the cells of the sources themselves. */
  int32_t cell_at, n_cells;
} hec_op;

/* One of this kind, of all of its layer's work, without what it works on. */
hec_op hec_op_new(hec_op_kind kind, hec_lane lane, hec_role role, int32_t layer);
/* The kind of curve that measures an operation (its direction is op->backward, where the kind has one). HEC_CURVE_NONE: none
 * does. */
hec_curve_kind hec_op_curve(const hec_op *op);

/* `rows` assignments of `source` to `expert` are computed on `rank`. Those of one (source, expert) are cut from the
 * source's list in ascending order of ranks. */
typedef struct {
  int32_t source, rank, expert, rows;
} hec_cell;

/* Compute work of one rank: `rows` rows of expert `item`. */
typedef struct {
  int32_t item, rows;
} hec_work;

/* Memory classes of a rank. */
#define HEC_MEMORY_LIST(X)                                                                                             \
  X(PARAM, "parameters")                                                                                               \
  X(GRAD, "gradients")                                                                                                 \
  X(OPTIMIZER, "optimizer")                                                                                            \
  X(ACTIVATION, "activations")                                                                                         \
  X(COPY_PARAM, "copies: parameters") X(COPY_GRAD, "copies: gradients") X(BUFFER, "buffers")
#define HEC_MEMORY_ENUM(name, text) HEC_MEMORY_##name,
typedef enum { HEC_MEMORY_LIST(HEC_MEMORY_ENUM) HEC_N_MEMORY } hec_memory;
extern const char *const hec_memory_name[HEC_N_MEMORY];

/* Which buffer a hold is; an executor finds its memory by (tensor, layer, micro-batch). "Rows" are one token row per
 * assignment: of the rank's own tokens (assigned), or of what its experts compute (computed). */
#define HEC_TENSOR_LIST(X)                                                                                              \
  X(STATE)     /* parameters, gradients and optimizer state kept between iterations, activations outside MoE blocks */  \
  X(BLOCK)     /* what attention and gate of a block keep for backward */                                               \
  X(SEND)      /* assigned rows sorted for dispatch */                                                                  \
  X(INPUT)     /* computed rows: inputs of experts and what they keep for backward */                                   \
  X(OUTPUT)    /* computed rows: outputs of experts */                                                                  \
  X(RETURNED)  /* assigned rows: outputs back at their tokens, kept for the gate's gradient */                          \
  X(GRAD_SEND) /* assigned rows: gradients of outputs sorted for the way to the experts */                              \
  X(GRAD_OUTPUT)   /* computed rows: gradients of outputs */                                                            \
  X(GRAD_INPUT)    /* computed rows: gradients of inputs */                                                             \
  X(GRAD_RETURNED) /* assigned rows: gradients of inputs back at their tokens */                                        \
  X(GUEST_PARAM)   /* parameters of guests, experts as listed in the hold's items */                                    \
  X(GUEST_GRAD)    /* gradients of guests, likewise */                                                                  \
  X(PART_PARAM) /* parts of parameters that the rank passes on, items: expert * parts + part; room for the largest */   \
  X(PART_GRAD)  /* sums of gradients, likewise */                                                                       \
  X(STAGING) /* what is received to be added (gradients, partial sums of shards): one slot per transfer, in order */    \
  X(RELAYED) /* rows of a chunk that are neither the rank's own nor computed here, by source: as they come */           \
  X(ALIGNED) /* the same by destination: as they go on */                                                               \
  /* Where rows travel once per node (nodes.h), of either direction: rows by peer, then weights, or their gradients. */ \
  X(NODE_SEND)     /* for proxies: token rows, gradients of sums */                                                     \
  X(NODE_ARRIVED)  /* on proxies, the same */                                                                           \
  X(NODE_WEIGHTS)  /* weights, then their gradients, of all assignments that the rank permutes */                       \
  X(NODE_PARTIAL)  /* on proxies: sums of outputs, or of gradients of inputs */                                         \
  X(NODE_RETURNED) /* the same, back at their tokens */                                                                 \
  X(GATHERED)      /* rows of a tensor-parallel group that are not kept: one slot per rank of it */                     \
  X(PARTIAL)       /* partial sums of the rows of a tensor-parallel group, likewise */
#define HEC_TENSOR_ENUM(name) HEC_TENSOR_##name,
typedef enum { HEC_TENSOR_LIST(HEC_TENSOR_ENUM) HEC_N_TENSORS } hec_tensor;

enum { HEC_HOLD_OPEN = -2 }; /* `last` of a hold whose end has not been lowered yet */

/* Bytes that rank r holds (local_bytes[bytes_at + r] * bytes; bytes_at -1: `bytes`). It holds them from the start of
 * operation `first` to the end of `last` (first -1: before the program; last -1: to its end). */
typedef struct {
  hec_memory memory;
  int32_t layer, first, last;
  int32_t bytes_at;
  double bytes;
  hec_tensor tensor;
  int32_t micro_batch; /* of the tensor; -1: none */
  /* guests: rank r has experts items[item_index[items_at + r] .. [items_at + r + 1]]; -1: not listed */
  int32_t items_at;
} hec_hold;

/* What timelines call ranks and lanes, where they stand for something else. */
typedef struct {
  const char *rank; /* "stage" */
  const char *lane[HEC_N_LANES];
} hec_program_names;

/* Growing arrays, reused from iteration to iteration (hec_program_clear keeps the memory). */
typedef struct {
  int32_t n_ranks;
  const hec_program_names *names; /* NULL: "rank" and hec_lane_name */
  hec_op *ops;
  size_t n_ops, ops_capacity;
  int32_t *deps;
  size_t n_deps, deps_capacity;
  hec_work_shape *shapes;
  size_t n_shapes, shapes_capacity;
  int32_t *work_index;
  size_t n_work_index, work_index_capacity;
  hec_work *work;
  size_t n_work, work_capacity;
  double *local_bytes;
  size_t n_local_bytes, local_bytes_capacity;
  hec_transfer *transfers;
  size_t n_transfers, transfers_capacity;
  uint8_t *parts;
  size_t n_parts, parts_capacity;
  hec_hold *holds;
  size_t n_holds, holds_capacity;
  /* Detail for executors; empty unless asked for. */
  hec_parcel *parcels;
  size_t n_parcels, parcels_capacity;
  int32_t *parcel_index;
  size_t n_parcel_index, parcel_index_capacity;
  hec_move *own; /* source == destination */
  size_t n_own, own_capacity;
  hec_cell *cells;
  size_t n_cells, cells_capacity;
  int32_t *item_index;
  size_t n_item_index, item_index_capacity;
  int32_t *items;
  size_t n_items, items_capacity;
} hec_program;

void hec_program_clear(hec_program *program, int32_t n_ranks);
void hec_program_free(hec_program *program);

/* Appends `op` with its dependencies (ids -1 are left out); returns its id. Exchanges get part_at from their transfers
 * unless it is set (>= 0, shared with an earlier exchange over the same transfers). */
int32_t hec_program_add(hec_program *program, hec_op op, const int32_t *deps, int32_t n_deps);
/* Space for n per-rank byte counts, zeroed: index of the first. */
int32_t hec_program_local_bytes(hec_program *program, int32_t n);
int32_t hec_program_hold(hec_program *program, hec_hold hold);

/* Seconds of the experts that a rank computes, program->work of `work_at`. */
static inline double hec_program_experts_s(const hec_program *p, const hec_device *device, const hec_work_shape *shape,
                                           int32_t work_at, int32_t rank) {
  const int32_t *at = p->work_index + work_at + rank;
  return at[0] == at[1] ? 0
                        : hec_work_experts_s(device, shape, &p->work[at[0]].rows, at[1] - at[0],
                                             sizeof(hec_work) / sizeof(int32_t));
}

/* [n_ranks] what kernels of a dispatcher take on each rank, seconds; NULL: it has none. */
static inline const double *hec_program_kernels_s(const hec_program *p, const hec_op *op) {
  return op->kind == HEC_OP_EXCHANGE && op->exchange.seconds > 0 ? p->local_bytes + op->exchange.seconds - 1 : NULL;
}

static inline bool hec_program_takes_part(const hec_program *p, const hec_op *op, int32_t rank) {
  if (op->alone > 0)
    return op->alone == rank + 1;
  int32_t part_at = op->kind == HEC_OP_EXCHANGE ? op->exchange.part_at
                    : op->kind == HEC_OP_LOCAL  ? op->local.part_at
                                                : -1;
  return part_at < 0 || p->parts[part_at + rank] != 0;
}

/* Aborts unless every rule above holds: dependencies backwards, indices in range, transfers between different ranks
 * with positive bytes, chains backwards, holds well formed. O(size of the program). */
void hec_program_check(const hec_program *program);
/* Whether both are the same to the byte, detail aside: they take as long and hold as much. */
bool hec_program_same(const hec_program *a, const hec_program *b);
/* FNV-1a over everything an interpreter reads but the detail. */
uint64_t hec_program_digest(const hec_program *program);
/* FNV-1a over all that decides how long it takes: programs of one digest have one timeline, whatever memory they hold. */
uint64_t hec_program_times_digest(const hec_program *program);
/* The first with the detail: what executors of one launch compare. */
uint64_t hec_program_detail_digest(const hec_program *program);

/* Bytes sent per traffic class (allreduce: 2(n-1) * bytes in all, a half of it half): by ordinary operations, and by one-off ones. */
void hec_program_traffic(const hec_program *program, double ordinary[HEC_N_TRAFFIC], double one_off[HEC_N_TRAFFIC]);

/* Memory in the order of the program: rank r's bytes while operation i is the newest posted, all earlier ones finished.
 * Peak per rank into peak[n_ranks]; with by_class not NULL, the classes at the peak of the fullest rank. This is a
 * function of the program alone, so both interpreters agree on it; lanes that run ahead can briefly hold more. */
void hec_program_memory_peak(const hec_program *program, double *peak, double by_class[HEC_N_MEMORY]);

/* The same in memory that is reused. Zero-initialise. */
typedef struct {
  void *ends;
  double *now;
  size_t ends_capacity, now_capacity;
} hec_memory_scratch;
void hec_program_memory_peak_with(const hec_program *program, hec_memory_scratch *scratch, double *peak,
                                  double by_class[HEC_N_MEMORY]);
void hec_memory_scratch_free(hec_memory_scratch *scratch);
/* Of one rank: state, which it has all the time, and what else it holds at its peak. */
typedef struct {
  double parameters, gradients, optimizer, activations;
} hec_rank_memory;
hec_rank_memory hec_program_rank_memory(const hec_program *program, int32_t rank);
static inline const char *hec_program_rank_word(const hec_program *p) {
  return p->names ? p->names->rank : "rank";
}
static inline const char *hec_program_lane_name(const hec_program *p, int32_t lane) {
  return p->names ? p->names->lane[lane] : hec_lane_name[lane];
}

/* The rank whose peak is highest; the lowest of several. */
int32_t hec_program_fullest_rank(const hec_program *program);
