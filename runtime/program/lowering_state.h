/* The inside of a lowering: what the files of runtime/program/ that emit operations share, and schedules do not see. */
#pragma once
#include "runtime/plan/planners/spread_cost.h"
#include "runtime/plan/problem.h"
#include "runtime/program/emit.h"
#include "runtime/program/layer_cells.h"

/* Transfers that several exchanges are of, as they are or reversed, and what the first of these found of them. */
typedef struct {
  int32_t transfer_at, n_transfers, part_at; /* part_at -1: there was none yet */
  double bytes;
} hec_transfer_span;

/* What lowering remembers of a chunk. */
typedef struct {
  int32_t work_at; /* experts' work rows */
  hec_transfer_span dispatch;
  /* Of a dispatcher (dispatched.h): what goes to the experts, where that has other bytes than what comes back. Then seconds of
   * its kernels (local_bytes: [to the experts, back][n_ranks]; -1: it has none). */
  hec_transfer_span there;
  int32_t seconds_at;
  /* Of expert-sharding groups: the AllGather, and what arrived (local_bytes, in bytes of token rows). */
  hec_transfer_span gather;
  int32_t arrived_at;
  /* Of routes over relays: the exchange inside nodes (the dispatch is then between them). And what rests on the way
   * (local_bytes, in bytes of token rows). */
  hec_transfer_span inside;
  int32_t relayed_at;
  bool relayed; /* something does */
} hec_layer_chunk;

/* Of a layer whose token rows travel once per node (nodes.h): one of its two kinds of exchange between nodes. */
typedef struct {
  hec_transfer_span span;      /* from sources to proxies */
  int32_t sent_at, arrived_at; /* local_bytes: of sources, of proxies */
} hec_node_leg;

typedef struct {
  bool on;
  int32_t cell_at, n_cells; /* of the sources; only with detail */
  hec_node_leg leg[2];      /* rows alone; with 4 bytes per assignment */
  int32_t weights_at;       /* local_bytes: of weights and their gradients */
} hec_layer_nodes;

/* What lowering remembers of a layer beside what its schedule sees. */
struct hec_layer_inside {
  int32_t experts_backward; /* id; -1: none */
  hec_layer_chunk chunk[HEC_DEGREE_MAX];
  int32_t assigned_at, computed_at; /* local_bytes: assignments of the rank's own tokens; assignments it computes */
  int32_t added;         /* of expert-sharding groups: the newest addition of a ReduceScatter, on every rank; -1 */
  int32_t guest_hold[3]; /* open holds of guest parameters */
  int32_t hold[HEC_N_TENSORS]; /* the newest hold of each tensor; -1 */
  int32_t cell_at, n_cells;    /* of all chunks */
  hec_layer_nodes nodes;
};

/* The last gather, or scatter, and the collective chosen for it. Where every expert is gathered everywhere, or copies
 * stay as they are, the next layer's is the same. */
typedef struct {
  hec_sparse sparse;
  hec_collective_plan plan;
  bool there;
} hec_sparse_answer;

/* What lowerings of one policy under several schedules have together (hec_lowering_beside). */
typedef struct {
  hec_policy_run run;
  hec_routing routing; /* of the layer that is lowered, as are the cells */
  hec_layer_cells cells;
  hec_sparse_answer answer[2];  /* of gathers, of scatters */
  hec_collective_plan other;    /* scratch */
  hec_spread *spread[2];        /* prices of gathers and scatters of whole experts; NULL: price by lowering */
  hec_spread_sum spread_sum[2]; /* scratch */
  hec_load rewritten;           /* copy for policies that rewrite */
} hec_lowering_shared;

