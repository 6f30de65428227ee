/* Transport over MPI: the plug-in.
 *
 * Protocol. Every lane has its own communicator, so lanes never match each other's messages. A message of B bytes
 * travels in units of U bytes (the chunk of a chained post, at most 8 MiB): ceil(B / U) MPI messages. Both sides know B
 * and U, so each may cut its buffer into segments as it likes. A unit in one piece is sent as it lies, one in several pieces
 * through a derived datatype. Both have the type signature of so many bytes. The tag is the index of the message among those of
 * the post with that peer. The units of one message arrive in order because MPI does not overtake on (communicator, peer, tag).
 * Chains through the same pair do not hold each other up. Small units keep both ends at work at once. 400 MB in 2000
 * segments between two processes of a machine took 0.05 s so, and 0.5 s as one message (tests/exec/program_mpi.c,
 * "large").
 *
 * Progress. A message has up to WINDOW units with MPI at a time, in a ring of requests: unit u in slot u mod window. A
 * unit counts as moved once it and all before it are complete. A forward hands unit u over when its receive has moved
 * that far. A step costs one MPI_Testsome over the requests of a lane, O(messages * window).
 *
 * Waiting polls (MPI offers nothing to sleep on). While every rank of the machine can have a core, some polls go back
 * to back. Later ones sleep in between, so that more ranks than cores do not take the processor from each other.
 *
 * Reference: MPI 3.1, sections 3.5 (order), 4.1 (derived datatypes), 6.4.2 (MPI_Comm_idup). */
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT */
#include "runtime/exec/mpi/plugin.h"

#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A sleep ends up to some 70 us late: after POLL_NS_ALONE of polling that is a small part of the wait.
 * A rank with a core of its own does not offer it to others meanwhile: they would keep it for milliseconds. */
enum { WINDOW = 8, POLL_NS_ALONE = 1000000, POLLS_CROWDED = 4, SLEEP_NS_MIN = 20000, SLEEP_NS_MAX = 50000 };
/* A message travels in units. Open MPI needs large ones where both directions run at once (1 MiB: three quarters of
 * MPI_Allgatherv, 8 MiB: all of it, hecate-bench collectives). One unit for everything makes it slow with many segments. */
static const int64_t unit_bytes_max = 8 << 20;

static const hec_mpi_host *host;

typedef struct {
  hec_message *message;
  bool send;
  int32_t tag, segment; /* segment: of the next unit to hand over, which begins at `offset` in it */
  int64_t offset, posted;
} flow;

typedef struct {
  MPI_Comm comm;
  hec_post *post; /* in progress; NULL: none */
  int64_t unit;
  int32_t window, n_flows, n_moving; /* n_moving: flows that are not complete */
  bool said;                         /* a wait has returned since the post was complete */
  flow *flows;                       /* [n_flows] receives, then sends */
  MPI_Request *requests;             /* [n_flows * window] */
  int *finished;                     /* [n_flows * window] for MPI_Testsome */
  MPI_Status *statuses;              /* likewise */
  size_t flows_capacity, requests_capacity, finished_capacity, statuses_capacity;
} lane_state;

typedef struct {
  lane_state lanes[HEC_N_CHANNELS];
  int64_t poll_ns; /* of polling back to back before a wait sleeps; 0: POLLS_CROWDED polls */
  int64_t unit;    /* largest message handed to MPI */
  int32_t *n_to;   /* [2 * n_ranks] messages from, to each peer in the post being started */
  int *lengths;    /* of the pieces of a unit */
  MPI_Aint *places;
  size_t lengths_capacity, places_capacity, n_to_capacity;
} channels;

#define RESERVE(array, capacity, need)                                                                                 \
  ((array) = (size_t)(need) <= (capacity) ? (array) : host->grow((array), &(capacity), (size_t)(need), sizeof *(array)))

static int64_t now_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sleep_ns(int64_t ns) {
  struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
  (void)nanosleep(&t, NULL);
}

static hec_status mpi_failed(hec_rank *rank, int code, const char *what) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
    (void)snprintf(text, sizeof text, "error %d", code);
  return host->fail(rank, "MPI: %s: %s", what, text);
}

#define TRY_MPI(rank, call, what)                                                                                      \
  do {                                                                                                                 \
    int try_code_ = (call);                                                                                            \
    if (try_code_ != MPI_SUCCESS)                                                                                      \
      return mpi_failed((rank), try_code_, (what));                                                                    \
  } while (0)

/* ---- Units ---- */

