/* NCCL for ranks that are threads of one process: communicators and calls; what groups do is in fake_groups.c.
 *
 * As NCCL does: one rank per device (else "duplicate GPU", ncclInvalidUsage). Calls of a communicator that does not block
 * may answer ncclInProgress, and what they asked for happens only after ncclCommGetAsyncError has been asked often enough.
 * A group is then behind whatever its stream was given meanwhile. Messages are float32, sums are sums; nothing else is
 * needed. Other uses that NCCL forbids end the test. */
#include "tests/cuda/fake_groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ncclResult_t ncclGroupStart(void); /* nccl.h says () */
ncclResult_t ncclGroupEnd(void);

enum { POLLS_MAX = 3, OPEN_MAX = 64 };

static fake_world *worlds;
static ncclComm_t comms;
static uint64_t n_ids;
static _Thread_local int32_t depth; /* of groups */
static _Thread_local fake_group *open_groups[OPEN_MAX];
static _Thread_local int32_t n_open;

/* ---- Words ---- */

ncclResult_t ncclGetVersion(int *version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
  switch (result) {
  case ncclSuccess:
    return "no error";
  case ncclUnhandledCudaError:
    return "unhandled cuda error";
  case ncclSystemError:
    return "unhandled system error";
  case ncclInvalidArgument:
    return "invalid argument";
  case ncclInvalidUsage:
    return "invalid usage";
  case ncclRemoteError:
    return "remote process exited or there was a network error";
  case ncclInProgress:
    return "NCCL operation in progress";
  default:
    return "internal error";
  }
}

const char *ncclGetLastError(ncclComm_t comm) {
  return comm && comm->broken != ncclSuccess ? ncclGetErrorString(comm->broken) : "";
}

/* ---- Communicators ---- */

static ncclResult_t end(ncclResult_t result) {
  (void)fake_end_call(cudaSuccess);
  return result;
}

static ncclResult_t begin(const char *call) {
  cudaError_t error = fake_begin_call("", cudaSuccess);
  if (error != cudaSuccess)
    return ncclUnhandledCudaError;
  return fake_fails(call) ? ncclInternalError : ncclSuccess;
}

static ncclComm_t comm_of(ncclComm_t given) {
  for (ncclComm_t c = comms; c; c = c->next)
    if (c == given && !c->destroyed)
      return c;
  hec_queue_die("%p is not a communicator, or one that was destroyed", (void *)given);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  ncclResult_t result = begin("ncclGetUniqueId");
  memset(id, 0, sizeof *id);
  (void)snprintf(id->internal, sizeof id->internal, "fake %d %llu", (int)getpid(), (unsigned long long)++n_ids);
  return end(result);
}

/* The fake joins no processes: it says so at once, where ranks would wait for each other for ever. */
static bool is_of_this_process(const ncclUniqueId *id) {
  int pid;
  return sscanf(id->internal, "fake %d ", &pid) == 1 && pid == (int)getpid();
}

static fake_world *world_of(const ncclUniqueId *id, int32_t n_ranks) {
  for (fake_world *w = worlds; w; w = w->next)
    if (memcmp(&w->id, id, sizeof *id) == 0) {
      if (w->n_ranks != n_ranks)
        hec_queue_die("NCCL: %d ranks of %d in one communicator", n_ranks, w->n_ranks);
      return w;
    }
  fake_world *world = calloc(1, sizeof *world);
  ncclComm_t *all = calloc((size_t)n_ranks, sizeof(ncclComm_t));
  if (!world || !all)
    hec_queue_die("no memory");
  *world = (fake_world){.id = *id, .n_ranks = n_ranks, .comms = all, .next = worlds};
  worlds = world;
  return world;
}

static bool is_complete(const fake_world *world) {
  return world->n_arrived == world->n_ranks;
}

static void refuse_duplicates(const fake_world *world) {
  for (int32_t r = 0; r < world->n_ranks; r++)
    for (int32_t s = 0; s < world->n_ranks; s++)
      if (r != s && world->comms[r]->device == world->comms[s]->device)
        world->comms[r]->broken = ncclInvalidUsage;
}

