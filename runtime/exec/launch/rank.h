/* Ranks: where they run, what they share, how long they wait, how they end.
 *
 * A launch runs `body` once per rank: as forked processes (default), or as threads of this process (TSan, embedding).
 * Under a process manager it runs only the calling rank's. Every rank has a region of memory of its own. On one
 * machine all regions are one anonymous shared mapping made before the ranks. So an address means the same in every
 * rank, a peer may read it, and nothing can be left behind in /dev/shm. The region is reserved, not touched.
 *
 * Failure: the first rank that fails (hec_rank_fail) or dies names the failure for the whole launch. Every wait of
 * every other rank then ends with HEC_FAILED. In fork mode the caller supervises. A child that dies, is killed or does
 * not end within the limit after a failure is named with the place it last published (hec_rank_at). The others are
 * told, then killed (SIGKILL, which also ends a stopped one). Children die with their parent. */
#pragma once
#include "runtime/exec/math/processor.h"
#include "runtime/exec/transport/transport.h"
#include "runtime/program/program.h"

enum { HEC_RANKS_MAX = 256 };

/* What a rank is doing, for messages about it. role < 0: `phase` alone. */
typedef struct {
  int64_t iteration;
  int32_t op, layer, micro_batch, role, lane;
  bool backward;
  char phase[24]; /* "planning", "checking", ...; "" while operations run */
} hec_place;

typedef struct hec_device_link hec_device_link;

struct hec_rank {
  int32_t rank, n_ranks;
  char *
      memory; /* this rank's region, page-aligned, zero at the start; of its device where there is one (then not zero) */
  size_t memory_bytes;
  int64_t limit_ns;  /* longest wait for a peer */
  int64_t looked_ns; /* of a wait that looks several times: when it last looked and went on waiting; 0: not known */
  const hec_transport *transport;
  hec_processor *processor;   /* computes for it, on `memory` */
  const hec_cluster *cluster; /* link rates for transports that imitate them; NULL: none do */
  hec_world *world;
  void *channels;              /* the transport's own, of this rank */
  const hec_device_link *link; /* NULL: no device, bytes go by the transport */
  void *link_own;              /* the link's own, of this rank */
  void *host_memory; /* of its device's processor (processor.h), for counts: one executor after the other uses it */
  size_t host_bytes;
  /* Virtual time on a device: whoever gives it work does so in its turn, and waits for it. */
  bool serial;
};

/* rank->link is set where the processor has streams. Then messages of the program go over it, and `transport` is for
 * what hosts say to each other. */
typedef hec_status hec_rank_body(hec_rank *rank, void *context);

typedef struct hec_launch_options {
  int32_t n_ranks;
  bool threads; /* ranks are threads of this process */
  bool pin;     /* rank r on the r-th allowed core, when there are at least as many cores as ranks */
  const hec_transport *transport;
  const hec_cluster *cluster;
  size_t memory_bytes;     /* region of each rank */
  double limit_s;          /* longest wait for a peer; 0: 60 */
  hec_precision precision; /* of products, where devices compute */
  const hec_device_link
      *link; /* between the ranks' devices: the launch prepares it, the ranks open it; NULL: no devices */
} hec_launch_options;

/* Runs body(rank, context) on every rank and waits for all of them. HEC_OK: every rank returned HEC_OK. Otherwise the
 * failure that came first is hec_status_message's text, and no process of the launch is left. `context` is inherited by
 * fork: what a rank writes there, others and the caller do not see (in threads they do). The caller must have no other
 * threads when it forks. */
hec_status hec_launch(const hec_launch_options *options, hec_rank_body *body, void *context) HEC_MUST_USE;

int64_t hec_clock_ns(void);     /* CLOCK_MONOTONIC: one clock for all ranks of a machine */
int64_t hec_cpu_clock_ns(void); /* CPU time of the calling thread */
/* For tests of waits, whose time passes by events: what hec_clock_ns says at `now_ns`, on the calling rank; NULL (the default):
 * just that. Set before a launch. */
typedef int64_t hec_clock_hook(int64_t now_ns);
extern hec_clock_hook *hec_rank_clock_hook;

