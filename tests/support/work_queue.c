/* See work_queue.h. O(streams of the process) per piece of work. */
#define _GNU_SOURCE /* pthread_condattr_setclock */
#include "tests/support/work_queue.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#include <ucontext.h>
#endif

enum { REDRAW_ONE_IN = 8, ASKED_MAX = 4, ASKED_BURST = 64, PATIENCE_S = 10 };
static const int64_t COST_NS = 100, SECOND = 1000000000;

hec_queue_hooks hec_queue_hook;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t something_new;
static bool begun;
static uint64_t n_news; /* how often something was new */
static uint64_t chance;
static hec_queue_stream *streams; /* open, or with work */

/* ---- The lock, time and chance ---- */

void hec_queue_lock(void) {
  (void)pthread_mutex_lock(&mutex);
  if (begun)
    return;
  pthread_condattr_t monotonic;
  begun = true;
  (void)pthread_condattr_init(&monotonic);
  (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  (void)pthread_cond_init(&something_new, &monotonic);
}

void hec_queue_unlock(void) {
  (void)pthread_mutex_unlock(&mutex);
}

void hec_queue_die(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)fputs("fake device: ", stderr);
  (void)vfprintf(stderr, format, arguments);
  (void)fputc('\n', stderr);
  va_end(arguments);
  if (hec_queue_hook.dies)
    hec_queue_hook.dies();
  abort();
}

int64_t hec_queue_clock_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * SECOND + now.tv_nsec;
}

void hec_queue_seed(uint64_t seed, bool anew) {
  chance = (anew ? 0 : chance) + seed * 0x9e3779b97f4a7c15U;
}

/* splitmix64, as check_main.c's. */
static uint64_t draw(void) {
  uint64_t z = chance += 0x9e3779b97f4a7c15U;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
  z = (z ^ z >> 27) * 0x94d049bb133111ebU;
  return z ^ z >> 31;
}

uint32_t hec_queue_random(uint32_t below) {
  return (uint32_t)(draw() >> 32) % below;
}

void hec_queue_something_new(void) {
  n_news++;
  (void)pthread_cond_broadcast(&something_new);
}

bool hec_queue_wait_for_news(void) {
  int64_t patience_s = hec_queue_hook.patience_s > 0 ? hec_queue_hook.patience_s : PATIENCE_S;
  int64_t until = hec_queue_clock_ns() + SECOND * patience_s;
  struct timespec limit = {until / SECOND, until % SECOND};
  uint64_t before = n_news;
  if (hec_queue_hook.waits)
    hec_queue_hook.waits();
  while (n_news == before)
    if (pthread_cond_timedwait(&something_new, &mutex, &limit) == ETIMEDOUT)
      return n_news != before;
  return true;
}

/* ---- Thread sanitizer ----
 *
 * It takes a stream for a thread of its own, which the host's mutex does not order. What a piece may see is what the host
 * had done when it queued the piece, and what marks order. So a wait that is missing is a race, in whatever order the
 * pieces are done. */

typedef void act(hec_queue_piece *work);

#ifdef __SANITIZE_THREAD__
enum { STACK_BYTES = 512 << 10 };

struct fiber {
  ucontext_t own, host;
  void *thread, *host_thread; /* as thread sanitizer knows them */
  act *what;
  hec_queue_piece *work;
  char stack[STACK_BYTES];
};

static void work_of(unsigned high, unsigned low) {
  struct fiber *f = (struct fiber *)(((uintptr_t)high << 32) | low); /* makecontext hands ints over */
  for (;;) {
    f->what(f->work);
    __tsan_switch_to_fiber(f->host_thread, __tsan_switch_to_fiber_no_sync);
    (void)swapcontext(&f->own, &f->host);
  }
}

static void make_fiber(hec_queue_stream *s) {
  struct fiber *f = s->fiber = malloc(sizeof *f);
  if (!f)
    hec_queue_die("no memory");
  (void)getcontext(&f->own);
  f->own.uc_stack.ss_sp = f->stack;
  f->own.uc_stack.ss_size = STACK_BYTES;
  makecontext(&f->own, (void (*)(void))work_of, 2, (unsigned)((uintptr_t)f >> 32), (unsigned)(uintptr_t)f);
  f->thread = __tsan_create_fiber(0);
}
static void destroy_fiber(hec_queue_stream *s) {
  __tsan_destroy_fiber(s->fiber->thread); /* its stack stays: it may be taken to be in use still */
}
static void run_on(hec_queue_stream *s, act *what, hec_queue_piece *work) {
  struct fiber *f = s->fiber;
  void *host = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(f->thread, __tsan_switch_to_fiber_no_sync);
  f->host_thread = host;
  f->what = what;
  f->work = work;
  (void)swapcontext(&f->host, &f->own);
}
static void give(void *what) {
  __tsan_release(what);
}
static void get(const void *what) {
  __tsan_acquire((void *)(uintptr_t)what);
}
static void free_work(hec_queue_piece *work) {
  (void)work; /* the stream may be taken to look at it still */
}
#else
static void make_fiber(hec_queue_stream *s) {
  (void)s;
}
static void destroy_fiber(hec_queue_stream *s) {
  (void)s;
}
static void run_on(hec_queue_stream *s, act *what, hec_queue_piece *work) {
  (void)s;
  what(work);
}
static void give(void *what) {
  (void)what;
}
static void get(const void *what) {
  (void)what;
}
static void free_work(hec_queue_piece *work) {
  free(work);
}
#endif

