/* Lists of pieces of work on numbers that do not depend on each other (C++).
 *
 * A launch takes as many pieces as its parameters hold; 4 KB of them are possible everywhere. So the host's list may go
 * at once, and nothing is allocated or copied. Pieces are cut into tiles of equal size that the blocks take in turn. A
 * piece goes in fours (128 bits a thread) where all of its arrays have the same offset from an aligned place. Then the
 * numbers before the first aligned one and after the last go one by one. Otherwise all do. Each result depends on its
 * own index only, so who computes it does not matter. The compiler is told not to contract a * b + c (plugin.cmake). So
 * the bytes are those of the CPU. */
#pragma once
#include "runtime/exec/cuda/pieces.h"

enum { TILE = 4 * 4 * THREADS, PARAMETER_BYTES = 4096 };

/* Elements [head, head + 4 quads) go in fours, the other ones of [0, n) alone. */
struct range {
  int64_t n, quads;
  int32_t head;
};

static inline range range_of(int64_t n, const float *x, bool wide) {
  uintptr_t past = reinterpret_cast<uintptr_t>(x) % sizeof(quad); /* bytes behind the last aligned place */
  int64_t head = past ? static_cast<int64_t>((sizeof(quad) - past) / sizeof(float)) : 0;
  if (!wide || n < head + 4 || past % sizeof(float) != 0)
    return range{n, 0, 0};
  return range{n, (n - head) / 4, static_cast<int32_t>(head)};
}

static inline bool same_offset(const float *a, const float *b) {
  return (reinterpret_cast<uintptr_t>(a) - reinterpret_cast<uintptr_t>(b)) % sizeof(quad) == 0;
}

static inline int64_t tiles_of(const range &r) {
  return ((r.quads > 0 ? 4 * r.quads : r.n) + TILE - 1) / TILE;
}

/* A tile has TILE numbers of those in fours, the first one also the at most six others; or TILE single ones. */
template <typename Piece> static __device__ void work_on(const Piece &piece, const range &r, int64_t tile) {
  int64_t begin = tile * TILE, fours = 4 * r.quads, all = fours > 0 ? fours : r.n;
  int64_t end = begin + TILE < all ? begin + TILE : all;
  if (fours == 0) {
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
      piece.one(i);
    return;
  }
  for (int64_t i = begin + 4 * threadIdx.x; i < end; i += 4 * THREADS)
    piece.four(r.head + i);
  for (int64_t i = threadIdx.x; tile == 0 && i < r.n - fours; i += THREADS)
    piece.one(i < r.head ? i : i + fours);
}

/* As many pieces as fit. */
template <typename Piece> struct batch {
  struct entry {
    Piece piece;
    range r;
    int64_t tile_at; /* its first tile */
  };
  enum { ENTRIES_MAX = (PARAMETER_BYTES - 16) / sizeof(entry) };
  entry entries[ENTRIES_MAX]; /* ascending by tile_at */
  int64_t n_tiles;
  int32_t n;
};

/* The last one that begins at or before the tile. */
template <typename Entry> static __device__ const Entry &entry_of(const Entry *entries, int n, int64_t tile) {
  int low = 0, high = n - 1;
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (entries[middle].tile_at <= tile)
      low = middle;
    else
      high = middle - 1;
  }
  return entries[low];
}

template <typename Piece> static __global__ void each_piece(const __grid_constant__ batch<Piece> b) {
  for (int64_t tile = blockIdx.x; tile < b.n_tiles; tile += gridDim.x) {
    const typename batch<Piece>::entry &e = entry_of(b.entries, b.n, tile);
    work_on(e.piece, e.r, tile - e.tile_at);
  }
}

template <typename Piece> static int32_t start(cudaStream_t stream, batch<Piece> *b) {
  static_assert(sizeof(batch<Piece>) <= PARAMETER_BYTES, "parameters of a kernel");
  if (b->n_tiles == 0)
    return 0; /* a grid of no blocks is an error */
  HEC_LAUNCH(each_piece<Piece>, blocks_for(b->n_tiles, 1), THREADS, stream, *b);
  b->n = 0;
  b->n_tiles = 0;
  return launched();
}

/* All of a list; `make` turns one of it into a piece and its range. */
template <typename Piece, typename Item, typename Make>
static int32_t start_list(cudaStream_t stream, const Item *list, int32_t n, Make make) {
  batch<Piece> b;
  b.n = 0;
  b.n_tiles = 0;
  for (int32_t i = 0; i < n; i++) {
    typename batch<Piece>::entry *e = &b.entries[b.n];
    make(list[i], &e->piece, &e->r);
    if (e->r.n <= 0)
      continue;
    e->tile_at = b.n_tiles;
    b.n_tiles += tiles_of(e->r);
    if (++b.n < batch<Piece>::ENTRIES_MAX)
      continue;
    int32_t error = start(stream, &b);
    if (error != 0)
      return error;
  }
  return start(stream, &b);
}
