/* Ranks: collectives of the launch in both forms, then every way in which a rank can fail. After each launch no child is
 * left, and the message says which rank failed and where it was. */
#define _GNU_SOURCE /* PR_SET_CHILD_SUBREAPER */
#include "runtime/base/temporary.h"
#include "runtime/exec/launch/world.h"
#include "tests/exec/launch_case.h"
#include "tests/support/test.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_SIZES = 6, BIG = 700000 };

static const hec_place checking = {.role = -1, .phase = "checking"};

static int n_transports(void) {
  int n = 0;
  while (hec_transports[n])
    n++;
  return n;
}
/* Each transport as processes and as threads; each of these with every size. */
#define N_FORMS (2 * n_transports())
#define N_CASES (N_SIZES * N_FORMS)

/* Every size, form and transport in turn. */
static hec_launch_options options_of(int i) {
  static const int32_t sizes[N_SIZES] = {1, 2, 3, 4, 7, 8};
  hec_launch_options options = hec_test_options(sizes[i % N_SIZES], i / N_SIZES % 2 == 1);
  options.transport = hec_transports[i / N_SIZES / 2];
  ck_assert_ptr_nonnull(options.transport);
  return options;
}

/* ---- Collectives ---- */

static char value_of(size_t i, int32_t rank) {
  return (char)(i * 31 + i / 251 + (size_t)rank * 7 + 1);
}

static hec_status gather_and_broadcast(hec_rank *rank, size_t bytes) {
  size_t n = (size_t)rank->n_ranks;
  char *data = hec_malloc(bytes, 1), *all = rank->rank == 0 ? hec_malloc(n * bytes, 1) : NULL;
  for (size_t i = 0; i < bytes; i++)
    data[i] = value_of(i, rank->rank);
  HEC_TRY(hec_rank_gather(rank, data, bytes, all));
  for (size_t i = 0; all && i < n * bytes; i++)
    if (all[i] != value_of(i % bytes, (int32_t)(i / bytes)))
      return hec_rank_fail(rank, "gather of %zu bytes: byte %zu", bytes, i);
  HEC_TRY(hec_rank_broadcast(rank, data, bytes));
  for (size_t i = 0; i < bytes; i++)
    if (data[i] != value_of(i, 0))
      return hec_rank_fail(rank, "broadcast of %zu bytes: byte %zu", bytes, i);
  free(data);
  free(all);
  return HEC_OK;
}

static hec_status run_collectives(hec_rank *rank, void *context) {
  (void)context;
  static const size_t bytes[] = {1, 8, 4096, 256 << 10, BIG};
  hec_rank_at(rank, &checking);
  for (int times = 0; times < 50; times++)
    HEC_TRY(hec_rank_barrier(rank));
  for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
    HEC_TRY(gather_and_broadcast(rank, bytes[i]));
  return hec_rank_barrier(rank);
}

HEC_TEST_LOOP(collectives, N_CASES) {
  hec_launch_options options = options_of(_i);
  hec_test_launch(&options, run_collectives, NULL);
}

/* Before the k-th barrier every rank adds one; after it nobody may see less than n * k. */
static hec_status run_barriers(hec_rank *rank, void *context) {
  _Atomic int32_t *count = context;
  for (int32_t k = 1; k <= 200; k++) {
    (void)atomic_fetch_add(count, 1);
    HEC_TRY(hec_rank_barrier(rank));
    if (atomic_load(count) < k * rank->n_ranks)
      return hec_rank_fail(rank, "left barrier %d before all had come", k);
  }
  return HEC_OK;
}

HEC_TEST_LOOP(barriers_hold_back, N_CASES) {
  hec_launch_options options = options_of(_i);
  hec_test_launch(&options, run_barriers, hec_test_shared_page());
}

static hec_status run_starts(hec_rank *rank, void *context) {
  int64_t *starts = context;
  for (int i = 0; i < 20; i++) {
    HEC_TRY(hec_rank_barrier(rank));
    int64_t before = hec_clock_ns();
    HEC_TRY(hec_rank_start_together(rank, &starts[rank->rank]));
    int64_t after = hec_clock_ns(), start = starts[rank->rank];
    HEC_TRY(hec_rank_barrier(rank));
    if (start <= before || after < start)
      return hec_rank_fail(rank, "a start that was not ahead, or returned early");
    for (int32_t r = 0; r < rank->n_ranks; r++)
      if (starts[r] != start)
        return hec_rank_fail(rank, "starts differ");
  }
  return HEC_OK;
}

