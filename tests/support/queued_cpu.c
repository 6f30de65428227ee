/* Queues of recorded calls, one per stream, and one scheduler for all processors of the process.
 *
 *     stream 0   gemm  mark(a)  copy ...        a head can go unless it is after(e) with e not reached
 *     stream 1   after(a)  add ...
 *
 * An event is marked before anyone waits for it, so among all heads at least one can always go. The choice: every stream
 * has a random weight; mostly the heaviest that can goes, sometimes any; now and then all weights are drawn anew. One
 * mutex guards everything, the numbers computed with too. O(streams of the process) per step. */
#include "tests/support/queued_own.h"

#include "runtime/base/arena.h"
#include "runtime/exec/launch/rank.h"
#include "tests/support/check_main.h"

#include <pthread.h>
#include <string.h>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#include <ucontext.h>
#endif

typedef struct queued queued;

struct hec_event {
  hec_event *next;
  const queued *of;
  bool reached, ended; /* ended: by a restart; kept until the last processor goes, so that its use is noticed */
  int64_t when_ns;
};

typedef struct {
  hec_queued_operation *first, *last;
  int64_t n_given, n_done;
  uint64_t weight;
  struct fiber *fiber; /* thread sanitizer's, else NULL */
} stream;

typedef struct host_block {
  struct host_block *next;
  void *at;
} host_block;