static void come(fake_world *world, ncclComm_t comm) {
  if (world->comms[comm->rank])
    hec_queue_die("NCCL: two ranks %d of one communicator", comm->rank);
  world->comms[comm->rank] = comm;
  world->n_arrived++;
  if (is_complete(world))
    refuse_duplicates(world);
  hec_queue_something_new();
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n_ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  ncclResult_t result = begin("ncclCommInitRank");
  *out = NULL;
  if (config && config->magic != 0xcafebeef)
    result = ncclInvalidArgument;
  if (result == ncclSuccess && !is_of_this_process(&id))
    result = ncclSystemError;
  if (result != ncclSuccess || n_ranks < 1 || rank < 0 || rank >= n_ranks)
    return end(result != ncclSuccess ? result : ncclInvalidArgument);
  ncclComm_t comm = calloc(1, sizeof *comm);
  uint64_t *counts = calloc(2 * (size_t)n_ranks, sizeof *counts);
  if (!comm || !counts)
    hec_queue_die("no memory");
  comm->world = world_of(&id, n_ranks);
  comm->rank = rank;
  comm->device = fake_device();
  comm->blocking = !config || config->blocking != 0;
  comm->state = ncclInProgress;
  comm->polls = hec_queue_random(POLLS_MAX);
  comm->sent = counts;
  comm->received = counts + n_ranks;
  comm->next = comms;
  comms = comm;
  *out = comm;
  come(comm->world, comm);
  if (!comm->blocking)
    return end(ncclInProgress);
  while (!is_complete(comm->world))
    if (!hec_queue_wait_for_news())
      hec_queue_die("NCCL: only %d of %d ranks came to a communicator", comm->world->n_arrived, n_ranks);
  comm->state = ncclSuccess;
  return end(comm->broken);
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int n_ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(out, n_ranks, id, rank, NULL);
}

static bool is_on_its_way(const struct ncclComm *comm) {
  return !is_complete(comm->world) || (comm->finalizing && comm->groups);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t given, ncclResult_t *error) {
  fake_enter();
  ncclComm_t comm = comm_of(given);
  if (comm->finalizing)
    hec_queue_run_some();
  if (comm->state == ncclInProgress && comm->broken == ncclSuccess && !is_on_its_way(comm)) {
    if (comm->polls > 0)
      comm->polls--;
    else
      comm->state = ncclSuccess;
    if (comm->state == ncclSuccess && comm->launching) {
      fake_group_queue(comm->launching);
      comm->launching = NULL;
    }
  }
  *error = comm->broken != ncclSuccess ? comm->broken : comm->state;
  if (comm->broken == ncclSuccess && fake_broken(comm->device) != cudaSuccess)
    *error = ncclUnhandledCudaError;
  fake_leave();
  return ncclSuccess;
}

/* ---- Their end ---- */

static bool has_no_groups(void *context) {
  const struct ncclComm *comm = context;
  return !comm->groups || fake_broken(comm->device) != cudaSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t given) {
  ncclResult_t result = begin("ncclCommFinalize");
  ncclComm_t comm = comm_of(given);
  if (result != ncclSuccess)
    return end(result);
  comm->finalizing = true;
  if (comm->blocking) {
    hec_queue_run_until(has_no_groups, comm, "ncclCommFinalize");
    return end(ncclSuccess);
  }
  comm->state = ncclInProgress;
  comm->polls = hec_queue_random(POLLS_MAX);
  return end(ncclInProgress);
}

ncclResult_t ncclCommDestroy(ncclComm_t given) {
  fake_enter();
  ncclComm_t comm = comm_of(given);
  if (!comm->aborted)
    hec_queue_run_until(has_no_groups, comm, "ncclCommDestroy");
  comm->destroyed = true;
  return end(ncclSuccess);
}

/* Its groups do nothing from now on, wherever they are. */
ncclResult_t ncclCommAbort(ncclComm_t given) {
  fake_enter();
  ncclComm_t comm = comm_of(given);
  comm->aborted = comm->destroyed = true;
  fake_group_free(comm->launching);
  comm->launching = NULL;
  hec_queue_something_new();
  return end(ncclSuccess);
}

/* ---- Messages ---- */

static void break_on_request(ncclComm_t comm) {
  const char *text = getenv("FAKE_NCCL_FAIL");
  int rank = -1;
  unsigned long long after = 0;
  if (!text || !*text)
    return;
  if (sscanf(text, "rank:%d,after:%llu", &rank, &after) != 2)
    hec_queue_die("FAKE_NCCL_FAIL: \"%s\" is not \"rank:number,after:number\"", text);
  if (rank == comm->rank && comm->n_groups >= after && comm->broken == ncclSuccess) {
    comm->broken = ncclRemoteError;
    hec_queue_something_new();
  }
}

