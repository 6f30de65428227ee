/* The buffers of one rank, planned from the holds of a program. A hold that opens gets memory, one that closes gives it
 * back, in the order of operation ids. So what is in use never exceeds the program's own memory model
 * (hec_program_memory_peak), which the simulator reports.
 *
 * Lanes run ahead of each other, so memory that is free in the order of ids may still be in use in time. Every piece of
 * free memory remembers the operation after which it is free. Whoever takes it must wait for that one (`after`). It has
 * a smaller id, so waiting cannot deadlock. */
#pragma once
#include "runtime/program/program.h"

/* A piece of the memory, in use or free; pieces are adjacent and cover it. */
typedef struct {
  size_t offset, size;
  bool used;
  int32_t after; /* free: last operation that used it; -1: none */
} hec_buffer_piece;

typedef struct {
  char *base;
  size_t capacity;
  hec_buffer_piece *piece; /* [n_pieces] ascending */
  size_t n_pieces, piece_capacity;
  size_t top;        /* bytes from the base that were ever in use, whatever was cleared meanwhile */
  double live, peak; /* bytes of open holds, as the program counts them, and their maximum */
} hec_buffers;

void hec_buffers_init(hec_buffers *buffers, char *base, size_t capacity);
void hec_buffers_clear(hec_buffers *buffers); /* all free; live and peak 0 */
void hec_buffers_free(hec_buffers *buffers);

/* First fit, 64-byte aligned. Operations that must be finished before the memory may be written are added to `after`
 * [max]. That it is enough is asserted: room for n_pieces more always is. NULL when it does not fit. */
char *hec_buffers_take(hec_buffers *buffers, double bytes, int32_t *after, int32_t *n_after, int32_t max);
/* The memory ends earlier (or later) from now on. False, and nothing changes: something was ever in use there. */
bool hec_buffers_resize(hec_buffers *buffers, size_t capacity);
/* Gives back what hec_buffers_take returned; operation `last` is the last to use it. */
void hec_buffers_give(hec_buffers *buffers, const char *at, double bytes, int32_t last);
