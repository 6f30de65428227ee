/* What the cost laws price, one type for each law. */
#pragma once
#include "models/laws/cost_law.h"

/* y[m, n] = x[m, k] W[n, k]^T, `groups` of them at once, each of its own W (1: a plain GEMM) */
typedef struct {
  int64_t m, n, k, groups;
  hec_law_precision precision; /* of x and W; y has 2 bytes */
  bool quantise;               /* x comes in bf16 and a kernel makes it fp8 first */
} hec_gemm_work;

/* What the rows of a rank's experts come to: all that the grouped law needs of a load. */
enum { HEC_GROUPED_TILES = 5 };
extern const int64_t hec_grouped_tile[HEC_GROUPED_TILES]; /* rows: 16, 32, 64, 128, 256 */
typedef struct {
  double rows, active, busiest;    /* assignments, experts with any, rows of the busiest */
  double tiles[HEC_GROUPED_TILES]; /* sum over experts of ceil(rows / tile) */
} hec_grouped_load;
/* rows [n_experts] of the experts that a rank holds. O(experts). */
hec_grouped_load hec_grouped_load_of(const int64_t *rows, int32_t n_experts);
/* One more expert with so many rows; none: nothing. */
static inline void hec_grouped_load_add(hec_grouped_load *load, int64_t rows) {
  if (rows <= 0)
    return;
  load->rows += (double)rows;
  load->active += 1;
  load->busiest = (double)rows > load->busiest ? (double)rows : load->busiest;
  for (int32_t t = 0; t < HEC_GROUPED_TILES; t++)
    load->tiles[t] += (double)((rows + (INT64_C(16) << t) - 1) >> (4 + t)); /* 16, 32, ... 256 rows */
}

/* The expert layer of one rank, forward. */
typedef struct {
  hec_grouped_load load;
  int64_t hidden, inter; /* inter: of this rank, after tensor parallelism */
  int64_t tokens, top_k; /* of the whole expert-parallel group: it routes them all */
  bool gated;            /* three matrices, not two */
  hec_law_precision precision;
} hec_grouped_work;

typedef struct {
  int64_t batch, seq, heads, kv_heads, head_dim, head_dim_v; /* heads of this rank; MLA: 192 and 128 */
  int64_t window; /* of a sliding window, causal; 0: none */
  bool causal, backward;
  bool latent; /* the call also keeps MLA's latent of each token, as inference does */
} hec_attention_work;

typedef struct {
  double bytes; /* that must go through HBM, read and written */
} hec_memory_work;

/* One collective of one operation on one number of ranks: constants are of that pair. */
typedef struct {
  double bytes; /* through the busiest port: hec_collective_port_bytes */
} hec_collective_work;

typedef struct {
  int64_t tokens; /* of each rank */
  double bytes;   /* of a token, in the precision that travels */
  double ranks;   /* distinct ranks that a token goes to, in the mean, its own included */
  double nodes;   /* distinct other nodes that it goes to */
  int32_t ranks_per_node, n_nodes, sms;
} hec_dispatch_work;
/* Distinct groups that `top_k` distinct experts of `n_experts` are in, in the mean. Routing is uniform, and each of
 * n_groups groups holds as many experts: n_groups (1 - prod_i (E - E/G - i) / (E - i)). */
double hec_distinct_groups(int64_t n_experts, int64_t n_groups, int64_t top_k);
