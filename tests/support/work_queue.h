/* Queues of work that is done late and in the worst order. What the stand-ins for devices are made of (queued_own.c, and
 * the fake of CUDA in tests/cuda).
 *
 *     stream 0   product  mark(a)  copy ...     the first piece can go unless it waits for a mark that is not reached,
 *     stream 1   wait(a)  sum ...               or is not ready for a reason of its own
 *
 * Nothing is done at the call. A thread of the host that waits does work, of whatever stream, until what it waits for has
 * happened. One that asks does a few pieces or none. One lock guards everything, the numbers computed with too.
 *
 * Which stream comes next is chosen as in probabilistic concurrency testing (Burckhardt et al., ASPLOS 2010). Streams have
 * random priorities, the highest that can go on does one piece, and now and then priorities are drawn again. So one
 * stream may run far ahead of another. An order that only one event ensures is broken with a fair chance when the
 * event is missing. Drawing streams evenly would let all of them advance together. Half of the waits do only what they
 * need.
 *
 * Linked with nothing of hecate: the fake of CUDA is a library of its own. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HEC_QUEUE_RANGES_MAX = 3 };

typedef struct hec_queue_piece hec_queue_piece;
typedef struct hec_queue_mark hec_queue_mark;
typedef struct CUstream_st hec_queue_stream; /* CUDA's tag: a cudaStream_t of the fake points to one */

typedef struct {
  const void *at;
  size_t bytes;
} hec_queue_range;

/* A piece of work in a stream's queue. `own` is its data, freed by `drop` (NULL: free). */
struct hec_queue_piece {
  const char *name;
  bool (*ready)(hec_queue_piece *work); /* first in its queue; NULL: yes */
  void (*run)(hec_queue_piece *work);   /* NULL: nothing */
  void (*drop)(hec_queue_piece *work);
  void (*explain)(const hec_queue_piece *work, char *text, size_t bytes); /* what it waits for; NULL: nothing */
  /* Something of other streams must come first: calls hec_queue_need for it; NULL: nothing. */
  void (*need)(const hec_queue_piece *work);
  void *own;
  hec_queue_mark *reaches, *waits_for; /* set by the queue; NULL */
  const void *closure;                 /* words of it may be addresses of memory that it uses */
  size_t closure_bytes;
  hec_queue_range uses[HEC_QUEUE_RANGES_MAX]; /* memory that must be there; bytes 0: none */
  bool is_kernel;
  hec_queue_stream *stream;
  int64_t queued_ns, cost_ns;
  uint64_t position; /* in its stream, from 1 */
  hec_queue_piece *next;
};

struct CUstream_st {
  int32_t number, device; /* for whoever opens it */
  int32_t *broken;        /* of its device: not 0 when that has failed */
  bool destroyed;
  hec_queue_piece *first, *last;
  uint64_t queued, finished; /* positions */
  uint64_t needed;           /* to here, by whoever waits now */
  int64_t clock_ns;          /* when its last work ended */
  uint64_t priority;
  struct fiber *fiber; /* thread sanitizer's, else NULL */
  hec_queue_stream *next;
};

/* A place in a stream's queue. */
struct hec_queue_mark {
  int32_t references;
  bool done;
  int64_t ns, reached_ns; /* of the stream's clock, of the host's */
  hec_queue_stream *stream;
  uint64_t position;
};

/* Around everything below. */
void hec_queue_lock(void);
void hec_queue_unlock(void);

/* Words on stderr, then abort(). */
_Noreturn void hec_queue_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
int64_t hec_queue_clock_ns(void);
void hec_queue_seed(uint64_t seed, bool anew); /* not anew: stirred in */
uint32_t hec_queue_random(uint32_t below);

/* Told of what happens; NULL: nobody is. */
typedef struct {
  void (*dies)(void);                    /* before abort() */
  void (*before)(hec_queue_piece *work); /* it runs */
  void (*after)(void);
  void (*waits)(void); /* for other threads */
  int64_t patience_s;  /* how long, before nothing is taken to happen any more; 0: 10 */
} hec_queue_hooks;
extern hec_queue_hooks hec_queue_hook;

/* The caller's memory, zero but for number, device and broken. */
void hec_queue_open(hec_queue_stream *stream);
/* Work that is queued is still done; the memory must stay. */
void hec_queue_close(hec_queue_stream *stream);
/* The first stream; the others are behind it. */
hec_queue_stream *hec_queue_streams(void);
/* Takes a copy. On a device that has failed: dropped, and false. */
bool hec_queue_work(hec_queue_stream *stream, const hec_queue_piece *work);
/* The device has failed with an error that is not 0: what is queued is lost, its marks count as reached. */
void hec_queue_break(int32_t *broken, int32_t error);

hec_queue_mark *hec_queue_mark_stream(hec_queue_stream *stream); /* one reference is the caller's */
void hec_queue_mark_release(hec_queue_mark *mark);
void hec_queue_wait_mark(hec_queue_stream *stream, hec_queue_mark *mark);
bool hec_queue_reached(const hec_queue_mark *mark); /* and the caller may use what was done before it */

void hec_queue_need(hec_queue_stream *stream, uint64_t position);
/* Does work until it is reached, or the device failed; also what others queue meanwhile. */
void hec_queue_run_to(hec_queue_stream *stream, uint64_t position);
void hec_queue_run_until(bool (*reached)(void *context), void *context, const char *what);
void hec_queue_run_some(void);      /* a random number of pieces, perhaps none: somebody asks */
void hec_queue_something_new(void); /* wakes who waits: not only work, whatever `reached` may look at */
bool hec_queue_wait_for_news(void); /* of other threads; false: there was none for as long as patience lasts */
