/* Launching and supervising ranks.
 *
 * Processes: every child holds the only writing end of a pipe. So its death, however it comes, is an end of file that
 * the supervisor polls for. There is no signal handler, and other children of the caller are left alone. A child that
 * ends without having recorded its outcome is a failure. After a failure the others get GRACE_MS to end by themselves
 * (their waits fail at once); then SIGKILL, which also ends a stopped process. PR_SET_PDEATHSIG ends children whose
 * parent dies.
 *
 *     child: body, outcome into its slot, leak check, flush, _exit        (no atexit handlers: they are the parent's)
 *
 * Threads: joined; one that never returns cannot be ended, so this form is for bodies that wait only in transports. */
#define _GNU_SOURCE /* sched_setaffinity, CPU_* */
#include "runtime/base/temporary.h"
#include "runtime/exec/launch/world.h"
#include "runtime/exec/link/device_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GRACE_MS = 2000, LOOK_MS = 50, REAP_MS = 1, TIMER_SLACK_NS = 1000 };

typedef struct {
  const hec_launch_options *options;
  hec_rank_body *body;
  void *context;
  hec_world *world;
  cpu_set_t allowed;        /* of the caller */
  pid_t pid[HEC_RANKS_MAX]; /* 0: not there any more */
  struct pollfd pipe[HEC_RANKS_MAX];
  int32_t n_left;
  int64_t kill_ns; /* 0: no failure yet */
} launch;

typedef struct {
  launch *of;
  int32_t rank;
} thread_start;

/* ---- One rank ---- */

static void pin(const launch *l, int32_t rank) {
  if (!l->options->pin || CPU_COUNT(&l->allowed) < l->options->n_ranks)
    return;
  int32_t n = 0;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &l->allowed) || n++ < rank)
      continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one); /* of the calling thread */
    return;
  }
}

static void run_rank(const launch *l, int32_t r) {
  hec_rank rank = hec_world_rank(l->world, l->options, r);
  pin(l, r);
  (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0); /* waits end when they say, not 50 us later */
  hec_status status = rank.transport->open(&rank);
  if (status == HEC_OK)
    status = l->body(&rank, l->context);
  if (status != HEC_OK)
    status = hec_rank_report(&rank, status, hec_last_error()[0] ? hec_last_error() : "failed without a message");
  (void)status; /* the record has it */
  rank.transport->close(&rank);
  atomic_store(&l->world->slots[r].ended, 1);
}

/* ---- Threads ---- */

static void *run_thread(void *argument) {
  const thread_start *start = argument;
  run_rank(start->of, start->rank);
  return NULL;
}

static void run_threads(launch *l) {
  pthread_t threads[HEC_RANKS_MAX];
  thread_start starts[HEC_RANKS_MAX];
  int32_t n = 0;
  for (; n < l->options->n_ranks; n++) {
    starts[n] = (thread_start){l, n};
    int error = pthread_create(&threads[n], NULL, run_thread, &starts[n]);
    if (error == 0)
      continue;
    char text[HEC_FAILURE_BYTES];
    (void)snprintf(text, sizeof text, "cannot start rank %d: %s", n, strerror(error));
    hec_world_fail(l->world, l->options->n_ranks, -1, HEC_FAILED, text);
    break;
  }
  for (int32_t r = 0; r < n; r++)
    (void)pthread_join(threads[r], NULL);
}

/* ---- Processes ---- */

/* LeakSanitizer's own check runs at exit, where a child never gets. Not there in builds without it. */
extern __attribute__((weak)) int __lsan_do_recoverable_leak_check(void); // NOLINT(bugprone-reserved-identifier)

static void check_leaks(const launch *l, int32_t rank) {
  if (!__lsan_do_recoverable_leak_check || __lsan_do_recoverable_leak_check() == 0)
    return;
  char text[HEC_FAILURE_BYTES];
  (void)snprintf(text, sizeof text, "rank %d left memory that nobody freed; see standard error", rank);
  hec_world_fail(l->world, rank, -1, HEC_FAILED, text);
}

static _Noreturn void run_child(const launch *l, int32_t rank, pid_t parent) {
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (getppid() != parent) /* it died before that took effect */
    _exit(EXIT_FAILURE);
  hec_temporary_forget();
  for (int32_t r = 0; r < rank; r++)
    (void)close(l->pipe[r].fd);
  run_rank(l, rank);
  check_leaks(l, rank);
  (void)fflush(NULL);
  _exit(EXIT_SUCCESS);
}

static bool fork_rank(launch *l, int32_t rank) {
  int ends[2];
  if (pipe(ends) != 0)
    return false;
  pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    (void)close(ends[0]);
    (void)fcntl(ends[1], F_SETFD, FD_CLOEXEC); /* programs that a body starts do not keep it alive */
    run_child(l, rank, parent);
  }
  int error = errno;
  (void)close(ends[1]);
  if (pid < 0) {
    (void)close(ends[0]);
    errno = error;
    return false;
  }
  (void)fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  l->pid[rank] = pid;
  l->pipe[rank] = (struct pollfd){.fd = ends[0], .events = POLLIN};
  l->n_left++;
  return true;
}

