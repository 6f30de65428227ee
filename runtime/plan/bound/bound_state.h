/* What the files of the bounds of times share: bound_cluster.c (what the cluster gives), bound_time.c (loads, and the
 * mathematics), bound_served.c (tokens or copies). */
#pragma once
#include "runtime/plan/bound/bound.h"
#include "runtime/plan/problem.h"

/* Tokens of one expert in one group. */
typedef struct {
  uint64_t tokens;
  int32_t index;   /* group * n_experts + expert */
  double waiting;  /* weight of its sources */
  double inward_s; /* rows into the rank that computes it, from its best place; only of the largest */
} hec_bound_piece;

/* What a layer raises A by, forward (0) and backward (1). */
typedef struct {
  double experts_s[2], permuted_s, exchange_s, busiest_s[2];
  double gather_s, add_s; /* of sharding groups: AllGather, or ReduceScatter; its additions */
} hec_bound_rise;

/* Prices at which bound_served.c weighs copies against tokens: 0 .. 1, most of them near 0, where copies are dear. */
enum { HEC_BOUND_PRICES = 17 };
static inline double hec_bound_price(int32_t k) {
  double x = (double)k / (HEC_BOUND_PRICES - 1);
  return x * x * x;
}

struct hec_bound {
  const hec_problem *problem;
  int32_t n_pieces;
  /* Of the cluster. */
  double *weight;                        /* [n_ranks] o_r */
  double min_weight;                     /* min o_r */
  double row_s[2], min_row_s[2];         /* min o_r c_r, of all ranks of a group; min c_r */
  double add_s;                          /* additions of a group per assignment: (s+1) row min(o_r / hbm_r) */
  double before_s[2], head_s[2];         /* weighted means of a micro-batch: embedding and dense blocks; head */
  double attention_s[2][2], shared_s[2]; /* of a layer: attention (second: dense beside s2) and gate; shared experts */
  double min_shared_s;                   /* forward, of the fastest rank */
  double permuted_s;                     /* permuting an assignment there and back, of one direction */
  double counts_s;                       /* all ranks learn a layer's counts; 0 where the law has no closed form */
  double slowest_s;                      /* all of these on the slowest rank */
  /* All-reduces of a block, of the head beside the layers, of the rest: on any network; in closed form; that in pieces. */
  double block_reduce_s[3], head_reduce_s[3], rest_reduce_s[3];
  double optimizer_s;
  double port, nics, node_nics, rank_rate; /* bytes/s in or out, the largest: port and NICs of a rank, NICs of a node;
                                              port and NICs of a rank together */
  double token_factor, moved_factor; /* measured exchanges may be faster than the closed form: of tokens; of any kind */
  /* Of the iteration. */
  hec_bound_case options;
  int32_t done;                         /* micro-batches */
  double chain_s, reduced_s;            /* A; end of the newest all-reduce */
  double forward_s;                     /* A at the end of the first forward */
  double served_s[2][HEC_BOUND_PRICES]; /* by rank, by node: what bound_served.c adds, at each price */
  double token_s, inside_s, moved_s;
  /* Scratch. */
  hec_bound_rise *rise;    /* [n_layers] */
  hec_bound_piece *pieces; /* [n_pieces] */
  uint32_t *pair;          /* [n_experts * n_ranks] */
  uint64_t *total;         /* [n_experts] */
  uint64_t *node;          /* [n_experts * 2] of the node at hand; the largest of a node */
  uint64_t *largest;       /* [n_experts * 2] of a source's group; of the group at hand */
};

/* Bytes of a token's row. Of dispatchers nothing is known that they could not do faster: neither tokens, nor permutes, nor
 * counts are charged. */
static inline double hec_bound_row_bytes(const hec_problem *p) {
  return p->dispatch.by ? 0 : p->bytes.token;
}

/* A layer of the micro-batch at hand, whose rise is known; what it all comes to, without the optimizer. `per_row`:
 * assignments that a row may serve; `rest_s`: the reduction after backward. */
void hec_bound_add_served(hec_bound *b, const hec_load *load, int32_t layer, double per_row);
double hec_bound_served_s(const hec_bound *b, double rest_s);

static inline double larger(double a, double b) {
  return a > b ? a : b;
}

static inline double smaller(double a, double b) {
  return a < b ? a : b;
}
