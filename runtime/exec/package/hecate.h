/* libhecate: the planner and the sparse collectives of hecate for trainers written by others, and its simulator.
 *
 * Expert parameters of a Mixture-of-Experts model are fully sharded: every expert has one home rank. Before the gate of
 * a micro-batch a planner says which hot experts are copied where (SparseAllGather, spAG). The gradients of the copies
 * return to the homes (SparseReduceScatter, spRS). FSSDP is from "Hecate: Unlocking Efficient Sparse Model Training via
 * Fully Sharded Sparse Data Parallelism", arXiv 2502.02581. See its section 3 (sparse collectives) and section 4
 * (Algorithm 1: sparse materialisation; Algorithm 2: heterogeneous sharding). The other policies name their papers:
 * hec_policy_name.
 *
 *   hec_planner_open                              every rank, the same options
 *   each micro-batch:
 *     hec_planner_step                            before the gates; homes may move: hec_planner_moves
 *     each MoE layer:
 *       hec_planner_guests(BEFORE), hec_sparse_all_gather         while attention runs
 *       gate, all-gather of the counts (yours)
 *       hec_planner_refine(counts)                the layer's copies are final
 *       hec_planner_guests(ADDED), hec_sparse_all_gather
 *       hec_planner_split                         where the tokens of each source go; dispatch, experts, combine
 *       backward: hec_planner_guests(ALL), hec_sparse_reduce_scatter
 *     hec_planner_end                             the counts become history
 *
 * Ranks never send each other plans: equal options and equal counts give equal plans on every machine, and
 * hec_planner_digest lets them compare.
 *
 * Errors. Functions that return int return HECATE_OK, HECATE_FAILED (the run failed: a peer died, no space) or
 * HECATE_BAD_INPUT (an argument is wrong; nothing was changed). hec_error says what is wrong and what was expected.
 * Outputs are written only on HECATE_OK. Pointers must not be NULL unless said. Out of memory ends the process with a
 * message.
 * Ownership. What the library returns by pointer belongs to the planner or communicator it came from. Its description
 * says until when it is valid. What you pass is yours and only read during the call unless said.
 * Threads. One thread at a time per planner and per communicator; different ones are independent. hec_error is the
 * calling thread's. hec_run may not be called from two threads at once.
 * Numbers. Ranks, layers and experts count from 0; bytes are bytes, times seconds, tokens token-expert assignments
 * (a token with top-2 is two).
 * Version. Before 1.0 a new minor version may change functions and structs; the library's file name carries it. */
#ifndef HEC_EXEC_HECATE_H
#define HEC_EXEC_HECATE_H
#include <stddef.h>
#include <stdint.h>

#define HECATE_VERSION_MAJOR 0
#define HECATE_VERSION_MINOR 2
#define HECATE_VERSION_PATCH 0

#if defined(__GNUC__)
#define HEC_API __attribute__((visibility("default")))
#else
#define HEC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum { HECATE_OK = 0, HECATE_FAILED = 1, HECATE_BAD_INPUT = 2 };

HEC_API const char *hec_version(void); /* of the library that runs: "MAJOR.MINOR.PATCH" */
/* What the last function that failed in this thread says; "" when none did. Valid until the next failure. */
HEC_API const char *hec_error(void);

/* ---- Planner ---- */

typedef struct hec_planner hec_planner;

enum { HECATE_AUTO = -1, HECATE_T_PAPER = -2 };

