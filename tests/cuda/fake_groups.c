/* What a group of messages does: nothing until all that it belongs to can be done at once. A group is one kernel: it ends
 * when all of its messages have moved, and a message moves when both ends' groups run. Groups that have messages with each
 * other are thus tied, and those tied to them. All of them must be first in their streams, then all are carried out.
 * (NCCL may do more: it moves single messages of a group whose other messages wait. Programs must not count on it, since
 * the messages of a group share its channels.) O(messages^2) for a set of tied groups: tests are small. */
#include "tests/cuda/fake_groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_group *fake_group_new(ncclComm_t comm, cudaStream_t stream) {
  fake_group *group = calloc(1, sizeof *group);
  if (!group)
    hec_queue_die("no memory");
  group->comm = comm;
  group->stream = stream;
  return group;
}

void fake_group_add(fake_group *group, const fake_message *message) {
  if (group->n_messages == group->n_room) {
    group->n_room = 2 * group->n_room + 4;
    group->messages = realloc(group->messages, (size_t)group->n_room * sizeof *group->messages);
    if (!group->messages)
      hec_queue_die("no memory");
  }
  group->messages[group->n_messages++] = *message;
}

void fake_group_free(fake_group *group) {
  if (!group)
    return;
  free(group->messages);
  free(group);
}

static void forget(fake_group *group) {
  for (fake_group **link = &group->comm->groups; *link; link = &(*link)->next)
    if (*link == group) {
      *link = group->next;
      return;
    }
}

/* ---- Which messages belong together ---- */

typedef struct {
  fake_group *group;
  fake_message *message;
} found;

/* Among what the communicator has queued; group NULL: not there yet. */
static found find(ncclComm_t comm, fake_message_kind kind, int32_t peer, uint64_t index) {
  for (fake_group *g = comm ? comm->groups : NULL; g; g = g->next)
    for (int32_t i = 0; i < g->n_messages; i++) {
      fake_message *m = &g->messages[i];
      if (m->kind == kind && m->peer == peer && m->index == index)
        return (found){g, m};
    }
  return (found){NULL, NULL};
}

static found other_end(const fake_group *group, const fake_message *m) {
  fake_message_kind kind = m->kind == FAKE_SEND ? FAKE_RECEIVE : FAKE_SEND;
  return find(group->comm->world->comms[m->peer], kind, group->comm->rank, m->index);
}

static bool is_first(const fake_group *group) {
  return group->stream->first && group->stream->first->own == group;
}

/* Visits the groups tied to this one; false: one of them is not first in its stream, not queued, or broken. *missing, if
 * wanted: what is not there. */
static bool tied_are_first(fake_group *group, ncclComm_t *missing) {
  if (group->seen)
    return true;
  group->seen = true;
  *missing = group->comm;
  if (!is_first(group) || group->comm->aborted || group->comm->broken != ncclSuccess)
    return false;
  for (int32_t i = 0; i < group->n_messages; i++) {
    const fake_message *m = &group->messages[i];
    const fake_world *world = group->comm->world;
    int32_t begin = m->kind == FAKE_REDUCE ? 0 : m->peer;
    int32_t end = m->kind == FAKE_REDUCE ? world->n_ranks : m->peer + 1;
    for (int32_t r = begin; r < end; r++) {
      found f = m->kind == FAKE_REDUCE ? find(world->comms[r], FAKE_REDUCE, -1, m->index) : other_end(group, m);
      *missing = world->comms[r];
      if (!f.group || !tied_are_first(f.group, missing))
        return false;
    }
  }
  return true;
}

static void clear_seen(const fake_world *world) {
  for (int32_t r = 0; r < world->n_ranks; r++)
    for (fake_group *g = world->comms[r] ? world->comms[r]->groups : NULL; g; g = g->next)
      g->seen = false;
}

static bool group_ready(hec_queue_piece *work) {
  fake_group *group = work->own;
  ncclComm_t missing = NULL;
  if (group->performed || group->comm->aborted)
    return true;
  clear_seen(group->comm->world);
  return tied_are_first(group, &missing);
}

static void explain_group(const hec_queue_piece *work, char *text, size_t bytes) {
  fake_group *group = work->own;
  ncclComm_t missing = NULL;
  clear_seen(group->comm->world);
  if (tied_are_first(group, &missing))
    (void)snprintf(text, bytes, "nothing");
  else if (!missing)
    (void)snprintf(text, bytes, "a rank that never came");
  else
    (void)snprintf(text, bytes, "rank %d (device %d%s), in a group of rank %d with %d messages", missing->rank,
                   missing->device,
                   missing->broken != ncclSuccess ? ", broken"
                   : missing->aborted             ? ", aborted"
                                                  : "",
                   group->comm->rank, group->n_messages);
}

static void need_group(const hec_queue_piece *work) {
  const fake_group *group = work->own;
  for (int32_t i = 0; i < group->n_messages && !group->performed; i++) {
    const fake_message *m = &group->messages[i];
    found f = m->kind == FAKE_REDUCE ? (found){NULL, NULL} : other_end(group, m);
    if (f.group)
      for (const hec_queue_piece *w = f.group->stream->first; w; w = w->next)
        if (w->own == f.group)
          hec_queue_need(f.group->stream, w->position);
  }
}

/* ---- Carrying out ---- */