HEC_TEST_LOOP(ranks_start_together, N_CASES) {
  hec_launch_options options = options_of(_i);
  options.pin = _i % 2 == 1;
  hec_test_launch(&options, run_starts, hec_test_shared_page());
}

static hec_status run_memory(hec_rank *rank, void *context) {
  _Atomic uint64_t *address = context;
  if ((uintptr_t)rank->memory % 4096 != 0 || rank->memory_bytes != 1 << 20)
    return hec_rank_fail(rank, "a region of the wrong form");
  for (size_t i = 0; i < rank->memory_bytes; i++)
    if (rank->memory[i] != 0)
      return hec_rank_fail(rank, "the region is not zero");
  memset(rank->memory, rank->rank + 1, rank->memory_bytes);
  atomic_store(&address[rank->rank], (uint64_t)(uintptr_t)rank->memory);
  hec_rank_set_posted(rank, 5, 1000 + rank->rank);
  HEC_TRY(hec_rank_barrier(rank));
  for (int32_t r = 0; r < rank->n_ranks; r++) {
    const char *memory = (const char *)(uintptr_t)atomic_load(&address[r]);
    if (memory[0] != r + 1 || memory[rank->memory_bytes - 1] != r + 1)
      return hec_rank_fail(rank, "the region of rank %d is not at its address", r);
    if (hec_rank_posted(rank, r, 5) != 1000 + r || hec_rank_posted(rank, r, HEC_POSTS_MAX - 1) != 0)
      return hec_rank_fail(rank, "posts of rank %d", r);
  }
  return hec_rank_barrier(rank);
}

HEC_TEST_LOOP(regions_are_shared, N_CASES) {
  hec_launch_options options = options_of(_i);
  hec_test_launch(&options, run_memory, hec_test_shared_page());
}

HEC_TEST(places_read_well) {
  static const struct {
    hec_place place;
    const char *text;
  } cases[] = {
      {{.iteration = 12, .op = 57, .layer = 3, .role = HEC_ROLE_DISPATCH}, HEC_TEST_DISPATCH},
      {{.iteration = 2, .op = 5, .layer = 0, .micro_batch = 1, .role = HEC_ROLE_COMBINE, .backward = true},
       "combine of layer 0 (backward, operation 5, micro-batch 1, iteration 2)"},
      {{.iteration = 2, .op = 9, .layer = -1, .role = HEC_ROLE_DENSE_REDUCE},
       "dense all-reduce (operation 9, micro-batch 0, iteration 2)"},
      {{.role = -1, .phase = "planning"}, "planning"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    HEC_SCOPED(hec_text) text = {0};
    hec_place_describe(&cases[i].place, &text);
    ck_assert_str_eq(text.data, cases[i].text);
  }
}

HEC_TEST(bad_options_are_refused) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_cluster cluster;
  ck_assert_int_eq(hec_cluster_load("1x2 nvlink=300G flops=1T mem=1G", &arena, &cluster), HEC_OK);
  hec_launch_options options = hec_test_options(0, false);
  ck_assert_int_eq(hec_launch(&options, run_barriers, NULL), HEC_BAD_INPUT);
  options.n_ranks = 100000;
  ck_assert_int_eq(hec_launch(&options, run_barriers, NULL), HEC_BAD_INPUT);
  options = hec_test_options(3, false);
  options.cluster = &cluster;
  ck_assert_int_eq(hec_launch(&options, run_barriers, NULL), HEC_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "2 devices"));
  options = hec_test_options(3, false);
  options.memory_bytes = SIZE_MAX / 8;
  ck_assert_int_eq(hec_launch(&options, run_barriers, NULL), HEC_FAILED);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "cannot reserve"));
}

/* ---- Failures ---- */

typedef enum { FAIL_RETURN, FAIL_BAD_INPUT, FAIL_CALL, FAIL_KILL, FAIL_STOP, FAIL_EXIT, FAIL_ABORT } failing;