/* Start from hec_planner_defaults: fields may be added. */
typedef struct {
  const char *policy;  /* hec_policy_name, with options of its own: "llep:cap=1.5,min=512"; default "hecate" */
  const char *cluster; /* a preset ("dgx-h100"), a line ("4x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G": nodes x
                          devices, bytes/s, latency, FLOP/s, bytes of memory per device) or the path of a cluster file */
  int32_t n_ranks;     /* ranks are devices 0 .. n_ranks - 1, nodes filled in order; 0: all devices */
  int32_t n_layers;    /* MoE layers */
  int32_t n_experts, top_k;           /* per layer; per token */
  int32_t d_model, d_ffn, n_matrices; /* an expert has n_matrices (2: plain, 3: gated) * d_model * d_ffn */
  int32_t param_bytes;                /* per parameter, on the wire and in compute (default 2) */
  double grad_bytes, optimizer_bytes; /* per parameter (2, 12) */
  int32_t tokens;                     /* of each rank in a micro-batch */
  int32_t n_heads, seq_len;           /* of attention, for its time (default, also of 0 heads: d_model / 64; 2048) */
  int32_t forward_only;               /* not 0: no gradients, no optimizer state */
  double window_s; /* forward time between two MoE layers, as you measured it: what a gather may hide under; the same
                      number on every rank, else plans differ. 0: modelled from the cluster and the sizes above */
  int32_t t;       /* hottest experts copied per layer; HECATE_AUTO: as many as fit the window; HECATE_T_PAPER: the
                      paper's formula */
  int32_t m;       /* copies that a rank has room for per layer; HECATE_AUTO: from the device's memory */
  int32_t
      period;    /* iterations between decisions of policies that move experts, at least 1; HECATE_AUTO: the policy's */
  int32_t slots; /* experts' places per rank and layer, of policies that replicate, at least n_experts / n_ranks rounded
                      up; HECATE_AUTO: the policy's */
  int32_t ep;    /* ranks of an expert-parallel group, a divisor of n_ranks and at most n_experts: each group has every
                      expert, tokens and guests stay inside it; 0: the largest. Policies whose papers place experts over
                      all ranks (eplb, flexmoe, laer, ...: hecate-sim --list) have one group of all */
} hec_planner_options;

HEC_API hec_planner_options hec_planner_defaults(void);

/* Names that hec_planner_options.policy takes, i = 0, 1, ...; NULL after the last. *summary and *source (its paper) are
 * set unless NULL. Valid for ever. */
HEC_API const char *hec_policy_name(int32_t i, const char **summary, const char **source);

/* *planner: with the policy's first placement in force. Sizes: n_layers * n_experts * n_ranks at most 2^28. Memory is
 * taken here; step, refine, split, guests and end take none once the policy's own scratch stopped growing. */
HEC_API int hec_planner_open(const hec_planner_options *options, hec_planner **planner);
HEC_API void hec_planner_close(hec_planner *planner); /* NULL: nothing */

/* The decision before the gates of a micro-batch, for all layers, from the history. `iteration` >= 0 and never falls;
 * `micro_batch` counts from 0 in each iteration. O(what the policy does): microseconds to milliseconds. */
HEC_API int hec_planner_step(hec_planner *planner, int64_t iteration, int32_t micro_batch);
/* After the gate of one layer, once per layer and step, layers in any order. counts[source * n_experts + expert] is how
 * many assignments rank `source` sends to the expert. It is the same array on every rank, with at most 2^31 - 1 in all.
 * Needed by split, and by policies that look at the actual load. Only this layer's copies may change. */
HEC_API int hec_planner_refine(hec_planner *planner, int32_t layer, const uint32_t *counts);
/* Ends the step: the counts become history. counts: [n_layers][n_ranks][n_experts], or NULL: those given to refine,
 * which then must have been called for every layer. */
HEC_API int hec_planner_end(hec_planner *planner, const uint32_t *counts);

enum { HECATE_RESIDENT = 0, HECATE_GUEST = 1 };

/* The plan in force. Copies of `expert` in `layer` are copy_rank[b + i] and copy_kind[b + i] with
 * b = layer * copy_capacity, copy_at[layer * (n_experts + 1) + expert] <= i < copy_at[.. + expert + 1]; ranks ascend.
 * Resident: kept between iterations with its optimizer state, gradients all-reduced among home and residents. Guest:
 * gathered for this micro-batch from the rank that keeps the expert for its group, gradient returned there. Valid until the planner is closed; contents until the
 * next step, refine. */