static int64_t unit_length(const lane_state *lane, const hec_message *message, int64_t at) {
  int64_t left = message->bytes - at;
  return left < lane->unit ? left : lane->unit;
}

/* The next `bytes` of the flow as pieces: lengths and addresses in c->lengths, c->places; neighbours are joined. */
static int take_pieces(channels *c, flow *f, int64_t bytes) {
  int n = 0;
  for (; bytes > 0; f->segment++, f->offset = 0) {
    const hec_segment *segment = &f->message->segments[f->segment];
    int64_t length = segment->bytes - f->offset;
    bool whole = length <= bytes;
    length = whole ? length : bytes;
    MPI_Aint place = (MPI_Aint)((char *)segment->at + f->offset);
    if (length > 0 && n > 0 && c->places[n - 1] + c->lengths[n - 1] == place) {
      c->lengths[n - 1] += (int)length;
    } else if (length > 0) {
      RESERVE(c->lengths, c->lengths_capacity, n + 1);
      RESERVE(c->places, c->places_capacity, n + 1);
      c->lengths[n] = (int)length;
      c->places[n++] = place;
    }
    bytes -= length;
    if (!whole) {
      f->offset += length;
      break;
    }
  }
  return n;
}

static int hand_over(const lane_state *lane, const flow *f, void *at, int count, MPI_Datatype type,
                     MPI_Request *request) {
  if (f->send)
    return MPI_Isend(at, count, type, f->message->peer, f->tag, lane->comm, request);
  return MPI_Irecv(at, count, type, f->message->peer, f->tag, lane->comm, request);
}

/* Hands the next unit of a flow to MPI. */
static hec_status post_unit(hec_rank *rank, lane_state *lane, flow *f, MPI_Request *request) {
  channels *c = rank->channels;
  int64_t bytes = unit_length(lane, f->message, f->posted);
  int n = take_pieces(c, f, bytes);
  if (n == 1) {
    TRY_MPI(rank, hand_over(lane, f, (void *)c->places[0], c->lengths[0], MPI_BYTE, request), "starting a message");
  } else {
    MPI_Datatype type;
    TRY_MPI(rank, MPI_Type_create_hindexed(n, c->lengths, c->places, MPI_BYTE, &type), "describing a message");
    TRY_MPI(rank, MPI_Type_commit(&type), "describing a message");
    TRY_MPI(rank, hand_over(lane, f, MPI_BOTTOM, 1, type, request), "starting a message");
    TRY_MPI(rank, MPI_Type_free(&type), "describing a message"); /* lives until the message is complete */
  }
  f->posted += bytes;
  return HEC_OK;
}

/* Books complete units and hands over what may go now. `flow_at`: index of the flow. */
static hec_status advance(hec_rank *rank, lane_state *lane, int32_t flow_at) {
  flow *f = &lane->flows[flow_at];
  hec_message *message = f->message;
  MPI_Request *ring = lane->requests + (size_t)flow_at * (size_t)lane->window;
  if (message->moved == message->bytes)
    return HEC_OK;
  while (message->moved < f->posted && ring[message->moved / lane->unit % lane->window] == MPI_REQUEST_NULL)
    message->moved += unit_length(lane, message, message->moved);
  /* Receives come first among the flows, so a forward sees what its receive has moved in this very step. */
  int64_t limit = message->bytes;
  if (f->send && message->after >= 0)
    limit = lane->post->receives[message->after].moved;
  while (f->posted < message->bytes && f->posted + unit_length(lane, message, f->posted) <= limit &&
         f->posted - message->moved < lane->unit * lane->window)
    HEC_TRY(post_unit(rank, lane, f, &ring[f->posted / lane->unit % lane->window]));
  lane->n_moving -= message->moved == message->bytes;
  return HEC_OK;
}

/* A receive that brought less than its message says is an error of the sender; MPI itself reports only more. */
static hec_status check_received(hec_rank *rank, const lane_state *lane, int request, MPI_Status *status) {
  const flow *f = &lane->flows[request / lane->window];
  if (f->send)
    return HEC_OK;
  int64_t unit = f->message->moved / lane->unit, slot = request % lane->window;
  unit += (slot - unit % lane->window + lane->window) % lane->window; /* the ring holds the window from `moved` on */
  int64_t expected = unit_length(lane, f->message, unit * lane->unit);
  int count = 0;
  TRY_MPI(rank, MPI_Get_elements(status, MPI_BYTE, &count), "counting a message");
  if (count != expected)
    return host->fail(rank, "MPI: a message from rank %d has %d bytes instead of %lld", f->message->peer, count,
                      (long long)expected);
  return HEC_OK;
}