/* Publishes where this rank is (cheap: a few stores). */
void hec_rank_at(hec_rank *rank, const hec_place *place);
/* The same between operations: `phase` alone. */
void hec_rank_at_phase(hec_rank *rank, int64_t iteration, const char *phase);
/* For tests of faults: called at every hec_rank_at, on the rank itself; NULL (the default): not. Set before a launch. */
typedef void hec_place_hook(hec_rank *rank, const hec_place *place);
extern hec_place_hook *hec_rank_place_hook;
/* The text of a place: "dispatch of layer 3 (operation 57, micro-batch 0, iteration 12)"; "backward, " before
 * "operation" where it is. */
void hec_place_describe(const hec_place *place, hec_text *out);

/* Records the failure for the whole launch (the first one wins) and wakes everyone: "rank 2, in PLACE: what the format
 * says". Returns HEC_FAILED. */
hec_status hec_rank_fail(hec_rank *rank, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* HEC_FAILED with the failure's text when some rank failed or died; HEC_OK otherwise. One atomic load when all is well. */
hec_status hec_rank_check(hec_rank *rank) HEC_MUST_USE;
/* The same with a code for hec_launch to return: what it does itself when a body returns a failure. HEC_FAILED. */
hec_status hec_rank_report(hec_rank *rank, hec_status code, const char *text);

/* Whoever waits in a loop of test and wait says for whom; -1: for no rank any more. After limit_ns without progress it ends
 * with hec_rank_late. That fails, and names the rank that all wait for in the end, and where that rank was. Peer -1: every
 * byte has come. `what` completes "waited 60 s for rank 2 in ..."; hec_post_missing_peer is the
 * first peer whose bytes are not all there, -1: none. */
void hec_rank_waits_for(hec_rank *rank, int32_t peer);
hec_status hec_rank_late(hec_rank *rank, int32_t peer, const char *what) HEC_MUST_USE;
hec_status hec_rank_finish(hec_rank *rank, hec_post *post, const char *what) HEC_MUST_USE; /* such a loop */
int32_t hec_post_missing_peer(const hec_post *post);
int64_t hec_post_moved(const hec_post *post); /* bytes of all messages so far: progress */

/* Virtual time: one rank of this machine at a time computes between take_turn and end_turn. A turn may be taken by
 * whoever asks first. Waiting for one ends with hec_rank_late when no turn has ended for limit_ns. */
hec_status hec_rank_take_turn(hec_rank *rank) HEC_MUST_USE;
void hec_rank_end_turn(hec_rank *rank);
/* Turns that have ended on this machine: whoever waits counts them as progress, since the others compute one by one. */
uint32_t hec_rank_turns(const hec_rank *rank);

/* When rank's operation `op` of the current iteration was posted; peers read it on one machine only (else 0 = not known).
 * An entry older than the iteration's start is not one. op < HEC_POSTS_MAX. */
enum { HEC_POSTS_MAX = 1 << 20 };
void hec_rank_set_posted(hec_rank *rank, int32_t op, int64_t ns);
int64_t hec_rank_posted(const hec_rank *rank, int32_t peer, int32_t op);

/* Collectives of the launch itself, over the transport's control channel; each waits at most limit_ns. */
hec_status hec_rank_barrier(hec_rank *rank) HEC_MUST_USE;
/* Barrier after which all ranks go on at one moment, *start_ns on the clock of hec_clock_ns. Rank 0 chooses it, at most
 * 1 ms ahead, when all have come. Every rank sleeps, then spins until it is there. A rank that is woken late returns
 * late with the same *start_ns. Between machines: each rank's own clock after the barrier. */
hec_status hec_rank_start_together(hec_rank *rank, int64_t *start_ns) HEC_MUST_USE;
/* `bytes` of every rank into `all` [n_ranks * bytes] on rank 0 (NULL elsewhere). `data` and `all` anywhere in memory. */
hec_status hec_rank_gather(hec_rank *rank, const void *data, size_t bytes, void *all) HEC_MUST_USE;
hec_status hec_rank_broadcast(hec_rank *rank, void *data, size_t bytes) HEC_MUST_USE; /* from rank 0 */
