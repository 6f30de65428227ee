/* Messages between devices by NCCL. Communicators do not block the host (ncclConfig_t.blocking = 0). A call that is
 * still at work returns ncclInProgress. Its state is asked for until it is something else. That takes as long as
 * connecting does, which `open` makes happen once. Later it is the time that NCCL's own thread needs for the launch. A
 * wait ends when the program says stop, and after as long as `open` had.
 *
 * Everything is sent as float32. NCCL: docs.nvidia.com/deeplearning/nccl, "Fault Tolerance", "Group Calls". */
#include "runtime/exec/cuda/own.h"

#include <nccl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(hec_cuda_id) == sizeof(ncclUniqueId), "an id of NCCL");

struct hec_cuda_communicator {
  ncclComm_t comm;
  hec_cuda_own *own;
  int64_t limit_ns; /* longest wait for NCCL itself */
  bool (*stop)(void *context);
  void *context;
};

/* "WHAT: unhandled system error (NCCL's own words)". */
static const char *words(const char *what, ncclResult_t result, ncclComm_t comm) {
  char why[HEC_CUDA_TEXT_BYTES];
  const char *more = ncclGetLastError(comm);
  if (more && more[0])
    (void)snprintf(why, sizeof why, "%s (%s)", ncclGetErrorString(result), more);
  else
    (void)snprintf(why, sizeof why, "%s", ncclGetErrorString(result));
  return hec_cuda_words(what, why);
}

/* Until the communicator is at work on nothing; NULL: all is well. `result` is what the call returned. */
static const char *settle(const hec_cuda_communicator *by, const char *what, ncclResult_t result, int64_t until_ns) {
  while (result == ncclInProgress) {
    if (by->stop && by->stop(by->context))
      return hec_cuda_words(what, "given up: another rank failed");
    if (by->own->options.clock_ns() >= until_ns)
      return hec_cuda_words(what, "not done in time");
    (void)sched_yield();
    ncclResult_t asked = ncclCommGetAsyncError(by->comm, &result);
    if (asked != ncclSuccess)
      return words(what, asked, by->comm);
  }
  return result == ncclSuccess ? NULL : words(what, result, by->comm);
}

static const char *settle_call(const hec_cuda_communicator *by, const char *what, ncclResult_t result) {
  return settle(by, what, result, by->own->options.clock_ns() + by->limit_ns);
}

/* ---- Communicators ---- */

static const char *make_id(hec_cuda_id *id) {
  ncclUniqueId made;
  ncclResult_t result = ncclGetUniqueId(&made);
  if (result != ncclSuccess)
    return words("an id for a communicator", result, NULL);
  memcpy(id, &made, sizeof *id);
  return NULL;
}

static void close_communicator(hec_cuda_communicator *by, bool abort) {
  if (!by)
    return;
  (void)cudaSetDevice(by->own->options.device);
  if (by->comm && !abort)
    abort = settle_call(by, "closing a communicator", ncclCommFinalize(by->comm)) != NULL;
  if (by->comm)
    (void)(abort ? ncclCommAbort(by->comm) : ncclCommDestroy(by->comm));
  free(by);
}

static const char *open_communicator(hec_processor *on, const hec_cuda_id *id, int32_t n_ranks, int32_t rank,
                                     int64_t until_ns, bool (*stop)(void *context), void *context,
                                     hec_cuda_communicator **out) {
  *out = NULL;
  hec_cuda_communicator *by = calloc(1, sizeof *by);
  if (!by)
    return "no memory";
  hec_cuda_own *own = hec_cuda_own_of(on);
  *by = (hec_cuda_communicator){
      .own = own, .limit_ns = until_ns - own->options.clock_ns(), .stop = stop, .context = context};
  ncclUniqueId made;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  memcpy(&made, id, sizeof made);
  (void)cudaSetDevice(own->options.device);
  ncclResult_t result = ncclCommInitRankConfig(&by->comm, n_ranks, made, rank, &config);
  const char *why = settle(by, "opening a communicator", result, until_ns);
  if (why) {
    close_communicator(by, true);
    return why;
  }
  *out = by;
  return NULL;
}

static const char *check(hec_cuda_communicator *by) {
  ncclResult_t result = ncclSuccess, asked = ncclCommGetAsyncError(by->comm, &result);
  if (asked != ncclSuccess)
    result = asked;
  return result == ncclSuccess || result == ncclInProgress ? NULL : words("a message", result, by->comm);
}

/* ---- Messages ---- */

/* Inside of a group NCCL notes only. */
static const char *noted(const hec_cuda_communicator *by, const char *what, ncclResult_t result) {
  return result == ncclSuccess || result == ncclInProgress ? NULL : words(what, result, by->comm);
}

static cudaStream_t stream_of(const hec_cuda_communicator *by) {
  return hec_cuda_selected(by->own)->stream;
}

static const char *begin(hec_cuda_communicator *by) {
  return noted(by, "messages", ncclGroupStart());
}

static const char *send(hec_cuda_communicator *by, int32_t peer, const float *from, int64_t n) {
  return noted(by, "sending", ncclSend(from, (size_t)n, ncclFloat32, peer, by->comm, stream_of(by)));
}

static const char *receive(hec_cuda_communicator *by, int32_t peer, float *to, int64_t n) {
  return noted(by, "receiving", ncclRecv(to, (size_t)n, ncclFloat32, peer, by->comm, stream_of(by)));
}

static const char *end(hec_cuda_communicator *by) {
  return settle_call(by, "messages", ncclGroupEnd());
}

static const char *allreduce(hec_cuda_communicator *by, float *at, int64_t n) {
  return settle_call(by, "an all-reduce",
                     ncclAllReduce(at, at, (size_t)n, ncclFloat32, ncclSum, by->comm, stream_of(by)));
}

const hec_cuda_messages hec_cuda_messages_table = {
    .make_id = make_id,
    .open = open_communicator,
    .begin = begin,
    .send = send,
    .receive = receive,
    .end = end,
    .allreduce = allreduce,
    .check = check,
    .close = close_communicator,
};
