/* How many token-expert assignments a copy of an expert must take over before it pays for being sent.
 *
 * Plain (the transfer against the products, nothing else; independent of the expert's size):
 *     q = exposed * (pushes * dtype + gradient) bytes per parameter / bandwidth  *  rate / (2 FLOP forward, 6 training)
 * By law: a copy takes half of 2q assignments, so that q are left and q are done beside them; it pays if
 *     T(2q) - T(q) >= exposed * sum over messages of (latency + bytes / (bandwidth * share by size))
 * with T the cluster's law of an expert's products (tile, launch, weight streaming; measured where there is a curve),
 * forward and backward. `exposed`: the share of the transfer that nothing hides. */
#pragma once
#include "models/cluster.h"
#include "models/moe.h"

/* What is sent for a copy: X(name, in words, pushes of the weights, bytes of a returned gradient per parameter (0: none)) */
#define HEC_BREAKEVEN_LIST(X)                                                                                          \
  X(forward, "weights once, forward only", 1, 0)                                                                       \
  X(twice_fp32, "weights twice, fp32 gradients back", 2, 4)                                                            \
  X(twice_bf16, "weights twice, bf16 gradients back", 2, 2)                                                            \
  X(kept_fp32, "weights kept for backward, fp32 gradients back", 1, 4)
#define HEC_BREAKEVEN_ENUM(name, text, pushes, gradient) HEC_BREAKEVEN_##name,
typedef enum { HEC_BREAKEVEN_LIST(HEC_BREAKEVEN_ENUM) HEC_N_BREAKEVEN } hec_breakeven;

typedef struct {
  const char *name, *text;
  int32_t pushes;
  int32_t gradient_bytes; /* per parameter; 0: forward only */
} hec_breakeven_way;
extern const hec_breakeven_way hec_breakeven_ways[HEC_N_BREAKEVEN];

/* The way from one device to another as a transfer alone on it meets it. */
typedef struct {
  int32_t source, destination;
  double bandwidth; /* bytes/s of the slowest link */
  double latency_s;
} hec_breakeven_path;
hec_breakeven_path hec_breakeven_path_of(const hec_cluster *cluster, int32_t source, int32_t destination);

/* Assignments, not rounded. `flops_s`: what the device reaches in large products. */
double hec_breakeven_plain(hec_breakeven way, int32_t dtype_bytes, double flops_s, double bandwidth, double exposed);

enum { HEC_BREAKEVEN_NEVER = -1 };
/* The smallest whole q from which on the copy pays; NEVER: none below 2^40. T of the path's source; the copy's own is
 * the destination's, which may be slower. (A measured curve need not be convex: then a q where it begins to pay.) */
int64_t hec_breakeven_by_law(hec_breakeven way, const hec_moe *moe, const hec_cluster *cluster,
                             const hec_breakeven_path *path, double exposed);