/* Moves what can be moved now on one lane; *changed is set when anything did. */
static hec_status progress(hec_rank *rank, lane_state *lane, bool *changed) {
  for (int n_finished = 1; lane->post && lane->n_moving > 0 && n_finished > 0;) {
    int code = MPI_Testsome(lane->n_flows * lane->window, lane->requests, &n_finished, lane->finished, lane->statuses);
    for (int i = 0; code == MPI_ERR_IN_STATUS && i < n_finished; i++)
      if (lane->statuses[i].MPI_ERROR != MPI_SUCCESS && lane->statuses[i].MPI_ERROR != MPI_ERR_PENDING)
        code = lane->statuses[i].MPI_ERROR;
    TRY_MPI(rank, code, "moving messages");
    if (n_finished == MPI_UNDEFINED || n_finished == 0)
      return HEC_OK;
    *changed = true;
    for (int i = 0; i < n_finished; i++)
      HEC_TRY(check_received(rank, lane, lane->finished[i], &lane->statuses[i]));
    for (int32_t i = 0; i < lane->n_flows; i++)
      HEC_TRY(advance(rank, lane, i));
  }
  return HEC_OK;
}

/* ---- The table ---- */

static hec_status add_flow(hec_rank *rank, lane_state *lane, hec_message *message, bool send) {
  channels *c = rank->channels;
  int64_t bytes = 0;
  for (int32_t i = 0; i < message->n_segments; i++)
    bytes += message->segments[i].bytes;
  if (bytes != message->bytes || bytes < 1 || message->peer < 0 || message->peer >= rank->n_ranks)
    return host->fail(rank, "MPI: a message with rank %d is not well formed", message->peer);
  message->moved = 0;
  int32_t tag = c->n_to[2 * message->peer + send]++;
  if (tag > 32767) /* the largest that every MPI has */
    return host->fail(rank, "MPI: more than 32768 messages in one post with rank %d", message->peer);
  lane->flows[lane->n_flows++] = (flow){.message = message, .send = send, .tag = tag};
  return HEC_OK;
}

/* The first units. Receives first. Then sends, from the peer after this rank on. Were rank 0 everybody's first, its
 * port would fill while the last rank's stands idle. With 4 hosts of 4 MB/s, 400 kB each, that takes 340 ms; so it
 * takes 310 ms. */
static hec_status advance_in_turn(hec_rank *rank, lane_state *lane) {
  int32_t n = lane->n_flows, first = 0;
  while (first < n && !(lane->flows[first].send && lane->flows[first].message->peer > rank->rank))
    first++;
  for (int32_t i = 0; i < n; i++)
    if (!lane->flows[i].send)
      HEC_TRY(advance(rank, lane, i));
  for (int32_t i = 0; i < n; i++)
    if (lane->flows[(first + i) % n].send)
      HEC_TRY(advance(rank, lane, (first + i) % n));
  return HEC_OK;
}

static hec_status start(hec_rank *rank, hec_post *post) {
  channels *c = rank->channels;
  lane_state *lane = &c->lanes[post->lane];
  if (lane->post || post->add)
    return host->fail(rank, "MPI: %s", post->add ? "it cannot add" : "a lane is posted twice");
  int64_t bytes_max = 1;
  for (int32_t i = 0; i < post->n_receives; i++)
    bytes_max = post->receives[i].bytes > bytes_max ? post->receives[i].bytes : bytes_max;
  for (int32_t i = 0; i < post->n_sends; i++)
    bytes_max = post->sends[i].bytes > bytes_max ? post->sends[i].bytes : bytes_max;
  lane->unit = post->chunk_bytes > 0 && post->chunk_bytes < c->unit ? post->chunk_bytes : c->unit;
  int64_t units = (bytes_max + lane->unit - 1) / lane->unit;
  lane->window = units < WINDOW ? (int32_t)units : WINDOW;

  int32_t n_flows = post->n_receives + post->n_sends;
  int n_requests = n_flows * lane->window;
  RESERVE(lane->flows, lane->flows_capacity, n_flows);
  RESERVE(lane->requests, lane->requests_capacity, n_requests);
  RESERVE(lane->finished, lane->finished_capacity, n_requests);
  RESERVE(lane->statuses, lane->statuses_capacity, n_requests);
  for (int i = 0; i < n_requests; i++)
    lane->requests[i] = MPI_REQUEST_NULL;
  memset(c->n_to, 0, 2 * (size_t)rank->n_ranks * sizeof *c->n_to);
  lane->n_flows = 0;
  for (int32_t i = 0; i < post->n_receives; i++)
    HEC_TRY(add_flow(rank, lane, &post->receives[i], false));
  for (int32_t i = 0; i < post->n_sends; i++)
    HEC_TRY(add_flow(rank, lane, &post->sends[i], true));
  lane->n_moving = n_flows;
  lane->said = false;
  lane->post = post;
  return advance_in_turn(rank, lane);
}

