/* Link and compute laws against measurements of others: collectives (NCCL), dense GEMMs and fused MoE layers, priced with
 * presets alone. The case file:
 *
 *   [{"id": "m1", "group": "nccl", "what": "alltoall", "hardware": "8x A100-SXM4-80GB", "ranks": 8, "nodes": 1,
 *     "bytes": 65536, "value": 0.0142, "unit": "ms", "source": "...", "notes": "..."},
 *    {..., "what": "dense GEMM", "shape": {"m": 128, "n": 7168, "k": 2048}, "value": 117.6, "unit": "TFLOP/s"},
 *    {..., "what": "fused MoE", "shape": {"tokens": 64, "hidden": 2048, "ffn": 768, "top_k": 8, "experts": 128,
 *                                         "distribution": "power_law_1.2"}, ...}]
 *
 * what    alltoall, all_gather, reduce_scatter, all_reduce with `bytes` (nccl-tests' size, see HEC_HARDWARE_BYTES); with a
 *         `shape`: a GEMM or a MoE layer, whatever it is called
 * unit    ms, us, s; TFLOP/s for GEMMs
 * cluster optional: the preset, one-line form or file to price the row with. Without it `hardware` must be one that the
 *         table in hardware.c gives a preset for
 * Unknown members are ignored. */
#pragma once
#include "runtime/base/arena.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"
#include "validate/doc.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
  HEC_HARDWARE_ALL_TO_ALL,
  HEC_HARDWARE_ALL_GATHER,
  HEC_HARDWARE_REDUCE_SCATTER,
  HEC_HARDWARE_ALL_REDUCE,
  HEC_HARDWARE_GEMM,
  HEC_HARDWARE_MOE
} hec_hardware_kind;

typedef struct {
  const char *id, *group, *what, *hardware, *source, *notes; /* notes: "" without */
  const char *cluster;                                       /* what it is priced with */
  hec_hardware_kind kind;
  int32_t ranks, nodes, index; /* index: in the file */
  int64_t bytes;               /* collectives; else 0 */
  int64_t m, n, k;             /* GEMM */
  int64_t tokens, hidden, ffn, top_k, experts;
  double alpha; /* MoE: exponent of the power law; 0: tokens spread evenly */
  double flops; /* GEMM, MoE; else 0 */
  double measured_s, predicted_s;
  bool bound; /* its notes call it slow: an upper bound of what the hardware takes */
  bool large; /* a message of 64 MiB and more, or a dense GEMM of 1e11 FLOP and more */
} hec_hardware_row;

typedef struct {
  const char *name;
  int32_t rows, bounds, larges;
  double tau[2];            /* of all rows; without bounds */
  double size_tau[2];       /* the same of a ranking by bytes or FLOP alone: what tau is worth without a law */
  hec_error error[2];       /* the same */
  hec_error large_error[2]; /* of large rows; n 0: there are none */
} hec_hardware_group;

/* A number that is required, of one group. */
typedef struct {
  const char *group, *what;
  int32_t rows;
  double value[2]; /* all rows; without bounds. Both must hold */
  double size[2];  /* Kendall tau: that of size alone */
  double limit;
  bool at_least, passed; /* at least the limit, or at most */
} hec_hardware_line;

typedef struct {
  hec_arena arena;
  const char *file, *stamp; /* file: its name without folders; stamp: NULL without */
  int32_t n_rows, n_groups, n_lines;
  hec_hardware_row *rows;     /* [n_rows] file order */
  hec_hardware_group *groups; /* [n_groups] as first met */
  hec_hardware_line *lines;   /* [n_lines] */
  bool passed;                /* every line */
  bool details;               /* of the report for people: also every row, and who measured */
} hec_hardware;

#define HEC_HARDWARE_TAU 0.9
#define HEC_HARDWARE_ERROR 0.25
#define HEC_HARDWARE_LARGE_BYTES (64 << 20)
#define HEC_HARDWARE_LARGE_FLOPS 1e11

/* Reads, predicts, judges. Errors name file, line and member. Free with hec_hardware_free, also after an error. */
hec_status hec_hardware_run(const char *path, hec_hardware *hardware) HEC_MUST_USE;
void hec_hardware_free(hec_hardware *hardware);

hec_status hec_hardware_read(const char *path, hec_hardware *hardware) HEC_MUST_USE; /* rows as they are measured */
/* Tokens of each expert, descending, as aiconfigurator draws them for that exponent; its random numbers replaced by evenly
 * spaced quantiles. Sum: tokens * top_k. */
void hec_hardware_loads(const hec_hardware_row *row, int64_t *load);

#define HEC_HARDWARE_BYTES                                                                                             \
  "nccl-tests' size, per rank: all-to-all and reduce-scatter its whole input, all-gather its whole output, "           \
  "all-reduce its buffer"

void hec_hardware_verdict(const hec_hardware *hardware, hec_text *out); /* the report's first paragraphs */
/* Of a hec_hardware. For people the verdict first. For programs:
 * {"version", "file", "stamp", "passed", "required": [{"group", "what", "rows", "value", "without_bounds", "at_least" or "at_most",
 *  "passed"}],
 *  "groups": [{"group", "rows", "bounds", "large", "tau", "size_tau", ..., "error": {"median", "p90", "worst", "bias"}, ...}],
 *  "rows": [{"id", "group", "what", "hardware", "cluster", "ranks", "bytes", "flops", "measured_s", "predicted_s", "error",
 *            "bound", "large", "source"}]} */
hec_doc_report hec_hardware_report;