typedef struct {
  int32_t n_layers, n_experts, n_ranks;
  int32_t n_slices;         /* 1; n_ranks for "fsdp": every expert in n equal slices, all ranks guests */
  const int32_t *home;      /* [n_layers][n_experts][n_slices] rank that keeps parameters and optimizer state */
  const int32_t *copy_at;   /* [n_layers][n_experts + 1] */
  const int32_t *copy_rank; /* [n_layers][copy_capacity] */
  const uint8_t *copy_kind; /* [n_layers][copy_capacity] HECATE_RESIDENT, HECATE_GUEST */
  int32_t copy_capacity;
  const int32_t *t, *m;  /* [n_layers] what FSSDP chose; -1 where the policy has none */
  int32_t rematerialise; /* guests are dropped after forward and gathered again in backward */
  int32_t planned;       /* the last step or refine really planned (a periodic policy between decisions did not) */
  double window_s;       /* in force */
  double expert_bytes;   /* parameters of one expert */
  int32_t refines;       /* the policy looks at a layer's counts after its gate; else refine changes no copies */
} hec_plan_view;
HEC_API void hec_planner_view(const hec_planner *planner, hec_plan_view *view);
HEC_API uint64_t hec_planner_digest(const hec_planner *planner); /* equal plans, equal digests, on every machine */

/* Where the assignments of (source, expert) are computed, after refine of the layer. ranks[i] computes tokens[i] of
 * them, ranks ascending, cut from the source's list in this order. Both arrays are [n_ranks]. *n: parts, 0 when there
 * are no assignments. */
HEC_API int hec_planner_split(hec_planner *planner, int32_t layer, int32_t source, int32_t expert, int32_t *ranks,
                              uint32_t *tokens, int32_t *n);

enum { HECATE_PARAM = 0, HECATE_GRAD = 1, HECATE_OPTIMIZER = 2 };

/* Part `part` of `n_parts` equal parts of an expert's parameters or optimizer state goes from rank to rank. */
typedef struct {
  int32_t source, destination, layer, expert, part, n_parts;
  int32_t state; /* HECATE_PARAM, HECATE_OPTIMIZER */
} hec_planner_move;
/* What must move because the last step changed homes or residents, ascending by (source, destination, layer, expert);
 * apply it before the layers run. Valid until the next step. */
HEC_API const hec_planner_move *hec_planner_moves(const hec_planner *planner, size_t *n);

/* ---- Sparse collectives ---- */

/* Experts to gather or to return: item i goes from owner[i] to receiver[receiver_at[i] .. receiver_at[i + 1]] (ascending,
 * without the owner, at least one). */
typedef struct {
  int32_t n_items;
  const int32_t *expert;      /* [n_items] ascending */
  const int32_t *owner;       /* [n_items] */
  const int32_t *receiver_at; /* [n_items + 1], the first 0 */
  const int32_t *receiver;    /* [receiver_at[n_items]] */
} hec_sparse_items;

enum {
  HECATE_BEFORE, /* the guests that the step decided on */
  HECATE_ADDED,  /* those that refine added since */
  HECATE_ALL,    /* all guests: what a reduce-scatter returns */
};
/* The guests of a layer as items. Valid until the next guests or close of this planner. Not for "fsdp" (slices). */
HEC_API int hec_planner_guests(hec_planner *planner, int32_t layer, int32_t which, hec_sparse_items *items);

/* ---- Steps as objects, checkpoints ---- */

/* A step as an object: what one micro-batch is planned by. Several are alive at once, as pipelines need it. A layer may
 * be refined again with the counts of a recomputed forward pass, and gets the same plan. End may come before backward.
 * All ranks call begin and end in the same order. What a step says of homes holds until the next iteration's first
 * begin.
 *   begin     as hec_planner_step; the step is the planner's memory, used again after release
 *   refine    as hec_planner_refine, any number of times a layer
 *   count     instead of refine: the counts, for dispatch and history; the policy adds no copies
 *   end       as hec_planner_end; once
 *   release   the step is not used any more; NULL: nothing. Closing the planner releases all */