static void check(const fake_message *m) {
  int32_t device = -1;
  bool in = m->n > 0 && m->from && fake_place_of(m->from, m->n * sizeof(float), "NCCL", &device) != FAKE_DEVICE;
  bool out = m->n > 0 && m->to && fake_place_of(m->to, m->n * sizeof(float), "NCCL", &device) != FAKE_DEVICE;
  if (in || out)
    hec_queue_die("NCCL: a message in memory of the host");
}

static void move(const fake_group *group, fake_message *m) {
  found f = other_end(group, m);
  if (f.message->n != m->n)
    hec_queue_die("NCCL: rank %d sends %zu numbers where rank %d receives %zu",
                  m->kind == FAKE_SEND ? group->comm->rank : m->peer, m->kind == FAKE_SEND ? m->n : f.message->n,
                  m->kind == FAKE_SEND ? m->peer : group->comm->rank, m->kind == FAKE_SEND ? f.message->n : m->n);
  fake_message *send = m->kind == FAKE_SEND ? m : f.message, *receive = m->kind == FAKE_SEND ? f.message : m;
  check(send);
  check(receive);
  memmove(receive->to, send->from, m->n * sizeof(float));
  send->done = receive->done = true;
}

/* The sum of all ranks in the order of ranks. */
static void reduce(const fake_world *world, const fake_message *m) {
  float *sum = calloc(m->n + 1, sizeof *sum);
  if (!sum)
    hec_queue_die("no memory");
  for (int32_t r = 0; r < world->n_ranks; r++) {
    const fake_message *of = find(world->comms[r], FAKE_REDUCE, -1, m->index).message;
    if (of->n != m->n)
      hec_queue_die("NCCL: a sum of %zu numbers on one rank and %zu on rank %d", m->n, of->n, r);
    check(of);
    for (size_t i = 0; i < m->n; i++)
      sum[i] += of->from[i];
  }
  for (int32_t r = 0; r < world->n_ranks; r++) {
    fake_message *of = find(world->comms[r], FAKE_REDUCE, -1, m->index).message;
    if (m->n > 0)
      memcpy(of->to, sum, m->n * sizeof *sum);
    of->done = true;
  }
  free(sum);
}

static void perform(const fake_group *group) {
  for (int32_t i = 0; i < group->n_messages; i++) {
    fake_message *m = &group->messages[i];
    if (m->done)
      continue;
    if (m->kind == FAKE_REDUCE)
      reduce(group->comm->world, m);
    else
      move(group, m);
  }
}

/* All groups that tied_are_first has seen. */
static void perform_seen(const fake_world *world) {
  int64_t end_ns = 0;
  for (int32_t r = 0; r < world->n_ranks; r++)
    for (const fake_group *g = world->comms[r]->groups; g; g = g->next)
      if (g->seen) {
        int64_t begin_ns = g->stream->first->queued_ns;
        perform(g);
        begin_ns = begin_ns > g->stream->clock_ns ? begin_ns : g->stream->clock_ns;
        end_ns = end_ns > begin_ns ? end_ns : begin_ns;
      }
  for (int32_t r = 0; r < world->n_ranks; r++)
    for (fake_group *g = world->comms[r]->groups, *next; g; g = next) {
      next = g->next;
      if (g->seen) {
        g->performed = true;
        g->end_ns = end_ns;
        forget(g);
      }
    }
}

static void run_group(hec_queue_piece *work) {
  fake_group *group = work->own;
  ncclComm_t missing = NULL;
  if (!group->performed && !group->comm->aborted) {
    const fake_world *world = group->comm->world;
    clear_seen(world);
    for (int32_t r = 0; r < world->n_ranks; r++)
      if (!world->comms[r])
        hec_queue_die("NCCL: a group of a communicator that is not complete");
    (void)tied_are_first(group, &missing);
    perform_seen(world);
  }
  if (work->stream->clock_ns < group->end_ns)
    work->stream->clock_ns = group->end_ns;
}

static void drop_group(hec_queue_piece *work) {
  fake_group *group = work->own;
  if (!group->performed)
    forget(group);
  fake_group_free(group);
}

static void log_group(const fake_group *group) {
  char text[1024] = "";
  size_t at = 0;
  for (int32_t i = 0; i < group->n_messages && at < sizeof text - 64; i++) {
    const fake_message *m = &group->messages[i];
    size_t bytes = m->n * sizeof(float);
    if (m->kind == FAKE_REDUCE)
      at += (size_t)snprintf(text + at, sizeof text - at, " sum %zu", bytes);
    else
      at += (size_t)snprintf(text + at, sizeof text - at, " %s %d %zu", m->kind == FAKE_SEND ? "send" : "receive",
                             m->peer, bytes);
  }
  fake_log(group->stream, "nccl %d%s", group->comm->rank, text);
}

void fake_group_queue(fake_group *group) {
  fake_group **link = &group->comm->groups;
  while (*link)
    link = &(*link)->next;
  *link = group;
  group->comm->n_groups++;
  log_group(group);
  fake_queue(group->stream, &(hec_queue_piece){.name = "a group of NCCL",
                                               .ready = group_ready,
                                               .run = run_group,
                                               .drop = drop_group,
                                               .explain = explain_group,
                                               .need = need_group,
                                               .own = group});
}
