/* What a CUDA processor is made of: hec_processor.own. Shared by the .c files of this folder. Errors are kept in it: after
 * the first one calls do nothing. */
#pragma once
#include "runtime/exec/cuda/plugin.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

struct hec_event {
  cudaEvent_t event; /* NULL: of a device that has failed; reached */
};

/* Memory that is freed when the processor is closed. */
typedef struct hec_cuda_block {
  struct hec_cuda_block *next;
  void *at;
  bool on_host, retired; /* retired: at the next restart already */
} hec_cuda_block;

/* One stream. A handle of cuBLAS has a workspace of its own, so that what it computes does not depend on other streams.
 * It is opened with the processor for the first stream, by the first product for others. */
typedef struct {
  cudaStream_t stream;
  cublasHandle_t blas;
  void *scratch; /* what the stream is given needs it one after the other */
  size_t scratch_bytes;
} hec_cuda_line;

/* Lists on their way to the device (lists_cuda.c). */
typedef struct {
  char *host, *device;
  size_t size, used;
} hec_cuda_chunk;
enum { HEC_CUDA_CHUNKS_MAX = 32, HEC_CUDA_EVENT_GROUPS_MAX = 24, HEC_CUDA_EVENTS_FIRST = 256 };

typedef struct {
  hec_processor processor;
  hec_cuda_options options;
  hec_cuda_line lines[HEC_STREAMS];
  int32_t selected;
  hec_cuda_block *blocks;
  hec_cuda_chunk chunks[HEC_CUDA_CHUNKS_MAX];
  int32_t n_chunks, chunk; /* chunk: that is filled now */
  /* Events: group g has 2^g HEC_CUDA_EVENTS_FIRST of them, which stay where they are; the first n_events are in use. */
  hec_event *groups[HEC_CUDA_EVENT_GROUPS_MAX];
  int64_t n_events, n_events_made;
  hec_event none;      /* what a device marks that has failed */
  cudaEvent_t base[2]; /* base[0] was reached at base_ns */
  int64_t base_ns;
  bool failed;
  char error[HEC_CUDA_TEXT_BYTES];
} hec_cuda_own;

static inline hec_cuda_own *hec_cuda_own_of(hec_processor *on) {
  return on->own;
}

/* The selected stream. */
static inline hec_cuda_line *hec_cuda_selected(hec_cuda_own *own) {
  return &own->lines[own->options.serial ? 0 : own->selected];
}

/* ---- Errors (streams_cuda.c) ---- */

/* Keeps "WHAT: WHY", if it is the first. */
void hec_cuda_fail(hec_cuda_own *own, const char *what, const char *why);
/* True: no error; else it is kept. */
bool hec_cuda_ok(hec_cuda_own *own, cudaError_t error, const char *what);
/* Words for a failure without a processor: "WHAT: WHY" of this thread. */
const char *hec_cuda_words(const char *what, const char *why);

/* ---- Streams (streams_cuda.c) ---- */

bool hec_cuda_streams_open(hec_cuda_own *own); /* false: kept as an error */
void hec_cuda_streams_close(hec_cuda_own *own);
extern const hec_streams hec_cuda_streams_table;

/* ---- Memory (lists_cuda.c) ---- */

/* NULL and *error: there is none left, which is not kept. Host memory is zero. */
void *hec_cuda_allocate(hec_cuda_own *own, size_t bytes, bool on_host, cudaError_t *error);
/* Frees what was retired, or everything. */
void hec_cuda_free_blocks(hec_cuda_own *own, bool all);
/* Scratch of the selected stream, aligned to 256 bytes, for what is given to it next; NULL: failed. */
void *hec_cuda_scratch(hec_cuda_own *own, size_t bytes);

/* A list that a kernel reads: written at `host`, sent, read at `device`. Both stay until the next restart. */
typedef struct {
  char *host, *device;
  size_t bytes, at; /* at: how much of it was given out */
} hec_cuda_list;
bool hec_cuda_lists_open(hec_cuda_own *own); /* memory for the first of them; false: kept as an error */
bool hec_cuda_list_open(hec_cuda_own *own, size_t bytes, hec_cuda_list *list); /* false: failed */
/* The next bytes of it, aligned to 16; *device: where they will be there. */
void *hec_cuda_list_take(hec_cuda_list *list, size_t bytes, const void **device);
bool hec_cuda_list_send(hec_cuda_own *own, const hec_cuda_list *list); /* what was given out, on the selected stream */
void hec_cuda_lists_rewind(hec_cuda_own *own);
static inline size_t hec_cuda_list_room(size_t bytes) {
  return (bytes + 15) / 16 * 16;
}

/* ---- Products (gemm_cuda.c) ---- */

bool hec_cuda_gemm_open(hec_cuda_own *own); /* for the first stream, where programs multiply; false: kept as an error */
void hec_cuda_gemm(hec_cuda_own *own, const hec_gemm *list, int32_t n);

/* ---- The tables ---- */

extern const hec_arithmetic hec_cuda_arithmetic;
extern const hec_cuda_device hec_cuda_device_table;
extern const hec_cuda_messages hec_cuda_messages_table;
