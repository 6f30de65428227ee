/* The executor of one rank: walks the rank's slice of a program, as the second interpreter beside the simulator.
 *
 * Operations are posted in the order of their ids. Posting plans the operation's buffers (buffers.h), finds what it
 * reads and writes, and puts it at the end of its lane; nothing is computed yet. Lanes are in-order queues that advance
 * whenever the rank looks at them. Communication lanes are moved on between any two steps of the compute lane; a step
 * is one expert's GEMMs or one attention. So transfers are in flight while the rank computes. One thread per rank; it
 * sleeps when no lane can move. Deadlock freedom: program.h; a buffer's memory waits only for smaller ids.
 *
 * Where a device computes (processor.h, streams), lanes are its streams and posting is all that the host does: exec_stream.c.
 *
 * What an operation computes is not known here. Compute and most local operations go to the work table (work.h), which
 * knows the model but neither lanes nor transports. Known here are exchanges of token rows and of expert parcels, the
 * reduction after a scatter, all-reduce, and counts. Token rows also move inside expert-sharding and tensor-parallel
 * groups. Bytes of any other kind (a traffic matrix) stand where the work table says.
 *
 * Times: nanoseconds from the start of the iteration. Real time is the default. In virtual time, compute and local
 * operations are measured in CPU time of the thread while one rank at a time computes. Then the timeline is walked with
 * these durations and the closed-form costs of exchanges. So there may be more ranks than cores. */
#pragma once
#include "runtime/exec/buffers.h"
#include "runtime/exec/launch/rank.h"
#include "runtime/exec/rows/node_rows.h"
#include "runtime/exec/rows/rows.h"
#include "runtime/exec/store.h"
#include "runtime/program/timeline.h"

typedef struct hec_exec hec_exec;

/* An operation on its way through a lane. */
typedef struct {
  hec_op op; /* a copy: the program's arrays may move */
  int32_t id;
  int32_t *waits; /* [n_waits] operations that must be finished on this rank */
  int32_t n_waits;
  int32_t n_steps, step; /* of the work table */
  void *data;            /* the work table's, on exec's step arena */
  struct hec_exchange_state *exchange;
  enum { HEC_OP_WAITING, HEC_OP_RUNNING, HEC_OP_DONE } state;
  int64_t posted_ns, begin_ns, end_ns;
  const struct hec_event *began, *ended; /* on a device's stream; NULL: it has no part there */
  int64_t given_ns;                      /* when the host put it there */
  /* of its steps, on the thread and on the clock; exchanges: cpu_ns spent moving bytes. On a device: its own time, and
   * that with what the stream stood idle before because the host was late */
  int64_t cpu_ns, wall_ns;
  int64_t late_ns; /* exchanges: without a processor while waiting for the end */
} hec_exec_op;

/* What compute and local operations do. `bind` is called when the operation is posted, with its buffers open: it sets
 * n_steps (0: nothing to do on this rank) and data. `run` does one step. */
typedef struct {
  void (*bind)(void *context, hec_exec *exec, hec_exec_op *op);
  void (*run)(void *context, hec_exec *exec, hec_exec_op *op);
  void *context;
  /* Of tensor-parallel groups: the rank's own rows [T, d] at the operation: the stream, backward its gradient. */
  float *(*stream)(void *context, const hec_op *op);
  /* Of dispatches without cells, whose bytes are not token rows: where those of a transfer stand on this rank. The
   * rank is its source or its destination. NULL: there are none. */
  hec_segment (*place)(void *context, hec_exec *exec, const hec_exec_op *op, const hec_transfer *transfer);
} hec_work_table;

typedef struct {
  const hec_problem *problem;
  hec_rank *rank;
  hec_work_table work;
  int32_t n_slices;        /* of the policy's plans */
  int64_t expert_size;     /* parameters of an expert; of a shard where problem.esp > 1 */
  int64_t block_size;      /* dense parameters of a block that a rank has */
  int64_t rest_size;       /* dense parameters outside the MoE blocks */
  int32_t n_micro_batches; /* at most */
  int64_t workspace_size;  /* floats that the work table wants in the rank's region */
  bool virtual_time;
  bool watched;    /* asks the kernel after each wait how late the rank came back from it: two microseconds */
  double capacity; /* bytes that state and planned buffers may take, as the program counts them; 0: no limit */
} hec_exec_options;

/* Bytes that a rank's region must have for it (reserved, not touched). */
size_t hec_exec_bytes(const hec_exec_options *options);
hec_status hec_exec_new(const hec_exec_options *options, hec_arena *arena, hec_exec **exec) HEC_MUST_USE;
void hec_exec_free(hec_exec *exec);

/* ---- State: what the work table and drivers reach ---- */

typedef struct {
  float *params, *grads, *first, *second; /* [n] */
  int64_t n;
} hec_dense;
hec_dense hec_exec_dense(const hec_exec *exec, int32_t layer); /* layer -1: outside the blocks */
hec_store *hec_exec_store(hec_exec *exec);
float *hec_exec_workspace(const hec_exec *exec);
hec_arena *hec_exec_step_arena(hec_exec *exec); /* rewound at the start of every iteration */
const hec_problem *hec_exec_problem(const hec_exec *exec);
int32_t hec_exec_rank(const hec_exec *exec);
hec_processor *hec_exec_processor(const hec_exec *exec);
bool hec_exec_train(const hec_exec *exec);
/* Bytes of this rank after an iteration, counted in what was taken for it. That is arrays of blocks and experts,
 * moments of `updated` numbers, open buffers at their peak. The executor's own, without which a model has no memory to
 * compare: the workspace. */
