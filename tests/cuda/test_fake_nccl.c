/* The fake of NCCL: ranks are threads, each with a device of its own. What is in step works with every order, what is not
 * is found. */
#include "tests/cuda/child.h"
#include "tests/cuda/kernels_of_tests.h"
#include "tests/support/test.h"

#include <nccl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum { RANKS = 4, N = 100, SEEDS = 10 };

typedef struct {
  int rank, n_ranks;
  bool blocking;
  ncclUniqueId id;
  int (*body)(int rank, ncclComm_t comm, cudaStream_t stream);
  int result;
} rank_thread;

/* What a communicator that does not block comes to. */
static ncclResult_t settled(ncclComm_t comm) {
  ncclResult_t result = ncclInProgress;
  while (ncclCommGetAsyncError(comm, &result) == ncclSuccess && result == ncclInProgress)
    (void)nanosleep(&(struct timespec){0, 1000}, NULL);
  return result;
}

static void *rank_main(void *argument) {
  rank_thread *self = argument;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm;
  config.blocking = self->blocking;
  EXPECT(cudaSetDevice(self->rank) == cudaSuccess);
  ncclResult_t result = ncclCommInitRankConfig(&comm, self->n_ranks, self->id, self->rank, &config);
  EXPECT(result == (self->blocking ? ncclSuccess : ncclInProgress));
  EXPECT(settled(comm) == ncclSuccess);
  self->result = self->body(self->rank, comm, child_stream());
  return NULL;
}

static int run_ranks(int n_ranks, bool blocking, int (*body)(int rank, ncclComm_t comm, cudaStream_t stream)) {
  rank_thread ranks[RANKS] = {{0}};
  pthread_t threads[RANKS];
  ncclUniqueId id;
  int sum = 0;
  EXPECT(ncclGetUniqueId(&id) == ncclSuccess);
  for (int r = 0; r < n_ranks; r++) {
    ranks[r] = (rank_thread){.rank = r, .n_ranks = n_ranks, .blocking = blocking, .id = id, .body = body};
    EXPECT(pthread_create(&threads[r], NULL, rank_main, &ranks[r]) == 0);
  }
  for (int r = 0; r < n_ranks; r++) {
    (void)pthread_join(threads[r], NULL);
    sum += ranks[r].result;
  }
  return sum;
}

static void end_group(ncclComm_t comm) {
  ncclResult_t result = ncclGroupEnd();
  EXPECT(result == ncclSuccess || (result == ncclInProgress && settled(comm) == ncclSuccess));
}

/* ---- In step ---- */

/* All to all with a number of its own for each pair, a ring, a sum; three times, without a wait in between. */
static int exchange(int rank, ncclComm_t comm, cudaStream_t stream) {
  float *x = child_floats(RANKS * N), *y = child_floats(RANKS * N), *sum = child_floats(N), host[RANKS * N];
  for (int round = 1; round <= 3; round++) {
    for (int i = 0; i < RANKS * N; i++)
      host[i] = (float)(round * 1000 + rank * 100 + i / N);
    EXPECT(cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyHostToDevice, stream) == cudaSuccess);
    EXPECT(ncclGroupStart() == ncclSuccess && ncclGroupStart() == ncclSuccess);
    for (int p = 0; p < RANKS; p++)
      EXPECT(ncclSend(x + p * N, N, ncclFloat32, p, comm, stream) == ncclSuccess);
    EXPECT(ncclGroupEnd() == ncclSuccess); /* the inner one */
    for (int p = 0; p < RANKS; p++)
      EXPECT(ncclRecv(y + p * N, N, ncclFloat32, p, comm, stream) == ncclSuccess);
    end_group(comm);
    test_copy(stream, sum, y + N, N); /* from rank 1: 1000 round + 100 + rank */
    EXPECT(ncclGroupStart() == ncclSuccess);
    EXPECT(ncclAllReduce(sum, sum, N, ncclFloat32, ncclSum, comm, stream) == ncclSuccess);
    end_group(comm);
  }
  child_read(host, y, RANKS * N, stream);
  for (int i = 0; i < RANKS * N; i++)
    EXPECT(host[i] == (float)(3000 + i / N * 100 + rank));
  child_read(host, sum, N, stream);
  for (int i = 0; i < N; i++)
    EXPECT(host[i] == RANKS * 3100 + 6);
  EXPECT(ncclCommFinalize(comm) != ncclInvalidUsage && settled(comm) == ncclSuccess);
  return ncclCommDestroy(comm) == ncclSuccess ? 0 : 1;
}

static int in_step(const void *context) {
  return run_ranks(RANKS, *(const bool *)context, exchange);
}

HEC_TEST(what_is_in_step_works) {
  const bool yes = true, no = false;
  for (int seed = 1; seed <= SEEDS; seed++) {
    char setting[64];
    (void)snprintf(setting, sizeof setting, "FAKE_CUDA_SEED=%d", seed);
    const char *const environment[] = {setting, "FAKE_CUDA_DEVICES=4", NULL};
    child_exits(environment, in_step, &yes, 0);
    child_exits(environment, in_step, &no, 0);
  }
}

/* ---- Out of step ---- */

