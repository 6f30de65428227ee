/* Published measurements of GPUs, as the cost laws' work: tables in CSV, recognised by file name and header.
 *
 * A form of table is one file below tables/ and one row of HEC_CASE_TABLE_LIST. It turns a row of CSV into a case: which law
 * prices it, with which variant of constants, and the work. A row that no law covers becomes a case with a reason; no row is
 * dropped. */
#pragma once
#include "models/gpu.h"
#include "validate/device/case_file.h"

typedef struct {
  int32_t table, line; /* the header is line 1 */
  const char *gpu, *kind;
  const char *why_not; /* NULL: covered */
  double measured_s, predicted_s;
  const char *law, *variant; /* the fit that prices it */
  const char *fallback;      /* where the device has not that variant: its first that begins so; NULL: none */
  const void *work;          /* of the law's type; collectives: hec_collective_case */
  bool whole;                /* priced by hec_gpu_collective_s, which knows several fits */
  bool fit;                  /* clean: counts in a fit of its variant */
  uint64_t shape;            /* rows of one shape are in one fold of a cross-validation */
  uint64_t repeat;           /* rows of one measurement, repeated; 0: none */
} hec_case;

/* A collective names its law's work first, so that a fit of its pair can use it. */
typedef struct {
  hec_collective_work work;
  hec_collective_op op;
  int32_t ranks, n_nodes;
  double bytes;
} hec_collective_case;

typedef struct {
  const char *file;           /* "gemm.csv" */
  const char *const *columns; /* that it needs; ends with NULL. "gpu" is one of all */
  /* Fills everything but table, line, gpu and predicted_s. Text may be csv's; other memory from the arena. */
  void (*read)(const hec_case_file *csv, hec_arena *arena, hec_case *c);
} hec_case_table;

#define HEC_CASE_TABLE_LIST(X)                                                                                         \
  X(attention)                                                                                                         \
  X(collectives)                                                                                                       \
  X(deepep)                                                                                                            \
  X(elementwise)                                                                                                       \
  X(gemm)                                                                                                              \
  X(gemm_fp8)                                                                                                          \
  X(grouped_gemm)                                                                                                      \
  X(moe_ffn)                                                                                                           \
  X(simai_ratio)
#define HEC_CASE_TABLE_DECLARE(name) extern const hec_case_table hec_case_table_##name;
HEC_CASE_TABLE_LIST(HEC_CASE_TABLE_DECLARE)
#undef HEC_CASE_TABLE_DECLARE
extern const hec_case_table *const hec_case_tables[]; /* ends with NULL */

typedef struct {
  hec_arena arena;
  int32_t n;
  hec_case *cases; /* [n] by table, then line; malloc */
  size_t capacity;
} hec_cases; /* zero-initialise */

/* All tables that are in the folder; HEC_BAD_INPUT when none is, or when one lacks a column. */
hec_status hec_cases_read(const char *folder, hec_cases *cases) HEC_MUST_USE;
void hec_cases_free(hec_cases *cases);

/* Prices a case on a device: predicted_s, or why_not. */
void hec_case_predict(const hec_gpu *gpu, hec_arena *arena, hec_case *c);

/* Helpers of the forms. A number that is missing or out of range: why_not says so, and they return false. */
bool hec_case_whole(const hec_case_file *csv, const char *column, int64_t min, int64_t *value, hec_arena *arena,
                    hec_case *c);
bool hec_case_seconds(const hec_case_file *csv, hec_arena *arena, hec_case *c); /* column "seconds", above 0 */
uint64_t hec_case_hash(uint64_t seed, int64_t value);
uint64_t hec_case_hash_text(uint64_t seed, const char *text);
