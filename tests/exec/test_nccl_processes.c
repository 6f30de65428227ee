/* Messages by NCCL between processes, through the plug-in's contract: circles, a lone message, everybody to everybody with
 * sizes of their own, sums. Every number is looked at; all are whole and small, so sums are exact in any order.
 *
 * One device is enough: NCCL refuses two ranks on it only as long as they are of one machine. NCCL_HOSTID says what
 * machine a process is on. It is read once per process. Messages then go through sockets of the loopback: right or
 * wrong is all that this shows. Over the fake, whose NCCL connects threads, the same ranks are threads with a device
 * each. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "runtime/exec/backend.h"
#include "runtime/exec/cuda/plugin.h"
#include "tests/support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 3, SIZES = 3, LIMIT_S = 60, FAILED = 1, SKIPPED = 77 };
static const int64_t sizes[SIZES] = {1, 1000, 300001}; /* the last one is cut into several parts by NCCL */
static const int64_t max = 300001 + RANKS * RANKS;

/* What ranks share. */
typedef struct {
  _Atomic int32_t ready; /* 1: the id is there, -1: it will not come */
  hec_cuda_id id;
  char why[256]; /* without a device: why */
} meeting;

typedef struct {
  meeting *met;
  int32_t rank, device;
  bool failed;
  hec_processor *on;
  hec_cuda_communicator *by;
  float *out, *in, *host; /* [RANKS * most] each, the first two on the device */
} participant;

static const hec_cuda_plugin *plugin;

/* Says what is wrong, once per rank. */
static bool expect(participant *r, bool holds, const char *what, const char *words) {
  if (!holds && !r->failed)
    (void)fprintf(stderr, "rank %d: %s: %s\n", (int)r->rank, what, words ? words : "wrong");
  r->failed = r->failed || !holds;
  return !r->failed;
}

static bool no_error(participant *r, const char *what, const char *words) {
  return expect(r, words == NULL, what, words);
}

/* ---- Numbers ---- */

static float number(int32_t from, int32_t to, int64_t i) {
  return (float)((from * 131 + to * 17 + i) % 4093 + 1);
}

static int64_t size_between(int32_t from, int32_t to, int32_t k) {
  return sizes[k] + from * RANKS + to;
}

/* What this rank sends to each; where it receives is set to what nobody sends. */
static void prepare(participant *r) {
  for (int32_t p = 0; p < RANKS; p++)
    for (int64_t i = 0; i < max; i++)
      r->host[p * max + i] = number(r->rank, p, i);
  r->on->math->to_device(r->on, r->out, r->host, RANKS * max);
  r->on->math->zero(r->on, r->in, RANKS * max);
}

/* n numbers of `from` have come, and no more. */
static void look(participant *r, int32_t from, int64_t n) {
  const float *came = r->host + from * max;
  for (int64_t i = 0; i < max && !r->failed; i++)
    (void)expect(r, came[i] == (i < n ? number(from, r->rank, i) : 0), "numbers that came", NULL);
}

/* ---- Messages ---- */

static void exchange(participant *r, const bool *sends, const bool *receives, int32_t k) {
  const hec_cuda_messages *m = plugin->messages;
  prepare(r);
  (void)no_error(r, "begin", m->begin(r->by));
  for (int32_t p = 0; p < RANKS && !r->failed; p++) {
    if (sends[p])
      (void)no_error(r, "send", m->send(r->by, p, r->out + p * max, size_between(r->rank, p, k)));
    if (receives[p])
      (void)no_error(r, "receive", m->receive(r->by, p, r->in + p * max, size_between(p, r->rank, k)));
  }
  (void)no_error(r, "end", m->end(r->by));
  if (r->failed)
    return;
  r->on->math->to_host(r->on, r->host, r->in, RANKS * max);
  (void)no_error(r, "check", m->check(r->by));
  (void)no_error(r, "the device", r->on->streams->error(r->on));
  for (int32_t p = 0; p < RANKS; p++)
    look(r, p, receives[p] ? size_between(p, r->rank, k) : 0);
}

static void circle(participant *r, int32_t k) {
  bool sends[RANKS] = {false}, receives[RANKS] = {false};
  sends[(r->rank + 1) % RANKS] = receives[(r->rank + RANKS - 1) % RANKS] = true;
  exchange(r, sends, receives, k);
}

/* Rank 0 to the last one; who has no part in it makes no call. */
static void lone(participant *r, int32_t k) {
  bool sends[RANKS] = {false}, receives[RANKS] = {false};
  sends[RANKS - 1] = r->rank == 0;
  receives[0] = r->rank == RANKS - 1;
  if (sends[RANKS - 1] || receives[0])
    exchange(r, sends, receives, k);
}

static void everybody(participant *r, int32_t k) {
  bool others[RANKS];
  for (int32_t p = 0; p < RANKS; p++)
    others[p] = p != r->rank;
  exchange(r, others, others, k);
}

static void sum(participant *r, int32_t k) {
  prepare(r);
  if (!no_error(r, "allreduce", plugin->messages->allreduce(r->by, r->out, sizes[k])))
    return;
  r->on->math->to_host(r->on, r->host, r->out, RANKS * max);
  (void)no_error(r, "the device", r->on->streams->error(r->on));
  for (int64_t i = 0; i < sizes[k] && !r->failed; i++) {
    float all = 0;
    for (int32_t p = 0; p < RANKS; p++)
      all += number(p, 0, i);
    (void)expect(r, r->host[i] == all, "a sum", NULL);
  }
}

/* ---- One rank ---- */