struct hec_lowering_inside {
  const hec_schedule *schedule;
  const hec_collective *collective;
  hec_arena *arena;
  hec_lowering_shared *shared;
  bool beside;          /* `shared` is another's, who plans */
  const char *own_note; /* what the schedule says of itself; NULL: nothing */
  char note[HEC_NOTE_BYTES];
  hec_program program;
  hec_routing routing; /* the shared one; its pairs are the proxies' where rows travel once per node */
  hec_plan before;     /* the plan whose homes and residents are in force */
  int32_t micro_batch, n_micro_batches;
  hec_layer_ops *
      *layers_of;        /* [micro-batches] of each that is under way (hec_lowering_interleave); NULL: one at a time */
  int32_t last_backward; /* then: the micro-batch whose backward is the last */
  int32_t grad_tail;     /* last all-rank operation of the gradient lane; -1 */
  double head_bytes;     /* of dense gradients that were reduced beside the backward already: the head's */
  hec_sparse sparse;     /* scratch of gathers and scatters */
  uint8_t *gathered;     /* [n_experts * n_ranks] guests of the current layer already gathered before the gate */
  int32_t *holders;      /* scratch [n_ranks + copies of a row] */
  struct hec_dispatched *dispatched; /* dispatched.h; NULL: an all-to-all of assignments */
  int64_t *pair_bytes;               /* scratch [n_ranks * n_ranks], zero between uses */
  uint64_t
      *pair_set; /* scratch [ceil(n_ranks * n_ranks / 64)]: bits of those that emit_sparse.c fills, zero between uses */
  const hec_collective_plan *chosen;            /* of low->sparse, until another lowering chooses */
  bool in_parts;                                /* some copies have travelled in parts */
  int32_t part_hold[HEC_COLLECTIVE_STAGES_MAX]; /* holds of what is passed on, while it is emitted */
  hec_transfer_list migration, inside;          /* inside: of replicas in a node, until they go back */
  double *overload;                             /* [n_overload_capacity] */
  size_t n_overload, overload_capacity;
  bool migrated, one_off;
  hec_token_choice choice;
  bool detail;              /* fill in what executors need */
  bool gated;               /* hec_lowering_gated */
  int64_t *arrived;         /* scratch [n_ranks], zero between uses */
  int64_t *inside_bytes;    /* likewise */
  hec_transfer_span tensor; /* the AllGather of tensor-parallel groups, of every layer; made when first needed */
  int32_t *scattered;       /* [n_layers] last reduction of guests' gradients of the previous micro-batch; -1 */
  hec_move_list moves;      /* scratch */
  hec_collective_plan each; /* scratch: the chosen collective, item by item */
};

/* Shapes every program begins with, in this order; the backward one follows each. */
enum {
  HEC_SHAPE_EMBEDDING,
  HEC_SHAPE_DENSE_BLOCKS = 2,
  HEC_SHAPE_ATTENTION = 4,
  HEC_SHAPE_GATE = 6,
  HEC_SHAPE_SHARED = 8,
  HEC_SHAPE_EXPERT = 10,
  HEC_SHAPE_EXACT = 12,
  HEC_SHAPE_HEAD = 14,
  HEC_SHAPE_DENSE_ATTENTION = 16,
  HEC_SHAPE_DENSE_FFN = 18 /* of one block without MoE */
};

enum { HEC_WAITS_MAX = 10 };
/* `deps` and one more; returns how many. */
static inline int32_t hec_wait_also(int32_t wait[HEC_WAITS_MAX], const int32_t *deps, int32_t n_deps, int32_t also) {
  HEC_ASSERT(n_deps < HEC_WAITS_MAX);
  for (int32_t i = 0; i < n_deps; i++)
    wait[i] = deps[i];
  wait[n_deps] = also;
  return n_deps + 1;
}

/* Buffers are opened when their first operation is emitted and closed (last = id) when their last one is. They belong
 * to a layer, not to a chunk. So a layer in chunks holds what one piece would, from the first chunk that needs it to
 * the last.
 * local_bytes[at + r] * bytes; at -1: `bytes` on every rank. */
void hec_open_buffer(hec_lowering *low, int32_t layer, hec_tensor tensor, hec_hold hold);
void hec_close_buffer(hec_lowering *low, int32_t layer, hec_tensor tensor, int32_t last);

/* The exchange `op` of the span's transfers. */
int32_t hec_emit_span(hec_lowering *low, hec_op op, hec_transfer_span *span, const int32_t *deps, int32_t n_deps);

/* Of what moves or sorts token rows: degree, route, and the cells of chunk `index`, -1: of all chunks. */
void hec_set_cells(hec_op *op, const hec_layer_ops *ops, int32_t index);
/* Which buffers an exchange of tokens is the last to need so far, and which it is the first to fill. */
void hec_token_buffers(hec_lowering *low, int32_t layer, bool to_experts, bool backward, int32_t id);

