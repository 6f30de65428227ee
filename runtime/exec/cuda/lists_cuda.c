/* Memory of a processor, and lists on their way to its device.
 *
 * What describes the work may not fit in the parameters of a kernel: row pointers, tokens, pointers of products. It is
 * written into pinned host memory and copied by the stream that needs it, one copy to a list. Both sides are chunks
 * that are filled from the front and rewound together at restart, when everything is done: nothing is used twice
 * before. A chunk is twice as large as the one before it, and the same lists take the same places in every round. So
 * nothing is allocated once one round has been made. */
#include "runtime/exec/cuda/own.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256, CHUNK_BYTES_FIRST = 1 << 20 };

/* ---- Blocks ---- */

static void free_block(hec_cuda_block *block) {
  (void)(block->on_host ? cudaFreeHost(block->at) : cudaFree(block->at));
  free(block);
}

void *hec_cuda_allocate(hec_cuda_own *own, size_t bytes, bool on_host, cudaError_t *error) {
  hec_cuda_block *block = calloc(1, sizeof *block);
  *error = cudaErrorMemoryAllocation;
  if (!block)
    return NULL;
  block->on_host = on_host;
  *error = on_host ? cudaHostAlloc(&block->at, bytes, cudaHostAllocDefault) : cudaMalloc(&block->at, bytes);
  if (*error != cudaSuccess) {
    (void)cudaGetLastError(); /* it is reported here: clear the sticky error */
    free(block);
    return NULL;
  }
  if (on_host)
    memset(block->at, 0, bytes);
  block->next = own->blocks;
  own->blocks = block;
  return block->at;
}

void hec_cuda_free_blocks(hec_cuda_own *own, bool all) {
  for (hec_cuda_block **link = &own->blocks; *link;) {
    hec_cuda_block *block = *link;
    if (all || block->retired) {
      *link = block->next;
      free_block(block);
    } else {
      link = &block->next;
    }
  }
}

static void retire(hec_cuda_own *own, const void *at) {
  for (hec_cuda_block *block = own->blocks; block; block = block->next)
    if (block->at == at)
      block->retired = true;
}

/* The one before may be in use: it goes at the next restart. */
void *hec_cuda_scratch(hec_cuda_own *own, size_t bytes) {
  hec_cuda_line *line = hec_cuda_selected(own);
  if (bytes > line->scratch_bytes) {
    cudaError_t error;
    void *scratch = hec_cuda_allocate(own, bytes, false, &error);
    if (!hec_cuda_ok(own, error, "scratch of products"))
      return NULL;
    if (line->scratch)
      retire(own, line->scratch);
    line->scratch = scratch;
    line->scratch_bytes = bytes;
  }
  return line->scratch;
}

/* ---- Lists ---- */

static bool add_chunk(hec_cuda_own *own, size_t bytes) {
  cudaError_t error;
  if (own->n_chunks == HEC_CUDA_CHUNKS_MAX) {
    hec_cuda_fail(own, "lists", "more than there is room for between two restarts");
    return false;
  }
  size_t size = own->n_chunks > 0 ? 2 * own->chunks[own->n_chunks - 1].size : CHUNK_BYTES_FIRST;
  while (size < bytes)
    size *= 2;
  char *host = hec_cuda_allocate(own, size, true, &error), *device = NULL;
  if (host)
    device = hec_cuda_allocate(own, size, false, &error);
  if (!hec_cuda_ok(own, error, "memory for lists"))
    return false;
  own->chunks[own->n_chunks++] = (hec_cuda_chunk){.host = host, .device = device, .size = size};
  return true;
}

bool hec_cuda_lists_open(hec_cuda_own *own) {
  return add_chunk(own, CHUNK_BYTES_FIRST);
}

bool hec_cuda_list_open(hec_cuda_own *own, size_t bytes, hec_cuda_list *list) {
  bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  while (own->chunk < own->n_chunks && own->chunks[own->chunk].size - own->chunks[own->chunk].used < bytes)
    own->chunk++;
  if (own->chunk == own->n_chunks && !add_chunk(own, bytes))
    return false;
  hec_cuda_chunk *chunk = &own->chunks[own->chunk];
  *list = (hec_cuda_list){.host = chunk->host + chunk->used, .device = chunk->device + chunk->used, .bytes = bytes};
  chunk->used += bytes;
  return true;
}

void *hec_cuda_list_take(hec_cuda_list *list, size_t bytes, const void **device) {
  char *host = list->host + list->at;
  *device = list->device + list->at;
  list->at += hec_cuda_list_room(bytes);
  return host;
}

bool hec_cuda_list_send(hec_cuda_own *own, const hec_cuda_list *list) {
  if (list->at == 0)
    return true;
  return hec_cuda_ok(
      own, cudaMemcpyAsync(list->device, list->host, list->at, cudaMemcpyHostToDevice, hec_cuda_selected(own)->stream),
      "a list to the device");
}

void hec_cuda_lists_rewind(hec_cuda_own *own) {
  for (int32_t i = 0; i < own->n_chunks; i++)
    own->chunks[i].used = 0;
  own->chunk = 0;
}
