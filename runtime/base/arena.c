/* Arena: a chain of blocks; allocation bumps a pointer, O(1); rewinding frees the blocks made since, O(blocks). A large
 * piece has a block of its own, zeroed by calloc. That costs nothing where the system hands out pages that are zero
 * already. Pages nobody writes to (room for the most copies there can be, say) are never there at all. */
#include "runtime/base/arena.h"

#include "runtime/base/status.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct hec_arena_block {
  hec_arena_block *older;
  size_t size, used; /* bytes of the space behind this header */
};

enum { ALIGNMENT = 16, HEADER = (sizeof(hec_arena_block) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT };
static const size_t first_block_bytes = 64 << 10, largest_step_bytes = 16 << 20, alone_bytes = 128 << 10;

static hec_no_memory_handler *no_memory_handler;
static void *no_memory_context;
static uint64_t failing_allocation;

void hec_set_no_memory_handler(hec_no_memory_handler *handler, void *context) {
  no_memory_handler = handler;
  no_memory_context = context;
}

void hec_fail_allocation(uint64_t k) {
  failing_allocation = k;
}

/* A slot is taken once and never given back, so whoever runs out of memory finds each call whole or not at all. */
static _Atomic(hec_last_call *) last_calls[4];

void hec_before_no_memory(hec_last_call *call) {
  size_t slot = 0, n_slots = sizeof last_calls / sizeof *last_calls;
  for (; slot < n_slots; slot++) {
    hec_last_call *there = NULL;
    if (atomic_compare_exchange_strong(&last_calls[slot], &there, call) || there == call)
      return;
  }
  HEC_ASSERT(slot < n_slots);
}

/* Any thread may come here, at any place. So nothing is flushed or unwound: half a document on standard output would look
 * like a result, and other threads may hold what exit(3) wants. */
_Noreturn void hec_no_memory(size_t bytes) {
  char line[80], wanted[40] = "";
  if (no_memory_handler)
    no_memory_handler(bytes, no_memory_context);
  for (size_t i = 0; i < sizeof last_calls / sizeof *last_calls; i++) {
    hec_last_call *call = atomic_load(&last_calls[i]);
    if (call)
      call();
  }
  if (bytes > 0 && bytes < SIZE_MAX)
    (void)snprintf(wanted, sizeof wanted, " (%zu bytes wanted)", bytes);
  int n = snprintf(line, sizeof line, "hecate: out of memory%s\n", wanted);
  (void)!write(STDERR_FILENO, line, (size_t)n);
  _exit(HEC_FAILED);
}

/* All memory of the project passes here or through `zeroed`; that of cJSON and zlib passes hec_malloc. */
static void *resize(void *old, size_t n, size_t bytes) {
  if (bytes != 0 && n > SIZE_MAX / 2 / bytes)
    hec_no_memory(SIZE_MAX);
  if (failing_allocation != 0 && --failing_allocation == 0)
    hec_no_memory(n * bytes);
  void *p = realloc(old, n * bytes > 0 ? n * bytes : 1);
  if (!p)
    hec_no_memory(n * bytes);
  return p;
}

static void *zeroed(size_t bytes) {
  if (failing_allocation != 0 && --failing_allocation == 0)
    hec_no_memory(bytes);
  void *p = calloc(1, bytes);
  if (!p)
    hec_no_memory(bytes);
  return p;
}

void *hec_malloc(size_t n, size_t bytes) {
  return resize(NULL, n, bytes);
}

void *hec_grow(void *array, size_t *capacity, size_t need, size_t bytes) {
  size_t grown = *capacity < SIZE_MAX / 4 ? *capacity * 2 : *capacity;
  grown = grown < 16 ? 16 : grown;
  grown = grown < need ? need : grown;
  array = resize(array, grown, bytes);
  *capacity = grown;
  return array;
}

static void *alloc_alone(hec_arena *arena, size_t want) {
  hec_arena_block *fresh = zeroed(HEADER + want);
  *fresh = (hec_arena_block){.older = arena->newest, .size = want, .used = want};
  arena->newest = fresh;
  arena->used_bytes += want;
  return (char *)fresh + HEADER;
}

void *hec_arena_alloc(hec_arena *arena, size_t n, size_t bytes) {
  if (bytes != 0 && n > SIZE_MAX / 2 / bytes)
    hec_no_memory(SIZE_MAX);
  size_t want = (n * bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  hec_arena_block *block = arena->newest;
  if (want >= alone_bytes)
    return alloc_alone(arena, want);
  if (!block || block->size - block->used < want) {
    size_t size = block ? block->size * 2 : first_block_bytes;
    size = size > largest_step_bytes ? largest_step_bytes : size;
    size = size < want ? want : size;
    hec_arena_block *fresh = resize(NULL, 1, HEADER + size);
    *fresh = (hec_arena_block){.older = block, .size = size, .used = 0};
    arena->newest = block = fresh;
  }
  char *p = (char *)block + HEADER + block->used;
  block->used += want;
  arena->used_bytes += want;
  memset(p, 0, want);
  return p;
}

char *hec_arena_text(hec_arena *arena, const char *text) {
  size_t length = strlen(text) + 1;
  return memcpy(hec_arena_alloc(arena, length, 1), text, length);
}

char *hec_arena_vprintf(hec_arena *arena, const char *format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  int n = vsnprintf(NULL, 0, format, again);
  va_end(again);
  HEC_ASSERT(n >= 0);
  char *text = HEC_NEW(arena, char, n + 1);
  (void)vsnprintf(text, (size_t)n + 1, format, arguments);
  return text;
}

char *hec_arena_printf(hec_arena *arena, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char *text = hec_arena_vprintf(arena, format, arguments);
  va_end(arguments);
  return text;
}

hec_arena_mark hec_arena_save(const hec_arena *arena) {
  return (hec_arena_mark){arena->newest, arena->newest ? arena->newest->used : 0, arena->used_bytes};
}

void hec_arena_rewind(hec_arena *arena, hec_arena_mark mark) {
  while (arena->newest != mark.block) {
    HEC_ASSERT(arena->newest != NULL);
    hec_arena_block *older = arena->newest->older;
    free(arena->newest);
    arena->newest = older;
  }
  if (arena->newest)
    arena->newest->used = mark.block_used;
  arena->used_bytes = mark.used_bytes;
}

void hec_arena_take(hec_arena *arena, hec_arena *from) {
  hec_arena_block *oldest = from->newest;
  while (oldest && oldest->older)
    oldest = oldest->older;
  if (!oldest)
    return;
  oldest->older = arena->newest;
  arena->newest = from->newest;
  arena->used_bytes += from->used_bytes;
  *from = (hec_arena){0};
}

void hec_arena_free(hec_arena *arena) {
  hec_arena_rewind(arena, (hec_arena_mark){NULL, 0, 0});
}
