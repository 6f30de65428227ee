/* What the files of the GPU benchmark share and nobody else sees. */
#pragma once
#include "runtime/exec/model/model.h"
#include "tools/bench/gpu_bench.h"

/* A device opened in one precision, with memory of its own. */
typedef struct {
  const hec_gpu_bench *bench;
  hec_processor *on;
  float *space; /* [n_space] on the device, filled with numbers */
  int64_t n_space;
  hec_arena arena; /* host memory of its cases */
} hec_gpu_session;

typedef struct {
  hec_precision precision;
  bool grouped;
  int64_t n_space; /* floats; 0: as many as two pieces of one copy need, by the memory that is free */
} hec_gpu_setting;

hec_status hec_gpu_session_open(const hec_gpu_bench *bench, const hec_gpu_setting *setting,
                                hec_gpu_session *session) HEC_MUST_USE;
void hec_gpu_session_close(hec_gpu_session *session);
/* Waits for an event of it, at most a minute. */
hec_status hec_gpu_session_wait(hec_gpu_session *session, const hec_event *event) HEC_MUST_USE;

/* Something that is timed on the device. */
typedef struct {
  const char *name;
  bool flops;
  double amount;
  int32_t base; /* index of another case, or -1 */
  double required;
  void (*run)(hec_processor *on, const void *with);
  const void *with;
} hec_gpu_case;

/* Times the cases by turns and adds a row for each. */
hec_status hec_gpu_time(hec_gpu_session *session, const char *section, const hec_gpu_case *cases, int32_t n,
                        hec_gpu_results *results) HEC_MUST_USE;

/* Tokens and the rows of their assignments, as dispatch and combine see them: [n_tokens, width], then rows
 * [n_tokens * HEC_GPU_TOP_K, width], then weights and their gradients. Assignment j is of token j mod n_tokens, as in
 * replay; experts have equally many. */
enum { HEC_GPU_TOP_K = 2 };
typedef struct {
  hec_assignments assignments;
  float *tokens, **row;
  int32_t width;
} hec_gpu_rows;
int64_t hec_gpu_rows_floats(int32_t n_tokens, int32_t width);
/* In `at`, of the session's space. */
void hec_gpu_rows_set(hec_gpu_session *session, float *at, int32_t n_tokens, int32_t width, hec_gpu_rows *rows);
void hec_gpu_rows_permute(hec_processor *on, const void *rows);
void hec_gpu_rows_combine(hec_processor *on, const void *rows);

/* The sections. */
hec_status hec_gpu_memory(const hec_gpu_bench *bench, hec_gpu_results *results) HEC_MUST_USE;
hec_status hec_gpu_products(const hec_gpu_bench *bench, hec_gpu_results *results) HEC_MUST_USE;
hec_status hec_gpu_launches(const hec_gpu_bench *bench, hec_gpu_results *results) HEC_MUST_USE;