/* Queues it, or leaves it to ncclCommGetAsyncError. */
static ncclResult_t launch(fake_group *group) {
  ncclComm_t comm = group->comm;
  break_on_request(comm);
  if (comm->broken != ncclSuccess) {
    ncclResult_t result = comm->broken;
    fake_group_free(group);
    return result;
  }
  if (comm->blocking || hec_queue_random(2) == 0) {
    fake_group_queue(group);
    return ncclSuccess;
  }
  comm->launching = group;
  comm->state = ncclInProgress;
  comm->polls = hec_queue_random(POLLS_MAX);
  return ncclInProgress;
}

static ncclResult_t launch_all(void) {
  ncclResult_t result = ncclSuccess;
  for (int32_t i = 0; i < n_open; i++) {
    ncclResult_t one = launch(open_groups[i]);
    if (result == ncclSuccess || result == ncclInProgress)
      result = one == ncclSuccess ? result : one;
  }
  n_open = 0;
  return result;
}

ncclResult_t ncclGroupStart(void) {
  depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  if (depth <= 0)
    return ncclInvalidUsage;
  if (--depth > 0)
    return ncclSuccess;
  ncclResult_t result = begin("ncclGroupEnd");
  if (result == ncclSuccess)
    return end(launch_all());
  for (int32_t i = 0; i < n_open; i++)
    fake_group_free(open_groups[i]);
  n_open = 0;
  return end(result);
}

/* The one that collects the communicator's messages in this thread. */
static fake_group *open_group(ncclComm_t comm, cudaStream_t stream) {
  for (int32_t i = 0; i < n_open; i++)
    if (open_groups[i]->comm == comm) {
      if (open_groups[i]->stream != stream)
        hec_queue_die("NCCL: a group of one communicator on two streams is not emulated");
      return open_groups[i];
    }
  if (n_open == OPEN_MAX)
    hec_queue_die("NCCL: more than %d communicators in a group", OPEN_MAX);
  return open_groups[n_open++] = fake_group_new(comm, stream);
}

static ncclResult_t add(const char *call, ncclComm_t given, fake_message *m, ncclDataType_t type, cudaStream_t on) {
  ncclResult_t result = begin(call);
  ncclComm_t comm = comm_of(given);
  cudaStream_t stream = fake_stream_of(on);
  if (result != ncclSuccess || comm->broken != ncclSuccess)
    return end(result != ncclSuccess ? result : comm->broken);
  if (comm->state != ncclSuccess || comm->finalizing)
    hec_queue_die("%s: the communicator of rank %d is in progress; ncclCommGetAsyncError tells when it no longer is",
                  call, comm->rank);
  if (type != ncclFloat32)
    hec_queue_die("%s: type %d is not emulated", call, (int)type);
  if (stream->device != comm->device)
    hec_queue_die("%s: a stream of device %d, a communicator of device %d", call, stream->device, comm->device);
  if (m->kind != FAKE_REDUCE && (m->peer < 0 || m->peer >= comm->world->n_ranks))
    return end(ncclInvalidArgument);
  uint64_t *index = m->kind == FAKE_REDUCE ? &comm->n_sums
                    : m->kind == FAKE_SEND ? &comm->sent[m->peer]
                                           : &comm->received[m->peer];
  m->index = (*index)++;
  fake_group_add(open_group(comm, stream), m);
  return end(depth == 0 ? launch_all() : ncclSuccess);
}

ncclResult_t ncclSend(const void *from, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add("ncclSend", comm, &(fake_message){.kind = FAKE_SEND, .peer = peer, .from = from, .n = n}, type, stream);
}

ncclResult_t ncclRecv(void *to, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add("ncclRecv", comm, &(fake_message){.kind = FAKE_RECEIVE, .peer = peer, .to = to, .n = n}, type, stream);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
  if (operation != ncclSum)
    hec_queue_die("ncclAllReduce: operation %d is not emulated", (int)operation);
  return add("ncclAllReduce", comm, &(fake_message){.kind = FAKE_REDUCE, .peer = -1, .from = from, .to = to, .n = n},
             type, stream);
}
