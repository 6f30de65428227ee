/* Transports: how bytes get from rank to rank.
 *
 * Between two ranks, per lane and direction, there is a channel: a stream of bytes in the order in which messages were
 * posted. Both sides post the same messages in the same order with the same sizes, so a message needs no name. How its
 * bytes are cut into segments is each side's own business. A rank has at most one post in progress on a lane; the lanes
 * never wait for each other. Nothing blocks except `wait`.
 *
 *   start   hands a post over; its arrays and segments stay valid and unchanged until it is done
 *   test    moves what can be moved now (never sleeps); done: every receive is complete and every send's buffer is free
 *   wait    sleeps until something may have changed for this rank, or until_ns; spurious returns are fine
 *
 * Semantics in terms of time: bytes move once both ends have posted (rendezvous). */
#pragma once
#include "models/cluster.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"
#include "runtime/program/program.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct hec_rank hec_rank;
typedef struct hec_world hec_world;
struct hec_launch_options;

typedef struct {
  void *at; /* of a send, where peers read it in place (shares_memory): in the region of the rank that posts */
  int64_t bytes;
} hec_segment;

typedef struct {
  int32_t peer;
  int32_t n_segments;
  const hec_segment *segments; /* [n_segments] */
  int64_t bytes; /* their sum, at least 1; at most one message per peer and direction in a post unless chunked */
  /* sends: index of the receive of the same post that this one forwards, byte for byte. Bytes arrive in units of the
   * post's chunk. -1: none */
  int32_t after;
  int32_t hop; /* of a chained post, both ends: forwarders between the one who has the message and this one; else 0 */
  /* set by the transport: receives: bytes that are there; sends: `bytes` once the buffer is free, less before */
  int64_t moved;
} hec_message;

typedef struct {
  int32_t lane; /* hec_lane, or HEC_CHANNEL_CONTROL */
  hec_message *sends, *receives;
  int32_t n_sends, n_receives;
  int64_t chunk_bytes; /* > 0: chained; messages travel in units of this */
  /* receives are added, as floats, to what is there, strictly in the order of `receives`: only where the transport
   * `adds`. All segments are multiples of 4 bytes */
  bool add;
  void *state; /* the transport's own while the post is in progress */
} hec_post;

enum { HEC_CHANNEL_CONTROL = HEC_N_LANES, HEC_N_CHANNELS };

typedef struct {
  const char *name, *summary;
  const char *mind;   /* how what it imitates differs from what is predicted; NULL: not so that it needs a sentence */
  const char *law;    /* the network law its times should be predicted with, NULL: those of the real links */
  bool shares_memory; /* peers read the sender's segments in place */
  bool adds;          /* can add while receiving (no staging) */
  bool held;          /* the executor holds completions to the closed-form law of the cluster */
  hec_status (*prepare)(const struct hec_launch_options *options,
                        hec_world *world); /* before the ranks exist; NULL: nothing */
  hec_status (*open)(hec_rank *rank);      /* connects every pair: no connection is made later */
  hec_status (*start)(hec_rank *rank, hec_post *post);
  hec_status (*test)(hec_rank *rank, hec_post *post, bool *done);
  hec_status (*wait)(hec_rank *rank, int64_t until_ns);
  void (*close)(hec_rank *rank); /* also with posts in progress, after a failure */
} hec_transport;

/* Transports of the ranks of one machine; `mpi` is a plug-in with the same table. */
#define HEC_TRANSPORT_LIST(X) X(shm) X(emulated) X(paced)
#define HEC_TRANSPORT_DECLARE(name) extern const hec_transport hec_transport_##name;
HEC_TRANSPORT_LIST(HEC_TRANSPORT_DECLARE)
extern const hec_transport *const hec_transports[]; /* NULL-terminated */
const hec_transport *hec_transport_find(const char *name);
