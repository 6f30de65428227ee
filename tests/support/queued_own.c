/* A processor over streams of work_queue.h: calls are pieces of work; events are marks; a restart waits for all streams. */
#include "tests/support/queued_own.h"

#include "runtime/base/arena.h"
#include "tests/support/work_queue.h"

#include <stdlib.h>
#include <string.h>

struct hec_event {
  hec_event *next;
  const struct queued *of;
  hec_queue_mark *mark;
  bool ended; /* by a restart; kept until the last processor goes, so that its use is noticed */
};

typedef struct host_block {
  struct host_block *next;
  void *at;
} host_block;

typedef struct queued {
  hec_processor seen;
  hec_queue_stream streams[HEC_STREAMS];
  int32_t selected, broken;
  hec_event *events; /* since the last restart */
  host_block *blocks;
  const char *error;
  int64_t n_done;
  hec_queued_cpu_log *log;
  void *log_context;
} queued;

static int32_t n_processors;
static hec_event *ended;

static queued *own_of(const hec_processor *on) {
  return on->own;
}

static queued *lock(const hec_processor *on) {
  hec_queue_lock();
  return own_of(on);
}

static hec_queue_stream *selected(queued *q) {
  return &q->streams[q->selected];
}

/* ---- Calls ---- */

void *hec_queued_keep(hec_queued_arguments *with, const void *from, int64_t n, size_t bytes) {
  if (!from)
    return NULL;
  HEC_ASSERT(with->n_copies < HEC_QUEUED_COPIES_MAX && n >= 0);
  void *copy = hec_malloc((size_t)n + 1, bytes);
  memcpy(copy, from, (size_t)n * bytes);
  return with->copies[with->n_copies++] = copy;
}

static void run_call(hec_queue_piece *work) {
  hec_queued_arguments *with = work->own;
  with->run(with);
}

static void drop_call(hec_queue_piece *work) {
  hec_queued_arguments *with = work->own;
  for (int32_t i = 0; i < with->n_copies; i++)
    free(with->copies[i]);
  free(with);
}

/* Which processor a stream belongs to: it is part of it. */
static queued *of_stream(const hec_queue_stream *stream) {
  return (queued *)(void *)((char *)(uintptr_t)(stream - stream->number) - offsetof(queued, streams));
}

/* Counts and tells; done on the host. */
static void note(hec_queue_piece *work) {
  queued *q = of_stream(work->stream);
  q->n_done += work->run != NULL;
  if (q->log)
    q->log(q->log_context, &q->seen, work->stream->number, work->name);
}

void hec_queued_record(hec_processor *on, const char *name, void (*run)(void *arguments),
                       const hec_queued_arguments *with, hec_queued_then then) {
  hec_queued_arguments *own = hec_malloc(1, sizeof *own);
  *own = *with;
  own->run = run;
  queued *q = lock(on);
  bool queued_it =
      hec_queue_work(selected(q), &(hec_queue_piece){.name = name, .run = run_call, .drop = drop_call, .own = own});
  if (queued_it && then == HEC_QUEUED_ASKS)
    hec_queue_run_some();
  if (queued_it && then == HEC_QUEUED_WAITS)
    hec_queue_run_to(selected(q), selected(q)->queued);
  hec_queue_unlock();
}

/* ---- Memory of the host ---- */

void hec_queued_run_move(void *arguments) {
  const hec_queued_arguments *w = arguments;
  if (w->n > 0)
    memcpy(w->to, w->from, (size_t)w->n);
}

static void put(hec_processor *on, void *to, const void *from, size_t bytes) {
  hec_queued_record(on, "put", hec_queued_run_move,
                    &(hec_queued_arguments){.to = to, .n = (int64_t)bytes, .from = from}, HEC_QUEUED_GOES_ON);
}
static void fetch(hec_processor *on, void *to, const void *from, size_t bytes) {
  hec_queued_record(on, "fetch", hec_queued_run_move,
                    &(hec_queued_arguments){.to = to, .n = (int64_t)bytes, .from = from}, HEC_QUEUED_GOES_ON);
}

static void *host_memory(hec_processor *on, size_t bytes) {
  host_block *block = hec_malloc(1, sizeof *block);
  queued *q = lock(on);
  *block = (host_block){q->blocks, calloc(bytes + 1, 1)};
  q->blocks = block;
  hec_queue_unlock();
  return block->at;
}

/* ---- Streams ---- */