static hec_status test(hec_rank *rank, hec_post *post, bool *done) {
  lane_state *lane = &((channels *)rank->channels)->lanes[post->lane];
  bool changed = false;
  HEC_TRY(progress(rank, lane, &changed));
  *done = lane->n_moving == 0;
  if (*done)
    lane->post = NULL;
  return HEC_OK;
}

static hec_status wait_until(hec_rank *rank, int64_t until_ns) {
  channels *c = rank->channels;
  int64_t pause = SLEEP_NS_MIN, poll_until_ns = now_ns() + c->poll_ns;
  for (int32_t polls = 0;; polls++) {
    bool changed = false;
    for (int i = 0; i < HEC_N_CHANNELS; i++) {
      lane_state *lane = &c->lanes[i];
      HEC_TRY(progress(rank, lane, &changed));
      bool complete = lane->post && lane->n_moving == 0;
      changed =
          changed || (complete && !lane->said); /* a stage asks for its sends late: said again, waits would spin */
      lane->said = complete;
    }
    int64_t now = now_ns(), left = until_ns - now;
    if (changed || left <= 0)
      return HEC_OK;
    rank->looked_ns = now;
    if (polls < POLLS_CROWDED && c->poll_ns == 0) {
      (void)sched_yield();
    } else if (now >= poll_until_ns) {
      sleep_ns(pause < left ? pause : left);
      pause = pause + pause / 4 < SLEEP_NS_MAX ? pause + pause / 4 : SLEEP_NS_MAX;
    }
  }
}

/* Waits for requests of `open`, within the rank's limit. */
static hec_status finish(hec_rank *rank, int n, MPI_Request *requests, const char *what) {
  int64_t until = now_ns() + rank->limit_ns;
  for (int at = 0, done;;) {
    MPI_Status status;
    while (at < n) {
      TRY_MPI(rank, MPI_Test(&requests[at], &done, &status), what);
      if (!done)
        break;
      at++;
    }
    if (at == n)
      return HEC_OK;
    if (now_ns() > until)
      return host->fail(rank, "MPI: %s: not all ranks came within %.3g s", what, (double)rank->limit_ns * 1e-9);
    sleep_ns(SLEEP_NS_MIN);
  }
}

/* One byte to and from every peer: libraries connect a pair when it first speaks. */
static hec_status greet(hec_rank *rank, MPI_Comm comm) {
  size_t n = (size_t)rank->n_ranks, bytes_capacity = 0, requests_capacity = 0;
  char *bytes = NULL;
  MPI_Request *requests = NULL;
  RESERVE(bytes, bytes_capacity, 2 * n);
  RESERVE(requests, requests_capacity, 2 * n);
  memset(bytes, 0, 2 * n);
  int code = MPI_SUCCESS;
  for (int r = 0; r < rank->n_ranks && code == MPI_SUCCESS; r++) {
    int to = (rank->rank + r) % rank->n_ranks, from = (rank->rank + rank->n_ranks - r) % rank->n_ranks;
    requests[2 * r + 1] = MPI_REQUEST_NULL;
    code = MPI_Irecv(bytes + r, 1, MPI_BYTE, from, 0, comm, &requests[2 * r]);
    if (code == MPI_SUCCESS)
      code = MPI_Isend(bytes + n, 1, MPI_BYTE, to, 0, comm, &requests[2 * r + 1]);
  }
  hec_status status = code == MPI_SUCCESS ? finish(rank, 2 * rank->n_ranks, requests, "connecting the ranks")
                                          : mpi_failed(rank, code, "connecting the ranks");
  if (status == HEC_OK)
    free(bytes); /* after a failure MPI may still write there */
  free(requests);
  return status;
}

/* Polls of a wait before it sleeps: spinning is fine only while no other rank of the machine needs the core. Machines
 * are told apart by a hash of their names (a collision only makes waits gentler); MPI_Comm_split_type has no limit. */