hec_rank_memory hec_exec_memory(hec_exec *exec, int64_t updated);
double hec_exec_workspace_bytes(const hec_exec *exec);

/* The plan in force: says which experts this rank keeps. Slots that a plan wants and nobody sends are taken when
 * `fresh` (the first plan: the caller fills them in). */
hec_status hec_exec_set_plan(hec_exec *exec, const hec_plan *plan, bool fresh) HEC_MUST_USE;
bool hec_exec_keeps(const hec_exec *exec, int32_t layer, int32_t expert, int32_t part);

/* ---- While an operation is bound: its buffers ---- */

/* The open buffer of the operation's layer and micro-batch. */
void *hec_exec_tensor(const hec_exec *exec, const hec_exec_op *op, hec_tensor tensor);
/* Parameters to compute `expert` with: kept here, or a guest's. */
const float *hec_exec_params(const hec_exec *exec, const hec_exec_op *op, int32_t expert);
/* Where its gradient goes; *guest: it is a guest's and has no value yet. */
float *hec_exec_grads(const hec_exec *exec, const hec_exec_op *op, int32_t expert, bool *guest);
/* Guests with gradients at a backward experts operation: their number, and the i-th. */
int32_t hec_exec_guests(const hec_exec *exec, const hec_exec_op *op);
int32_t hec_exec_guest(const hec_exec *exec, const hec_exec_op *op, int32_t i);
/* Rows of the operation's layer and micro-batch (from its cells). */
const hec_rows *hec_exec_rows(hec_exec *exec, const hec_exec_op *op);
/* Where rows of the layer stand that travel once per node (op.by_node); newest. */
const hec_node_rows *hec_exec_node_rows(hec_exec *exec, const hec_exec_op *op);
/* Experts that the operation computes here, ascending, with their rows. Valid while it is bound. */
const hec_work *hec_exec_work(const hec_exec *exec, const hec_exec_op *op, int32_t *n);
/* Counts after the gate: row of this rank to be filled in by the gate's step; complete after the counts operation. */
uint32_t *hec_exec_counts(const hec_exec *exec, int32_t layer, int32_t micro_batch); /* [n_ranks][n_experts] */

/* ---- An iteration ---- */

/* Before ranks start together: everything is done, devices set their clocks. */
void hec_exec_restart(hec_exec *exec);
void hec_exec_begin(hec_exec *exec, int64_t iteration, int64_t start_ns);
/* Posts the operations that were appended to the program since the last call. HEC_FAILED: no memory. */
hec_status hec_exec_post(hec_exec *exec, const hec_program *program) HEC_MUST_USE;
/* Runs until operation `id` is finished here (it must have been posted); all: everything posted. */
hec_status hec_exec_wait(hec_exec *exec, int32_t id) HEC_MUST_USE;
hec_status hec_exec_drain(hec_exec *exec) HEC_MUST_USE;
/* The next plan operation to be posted took this long on the host. */
void hec_exec_planned(hec_exec *exec, int64_t begin_ns, int64_t end_ns);
/* After the last operation: everything done, memory model verified against `program`, old slots given back. */
hec_status hec_exec_finish(hec_exec *exec, const hec_program *program) HEC_MUST_USE;
/* On rank 0: the timeline of all ranks (and how much it was interrupted), and that all planned the same program; the others take part. */
hec_status hec_exec_timeline(hec_exec *exec, const hec_program *program, hec_timeline *timeline) HEC_MUST_USE;
/* Of the last timeline, on rank 0. On a CPU: the share of the iteration in which the worst rank computed but had no
 * processor, because something else ran there. On a device: the share in which its compute stream had nothing to do but
 * could have had, since the host was late. */
double hec_exec_interrupted(const hec_exec *exec);
/* Likewise for each (operation, rank), [n_ops * n_ranks], valid until the next iteration: picoseconds in which the rank
 * had no processor while computing. Where it is watched, also how late it woke up to end an exchange, all-reduce or
 * counts.
 * NULL in virtual time, whose times have none of that, and on a device. */
const int64_t *hec_exec_lost_ps(const hec_exec *exec);
/* The rank's own operations first .. end - 1 of the iteration: when the last of them ended (ns of hec_clock_ns; 0: none has), and
 * picoseconds without a processor in them. Until the next iteration. */
typedef struct {
  int64_t end_ns, lost_ps;
} hec_exec_span;
hec_exec_span hec_exec_span_of(const hec_exec *exec, int32_t first, int32_t end);
/* Likewise: seconds that all ranks spent moving bytes on their processors, and seconds that their exchanges, all-reduces
 * and counts lasted once the partners were there. 0 and 0 in virtual time. */
typedef struct {
  double busy_s, lasted_s;
} hec_exec_moving;
hec_exec_moving hec_exec_moved(const hec_exec *exec);