struct queued {
  hec_processor seen;
  queued *next;
  stream streams[HEC_STREAMS];
  int32_t selected;
  hec_event *events; /* since the last restart */
  host_block *blocks;
  const char *error;
  int64_t n_done;
  hec_queued_cpu_log *log;
  void *log_context;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static queued *processors;
static hec_event *ended;
static uint64_t chance;

static queued *own_of(const hec_processor *on) {
  return on->own;
}
static void lock(void) {
  (void)pthread_mutex_lock(&mutex);
}
static void give_recorded(void);
static void unlock(void) {
  give_recorded();
  (void)pthread_mutex_unlock(&mutex);
}
void hec_queued_unlock(void) {
  unlock();
}

/* ---- Thread sanitizer ----
 *
 * It takes a stream for a thread of its own, which the host's mutex does not order: what a call may see is what the host
 * had done when it gave the call, and what events order. So a wait that is missing is a race, in whatever order the
 * calls are carried out. */

#ifdef __SANITIZE_THREAD__
enum { STACK_BYTES = 512 << 10 };

struct fiber {
  ucontext_t own, host;
  void *thread, *host_thread; /* as thread sanitizer knows them */
  stream *of;
  hec_queued_operation *operation;
  char stack[STACK_BYTES];
};

static hec_queued_operation *recorded; /* whose arguments are being written */

static void run_here(stream *s, hec_queued_operation *op);

static void work_of(unsigned high, unsigned low) {
  struct fiber *f = (struct fiber *)(((uintptr_t)high << 32) | low); /* makecontext hands ints over */
  for (;;) {
    run_here(f->of, f->operation);
    __tsan_switch_to_fiber(f->host_thread, __tsan_switch_to_fiber_no_sync);
    (void)swapcontext(&f->own, &f->host);
  }
}

static void make_fibers(queued *q) {
  for (stream *s = q->streams; s < q->streams + HEC_STREAMS; s++) {
    struct fiber *f = s->fiber = hec_malloc(1, sizeof *f);
    f->of = s;
    (void)getcontext(&f->own);
    f->own.uc_stack.ss_sp = f->stack;
    f->own.uc_stack.ss_size = STACK_BYTES;
    makecontext(&f->own, (void (*)(void))work_of, 2, (unsigned)((uintptr_t)f >> 32), (unsigned)(uintptr_t)f);
    f->thread = __tsan_create_fiber(0);
  }
}
static void destroy_fibers(queued *q) {
  for (stream *s = q->streams; s < q->streams + HEC_STREAMS; s++)
    __tsan_destroy_fiber(s->fiber->thread); /* its stack stays: it may be taken to be in use still */
}
static void run_on(stream *s, hec_queued_operation *op) {
  struct fiber *f = s->fiber;
  void *host = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(f->thread, __tsan_switch_to_fiber_no_sync);
  f->host_thread = host;
  f->operation = op;
  (void)swapcontext(&f->host, &f->own);
}
static void give(void *what) {
  __tsan_release(what);
}
static void get(const void *what) {
  __tsan_acquire((void *)(uintptr_t)what);
}
static void is_recorded(hec_queued_operation *op) {
  recorded = op;
}
static void free_record(hec_queued_operation *op) {
  (void)op; /* the stream may be taken to look at it still */
}
static void give_recorded(void) {
  if (recorded)
    give(recorded);
  recorded = NULL;
}
#else
static void make_fibers(queued *q) {
  (void)q;
}
static void destroy_fibers(queued *q) {
  (void)q;
}
static void give(void *what) {
  (void)what;
}
static void get(const void *what) {
  (void)what;
}
static void run_here(stream *s, hec_queued_operation *op);
static void run_on(stream *s, hec_queued_operation *op) {
  run_here(s, op);
}
static void is_recorded(hec_queued_operation *op) {
  (void)op;
}
static void free_record(hec_queued_operation *op) {
  free(op);
}
static void give_recorded(void) {}
#endif

/* ---- Carrying out ---- */

static void free_copies(const hec_queued_operation *op) {
  for (int32_t i = 0; i < op->n_copies; i++)
    free(op->copies[i]);
}

static hec_queued_operation *pop(stream *s) {
  hec_queued_operation *op = s->first;
  s->first = op->next;
  if (!s->first)
    s->last = NULL;
  s->n_done++;
  return op;
}

static void reach(hec_event *event) {
  event->reached = true;
  event->when_ns = hec_clock_ns();
}

/* What the call read is freed there too, so that nobody else touches it. */
static void run_here(stream *s, hec_queued_operation *op) {
  get(op);
  if (op->run)
    op->run(&op->with);
  else if (op->waits_for)
    get(op->waits_for);
  else
    give(op->event);
  give(s);
  free_copies(op);
}

static void carry_out(queued *q, stream *s) {
  hec_queued_operation *op = pop(s);
  const char *name = op->name;
  q->n_done += op->run != NULL;
  if (!op->run && !op->waits_for)
    reach(op->event);
  run_on(s, op);
  free_record(op);
  if (q->log)
    q->log(q->log_context, &q->seen, (int32_t)(s - q->streams), name);
}

static bool can_go(const stream *s) {
  return s->first && !(s->first->waits_for && !s->first->waits_for->reached);
}

static void draw_weights(void) {
  for (queued *q = processors; q; q = q->next)
    for (int32_t i = 0; i < HEC_STREAMS; i++)
      q->streams[i].weight = hec_test_random(&chance);
}

/* One head of all; false: there is none that can go. */
static bool step(void) {
  if (hec_test_below(&chance, 16) == 0)
    draw_weights();
  bool any = hec_test_below(&chance, 4) == 0;
  queued *chosen = NULL;
  stream *best = NULL;
  uint64_t n = 0;
  for (queued *q = processors; q; q = q->next)
    for (stream *s = q->streams; s < q->streams + HEC_STREAMS; s++) {
      if (!can_go(s))
        continue;
      n++;
      if (best && (any ? hec_test_below(&chance, n) > 0 : s->weight < best->weight))
        continue;
      best = s;
      chosen = q;
    }
  if (best)
    carry_out(chosen, best);
  return best != NULL;
}

static void drain(queued *q) {
  for (stream *s = q->streams; s < q->streams + HEC_STREAMS; s++)
    while (s->first) {
      bool moved = step();
      HEC_ASSERT(moved); /* a queue waits for an event that nobody has marked */
    }
  for (stream *s = q->streams; s < q->streams + HEC_STREAMS; s++)
    get(s);
}

void hec_queued_step(uint64_t n) {
  give_recorded();
  for (n = hec_test_below(&chance, n + 1); n > 0; n--)
    (void)step();
}

void hec_queued_drain_selected(hec_processor *on) {
  queued *q = own_of(on);
  stream *s = &q->streams[q->selected];
  give_recorded();
  for (int64_t end = s->n_given; s->n_done < end;) {
    bool moved = step();
    HEC_ASSERT(moved);
  }
  get(s);
}

/* ---- Recording ---- */

hec_queued_operation *hec_queued_record(hec_processor *on, const char *name, void (*run)(hec_queued_arguments *with)) {
  lock();
  queued *q = own_of(on);
  if (q->error) {
    unlock();
    return NULL;
  }
  hec_queued_operation *op = hec_malloc(1, sizeof *op);
  *op = (hec_queued_operation){.name = name, .run = run};
  stream *s = &q->streams[q->selected];
  if (s->last)
    s->last->next = op;
  else
    s->first = op;
  s->last = op;
  s->n_given++;
  is_recorded(op);
  return op;
}

/* ---- Memory of the host ---- */

static void run_move(hec_queued_arguments *w) {
  if (w->n > 0)
    memcpy(w->to, w->from, (size_t)w->n);
}

static void record_move(hec_processor *on, const char *name, void *to, const void *from, size_t bytes) {
  hec_queued_operation *op = hec_queued_record(on, name, run_move);
  if (!op)
    return;
  op->with = (hec_queued_arguments){.to = to, .n = (int64_t)bytes, .from = from};
  unlock();
}
static void put(hec_processor *on, void *to, const void *from, size_t bytes) {
  record_move(on, "put", to, from, bytes);
}
static void fetch(hec_processor *on, void *to, const void *from, size_t bytes) {
  record_move(on, "fetch", to, from, bytes);
}

static void *host_memory(hec_processor *on, size_t bytes) {
  host_block *block = hec_malloc(1, sizeof *block);
  lock();
  queued *q = own_of(on);
  *block = (host_block){q->blocks, calloc(bytes + 1, 1)};
  q->blocks = block;
  unlock();
  return block->at;
}

/* ---- Streams ---- */

static void choose(hec_processor *on, int32_t number) {
  HEC_ASSERT(number >= 0 && number < HEC_STREAMS);
  lock();
  own_of(on)->selected = number;
  unlock();
}

static const hec_event *mark(hec_processor *on) {
  hec_event *event = hec_malloc(1, sizeof *event);
  hec_queued_operation *op = hec_queued_record(on, "mark", NULL);
  queued *q = own_of(on);
  if (!op)
    lock();
  *event = (hec_event){.next = q->events, .of = q};
  q->events = event;
  if (op)
    op->event = event;
  else
    reach(event);
  unlock();
  return event;
}

static void after(hec_processor *on, const hec_event *event) {
  hec_queued_operation *op = hec_queued_record(on, "after", NULL);
  if (!op)
    return;
  HEC_ASSERT(!event->ended);
  op->waits_for = event;
  unlock();
}

static bool reached(hec_processor *on, const hec_event *event) {
  lock();
  HEC_ASSERT(event->of == own_of(on) && !event->ended);
  hec_queued_step(5);
  bool answer = event->reached;
  if (answer)
    get(event);
  unlock();
  return answer;
}

static int64_t when(hec_processor *on, const hec_event *event) {
  lock();
  HEC_ASSERT(event->of == own_of(on) && !event->ended && event->reached);
  int64_t ns = event->when_ns;
  unlock();
  return ns;
}

static void end_events(queued *q) {
  for (hec_event *next; q->events; q->events = next) {
    next = q->events->next;
    q->events->ended = true;
    q->events->next = ended;
    ended = q->events;
  }
}

static void restart(hec_processor *on) {
  lock();
  queued *q = own_of(on);
  drain(q);
  end_events(q);
  q->selected = 0;
  unlock();
}

static const char *error_of(hec_processor *on) {
  lock();
  const char *text = own_of(on)->error;
  unlock();
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
  lock();
  chance = (processors ? chance : 0) + seed * 0x9e3779b97f4a7c15u;
  q->next = processors;
  processors = q;
  make_fibers(q);
  draw_weights();
  unlock();
  return &q->seen;
}

static void drop_operation(hec_queued_operation *op) {
  free_copies(op);
  free_record(op);
}

static void drop(queued *q) {
  for (stream *s = q->streams; s < q->streams + HEC_STREAMS; s++)
    while (s->first)
      drop_operation(pop(s));
  for (hec_event *event = q->events; event; event = event->next)
    if (!event->reached)
      reach(event);
}

void hec_queued_cpu_free(hec_processor *on) {
  if (!on)
    return;
  lock();
  queued *q = own_of(on), **at = &processors;
  drop(q);
  end_events(q);
  while (*at != q)
    at = &(*at)->next;
  *at = q->next;
  destroy_fibers(q);
  for (hec_event *next; !processors && ended; ended = next) {
    next = ended->next;
    free(ended);
  }
  for (host_block *next; q->blocks; q->blocks = next) {
    next = q->blocks->next;
    free(q->blocks->at);
    free(q->blocks);
  }
  unlock();
  free(q);
}

void hec_queued_cpu_break(hec_processor *on, const char *text) {
  lock();
  queued *q = own_of(on);
  q->error = q->error ? q->error : text;
  drop(q);
  unlock();
}

int64_t hec_queued_cpu_done(const hec_processor *on) {
  lock();
  int64_t n = own_of(on)->n_done;
  unlock();
  return n;
}

int64_t hec_queued_cpu_left(const hec_processor *on) {
  int64_t n = 0;
  lock();
  const queued *q = own_of(on);
  for (int32_t i = 0; i < HEC_STREAMS; i++)
    n += q->streams[i].n_given - q->streams[i].n_done;
  unlock();
  return n;
}

void hec_queued_cpu_watch(hec_processor *on, hec_queued_cpu_log *log, void *context) {
  lock();
  own_of(on)->log = log;
  own_of(on)->log_context = context;
  unlock();
}
