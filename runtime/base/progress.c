/* A mutex guards what is said, a flag of its own the terminal. A signal handler may take the second (it waits a little for a
 * thread that is writing), never the first. */
#include "runtime/base/progress.h"

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static const double begin_s = 1.0, again_s = 0.2; /* until the first line, and between two */
enum { TICK_MS = 250, LINE_BYTES = 320, WORDS_BYTES = 64 };

static struct {
  /* written by hec_progress_begin alone */
  hec_progress_options options;
  pthread_t thread;
  bool threaded;
  /* under the mutex */
  char stage[WORDS_BYTES], units[WORDS_BYTES], what[WORDS_BYTES], object[WORDS_BYTES]; /* "": none */
  double done, of, given;
  double until_s;          /* when it is over at the latest; 0: not known */
  double stage_s, drawn_s; /* when */
  bool silent, ending, running;
} p;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begins = PTHREAD_COND_INITIALIZER, ended = PTHREAD_COND_INITIALIZER;
static atomic_bool begun, stopped, shown;
static atomic_flag writing = ATOMIC_FLAG_INIT;

static double clock_s(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- The line ---- */

static int add_left(char *to, size_t size, const char *how, double left_s) {
  if (left_s < 100)
    return snprintf(to, size, "%s %.0f s left", how, ceil(left_s));
  if (left_s < 6000)
    return snprintf(to, size, "%s %.0f min left", how, ceil(left_s / 60));
  return snprintf(to, size, "%s %.0f h left", how, ceil(left_s / 3600));
}

/* Returns its length, below `size`. */
static size_t compose(char *to, size_t size, double now) {
  double spent = now - p.stage_s, mine = p.done - p.given;
  const char *what = p.what[0] ? p.what : p.stage;
  int n =
      snprintf(to, size, "%s: %s%s%s", p.options.name, what[0] ? what : "working", p.object[0] ? " " : "", p.object);
#define ADD(...) n += (size_t)n < size ? snprintf(to + n, size - (size_t)n, __VA_ARGS__) : 0
  const char *blank = p.units[0] ? " " : "";
  if (p.of > 0)
    ADD(", %.0f of %.0f%s%s, %.0f %%", floor(p.done), p.of, blank, p.units, floor(100 * p.done / p.of));
  else if (p.done > 0)
    ADD(", %.0f%s%s", floor(p.done), blank, p.units);
  ADD(", %.0f s", floor(spent));
  if (p.until_s > now && (size_t)n < size)
    n += add_left(to + n, size - (size_t)n, ", at most", p.until_s - now);
  else if (p.of > 0 && mine > 0 && p.done < p.of && (size_t)n < size)
    n += add_left(to + n, size - (size_t)n, ", about", spent * (p.of - p.done) / mine);
#undef ADD
  return (size_t)n < size ? (size_t)n : size - 1;
}

/* Longer lines would go on in the next one and could not be wiped. */
static size_t columns(void) {
  struct winsize window;
  return ioctl(p.options.file, TIOCGWINSZ, &window) == 0 && window.ws_col > 1 ? window.ws_col - 1u : 79;
}

static void write_all(const char *text, size_t n) {
  while (n > 0) {
    ssize_t done = write(p.options.file, text, n);
    if (done <= 0)
      return;
    text += done;
    n -= (size_t)done;
  }
}

static const char wipe[] = "\r\033[K";

/* Without the flag for a while a handler goes on all the same: a terminal that is held (Ctrl-S) holds the writer. */
static bool take_terminal(int tries) {
  while (atomic_flag_test_and_set(&writing))
    if (tries-- == 0)
      return false;
    else
      (void)poll(NULL, 0, 1);
  return true;
}

void hec_progress_draw(void) {
  char line[LINE_BYTES] = "\r";
  if (!atomic_load(&begun) || atomic_load(&stopped))
    return;
  (void)pthread_mutex_lock(&mutex);
  double now = p.options.now_s();
  bool due = !p.silent && now - p.stage_s >= begin_s && now - p.drawn_s >= again_s;
  size_t n = 1, max = columns();
  if (due) {
    p.drawn_s = now;
    n += compose(line + 1, sizeof line - 8, now);
    n = n < max + 1 ? n : max + 1;
    memcpy(line + n, wipe + 1, sizeof wipe - 2);
    n += sizeof wipe - 2;
  }
  (void)pthread_mutex_unlock(&mutex);
  if (!due || !take_terminal(-1))
    return;
  if (!atomic_load(&stopped)) {
    atomic_store(&shown, true);
    write_all(line, n);
  }
  atomic_flag_clear(&writing);
}

static void wipe_line(int tries) {
  bool taken = take_terminal(tries);
  if (atomic_exchange(&shown, false))
    write_all(wipe, sizeof wipe - 1);
  if (taken)
    atomic_flag_clear(&writing);
}

void hec_progress_wipe(void) {
  if (atomic_load(&begun))
    wipe_line(-1);
}

void hec_progress_stop(void) {
  atomic_store(&stopped, true);
  if (atomic_load(&begun))
    wipe_line(100);
}

/* ---- The thread ---- */

static void *live(void *unused) {
  (void)unused;
  (void)pthread_mutex_lock(&mutex);
  p.running = true;
  (void)pthread_cond_signal(&begins);
  while (!p.ending) {
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += TICK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&ended, &mutex, &until);
    (void)pthread_mutex_unlock(&mutex);
    hec_progress_draw();
    (void)pthread_mutex_lock(&mutex);
  }
  (void)pthread_mutex_unlock(&mutex);
  return NULL;
}

