/* Streams as queues, and when their work is done: never at the call. A thread of the host that waits does work, of
 * whatever stream, until what it waits for has happened; one that asks (cudaEventQuery) does a few pieces or none.
 *
 * Which stream comes next is chosen as in probabilistic concurrency testing (Burckhardt et al., ASPLOS 2010): streams have
 * random priorities, the highest that can go on does one piece, and now and then priorities are drawn again. So one stream
 * may run far ahead of another, and an order that only one event ensures is broken with a fair chance when it is missing;
 * drawing streams evenly would let all of them advance together. Half of the waits do only what they need. */
#include "tests/cuda/fake.h"

#include <stdio.h>
#include <stdlib.h>

enum { REDRAW_ONE_IN = 8, ASKED_MOST = 4, ASKED_BURST = 64 };
static const int64_t COST_NS = 100;

static struct CUstream_st *streams, *graves; /* open, or with work; ended */
static struct CUstream_st *defaults[FAKE_DEVICES_MOST];
static int32_t n_streams;
static cudaError_t broken[FAKE_DEVICES_MOST];

/* ---- Streams ---- */

cudaStream_t fake_stream_open(int32_t device) {
  cudaStream_t stream = calloc(1, sizeof *stream);
  if (!stream)
    fake_die("no memory");
  stream->number = ++n_streams;
  stream->device = device;
  stream->priority = fake_random(UINT32_MAX);
  stream->next = streams;
  streams = stream;
  return stream;
}

cudaStream_t fake_stream_of(cudaStream_t given) {
  if (given == NULL || given == cudaStreamLegacy || given == cudaStreamPerThread) {
    cudaStream_t *own = &defaults[fake_device()];
    if (!*own) {
      *own = fake_stream_open(fake_device());
      n_streams--;
      (*own)->number = 0;
    }
    return *own;
  }
  for (cudaStream_t s = streams; s; s = s->next)
    if (s == given && !s->destroyed)
      return s;
  fake_die("%p is not a stream, or one that was destroyed", (void *)given);
}

/* Ended streams stay known, so that their addresses are not those of new ones. */
static void bury(cudaStream_t stream) {
  for (cudaStream_t *link = &streams; *link; link = &(*link)->next)
    if (*link == stream) {
      *link = stream->next;
      stream->next = graves;
      graves = stream;
      return;
    }
}

void fake_stream_close(cudaStream_t stream) {
  stream->destroyed = true;
  if (!stream->first)
    bury(stream);
}

static void check_uses(const fake_work *work) {
  int32_t device = -1;
  for (int i = 0; i < FAKE_RANGES_MOST; i++)
    if (work->uses[i].bytes > 0)
      (void)fake_place_of(work->uses[i].at, work->uses[i].bytes, work->name, &device);
}

static void drop(fake_work *work) {
  if (work->drop)
    work->drop(work);
  else
    free(work->own);
  free(work);
}

void fake_queue(cudaStream_t stream, const fake_work *given) {
  fake_work *work = malloc(sizeof *work);
  if (!work)
    fake_die("no memory");
  *work = *given;
  work->stream = stream;
  work->next = NULL;
  work->queued_ns = fake_clock_ns();
  if (broken[stream->device] != cudaSuccess) {
    drop(work);
    return;
  }
  check_uses(work);
  work->position = ++stream->queued;
  if (stream->last)
    stream->last->next = work;
  else
    stream->first = work;
  stream->last = work;
  fake_something_new();
}

void fake_visit(void (*visit)(fake_work *work, void *context), void *context) {
  for (cudaStream_t s = streams; s; s = s->next)
    for (fake_work *w = s->first; w; w = w->next)
      visit(w, context);
}

static void pop(cudaStream_t stream) {
  fake_work *work = stream->first;
  stream->first = work->next;
  if (!stream->first)
    stream->last = NULL;
  stream->finished = work->position;
  drop(work);
  fake_something_new();
}

cudaError_t fake_broken(int32_t device) {
  return broken[device];
}

/* What is queued on it is lost; who waits for marks goes on. */
void fake_break(int32_t device, cudaError_t error) {
  broken[device] = error;
  for (cudaStream_t s = streams, next; s; s = next) {
    next = s->next;
    if (s->device != device)
      continue;
    while (s->first)
      pop(s);
    if (s->destroyed)
      bury(s);
  }
  fake_something_new();
}

/* ---- Marks ---- */

void fake_mark_release(fake_mark *mark) {
  if (mark && --mark->references == 0)
    free(mark);
}

static void reach_mark(fake_work *work) {
  fake_mark *mark = work->own;
  mark->ns = work->stream->clock_ns;
}

static void drop_mark(fake_work *work) {
  fake_mark *mark = work->own;
  mark->done = true; /* also when the device broke */
  fake_mark_release(mark);
}

fake_mark *fake_mark_stream(cudaStream_t stream) {
  fake_mark *mark = calloc(1, sizeof *mark);
  if (!mark)
    fake_die("no memory");
  *mark = (fake_mark){.references = 2, .stream = stream, .position = stream->queued + 1};
  fake_queue(stream, &(fake_work){.name = "cudaEventRecord", .run = reach_mark, .drop = drop_mark, .own = mark});
  return mark;
}

static bool mark_is_done(fake_work *work) {
  return ((fake_mark *)work->own)->done;
}

static void pass_mark(fake_work *work) {
  const fake_mark *mark = work->own;
  if (work->stream->clock_ns < mark->ns)
    work->stream->clock_ns = mark->ns;
}

