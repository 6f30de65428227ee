/* Groups of NCCL's messages on the queues of streams: between fake_nccl.c, which makes them, and fake_groups.c, which
 * carries them out. */
#pragma once
#include "tests/cuda/fake.h"

#include <nccl.h>

typedef enum { FAKE_SEND, FAKE_RECEIVE, FAKE_REDUCE } fake_message_kind;

typedef struct {
  fake_message_kind kind;
  int32_t peer; /* -1: of a sum */
  const float *from;
  float *to;
  size_t n;       /* floats */
  uint64_t index; /* among those of the same kind and peer */
  bool done;
} fake_message;

/* What one communicator does in one ncclGroupStart..End: one piece of work of its stream. */
typedef struct fake_group {
  ncclComm_t comm;
  cudaStream_t stream;
  fake_message *messages;
  int32_t n_messages, n_room;
  bool performed, seen;
  int64_t end_ns;          /* performed */
  struct fake_group *next; /* queued after it on the same communicator */
} fake_group;

typedef struct fake_world {
  ncclUniqueId id;
  int32_t n_ranks, n_arrived;
  ncclComm_t *comms; /* [n_ranks] */
  struct fake_world *next;
} fake_world;

struct ncclComm {
  fake_world *world;
  int32_t rank, device;
  bool blocking, aborted, destroyed, finalizing;
  ncclResult_t state; /* ncclInProgress: not yet all ranks, or a group not yet queued */
  ncclResult_t broken;
  uint32_t polls;                 /* that are still answered with ncclInProgress */
  fake_group *launching, *groups; /* on their way to the stream; queued and not performed, in order */
  uint64_t *sent, *received;      /* [n_ranks] messages so far */
  uint64_t n_sums, n_groups;
  struct ncclComm *next;
};

fake_group *fake_group_new(ncclComm_t comm, cudaStream_t stream);
void fake_group_add(fake_group *group, const fake_message *message);
void fake_group_queue(fake_group *group); /* owned by the queue from then on */
void fake_group_free(fake_group *group);