/* chunks.c: transfers, work and cells of a layer's chunks from its routing, degree above 1. */
void hec_cut_layer(hec_lowering *low, int32_t layer);
/* A chunk's transfers from low->pair_bytes (zeroed), on the layer's route. */
void hec_add_transfers(hec_lowering *low, const hec_layer_ops *ops, hec_layer_chunk *chunk);
/* Which assignments go where, source by source, experts ascending, ranks ascending: the cells of the layer. */
void hec_add_cells(hec_lowering *low, int32_t layer);

/* shards.c, for problem.esp > 1: the AllGather's transfers of a chunk from low->arrived (bytes of rows, zeroed). */
void hec_add_shard_gather(hec_lowering *low, hec_layer_chunk *chunk);
/* The AllGather of the rows that arrived, after `deps` and the exchange `arrived` (-1: there was none). The
 * ReduceScatter of what was computed, with its addition. -1 if nobody has a row. */
int32_t hec_emit_shard_gather(hec_lowering *low, hec_chunk chunk, bool backward, int32_t arrived, const int32_t *deps,
                              int32_t n_deps);
int32_t hec_emit_shard_scatter(hec_lowering *low, hec_chunk chunk, bool backward, const int32_t *deps, int32_t n_deps);

/* relays.c: the transfers inside nodes of a chunk; what rests at relays stands in low->pair_bytes as theirs afterwards. */
void hec_add_relays(hec_lowering *low, const hec_token_route *route, hec_layer_chunk *chunk);
/* Towards the experts, before the exchange between nodes: the one inside, and the alignment. Returns what the other waits
 * for; hec_emit_relays_end then what others wait for. Back: after the exchange between nodes, `sent` (-1: there was none). */
int32_t hec_emit_to_relays(hec_lowering *low, hec_chunk chunk, hec_role role, bool backward, const int32_t *deps,
                           int32_t n_deps);
int32_t hec_emit_relays_end(hec_lowering *low, hec_chunk chunk, bool backward, int32_t relayed, int32_t sent);
int32_t hec_emit_from_relays(hec_lowering *low, hec_chunk chunk, hec_role role, bool backward, int32_t sent,
                             const int32_t *deps, int32_t n_deps);
/* nodes.c, where a layer's rows travel once per node. Out to the proxies, before the permute (backward: the
 * unpermute), after `deps`. wait: what it waits for then, HEC_NODE_WAITS at most; returns how many. The permute, or
 * unpermute, `id` has read what came. And home again, behind the unpermute (backward: the permute) `id`; returns what
 * follows waits for. */
enum { HEC_NODE_WAITS = HEC_DEGREE_MAX + 4 };
int32_t hec_emit_node_out(hec_lowering *low, int32_t layer, bool backward, const int32_t *deps, int32_t n_deps,
                          int32_t *wait);
void hec_node_out_read(hec_lowering *low, int32_t layer, bool backward, int32_t id);
int32_t hec_emit_node_home(hec_lowering *low, int32_t layer, bool backward, int32_t id);
/* tensor.c, for problem.mp > 1: attention of an MoE layer between its AllGather and its ReduceScatter; returns the addition.
 * And all blocks without MoE, after low->tail. */
int32_t hec_emit_tensor_attention(hec_lowering *low, int32_t layer, bool backward, const int32_t *deps, int32_t n_deps);
void hec_emit_tensor_blocks(hec_lowering *low, bool backward);

/* Compute on every rank, `rows` rows each. */
int32_t hec_emit_uniform(hec_lowering *low, hec_role role, int32_t shape, int32_t layer, bool backward, double rows,
                         const int32_t *deps, int32_t n_deps);

static inline hec_op hec_op_of(const hec_lowering *low, hec_op_kind kind, hec_lane lane, hec_role role, int32_t layer,
                               bool backward) {
  hec_op op = hec_op_new(kind, lane, role, layer);
  op.backward = backward;
  op.micro_batch = low->in->micro_batch;
  return op;
}

static inline bool hec_lower_last_micro_batch(const hec_lowering *low) {
  int32_t last = low->in->layers_of ? low->in->last_backward : low->in->n_micro_batches - 1;
  return low->in->micro_batch == last;
}

/* Homes and residents that changed from low->before to the plan: moved before the iteration's first operation, or per
 * layer beside it (the policy's row says). A schedule without overlap has it before, and after the planning (`plan`,
 * -1) and what precedes. Returns the operation to wait for, -1. */
int32_t hec_emit_migration(hec_lowering *low, int32_t plan);