/* Until the peer is where the message says. */
static hec_status await_place(hec_rank *rank, int32_t peer) {
  while (!hec_world_place(rank->world, peer, &(hec_place){0}))
    HEC_TRY(rank->transport->wait(rank, hec_clock_ns() + 1000000));
  return HEC_OK;
}

static hec_status fail_as(hec_rank *rank, failing how) {
  switch (how) {
  case FAIL_RETURN:
    return hec_fail(HEC_FAILED, "the disk is full");
  case FAIL_BAD_INPUT:
    return hec_fail(HEC_BAD_INPUT, "no such file");
  case FAIL_CALL:
    return hec_rank_fail(rank, "lost %d bytes", 17);
  case FAIL_KILL:
    (void)raise(SIGKILL);
    break;
  case FAIL_STOP:
    hec_test_stop();
    break;
  case FAIL_EXIT:
    _exit(3);
  case FAIL_ABORT:
    HEC_ASSERT(how != FAIL_ABORT);
    break;
  }
  return HEC_OK;
}

/* Rank 2 fails in operation 57 while the others go from barrier to barrier. */
static hec_status run_failing(hec_rank *rank, void *context) {
  const failing *how = context;
  HEC_TRY(hec_rank_barrier(rank));
  hec_test_at_dispatch(rank);
  if (rank->rank == 2)
    HEC_TRY(fail_as(rank, *how));
  hec_test_lets_time_pass(rank);
  for (;;)
    HEC_TRY(hec_rank_barrier(rank));
}

static void fails_with(failing how, int form, hec_status status, const char *text) {
  hec_launch_options options = hec_test_options(4, form % 2 == 1);
  options.transport = hec_transports[form / 2];
  options.limit_s = HEC_TEST_FOREVER_S;
  ck_assert_int_eq(hec_launch(&options, run_failing, &how), status);
  ck_assert_str_eq(hec_last_error(), text);
  hec_test_no_child_is_left();
}

HEC_TEST_LOOP(a_failure_ends_all, N_FORMS) {
  fails_with(FAIL_RETURN, _i, HEC_FAILED, "rank 2, in " HEC_TEST_DISPATCH ": the disk is full");
  fails_with(FAIL_BAD_INPUT, _i, HEC_BAD_INPUT, "rank 2, in " HEC_TEST_DISPATCH ": no such file");
  fails_with(FAIL_CALL, _i, HEC_FAILED, "rank 2, in " HEC_TEST_DISPATCH ": lost 17 bytes");
}

HEC_TEST_LOOP(a_death_ends_all, n_transports()) {
  fails_with(FAIL_KILL, 2 * _i, HEC_FAILED, "rank 2 was killed by signal 9 (Killed) in " HEC_TEST_DISPATCH);
  fails_with(FAIL_EXIT, 2 * _i, HEC_FAILED,
             "rank 2 ended with exit code 3 before its work was done in " HEC_TEST_DISPATCH);
  fails_with(FAIL_ABORT, 2 * _i, HEC_FAILED, "rank 2 was killed by signal 6 (Aborted) in " HEC_TEST_DISPATCH);
}

HEC_TEST_LOOP(a_stopped_rank_is_named_and_killed, n_transports()) {
  failing how = FAIL_STOP;
  hec_launch_options options = hec_test_options_missing(4, false, 2, true);
  options.transport = hec_transports[_i];
  const char *text = hec_test_launch_fails(&options, run_failing, &how);
  ck_assert_msg(strstr(text, ": waited " HEC_TEST_PASSING_TEXT
                             " for rank 2 in a barrier, which was last in " HEC_TEST_DISPATCH) != NULL,
                "%s", text);
}

/* Rank 3 stays away from a gather and is at work elsewhere; then all end with the first failure's text. */
static hec_status run_absent(hec_rank *rank, void *context) {
  (void)context;
  char byte = 0, all[8];
  if (rank->rank != 3) {
    hec_rank_at(rank, &checking);
    HEC_TRY(await_place(rank, 3));
    if (rank->rank == 0)
      hec_test_lets_time_pass(rank);
    return hec_rank_gather(rank, &byte, 1, all);
  }
  hec_test_at_dispatch(rank);
  while (hec_rank_check(rank) == HEC_OK)
    HEC_TRY(rank->transport->wait(rank, hec_clock_ns() + 1000000));
  return HEC_OK;
}