/* ---- Streams ---- */

hec_queue_stream *hec_queue_streams(void) {
  return streams;
}

void hec_queue_open(hec_queue_stream *stream) {
  stream->priority = draw();
  stream->next = streams;
  streams = stream;
  make_fiber(stream);
}

static void forget(hec_queue_stream *stream) {
  for (hec_queue_stream **link = &streams; *link; link = &(*link)->next)
    if (*link == stream) {
      *link = stream->next;
      destroy_fiber(stream);
      return;
    }
}

void hec_queue_close(hec_queue_stream *stream) {
  stream->destroyed = true;
  if (!stream->first)
    forget(stream);
}

static void drop(hec_queue_piece *work) {
  if (work->drop)
    work->drop(work);
  else
    free(work->own);
}

bool hec_queue_work(hec_queue_stream *stream, const hec_queue_piece *given) {
  hec_queue_piece *work = malloc(sizeof *work);
  if (!work)
    hec_queue_die("no memory");
  *work = *given;
  work->stream = stream;
  work->next = NULL;
  work->queued_ns = hec_queue_clock_ns();
  if (*stream->broken != 0) {
    drop(work);
    free(work);
    return false;
  }
  work->position = ++stream->queued;
  if (stream->last)
    stream->last->next = work;
  else
    stream->first = work;
  stream->last = work;
  give(work);
  hec_queue_something_new();
  return true;
}

static hec_queue_piece *pop(hec_queue_stream *stream) {
  hec_queue_piece *work = stream->first;
  stream->first = work->next;
  if (!stream->first)
    stream->last = NULL;
  stream->finished = work->position;
  hec_queue_something_new();
  return work;
}

static void reach(hec_queue_mark *mark) {
  mark->done = true;
  mark->ns = mark->stream->clock_ns;
  mark->reached_ns = hec_queue_clock_ns();
}

/* Of work that is dropped. */
static void end(hec_queue_piece *work) {
  hec_queue_mark_release(work->reaches);
  hec_queue_mark_release(work->waits_for);
  free_work(work);
}

void hec_queue_break(int32_t *broken, int32_t error) {
  *broken = error;
  for (hec_queue_stream *s = streams, *next; s; s = next) {
    next = s->next;
    while (s->broken == broken && s->first) {
      hec_queue_piece *work = pop(s);
      if (work->reaches)
        reach(work->reaches);
      drop(work);
      end(work);
    }
    if (s->destroyed && !s->first)
      forget(s);
  }
  hec_queue_something_new();
}

/* ---- Marks ---- */

void hec_queue_mark_release(hec_queue_mark *mark) {
  if (mark && --mark->references == 0)
    free(mark);
}

hec_queue_mark *hec_queue_mark_stream(hec_queue_stream *stream) {
  hec_queue_mark *mark = calloc(1, sizeof *mark);
  if (!mark)
    hec_queue_die("no memory");
  *mark = (hec_queue_mark){.references = 2, .stream = stream, .position = stream->queued + 1};
  if (!hec_queue_work(stream, &(hec_queue_piece){.name = "mark", .reaches = mark})) {
    reach(mark);
    mark->references--;
  }
  return mark;
}

static void explain_mark(const hec_queue_piece *work, char *text, size_t bytes) {
  const hec_queue_mark *mark = work->waits_for;
  (void)snprintf(text, bytes, "device %d stream %d to come to %llu", mark->stream->device, mark->stream->number,
                 (unsigned long long)mark->position);
}

static void need_mark(const hec_queue_piece *work) {
  if (!work->waits_for->done)
    hec_queue_need(work->waits_for->stream, work->waits_for->position);
}