typedef struct hec_step hec_step;
HEC_API int hec_planner_begin(hec_planner *planner, int64_t iteration, int32_t micro_batch, hec_step **step);
HEC_API int hec_step_refine(hec_step *step, int32_t layer, const uint32_t *counts);
HEC_API int hec_step_count(hec_step *step, int32_t layer, const uint32_t *counts);
HEC_API int hec_step_end(hec_step *step, const uint32_t *counts);
HEC_API void hec_step_release(hec_step *step);
HEC_API void hec_step_view(const hec_step *step, hec_plan_view *view);
HEC_API uint64_t hec_step_digest(const hec_step *step);
HEC_API int hec_step_guests(hec_step *step, int32_t layer, int32_t which, hec_sparse_items *items);
/* Where all assignments of a layer are computed, after refine of it: tokens[(source * n_experts + expert) * n_ranks + rank].
 * A source's list of an expert's assignments is cut in ascending order of ranks. O(ranks^2 * experts). */
HEC_API int hec_step_dispatch(hec_step *step, int32_t layer, uint32_t *tokens);
/* What one rank needs of it: send[expert * n_ranks + rank], its own assignments; receive[source * n_experts + expert], what
 * it computes. O(ranks * experts). */
HEC_API int hec_step_routes(hec_step *step, int32_t layer, int32_t rank, uint32_t *send, uint32_t *receive);

/* The planner between two steps as bytes, for checkpoints; equal on all ranks, so one of them may save it. state NULL: only
 * *bytes. The bytes are of this machine's byte order. */
HEC_API int hec_planner_save(const hec_planner *planner, void *state, size_t capacity, size_t *bytes);
/* Into a planner that made no step yet. *same (may be NULL) is 1 where policy and ranks are those of the saved planner.
 * Then every plan is what it would have been, and homes and residents are where the saved planner had them. Else 0: the
 * loads of the past are taken over, and the next step chooses homes by them. */
HEC_API int hec_planner_restore(hec_planner *planner, const void *state, size_t bytes, int32_t *same);

/* ---- Ranks ---- */

/* A rank's end of a group of ranks made by hec_run. */
typedef struct hec_comm hec_comm;

/* Backends, i = 0, 1, ...; NULL after the last. "cpu": processes or threads of this machine. "mpi": under mpirun or
 * srun. "nccl": GPUs, which the collectives here do not run on yet (hec_backend_check says so). *summary is set unless
 * NULL. */
HEC_API const char *hec_backend_name(int32_t i, const char **summary);
/* HECATE_OK: can be used here and now. Else hec_error says why not. */
HEC_API int hec_backend_check(const char *name);

typedef struct {
  const char *backend;    /* default "cpu" */
  int32_t n_ranks;        /* at most 256; mpi: 0, or the number that mpirun started */
  int32_t threads;        /* cpu: not 0: ranks are threads of this process instead of forked processes */
  const char *cluster;    /* as in hec_planner_options, for the choice of collective; NULL: one machine */
  const char *collective; /* "direct", "two_level", "chain"; NULL: the cheapest on this cluster */
  size_t memory_bytes;    /* for hec_comm_alloc, of each rank; reserved, taken as it is touched (default 1 GiB) */
  double limit_s;         /* longest wait for a peer (default 60) */
} hec_run_options;
HEC_API hec_run_options hec_run_defaults(int32_t n_ranks);

typedef int hec_body(hec_comm *comm, void *context);

/* Runs body(comm, context) on every rank and waits for all; a body returns HECATE_OK or a code (its message: what hec_error
 * says in it). HECATE_OK: every body did. Else the failure that came first; the others' waits fail, no process is left.
 * Processes: forked here, so the caller must have no other threads, and what a body writes to memory is lost with it.
 * Under mpi: this process is one rank, MPI is started by the first hec_run and may not be by the program. A failure ends
 * the whole job (MPI_Abort). */