/* Sends first on both sides: each is a group, and waits for the other one's second. */
static int both_send_first(int rank, ncclComm_t comm, cudaStream_t stream) {
  float *x = child_floats(N), *y = child_floats(N);
  EXPECT(ncclSend(x, N, ncclFloat32, 1 - rank, comm, stream) == ncclSuccess);
  EXPECT(ncclRecv(y, N, ncclFloat32, 1 - rank, comm, stream) == ncclSuccess);
  return (int)cudaStreamSynchronize(stream);
}

static int other_size(int rank, ncclComm_t comm, cudaStream_t stream) {
  float *x = child_floats(N);
  if (rank == 0)
    EXPECT(ncclSend(x, N, ncclFloat32, 1, comm, stream) == ncclSuccess);
  else
    EXPECT(ncclRecv(x, N - 1, ncclFloat32, 0, comm, stream) == ncclSuccess);
  return (int)cudaStreamSynchronize(stream);
}

/* A group that is in progress, and nobody asks. */
static int impatient(int rank, ncclComm_t comm, cudaStream_t stream) {
  float *x = child_floats(N);
  for (int i = 0; i < 20; i++) {
    EXPECT(ncclGroupStart() == ncclSuccess);
    EXPECT(rank == 0 ? ncclSend(x, N, ncclFloat32, 1, comm, stream) == ncclSuccess
                     : ncclRecv(x, N, ncclFloat32, 0, comm, stream) == ncclSuccess);
    (void)ncclGroupEnd();
  }
  return (int)cudaStreamSynchronize(stream);
}

static int run_both_send_first(const void *context) {
  (void)context;
  return run_ranks(2, true, both_send_first);
}
static int run_other_size(const void *context) {
  (void)context;
  return run_ranks(2, true, other_size);
}
static int run_impatient(const void *context) {
  (void)context;
  return run_ranks(2, false, impatient);
}
static int run_alone(const void *context) {
  (void)context;
  ncclComm_t comm;
  ncclUniqueId id;
  EXPECT(ncclGetUniqueId(&id) == ncclSuccess);
  return (int)ncclCommInitRank(&comm, 2, id, 0);
}

HEC_TEST(what_is_out_of_step_is_found) {
  static const char *const environment[] = {"FAKE_CUDA_DEVICES=2", "FAKE_CUDA_PATIENCE=1", NULL};
  child_dies(environment, run_both_send_first, NULL, SIGABRT, "deadlock");
  child_dies(environment, run_both_send_first, NULL, SIGABRT, "at 1 of 2: a group of NCCL waits for rank");
  child_dies(environment, run_other_size, NULL, SIGABRT, "rank 0 sends 100 numbers where rank 1 receives 99");
  child_dies(environment, run_impatient, NULL, SIGABRT, "is in progress");
  child_dies(environment, run_alone, NULL, SIGABRT, "only 1 of 2 ranks came");
}

/* ---- Failures ---- */

/* Rank 1 breaks after three groups; both give up, and the work behind the messages is done all the same. */
static int gives_up(int rank, ncclComm_t comm, cudaStream_t stream) {
  float *x = child_floats(N), *mark = child_floats(1), host = 0;
  ncclResult_t result = ncclSuccess;
  for (int i = 0; i < 5 && result == ncclSuccess; i++) {
    EXPECT(ncclGroupStart() == ncclSuccess);
    result = rank == 0 ? ncclSend(x, N, ncclFloat32, 1, comm, stream) : ncclRecv(x, N, ncclFloat32, 0, comm, stream);
    ncclResult_t ended = ncclGroupEnd();
    result = result != ncclSuccess ? result : ended == ncclInProgress ? settled(comm) : ended;
    EXPECT(result == (rank == 1 && i == 3 ? ncclRemoteError : ncclSuccess));
  }
  EXPECT(cudaMemsetAsync(mark, 0, sizeof *mark, stream) == cudaSuccess);
  EXPECT(settled(comm) == (rank == 1 ? ncclRemoteError : ncclSuccess));
  EXPECT(rank == 0 || strstr(ncclGetLastError(comm), "remote") != NULL);
  for (int i = 0; i < 100 && rank == 0; i++)
    EXPECT(cudaStreamQuery(stream) == cudaErrorNotReady);
  EXPECT(ncclCommAbort(comm) == ncclSuccess);
  host = 1;
  child_read(&host, mark, 1, stream);
  EXPECT(host == 0);
  return 0;
}

static int run_gives_up(const void *context) {
  (void)context;
  return run_ranks(2, false, gives_up);
}

static int one_device_for_two(const void *context) {
  (void)context;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comms[2];
  ncclUniqueId id;
  config.blocking = 0;
  EXPECT(ncclGetUniqueId(&id) == ncclSuccess);
  for (int r = 0; r < 2; r++)
    EXPECT(ncclCommInitRankConfig(&comms[r], 2, id, r, &config) == ncclInProgress);
  EXPECT(settled(comms[0]) == ncclInvalidUsage && settled(comms[1]) == ncclInvalidUsage);
  return 0;
}

HEC_TEST(broken_communicators) {
  static const char *const environment[] = {"FAKE_CUDA_DEVICES=2", "FAKE_NCCL_FAIL=rank:1,after:3", NULL};
  child_exits(environment, run_gives_up, NULL, 0);
  child_exits(NULL, one_device_for_two, NULL, 0);
}