static void drop_wait(fake_work *work) {
  fake_mark_release(work->own);
}

static void explain_mark(const fake_work *work, char *text, size_t bytes) {
  const fake_mark *mark = work->own;
  (void)snprintf(text, bytes, "device %d stream %d to come to %llu", mark->stream->device, mark->stream->number,
                 (unsigned long long)mark->position);
}

static void need_mark(const fake_work *work) {
  const fake_mark *mark = work->own;
  if (!mark->done)
    fake_need(mark->stream, mark->position);
}

void fake_wait_mark(cudaStream_t stream, fake_mark *mark) {
  mark->references++;
  fake_queue(stream, &(fake_work){.name = "cudaStreamWaitEvent",
                                  .ready = mark_is_done,
                                  .run = pass_mark,
                                  .drop = drop_wait,
                                  .explain = explain_mark,
                                  .need = need_mark,
                                  .own = mark});
}

/* ---- Doing work ---- */

void fake_need(cudaStream_t stream, uint64_t position) {
  uint64_t from = stream->needed > stream->finished ? stream->needed : stream->finished;
  if (position <= from)
    return;
  stream->needed = position;
  for (const fake_work *w = stream->first; w && w->position <= position; w = w->next)
    if (w->position > from && w->need)
      w->need(w);
}

static bool can_go_on(cudaStream_t stream, bool needed_only) {
  fake_work *work = stream->first;
  return work && (!needed_only || work->position <= stream->needed) && (!work->ready || work->ready(work));
}

static cudaStream_t choose(bool needed_only) {
  cudaStream_t best = NULL;
  bool redraw = fake_random(REDRAW_ONE_IN) == 0;
  for (cudaStream_t s = streams; s; s = s->next) {
    if (redraw)
      s->priority = fake_random(UINT32_MAX);
    if (s->first && (!best || s->priority > best->priority) && can_go_on(s, needed_only))
      best = s;
  }
  return best;
}

static void do_first(cudaStream_t stream) {
  fake_work *work = stream->first;
  int64_t begin_ns = stream->clock_ns > work->queued_ns ? stream->clock_ns : work->queued_ns;
  check_uses(work);
  fake_memory_open(work->is_kernel ? fake_reach(stream->device) : UINT32_MAX);
  stream->clock_ns = begin_ns + COST_NS + work->cost_ns;
  fake_memory_running(work->name);
  work->run(work);
  fake_memory_running(NULL);
  if (stream->first != work)
    return; /* the device broke */
  pop(stream);
  if (stream->destroyed && !stream->first)
    bury(stream);
}

static bool do_one(bool needed_only) {
  cudaStream_t stream = choose(needed_only);
  if (!stream && needed_only)
    stream = choose(false);
  if (stream)
    do_first(stream);
  return stream != NULL;
}

void fake_run_some(void) {
  for (uint32_t n = fake_random(fake_random(4) == 0 ? ASKED_BURST : ASKED_MOST); n > 0 && do_one(false); n--)
    ;
}

_Noreturn static void die_of_deadlock(const char *what) {
  (void)fprintf(stderr, "fake CUDA: %s waits and nothing can happen:\n", what);
  for (cudaStream_t s = streams; s; s = s->next) {
    char text[512] = "nothing";
    if (!s->first)
      continue;
    if (s->first->explain)
      s->first->explain(s->first, text, sizeof text);
    (void)fprintf(stderr, "  device %d stream %d at %llu of %llu: %s waits for %s\n", s->device, s->number,
                  (unsigned long long)s->first->position, (unsigned long long)s->queued, s->first->name, text);
  }
  fake_die("deadlock");
}

void fake_run_until(bool (*reached)(void *context), void *context, const char *what) {
  bool needed_only = fake_random(2) == 0;
  while (!reached(context))
    if (!do_one(needed_only) && !fake_wait_for_news())
      die_of_deadlock(what);
}

typedef struct {
  cudaStream_t stream;
  uint64_t position;
} place;

static bool place_reached(void *context) {
  const place *p = context;
  return p->stream->finished >= p->position || broken[p->stream->device] != cudaSuccess;
}

void fake_run_to(cudaStream_t stream, uint64_t position) {
  place p = {stream, position};
  for (cudaStream_t s = streams; s; s = s->next)
    s->needed = 0;
  fake_need(stream, position);
  fake_run_until(place_reached, &p, "a thread of the host");
}

/* ---- Kernels ---- */

static void run_kernel(fake_work *work) {
  if (fake_fails("launch")) {
    fake_break(work->stream->device, cudaErrorLaunchFailure);
    return;
  }
  fake_grid_run(work->own);
}

static void drop_kernel(fake_work *work) {
  fake_kernel *kernel = work->own;
  kernel->drop(kernel->closure);
  free(kernel);
}

void fake_queue_kernel(cudaStream_t stream, const fake_kernel *kernel) {
  fake_kernel *own = malloc(sizeof *own);
  if (!own)
    fake_die("no memory");
  *own = *kernel;
  fake_log(stream, "launch %s %ux%u", kernel->name, kernel->blocks, kernel->threads);
  fake_queue(stream, &(fake_work){.name = kernel->name,
                                  .run = run_kernel,
                                  .drop = drop_kernel,
                                  .own = own,
                                  .closure = kernel->closure,
                                  .closure_bytes = kernel->closure_bytes,
                                  .is_kernel = true});
}