void hec_queue_wait_mark(hec_queue_stream *stream, hec_queue_mark *mark) {
  mark->references++;
  if (!hec_queue_work(
          stream, &(hec_queue_piece){.name = "wait", .explain = explain_mark, .need = need_mark, .waits_for = mark}))
    mark->references--;
}

bool hec_queue_reached(const hec_queue_mark *mark) {
  if (mark->done)
    get(mark);
  return mark->done;
}

/* ---- Doing work ---- */

void hec_queue_need(hec_queue_stream *stream, uint64_t position) {
  uint64_t from = stream->needed > stream->finished ? stream->needed : stream->finished;
  if (position <= from)
    return;
  stream->needed = position;
  for (const hec_queue_piece *w = stream->first; w && w->position <= position; w = w->next)
    if (w->position > from && w->need)
      w->need(w);
}

static bool can_go_on(const hec_queue_stream *stream, bool needed_only) {
  hec_queue_piece *work = stream->first;
  return work && (!needed_only || work->position <= stream->needed) && (!work->waits_for || work->waits_for->done) &&
         (!work->ready || work->ready(work));
}

static hec_queue_stream *choose(bool needed_only) {
  hec_queue_stream *best = NULL;
  bool redraw = hec_queue_random(REDRAW_ONE_IN) == 0;
  for (hec_queue_stream *s = streams; s; s = s->next) {
    if (redraw)
      s->priority = draw();
    if (s->first && (!best || s->priority > best->priority) && can_go_on(s, needed_only))
      best = s;
  }
  return best;
}

/* As the stream. What the work read is freed there too, so that nobody else touches it. */
static void run_work(hec_queue_piece *work) {
  get(work);
  hec_queue_stream *stream = work->stream; /* the work may be gone when it has run: it may break the device */
  if (work->waits_for)
    get(work->waits_for);
  if (work->reaches)
    give(work->reaches);
  if (work->run)
    work->run(work);
  give(stream);
}

static void do_first(hec_queue_stream *stream) {
  hec_queue_piece *work = stream->first;
  int64_t begin_ns = stream->clock_ns > work->queued_ns ? stream->clock_ns : work->queued_ns;
  if (hec_queue_hook.before)
    hec_queue_hook.before(work);
  stream->clock_ns = begin_ns + COST_NS + work->cost_ns;
  if (work->waits_for && stream->clock_ns < work->waits_for->ns)
    stream->clock_ns = work->waits_for->ns;
  if (work->reaches)
    reach(work->reaches);
  run_on(stream, run_work, work);
  if (hec_queue_hook.after)
    hec_queue_hook.after();
  if (stream->first == work) { /* else the device broke */
    (void)pop(stream);
    run_on(stream, drop, work);
    end(work);
  }
  if (stream->destroyed && !stream->first)
    forget(stream);
}

static bool do_one(bool needed_only) {
  hec_queue_stream *stream = choose(needed_only);
  if (!stream && needed_only)
    stream = choose(false);
  if (stream)
    do_first(stream);
  return stream != NULL;
}

void hec_queue_run_some(void) {
  for (uint32_t n = hec_queue_random(hec_queue_random(4) == 0 ? ASKED_BURST : ASKED_MAX); n > 0 && do_one(false); n--)
    ;
}

_Noreturn static void die_of_deadlock(const char *what) {
  (void)fprintf(stderr, "fake device: %s waits and nothing can happen:\n", what);
  for (const hec_queue_stream *s = streams; s; s = s->next) {
    char text[512] = "nothing";
    if (!s->first)
      continue;
    if (s->first->explain)
      s->first->explain(s->first, text, sizeof text);
    (void)fprintf(stderr, "  device %d stream %d at %llu of %llu: %s waits for %s\n", s->device, s->number,
                  (unsigned long long)s->first->position, (unsigned long long)s->queued, s->first->name, text);
  }
  hec_queue_die("deadlock");
}

void hec_queue_run_until(bool (*reached)(void *context), void *context, const char *what) {
  bool needed_only = hec_queue_random(2) == 0;
  while (!reached(context))
    if (!do_one(needed_only) && !hec_queue_wait_for_news())
      die_of_deadlock(what);
}

typedef struct {
  hec_queue_stream *stream;
  uint64_t position;
} place;

static bool place_reached(void *context) {
  const place *p = context;
  return p->stream->finished >= p->position || *p->stream->broken != 0;
}

void hec_queue_run_to(hec_queue_stream *stream, uint64_t position) {
  place p = {stream, position};
  for (hec_queue_stream *s = streams; s; s = s->next)
    s->needed = 0;
  hec_queue_need(stream, position);
  hec_queue_run_until(place_reached, &p, "a thread of the host");
  get(stream);
}