static void choose(hec_processor *on, int32_t number) {
  HEC_ASSERT(number >= 0 && number < HEC_STREAMS);
  lock(on)->selected = number;
  hec_queue_unlock();
}

static const hec_event *mark(hec_processor *on) {
  hec_event *event = hec_malloc(1, sizeof *event);
  queued *q = lock(on);
  *event = (hec_event){.next = q->events, .of = q, .mark = hec_queue_mark_stream(selected(q))};
  q->events = event;
  hec_queue_unlock();
  return event;
}

static void after(hec_processor *on, const hec_event *event) {
  queued *q = lock(on);
  HEC_ASSERT(!event->ended || q->broken != 0);
  if (q->broken == 0)
    hec_queue_wait_mark(selected(q), event->mark);
  hec_queue_unlock();
}

static bool reached(hec_processor *on, const hec_event *event) {
  const queued *q = lock(on);
  HEC_ASSERT(event->of == q && !event->ended);
  hec_queue_run_some();
  bool answer = hec_queue_reached(event->mark);
  hec_queue_unlock();
  return answer;
}

static int64_t when(hec_processor *on, const hec_event *event) {
  const queued *q = lock(on);
  HEC_ASSERT(event->of == q && !event->ended && event->mark->done);
  int64_t ns = event->mark->reached_ns;
  hec_queue_unlock();
  return ns;
}

static void end_events(queued *q) {
  for (hec_event *next; q->events; q->events = next) {
    next = q->events->next;
    q->events->ended = true;
    hec_queue_mark_release(q->events->mark);
    q->events->next = ended;
    ended = q->events;
  }
}

static void restart(hec_processor *on) {
  queued *q = lock(on);
  for (int32_t s = 0; s < HEC_STREAMS; s++)
    hec_queue_run_to(&q->streams[s], q->streams[s].queued);
  end_events(q);
  q->selected = 0;
  hec_queue_unlock();
}

static const char *error_of(hec_processor *on) {
  const char *text = lock(on)->error;
  hec_queue_unlock();
  return text;
}

static const hec_streams streams = {
    .select = choose,
    .mark = mark,
    .after = after,
    .reached = reached,
    .when = when,
    .restart = restart,
    .error = error_of,
    .host_memory = host_memory,
    .put = put,
    .fetch = fetch,
};

/* ---- Processors ---- */

hec_processor *hec_queued_cpu_new(uint64_t seed) {
  queued *q = hec_malloc(1, sizeof *q);
  *q = (queued){.seen = {.math = &hec_queued_arithmetic, .streams = &streams, .own = q}};
  hec_queue_lock();
  hec_queue_seed(seed, n_processors++ == 0);
  hec_queue_hook.before = note;
  for (int32_t s = 0; s < HEC_STREAMS; s++) {
    q->streams[s] = (hec_queue_stream){.number = s, .broken = &q->broken};
    hec_queue_open(&q->streams[s]);
  }
  hec_queue_unlock();
  return &q->seen;
}

void hec_queued_cpu_free(hec_processor *on) {
  if (!on)
    return;
  queued *q = lock(on);
  hec_queue_break(&q->broken, 1); /* what is not done is dropped */
  end_events(q);
  for (int32_t s = 0; s < HEC_STREAMS; s++)
    hec_queue_close(&q->streams[s]);
  n_processors--;
  for (hec_event *next; n_processors == 0 && ended; ended = next) {
    next = ended->next;
    free(ended);
  }
  for (host_block *next; q->blocks; q->blocks = next) {
    next = q->blocks->next;
    free(q->blocks->at);
    free(q->blocks);
  }
  hec_queue_unlock();
  free(q);
}

void hec_queued_cpu_break(hec_processor *on, const char *text) {
  queued *q = lock(on);
  q->error = q->error ? q->error : text;
  hec_queue_break(&q->broken, 1);
  hec_queue_unlock();
}

int64_t hec_queued_cpu_done(const hec_processor *on) {
  int64_t n = lock(on)->n_done;
  hec_queue_unlock();
  return n;
}

int64_t hec_queued_cpu_left(const hec_processor *on) {
  int64_t n = 0;
  const queued *q = lock(on);
  for (int32_t i = 0; i < HEC_STREAMS; i++)
    n += (int64_t)(q->streams[i].queued - q->streams[i].finished);
  hec_queue_unlock();
  return n;
}

void hec_queued_cpu_watch(hec_processor *on, hec_queued_cpu_log *log, void *context) {
  queued *q = lock(on);
  q->log = log;
  q->log_context = context;
  hec_queue_unlock();
}
