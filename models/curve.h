/* Measured times of a machine: curves that calibration wrote into a cluster file. Where one fits what is asked (same kind,
 * direction, shape and number of ranks) it replaces the law; everything else keeps the law. A curve is piecewise linear
 * through its points and goes on with its last slope. To the left of the first point, a curve over rows (GEMMs) costs
 * what the first point costs. A curve over bytes or seconds goes to zero in proportion. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* X(name, text, what its sizes are) */
#define HEC_CURVE_LIST(X)                                                                                              \
  X(ATTENTION, "attention", ROWS) /* rows: tokens of the rank */                                                       \
  X(GATE, "gate", ROWS)                                                                                                \
  X(SHARED, "shared experts", ROWS)                                                                                    \
  X(EXPERT, "expert", ROWS)    /* rows of one expert */                                                                \
  X(PERMUTE, "permute", BYTES) /* bytes as the program counts them (hec_op.bytes) */                                   \
  X(UNPERMUTE, "unpermute", BYTES)                                                                                     \
  X(REDUCE, "reduce", BYTES)                                                                                           \
  X(OPTIMIZER, "optimizer", BYTES)                                                                                     \
  X(ALLREDUCE, "all-reduce", BYTES)    /* bytes reduced, on `ranks` ranks */                                           \
  X(COUNTS, "counts", BYTES)           /* bytes from each of `ranks` ranks */                                          \
  X(TOKENS, "token exchange", SECONDS) /* seconds of the exchange by the links' closed form */                         \
  X(GATHER, "gather", SECONDS)                                                                                         \
  X(SCATTER, "scatter", SECONDS)                                                                                       \
  X(REPLICA_SCATTER, "replica scatter", SECONDS)                                                                       \
  X(REPLICA_GATHER, "replica gather", SECONDS)                                                                         \
  X(MIGRATION, "migration", SECONDS)                                                                                   \
  X(SLICED_GATHER, "gather of slices", SECONDS) /* with the copy of what is kept here */                               \
  X(SLICED_SCATTER, "scatter of slices", SECONDS)                                                                      \
  X(SLICED_REDUCE, "reduce of slices", BYTES)
#define HEC_CURVE_ENUM(name, text, unit) HEC_CURVE_##name,
typedef enum { HEC_CURVE_LIST(HEC_CURVE_ENUM) HEC_N_CURVE_KINDS, HEC_CURVE_NONE = HEC_N_CURVE_KINDS } hec_curve_kind;
extern const char *const hec_curve_name[HEC_N_CURVE_KINDS];
bool hec_curve_has_rows(hec_curve_kind kind);
bool hec_curve_has_ranks(hec_curve_kind kind);
bool hec_curve_is_exchange(hec_curve_kind kind); /* seconds by closed form -> seconds measured */

enum { HEC_CURVE_POINTS_MAX = 64, HEC_CURVES_MAX = 4096 };

typedef struct {
  hec_curve_kind kind;
  bool backward;
  double flops_per_row; /* rows: of the shape it was measured with, forward or backward; bytes: 0 */
  int32_t ranks;        /* of ALLREDUCE and COUNTS; others 0 */
  int32_t n;
  const double *x, *seconds; /* [n] ascending sizes > 0; seconds >= 0, not decreasing */
} hec_curve;

double hec_curve_s(const hec_curve *curve, double x); /* x > 0 */

typedef struct {
  int32_t n;
  const hec_curve *curves; /* [n] */
} hec_curves;

/* NULL: not measured. `measured` may be NULL. flops_per_row and ranks only where the kind has them. */
const hec_curve *hec_curves_find(const hec_curves *measured, hec_curve_kind kind, bool backward, double flops_per_row,
                                 int32_t ranks);
