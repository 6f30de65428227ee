/* Queues of recorded calls, one per stream, and one scheduler for all processors of the process.
 *
 *     stream 0   gemm  mark(a)  copy ...        a head can go unless it is after(e) with e not reached
 *     stream 1   after(a)  add ...
 *
 * An event is marked before anyone waits for it, so among all heads at least one can always go. The choice: every stream
 * has a random weight; mostly the heaviest that can goes, sometimes any; now and then all weights are drawn anew. One
 * mutex guards everything, the numbers computed with too. O(streams of the process) per step. */
#include "tests/support/queued_cpu.h"

#include "runtime/base/arena.h"
#include "runtime/exec/model.h"
#include "runtime/exec/rank.h"
#include "tests/support/check_main.h"

#include <pthread.h>
#include <string.h>

typedef struct queued queued;

struct hec_event {
  hec_event *next;
  const queued *of;
  bool reached, ended; /* ended: by a restart; kept until the last processor goes, so that its use is noticed */
  int64_t when_ns;
};

/* The arguments of any call. */
typedef struct {
  float *to, *second, *third;
  const float *from;
  int64_t n;
  float factor;
  bool exact;
  void *list; /* [length] of what the call takes */
  int32_t length, d;
  float **row, **other;
  hec_assignments choice;
  hec_norm norm;
  hec_scores scores;
  hec_adam adam;
} arguments;

enum { COPIES_MOST = 5 };

typedef struct operation {
  struct operation *next;
  const char *name;
  void (*run)(arguments *with); /* NULL: mark or after */
  hec_event *event;
  bool waits; /* after */
  arguments with;
  void *copies[COPIES_MOST]; /* freed with it */
  int32_t n_copies;
} operation;

