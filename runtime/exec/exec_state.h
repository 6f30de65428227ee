/* What the files of the executor share:
 *   exec.c           memory and plans              exec_relay.c     token rows over a third rank
 *   exec_post.c      binding                       exec_run.c       lanes
 *   exec_exchange.c  moving bytes                  exec_stream.c    streams of a device
 *   shard_rows.c     the same inside               exec_time.c      timelines
 *                    expert-sharding groups */
#pragma once
#include "runtime/exec/exec.h"
#include "runtime/exec/stage.h"

/* A buffer that is open while operations are posted. */
typedef struct {
  int32_t hold; /* into program.holds */
  hec_tensor tensor;
  int32_t layer, micro_batch;
  char *at;
  double bytes;
  const int32_t *items; /* guests: experts here, [n_items] on the step arena */
  int32_t n_items;
} hec_open_buffer_of;

typedef struct hec_exchange_state {
  hec_post post; /* in progress */
  bool done;
  hec_post *posts; /* [n_posts] of an all-reduce, one after the other */
  int32_t n_posts, step;
  hec_piece *additions; /* [n_additions] after the exchange (staged); of an all-reduce [n_posts], one after each post */
  int32_t n_additions;
  hec_piece *own; /* [n_own] slices that stay on the rank: copied at the start of a gather */
  int32_t n_own;
  hec_piece
      sums; /* parts of gradients that begin here, as one piece without a source: cleared at the start of a scatter */
  int64_t law_ns;    /* held: duration under the closed-form law */
  int32_t *partners; /* [n_partners] ranks that this one exchanges with */
  int32_t n_partners;
} hec_exchange_state;

typedef struct {
  hec_exec_op **op; /* [n] queue of the lane */
  size_t n, capacity, head;
} hec_lane_queue;

struct hec_exec {
  hec_exec_options options;
  const hec_problem *problem;
  hec_rank *rank;
  int32_t r, n_ranks, n_layers, n_experts;
  bool train;
  bool streams; /* operations go to the streams of a device (exec_stream.c), else they run in lanes on the host */
  /* Region: dense state | counts | workspace | staging of all-reduces | planned buffers ->  <- expert slots. */
  float *dense, *workspace, *staging;
  uint32_t *counts, *counts_host; /* the same place, unless a device computes */
  hec_store store;
  hec_buffers buffers;
  uint8_t *keeps; /* [n_layers * n_experts * n_slices] */
  /* The iteration. */
  hec_arena step;
  int64_t iteration, start_ns;
  hec_exec_op **ops; /* [n_ops] posted; NULL: this rank takes no part */
  size_t n_ops, ops_capacity;
  size_t n_holds; /* of the program, seen */
  hec_open_buffer_of *open;
  size_t n_open, open_capacity;
  int32_t *after; /* while posting: operations that newly opened memory waits for */
  size_t after_capacity;
  hec_lane_queue lane[HEC_N_LANES];
  const hec_rows **rows;           /* [n_micro_batches * n_layers] NULL: none yet */
  const hec_node_rows **node_rows; /* [n_layers] newest, of operations that say so (by_node) */
  const hec_program *program;      /* while posting */
  hec_piece *staged;               /* what the reduction after the newest staged exchange adds */
  int32_t n_staged;
  int64_t planned_begin_ns, planned_end_ns;
  size_t n_done;
  int32_t newest[HEC_N_LANES]; /* operation of this rank on each lane that was posted last, -1: none */
  int32_t first_undone;        /* streams: all operations before it are done */
  int64_t progress_ns;         /* when something last moved */
  int delays;                  /* the kernel's account of this thread; -1: not watched, or there is none */
  int64_t late_ns;             /* without a processor in the wait before this pass */
  uint32_t turns;              /* of all ranks, as of then */
  const hec_cluster *links;    /* that held transports and virtual time imitate; plans may be made for others */
  hec_link_cost cost;          /* of them */
  double interrupted;          /* of the last timeline, on rank 0 */
  const int64_t *lost_ps;      /* likewise, [n_ops * n_ranks]; NULL: not known */
  hec_exec_moving moving;      /* likewise */
  double kept_bytes;           /* state of the plan in force, as the program will count it */
};

static inline size_t hec_row_of(const hec_exec *exec, int32_t layer, int32_t expert) {
  return (size_t)layer * (size_t)exec->n_experts + (size_t)expert;
}
static inline bool hec_op_done(const hec_exec *exec, int32_t id) {
  return exec->ops[id] == NULL || exec->ops[id]->state == HEC_OP_DONE;
}

