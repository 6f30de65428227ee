/* See launch_case.h. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "tests/exec/launch_case.h"
#include "runtime/exec/launch/world.h"
#include "tests/support/check_main.h"
#include "tests/support/queued_cpu.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

hec_launch_options hec_test_options(int32_t n_ranks, bool threads) {
  return (hec_launch_options){
      .n_ranks = n_ranks, .threads = threads, .transport = &hec_transport_shm, .memory_bytes = 1 << 20, .limit_s = 100};
}

/* ---- Waits ---- */

enum { SECOND_NS = 1000000000 };
static struct passing {
  _Atomic int64_t ahead_ns, passed_ns; /* passed_ns: when time last passed */
  atomic_bool stopped;
} * passing; /* shared with the ranks */
static int32_t missed_rank;
static bool missed_stops;
static pid_t supervisor;               /* 0: ranks are threads, and nobody supervises */
static _Thread_local hec_rank *passer; /* NULL: time does not pass for this rank */

static bool may_pass(const hec_rank *rank) {
  const hec_rank_slot *slots = rank->world->slots;
  bool may = atomic_load(&slots[rank->rank].waits_for) == missed_rank;
  for (int32_t r = 0; may && r < rank->n_ranks; r++)
    if (r == missed_rank && missed_stops)
      may = atomic_load(&passing->stopped);
    else if (r != rank->rank && !atomic_load(&slots[r].ended))
      may = atomic_load(&slots[r].awake_ns) > atomic_load(&passing->passed_ns);
  return may;
}

/* The supervisor looks after a failure alone. */
static int64_t pass(int64_t now_ns) {
  if (getpid() == supervisor)
    return now_ns + atomic_fetch_add(&passing->ahead_ns, SECOND_NS);
  if (!passer || !may_pass(passer))
    return now_ns + atomic_load(&passing->ahead_ns);
  int64_t quarter_ns = (int64_t)HEC_TEST_PASSING_S * SECOND_NS / 4;
  now_ns += atomic_fetch_add(&passing->ahead_ns, quarter_ns) + quarter_ns;
  atomic_store(&passing->passed_ns, now_ns);
  return now_ns;
}

void hec_test_miss(int32_t missed, bool stops, bool threads) {
  passing = hec_test_shared_page();
  missed_rank = missed;
  missed_stops = stops;
  supervisor = threads ? 0 : getpid();
  hec_rank_clock_hook = pass;
}

hec_launch_options hec_test_options_missing(int32_t n_ranks, bool threads, int32_t missed, bool stops) {
  hec_launch_options options = hec_test_options(n_ranks, threads);
  options.limit_s = HEC_TEST_PASSING_S;
  hec_test_miss(missed, stops, threads);
  return options;
}

void hec_test_lets_time_pass(hec_rank *rank) {
  passer = rank;
}

void hec_test_stop(void) {
  atomic_store(&passing->stopped, true);
  (void)raise(SIGSTOP);
}

/* ---- Launches ---- */

void hec_test_no_child_is_left(void) {
  ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
  ck_assert_int_eq(errno, ECHILD);
}

void hec_test_launch(const hec_launch_options *options, hec_rank_body *body, void *context) {
  if (hec_launch(options, body, context) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  hec_test_no_child_is_left();
}

const char *hec_test_launch_fails(const hec_launch_options *options, hec_rank_body *body, void *context) {
  ck_assert_int_eq(hec_launch(options, body, context), HEC_FAILED);
  hec_test_no_child_is_left();
  return hec_last_error();
}

hec_status hec_test_on_device(hec_rank *rank, const hec_device_link *link, uint64_t seed, hec_rank_body *work,
                              void *context) {
  rank->processor = hec_queued_cpu_new(seed);
  rank->link = link;
  hec_status status = link->open(rank);
  if (status == HEC_OK)
    status = work(rank, context);
  link->close(rank, status != HEC_OK);
  hec_queued_cpu_free(rank->processor);
  rank->processor = &hec_processor_cpu;
  return status;
}

void *hec_test_shared_page(void) {
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert_ptr_ne(page, MAP_FAILED);
  return page;
}

void hec_test_at_dispatch(hec_rank *rank) {
  hec_rank_at(rank, &(hec_place){.iteration = 12, .op = 57, .layer = 3, .role = HEC_ROLE_DISPATCH});
}
