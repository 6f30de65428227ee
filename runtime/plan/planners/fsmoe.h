/* FSMoE's planner: in how many chunks a layer is cut, and which gradients are reduced beside which layer (arXiv
 * 2501.10714; the mathematics are in fsmoe.c). It places nothing and knows no tokens: its inputs are times, in any one
 * unit, of operations on three streams. */
#pragma once
#include "runtime/base/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* One of the r chunks of an operation takes start + volume / r. */
typedef struct {
  double start, volume;
} hec_fsmoe_op;

/* One direction of a layer. Dispatch and combine are one `a2a` each, between nodes. `gather` and `scatter` are the
 * AllGather and ReduceScatter of an expert-sharding group, inside a node. `experts` computes. */
typedef struct {
  hec_fsmoe_op a2a, gather, scatter, experts;
} hec_fsmoe_layer;

static inline double hec_fsmoe_chunk(hec_fsmoe_op op, double degree) {
  return op.start + op.volume / degree;
}

/* What bounds the layer; the paper's numbers of its four cases. */
typedef enum {
  HEC_FSMOE_INTER = 1,   /* the stream between nodes, with the gradients on it */
  HEC_FSMOE_COMPUTE = 2, /* the experts */
  HEC_FSMOE_A2A = 3,     /* the dispatches and combines */
  HEC_FSMOE_INTRA = 4    /* the stream inside nodes */
} hec_fsmoe_case;

typedef struct {
  double time;
  int32_t degree;
  hec_fsmoe_case bound;
} hec_fsmoe_choice;

enum { HEC_FSMOE_DEGREE_MAX = 8 }; /* the artifact's: degrees 1, 2, 4, 8 */

/* "No-IIO": gather and scatter are done by the stream between nodes, half of their sum with each a2a. */
hec_fsmoe_layer hec_fsmoe_folded(const hec_fsmoe_layer *layer);

/* The case that applies at a real `degree` >= 1 with `reduce` time of gradients in the layer, and its time. */
hec_fsmoe_case hec_fsmoe_case_of(const hec_fsmoe_layer *layer, double degree, double reduce);
double hec_fsmoe_case_time(const hec_fsmoe_layer *layer, double degree, double reduce, hec_fsmoe_case bound);

/* The least time over degrees 1, 2, 4 ... degree_max; the smallest such degree. */
hec_fsmoe_choice hec_fsmoe_best(const hec_fsmoe_layer *layer, double reduce, int32_t degree_max);
/* How much time of gradients the layer takes at that degree without becoming slower. */
double hec_fsmoe_slack(const hec_fsmoe_layer *layer, double degree);

/* An all-reduce of n units (elements or bytes) takes start + n * per_unit; of none, nothing. */
typedef struct {
  double start, per_unit;
} hec_fsmoe_reduce;

/* A generalised layer, backward: its MoE part, then its dense part, after which `gradient` units are ready. */
typedef struct {
  hec_fsmoe_layer moe; /* backward */
  double dense;        /* time of the dense part, backward */
  double gradient;
} hec_fsmoe_part;

typedef struct {
  double beside_moe, beside_dense; /* units reduced beside the two parts of this layer, each in one all-reduce */
  hec_fsmoe_choice moe;            /* with what is beside it */
} hec_fsmoe_slot;

typedef struct {
  double tail; /* units reduced after the last layer */
  double time; /* of all MoE parts and of the tail; dense parts hide what is beside them */
} hec_fsmoe_partition;

typedef struct {
  int32_t degree_max; /* 0: HEC_FSMOE_DEGREE_MAX */
  int32_t degree_min; /* min degree of the backward, a power of two; 0: 1 */
  int32_t quanta;     /* of step 2's grid; 0: HEC_FSMOE_QUANTA */
} hec_fsmoe_options;
enum { HEC_FSMOE_QUANTA = 256 };

/* `parts` [n] in the order of the backward pass; fills slots[n]. What is reduced beside a part was ready before its
 * layer began. The arena is left as it was. O(n * quanta^2). */
hec_fsmoe_partition hec_fsmoe_divide(const hec_fsmoe_part *parts, int32_t n, hec_fsmoe_reduce law,
                                     hec_fsmoe_options options, hec_arena *arena, hec_fsmoe_slot *slots);