/* exec_exchange.c */
hec_status hec_exchange_bind(hec_exec *exec, hec_exec_op *op) HEC_MUST_USE;
hec_status hec_exchange_start(hec_exec *exec, hec_exec_op *op) HEC_MUST_USE;
hec_status hec_exchange_test(hec_exec *exec, hec_exec_op *op, bool *done, bool *moved) HEC_MUST_USE;
/* The whole exchange on the selected stream. */
hec_status hec_exchange_enqueue(hec_exec *exec, hec_exec_op *op) HEC_MUST_USE;
/* Until when a held operation lasts at least, once its bytes are there; INT64_MAX while a partner has not posted. */
int64_t hec_exchange_held_until(const hec_exec *exec, const hec_exec_op *op);
hec_piece *hec_exchange_own(hec_exec *exec, const hec_op *op, bool adds, int32_t *n);
/* The rank that the operation waits for, for its bytes or, where ends are held, for its post; -1: only the law holds it. */
int32_t hec_exchange_waits_for(const hec_exec *exec, const hec_exec_op *op);

/* Rows between ranks of a group: `stage` has transfers, segments and context. Backwards (reverse) they are partial sums, which
 * the operation that follows adds, from staging unless the transport `adds`. */
void hec_exchange_bind_rows(hec_exec *exec, hec_exec_op *op, bool adds, hec_stage stage);
/* shard_rows.c: AllGather and ReduceScatter of an expert-sharding group; `adds`: receives can be added where they belong. */
void hec_shard_rows_bind(hec_exec *exec, hec_exec_op *op, bool adds);
/* exec_relay.c: messages of an exchange of a layer whose rows have relays, its state there and empty; the copy from one
 * order to the other. */
void hec_relays_bind(hec_exec *exec, hec_exec_op *op, float *assigned, float *computed);
void hec_alignment_bind(hec_exec *exec, hec_exec_op *op);
/* exec_nodes.c: messages of an exchange between nodes; there is room for n_ranks each. */
void hec_exchange_bind_nodes(hec_exec *exec, hec_exec_op *op, hec_post *post);

/* This rank's transfers of such an exchange, `max` at most, turned round where it is reversed; ascending by the other rank. */
hec_transfer *hec_exec_transfers(hec_exec *exec, const hec_op *op, int32_t max, int32_t *n);
/* tensor_rows.c: the same of a tensor-parallel group. */
void hec_tensor_rows_bind(hec_exec *exec, hec_exec_op *op, bool adds);

/* exec_stream.c: an operation that was bound, on the stream of its lane. */
hec_status hec_stream_enqueue(hec_exec *exec, hec_exec_op *op) HEC_MUST_USE;
/* Until operation `id` is done, -1: all that was posted. */
hec_status hec_stream_wait(hec_exec *exec, int32_t id) HEC_MUST_USE;
/* The times of all operations, which are done. */
void hec_stream_times(hec_exec *exec);

/* exec_run.c: what a step of compute or local work does on the selected stream, or now. */
void hec_exec_step(hec_exec *exec, hec_exec_op *op);
hec_place hec_exec_place(const hec_exec *exec, const hec_exec_op *op);
/* Fails: waited too long in the operation, for the peer. */
hec_status hec_exec_late(hec_exec *exec, const hec_exec_op *op, int32_t peer) HEC_MUST_USE;
bool hec_op_exchanges(const hec_exec_op *op);

/* exec.c: a slot for a part, unless it has one; HEC_FAILED when there is no room. */
hec_status hec_exec_take(hec_exec *exec, int32_t row, int32_t part) HEC_MUST_USE;
/* exec.c: HEC_FAILED when state and open buffers are more than the capacity. */
hec_status hec_exec_check_capacity(hec_exec *exec) HEC_MUST_USE;

/* exec.c: where array 0..3 (parameters, gradients, moments) of a parcel stands here, kept or a guest's; *n floats. NULL:
 * nowhere. */
float *hec_exec_parcel(hec_exec *exec, const hec_parcel *parcel, int32_t array, int64_t *n);
/* A guest's parameters or gradients (whole expert) in the open buffers of the operation's layer; it must be there. */
float *hec_exec_guest_at(const hec_exec *exec, const hec_op *op, int32_t expert, bool grads);