HEC_API int hec_run(const hec_run_options *options, hec_body *body, void *context);
HEC_API void hec_finish(void); /* at the end of a program under mpi; else does nothing */

HEC_API int32_t hec_comm_rank(const hec_comm *comm);
HEC_API int32_t hec_comm_size(const hec_comm *comm);
HEC_API int hec_comm_barrier(hec_comm *comm);
/* Ends the run for all ranks with this message, which hec_run reports with the rank; returns HECATE_FAILED, for the body
 * to return. */
HEC_API int hec_comm_fail(hec_comm *comm, const char *message);
/* `bytes` of every rank, into all [n_ranks * bytes] on every rank. For counts, digests: goes over rank 0. */
HEC_API int hec_comm_all_gather(hec_comm *comm, const void *data, size_t bytes, void *all);
/* Zeroed, 64-byte aligned, from the rank's region, which peers read in place; NULL: the region is used up. Freed with the
 * communicator. */
HEC_API void *hec_comm_alloc(hec_comm *comm, size_t bytes);

/* SparseAllGather: `bytes` of every item from its owner's buffer into its receivers'. buffers[i]: item i on this rank,
 * at owner and receivers; else not looked at. Called by every rank with the same items and sizes. Buffers may be
 * anywhere; between processes of one machine what is sent from memory not of hec_comm_alloc is copied once more.
 * Lowered to `direct`, `two_level` (into each node once) or `chain` (chunked), by closed-form cost on the cluster. */
HEC_API int hec_sparse_all_gather(hec_comm *comm, const hec_sparse_items *items, size_t bytes, void *const *buffers);
/* SparseReduceScatter: at the owner, buffers[i][0 .. n_floats) += the receivers' in ascending order of ranks. With
 * two_level and chain, first within each other node at one of its receivers (in ascending order), then at the owner.
 * Either way the order, and so every bit, is the same in every run. Buffers of receivers may be overwritten. */
HEC_API int hec_sparse_reduce_scatter(hec_comm *comm, const hec_sparse_items *items, size_t n_floats,
                                      float *const *buffers);

enum { HECATE_GATHER = 0, HECATE_SCATTER = 1 };
/* The same in pieces: one gather and one scatter may be in progress at a time. Between start and the test that says done,
 * or wait, buffers must stay and not be touched; items are copied. Bytes move only inside test and wait (of either), so
 * call test between steps of computing. */
HEC_API int hec_sparse_all_gather_start(hec_comm *comm, const hec_sparse_items *items, size_t bytes,
                                        void *const *buffers);
HEC_API int hec_sparse_reduce_scatter_start(hec_comm *comm, const hec_sparse_items *items, size_t n_floats,
                                            float *const *buffers);
HEC_API int hec_sparse_test(hec_comm *comm, int32_t which, int32_t *done); /* none in progress: done */
HEC_API int hec_sparse_wait(hec_comm *comm, int32_t which);
/* Bytes that this rank sent in collectives so far, and the name of the last one's way ("" before the first). */
HEC_API int64_t hec_comm_sent(const hec_comm *comm, const char **collective);

/* ---- Simulation ---- */

/* What `hecate-sim TRACE OPTIONS --json` prints, byte for byte: policies compared on recorded loads.
 *   trace    the trace (traces/README.md): JSON Lines, one JSON object or gzip of either, `length` bytes; NULL: the file
 *            `name` is read
 *   name     what the document and messages call it
 *   options  [n_options] words of hecate-sim's command line, "--policy", "ep,hecate", "--cluster=dgx-h100"; not those of
 *            its output (--json, --out, --timeline-iter, --list, --help)
 *   *json    the document, zero-terminated; give it to hec_simulate_free
 * Seconds to minutes, on all cores unless --threads says otherwise. One call at a time in a process. */
HEC_API int hec_simulate(const char *trace, size_t length, const char *name, const char *const *options,
                         int32_t n_options, char **json);
HEC_API void hec_simulate_free(char *json); /* NULL: nothing */

#ifdef __cplusplus
}
#endif

#endif
