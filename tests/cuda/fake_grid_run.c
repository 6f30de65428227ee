/* The threads of a block as fibers: stacks of their own that the one thread of the host changes between.
 *
 * Threads of a block run in ascending order, all of them on one stack as long as none waits. A thread that waits keeps
 * its stack, and the next one begins on another. A shuffle waits for the 31 others of its warp, a barrier for all of
 * the block. So a kernel without either costs a loop, and a shuffle one change of stacks per lane. When the last lane
 * has come it exchanges all values and goes on itself, the others follow in turn. Warps run one after the other
 * between barriers.
 *
 * A fiber begins through makecontext, once; all later changes are _setjmp/_longjmp, which do not ask the kernel for the
 * signal mask. Both are of the same thread always: the caller holds the lock of the fake.
 *
 * What would hang or be undefined on a device ends the test. That is lanes of a warp that wait for different things,
 * or a shuffle in a warp of fewer than 32 threads. Or a barrier that not all threads come to. */
#define _GNU_SOURCE /* MAP_STACK, MAP_ANONYMOUS */
#include "tests/cuda/fake.h"
#include "tests/cuda/fake_grid.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK_BYTES = 128 << 10, GUARD_BYTES = 4096 };

typedef struct fiber {
  jmp_buf at; /* where it goes on */
  ucontext_t first;
  bool begun;
  struct fiber *next_free;
} fiber;

typedef enum { FRESH, READY, AT_SHUFFLE, AT_BARRIER, DONE } thread_state;

typedef struct {
  thread_state state;
  uint32_t given, taken;
  int from;     /* lane whose value it wants; -1: a ballot's bits */
  fiber *stack; /* while it waits or is ready */
} thread;

struct fake_dimensions fake_thread_at, fake_block_at, fake_block_size, fake_grid_size;

static thread threads[FAKE_THREADS_MAX];
static fiber *free_fibers, *running;
static const fake_kernel *kernel;
static unsigned n_threads, current;   /* of the block; the one that runs */
static unsigned n_at_shuffle, n_done; /* of the current warp; of the block */
static unsigned n_at_barrier;         /* of the block */
static jmp_buf caller;

_Noreturn static void fiber_main(void);

/* ---- Fibers ---- */

