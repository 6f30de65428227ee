/* For schedules: what an iteration consists of, one function per kind of operation. Each takes the ids it waits for
 * (-1: none), appends to the program and returns the id to wait for. Which lane and which order is the schedule's
 * business. */
#pragma once
#include "runtime/program/lower.h"

/* One chunk of a layer's token work: index 0 .. degree-1 of the layer. */
typedef struct {
  int32_t layer, index;
} hec_chunk;
/* All of it, where it is not cut. */
static inline hec_chunk hec_whole(int32_t layer) {
  return (hec_chunk){layer, 0};
}

/* Of a layer, from its forward to its backward: ids of operations (-1: none), and what a schedule chooses for it. */
typedef struct {
  int32_t counts;
  int32_t gather, regather; /* waits of the layer's spAG before the gate, and in backward */
  int32_t scatter;
  int32_t migrate;             /* migration that this layer's experts wait for */
  int32_t degree;              /* chunks of its token work; the schedule sets it before the permute (1) */
  int32_t route;               /* of hec_token_routes, likewise (0) */
  struct hec_layer_inside *in; /* lowering_state.h, as the next */
} hec_layer_ops;

/* What a schedule sees of a lowering. */
struct hec_lowering {
  const hec_problem *problem;
  const hec_load *load;        /* of the micro-batch, while a layer is lowered */
  hec_layer_ops *layer;        /* [n_layers] of the current micro-batch */
  int32_t tail;                /* the compute operation that ended the previous stage on every rank; -1 at the start */
  int32_t moved;               /* migration that everything waits for; -1 */
  void *own;                   /* of the schedule */
  struct hec_portfolio *among; /* which policy and schedule it stands for is chosen (portfolio.h); NULL: it is itself */
  struct hec_lowering_inside *in;
};
/* Guests are dropped after forward and gathered again in backward. */
bool hec_rematerialises(const hec_lowering *low);

/* Of a block's dense gradients. */
typedef struct {
  int32_t layer;
  int64_t first_byte;
  double bytes;
} hec_dense_span;

typedef enum { HEC_GUESTS_BEFORE, HEC_GUESTS_ADDED, HEC_GUESTS_ALL } hec_guests;

#define HEC_DEPS(...)                                                                                                  \
  ((const int32_t[]){__VA_ARGS__}), ((int32_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

/* Compute rows over all ranks. */
int32_t hec_emit_attention(hec_lowering *low, int32_t layer, bool backward, const int32_t *deps, int32_t n_deps);
int32_t hec_emit_gate(hec_lowering *low, int32_t layer, bool backward, const int32_t *deps, int32_t n_deps);
int32_t hec_emit_shared_experts(hec_lowering *low, int32_t layer, bool backward, const int32_t *deps,
                                int32_t n_deps); /* -1 if none */
int32_t hec_emit_experts(hec_lowering *low, hec_chunk chunk, bool backward, const int32_t *deps, int32_t n_deps);
/* Experts as one exact GEMM of the mean assignments (the `ideal` row). */
int32_t hec_emit_mean_experts(hec_lowering *low, int32_t layer, bool backward, const int32_t *deps, int32_t n_deps);

/* The planning of refine, after the gate's counts (compute lane: it stalls the device); -1 if the policy did not plan. */
int32_t hec_emit_plan(hec_lowering *low, int32_t layer, hec_lane lane, const int32_t *deps, int32_t n_deps);

/* Rows of tokens sorted by destination (or back): local copies on the compute lane, of all chunks at once. The forward
 * permute cuts the layer's token work into its degree. */
int32_t hec_emit_permute(hec_lowering *low, int32_t layer, bool backward, const int32_t *deps, int32_t n_deps);
int32_t hec_emit_unpermute(hec_lowering *low, int32_t layer, bool backward, const int32_t *deps, int32_t n_deps);
/* Tokens to the experts or back (role DISPATCH or COMBINE). Forward dispatch and backward combine go to the experts. -1
 * if no token of the chunk leaves its rank. Token lane. Over relays, where the layer's route has them. With
 * expert-sharding groups the AllGather follows on the way to the experts, and the ReduceScatter precedes on the way
 * back. */
int32_t hec_emit_tokens(hec_lowering *low, hec_chunk chunk, hec_role role, bool backward, const int32_t *deps,
                        int32_t n_deps);

/* SparseAllGather of guests (parameter lane); -1 if there are none. GUESTS_BEFORE: those the plan has now, marking them
 * as gathered; GUESTS_ADDED: those not marked; GUESTS_ALL: every one, marks ignored. */
int32_t hec_emit_gather(hec_lowering *low, int32_t layer, hec_role role, hec_guests which, const int32_t *deps,
                        int32_t n_deps);
/* SparseReduceScatter of guests' gradients with its reductions (gradient lane); -1 if none. */
int32_t hec_emit_scatter(hec_lowering *low, int32_t layer, const int32_t *deps, int32_t n_deps);
/* Gradient all-reduce of resident copies, only in the last micro-batch; -1 if none. It is reduce-scatter, reduction
 * and all-gather among the holders of each expert (2(n-1)/n of the bytes each, hecate.md Eq. 2). */
int32_t hec_emit_replicas(hec_lowering *low, int32_t layer, const int32_t *deps, int32_t n_deps);
/* Both: gradients of the layer to where they are kept, of guests, then, complete with them, of replicas. */
void hec_emit_return(hec_lowering *low, int32_t layer, const int32_t *deps, int32_t n_deps);
/* ZeRO-1, after the optimizer: the parts of parameters that each rank has updated go to the others that keep them. */
void hec_emit_updated(hec_lowering *low, int32_t optimizer);
/* Dense gradients of a block, only in the last micro-batch (gradient lane); -1 otherwise or on one rank. With tensor
 * parallelism a span of both parts (hec_problem_gradients) is two all-reduces, one after the other. */
int32_t hec_emit_dense_reduce(hec_lowering *low, int32_t layer, double bytes, const int32_t *deps, int32_t n_deps);

/* All of the block's, waiting for low->tail. */
int32_t hec_emit_dense_block(hec_lowering *low, int32_t layer);

/* A span of them, `bytes` from `first_byte` on, on the token lane in line with the tokens, or on the gradient lane. Executors
 * have one staging area for all-reduces, so those of different lanes must wait for each other. And the optimizer waits for
 * the gradient lane alone, so the last one belongs there. -1 as above. */
int32_t hec_emit_dense_span(hec_lowering *low, hec_lane lane, hec_dense_span span, const int32_t *deps, int32_t n_deps);

/* A layer's attention, gate and counts from low->tail to low->tail. */
void hec_emit_to_gate(hec_lowering *low, int32_t layer);
/* The same where guests are gathered a layer ahead: those of the first layer beside its own attention. */
void hec_emit_to_gate_with_guests(hec_lowering *low, int32_t layer);
/* A layer's backward from low->tail to low->tail, one operation after the other. With `reduces` what is complete of its
 * gradients, replicas and dense ones, is reduced beside what follows; without, that is left to the schedule. */
void hec_emit_backward(hec_lowering *low, int32_t layer, bool reduces);

/* Guest parameters of the layer are freed when operation `last` ends. */
void hec_release_guests(hec_lowering *low, int32_t layer, int32_t last);
bool hec_layer_has_guests(const hec_lowering *low, int32_t layer);

/* Seconds of a layer's token work as it was lowered, by closed forms: its exchanges and its experts, beside each other
 * as degree.h has it. Forward and, when training, backward. O(transfers + work). */
double hec_token_work_s(hec_lowering *low, int32_t layer);
