/* Memory. Two forms:
 *   hec_arena   many objects with one end of life (a job, an iteration); nothing is freed one by one
 *   hec_reserve one array that grows and is reused; allocates only while it still grows
 * Running out of memory never returns: the handler is called. The default one calls what was given to
 * hec_before_no_memory, which removes files that were being written. Then it says "out of memory" and ends the process
 * with code 1. An embedder or a test installs its own, which must not return either (longjmp); arenas it owns can then
 * be freed as usual. */
#pragma once
#include "runtime/base/scoped.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hec_arena_block hec_arena_block;

typedef struct {
  hec_arena_block *newest; /* blocks are chained newest first */
  size_t used_bytes;       /* handed out and not rewound */
} hec_arena;

typedef struct {
  hec_arena_block *block;
  size_t block_used, used_bytes;
} hec_arena_mark;

/* Zeroed, 16-byte aligned; n * bytes may not overflow (out of memory if it does). A zero-initialised hec_arena is empty. */
void *hec_arena_alloc(hec_arena *arena, size_t n, size_t bytes);
char *hec_arena_text(hec_arena *arena, const char *text); /* a copy */
char *hec_arena_printf(hec_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *hec_arena_vprintf(hec_arena *arena, const char *format, va_list arguments) __attribute__((format(printf, 2, 0)));
hec_arena_mark hec_arena_save(const hec_arena *arena);
void hec_arena_rewind(hec_arena *arena, hec_arena_mark mark); /* drops everything allocated after `mark` */
void hec_arena_free(hec_arena *arena);                        /* everything; the arena is empty again */
void hec_arena_take(hec_arena *arena, hec_arena *from); /* all that is in `from`, which is empty then; O(blocks) */

#define HEC_NEW(arena, type, n) ((type *)hec_arena_alloc((arena), (size_t)(n), sizeof(type)))

/* Grows `array` (malloc family) so that it holds at least `need` elements of `bytes`; *capacity is updated; at least
 * doubles. Returns the array, contents kept, new elements not initialised. */
void *hec_grow(void *array, size_t *capacity, size_t need, size_t bytes);
static inline void *hec_reserve(void *array, size_t *capacity, size_t need, size_t bytes) {
  return need <= *capacity ? array : hec_grow(array, capacity, need, bytes);
}
#define HEC_RESERVE(array, capacity, need)                                                                             \
  ((array) = hec_reserve((array), &(capacity), (size_t)(need), sizeof *(array)))

/* malloc that does not return NULL. Free with free(). */
void *hec_malloc(size_t n, size_t bytes);

/* What a failed allocation comes to, here and at the doors of libraries that allocate for themselves. Does not return. */
_Noreturn void hec_no_memory(size_t bytes);

typedef void hec_no_memory_handler(size_t bytes, void *context);
void hec_set_no_memory_handler(hec_no_memory_handler *handler, void *context); /* NULL: the default again */
/* The default handler calls it, on any thread, before the process ends. Said again it is called once; there are few. */
typedef void hec_last_call(void);
void hec_before_no_memory(hec_last_call *call);

/* For tests: the k-th allocation from now on fails (1 is the next); 0 switches it off. */
void hec_fail_allocation(uint64_t k);