static fiber *fiber_open(void) {
  fiber *const f = calloc(1, sizeof *f);
  char *stack = mmap(NULL, STACK_BYTES + GUARD_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (!f || stack == MAP_FAILED || mprotect(stack, GUARD_BYTES, PROT_NONE) != 0 || getcontext(&f->first) != 0)
    hec_queue_die("no memory for the stack of a thread");
  f->first.uc_stack.ss_sp = stack + GUARD_BYTES;
  f->first.uc_stack.ss_size = STACK_BYTES;
  f->first.uc_link = NULL;
  makecontext(&f->first, fiber_main, 0);
  return f;
}

static fiber *fiber_take(void) {
  fiber *f = free_fibers;
  if (!f)
    return fiber_open();
  free_fibers = f->next_free;
  return f;
}

static void fiber_release(fiber *f) {
  f->next_free = free_fibers;
  free_fibers = f;
}

_Noreturn static void jump_to(fiber *f) {
  running = f;
  if (f->begun)
    _longjmp(f->at, 1);
  f->begun = true;
  (void)setcontext(&f->first);
  hec_queue_die("a stack could not be entered");
}

/* ---- Who runs next ---- */

static void make_current(unsigned t) {
  current = t;
  fake_thread_at.x = t;
}

static unsigned warp_begin(void) {
  return current / FAKE_WARP * FAKE_WARP;
}

static unsigned warp_end(void) {
  unsigned end = warp_begin() + FAKE_WARP;
  return end < n_threads ? end : n_threads;
}

static bool can_run(unsigned t) {
  return threads[t].state == FRESH || threads[t].state == READY;
}

/* The next one of the warp that can run, cyclically after the current one; then the first of the warps behind it. */
static bool choose(unsigned *next) {
  unsigned begin = warp_begin(), end = warp_end();
  for (unsigned i = 1; i <= end - begin; i++) {
    unsigned t = current + i < end ? current + i : current + i - (end - begin);
    if (can_run(t)) {
      *next = t;
      return true;
    }
  }
  if (n_at_shuffle > 0)
    hec_queue_die("%s, block %u: %u lanes of warp %u wait in a shuffle that the others do not come to", kernel->name,
                  fake_block_at.x, n_at_shuffle, begin / FAKE_WARP);
  for (unsigned t = end; t < n_threads; t++)
    if (can_run(t)) {
      *next = t;
      return true;
    }
  if (n_at_barrier > 0)
    hec_queue_die("%s, block %u: %u threads of %u wait at a barrier that the others do not come to", kernel->name,
                  fake_block_at.x, n_at_barrier, n_threads);
  return false;
}

/* The current thread waits or is ready, another one goes on; returns when its turn has come again. */
static void give_way(void) {
  unsigned self = current, next = self;
  fiber *own = running;
  threads[self].stack = own;
  (void)choose(&next); /* there is one: else it has ended the test */
  if (_setjmp(own->at) == 0) {
    make_current(next);
    jump_to(threads[next].state == READY ? threads[next].stack : fiber_take());
  }
  make_current(self);
  threads[self].state = READY;
}

/* Every fiber: runs threads that have not begun; one that has goes on on its own stack, and this one is free. */
_Noreturn static void fiber_main(void) {
  for (;;) {
    fiber *own = running;
    threads[current].state = READY;
    kernel->body(kernel->closure);
    threads[current].state = DONE;
    n_done++;
    unsigned next = 0;
    bool more = choose(&next);
    if (more && threads[next].state == FRESH) {
      make_current(next);
      continue;
    }
    if (_setjmp(own->at) != 0)
      continue; /* taken again: `current` is fresh */
    fiber_release(own);
    if (!more)
      _longjmp(caller, 1);
    make_current(next);
    jump_to(threads[next].stack);
  }
}

static void run_block(void) {
  for (unsigned t = 0; t < n_threads; t++)
    threads[t].state = FRESH;
  n_done = n_at_shuffle = n_at_barrier = 0;
  make_current(0);
  if (_setjmp(caller) == 0)
    jump_to(fiber_take());
  if (n_done != n_threads)
    hec_queue_die("%s: a block ended with %u of %u threads", kernel->name, n_done, n_threads);
}

void fake_grid_run(const fake_kernel *given) {
  kernel = given;
  n_threads = given->threads;
  fake_block_size = (struct fake_dimensions){given->threads, 1, 1};
  fake_grid_size = (struct fake_dimensions){given->blocks, 1, 1};
  for (unsigned b = 0; b < given->blocks; b++) {
    fake_block_at = (struct fake_dimensions){b, 0, 0};
    run_block();
  }
  kernel = NULL;
}

/* ---- What threads wait for ---- */

static uint32_t ballot_of(unsigned begin) {
  uint32_t bits = 0;
  for (unsigned lane = 0; lane < FAKE_WARP; lane++)
    bits |= (threads[begin + lane].given != 0 ? 1U : 0U) << lane;
  return bits;
}

static void exchange(unsigned begin) {
  uint32_t ballot = threads[begin].from < 0 ? ballot_of(begin) : 0;
  for (unsigned lane = 0; lane < FAKE_WARP; lane++) {
    thread *t = &threads[begin + lane];
    if ((t->from < 0) != (threads[begin].from < 0))
      hec_queue_die("%s: lanes of a warp wait in a shuffle, others in a ballot", kernel->name);
    t->taken = t->from < 0 ? ballot : threads[begin + (unsigned)t->from].given;
    t->state = READY;
  }
  n_at_shuffle = 0;
}

static uint32_t exchange_with(uint32_t mask, uint32_t value, int from) {
  unsigned self = current, begin = warp_begin();
  if (mask != 0xFFFFFFFFU)
    hec_queue_die("%s: a shuffle of some lanes (mask %#x) is not emulated", kernel->name, mask);
  if (begin + FAKE_WARP > n_threads)
    hec_queue_die("%s: a shuffle in a warp of %u threads", kernel->name, n_threads - begin);
  if (from >= FAKE_WARP)
    hec_queue_die("%s: a shuffle with lane %d", kernel->name, from);
  threads[self].given = value;
  threads[self].from = from;
  threads[self].state = AT_SHUFFLE;
  if (++n_at_shuffle == FAKE_WARP)
    exchange(begin);
  else
    give_way();
  return threads[self].taken;
}

uint32_t fake_shuffle_xor(uint32_t mask, uint32_t value, int lane_mask) {
  return exchange_with(mask, value, (int)(current % FAKE_WARP) ^ lane_mask);
}

uint32_t fake_shuffle(uint32_t mask, uint32_t value, int lane) {
  return exchange_with(mask, value, lane & (FAKE_WARP - 1));
}

uint32_t fake_ballot(uint32_t mask, int predicate) {
  return exchange_with(mask, predicate != 0, -1);
}

void fake_sync_warp(uint32_t mask) {
  (void)exchange_with(mask, 0, -1);
}

void fake_sync_threads(void) {
  threads[current].state = AT_BARRIER;
  if (++n_at_barrier < n_threads) {
    give_way();
    return;
  }
  for (unsigned t = 0; t < n_threads; t++)
    threads[t].state = READY;
  n_at_barrier = 0;
  /* The first thread goes on first, as if nobody had waited: else warps would run in descending order. */
  unsigned self = current;
  current = n_threads - 1;
  if (self != 0) {
    fiber *own = running;
    threads[self].stack = own;
    if (_setjmp(own->at) == 0) {
      make_current(0);
      jump_to(threads[0].stack);
    }
    make_current(self);
  }
}

void fake_misaligned(const void *at, size_t bytes) {
  hec_queue_die("%s: thread %u of block %u touches %zu bytes at %p", kernel->name, current, fake_block_at.x, bytes, at);
}