HEC_TEST_LOOP(an_absent_rank_is_named, N_FORMS) {
  hec_launch_options options = hec_test_options_missing(5, _i % 2 == 1, 3, false);
  options.transport = hec_transports[_i / 2];
  const char *text = hec_test_launch_fails(&options, run_absent, NULL);
  ck_assert_str_eq(text, "rank 0, in checking: waited " HEC_TEST_PASSING_TEXT
                         " for rank 3 in a gather, which was last in " HEC_TEST_DISPATCH);
}

/* Rank 0 misses rank 1, which waits for rank 2 (or was stopped in that wait); rank 2 waits for nobody. */
static hec_status run_chain(hec_rank *rank, void *context) {
  const bool *stops = context;
  char byte = 0, all[3];
  HEC_TRY(hec_rank_barrier(rank));
  if (rank->rank == 1)
    hec_rank_waits_for(rank, 2);
  hec_test_at_dispatch(rank);
  if (rank->rank == 0) {
    HEC_TRY(await_place(rank, 1));
    HEC_TRY(await_place(rank, 2));
    hec_test_lets_time_pass(rank);
    return hec_rank_gather(rank, &byte, 1, all);
  }
  for (int i = 0;; i++) {
    HEC_TRY(rank->transport->wait(rank, hec_clock_ns() + 1000000));
    if (rank->rank == 1 && *stops && i == 5)
      hec_test_stop();
  }
}

HEC_TEST_LOOP(the_end_of_a_chain_of_waits_is_named, 2) {
  bool stops = _i == 1;
  hec_launch_options options = hec_test_options_missing(3, false, 1, stops);
  const char *text = hec_test_launch_fails(&options, run_chain, &stops);
  char expected[300];
  (void)snprintf(expected, sizeof expected, "rank 0, in %s: waited %s for rank %d in a gather, which was last in %s",
                 HEC_TEST_DISPATCH, HEC_TEST_PASSING_TEXT, stops ? 1 : 2, HEC_TEST_DISPATCH);
  ck_assert_str_eq(text, expected);
}

/* Rank 1 kills rank 2, which waits for it. */
static hec_status run_killed_in_wait(hec_rank *rank, void *context) {
  _Atomic int32_t *pid = context;
  hec_test_at_dispatch(rank);
  if (rank->rank == 2)
    atomic_store(pid, getpid());
  while (rank->rank == 1 && atomic_load(pid) == 0)
    HEC_TRY(rank->transport->wait(rank, hec_clock_ns() + 1000000));
  if (rank->rank == 1)
    (void)kill(atomic_load(pid), SIGKILL);
  while (rank->rank == 1)
    HEC_TRY(rank->transport->wait(rank, hec_clock_ns() + 1000000));
  return hec_rank_barrier(rank);
}

HEC_TEST_LOOP(killed_in_a_wait, n_transports()) {
  hec_launch_options options = hec_test_options(4, false);
  options.transport = hec_transports[_i];
  const char *text = hec_test_launch_fails(&options, run_killed_in_wait, hec_test_shared_page());
  ck_assert_str_eq(text, "rank 2 was killed by signal 9 (Killed) in " HEC_TEST_DISPATCH);
}

/* Rank 1 loses what it took. Builds with LeakSanitizer notice, and only they. */
extern __attribute__((weak)) int __lsan_do_recoverable_leak_check(void); // NOLINT(bugprone-reserved-identifier)

static hec_status run_leak(hec_rank *rank, void *context) {
  const int32_t *leaks = context;
  static char *volatile taken;
  for (int i = 0; i < 16; i++) { /* an old pointer to one of them may remain in a register */
    taken = hec_malloc(100, 1);
    if (rank->rank != *leaks)
      free(taken);
  }
  taken = NULL;
  return HEC_OK;
}