static void meet(participant *r) {
  meeting *met = r->met;
  if (r->rank == 0)
    atomic_store(&met->ready, no_error(r, "make_id", plugin->messages->make_id(&met->id)) ? 1 : -1);
  int64_t until_ns = hec_clock_ns() + (int64_t)LIMIT_S * 1000000000;
  while (atomic_load(&met->ready) == 0 && hec_clock_ns() < until_ns)
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  if (expect(r, atomic_load(&met->ready) == 1, "the id", "it does not come"))
    (void)no_error(r, "open", plugin->messages->open(r->on, &met->id, RANKS, r->rank, until_ns, NULL, NULL, &r->by));
}

static void talk(participant *r) {
  for (int32_t k = 0; k < SIZES && !r->failed; k++) {
    circle(r, k);
    if (!r->failed)
      lone(r, k);
    if (!r->failed)
      everybody(r, k);
    if (!r->failed)
      sum(r, k);
  }
}

static void *run(void *context) {
  participant *r = context;
  const hec_cuda_options options = {.device = r->device, .grouped = true, .clock_ns = hec_clock_ns};
  size_t bytes = (size_t)(RANKS * max) * sizeof(float);
  void *out = NULL, *in = NULL;
  r->host = malloc(bytes);
  if (!expect(r, r->host != NULL, "memory", NULL) || !no_error(r, "device", plugin->device->open(&options, &r->on)))
    return NULL;
  if (no_error(r, "memory", plugin->device->allocate(r->on, bytes, &out)) &&
      no_error(r, "memory", plugin->device->allocate(r->on, bytes, &in))) {
    r->out = out;
    r->in = in;
    meet(r);
    if (!r->failed)
      talk(r);
  }
  if (r->by)
    plugin->messages->close(r->by, r->failed);
  plugin->device->close(r->on);
  free(r->host);
  return NULL;
}

/* 0; SKIPPED with the reason in met->why. */
static int load(meeting *met) {
  HEC_SCOPED(hec_text) why = {0};
  bool there = hec_backend_nccl.available(&why);
  plugin = hec_cuda_plugin_of();
  (void)snprintf(met->why, sizeof met->why, "%s", why.data ? why.data : "");
  return there ? 0 : SKIPPED;
}

/* ---- Tests ---- */

static meeting *share(void) {
  meeting *met = mmap(NULL, sizeof *met, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert(met != MAP_FAILED);
  return met;
}

/* NCCL's variables are read when it is loaded. The driver must not have been started before the fork. */
static int in_process(meeting *met, int32_t rank) {
  static const char *const variables[][2] = {{"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_NET", "Socket"},
                                             {"NCCL_IB_DISABLE", "1"},     {"NCCL_RAS_ENABLE", "0"},
                                             {"NCCL_NVLS_ENABLE", "0"},    {"NCCL_DEBUG", "WARN"}};
  char host[32];
  (void)alarm(2 * LIMIT_S);
  (void)snprintf(host, sizeof host, "rank%d", (int)rank);
  (void)setenv("NCCL_HOSTID", host, 1);
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    (void)setenv(variables[i][0], variables[i][1], 1);
  if (load(met) != 0)
    return SKIPPED;
  if (strstr(met->why, "(fake ")) {
    (void)snprintf(met->why, sizeof met->why, "the NCCL of the fake connects threads");
    return SKIPPED;
  }
  participant r = {.met = met, .rank = rank};
  (void)run(&r);
  return r.failed ? FAILED : 0;
}

HEC_TEST(processes_that_share_a_device) {
  meeting *met = share();
  pid_t children[RANKS];
  int32_t n_skipped = 0;
  (void)fflush(NULL);
  for (int32_t rank = 0; rank < RANKS; rank++)
    if ((children[rank] = fork()) == 0)
      _exit(in_process(met, rank));
  for (int32_t rank = 0; rank < RANKS; rank++) {
    int status;
    ck_assert_int_eq(waitpid(children[rank], &status, 0), children[rank]);
    ck_assert_msg(WIFEXITED(status), "rank %d ended by signal %d", (int)rank, WTERMSIG(status));
    n_skipped += WEXITSTATUS(status) == SKIPPED;
    ck_assert_msg(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == SKIPPED, "rank %d failed", (int)rank);
  }
  if (n_skipped == RANKS)
    hec_test_skip("exec.nccl_processes", met->why);
  ck_assert(n_skipped == 0 || n_skipped == RANKS);
  (void)munmap(met, sizeof *met);
}

HEC_TEST(threads_with_a_device_each_over_the_fake) {
  meeting *met = share();
  participant r[RANKS];
  pthread_t threads[RANKS];
  if (access(HEC_BINARY_DIR "/fake/hecate-cuda.so", F_OK) != 0) {
    hec_test_skip("exec.nccl_processes/fake", "the fake of CUDA is not built here");
    return;
  }
  (void)setenv("HECATE_PLUGINS", HEC_BINARY_DIR "/fake", 1);
  (void)setenv("FAKE_CUDA_DEVICES", "3", 1);
  ck_assert_msg(load(met) == 0, "%s", met->why);
  for (int32_t rank = 0; rank < RANKS; rank++) {
    r[rank] = (participant){.met = met, .rank = rank, .device = rank};
    ck_assert_int_eq(pthread_create(&threads[rank], NULL, run, &r[rank]), 0);
  }
  for (int32_t rank = 0; rank < RANKS; rank++)
    ck_assert_int_eq(pthread_join(threads[rank], NULL), 0);
  for (int32_t rank = 0; rank < RANKS; rank++)
    ck_assert_msg(!r[rank].failed, "rank %d failed", (int)rank);
  (void)munmap(met, sizeof *met);
}