/* " in PLACE" where the rank was last. */
static void add_place(const hec_world *world, int32_t rank, hec_text *text) {
  hec_place place;
  if (!hec_world_place(world, rank, &place))
    return;
  hec_text_add(text, " in ");
  hec_place_describe(&place, text);
}

/* A child was reaped: without a recorded outcome that is a failure. */
static void ended(launch *l, int32_t rank, int outcome) {
  l->pid[rank] = 0;
  l->n_left--;
  if (WIFEXITED(outcome) && WEXITSTATUS(outcome) == 0 && atomic_load(&l->world->slots[rank].ended))
    return;
  HEC_SCOPED(hec_text) text = {0};
  if (WIFSIGNALED(outcome))
    hec_text_printf(&text, "rank %d was killed by signal %d (%s)", rank, WTERMSIG(outcome),
                    strsignal(WTERMSIG(outcome)));
  else
    hec_text_printf(&text, "rank %d ended with exit code %d before its work was done", rank, WEXITSTATUS(outcome));
  add_place(l->world, rank, &text);
  hec_world_fail(l->world, l->options->n_ranks, rank, HEC_FAILED, text.data);
}

/* Looks at every child whose pipe ended; returns how many of them are still being taken down by the kernel. */
static int32_t reap(launch *l) {
  int32_t n_ending = 0;
  for (int32_t r = 0; r < l->options->n_ranks; r++) {
    if (l->pipe[r].fd >= 0 && l->pipe[r].revents != 0) {
      (void)close(l->pipe[r].fd);
      l->pipe[r].fd = -1;
    }
    if (l->pid[r] == 0 || l->pipe[r].fd >= 0)
      continue;
    int outcome = 0;
    pid_t found = waitpid(l->pid[r], &outcome, WNOHANG);
    if (found == l->pid[r] || (found < 0 && errno != EINTR)) /* the caller ignores SIGCHLD: no outcome to be had */
      ended(l, r, outcome);
    else
      n_ending++;
  }
  return n_ending;
}

/* After a failure: time to end by themselves, then none. */
static void kill_late(launch *l) {
  if (l->kill_ns == 0 && hec_world_failed(l->world))
    l->kill_ns = hec_clock_ns() + (int64_t)GRACE_MS * 1000000;
  if (l->kill_ns == 0 || hec_clock_ns() < l->kill_ns)
    return;
  for (int32_t r = 0; r < l->options->n_ranks; r++)
    if (l->pid[r] > 0)
      (void)kill(l->pid[r], SIGKILL);
}

static void run_processes(launch *l) {
  (void)fflush(NULL); /* or every child would write what is buffered here */
  for (int32_t r = 0; r < l->options->n_ranks; r++)
    l->pipe[r].fd = -1;
  for (int32_t r = 0; r < l->options->n_ranks && !hec_world_failed(l->world); r++) {
    if (fork_rank(l, r))
      continue;
    char text[HEC_FAILURE_BYTES];
    (void)snprintf(text, sizeof text, "cannot start rank %d: %s", r, strerror(errno));
    hec_world_fail(l->world, l->options->n_ranks, -1, HEC_FAILED, text);
  }
  for (int32_t n_ending = 0; l->n_left > 0;) {
    if (poll(l->pipe, (nfds_t)l->options->n_ranks, n_ending > 0 ? REAP_MS : LOOK_MS) < 0)
      for (int32_t r = 0; r < l->options->n_ranks; r++)
        l->pipe[r].revents = 0;
    n_ending = reap(l);
    kill_late(l);
  }
}

/* ---- Both ---- */

static hec_status outcome_of(const hec_world *world) {
  return hec_world_failed(world) ? hec_fail(world->failure->code, "%s", world->failure->text) : HEC_OK;
}

hec_status hec_launch(const hec_launch_options *options, hec_rank_body *body, void *context) {
  launch *l = hec_malloc(1, sizeof *l);
  *l = (launch){.options = options, .body = body, .context = context};
  if (sched_getaffinity(0, sizeof l->allowed, &l->allowed) != 0)
    CPU_ZERO(&l->allowed);
  hec_status status = hec_world_new(options, 0, options->n_ranks, &l->world);
  if (status == HEC_OK && options->transport->prepare)
    status = options->transport->prepare(options, l->world);
  if (status == HEC_OK && options->link && options->link->prepare)
    status = options->link->prepare(options, l->world);
  if (status == HEC_OK) {
    if (options->threads)
      run_threads(l);
    else
      run_processes(l);
    status = outcome_of(l->world);
  }
  if (l->world)
    hec_world_free(l->world);
  free(l);
  return status;
}