static hec_status choose_polling(hec_rank *rank, channels *c) {
  char name[MPI_MAX_PROCESSOR_NAME + 1] = "";
  int length = 0;
  TRY_MPI(rank, MPI_Get_processor_name(name, &length), "naming the machine");
  uint64_t hash = 0xcbf29ce484222325, *hashes = NULL; /* FNV-1a */
  for (int i = 0; i < length; i++)
    hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3;
  size_t capacity = 0;
  RESERVE(hashes, capacity, (size_t)rank->n_ranks);
  MPI_Request request;
  TRY_MPI(rank, MPI_Iallgather(&hash, 8, MPI_BYTE, hashes, 8, MPI_BYTE, c->lanes[0].comm, &request), "counting ranks");
  HEC_TRY(finish(rank, 1, &request, "counting ranks"));
  int32_t n_here = 0;
  for (int r = 0; r < rank->n_ranks; r++)
    n_here += hashes[r] == hash;
  free(hashes);
  c->poll_ns = n_here <= sysconf(_SC_NPROCESSORS_ONLN) ? POLL_NS_ALONE : 0;
  return HEC_OK;
}

/* HECATE_MPI_UNIT (bytes) makes units smaller than 8 MiB: for tests, on all ranks alike. */
static int64_t unit_wanted(void) {
  const char *text = getenv("HECATE_MPI_UNIT");
  long long wanted = text ? strtoll(text, NULL, 10) : 0;
  return wanted > 0 && wanted < unit_bytes_max ? wanted : unit_bytes_max;
}

static hec_status open_channels(hec_rank *rank) {
  size_t capacity = 0;
  channels *c = NULL;
  RESERVE(c, capacity, 1);
  memset(c, 0, sizeof *c);
  for (int i = 0; i < HEC_N_CHANNELS; i++)
    c->lanes[i].comm = MPI_COMM_NULL;
  rank->channels = c;
  RESERVE(c->n_to, c->n_to_capacity, 2 * (size_t)rank->n_ranks);
  c->unit = unit_wanted();
  for (int i = 0; i < HEC_N_CHANNELS; i++) {
    MPI_Request request;
    TRY_MPI(rank, MPI_Comm_idup(MPI_COMM_WORLD, &c->lanes[i].comm, &request), "opening a lane");
    HEC_TRY(finish(rank, 1, &request, "opening a lane"));
  }
  HEC_TRY(choose_polling(rank, c));
  return greet(rank, c->lanes[0].comm);
}

static void close_channels(hec_rank *rank) {
  channels *c = rank->channels;
  if (!c)
    return;
  bool idle = true;
  for (int i = 0; i < HEC_N_CHANNELS; i++)
    idle = idle && !c->lanes[i].post && c->lanes[i].comm != MPI_COMM_NULL;
  rank->channels = NULL;
  if (!idle)
    return; /* after a failure, the process is about to end: MPI may still use what it was given */
  for (int i = 0; i < HEC_N_CHANNELS; i++) {
    lane_state *lane = &c->lanes[i];
    (void)MPI_Comm_free(&lane->comm);
    free(lane->flows);
    free(lane->requests);
    free(lane->finished);
    free(lane->statuses);
  }
  free(c->n_to);
  free(c->lengths);
  free(c->places);
  free(c);
}

static const hec_transport transport = {
    .name = "mpi",
    .summary = "messages of the MPI library",
    .open = open_channels,
    .start = start,
    .test = test,
    .wait = wait_until,
    .close = close_channels,
};

/* ---- The library's own collectives ---- */

static bool all_barrier(void) {
  return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS;
}

static bool all_gatherv(float *buffer, const int *counts, const int *places) {
  return MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, buffer, counts, places, MPI_FLOAT, MPI_COMM_WORLD) == MPI_SUCCESS;
}