HEC_TEST(a_leak_is_a_failure) {
  hec_launch_options options = hec_test_options(3, false);
  int32_t none = -1, one = 1;
  hec_test_launch(&options, run_leak, &none);
  if (!__lsan_do_recoverable_leak_check) {
    hec_test_launch(&options, run_leak, &one);
    return;
  }
  ck_assert_str_eq(hec_test_launch_fails(&options, run_leak, &one),
                   "rank 1 left memory that nobody freed; see standard error");
}

/* Computes for ever and never looks: only the supervisor can end it. */
static hec_status run_deaf(hec_rank *rank, void *context) {
  (void)context;
  if (rank->rank == 0)
    return hec_rank_fail(rank, "enough");
  for (volatile uint64_t i = 0;; i++)
    ;
}

HEC_TEST(deaf_ranks_are_killed) {
  hec_launch_options options = hec_test_options_missing(2, false, 0, false);
  ck_assert_str_eq(hec_test_launch_fails(&options, run_deaf, NULL), "rank 0: enough");
}

/* ---- The launching process ---- */

static hec_status run_orphan(hec_rank *rank, void *context) {
  _Atomic int32_t *ready = context;
  (void)atomic_fetch_add(ready, 1);
  for (;;)
    HEC_TRY(rank->transport->wait(rank, hec_clock_ns() + 1000000));
}

HEC_TEST(children_die_with_the_launcher) {
  _Atomic int32_t *ready = hec_test_shared_page();
  ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0); /* orphans come to this process */
  pid_t launcher = fork();
  ck_assert_int_ge(launcher, 0);
  if (launcher == 0) {
    hec_launch_options options = hec_test_options(3, false);
    _exit(hec_launch(&options, run_orphan, (void *)ready) == HEC_OK ? 0 : 1);
  }
  while (atomic_load(ready) < 3)
    (void)sched_yield();
  ck_assert_int_eq(kill(launcher, SIGKILL), 0);
  int n_ranks = 0, outcome;
  for (pid_t pid; (pid = waitpid(-1, &outcome, 0)) > 0; n_ranks += pid != launcher)
    ck_assert(WIFSIGNALED(outcome) && WTERMSIG(outcome) == SIGKILL);
  ck_assert_int_eq(n_ranks, 3);
}

static hec_status run_terminated(hec_rank *rank, void *context) {
  (void)context;
  if (rank->rank == 1)
    (void)raise(SIGTERM);
  return hec_rank_barrier(rank);
}

HEC_TEST(a_dying_rank_leaves_its_parents_files) {
  char path[] = "/tmp/hec-rank-XXXXXX";
  int file = mkstemp(path);
  ck_assert_int_ge(file, 0);
  (void)signal(SIGTERM, SIG_DFL); /* instead of the test library's handler */
  hec_temporary_watch_signals();
  hec_temporary_add(path);
  hec_launch_options options = hec_test_options(2, false);
  const char *text = hec_test_launch_fails(&options, run_terminated, NULL);
  ck_assert_str_eq(text, "rank 1 was killed by signal 15 (Terminated)");
  ck_assert_int_eq(access(path, F_OK), 0);
  hec_temporary_drop(path);
  (void)close(file);
  (void)unlink(path);
}

static hec_status run_printing(hec_rank *rank, void *context) {
  (void)context;
  return printf("rank %d\n", rank->rank) > 0 ? HEC_OK : HEC_FAILED;
}

/* What is buffered at the launch is written once, what ranks print is not lost. */
HEC_TEST_LOOP(output_is_written_once, 2) {
  char path[] = "/tmp/hec-rank-XXXXXX", text[200];
  int fd = mkstemp(path);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_ge(dup2(fd, STDOUT_FILENO), 0);
  (void)printf("before\n");
  hec_launch_options options = hec_test_options(3, _i == 1);
  hec_test_launch(&options, run_printing, NULL);
  (void)fflush(stdout);
  ssize_t n = pread(fd, text, sizeof text - 1, 0);
  (void)unlink(path);
  ck_assert_int_eq(n, (ssize_t)strlen("before\nrank 0\nrank 1\nrank 2\n"));
  text[n] = '\0';
  ck_assert_int_eq(strncmp(text, "before\n", 7), 0);
  for (char rank[] = "rank 0\n"; rank[5] < '3'; rank[5]++)
    ck_assert_ptr_nonnull(strstr(text, rank));
}