typedef struct {
  operation *first, *last;
  int64_t n_given, n_done;
  uint64_t weight;
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

static hec_processor *const cpu = &hec_processor_cpu;

static queued *own_of(const hec_processor *on) {
  return on->own;
}
static void lock(void) {
  (void)pthread_mutex_lock(&mutex);
}
static void unlock(void) {
  (void)pthread_mutex_unlock(&mutex);
}

/* ---- Carrying out ---- */

static void free_operation(operation *op) {
  for (int32_t i = 0; i < op->n_copies; i++)
    free(op->copies[i]);
  free(op);
}

static operation *pop(stream *s) {
  operation *op = s->first;
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

static void carry_out(queued *q, stream *s) {
  operation *op = pop(s);
  if (op->run) {
    op->run(&op->with);
    q->n_done++;
  } else if (!op->waits) {
    reach(op->event);
  }
  if (q->log)
    q->log(q->log_context, &q->seen, (int32_t)(s - q->streams), op->name);
  free_operation(op);
}

static bool can_go(const stream *s) {
  return s->first && !(s->first->waits && !s->first->event->reached);
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
}

/* Until all that the stream was given so far is done. */
static void drain_stream(stream *s) {
  for (int64_t end = s->n_given; s->n_done < end;) {
    bool moved = step();
    HEC_ASSERT(moved);
  }
}

/* ---- Recording ---- */

/* The new call at the end of the selected stream, the mutex taken; NULL, and not taken: the device has failed. */
static operation *record(hec_processor *on, const char *name, void (*run)(arguments *with)) {
  lock();
  queued *q = own_of(on);
  if (q->error) {
    unlock();
    return NULL;
  }
  operation *op = hec_malloc(1, sizeof *op);
  *op = (operation){.name = name, .run = run};
  stream *s = &q->streams[q->selected];
  if (s->last)
    s->last->next = op;
  else
    s->first = op;
  s->last = op;
  s->n_given++;
  return op;
}

static void *keep(operation *op, const void *from, int64_t n, size_t bytes) {
  if (!from)
    return NULL;
  HEC_ASSERT(op->n_copies < COPIES_MOST && n >= 0);
  void *copy = hec_malloc((size_t)n + 1, bytes);
  memcpy(copy, from, (size_t)n * bytes);
  return op->copies[op->n_copies++] = copy;
}

/* n_experts < 0: the call does not look at what is by expert. */
static void keep_choice(operation *op, const hec_assignments *a, int32_t n_experts) {
  op->with.choice = *a;
  op->with.choice.token = keep(op, a->token, a->n, sizeof *a->token);
  op->with.choice.expert_at = n_experts < 0 ? NULL : keep(op, a->expert_at, n_experts + 1, sizeof *a->expert_at);
  op->with.choice.balance = n_experts < 0 ? NULL : keep(op, a->balance, n_experts, sizeof *a->balance);
}

/* ---- Calls: what carries each out, and what records it ---- */

static void run_zero(arguments *w) {
  cpu->math->zero(cpu, w->to, w->n);
}
static void zero(hec_processor *on, float *at, int64_t n) {
  operation *op = record(on, "zero", run_zero);
  if (!op)
    return;
  op->with = (arguments){.to = at, .n = n};
  unlock();
}

static void run_scale(arguments *w) {
  cpu->math->scale(cpu, w->to, w->factor, w->n);
}
static void scale(hec_processor *on, float *x, float factor, int64_t n) {
  operation *op = record(on, "scale", run_scale);
  if (!op)
    return;
  op->with = (arguments){.to = x, .factor = factor, .n = n};
  unlock();
}

/* Those that take a list. */
static void record_list(hec_processor *on, const char *name, void (*run)(arguments *with), const void *list, int32_t n,
                        size_t bytes) {
  operation *op = record(on, name, run);
  if (!op)
    return;
  op->with.list = keep(op, list, n, bytes);
  op->with.length = n;
  unlock();
}

static void run_copy(arguments *w) {
  cpu->math->copy(cpu, w->list, w->length);
}
static void copy(hec_processor *on, const hec_piece *list, int32_t n) {
  record_list(on, "copy", run_copy, list, n, sizeof *list);
}

static void run_add(arguments *w) {
  cpu->math->add(cpu, w->list, w->length);
}
static void add(hec_processor *on, const hec_piece *list, int32_t n) {
  record_list(on, "add", run_add, list, n, sizeof *list);
}

static void run_gemm(arguments *w) {
  cpu->math->gemm(cpu, w->list, w->length);
}
static void gemm(hec_processor *on, const hec_gemm *list, int32_t n) {
  record_list(on, "gemm", run_gemm, list, n, sizeof *list);
}

static void run_activate(arguments *w) {
  cpu->math->activate(cpu, w->list, w->length);
}
static void activate(hec_processor *on, const hec_inner_rows *list, int32_t n) {
  record_list(on, "activate", run_activate, list, n, sizeof *list);
}

static void run_activate_backward(arguments *w) {
  cpu->math->activate_backward(cpu, w->list, w->length);
}
static void activate_backward(hec_processor *on, const hec_inner_rows *list, int32_t n) {
  record_list(on, "activate_backward", run_activate_backward, list, n, sizeof *list);
}

static void run_norm(arguments *w) {
  cpu->math->norm(cpu, &w->norm, w->to);
}
static void norm(hec_processor *on, const hec_norm *of, float *y) {
  operation *op = record(on, "norm", run_norm);
  if (!op)
    return;
  op->with = (arguments){.norm = *of, .to = y};
  unlock();
}

static void run_norm_backward(arguments *w) {
  cpu->math->norm_backward(cpu, &w->norm, w->from, w->to, w->second);
}
static void norm_backward(hec_processor *on, const hec_norm *of, const float *dy, float *dx, float *dgain) {
  operation *op = record(on, "norm_backward", run_norm_backward);
  if (!op)
    return;
  op->with = (arguments){.norm = *of, .from = dy, .to = dx, .second = dgain};
  unlock();
}

static void run_softmax(arguments *w) {
  cpu->math->softmax(cpu, &w->scores);
}
static void softmax(hec_processor *on, const hec_scores *scores) {
  operation *op = record(on, "softmax", run_softmax);
  if (!op)
    return;
  op->with = (arguments){.scores = *scores};
  unlock();
}

static void run_softmax_backward(arguments *w) {
  cpu->math->softmax_backward(cpu, &w->scores, w->to);
}
static void softmax_backward(hec_processor *on, const hec_scores *scores, float *d) {
  operation *op = record(on, "softmax_backward", run_softmax_backward);
  if (!op)
    return;
  op->with = (arguments){.scores = *scores, .to = d};
  unlock();
}

static void run_adam(arguments *w) {
  cpu->math->adam(cpu, &w->adam, w->n, w->list, w->length);
}
static void adam(hec_processor *on, const hec_adam *with, int64_t at_step, const hec_moments *list, int32_t n) {
  operation *op = record(on, "adam", run_adam);
  if (!op)
    return;
  op->with = (arguments){.adam = *with, .n = at_step, .length = n, .list = keep(op, list, n, sizeof *list)};
  unlock();
}

static void run_weigh(arguments *w) {
  cpu->math->weigh(cpu, &w->choice, w->from, w->length, w->exact);
}
static void weigh(hec_processor *on, hec_assignments *a, const float *probabilities, int32_t n_experts, bool exact) {
  operation *op = record(on, "weigh", run_weigh);
  if (!op)
    return;
  op->with = (arguments){.from = probabilities, .length = n_experts, .exact = exact};
  keep_choice(op, a, n_experts);
  unlock();
}

static void run_choice_gradient(arguments *w) {
  cpu->math->choice_gradient(cpu, &w->choice, w->length, w->to);
}
static void choice_gradient(hec_processor *on, const hec_assignments *a, int32_t n_experts, float *dp) {
  operation *op = record(on, "choice_gradient", run_choice_gradient);
  if (!op)
    return;
  op->with = (arguments){.length = n_experts, .to = dp};
  keep_choice(op, a, n_experts);
  unlock();
}

static void run_permute(arguments *w) {
  cpu->math->permute(cpu, &w->choice, w->from, w->d, w->row);
}
static void permute(hec_processor *on, const hec_assignments *a, const float *h2, int32_t d, float *const *row) {
  operation *op = record(on, "permute", run_permute);
  if (!op)
    return;
  op->with = (arguments){.from = h2, .d = d, .row = keep(op, row, a->n, sizeof *row)};
  keep_choice(op, a, -1);
  unlock();
}

static void run_combine(arguments *w) {
  cpu->math->combine(cpu, &w->choice, w->row, w->d, w->to);
}
static void combine(hec_processor *on, const hec_assignments *a, float *const *row, int32_t d, float *x) {
  operation *op = record(on, "combine", run_combine);
  if (!op)
    return;
  op->with = (arguments){.to = x, .d = d, .row = keep(op, row, a->n, sizeof *row)};
  keep_choice(op, a, -1);
  unlock();
}

static void run_uncombine(arguments *w) {
  cpu->math->uncombine(cpu, &w->choice, w->from, w->other, w->d, w->row);
}
static void uncombine(hec_processor *on, hec_assignments *a, const float *dx, float *const *output, int32_t d,
                      float *const *row) {
  operation *op = record(on, "uncombine", run_uncombine);
  if (!op)
    return;
  op->with = (arguments){.from = dx, .d = d};
  op->with.other = keep(op, output, a->n, sizeof *output);
  op->with.row = keep(op, row, a->n, sizeof *row);
  keep_choice(op, a, -1);
  unlock();
}

static void run_unpermute(arguments *w) {
  cpu->math->unpermute(cpu, &w->choice, w->row, w->d, w->to);
}
static void unpermute(hec_processor *on, const hec_assignments *a, float *const *row, int32_t d, float *dh2) {
  operation *op = record(on, "unpermute", run_unpermute);
  if (!op)
    return;
  op->with = (arguments){.to = dh2, .d = d, .row = keep(op, row, a->n, sizeof *row)};
  keep_choice(op, a, -1);
  unlock();
}

/* ---- Between host and device ---- */

static void run_move(arguments *w) {
  if (w->n > 0)
    memcpy(w->to, w->from, (size_t)w->n);
}

static void to_device(hec_processor *on, float *to, const float *from, int64_t n) {
  operation *op = record(on, "to_device", run_move);
  if (!op)
    return;
  op->with = (arguments){.to = to, .n = n * (int64_t)sizeof *to, .from = keep(op, from, n, sizeof *from)};
  for (uint64_t k = hec_test_below(&chance, 4); k > 0; k--)
    (void)step();
  unlock();
}

static void to_host(hec_processor *on, float *to, const float *from, int64_t n) {
  operation *op = record(on, "to_host", run_move);
  if (!op)
    return;
  op->with = (arguments){.to = to, .n = n * (int64_t)sizeof *to, .from = from};
  queued *q = own_of(on);
  drain_stream(&q->streams[q->selected]);
  unlock();
}

static void record_move(hec_processor *on, const char *name, void *to, const void *from, size_t bytes) {
  operation *op = record(on, name, run_move);
  if (!op)
    return;
  op->with = (arguments){.to = to, .n = (int64_t)bytes, .from = from};
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
  operation *op = record(on, "mark", NULL);
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
  operation *op = record(on, "after", NULL);
  if (!op)
    return;
  HEC_ASSERT(!event->ended);
  op->event = (hec_event *)(uintptr_t)event; /* only read */
  op->waits = true;
  unlock();
}

static bool reached(hec_processor *on, const hec_event *event) {
  lock();
  HEC_ASSERT(event->of == own_of(on) && !event->ended);
  for (uint64_t k = hec_test_below(&chance, 6); k > 0; k--)
    (void)step();
  bool answer = event->reached;
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

static const hec_arithmetic arithmetic = {
    .name = "CPU, queued",
    .batch = 2,
    .to_device = to_device,
    .to_host = to_host,
    .zero = zero,
    .scale = scale,
    .copy = copy,
    .add = add,
    .gemm = gemm,
    .norm = norm,
    .norm_backward = norm_backward,
    .softmax = softmax,
    .softmax_backward = softmax_backward,
    .activate = activate,
    .activate_backward = activate_backward,
    .adam = adam,
    .weigh = weigh,
    .choice_gradient = choice_gradient,
    .permute = permute,
    .combine = combine,
    .uncombine = uncombine,
    .unpermute = unpermute,
};

/* ---- Processors ---- */

hec_processor *hec_queued_cpu_new(uint64_t seed) {
  queued *q = hec_malloc(1, sizeof *q);
  *q = (queued){.seen = {.math = &arithmetic, .streams = &streams, .own = q}};
  lock();
  chance = (processors ? chance : 0) + seed * 0x9e3779b97f4a7c15u;
  q->next = processors;
  processors = q;
  draw_weights();
  unlock();
  return &q->seen;
}

static void drop(queued *q) {
  for (stream *s = q->streams; s < q->streams + HEC_STREAMS; s++)
    while (s->first)
      free_operation(pop(s));
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