/* Signals are the other threads': their handler waits for this one. Returns when the thread runs: one that is only being made
 * may hold locks of the C library or of a sanitizer, and a fork at that moment would leave them locked in the child. */
static void start_thread(void) {
  sigset_t all, before;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  p.threaded = pthread_create(&p.thread, NULL, live, NULL) == 0;
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  (void)pthread_mutex_lock(&mutex);
  while (p.threaded && !p.running)
    (void)pthread_cond_wait(&begins, &mutex);
  (void)pthread_mutex_unlock(&mutex);
}

static void before_fork(void) {
  hec_progress_wipe();
  (void)pthread_mutex_lock(&mutex);
  (void)take_terminal(-1);
}

static void let_go(void) {
  p.done = p.of = p.given = 0;
  p.stage_s = p.options.now_s();
  atomic_flag_clear(&writing);
  (void)pthread_mutex_unlock(&mutex);
}

static void in_parent(void) {
  p.silent = true;
  let_go();
}

static void in_child(void) {
  p.threaded = false;
  let_go();
}

void hec_progress_begin(const hec_progress_options *options) {
  HEC_ASSERT(!atomic_load(&begun));
  p.options = *options;
  p.options.now_s = options->now_s ? options->now_s : clock_s;
  p.stage_s = p.options.now_s();
  (void)pthread_atfork(before_fork, in_parent, in_child);
  hec_before_no_memory(hec_progress_stop);
  atomic_store(&begun, true);
  if (!options->by_hand)
    start_thread();
}

void hec_progress_end(void) {
  if (!atomic_load(&begun))
    return;
  (void)pthread_mutex_lock(&mutex);
  p.ending = true;
  (void)pthread_cond_signal(&ended);
  (void)pthread_mutex_unlock(&mutex);
  if (p.threaded)
    (void)pthread_join(p.thread, NULL);
  p.threaded = false;
  hec_progress_wipe();
  atomic_store(&begun, false);
}

/* ---- What is said ---- */

static void keep(const char *words, char kept[WORDS_BYTES]) {
  (void)snprintf(kept, WORDS_BYTES, "%s", words ? words : "");
}

void hec_progress_stage(const char *what, const char *units) {
  if (!atomic_load(&begun))
    return;
  (void)pthread_mutex_lock(&mutex);
  keep(what, p.stage);
  keep(units, p.units);
  p.what[0] = p.object[0] = 0;
  p.done = p.of = p.given = p.until_s = 0;
  p.stage_s = p.options.now_s();
  p.silent = false;
  (void)pthread_mutex_unlock(&mutex);
}

void hec_progress_doing(const char *what, const char *object) {
  if (!atomic_load(&begun))
    return;
  (void)pthread_mutex_lock(&mutex);
  keep(what, p.what);
  keep(object, p.object);
  (void)pthread_mutex_unlock(&mutex);
}

static void count(double done, double of, double given, double until_s) {
  (void)pthread_mutex_lock(&mutex);
  p.done = done;
  p.of = of;
  p.given = given;
  p.until_s = until_s;
  bool alone = !p.threaded && !p.options.by_hand;
  (void)pthread_mutex_unlock(&mutex);
  if (alone)
    hec_progress_draw();
}

void hec_progress_at(double done, double of, double given) {
  if (atomic_load(&begun))
    count(done, of, given, 0);
}

void hec_progress_until(const char *what, double done, double left_s) {
  if (!atomic_load(&begun))
    return;
  hec_progress_doing(what, NULL);
  count(done, 0, 0, left_s <= 1e6 ? p.options.now_s() + left_s : 0);
}