static bool all_reduce_scatter(const float *terms, float *sums, const int *counts) {
  return MPI_Reduce_scatter(terms, sums, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS;
}

static const hec_mpi_collectives collectives = {
    .barrier = all_barrier, .allgatherv = all_gatherv, .reduce_scatter = all_reduce_scatter};

/* ---- The plug-in ---- */

/* Counted once, together: by all ranks of a machine. */
static int32_t ranks_here = 1, cores_here = 1, ranks_per_host;
static bool speaks; /* rank 0 */
static int exit_code;

/* As many ranks on every machine, one after the other? */
static int compare_hosts(MPI_Comm machine, int n) {
  int me = 0, here = 0, code = MPI_Comm_rank(MPI_COMM_WORLD, &me);
  if (code == MPI_SUCCESS)
    code = MPI_Comm_rank(machine, &here);
  int own[3] = {n, -n, me % n == here}, all[3] = {0};
  if (code == MPI_SUCCESS)
    code = MPI_Allreduce(own, all, 3, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  ranks_per_host = all[0] == -all[1] && all[2] ? n : 0;
  return code;
}

static int count_here(void) {
  MPI_Comm machine;
  cpu_set_t own, all;
  int n = 1, code = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
  if (code != MPI_SUCCESS)
    return code;
  if (sched_getaffinity(0, sizeof own, &own) != 0)
    CPU_ZERO(&own);
  code = MPI_Comm_size(machine, &n);
  if (code == MPI_SUCCESS)
    code = MPI_Allreduce(&own, &all, (int)sizeof own, MPI_BYTE, MPI_BOR, machine);
  if (code == MPI_SUCCESS)
    code = compare_hosts(machine, n);
  if (code == MPI_SUCCESS)
    code = MPI_Comm_free(&machine);
  ranks_here = n;
  cores_here = code == MPI_SUCCESS && CPU_COUNT(&all) > 0 ? CPU_COUNT(&all) : 1;
  return code;
}

static void here(int32_t *n_ranks, int32_t *n_cores) {
  *n_ranks = ranks_here;
  *n_cores = cores_here;
}

static int32_t per_host(void) {
  return ranks_per_host;
}

static bool begin(int32_t *rank, int32_t *n_ranks, char *why, size_t why_bytes) {
  int provided = 0, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided), me = 0, n = 0;
  if (code == MPI_SUCCESS)
    code = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* inherited by the lanes */
  if (code == MPI_SUCCESS)
    code = MPI_Comm_rank(MPI_COMM_WORLD, &me);
  if (code == MPI_SUCCESS)
    code = MPI_Comm_size(MPI_COMM_WORLD, &n);
  if (code == MPI_SUCCESS)
    code = count_here();
  if (code != MPI_SUCCESS) {
    (void)snprintf(why, why_bytes, "MPI did not start (error %d)", code);
    return false;
  }
  *rank = me;
  speaks = me == 0;
  *n_ranks = n;
  return true;
}

static void abort_job(int code) {
  (void)MPI_Abort(MPI_COMM_WORLD, code);
}

/* MPI_Finalize of MPICH 4.0 over UCX and TCP hangs where ranks of several hosts close their connections at one moment: 8 of 15 runs
 * on four hosts, 1 of 30 where one rank came 0.3 s after the others. A rank that is done waits for the process manager, and
 * moves nothing. Another still waits for its answer to a closing. All results are out by then: so no program waits longer than
 * END_S. Then all leave together: a rank that is freed by another's leaving speaks to a process manager that has lost that one,
 * and mpiexec ends with 255. */
enum { END_S = 20, TOGETHER_S = 1, LAST_NS = 300000000 };

static void give_up(int signal_number) {
  static const char words[] = "backend mpi: MPI_Finalize has not ended in 20 s (MPICH 4.0 over TCP is known for it). "
                              "All results are complete.\n";
  (void)signal_number;
  if (speaks)
    (void)!write(STDERR_FILENO, words, sizeof words - 1);
  (void)sleep(TOGETHER_S);
  _exit(exit_code);
}

static void end(int code) {
  int n_ranks = 0;
  exit_code = code;
  (void)MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
  (void)MPI_Barrier(MPI_COMM_WORLD); /* rank 0 writes what was found: nobody's time runs before */
  (void)signal(SIGALRM, give_up);
  (void)alarm(code < 0 ? 0 : END_S);
  if (speaks && ranks_here < n_ranks)
    (void)nanosleep(&(struct timespec){.tv_nsec = LAST_NS}, NULL);
  (void)MPI_Finalize();
  (void)alarm(0);
}

static const hec_mpi_plugin plugin = {
    .layout = HEC_MPI_LAYOUT,
#ifdef OPEN_MPI
    .library = "Open MPI",
#else
    .library = "MPICH",
#endif
    .begin = begin,
    .here = here,
    .per_host = per_host,
    .abort = abort_job,
    .end = end,
    .transport = &transport,
    .collectives = &collectives,
};

extern hec_mpi_plugin_entry hec_mpi_plugin_open;
__attribute__((visibility("default"))) const hec_mpi_plugin *hec_mpi_plugin_open(const hec_mpi_host *of_program) {
  host = of_program;
  return &plugin;
}
