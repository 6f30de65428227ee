/* First fit over a sorted list of adjacent pieces. A request may span several free pieces; it inherits what each of them
 * waits for. Free pieces are merged only when they wait for the same operation. O(pieces) per call; a program has a few
 * open holds per layer. */
#include "runtime/exec/buffers.h"

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

static size_t rounded(double bytes) {
  size_t n = (size_t)bytes;
  return n == 0 ? ALIGNMENT : (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void hec_buffers_clear(hec_buffers *buffers) {
  HEC_RESERVE(buffers->piece, buffers->piece_capacity, 1);
  buffers->piece[0] = (hec_buffer_piece){0, buffers->capacity, false, -1};
  buffers->n_pieces = 1;
  buffers->live = buffers->peak = 0;
}

void hec_buffers_init(hec_buffers *buffers, char *base, size_t capacity) {
  *buffers = (hec_buffers){.base = base, .capacity = capacity / ALIGNMENT * ALIGNMENT};
  hec_buffers_clear(buffers);
}

void hec_buffers_free(hec_buffers *buffers) {
  free(buffers->piece);
  *buffers = (hec_buffers){0};
}

static void erase(hec_buffers *buffers, size_t first, size_t n) {
  memmove(buffers->piece + first, buffers->piece + first + n, (buffers->n_pieces - first - n) * sizeof *buffers->piece);
  buffers->n_pieces -= n;
}

/* Pieces first .. end-1 are free and hold `size` bytes: one used piece in front, the rest of the last one stays free. */
static void occupy(hec_buffers *buffers, size_t first, size_t end, size_t size) {
  hec_buffer_piece last = buffers->piece[end - 1];
  size_t offset = buffers->piece[first].offset, rest = last.offset + last.size - offset - size;
  buffers->piece[first] = (hec_buffer_piece){offset, size, true, -1};
  erase(buffers, first + 1, end - first - 1);
  if (rest == 0)
    return;
  HEC_RESERVE(buffers->piece, buffers->piece_capacity, buffers->n_pieces + 1);
  memmove(buffers->piece + first + 2, buffers->piece + first + 1,
          (buffers->n_pieces - first - 1) * sizeof *buffers->piece);
  buffers->piece[first + 1] = (hec_buffer_piece){offset + size, rest, false, last.after};
  buffers->n_pieces++;
}

/* One past the last piece of the free run at `first` that is needed for `size` bytes; 0: too short. */
static size_t run_end(const hec_buffers *buffers, size_t first, size_t size) {
  size_t found = 0;
  for (size_t i = first; i < buffers->n_pieces && !buffers->piece[i].used; i++) {
    found += buffers->piece[i].size;
    if (found >= size)
      return i + 1;
  }
  return 0;
}

static void add_after(int32_t *after, int32_t *n, int32_t max, int32_t op) {
  for (int32_t i = 0; i < *n; i++)
    if (after[i] == op)
      return;
  HEC_ASSERT(*n < max);
  after[(*n)++] = op;
}

char *hec_buffers_take(hec_buffers *buffers, double bytes, int32_t *after, int32_t *n_after, int32_t max) {
  size_t size = rounded(bytes);
  for (size_t first = 0; first < buffers->n_pieces; first++) {
    size_t end = run_end(buffers, first, size);
    if (end == 0)
      continue;
    for (size_t i = first; i < end; i++)
      if (buffers->piece[i].after >= 0)
        add_after(after, n_after, max, buffers->piece[i].after);
    size_t offset = buffers->piece[first].offset;
    occupy(buffers, first, end, size);
    buffers->top = offset + size > buffers->top ? offset + size : buffers->top;
    buffers->live += bytes;
    buffers->peak = buffers->live > buffers->peak ? buffers->live : buffers->peak;
    return buffers->base + offset;
  }
  return NULL;
}

bool hec_buffers_resize(hec_buffers *buffers, size_t capacity) {
  hec_buffer_piece *last = &buffers->piece[buffers->n_pieces - 1];
  capacity = capacity / ALIGNMENT * ALIGNMENT;
  if (capacity == buffers->capacity)
    return true;
  if (capacity < buffers->top || last->used || last->after >= 0 || last->offset >= capacity)
    return false;
  last->size = capacity - last->offset;
  buffers->capacity = capacity;
  return true;
}

void hec_buffers_give(hec_buffers *buffers, const char *at, double bytes, int32_t last) {
  size_t offset = (size_t)(at - buffers->base), i = 0;
  while (i < buffers->n_pieces && buffers->piece[i].offset != offset)
    i++;
  HEC_ASSERT(i < buffers->n_pieces && buffers->piece[i].used && buffers->piece[i].size == rounded(bytes));
  buffers->piece[i].used = false;
  buffers->piece[i].after = last;
  buffers->live -= bytes;
  hec_buffer_piece *piece = buffers->piece;
  if (i + 1 < buffers->n_pieces && !piece[i + 1].used && piece[i + 1].after == last) {
    piece[i].size += piece[i + 1].size;
    erase(buffers, i + 1, 1);
  }
  if (i > 0 && !piece[i - 1].used && piece[i - 1].after == last) {
    piece[i - 1].size += piece[i].size;
    erase(buffers, i, 1);
  }
}
